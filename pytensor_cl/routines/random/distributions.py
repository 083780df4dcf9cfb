"""Definitions of the distributions: the numbers that they take from a generator, and the formulas for draws."""

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache
from math import copysign, exp, factorial, floor, inf, isfinite, log, log1p, sqrt
from typing import Any, NamedTuple

import numpy as np

NORMAL_R, NORMAL_INVERSE_R = 3.6541528853610087963519472518, 0.27366123732975827203338247596
EXPONENTIAL_R = 7.69711747013104972
"""The beginnings of the ziggurats' tails, and the reciprocal of the first."""


def _gamma(shape: float) -> tuple[float, ...]:
    """Return the constants of a gamma draw: shape, b, c."""
    if shape < 1:
        return shape, 1 / shape if shape else 0.0, 0.0
    b = shape - 1.0 / 3.0
    return shape, b, 1.0 / sqrt(9 * b)


def _poisson(lam: float) -> tuple[float, ...]:
    if lam < 10:
        return lam, exp(-lam), 0.0, 0.0, 0.0, 0.0, 0.0
    b = 0.931 + 2.53 * sqrt(lam)
    return (
        lam,
        0.0,
        log(lam),
        -0.059 + 0.02483 * b,
        b,
        log(1.1239 + 1.1328 / (b - 3.4)),
        0.9277 - 3.6224 / (b - 2),
    )


def _binomial(n: float, p: float) -> tuple[float, ...]:
    """Return the constants of a binomial draw; those of the method BTPE come after those of the inversion."""
    r = p if p <= 0.5 else 1.0 - p
    q = 1.0 - r
    first = exp(n * log(q))
    bound = floor(min(n, n * r + 10.0 * sqrt(n * r * q + 1)))
    flip = float(p > 0.5)
    if r * n <= 30:
        return n, r, first, bound, flip, *(0.0,) * 12
    fm = n * r + r
    m = floor(fm)
    p1 = floor(2.195 * sqrt(n * r * q) - 4.6 * q) + 0.5
    xm = m + 0.5
    xl, xr = xm - p1, xm + p1
    c = 0.134 + 20.5 / (15.3 + m)
    a = (fm - xl) / (fm - xl * r)
    left = a * (1.0 + a / 2.0)
    a = (xr - fm) / (xr * q)
    right = a * (1.0 + a / 2.0)
    p2 = p1 * (1.0 + 2.0 * c)
    p3 = p2 + c / left
    return n, r, first, bound, flip, 1.0, m, p1, xm, xl, xr, c, left, right, p2, p3, p3 + c / right


def _bits(number: int) -> float:
    """Return the double that has the bits of an integer."""
    return float(np.uint64(number % (1 << 64)).view("float64"))


def _vonmises(mu: float, kappa: float) -> tuple[float, ...]:
    if kappa < 1e-8:
        return mu, kappa, 0.0
    if kappa < 1e-5:
        return mu, kappa, 1.0 / kappa + kappa
    r = 1 + sqrt(1 + 4 * kappa * kappa)
    rho = (r - sqrt(2 * r)) / (2 * kappa)
    return mu, kappa, (1 + rho * rho) / (2 * rho)


class Variate(NamedTuple):
    """Draws that take a varying count of numbers, as in rejection sampling."""

    draw: str  # C expression; ``{g}`` is the generator's name, ``r`` the stream, ``p0`` and so on the constants
    numpy: Callable[..., Any]  # called with a Generator, the number of draws and the parameters
    constants: Callable[..., tuple[float, ...]] = lambda: ()  # parameters to the kernel's constants
    numbers: int = 0
    takes: Callable[..., float] = lambda: 1.0  # estimated mean of the numbers that a draw takes
    needed: tuple[str, ...] = ()  # functions of the template `random/variates`
    kind: str = "double"  # C type of a draw
    least: int = 1  # the least count of numbers that a draw takes
    warm: int = 64  # numbers before a chunk where its chain begins, so that it nearly always meets NumPy's
    word_bits: int = 64  # bits of a number: 64 or 32
    # Whether the kernel supports the parameters; NumPy draws for others.
    is_proper: Callable[..., bool] = lambda *_: True
    # Whether nearly all draws are the same to the last bit with the mathematical functions of any device.
    is_exact: Callable[..., bool] = lambda *_: True
    # Computes the remaining draws from the numbers that the kernel lists and the constants; None: NumPy draws them.
    recompute: Callable[..., np.ndarray] | None = None
    fast: str = ""  # code of the template `random/stream` for draws that take one number and no function, many at once
    # Parameters to the table that the kernel reads; None: the tables of the ziggurats.
    table: Callable[..., np.ndarray] | None = None


