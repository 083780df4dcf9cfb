"""Where chains start."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pymc.exceptions import SamplingError
from pymc.initial_point import make_initial_point_fn

__all__ = ["RETRIES", "InitialPoints"]

RETRIES = 10
"""How often a starting point without a finite log density is drawn again, as in PyMC."""


class InitialPoints:
    """PyMC's initial points in the unbounded space, jittered by up to 1.

    Parameters
    ----------
    model
        A `pymc.Model`.
    initvals
        Starting values by variable or name, as `pymc.sample` takes them.
    jitter
        Whether each superchain starts at a point of its own.
    """

    def __init__(self, model: Any, initvals: Any, jitter: bool) -> None:
        self._model = model
        self._names = [value.name for value in model.value_vars]
        jittered = set(model.free_RVs) if jitter else set()
        self._draw = make_initial_point_fn(model=model, overrides=initvals, jitter_rvs=jittered)

    def shapes(self, seed: int) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each value variable.

        Parameters
        ----------
        seed
            Of the point that is drawn for it.
        """
        return {name: np.shape(value) for name, value in self._draw(seed).items()}

    def find(
        self,
        seeds: Sequence[int],
        chains: int,
        log_density: Callable[[Sequence[np.ndarray]], np.ndarray],
    ) -> list[np.ndarray]:
        """Return points where the log density is finite: each superchain's chains start at one point.

        Parameters
        ----------
        seeds
            One for each superchain.
        chains
            Number of chains; at least one for each superchain.
        log_density
            Returns the log densities of all chains.

        Raises
        ------
        pymc.exceptions.SamplingError
            If a superchain has found no point with a finite log density.
        """
        rng = np.random.default_rng(list(seeds))
        length = chains // len(seeds)
        # Chains that are left over start with the last superchain.
        superchain = np.minimum(np.arange(chains) // length, len(seeds) - 1)
        drawn = [self._draw(seed) for seed in seeds]
        for _ in range(RETRIES + 1):
            stacked = [np.stack([point[name] for point in drawn]) for name in self._names]
            points = [values[superchain] for values in stacked]
            density = log_density(points)[::length][: len(seeds)]
            bad = np.flatnonzero(~np.isfinite(density))
            if not bad.size:
                return points
            for index in bad:
                drawn[index] = self._draw(int(rng.integers(2**30)))
        last = drawn[bad[0]]
        raise SamplingError(
            f"{bad.size} of {len(seeds)} starting points have no finite log density after {RETRIES} further "
            f"draws. {self._culprits(last)} The last point: {last}"
        )

    def _culprits(self, point: Mapping[str, np.ndarray]) -> str:
        """Return a sentence that names the variables whose log density is not finite at a point."""
        try:
            terms = self._model.point_logps(point, round_vals=17)
        except Exception as error:
            return f"PyMC cannot evaluate the terms of the log density: {error}."
        bad = ", ".join(f"{name} is {value}" for name, value in terms.items() if not np.isfinite(value))
        return f"There the log density of {bad}." if bad else "There each term of the log density is finite by itself."
