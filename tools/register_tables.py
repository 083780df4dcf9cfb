"""Print the table of `pytensor_cl/codegen/coefficients/register_tables.py`: coefficients in 16 or 32 intervals.

usage: python tools/register_tables.py [name ...]
"""

import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from minimax import Fit, off_zero, remez
from mpmath import atan, erf, erfc, log, mp, mpf, sqrt, tanh

from pytensor_cl.codegen.coefficients.register_tables import ERF_LAST, ERFC_LAST, ERFC_QUADRATIC, linear

SEARCH = 3000  # numbers on each side of the middle that are tried
SHARE = 0.05  # distance as a share of an interval
DIGITS = {"float32": 9, "float64": 17}

Interval = tuple[float, float]
Rows = list[list[mpf]]


def rounded(value: mpf, dtype: str) -> mpf:
    """The nearest number of the dtype."""
    if dtype == "float64":
        return mpf(float(value))
    return mpf(float(np.float32(float(value))))


def accurate_argument(function: Callable, low: float, high: float, dtype: str) -> mpf:
    """A number near the middle whose function value is next to nothing away from a number of the dtype (Gal 1986)."""
    step = mpf(SHARE) * (mpf(high) - mpf(low)) / SEARCH
    with mp.workdps(30):
        numbers = [rounded((mpf(low) + mpf(high)) / 2 + k * step, dtype) for k in range(-SEARCH, SEARCH + 1)]
        return min(numbers, key=lambda x: abs(1 - rounded(function(x), dtype) / function(x)))


def of_log(dtype: str) -> Rows:
    """Reciprocals of numbers from 3/4 to 3/2, and the logarithms of those, to bases e, 2 and 10; by first bits."""
    rows = []
    for k in range(16):
        low, high = (1 + mpf(k) / 16, 1 + mpf(k + 1) / 16) if k < 8 else (mpf(16 + k) / 32, mpf(17 + k) / 32)
        inverse = mpf(1) if k in (0, 15) else accurate_argument(log, 1 / high, 1 / low, dtype)
        rows.append([inverse, *(-log(inverse) / log(base) for base in (mp.e, 2, 10))])
    return rows


def series(function: Callable, low: float, high: float, degree: int, dtype: str) -> list[mpf]:
    """A point of the interval and coefficients of powers of the distance from there; the error is relative."""
    middle = mpf(0) if low == 0 else accurate_argument(function, low, high, dtype)
    first = rounded(function(middle), dtype)

    def steepness(t: mpf) -> mpf:
        return (function(middle + t) - function(middle)) / t

    weight = off_zero(lambda t: abs(t / function(middle + t)))
    fit = Fit(off_zero(steepness), low - middle, high - middle, degree, lambda t: weight(t) + mpf("1e-12"))
    return [middle, first, *remez(fit)[0]]


def of_atan(dtype: str) -> Rows:
    """Points and their arcs: intervals as those of tanh, but that the last one has no end."""
    edges = [mpf(0), *(mpf(2) ** o * (1 + mpf(k + 1) / 4) - 1 for o in range(4) for k in range(4))]
    points = [
        mpf(0),
        *(accurate_argument(atan, edges[k], edges[k + 1], dtype) for k in range(1, 15)),
        accurate_argument(atan, 21.5, 22.5, dtype),
    ]
    rows = [[point, atan(point)] for point in points]
    return rows[4:] + rows[:4]


def of_tanh(dtype: str) -> Rows:
    """Return the table for x up to 15, four intervals per power of two of x + 1, by its exponent and next two bits."""
    edges = [mpf(0), *(mpf(2) ** o * (1 + mpf(k + 1) / 4) - 1 for o in range(4) for k in range(4))]
    rows = [series(tanh, edges[k], edges[k + 1], 6, dtype) for k in range(13)]
    rows += 3 * [[edges[13], mpf(1), *[mpf(0)] * 6]]
    return rows[4:] + rows[:4]  # the exponent of 1 ends in two bits that are set


def steps(last: float, quadratic: float = 0.0) -> list[mpf]:
    """Edges of 32 intervals that become shorter: ``a x + b x**2`` is k + 1/2."""
    a, b = mpf(linear(last, quadratic)), mpf(quadratic)
    heights = [k + mpf(1) / 2 for k in range(32)]
    return [mpf(0), *((sqrt(a**2 + 4 * b * h) - a) / (2 * b) if quadratic else h / a for h in heights)]


def of_erfc(dtype: str) -> Rows:
    """Return the table for x up to `ERFC_LAST`."""
    edges = steps(ERFC_LAST, ERFC_QUADRATIC)
    return [series(erfc, edges[k], edges[k + 1], 5, dtype) for k in range(32)]


def of_erf(dtype: str) -> Rows:
    """Return the table for x up to `ERF_LAST`, where erf is 1; the first interval has ``erf(x) - x``."""
    edges = steps(ERF_LAST)
    rows = [series(erf, edges[k], edges[k + 1], 4, dtype) for k in range(32)]
    rows[0][2] -= 1
    return rows


TABLES: dict[tuple[str, str], Callable[[str], Rows]] = {
    ("atan", "float64"): of_atan,
    ("erf", "float32"): of_erf,
    ("erfc", "float32"): of_erfc,
    ("log", "float32"): of_log,
    ("log", "float64"): of_log,
    ("tanh", "float32"): of_tanh,
}


@cache
def columns(name: str, dtype: str) -> Rows:
    """Return the numbers by what they are, each for all intervals."""
    return [list(column) for column in zip(*TABLES[name, dtype](dtype), strict=True)]


def lines(name: str, dtype: str) -> Iterator[str]:
    """Yield the entry of the table."""
    yield f'    ("{name}", "{dtype}"): ('
    for column in columns(name, dtype):
        numbers = ", ".join(mp.nstr(c, DIGITS[dtype]) for c in column)
        yield textwrap.fill(f"({numbers}),", 112, initial_indent=8 * " ", subsequent_indent=9 * " ")
    yield "    ),"


if __name__ == "__main__":
    for key in TABLES:
        if key[0] in (sys.argv[1:] or key):
            print("\n".join(lines(*key)))  # noqa: T201