def _log1p(numbers: np.ndarray) -> np.ndarray:
    """Return log(1 + x) of the C library, which NumPy's draws use. `numpy.log1p` may round another way."""
    return np.array([log1p(x) for x in numbers.tolist()])


def _tail_of_normal(numbers: np.ndarray) -> np.ndarray:
    """Return normal numbers beyond the layers of the ziggurat; their signs are those of the uniform numbers."""
    return np.copysign(NORMAL_R + -NORMAL_INVERSE_R * _log1p(-abs(numbers)), numbers)


def _tail_of_exponential(numbers: np.ndarray) -> np.ndarray:
    """Return exponential numbers beyond the layers of the ziggurat."""
    return EXPONENTIAL_R - _log1p(-numbers)


def _odd_gamma(numbers: np.ndarray, shape: float, b: float, c: float) -> np.ndarray:
    """Return gamma numbers of normal, or of exponential, numbers in the tail."""
    if shape == 1:
        return _tail_of_exponential(numbers)
    v = 1.0 + c * _tail_of_normal(numbers)
    return b * (v * v * v)


LARGEST_POPULATION = 1 << 16  # the largest population of a hypergeometric draw; length of the table of log(k!)
_HALF_LOG_2PI = 0.9189385332046728
_EXACT_FACTORIALS = 126  # length of NumPy's table of the logarithms of factorials; it takes a series for others


@lru_cache(8)
def _log_factorials(count: int) -> np.ndarray:
    """Return log(k!) for k < count, as NumPy computes it."""
    with localcontext(prec=40):
        exact = [float(Decimal(factorial(k)).ln()) for k in range(min(count, _EXACT_FACTORIALS))]
    series = [
        (k + 0.5) * log(k) - k + (_HALF_LOG_2PI + (1.0 / k) * (1 / 12.0 - 1 / (360.0 * k * k)))
        for k in range(_EXACT_FACTORIALS, count)
    ]
    return np.array(exact + series)


def _hypergeometric(good: int, bad: int, sample: int) -> tuple[float, ...]:
    """Return the constants of the method HRUA."""
    population, few, many = good + bad, min(good, bad), max(good, bad)
    taken = min(sample, population - sample)
    p, q = few / population, many / population
    a = taken * p + 0.5
    c = sqrt(float(population - taken) * taken * p * q / (population - 1) + 0.5)
    h = 1.7155277699214135 * c + 0.8989161620588988
    m = floor(float(taken + 1) * (few + 1) / (population + 2))
    logs = _log_factorials(population + 1)
    g = logs[m] + logs[few - m] + logs[taken - m] + logs[many - taken + m]
    b = min(min(taken, few) + 1, floor(a + 16 * c))
    return a, h, b, float(g), few, many, taken, good, float(good > bad), float(taken < sample)


def is_hypergeometric(good: float, bad: float, sample: float) -> bool:
    """Return whether NumPy takes the method HRUA. It draws a few items one by one, which the kernel does not."""
    are_counts = all(isinstance(n, int) and n >= 0 for n in (good, bad, sample))
    return are_counts and good + bad < LARGEST_POPULATION and 10 <= sample <= good + bad - 10


def _is_range(low: float, high: float) -> bool:
    """Return whether these are limits of whole numbers of 64 bits with at least two between them."""
    return isinstance(low, int) and isinstance(high, int) and -(2**63) <= low < high - 1 < 2**63


def _integers(low: float, high: float) -> tuple[float, ...]:
    return _bits(int(low)), _bits(int(high) - 1 - int(low))


def _drawn_integers(rng: np.random.Generator, n: int, low: Any, high: Any) -> np.ndarray:
    return rng.integers(int(low), int(high), n)


_GAMMA = ("normal", "exponential", "gamma")
_STANDARD_GAMMA = Variate(
    "{g}_gamma(r, p0, p1, p2)",
    lambda rng, n, a: rng.standard_gamma(a, n),
    _gamma,
    3,
    lambda a: 2.1 if a >= 1 else 2.8,
    _GAMMA,
    warm=1024,
    is_proper=lambda a: 0 < a < inf,
    is_exact=lambda a: a >= 1,
    recompute=_odd_gamma,
)

