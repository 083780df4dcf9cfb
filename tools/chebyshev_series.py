"""Print the table of `pytensor_cl/codegen/coefficients/series.py`: Chebyshev series on [-1, 1], fitted with 40 digits.

usage: python tools/chebyshev_series.py
"""

import textwrap
from collections.abc import Callable

from mpmath import besseli, besselj, cos, erfc, erfinv, exp, log, loggamma, mp, mpf, pi, sin, sqrt

mp.dps = 60
NODES = 90
SMALLEST = mpf("1e-17")


def between(low: float, high: float, function: Callable) -> Callable:
    """Move a function from [low, high] to [-1, 1]."""
    return lambda t: function((high + low + t * (high - low)) / mpf(2))


DIGAMMA_ZERO = mp.findroot(mp.digamma, 1.46)


def erfcx_shape(t: mpf) -> mpf:
    x = mpf(15) / 4 * (1 + t) / (1 - t)
    scaled = exp(x * x) * erfc(x) if x < 1e6 else 1 / (x * sqrt(pi)) * (1 - 1 / (2 * x * x))
    return (x + mpf(1) / 2) * scaled


def inverse_erfc(w: mpf) -> mpf:
    """z with ``1 - erf(z)**2 = exp(-w)``."""
    if w < 30:
        return erfinv(sqrt(-mp.expm1(-w)))
    y = -mp.expm1(mp.log1p(-exp(-w)) / 2)
    z = sqrt(-log(y))
    for _ in range(12):  # Newton's method for log(erfc(z)) = log(y)
        z += log(erfc(z) / y) * erfc(z) * sqrt(pi) / 2 * exp(z * z)
    return z


def ratio(w: mpf) -> mpf:
    return inverse_erfc(w) / sqrt(-mp.expm1(-w))


def amplitude(order: int, part: int) -> Callable:
    """P and Q of DLMF 10.17.3, Q divided by ``1 / x``, as functions of ``(8 / x)**2``."""

    def function(s: mpf) -> mpf:
        x = 8 / sqrt(s)
        phase = x - pi * order / 2 - pi / 4
        j, y = besselj(order, x), mp.bessely(order, x)
        p, q = j * cos(phase) + y * sin(phase), y * cos(phase) - j * sin(phase)
        return sqrt(pi * x / 2) * (q * x if part else p)

    return function


def without_zeros(order: int) -> Callable:
    """J without its zeros up to 8."""
    zeros = [mp.besseljzero(order, k) ** 2 for k in (1, 2)]
    return lambda s: besselj(order, sqrt(s)) / sqrt(s) ** order / ((s - zeros[0]) * (s - zeros[1]))


def scaled_i(order: int) -> Callable:
    return lambda s: sqrt(8 / s) * exp(-8 / s) * besseli(order, 8 / s)


def temme_gamma(part: int) -> Callable:
    """Even part of ``1 / gamma(1 - m)``, and odd part divided by m, as functions of ``m**2`` (Temme 1975)."""

    def function(s: mpf) -> mpf:
        m = sqrt(s)
        plus, minus = mp.rgamma(1 + m), mp.rgamma(1 - m)
        return (minus - plus) / (2 * m) if part else (minus + plus) / 2

    return function


SERIES = {
    "erfcx": erfcx_shape,
    "erfinv_0": between(0, 6.25, ratio),
    "erfinv_1": between(2.5, 4, lambda s: ratio(s * s)),
    "erfinv_2": between(4, 8, lambda s: ratio(s * s)),
    "erfinv_3": between(8, 28, lambda s: ratio(s * s)),
    "i0": between(0, 1, scaled_i(0)),
    "i1": between(0, 1, scaled_i(1)),
    "j0": between(0, 64, without_zeros(0)),
    "j1": between(0, 64, without_zeros(1)),
    "p0": between(0, 1, amplitude(0, 0)),
    "q0": between(0, 1, amplitude(0, 1)),
    "p1": between(0, 1, amplitude(1, 0)),
    "q1": between(0, 1, amplitude(1, 1)),
    "lgamma1p": between(-0.5, 1, lambda a: loggamma(1 + a) / a),
    "digamma": between(1.2, 1.7, lambda x: mp.digamma(x) / (x - DIGAMMA_ZERO)),
    "temme_1": between(0, 0.25, temme_gamma(1)),
    "temme_2": between(0, 0.25, temme_gamma(0)),
}


def coefficients(function: Callable) -> list[mpf]:
    """Return the coefficients of the interpolant at the zeros of a Chebyshev polynomial."""
    angles = [pi * (k + mpf(1) / 2) / NODES for k in range(NODES)]
    values = [function(cos(a)) for a in angles]
    terms = [2 * sum(v * cos(n * a) for v, a in zip(values, angles, strict=True)) / NODES for n in range(NODES)]
    terms[0] /= 2
    while abs(terms[-1]) < SMALLEST * max(map(abs, values)):
        terms.pop()
    return terms


if __name__ == "__main__":
    for name, function in SERIES.items():
        numbers = (mp.nstr(c, 17, strip_zeros=False) for c in coefficients(function))
        text = textwrap.fill(", ".join(numbers), 112, initial_indent=8 * " ", subsequent_indent=8 * " ")
        print(f'    "{name}": (\n{text},\n    ),')  # noqa: T201
