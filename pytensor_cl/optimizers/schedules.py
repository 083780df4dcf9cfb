"""Learning rates as functions of the number of steps done, in closed form, constant after their end.

The first step uses schedule(0). Since the rate is no state of its own, a training that goes on from a file has the
right one.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pytensor_cl.optimizers.numbers import nonnegative, numbers_as

type Schedule = Callable[[Any], Variable]


def _schedule(formula: Callable[[Variable], Any]) -> Schedule:
    """Return a schedule that computes a formula in float64, of one step count or an array of them."""

    def schedule(count: Any) -> Variable:
        with numbers_as("float64"):
            return pt.as_tensor(formula(pt.as_tensor(count).astype("float64"))).astype("float64")

    return schedule


def _steps(name: str, value: Any, least: int = 1) -> int:
    if int(value) != value or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value}")
    return int(value)


def _between(first: float, last: float, part: Variable) -> Variable:
    """From `first` to `last` along half a cosine while `part` goes from 0 to 1."""
    return last + (first - last) * (0.5 * (1.0 + pt.cos(math.pi * part)))


def step_decay(rate: float, step_size: int, gamma: float = 0.1) -> Schedule:
    """Return rate gamma^floor(t / step_size), PyTorch's ``StepLR``.

    Parameters
    ----------
    rate
        The first rate.
    step_size
        The number of steps with the same rate.
    gamma
        The factor between them.
    """
    rate, size, gamma = nonnegative("rate", rate), _steps("step_size", step_size), nonnegative("gamma", gamma)
    return _schedule(lambda t: rate * pt.pow(gamma, pt.floor(t / float(size))))


def exponential(rate: float, gamma: float) -> Schedule:
    """Return rate gamma^t, PyTorch's ``ExponentialLR``.

    Parameters
    ----------
    rate
        The first rate.
    gamma
        The factor between two steps.
    """
    rate, gamma = nonnegative("rate", rate), nonnegative("gamma", gamma)
    return _schedule(lambda t: rate * pt.pow(gamma, t))


def cosine(rate: float, total_steps: int, final: float = 0.0) -> Schedule:
    """Return half a cosine from `rate` to `final`, PyTorch's ``CosineAnnealingLR``; `final` afterwards.

    Parameters
    ----------
    rate
        The first rate.
    total_steps
        The number of steps after which the rate is `final`.
    final
        The last rate.
    """
    rate, final, total = nonnegative("rate", rate), nonnegative("final", final), _steps("total_steps", total_steps)
    return _schedule(lambda t: _between(rate, final, pt.minimum(t / float(total), 1.0)))


def warm_up(schedule: Schedule | float, steps: int, start: float = 0.0) -> Schedule:
    """Return a straight line from `start` to what `schedule` begins with, then `schedule` from its begin.

    Parameters
    ----------
    schedule
        The schedule that follows, or a constant rate.
    steps
        The number of steps of the line. The whole takes so many steps more than `schedule` alone.
    start
        The first rate; with 0 the first step changes nothing.
    """
    rest = schedule if callable(schedule) else constant(schedule)
    start, steps = nonnegative("start", start), _steps("steps", steps, 0)

    def formula(t: Variable) -> Variable:
        line = start + (rest(0) - start) * (t / float(max(steps, 1)))
        return pt.switch(t < float(steps), line, rest(pt.maximum(t - float(steps), 0.0)))

    return _schedule(formula)


def constant(rate: float) -> Schedule:
    """Return the same rate at each step.

    Parameters
    ----------
    rate
        The rate.
    """
    rate = nonnegative("rate", rate)
    return _schedule(lambda t: rate * pt.ones_like(t))


def one_cycle(
    max_rate: float,
    total_steps: int,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Return two half cosines, up from max_rate / div_factor and down again: PyTorch's ``OneCycleLR``.

    The rate afterwards is the last one, max_rate / div_factor / final_div_factor.

    Parameters
    ----------
    max_rate
        The largest rate.
    total_steps
        The number of steps of both.
    pct_start
        The part of the steps in which the rate rises, from 0 to 1.
    div_factor
        The largest rate is so many times the first one.
    final_div_factor
        The first rate is so many times the last one.
    """
    highest, total = nonnegative("max_rate", max_rate), _steps("total_steps", total_steps)
    if not 0 <= pct_start <= 1:
        raise ValueError(f"pct_start must be between 0 and 1; got {pct_start}")
    if not (div_factor > 0 and final_div_factor > 0):
        raise ValueError(f"div_factor and final_div_factor must be positive; got {div_factor}, {final_div_factor}")
    first = highest / div_factor
    last, top, end = first / final_div_factor, max(pct_start * total - 1.0, 0.0), total - 1.0

    def formula(t: Variable) -> Variable:
        rising = _between(first, highest, pt.minimum(t / max(top, 1e-300), 1.0))
        falling = _between(highest, last, pt.clip((t - top) / max(end - top, 1e-300), 0.0, 1.0))
        return pt.switch(t <= top, rising, falling) if top else falling

    return _schedule(formula)


def piecewise(boundaries: Sequence[int], rates: Sequence[float]) -> Schedule:
    """Return rates[0] before step boundaries[0], rates[1] from there to before boundaries[1], and so on.

    Parameters
    ----------
    boundaries
        Numbers of steps, rising.
    rates
        The rates, one more than there are boundaries.
    """
    limits = [_steps("boundaries", limit, 0) for limit in boundaries]
    values = [nonnegative("rates", rate) for rate in rates]
    if len(values) != len(limits) + 1 or limits != sorted(set(limits)):
        raise ValueError(f"piecewise needs rising boundaries and one rate more; got {limits} and {values}")

    def formula(t: Variable) -> Variable:
        rate = values[0] * pt.ones_like(t)
        for limit, value in zip(limits, values[1:], strict=True):
            rate = pt.switch(t < float(limit), rate, value)
        return rate

    return _schedule(formula)
