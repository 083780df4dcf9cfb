"""Adaptation of step size, trajectory length and mass matrix from all chains at once."""

import math

import numpy as np

__all__ = ["Adam", "DualAveraging", "MassMatrix", "halton", "harmonic_mean"]


def halton(index: int) -> float:
    """Return a term of Halton's sequence in base 2, between 0 and 1.

    Parameters
    ----------
    index
        Number of the term, from 0.
    """
    value, factor, index = 0.0, 0.5, index + 1
    while index:
        value += factor * (index & 1)
        index >>= 1
        factor /= 2
    return value


def harmonic_mean(values: np.ndarray) -> float:
    """Return the harmonic mean of probabilities; one that is 0 makes it 0.

    Parameters
    ----------
    values
        Probabilities of any shape.
    """
    values = np.asarray(values, "float64")
    return 0.0 if not values.all() else float(values.size / np.sum(1 / values))


class DualAveraging:
    """Step size that leads to a wanted acceptance (Hoffman and Gelman 2014, section 3.2).

    Parameters
    ----------
    step_size
        First step size.
    target
        Wanted acceptance.
    gain, delay, decay
        The article's gamma, t0 and kappa. The defaults take smaller steps than the article's: the mean over many chains
        has little noise.
    """

    def __init__(
        self, step_size: float, target: float, gain: float = 0.15, delay: float = 5.0, decay: float = 0.75
    ) -> None:
        self.target = target
        self._gain, self._delay, self._decay = gain, delay, decay
        self.restart(step_size)

    def restart(self, step_size: float) -> None:
        """Forget all acceptances.

        Parameters
        ----------
        step_size
            Next step size.
        """
        self._centre = math.log(step_size)
        self._error = 0.0
        self._count = 0
        self.log_step = self.log_mean = math.log(step_size)

    def update(self, acceptance: float) -> None:
        """Take the acceptance of a trajectory into account.

        Parameters
        ----------
        acceptance
            Of the trajectory that had the current step size.
        """
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
    """Adam (Kingma and Ba 2015) for one number that is to grow, with bounded steps.

    Parameters
    ----------
    value
        First value.
    rate
        Learning rate, which is also the largest step.
    momentum, memory
        The article's beta1 and beta2.
    """

    def __init__(self, value: float, rate: float, momentum: float = 0.0, memory: float = 0.95) -> None:
        self.value = value
        self._rate, self._momentum, self._memory = rate, momentum, memory
        self.restart()

    def restart(self) -> None:
        """Forget all gradients."""
        self._first = self._second = 0.0
        self._count = 0

    def update(self, gradient: float) -> float:
        """Take a step along the gradient, and return the new value.

        Parameters
        ----------
        gradient
            Derivative; one that is not finite is left out.
        """
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


class MassMatrix:
    """Scales of the parameters, from the chains' means and variances in a window of iterations.

    The inverse mass of a parameter is the square root of the ratio of the variances of positions and gradients, which
    minimises the Fisher divergence from a normal distribution of that variance (nutpie has the same estimate). For a
    normal distribution it is the variance, wherever the chains are. A few chains far from the others make both
    variances large, and change the ratio by less than the variance of the positions.

    Parameters
    ----------
    size
        Number of parameters.
    """

    def __init__(self, size: int) -> None:
        self._moments = np.zeros((3, size))
        self._squares = np.zeros(size)
        self._count = 0

    def update(self, moments: np.ndarray) -> None:
        """Add the moments of one iteration.

        Parameters
        ----------
        moments
            Means and variances of the positions, variances of the gradients: shape (3, parameters).
        """
        self._count += 1
        self._moments += moments
        self._squares += moments[0] ** 2

    def estimate(self) -> np.ndarray | None:
        """Return the inverse masses of the window and begin the next one; None if they are not finite."""
        means, variances, slopes = self._moments / self._count
        variances = variances + np.maximum(self._squares / self._count - means**2, 0)
        self._moments[:] = self._squares[:] = self._count = 0
        found = np.sqrt(np.maximum(variances, 1e-20) / np.maximum(slopes, 1e-20))
        return np.clip(found, 1e-20, 1e20) if np.isfinite(found).all() else None
