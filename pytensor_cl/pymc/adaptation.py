"""Adaptation of step size, trajectory length and mass matrix from all chains at once."""

import math

import numpy as np

from pytensor_cl.pymc.parts import Moments

MEMORY = 0.1
"""Weight of the last state of the chains in the direction in which they vary most."""


def halton(index: int) -> float:
    """Return a term of Halton's sequence in base 2, between 0 and 1."""
    value, factor, index = 0.0, 0.5, index + 1
    while index:
        value += factor * (index & 1)
        index >>= 1
        factor /= 2
    return value


def harmonic_mean(values: np.ndarray) -> float:
    """Return the harmonic mean of probabilities; one that is 0 makes it 0."""
    values = np.asarray(values, "float64")
    return 0.0 if not values.all() else float(values.size / np.sum(1 / values))


def median(values: np.ndarray) -> float:
    """Return the median of a vector: of a few hundred numbers in a fifth of the time of `numpy.median`."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else 0.5 * (ordered[half - 1] + ordered[half]))


class DualAveraging:
    """Step size that leads to a wanted acceptance (Hoffman and Gelman 2014, section 3.2).

    The article's gamma, t0 and kappa are `gain`, `delay` and `decay`. The defaults make smaller changes than the
    article's: the mean over many chains has little noise.
    """

    def __init__(
        self, step_size: float, target: float, gain: float = 0.15, delay: float = 5.0, decay: float = 0.75
    ) -> None:
        self.target = target
        self._gain, self._delay, self._decay = gain, delay, decay
        self.restart(step_size)

    def restart(self, step_size: float) -> None:
        """Forget all acceptances."""
        self._centre = math.log(step_size)
        self._error = 0.0
        self._count = 0
        self.log_step = self.log_mean = math.log(step_size)

    def update(self, acceptance: float) -> None:
        """Take the acceptance of a trajectory into account."""
        self._count += 1
        weight = 1 / (self._count + self._delay)
        self._error += weight * (self.target - acceptance - self._error)
        self.log_step = self._centre - math.sqrt(self._count) / self._gain * self._error
        share = self._count**-self._decay
        self.log_mean += share * (self.log_step - self.log_mean)

    @property
    def step_size(self) -> float:
        """Step size of the next trajectory."""
        return math.exp(self.log_step)

    @property
    def mean(self) -> float:
        """Average of the step sizes, for sampling."""
        return math.exp(self.log_mean)


class Adam:
    """Adam (Kingma and Ba 2015) for one number that is to grow, with steps of at most `rate`."""

    def __init__(self, value: float, rate: float, momentum: float = 0.0, memory: float = 0.95) -> None:
        self.value = value
        self._rate, self._momentum, self._memory = rate, momentum, memory
        self.restart()

    def restart(self) -> None:
        """Forget all gradients."""
        self._first = self._second = 0.0
        self._count = 0

    def update(self, gradient: float) -> float:
        """Take a step along the gradient, if it is finite, and return the new value."""
        if not math.isfinite(gradient):
            return self.value
        self._count += 1
        self._first += (1 - self._momentum) * (gradient - self._first)
        self._second += (1 - self._memory) * (gradient * gradient - self._second)
        first = self._first / (1 - self._momentum**self._count) if self._momentum else self._first
        second = self._second / (1 - self._memory**self._count)
        step = self._rate * first / (math.sqrt(second) + 1e-20)
        self.value += min(max(step, -self._rate), self._rate)
        return self.value


class PrincipalDirection:
    """The direction in which positions vary most, in units of the mass matrix: power iterations, one for each state."""

    def __init__(self, size: int) -> None:
        self._vector = np.full(size, size**-0.5)
        self.restart()

    def restart(self) -> None:
        """Forget all states but for the direction: the units have changed."""
        self._image = np.zeros_like(self._vector)
        self._count = 0

    def in_units(self, inverse_mass: np.ndarray) -> np.ndarray:
        """Return the direction: its product with a position is a coordinate in units of the mass matrix."""
        return self._vector / np.sqrt(inverse_mass)

    def update(self, moments: Moments, inverse_mass: np.ndarray) -> np.ndarray:
        """Take moments along the direction `in_units(inverse_mass)` into account, and return the new direction."""
        self._count += 1
        image = moments.along / (np.sqrt(inverse_mass) * moments.chains)
        self._image += (image - self._image) * max(1 / self._count, MEMORY)
        length = float(np.linalg.norm(self._image))
        if 0 < length < math.inf:
            self._vector = self._image / length
        return self.in_units(inverse_mass)


def usual_chains(squares: np.ndarray) -> np.ndarray:
    """Return which chains statistics over chains are made of: all but those far outside the others.

    A chain is left out if its squared distance from the centre, or its squared gradient (`chain_squares`), is above the
    median of all chains by more than 6 median absolute deviations of the logarithm, and not less than 3 and not more
    than 50 times the median. One chain of two million independent normal ones is.
    """
    usual = np.ones(squares.shape[1], bool)
    for square in squares:
        finite = np.isfinite(square)
        logs = np.log(np.maximum(square[finite], 1e-300))
        usual &= finite
        if logs.size:
            middle = median(logs)
            spread = 6 * median(np.abs(logs - middle))
            usual[finite] &= logs <= middle + min(max(spread, math.log(3)), math.log(50))
    return usual


class MassMatrix:
    """Scales of the parameters, from the chains' states in a window of iterations.

    The inverse mass of a parameter is the square root of the ratio of the variances of positions and gradients, which
    minimises the Fisher divergence from a normal distribution of that variance (nutpie has the same estimate). For a
    normal distribution it is the variance, wherever the chains are.

    Chains far outside the others are left out (`usual_chains`): one with a huge gradient must not set the scales of
    all.
    """

    def __init__(self, size: int) -> None:
        self.inverse_mass = np.ones(size)
        self.centre: np.ndarray | None = None
        self._moments = np.zeros((3, size))
        self._squares = np.zeros(size)
        self._count = 0

    def update(self, moments: Moments) -> None:
        """Add a state of the chains."""
        if moments.chains:
            self.centre = means = moments.mean
            self._count += 1
            self._moments += [means, moments.squares / moments.chains, moments.slope_squares / moments.chains]
            self._squares += means**2

    def estimate(self) -> np.ndarray | None:
        """Return the inverse masses of the window and begin the next one; None if they are not finite."""
        if not self._count:
            return None
        means, variances, slopes = self._moments / self._count
        variances = variances + np.maximum(self._squares / self._count - means**2, 0)
        self._moments[:] = self._squares[:] = self._count = 0
        found = np.sqrt(np.maximum(variances, 1e-20) / np.maximum(slopes, 1e-20))
        if not np.isfinite(found).all():
            return None
        self.inverse_mass = np.clip(found, 1e-20, 1e20)
        return self.inverse_mass
