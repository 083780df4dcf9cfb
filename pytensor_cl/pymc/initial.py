"""Starting points of chains."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pymc.exceptions import SamplingError
from pymc.initial_point import make_initial_point_fn

RETRIES = 10
"""The number of draws for a starting point until its log density is finite, as in PyMC."""


_PAIRS = 24
"""Pairs of steps and changes of the gradient from which a search direction is made."""
_MOST_EVALUATIONS = 150
_MOST_HALVINGS = 30


def superchain_members(chains: int, superchains: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the superchain where each chain starts, and the first chain of each superchain.

    Superchains have equal lengths. Chains that are left over start with the last one.
    """
    length = chains // superchains
    return np.minimum(np.arange(chains) // length, superchains - 1), length * np.arange(superchains)


class InitialPoints:
    """PyMC's initial points in the unbounded space, jittered by up to 1."""

    def __init__(self, model: Any, initvals: Any, jitter: bool) -> None:
        self._model = model
        self._names = [value.name for value in model.value_vars]
        jittered = set(model.free_RVs) if jitter else set()
        self._draw = make_initial_point_fn(model=model, overrides=initvals, jitter_rvs=jittered)

    def shapes(self, seed: int) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each value variable."""
        return {name: np.shape(value) for name, value in self._draw(seed).items()}

    def find(
        self,
        seeds: Sequence[int],
        chains: int,
        log_density: Callable[[Sequence[np.ndarray]], np.ndarray],
    ) -> list[np.ndarray]:
        """Return points where the log density is finite: each superchain's chains start at one point."""
        rng = np.random.default_rng(list(seeds))
        superchain, first = superchain_members(chains, len(seeds))
        drawn = [self._draw(seed) for seed in seeds]
        for _ in range(RETRIES + 1):
            stacked = [np.stack([point[name] for point in drawn]) for name in self._names]
            points = [values[superchain] for values in stacked]
            density = log_density(points)[first]
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


class _Secants:
    """Search directions of many points, from their last steps (L-BFGS; Nocedal and Wright 2006, section 7.2).

    The first estimate of the inverse curvature is diagonal: the ratio of the sizes of steps and changes of the gradient
    in each parameter, so that parameters of different scales need few steps.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._steps, self._changes = np.zeros((2, _PAIRS, *shape))
        self._inverse = np.zeros((_PAIRS, shape[0]))

    @property
    def is_known(self) -> np.ndarray:
        """Whether a step of a point is known."""
        result: np.ndarray = self._inverse[-1] > 0
        return result

    def add(self, step: np.ndarray, change: np.ndarray, points: np.ndarray) -> None:
        """Store a step and the decrease of the gradient along it, for some points (a mask)."""
        product = np.sum(step * change, axis=1)
        points = points & (product > 1e-12 * np.sum(np.abs(step * change), axis=1))
        product = np.where(points, product, 1.0)
        for array, new in ((self._steps, step), (self._changes, change), (self._inverse, 1 / product)):
            array[:, points] = np.roll(array[:, points], -1, axis=0)
            array[-1, points] = new[points]

    def forget(self, points: np.ndarray) -> None:
        """Forget the steps of some points (a mask)."""
        for array in (self._steps, self._changes, self._inverse):
            array[:, points] = 0

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        """Return ascent directions: of length 1 where no step is known."""
        result = gradient.copy()
        shares = np.zeros_like(self._inverse)
        for i in reversed(range(_PAIRS)):
            shares[i] = self._inverse[i] * np.sum(self._steps[i] * result, axis=1)
            result -= shares[i][:, None] * self._changes[i]
        length = np.maximum(np.sqrt(np.sum(gradient * gradient, axis=1)), 1e-300)
        sizes = [np.sum(array**2, axis=0) for array in (self._steps, self._changes)]
        result *= np.where(
            self.is_known[:, None], np.sqrt(sizes[0] / np.maximum(sizes[1], 1e-300)), 1 / length[:, None]
        )
        for i in range(_PAIRS):
            share = shares[i] - self._inverse[i] * np.sum(self._changes[i] * result, axis=1)
            result += share[:, None] * self._steps[i]
        return result


def approach(
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], start: np.ndarray, enough: float
) -> np.ndarray:
    """Move starting points uphill, each by itself, until a step gains little: to where a chain can move.

    A point far from the posterior may have a gradient so large that no step size which suits the others moves it. A
    point whose log density would grow by less than `enough` stays where it is. The others go back from a mode towards
    where their last large gain began, as far as the log density falls by no more than `enough`: starting points shall
    differ.
    """
    position = np.array(start, "float64")
    density, gradient = evaluate(position)
    first, before = density.copy(), position.copy()
    secants = _Secants(position.shape)
    length = np.ones(len(position))
    small_gains, has_failed = np.zeros(len(position), int), np.zeros(len(position), bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_MOST_EVALUATIONS):
            active = (small_gains < 3) & (length > 1e-12) & np.isfinite(gradient).all(axis=1) & gradient.any(axis=1)
            if not active.any():
                break
            direction = secants.direction(gradient)
            uphill = np.isfinite(direction).all(axis=1) & (np.sum(direction * gradient, axis=1) > 0)
            if not uphill.all():
                secants.forget(~uphill)
                length[~uphill] = 1.0
                direction = secants.direction(gradient)
            step = np.where(active[:, None], length[:, None] * direction, 0.0)
            found, slope = evaluate(position + step)
            gain = found - density
            finite = active & np.isfinite(found) & np.isfinite(slope).all(axis=1)
            takes = finite & (gain > 0)
            # Where the log density is no parabola between both points, they say nothing about its curvature elsewhere.
            error = gain - 0.5 * np.sum(step * (gradient + slope), axis=1)
            is_parabola = finite & (np.abs(error) < 0.2 * np.abs(gain))
            secants.forget(takes & ~is_parabola)
            secants.add(step, gradient - slope, is_parabola)
            has_failed = (has_failed | (active & ~takes)) & ~(takes & (gain >= enough))
            # A small gain says little where a longer step has not been tried, or predicted.
            counts = takes & (gain < enough) & (has_failed | secants.is_known)
            small_gains = np.where(takes & (gain >= enough), 0, small_gains + counts)
            length = np.where(takes, 2 * length, np.where(active, 0.2 * length, length))
            length = np.where(is_parabola & secants.is_known, 1.0, length)
            before = np.where((takes & (gain >= enough))[:, None], position, before)
            position = np.where(takes[:, None], position + step, position)
            density, gradient = np.where(takes, found, density), np.where(takes[:, None], slope, gradient)
    moved = density - first >= enough
    return np.where(moved[:, None], _back(evaluate, position, before, density - enough, moved), start)


def _back(
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    position: np.ndarray,
    before: np.ndarray,
    least: np.ndarray,
    points: np.ndarray,
) -> np.ndarray:
    """Return the first place halfway between both, a quarter of the way, ... with a large enough log density."""
    share = np.where(points, 0.5, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_MOST_HALVINGS):
            trial: np.ndarray = position + share[:, None] * (before - position)
            low = (share > 0) & ~(evaluate(trial)[0] >= least)
            if not low.any():
                return trial
            share[low] *= 0.5
    result: np.ndarray = position + np.where(low, 0.0, share)[:, None] * (before - position)
    return result


def move_to_bulk(chains: Any, superchains: int) -> None:
    """Move the chains of each superchain to a point where they can move (`approach`)."""
    superchain, first = superchain_members(chains.chains, superchains)
    positions = chains.flat_state(first)[0]

    def evaluate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        flat = points[superchain]
        density = chains.set_positions(list(chains.density.split(flat, chains.chains)))
        return np.asarray(density[first], "float64"), chains.flat_state(first)[1]

    # In as many dimensions, half of the squared distance from the mode of a normal distribution is about half of them.
    evaluate(approach(evaluate, positions, 10 + positions.shape[1] / 2))