VARIATES: dict[str, Variate] = {
    "normal": Variate(
        "{g}_normal(r)",
        lambda rng, n: rng.standard_normal(n),
        takes=lambda: 1.0223,
        needed=("normal",),
        recompute=_tail_of_normal,
        fast="normal",
    ),
    "exponential": Variate(
        "{g}_exponential(r)",
        lambda rng, n: rng.standard_exponential(n),
        takes=lambda: 1.0225,
        needed=("exponential",),
        recompute=_tail_of_exponential,
        fast="exponential",
    ),
    "integers32": Variate(
        "(long)(as_ulong(p0) + {g}_bounded32(r, &word, (uint)as_ulong(p1)))",
        _drawn_integers,
        _integers,
        2,
        lambda low, high: 2.0**32 / (2**32 - 2**32 % (int(high) - int(low))),
        ("bounded32",),
        kind="long",
        word_bits=32,
        is_proper=_is_range,
        fast="integers",
    ),
    "integers64": Variate(
        "(long)(as_ulong(p0) + {g}_bounded64(r, as_ulong(p1)))",
        _drawn_integers,
        _integers,
        2,
        lambda low, high: 2.0**64 / (2**64 - 2**64 % (int(high) - int(low))),
        ("bounded64",),
        kind="long",
        is_proper=_is_range,
    ),
    "gamma": _STANDARD_GAMMA,
    "beta": Variate(
        "{g}_beta(r, p0, p1, p2, p3, p4, p5)",
        lambda rng, n, a, b: rng.beta(a, b, n),
        lambda a, b: (*_gamma(a), *_gamma(b)),
        6,
        lambda a, b: 4.3 if max(a, b) > 1 else 4.0,
        (*_GAMMA, "beta"),
        least=2,
        warm=2048,
        is_proper=lambda a, b: 0 < a < inf and 0 < b < inf,
        is_exact=lambda a, b: a >= 1 and b >= 1 and a + b > 2,
    ),
    "student": Variate(
        "{g}_student(r, p0, p1, p2, p3)",
        lambda rng, n, df: rng.standard_t(df, n),
        lambda df: (sqrt(df / 2), *_gamma(df / 2)),
        4,
        lambda df: 3.2 if df >= 2 else 3.9,
        (*_GAMMA, "student"),
        least=2,
        warm=2048,
        is_proper=lambda df: 0 < df < inf,
        is_exact=lambda df: df >= 2,
    ),
    "f": Variate(
        "{g}_f(r, p0, p1, p2, p3, p4, p5, p6, p7)",
        lambda rng, n, numerator, denominator: rng.f(numerator, denominator, n),
        lambda numerator, denominator: (numerator, *_gamma(numerator / 2), denominator, *_gamma(denominator / 2)),
        8,
        lambda numerator, denominator: 4.3,
        (*_GAMMA, "f"),
        least=2,
        warm=2048,
        is_proper=lambda numerator, denominator: 0 < numerator < inf and 0 < denominator < inf,
        is_exact=lambda numerator, denominator: numerator >= 2 and denominator >= 2,
    ),
    "wald": Variate(
        "{g}_wald(r, p0, p1)",
        lambda rng, n, mean, scale: rng.wald(mean, scale, n),
        lambda mean, scale: (mean, scale),
        2,
        lambda mean, scale: 2.03,
        ("normal", "wald"),
        least=2,
        warm=1024,
        is_proper=lambda mean, scale: 0 < mean < inf and 0 < scale < inf,
    ),
    "vonmises": Variate(
        "{g}_vonmises(r, p0, p1, p2)",
        lambda rng, n, mu, kappa: rng.vonmises(mu, kappa, n),
        _vonmises,
        3,
        lambda mu, kappa: 1.0 if kappa < 1e-8 else 4.0,
        ("vonmises",),
        warm=256,
        is_proper=lambda mu, kappa: isfinite(mu) and 0 <= kappa < 1e6,
        is_exact=lambda mu, kappa: False,
    ),
    "poisson": Variate(
        "{g}_poisson(r, p0, p1, p2, p3, p4, p5, p6)",
        lambda rng, n, lam: rng.poisson(lam, n),
        _poisson,
        7,
        lambda lam: lam + 1.0 if lam < 10 else 2.5,
        ("poisson",),
        kind="long",
        warm=256,
        is_proper=lambda lam: 0 < lam < 1e15,
    ),
    "negative_binomial": Variate(
        "{g}_negative_binomial(r, p0, p1, p2, p3)",
        lambda rng, n, count, p: rng.negative_binomial(count, p, n),
        lambda n, p: ((1 - p) / p, *_gamma(n)),
        4,
        lambda n, p: (2.1 if n >= 1 else 2.8) + min(n * (1 - p) / p + 1, 3.0),
        (*_GAMMA, "poisson", "negative_binomial"),
        kind="long",
        warm=2048,
        is_proper=lambda n, p: 0 < n < 1e9 and 1e-3 < p < 1,
    ),
    "geometric": Variate(
        "{g}_geometric(r, p0, p1)",
        lambda rng, n, p: rng.geometric(p, n),
        lambda p: (p, log1p(-p) if p < 1 else 0.0),
        2,
        lambda p: 1.0 if p >= 1 / 3 else 1.0225,
        ("exponential", "geometric"),
        kind="long",
        is_proper=lambda p: 1e-15 < p <= 1,
    ),
    "binomial": Variate(
        "{g}_binomial(r, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16)",
        lambda rng, n, count, p: rng.binomial(int(count), p, n),
        _binomial,
        17,
        lambda n, p: 1.0 if n * min(p, 1 - p) <= 30 else 2.6,
        ("binomial",),
        kind="long",
        warm=128,
        is_proper=lambda n, p: 0 < n < 2**40 and 0 < p <= 1,
    ),
    "hypergeometric": Variate(
        "{g}_hrua(r, p0, p1, p2, p3, (long)p4, (long)p5, (long)p6, (long)p7, p8, p9)",
        lambda rng, n, good, bad, sample: rng.hypergeometric(good, bad, sample, n),
        _hypergeometric,
        10,
        lambda good, bad, sample: 2.8,
        ("hrua",),
        kind="long",
        least=2,
        is_proper=is_hypergeometric,
        table=lambda good, bad, sample: _log_factorials(good + bad + 1),
    ),
}


