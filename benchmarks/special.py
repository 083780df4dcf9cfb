"""Worst errors of the special functions against SciPy in float64, as the table of docs/special-functions.md.

Where SciPy has fewer digits than float64 (hyp2f1 and jv of many arguments, gammaln and psi near zeros) it is mpmath.

usage: python benchmarks/special.py [device ...]

The error is relative, less what a change of one unit in the last place of each argument makes: near a zero of the
function, and where it changes fast, no algorithm does better. Not-a-number and infinities must agree exactly.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import mpmath
import numpy as np
from pytensor import scalar as ps
from scipy import special

from pytensor_cl.routines.elemwise.routine import Elemwise
from pytensor_cl.runtime.context import Context, open_context
from pytensor_cl.scalar.base import element_function

SEED = 20261120
COUNT = 2000
DTYPES = ("float32", "float64")

Arrays = tuple[np.ndarray, ...]


class Family(NamedTuple):
    """Functions of the same arguments."""

    names: tuple[str, ...]  # names in PyTensor; `reference` finds the function to compare with
    # makes the arguments, in float64, from a random generator and the limits of the dtype
    grid: Callable[[np.random.Generator, np.finfo], Arrays]
    largest: float = np.inf  # SciPy takes what is above for infinity, and what is below its reciprocal for zero
    integers: int = 0  # number of leading arguments that are integers

    def dtypes(self, dtype: str) -> tuple[str, ...]:
        """Return the dtypes of the arguments."""
        arity = len(self.grid(np.random.default_rng(SEED), np.finfo(dtype)))
        return ("int32",) * self.integers + (dtype,) * (arity - self.integers)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> np.ndarray:
    return np.exp(rng.uniform(np.log(low), np.log(high), COUNT))


def _sign(rng: np.random.Generator, share: float = 0.5) -> np.ndarray:
    return np.where(rng.random(COUNT) < share, -1, 1)


def _with_specials(arrays: Arrays, *specials: list[float]) -> Arrays:
    """Append every combination of some values."""
    crossed = np.meshgrid(*specials)
    return tuple(np.concatenate([a, c.ravel()]) for a, c in zip(arrays, crossed, strict=True))


def _one(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    near_one = 1 - np.geomspace(limits.eps, 1, 300)
    largest, tiny = float(limits.max), float(limits.tiny)
    ordinary = (np.linspace(-12, 12, 1501), np.linspace(-110, 110, 1001), np.linspace(-800, 800, 801))
    huge = _log_uniform(rng, tiny, largest) * _sign(rng)
    special_values = [0, -0.0, 1, -1, 2, -2, 8, -8, np.inf, -np.inf, np.nan, tiny, -tiny, largest, -largest]
    return (np.concatenate([*ordinary, near_one, -near_one, 1 + near_one, huge, special_values]),)


COMMON = [0, -0.0, 1, np.inf, -1, -np.inf, np.nan, 1e10, 1e30, 20, 10, 1.5]


def _gamma(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    # Far beyond this SciPy itself is off by 1e-12 and more; tests/scalar/test_special.py compares with 50 digits there.
    a = _log_uniform(rng, 1e-8, 1e3)
    near, far = a + rng.normal(0, 3, COUNT) * np.sqrt(a), a * np.exp(rng.normal(0, 1, COUNT))
    x = np.where(rng.random(COUNT) < 0.4, far, np.where(rng.random(COUNT) < 0.5, near, _log_uniform(rng, 1e-9, 3000)))
    return _with_specials((a, np.abs(x)), COMMON, COMMON)


def _gamma_inverse(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    a, p = (
        _log_uniform(rng, 1e-3, 1e4),
        np.where(rng.random(COUNT) < 0.5, rng.random(COUNT), _log_uniform(rng, 1e-30, 1)),
    )
    return _with_specials((a, p), [0, 0.5, 1, 20, 3000, -1, np.nan], [0, -0.0, 0.3, 0.7, 1, -0.1, 1.5, np.inf, np.nan])


def _beta(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    a, b = _log_uniform(rng, 1e-6, 1e5), _log_uniform(rng, 1e-6, 1e5)
    mean = a / (a + b)
    near = mean + rng.normal(0, 3, COUNT) * np.sqrt(mean * (1 - mean) / (a + b + 1))
    x = np.where(rng.random(COUNT) < 0.5, rng.random(COUNT), np.clip(near, 0, 1))
    x = np.where(rng.random(COUNT) < 0.2, _log_uniform(rng, 1e-26, 1), x)
    x_values = [0, 0.5, 1, -1, 2, np.nan, np.inf, 1e-30, 0.99999]
    moderate = [0, -0.0, 1, np.inf, -1, -np.inf, np.nan, 20, 10, 1.5]
    return _with_specials((a, b, x), moderate, moderate, x_values)


def _beta_inverse(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    a, b = _log_uniform(rng, 1e-2, 1e4), _log_uniform(rng, 1e-2, 1e4)
    p = np.where(rng.random(COUNT) < 0.7, rng.random(COUNT), _log_uniform(rng, 1e-20, 1))
    return _with_specials(
        (a, b, p), [0, 0.5, 1, 20, -1, np.inf], [0, 0.5, 1, 20, -1, np.inf], [0, 0.3, 1, -0.1, 2, np.nan]
    )


def _owen(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    h, a = rng.normal(0, 6, COUNT), np.exp(rng.normal(0, 3, COUNT)) * _sign(rng)
    return _with_specials((h, a), COMMON, COMMON)


def _orders(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    v = np.where(rng.random(COUNT) < 0.3, rng.integers(0, 120, COUNT) / 2, _log_uniform(rng, 1e-3, 3000))
    x = np.where(rng.random(COUNT) < 0.7, _log_uniform(rng, 1e-3, 400), _log_uniform(rng, 1e-30, 1e8))
    # Below zero: where float32 overflows SciPy's float64 does not, and has other infinities.
    negative = -np.where(rng.random(COUNT) < 0.5, rng.integers(0, 20, COUNT), rng.uniform(0, 12, COUNT))
    left = _log_uniform(rng, 0.1, 400) * _sign(rng, 0.3)
    special_values = [0, -0.0, 0.5, 1, 2, -2, -1.5, np.inf, -1, -np.inf, np.nan, 1e10, 1e30, 20]
    return _with_specials((np.append(v, negative), np.append(x, left)), special_values, special_values)


def _bessel_first(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    count = 120
    size = np.exp(rng.uniform(np.log(1e-3), np.log(300), (3, count)))
    turning = np.abs(size[0] + rng.normal(0, 4, count) * np.cbrt(size[0]))
    v = np.concatenate([size[0], size[0], rng.integers(0, 60, count)])
    x = np.concatenate([size[1], turning, 10 * size[2] * rng.choice([-1, 1], count)])
    special_values = [0, -0.0, 0.5, 1, 2, -2, -1.5, -1, np.nan, 20, 34.5, -20]
    arrays = v * rng.choice([-1, 1], 3 * count), x
    return _with_specials(arrays, special_values, [*special_values, np.inf, -np.inf])


def _hypergeometric(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    count = 60
    wholes = rng.integers(1, 6, (2, count)), rng.integers(1, 12, count)
    near_one = 1 - np.exp(rng.uniform(np.log(float(limits.eps)), 0, count))
    left = -np.exp(rng.uniform(np.log(0.1), np.log(1e5), count))
    a, b = rng.uniform(0.1, 4, (2, count))
    nearly = rng.integers(-3, 4, count) + np.exp(rng.uniform(np.log(1e-14), np.log(0.2), count)) * rng.choice(
        [-1, 1], count
    )
    ordinary = rng.uniform(0.5, 8, count)
    cases = [
        (a, b, ordinary, rng.uniform(-1, 1, count)),
        (a, b, ordinary, left),
        (*wholes[0], wholes[1], near_one),
        (*wholes[0], wholes[1], left),
        (a, b, a + b + nearly, near_one),
        (a, a + nearly, 5 + ordinary, left),
        (-rng.integers(1, 12, count), b, ordinary, rng.uniform(-3, 0, count)),
        (
            np.array([np.nan, 1, 1, 2, -2]),
            np.full(5, 2.0),
            np.array([2.5, np.nan, 3, 3, -1]),
            np.array([0.5, 0.5, np.nan, 1, 0.5]),
        ),
    ]
    return tuple(np.concatenate(columns) for columns in zip(*cases, strict=True))


def _derivatives(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    n, x = (
        rng.integers(1, 30, COUNT),
        np.where(rng.random(COUNT) < 0.3, rng.uniform(-30, 0, COUNT), _log_uniform(rng, 1e-3, 1e4)),
    )
    return _with_specials((n, x), [-1, 1, 2, 3, 171, 200], [0, -0.0, 1, -1, -3, 12, np.inf, -np.inf, np.nan])


FAMILIES = (
    Family(("erfcx", "erfinv", "erfcinv", "ndtri_exp", "i0", "i1", "j0", "j1"), _one),
    Family(("erf", "erfc", "gamma", "sigmoid", "softplus", "log1mexp"), _one),
    Family(("gammaln", "psi", "tri_gamma"), _one, 1e38),
    Family(("gammainc", "gammaincc"), _gamma),
    Family(("gammaincinv", "gammainccinv"), _gamma_inverse),
    Family(("betainc",), _beta),
    Family(("betaincinv",), _beta_inverse),
    Family(("owens_t",), _owen),
    Family(("ive", "kve"), _orders, 1e300),
    Family(("jv",), _bessel_first),
    Family(("hyp2f1",), _hypergeometric),
    Family(("polygamma",), _derivatives, integers=1),
)
OF_PYMC = Family(("i0e", "i1e"), _one)
"""Functions that PyMC defines."""


@np.vectorize
def _exact_hyp2f1(a: float, b: float, c: float, z: float) -> float:
    if not np.isfinite(a + b + c + z) or z == 1:
        return float(special.hyp2f1(a, b, c, z))
    with mpmath.workdps(30):
        try:
            return float(mpmath.hyp2f1(a, b, c, z, maxprec=3000).real)
        except ZeroDivisionError:
            return np.inf


def _careful(exact: Callable, quick: Callable) -> Callable:
    """mpmath's function where SciPy's loses digits, at zeros and poles."""

    def function(x: np.ndarray) -> np.ndarray:
        values = quick(x)
        near = np.flatnonzero((np.abs(x) < 12) & np.isfinite(values) & (x != 0))
        with mpmath.workdps(30):
            values[near] = [float(mpmath.re(exact(mpmath.mpf(float(v))))) for v in x[near]]
        return values

    return function


def _tri_gamma(x: np.ndarray) -> np.ndarray:
    turn = np.pi / np.sin(np.pi * (x - np.rint(x)))
    left = np.where(x > -np.inf, turn**2 - special.polygamma(1, np.abs(x) + 1), np.inf)
    return np.where(x < 0, left, special.polygamma(1, np.abs(x)))


@np.vectorize
def _exact_jv(v: float, x: float) -> float:
    value = special.jv(v, x)
    if x == 0 or not np.isfinite(value):  # SciPy's infinities of negative orders have no sign
        return np.copysign(np.inf, special.gammasgn(v + 1)) if np.isinf(value) else value
    with mpmath.workdps(25):
        return float(mpmath.besselj(v, x, maxprec=40000).real)


def _log1mexp(x: np.ndarray) -> np.ndarray:
    return np.where(x < -np.log(2), np.log1p(-np.exp(x)), np.log(-np.expm1(x)))


REFERENCES: dict[str, Callable] = {
    "gammaln": _careful(mpmath.loggamma, special.gammaln),
    "hyp2f1": _exact_hyp2f1,
    "jv": _exact_jv,
    "log1mexp": _log1mexp,
    "psi": _careful(mpmath.digamma, special.psi),
    "sigmoid": special.expit,
    "softplus": lambda x: np.logaddexp(0, x),
    "tri_gamma": _tri_gamma,
}


def reference(name: str) -> Callable:
    """Return the function of float64 to compare with."""
    return REFERENCES.get(name) or getattr(special, name)


def scalar_op(name: str, family: Family) -> ps.ScalarOp:
    """Return PyTensor's Op of a function, or PyMC's."""
    if family is not OF_PYMC:
        return getattr(ps.math, name)
    return getattr(import_module("pymc.distributions.dist_math"), f"{name}_scalar")


def routine(context: Context, family: Family, dtype: str, schedule: str | None = None) -> Elemwise:
    """All functions of a family as one kernel."""
    dtypes = family.dtypes(dtype)
    arity, inputs = len(dtypes), [ps.get_scalar_type(d)() for d in dtypes]
    op = ps.Composite(inputs, [scalar_op(name, family)(*inputs) for name in family.names])
    function = element_function(op, dtypes, tuple(o.dtype for o in op.outputs))
    return Elemwise(context, function, ((False,),) * arity, 1, (False,) * arity, schedule)


def arguments(family: Family, dtype: str) -> Arrays:
    """The grid in the dtype."""
    with np.errstate(over="ignore"):
        grid = family.grid(np.random.default_rng(SEED), np.finfo(dtype))
        return tuple(array.astype(d) for array, d in zip(grid, family.dtypes(dtype), strict=True))


def _uncertainty(function: Callable, arrays: Arrays, value: np.ndarray, eps: float) -> np.ndarray:
    """Return the sum of the changes of the value for a relative change of each argument by `eps`."""
    total = np.zeros_like(value)
    for k in range(len(arrays)):
        moved = ((*arrays[:k], arrays[k] * factor, *arrays[k + 1 :]) for factor in (1 + eps, 1 - eps))
        changes = [np.abs(function(*one) - value) for one in moved]
        total += np.maximum(*(np.where(np.isfinite(change), change, 0) for change in changes))
    return total


def _within(values: np.ndarray, largest: float) -> np.ndarray:
    """Move what is beyond the limit, or nearer to zero than its reciprocal, there."""
    if np.isinf(largest):
        return values
    clipped = np.clip(values, -largest, largest)
    return np.where(np.abs(clipped) < 1 / largest, 0, clipped)


@cache
def expectation(name: str, family: Family, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact values on the grid, and what a change of the arguments in their last place makes of them."""
    function = reference(name)

    def within(*values: np.ndarray) -> np.ndarray:
        return _within(function(*values), family.largest)

    exact = tuple(a.astype("float64") for a in arguments(family, dtype))
    with np.errstate(all="ignore"):
        want = within(*exact)
        return want, _uncertainty(within, exact, want, float(np.finfo(dtype).eps))


