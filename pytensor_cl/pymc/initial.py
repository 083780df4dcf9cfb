"""Where chains start."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.exceptions import SamplingError
from pymc.initial_point import make_initial_point_fn

__all__ = ["RETRIES", "InitialPoints"]

RETRIES = 10
"""How often a starting point without a finite log density is drawn again, as in PyMC."""

PRIOR_RETRIES = 200
"""The same for draws from the prior: those that a transform does not allow, such as an ordering, are rejected."""


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
    from_prior
        Whether the points are draws from the prior, without jitter.

    Raises
    ------
    ValueError
        If the points are draws from a prior that is improper.
    """

    def __init__(self, model: Any, initvals: Any, jitter: bool, from_prior: bool = False) -> None:
        improper = [rv.name for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]
        if from_prior and improper:
            raise ValueError(
                f"sampler 'smc' begins with draws from the prior, and that of {', '.join(improper)} is improper"
            )
        self._retries = PRIOR_RETRIES if from_prior else RETRIES
        self._names = [value.name for value in model.value_vars]
        jittered = set(model.free_RVs) if jitter and not from_prior else set()
        strategy = "prior" if from_prior else "support_point"
        self._draw = make_initial_point_fn(
            model=model, overrides=initvals, jitter_rvs=jittered, default_strategy=strategy
        )

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
            Number of chains, which the number of superchains divides.
        log_density
            Returns the log densities of all chains.

        Raises
        ------
        pymc.exceptions.SamplingError
            If a superchain has found no point with a finite log density.
        """
        rng = np.random.default_rng(list(seeds))
        length = chains // len(seeds)
        drawn = [self._draw(seed) for seed in seeds]
        for _ in range(self._retries + 1):
            stacked = [np.stack([point[name] for point in drawn]) for name in self._names]
            points = [np.repeat(values, length, axis=0) for values in stacked]
            density = log_density(points)[::length]
            bad = np.flatnonzero(~np.isfinite(density))
            if not bad.size:
                return points
            for index in bad:
                drawn[index] = self._draw(int(rng.integers(2**30)))
        raise SamplingError(
            f"{bad.size} of {len(seeds)} starting points have no finite log density after {self._retries} further "
            f"draws; the last: {drawn[bad[0]]}"
        )