class Distribution(NamedTuple):
    """A distribution of NumPy or SciPy as PyTensor calls it."""

    finish: str = "z"  # C expression of the draw ``z`` and parameters ``a``, ``b``, ``c``
    variate: str = ""  # key of `VARIATES`; empty for a uniform number
    fixed: tuple[int, ...] = ()  # indices of the variate's parameters: numbers, the same for all draws
    free: tuple[int, ...] = ()  # indices of the expression's parameters, which may be arrays
    # c expression that is true for parameters that the kernel takes; others are for NumPy, which may refuse them
    proper: str = "1"
    is_proper: Callable[..., bool] = lambda *_: True  # the same in Python
    is_exact: bool = True  # whether the expression is the same to the last bit on each device
    # C expression that makes ``a`` of the first free parameter ``{x}``. The conditions are those of ``a``.
    first: str = "{x}"
    # the same in NumPy, in the parameter's own precision, in which NumPy and SciPy compute it
    made: Callable[[np.ndarray], Any] | None = None
    # template with the function that the expression calls for one element; empty if it calls none, so that vectors are
    # computed
    function: str = ""


def _is_scale(loc: float, scale: float) -> bool:
    return isfinite(loc) and 0 < scale < inf


def _is_shape(a: float) -> bool:
    return 0 < a < inf


def _is_numpy_scale(loc: float, scale: float) -> bool:
    return isfinite(loc) and _is_not_negative(scale)


def _is_not_negative(scale: float) -> bool:
    """Return whether NumPy takes a scale: 0.0 it takes, and -0.0 it does not."""
    return 0 <= scale < inf and copysign(1.0, scale) > 0


def _expm1_of_minus(x: np.ndarray) -> Any:
    """Return exp(-x) - 1, rounded as SciPy's."""
    from scipy.special import expm1  # loads SciPy, which programs without such a draw need not do

    return expm1(-x)


def _is_inverted(n: float, p: float) -> bool:
    """Return whether NumPy draws a binomial number by inversion, which takes one raw number."""
    return n >= 1 and 0 < p <= 1 and n * min(p, 1.0 - p) <= 30


