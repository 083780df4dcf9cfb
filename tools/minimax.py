"""Print the table of `pytensor_cl/codegen/coefficients/minimax.py`: polynomials of least largest error (Remez 1934).

usage: python tools/minimax.py [name ...]

The error is relative where a function has no weight of its own. It prints as a comment, in bits.
"""

import sys
import textwrap
from collections.abc import Callable
from typing import NamedTuple

from mpmath import atan, atanh, cos, erf, erfc, exp, expm1, log, log1p, loggamma, mp, mpf, pi, sin, sqrt, tanh

mp.dps = 180
POINTS = 400
TINY = mpf("1e-25")


class Fit(NamedTuple):
    """Problem of approximation: `function` on [low, high] by a polynomial of `count` coefficients."""

    function: Callable
    low: float | mpf
    high: float | mpf
    count: int
    weight: Callable | None = None  # weight of the error; None: the relative error


def between(low: float, high: float, function: Callable) -> Callable:
    """Move a function from [low, high] to [-1, 1]."""
    return lambda t: function((high + low + t * (high - low)) / mpf(2))


def off_zero(function: Callable) -> Callable:
    """A function that is 0 / 0 at zero: there, its value beside it."""
    return lambda x: function(x if abs(x) > TINY else TINY)


def stirling(u: mpf) -> mpf:
    """``y (log(gamma(y)) - ((y - 1/2) log(y) - y + log(2 pi) / 2))`` of ``1 / y**2``."""
    if u < mpf("1e-8"):
        return mpf(1) / 12 - u / 360 + u * u / 1260
    y = 1 / sqrt(u)
    return y * (loggamma(y) - ((y - mpf(1) / 2) * log(y) - y + log(2 * pi) / 2))


def digamma_tail(u: mpf) -> mpf:
    """``y**2 (log(y) - 1 / (2 y) - digamma(y))`` of ``1 / y**2``."""
    if u < mpf("1e-8"):
        return mpf(1) / 12 - u / 120 + u * u / 252
    y = 1 / sqrt(u)
    return y * y * (log(y) - 1 / (2 * y) - mp.digamma(y))


def trigamma_tail(u: mpf) -> mpf:
    """``y**3 (trigamma(y) - 1 / y - 1 / (2 y**2))`` of ``1 / y**2``."""
    if u < mpf("1e-8"):
        return mpf(1) / 6 - u / 30 + u * u / 42
    y = 1 / sqrt(u)
    return y**3 * (mp.polygamma(1, y) - 1 / y - 1 / (2 * y * y))


def erfcx_share(q: mpf, shift: float) -> mpf:
    """``exp(y**2) erfc(y) / q`` with ``q = 1 / (y + shift)``."""
    y = 1 / q - shift
    return exp(y * y) * erfc(y) / q


def erfcx_fit(shift: float, high: float, count: int) -> Fit:
    """Return the fit for y from 0.8 on."""
    ends = 1 / (mpf(high) + shift), 1 / (mpf("0.8") + shift)
    return Fit(between(*ends, lambda q: erfcx_share(q, shift)), -1, 1, count)


def log_erfc_fit(high: float, count: int) -> Fit:
    """Return the fit of log(erfc(y)) in ``y - 1``, with the error of ``erf(y) = 1 - exp(log(erfc(y)))``."""
    return Fit(lambda v: log(erfc(1 + v)), 0, mpf(high) - 1, count, lambda v: erfc(1 + v) / erf(1 + v))


def exp_fit(count: int) -> Fit:
    """``exp(r) = 1 + r + r**2 p(r)`` up to log(2) / 2; the error is that of ``exp(r) - 1``."""
    rest = off_zero(lambda r: (expm1(r) - r) / r**2)
    return Fit(rest, -log(2) / 2, log(2) / 2, count, lambda r: abs(r) + mpf("1e-3"))


def exp2_fit(count: int) -> Fit:
    """``2**r = 1 + r p(r)`` up to 1/2."""
    return Fit(off_zero(lambda r: (mpf(2) ** r - 1) / r), -0.5, 0.5, count)


def log_fit(ratio: mpf, count: int) -> Fit:
    """``log((1 + r) / (1 - r)) = 2 r + r**3 p(r**2)`` up to a logarithm of `ratio`."""
    end = (ratio - 1) / (ratio + 1)
    rest = off_zero(lambda t: 2 * (atanh(sqrt(t)) / sqrt(t) - 1) / t)
    return Fit(rest, 0, end**2 * mpf("1.0001"), count, lambda t: t / 2 + mpf("1e-9"))