def error(name: str, family: Family, got: np.ndarray) -> tuple[float, tuple[float, ...]]:
    """Return the worst error (infinite if NaN or infinities differ) and where it is."""
    limits, largest = np.finfo(got.dtype), family.largest
    want, allowed = expectation(name, family, str(got.dtype))
    dtype, got = str(got.dtype), _within(got.astype("float64"), largest)
    with np.errstate(all="ignore"):
        expected = _within(want.astype(limits.dtype).astype("float64"), largest)
        alike = (got == expected) | (np.isnan(got) & np.isnan(expected))
        off = np.abs(got - want) - allowed
        # Subnormal numbers may be flushed to zero.
        relative = np.maximum(off - float(limits.tiny), 0) / np.maximum(np.abs(want), float(limits.tiny))
    comparable = np.isfinite(got) & np.isfinite(expected)
    relative = np.where(alike, 0, np.where(comparable, relative, np.inf))
    worst = int(np.argmax(relative))
    return float(relative[worst]), tuple(float(a[worst]) for a in arguments(family, dtype))


def errors(
    context: Context, dtype: str, schedule: str | None = None, families: Sequence[Family] = FAMILIES
) -> Iterator[tuple[str, float, tuple[float, ...]]]:
    """Give the name, the worst error and its place for every function."""
    routines = {family: routine(context, family, dtype, schedule) for family in families}
    context.build(source for made in routines.values() for source in made.sources())
    for family, made in routines.items():
        arrays = arguments(family, dtype)
        outputs = made(*map(context.from_host, arrays))
        for name, output in zip(family.names, outputs, strict=True):
            yield name, *error(name, family, output.to_host())


def main(devices: list[str]) -> None:
    """Print the table."""
    columns = [(device, dtype) for device in devices for dtype in DTYPES]
    contexts = {device: open_context(device, device) for device in devices}
    families = (*FAMILIES, OF_PYMC) if find_spec("pymc") else FAMILIES
    table = [
        {name: worst for name, worst, _ in errors(contexts[device], dtype, families=families)}
        for device, dtype in columns
    ]
    print("| |", " | ".join(f"{device.split(':')[-1]}, {dtype}" for device, dtype in columns), "|")
    print("|---|" + "---|" * len(columns))
    for name in sorted(table[0]):
        print(f"| `{name}` |", " | ".join(f"{column[name]:.1e}" for column in table), "|")


if __name__ == "__main__":
    main(sys.argv[1:] or ["opencl:pocl", "opencl:intel"])
