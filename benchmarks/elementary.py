"""Worst errors of the elementary functions in units in the last place, as the table of docs/special-functions.md.

usage: python benchmarks/elementary.py [device ...]

The reference is NumPy in a wider type: float64 for float32, the 80 bits of x86's long double for float64.
"""

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from pytensor import scalar as ps

from pytensor_cl.routines.elemwise.routine import Elemwise
from pytensor_cl.runtime.context import Context, open_context
from pytensor_cl.scalar.base import element_function

SEED = 20261121
COUNT = 5000
DTYPES = ("float32", "float64")
WIDER = {"float32": np.float64, "float64": np.longdouble}

Arrays = tuple[np.ndarray, ...]
Grid = Callable[[np.random.Generator, np.finfo], Arrays]


class Function(NamedTuple):
    """A function of PyTensor."""

    name: str
    grid: Grid  # makes the arguments, in float64
    reference: str = ""  # name in NumPy, if another

    @property
    def exact(self) -> np.ufunc:
        """NumPy's function."""
        return getattr(np, self.reference or self.name)


def _signs(rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(COUNT) < 0.5, -1, 1)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> np.ndarray:
    return np.exp(rng.uniform(np.log(low), np.log(high), COUNT))


def between(low: float, high: float) -> Grid:
    """Uniform numbers, and as many of any size down to nearly nothing."""

    def grid(rng: np.random.Generator, limits: np.finfo) -> Arrays:
        small = _log_uniform(rng, float(limits.eps) ** 2, min(abs(low) or high, high)) * (_signs(rng) if low < 0 else 1)
        return (np.concatenate([rng.uniform(low, high, COUNT), small]),)

    return grid


def up_to_overflow(base: float) -> Grid:
    """Arguments of a power of `base` that is a normal number."""

    def grid(rng: np.random.Generator, limits: np.finfo) -> Arrays:
        low, high = (np.log(float(x)) / np.log(base) for x in (limits.tiny, limits.max))
        return between(low, 0.999 * high)(rng, limits)

    return grid


def positive(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    """Every size of number, and more about 1."""
    any_size = _log_uniform(rng, float(limits.tiny), float(limits.max))
    return (np.concatenate([any_size, rng.uniform(0.3, 3, COUNT), 1 + 0.01 * rng.normal(size=COUNT)]),)


def above_one(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    """From just above 1 on."""
    return (1 + _log_uniform(rng, float(limits.eps), 1 / float(limits.eps)),)


def above_minus_one(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    """From just above -1 on."""
    return (np.concatenate([rng.uniform(-0.99, 3, COUNT), _log_uniform(rng, 1e-9, 1e9)]),)


def powers(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    """Bases of every size with exponents for which the power is a normal number."""
    base = np.concatenate([_log_uniform(rng, float(limits.tiny), float(limits.max)), rng.uniform(0.5, 2, COUNT)])
    most = 0.99 * -np.log(float(limits.tiny)) / np.maximum(np.abs(np.log(base)), 1e-3)
    return base, rng.uniform(-1, 1, 2 * COUNT) * most


def plane(rng: np.random.Generator, limits: np.finfo) -> Arrays:
    """Points of every direction."""
    return rng.normal(size=COUNT) * _log_uniform(rng, 1e-3, 1e3), rng.normal(size=COUNT)


FUNCTIONS = (
    Function("exp", up_to_overflow(np.e)),
    Function("exp2", up_to_overflow(2)),
    Function("expm1", between(-20, 80)),
    Function("log", positive),
    Function("log2", positive),
    Function("log10", positive),
    Function("log1p", above_minus_one),
    Function("sqrt", positive),
    Function("pow", powers, "power"),
    Function("sin", between(-1e4, 1e4)),
    Function("cos", between(-1e4, 1e4)),
    Function("tan", between(-1e4, 1e4)),
    Function("arcsin", between(-1, 1)),
    Function("arccos", between(-1, 1)),
    Function("arctan", between(-100, 100)),
    Function("arctan2", plane),
    Function("sinh", between(-80, 80)),
    Function("cosh", between(-80, 80)),
    Function("tanh", between(-20, 20)),
    Function("arcsinh", between(-1e4, 1e4)),
    Function("arccosh", above_one),
    Function("arctanh", between(-1, 1)),
)


def routine(
    context: Context, functions: tuple[Function, ...], arity: int, dtype: str, schedule: str | None
) -> Elemwise:
    """Return functions, each of its own arguments, as one kernel."""
    count = arity * len(functions)
    inputs = [ps.get_scalar_type(dtype)() for _ in range(count)]
    made = [getattr(ps, f.name)(*inputs[arity * k : arity * (k + 1)]) for k, f in enumerate(functions)]
    function = element_function(ps.Composite(inputs, made), (dtype,) * count, (dtype,) * len(functions))
    return Elemwise(context, function, ((False,),) * count, 1, (False,) * count, schedule)


def worst(function: Function, arguments: Arrays, got: np.ndarray) -> tuple[float, tuple[float, ...]]:
    """Return the largest error in units in the last place, and where it is."""
    limits, wide = np.finfo(got.dtype), WIDER[str(got.dtype)]
    with np.errstate(all="ignore"):
        exact = function.exact(*(a.astype(wide) for a in arguments))
        unit = np.maximum(np.spacing(np.abs(exact).astype(got.dtype)), limits.tiny * limits.eps).astype(wide)
        error = np.abs(got.astype(wide) - exact) / unit
    # Subnormal numbers may be flushed to zero.
    ordinary = (np.abs(exact) >= limits.tiny) & (np.abs(exact) <= limits.max)
    error = np.where(ordinary, np.where(np.isnan(got), np.inf, error), 0)
    at = int(np.argmax(error))
    return float(error[at]), tuple(float(a[at]) for a in arguments)


def errors(context: Context, dtype: str, schedule: str | None = None) -> Iterator[tuple[str, float, tuple[float, ...]]]:
    """Give the name, the worst error and its place for every function."""
    rng, limits = np.random.default_rng(SEED), np.finfo(dtype)
    grids = {f: tuple(a.astype(dtype) for a in f.grid(rng, limits)) for f in FUNCTIONS}
    for arity in (1, 2):
        functions = tuple(f for f in FUNCTIONS if len(grids[f]) == arity)
        arrays = [np.resize(a, 3 * COUNT) for f in functions for a in grids[f]]
        outputs = routine(context, functions, arity, dtype, schedule)(*map(context.from_host, arrays))
        for k, (function, output) in enumerate(zip(functions, outputs, strict=True)):
            yield function.name, *worst(function, tuple(arrays[arity * k : arity * (k + 1)]), output.to_host())


def main(devices: list[str]) -> None:
    """Print the table."""
    columns = [(device, dtype) for device in devices for dtype in DTYPES]
    contexts = {device: open_context(device, device) for device in devices}
    table = [{name: ulp for name, ulp, _ in errors(contexts[device], dtype)} for device, dtype in columns]
    print("| |", " | ".join(f"{device.split(':')[-1]}, {dtype}" for device, dtype in columns), "|")
    print("|---|" + "---|" * len(columns))
    for name in sorted(table[0]):
        print(f"| `{name}` |", " | ".join(f"{column[name]:.1f}" for column in table), "|")


if __name__ == "__main__":
    main(sys.argv[1:] or ["opencl:pocl", "opencl:intel"])