def log1p_fit(count: int) -> Fit:
    """``log(1 + r) = r + r**2 p(r)`` from -1/32 to 1/16."""
    rest = off_zero(lambda r: (log1p(r) - r) / r**2)
    return Fit(rest, mpf(-1) / 32, mpf(1) / 16, count, lambda r: abs(r) + mpf("1e-3"))


def sin_fit(count: int) -> Fit:
    """``sin(x) = x + x**3 p(x**2)`` up to pi/4, and a little more."""
    return Fit(off_zero(lambda u: (sin(sqrt(u)) / sqrt(u) - 1) / u), 0, 0.617, count, lambda u: u + mpf("1e-9"))


def cos_fit(count: int) -> Fit:
    """``cos(x) = 1 - x**2 / 2 + x**4 p(x**2)`` up to pi/4, and a little more."""
    return Fit(
        off_zero(lambda u: (cos(sqrt(u)) - 1 + u / 2) / u**2), 0, 0.617, count, lambda u: 1.5 * u * u + mpf("1e-9")
    )


def atan_fit(last: mpf, count: int) -> Fit:
    """``atan(x) = x + x**3 p(x**2)``."""
    rest = off_zero(lambda u: (atan(sqrt(u)) / sqrt(u) - 1) / u)
    return Fit(rest, 0, last**2 * mpf("1.0001"), count, lambda u: u * (1 + u / 3) + mpf("1e-9"))


def coth_fit(count: int) -> Fit:
    """``r coth(r / 2) = 2 + r**2 p(r**2)`` up to log(2) / 2."""
    rest = off_zero(lambda u: (sqrt(u) / tanh(sqrt(u) / 2) - 2) / u)
    return Fit(rest, 0, (log(2) / 2) ** 2 * mpf("1.001"), count, lambda u: u + mpf("1e-9"))


def log2_fit(count: int) -> Fit:
    """``log2((1 + r) / (1 - r)) = 2 / log(2) (r + r**3 / 3) + r**5 p(r**2)`` up to a ratio of sqrt(2)."""
    end = (sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1)
    rest = off_zero(lambda t: (atanh(sqrt(t)) / sqrt(t) - 1 - t / 3) / t**2 * 2 / log(2))
    return Fit(rest, 0, end**2 * mpf("1.0001"), count, lambda t: t**2 + mpf("1e-12"))


def erf_fit(count: int) -> Fit:
    """``erf(x) = x + x p(x**2)`` up to 1."""
    rest = off_zero(lambda u: erf(sqrt(u)) / sqrt(u) - 1)
    return Fit(rest, 0, 1, count, lambda u: 1 / (1 + rest(u)))


def sinpi_fit(count: int) -> Fit:
    """``sin(pi x) / (pi x)`` of ``x**2`` up to 1/2."""
    return Fit(off_zero(lambda u: sin(pi * sqrt(u)) / (pi * sqrt(u))), 0, 0.25, count)


def lgamma_fit(count: int) -> Fit:
    """Return the fit about the zero at 2."""
    return Fit(off_zero(lambda a: loggamma(2 + a) / a), -0.75, 0.25, count)


def tail_fit(function: Callable, lowest: float, count: int) -> Fit:
    """Return the fit for y from `lowest` on."""
    return Fit(function, 0, 1 / mpf(lowest) ** 2, count, lambda u: sqrt(u) / lowest + mpf("1e-20"))


