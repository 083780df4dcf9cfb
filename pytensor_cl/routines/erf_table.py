"""Coefficients of erf in float32 for sixteen intervals: as many as a permutation of a register can choose from."""

from functools import cache
from math import erf, erfc

import numpy as np

__all__ = ["BOUND", "FROM_ONE", "PER_UNIT", "erf_table"]

BOUND = 3.95  # erf is 1 from here on
PER_UNIT = 15.45 / BOUND
"""Intervals of length one; number k has its middle at ``k / PER_UNIT``."""

FROM_ONE = 4
"""The first interval that has the coefficients of ``erf(x) - 1``; those before have that of ``erf(x) - x``, so that the
rounding errors of a small number are added to a large one."""

DEGREE = 6
NODES = 64


@cache
def erf_table() -> tuple[tuple[float, ...], ...]:
    """Return the middles of the intervals, then the coefficients of powers of the distance from there, by intervals."""
    return tuple(zip(*(_interval(k) for k in range(16)), strict=True))


def _interval(number: int) -> tuple[float, ...]:
    """Fit a polynomial at Chebyshev's nodes; that of the first interval has no constant term."""
    middle, half, lowest = float(np.float32(number / PER_UNIT)), 0.5 / PER_UNIT, int(number == 0)
    nodes = np.cos((np.arange(NODES) + 0.5) * np.pi / NODES)
    at = half * (nodes + 1) / 2 if number == 0 else half * nodes
    goal = [-erfc(middle + t) if number >= FROM_ONE else erf(middle + t) - (middle + t) for t in at]
    weights = np.array([1 / erf(middle + t) for t in at])
    powers = (at[:, None] / half) ** np.arange(lowest, DEGREE + 1)
    fitted = np.linalg.lstsq(powers * weights[:, None], goal * weights, rcond=None)[0]
    coefficients = np.zeros(DEGREE + 1)
    coefficients[lowest : DEGREE + 1] = fitted
    return (middle, *(coefficients / half ** np.arange(DEGREE + 1)))