FEW_TRIALS = 60
"""The most trials of binomial numbers that are drawn by inversion, whatever the probability is."""
_SCALE = "isfinite(a) && b > 0.0 && isfinite(b)"
_NUMPY_SCALE = "isfinite(a) && b >= 0.0 && isfinite(b) && !signbit(b)"

DISTRIBUTIONS: dict[str, Distribution] = {
    "UniformRV": Distribution(
        "a + (b - a) * z",
        free=(0, 1),
        proper="b >= a && isfinite(b - a)",
        is_proper=lambda a, b: a <= b and isfinite(b - a),
    ),
    "NormalRV": Distribution("a + b * z", "normal", free=(0, 1), proper=_NUMPY_SCALE, is_proper=_is_numpy_scale),
    "HalfNormalRV": Distribution("fabs(z) * b + a", "normal", free=(0, 1), proper=_SCALE, is_proper=_is_scale),
    "LogNormalRV": Distribution("exp(a + b * z)", "normal", (), (0, 1), _NUMPY_SCALE, _is_numpy_scale, False),
    "ExponentialRV": Distribution(
        "a * z", "exponential", (), (0,), "a >= 0.0 && isfinite(a) && !signbit(a)", _is_not_negative
    ),
    "WeibullRV": Distribution(
        "pow(z, 1.0 / a)", "exponential", (), (0,), "a > 0.0 && isfinite(a)", lambda a: 0 < a < inf, False
    ),
    "LaplaceRV": Distribution(
        "a + (z >= 0.5 ? -b : b) * log(z >= 0.5 ? 2.0 - z - z : z + z)", "", (), (0, 1), _SCALE, _is_scale, False
    ),
    "LogisticRV": Distribution("a + b * log(z / (1.0 - z))", "", (), (0, 1), _SCALE, _is_scale, False),
    "GumbelRV": Distribution("-log(-log(z)) * b + a", "", (), (0, 1), _SCALE, _is_scale, False),
    "CauchyRV": Distribution(
        "(-1.0 / tan(3.141592653589793 * (z > 0.5 ? z - 1.0 : z))) * b + a", "", (), (0, 1), _SCALE, _is_scale, False
    ),
    "HalfCauchyRV": Distribution("tan(1.5707963267948966 * z) * b + a", "", (), (0, 1), _SCALE, _is_scale, False),
    "ParetoRV": Distribution(
        "pow(1.0 - z, a) * b",
        free=(0, 1),
        proper="a < 0.0 && b > 0.0 && isfinite(a) && isfinite(b)",
        is_proper=lambda a, b: -inf < a < 0 and 0 < b < inf,
        is_exact=False,
        first="-1.0 / {x}",
        made=lambda x: -1 / x,
    ),
    "TruncExponentialRV": Distribution(
        "-log1p(z * a) * c + b",
        free=(0, 1, 2),
        proper="a < 0.0 && isfinite(a) && isfinite(b) && c > 0.0 && isfinite(c)",
        is_proper=lambda a, b, c: -inf < a < 0 and _is_scale(b, c),
        is_exact=False,
        first="expm1(-{x})",
        made=_expm1_of_minus,
    ),
    "TriangularRV": Distribution(
        "z <= (b - a) / (c - a) ? a + sqrt(z * ((b - a) * (c - a))) : c - sqrt((1.0 - z) * ((c - b) * (c - a)))",
        free=(0, 1, 2),
        proper="a <= b && b <= c && a < c && isfinite(c - a)",
        is_proper=lambda a, b, c: a <= b <= c and a < c and isfinite(c - a),
    ),
    "BernoulliRV": Distribution(
        "(a <= 0.5 ? z > 1.0 - a : z <= 1.0 - (1.0 - a)) ? one : zero",
        free=(0,),
        proper="a > 0.0 && a <= 1.0",
        is_proper=lambda p: 0 < p <= 1,
    ),
    "MaskRV": Distribution(
        "z >= a",
        free=(0,),
        proper="a >= 0.0 && a <= 1.0",
        is_proper=lambda p: 0 <= p <= 1,
    ),
    "CategoricalRV": Distribution(fixed=(0,)),
    "IntegersRV": Distribution(variate="integers", fixed=(0, 1)),
    "GammaRV": Distribution("a * z", "gamma", (0,), (1,), "a > 0.0 && isfinite(a)", lambda a: 0 < a < inf),
    "InvGammaRV": Distribution(
        "1.0 / (a * z)",
        "gamma",
        (0,),
        (1,),
        "a > 0.0 && isfinite(a)",
        lambda a: 0 < a < inf,
        first="1.0 / {x}",
        made=lambda x: 1 / x,
    ),
    "GenGammaRV": Distribution(
        "pow(z, a) * b",
        "ratio_gamma",
        (0, 1),
        (1, 2),
        "a > 0.0 && isfinite(a) && b > 0.0",
        lambda a, b: 0 < a < inf and b > 0,
        False,
        "1.0 / {x}",
        lambda x: 1.0 / x,
    ),
    "DirichletRV": Distribution(variate="gamma", fixed=(0,)),
    "BetaRV": Distribution(variate="beta", fixed=(0, 1)),
    "StudentTRV": Distribution("z * b + a", "student", (0,), (1, 2), _SCALE, _is_scale),
    "WaldRV": Distribution(variate="wald", fixed=(0, 1)),
    "VonMisesRV": Distribution(variate="vonmises", fixed=(0, 1), is_exact=False),
    "PoissonRV": Distribution(variate="poisson", fixed=(0,)),
    "NegBinomialRV": Distribution(variate="negative_binomial", fixed=(0, 1)),
    "GeometricRV": Distribution(variate="geometric", fixed=(0,)),
    "BinomialRV": Distribution(variate="binomial", fixed=(0, 1)),
    "HyperGeometricRV": Distribution(variate="hypergeometric", fixed=(0, 1, 2)),
}
"""Distributions by the name of the Op's class."""