FITS = {
    ("erf", "float32"): erf_fit(7),
    ("erf", "float64"): erf_fit(12),
    ("log_erfc", "float32"): log_erfc_fit(3.95, 7),
    ("log_erfc", "float64"): log_erfc_fit(5.95, 18),
    ("erfcx", "float32"): erfcx_fit(1.5, 10.2, 9),
    ("erfcx", "float64"): erfcx_fit(2.5, 28, 21),
    ("exp", "float32"): exp_fit(5),
    ("exp", "float64"): exp_fit(11),
    ("exp2", "float32"): exp2_fit(7),
    ("exp2", "float64"): exp2_fit(12),
    ("log2", "float32"): log2_fit(3),
    ("log2", "float64"): log2_fit(8),
    ("log", "float32"): log_fit(sqrt(mpf(2)), 4),
    ("log", "float64"): log_fit(sqrt(mpf(2)), 8),
    ("log1p", "float32"): log1p_fit(4),
    ("log1p", "float64"): log1p_fit(9),
    ("log_near_1", "float32"): log_fit(mpf(2), 5),
    ("log_near_1", "float64"): log_fit(mpf(2), 10),
    ("sin", "float32"): sin_fit(3),
    ("sin", "float64"): sin_fit(6),
    ("cos", "float32"): cos_fit(3),
    ("cos", "float64"): cos_fit(6),
    ("atan", "float32"): atan_fit(mpf(1), 8),
    ("atan", "float64"): atan_fit(sqrt(mpf(2)) - 1, 11),
    ("atan_near", "float64"): atan_fit(mpf(1) / 4, 8),
    ("coth", "float32"): coth_fit(2),
    ("coth", "float64"): coth_fit(5),
    ("lgamma2p", "float32"): lgamma_fit(10),
    ("lgamma2p", "float64"): lgamma_fit(20),
    ("stirling", "float32"): tail_fit(stirling, 4, 3),
    ("stirling", "float64"): tail_fit(stirling, 6, 7),
    ("digamma", "float32"): tail_fit(digamma_tail, 5, 3),
    ("digamma", "float64"): tail_fit(digamma_tail, 7, 7),
    ("trigamma", "float32"): tail_fit(trigamma_tail, 5, 3),
    ("trigamma", "float64"): tail_fit(trigamma_tail, 7, 8),
    ("sinpi", "float32"): sinpi_fit(5),
    ("sinpi", "float64"): sinpi_fit(9),
}


def interpolate(values: list[mpf], points: list[mpf], weights: list[mpf], count: int) -> tuple[list[mpf], mpf]:
    """Return the polynomial whose weighted errors at ``count + 1`` points are equal and alternate, and that error."""
    rows = [
        [x**k for k in range(count)] + [(-1) ** i / w] for i, (x, w) in enumerate(zip(points, weights, strict=True))
    ]
    solution = mp.lu_solve(mp.matrix(rows), mp.matrix(values))
    return [solution[k] for k in range(count)], solution[count]


def extremes(errors: list[mpf], count: int) -> list[int]:
    """Return where the error is largest between its changes of sign: `count` neighbouring places."""
    found: list[int] = []
    for k, e in enumerate(errors):
        if found and (e > 0) == (errors[found[-1]] > 0):
            found[-1] = k if abs(e) > abs(errors[found[-1]]) else found[-1]
        else:
            found.append(k)
    while len(found) > count:
        found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
    return found


def remez(fit: Fit) -> tuple[list[mpf], mpf]:
    """Return the coefficients, lowest power first, and the largest error."""
    count, low, high = fit.count, mpf(fit.low), mpf(fit.high)
    grid = [(low + high - (high - low) * cos(pi * k / POINTS)) / 2 for k in range(POINTS + 1)]
    values = [mp.re(fit.function(x)) for x in grid]
    weights = [abs(1 / v) if fit.weight is None else fit.weight(x) for x, v in zip(grid, values, strict=True)]
    places = [round(k * POINTS / count) for k in range(count + 1)]
    for _ in range(30):
        chosen = ([series[k] for k in places] for series in (values, grid, weights))
        terms, level = interpolate(*chosen, count)
        errors = [(v - mp.polyval(terms[::-1], x)) * w for x, v, w in zip(grid, values, weights, strict=True)]
        worst = max(map(abs, errors))
        found = extremes(errors, count + 1)
        if worst < abs(level) * mpf("1.02") or len(found) <= count:
            break
        places = found
    return terms, worst


if __name__ == "__main__":
    for name, dtype in FITS:
        if name not in (sys.argv[1:] or [name]):
            continue
        terms, worst = remez(FITS[name, dtype])
        numbers = ", ".join(mp.nstr(c, 9 if dtype == "float32" else 18, strip_zeros=False) for c in terms)
        text = textwrap.fill(numbers, 112, initial_indent=8 * " ", subsequent_indent=8 * " ")
        print(f'    ("{name}", "{dtype}"): (  # 2**{float(log(worst, 2)):.1f}\n{text},\n    ),')  # noqa: T201