METHODS: dict[str, Distribution] = {
    "random_float32": Distribution("z >> 8", "integers", (0, 1)),
    "unit_float32": Distribution("floor(z * 16777216.0) * (1.0 / 16777216.0)"),
    "inverted_exponential": Distribution("-log1p(-z)", is_exact=False),
    "f": Distribution(variate="f", fixed=(0, 1)),
    "gumbel": Distribution("a - b * log(-log(1.0 - z))", "", (), (0, 1), _NUMPY_SCALE, _is_numpy_scale, False),
    "pareto": Distribution("expm1(z / a)", "exponential", (), (0,), "a > 0.0 && isfinite(a)", _is_shape, False),
    "power": Distribution(
        "pow(-expm1(-z), 1.0 / a)", "exponential", (), (0,), "a > 0.0 && isfinite(a)", _is_shape, False
    ),
    "rayleigh": Distribution(
        "a * sqrt(2.0 * z)", "exponential", (), (0,), "a >= 0.0 && isfinite(a) && !signbit(a)", _is_not_negative
    ),
}
"""Distributions that NumPy's Generator has, and that PyTensor has not or draws in another way.

The draws of ``random_float32`` are to be divided by 2**24; ``unit_float32`` is a uniform number that is never 1 as a
float32.
"""

ARRAYS: dict[str, Distribution] = {
    "BinomialRV": Distribution(
        "random_binomial(z, a, b)",
        free=(0, 1),
        proper="a >= 1.0 && b > 0.0 && b <= 1.0 && a * fmin(b, 1.0 - b) <= 30.0",
        is_proper=_is_inverted,
        function="random/binomial",
    ),
}
"""Distributions of which arrays of parameters have a kernel too, if NumPy takes one raw number for each draw."""


class CounterVariate(NamedTuple):
    """Variate of a counter-based generator. Each element has a stream of its own.

    `draw`: C expression of the stream ``r`` and all parameters of the distribution, ``x0``, ``x1`` and ``x2``;
    `proper`: C expression that is true for parameters that the kernel can draw from; `is_proper`: the same in Python;
    `needed`: functions of the template `random/variates`; `kind`: C type; `fast`: name of the code of ``random/each``
    that draws of the first numbers of 8 elements.
    """

    draw: str
    proper: str = "1"
    is_proper: Callable[..., bool] = lambda *_: True
    needed: tuple[str, ...] = ()
    kind: str = "double"
    fast: str = ""


def _are_counts(good: float, bad: float, sample: float) -> bool:
    few = min(sample, good + bad - sample)
    return good >= 0 and bad >= 0 and sample >= 0 and good + bad < 1e9 and 0 <= few <= 1e5


COUNTER_VARIATES: dict[str, CounterVariate] = {
    "hypergeometric": CounterVariate(
        "philox_hypergeometric(r, x0, x1, x2)",
        "x0 >= 0.0 && x1 >= 0.0 && x2 >= 0.0 && x0 + x1 < 1e9 && x2 <= x0 + x1 && fmin(x2, x0 + x1 - x2) <= 1e5",
        _are_counts,
        ("hypergeometric",),
        "long",
    ),
    "": CounterVariate("philox_unit(r)", fast="uniform"),
    "normal": CounterVariate("philox_normal(r)", needed=("normal",), fast="normal"),
    "exponential": CounterVariate("philox_exponential(r)", needed=("exponential",), fast="exponential"),
    "integers": CounterVariate(
        "(long)((ulong)(long)x0 + philox_bounded64(r, (ulong)(long)(x1 - x0 - 1.0)))",
        "x0 <= x1 - 1.0 && fabs(x0) < 4e15 && fabs(x1) < 4e15",
        lambda low, high: low <= high - 1 and abs(low) < 4e15 and abs(high) < 4e15,
        ("bounded64",),
        "long",
    ),
    "gamma": CounterVariate(
        "philox_gamma_of(r, x0)", "x0 > 0.0 && isfinite(x0)", lambda shape, *_: 0 < shape < inf, _GAMMA
    ),
    "ratio_gamma": CounterVariate(
        "philox_gamma_of(r, x0 / x1)",
        "x0 > 0.0 && x1 > 0.0 && isfinite(x0 / x1)",
        lambda alpha, power, *_: alpha > 0 and power > 0 and alpha / power < inf,
        _GAMMA,
    ),
    "beta": CounterVariate(
        "philox_beta_of(r, x0, x1)",
        "x0 > 0.0 && x1 > 0.0 && isfinite(x0 + x1)",
        lambda a, b: a > 0 and b > 0 and a + b < inf,
        (*_GAMMA, "beta"),
    ),
    "f": CounterVariate(
        "philox_f_of(r, x0, x1)",
        "x0 > 0.0 && x1 > 0.0 && isfinite(x0 + x1)",
        lambda numerator, denominator: numerator > 0 and denominator > 0 and numerator + denominator < inf,
        (*_GAMMA, "f"),
    ),
    "student": CounterVariate(
        "philox_student_of(r, x0)", "x0 > 0.0 && isfinite(x0)", lambda df, *_: 0 < df < inf, (*_GAMMA, "student")
    ),
    "wald": CounterVariate(
        "philox_wald(r, x0, x1)",
        "x0 > 0.0 && x1 > 0.0 && isfinite(x0 + x1)",
        lambda mean, scale: mean > 0 and scale > 0 and mean + scale < inf,
        ("normal", "wald"),
    ),
    "vonmises": CounterVariate(
        "philox_vonmises_of(r, x0, x1)",
        "isfinite(x0) && x1 >= 0.0 && x1 < 1e6",
        lambda mu, kappa: isfinite(mu) and 0 <= kappa < 1e6,
        ("vonmises",),
    ),
    "poisson": CounterVariate(
        "philox_poisson_of(r, x0)", "x0 >= 0.0 && x0 < 1e15", lambda lam: 0 <= lam < 1e15, ("poisson",), "long"
    ),
    "geometric": CounterVariate(
        "philox_geometric(r, x0, log1p(-x0))",
        "x0 > 1e-15 && x0 <= 1.0",
        lambda p: 1e-15 < p <= 1,
        ("exponential", "geometric"),
        "long",
    ),
    "binomial": CounterVariate(
        "x0 == 0.0 || x1 == 0.0 ? 0 : philox_binomial_of(r, x0, x1)",
        "x0 >= 0.0 && x0 < 1e12 && x1 >= 0.0 && x1 <= 1.0",
        lambda n, p: 0 <= n < 1e12 and 0 <= p <= 1,
        ("binomial",),
        "long",
    ),
    "negative_binomial": CounterVariate(
        "philox_negative_binomial_of(r, x0, x1)",
        "x0 > 0.0 && x0 < 1e9 && x1 > 1e-3 && x1 < 1.0",
        lambda n, p: 0 < n < 1e9 and 1e-3 < p < 1,
        (*_GAMMA, "poisson", "negative_binomial"),
        "long",
    ),
}
"""Variates by name."""
