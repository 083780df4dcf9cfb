"""Elementwise functions."""

from builtins import abs as builtin_abs
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from pytensor_cl.array.arguments import check_arrays, takes_arrays
from pytensor_cl.array.dispatch import (
    OPERATIONS,
    apply,
    assign_result,
    number_of,
)
from pytensor_cl.array.indexing import nonzero
from pytensor_cl.array.launches import cast_to, copied, fill
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout

_NOTES = """
    `out`: an array of the result's shape that the result is written into, cast by NumPy's rule "same_kind".

    The operands are arrays of one context, which broadcast as NumPy's do, and numbers. A number of Python takes the
    dtype of the array where it is of its kind; other dtypes are those of NumPy 2's table. Integers that become
    floating-point numbers become floatX, or float32 on a device without float64. Nothing waits.
    """


def _unary(name: str, summary: str) -> Callable[..., GpuArray]:
    operation = OPERATIONS[name]

    def function(x: Any, /, out: GpuArray | None = None) -> GpuArray:
        return apply(operation, (x,), out)

    return _named(function, name, summary)


def _binary(name: str, summary: str) -> Callable[..., GpuArray]:
    operation = OPERATIONS[name]

    def function(x1: Any, x2: Any, /, out: GpuArray | None = None) -> GpuArray:
        return apply(operation, (x1, x2), out)

    return _named(function, name, summary)


def _logical(name: str, summary: str) -> Callable[..., GpuArray]:
    """Return a function of truth values; complex numbers, which have no bits to combine, become these first."""
    operation = OPERATIONS[name]

    def truth(x: Any) -> Any:
        return cast_to(x, np.dtype("bool")) if isinstance(x, GpuArray) and x.dtype.kind == "c" else x

    def of_one(x: Any, /, out: GpuArray | None = None) -> GpuArray:
        return apply(operation, (truth(x),), out)

    def of_two(x1: Any, x2: Any, /, out: GpuArray | None = None) -> GpuArray:
        return apply(operation, (truth(x1), truth(x2)), out)

    return _named(of_one if name == "logical_not" else of_two, name, summary)


def _named(function: Callable[..., GpuArray], name: str, summary: str) -> Callable[..., GpuArray]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{summary}\n{_NOTES}"
    return function


abs = _unary("abs", "Return absolute values; the size of complex numbers.")
acos = _unary("acos", "Return inverse cosines, in radians.")
acosh = _unary("acosh", "Return inverse hyperbolic cosines.")
add = _binary("add", "Return sums ``x1 + x2``.")
asin = _unary("asin", "Return inverse sines, in radians.")
asinh = _unary("asinh", "Return inverse hyperbolic sines.")
atan = _unary("atan", "Return inverse tangents, in radians.")
atan2 = _binary("atan2", "Return the angles of the points (x2, x1), in radians, from -pi to pi.")
atanh = _unary("atanh", "Return inverse hyperbolic tangents.")
bitwise_and = _binary("bitwise_and", "Return ``x1 & x2`` of integers or bools.")
bitwise_invert = _unary("bitwise_invert", "Return ``~x`` of integers or bools.")
bitwise_left_shift = _binary("bitwise_left_shift", "Return ``x1 << x2`` of integers.")
bitwise_or = _binary("bitwise_or", "Return ``x1 | x2`` of integers or bools.")
bitwise_right_shift = _binary("bitwise_right_shift", "Return ``x1 >> x2`` of integers.")
bitwise_xor = _binary("bitwise_xor", "Return ``x1 ^ x2`` of integers or bools.")
ceil = _unary("ceil", "Round up to whole numbers; integers stay as they are.")
conj = _unary("conj", "Return complex conjugates.")
copysign = _binary("copysign", "Return numbers with the size of `x1` and the sign of `x2`.")
cos = _unary("cos", "Return cosines of angles in radians.")
cosh = _unary("cosh", "Return hyperbolic cosines.")
divide = _binary("divide", "Return quotients ``x1 / x2``.")
equal = _binary("equal", "Return whether elements are equal.")
exp = _unary("exp", "Return exponentials.")
exp2 = _unary("exp2", "Return powers of 2.")
expm1 = _unary("expm1", "Return ``exp(x) - 1``, accurate near 0.")
floor = _unary("floor", "Round down to whole numbers; integers stay as they are.")
floor_divide = _binary("floor_divide", "Return quotients ``x1 // x2``, rounded down.")
greater = _binary("greater", "Return whether ``x1 > x2``.")
greater_equal = _binary("greater_equal", "Return whether ``x1 >= x2``.")
hypot = _binary("hypot", "Return ``sqrt(x1**2 + x2**2)`` without overflow.")
isfinite = _unary("isfinite", "Return whether elements are neither infinite nor NaN.")
isinf = _unary("isinf", "Return whether elements are infinite.")
isnan = _unary("isnan", "Return whether elements are NaN.")
less = _binary("less", "Return whether ``x1 < x2``.")
less_equal = _binary("less_equal", "Return whether ``x1 <= x2``.")
log = _unary("log", "Return natural logarithms.")
log10 = _unary("log10", "Return logarithms to base 10.")
log1p = _unary("log1p", "Return ``log(1 + x)``, accurate near 0.")
log2 = _unary("log2", "Return logarithms to base 2.")
logaddexp = _binary("logaddexp", "Return ``log(exp(x1) + exp(x2))`` without overflow.")
logical_and = _logical("logical_and", "Return whether both elements are true, which is not zero.")
logical_not = _logical("logical_not", "Return whether elements are zero.")
logical_or = _logical("logical_or", "Return whether one or both elements are true, which is not zero.")
logical_xor = _logical("logical_xor", "Return whether one element of two is true, which is not zero.")
maximum = _binary("maximum", "Return the greater of two elements; NaN if one is.")
minimum = _binary("minimum", "Return the lesser of two elements; NaN if one is.")
multiply = _binary("multiply", "Return products ``x1 * x2``.")
negative = _unary("negative", "Return ``-x``.")
nextafter = _binary("nextafter", "Return the next number after `x1` towards `x2`.")
not_equal = _binary("not_equal", "Return whether elements differ.")
positive = _unary("positive", "Return a copy of the numbers.")
reciprocal = _unary("reciprocal", "Return ``1 / x``.")
remainder = _binary("remainder", "Return remainders ``x1 % x2``, with the sign of the divisor.")
sign = _unary("sign", "Return -1, 0 or 1; of complex numbers ``x / abs(x)``.")
signbit = _unary("signbit", "Return whether the sign bit is set.")
sin = _unary("sin", "Return sines of angles in radians.")
sinh = _unary("sinh", "Return hyperbolic sines.")
sqrt = _unary("sqrt", "Return square roots.")
square = _unary("square", "Return squares.")
subtract = _binary("subtract", "Return differences ``x1 - x2``.")
tan = _unary("tan", "Return tangents of angles in radians.")
tanh = _unary("tanh", "Return hyperbolic tangents.")
trunc = _unary("trunc", "Round towards zero; integers stay as they are.")


def pow(x1: Any, x2: Any, /, out: GpuArray | None = None) -> GpuArray:
    """Return powers ``x1 ** x2``.

    Arrays, dtypes and `out` are as for `add`.

    Raises
    ------
    ValueError
        An integer array is raised to a negative integer of the host. The device does not check exponents in arrays.
    """
    if not isinstance(x2, GpuArray):
        exponent = number_of(x2)
        base_kind = x1.dtype.kind if isinstance(x1, GpuArray) else "O"
        if isinstance(exponent, int | np.integer) and base_kind in "iub" and exponent < 0:
            raise ValueError("pow: integers to negative integer powers are not allowed: cast the base to a float")
        if exponent == 2 and base_kind in "iufc" and isinstance(exponent, int):
            return apply(OPERATIONS["square"], (x1,), out)
    return apply(OPERATIONS["pow"], (x1, x2), out)


def round(x: Any, /, decimals: int = 0, out: GpuArray | None = None) -> GpuArray:
    """Round to the nearest number with so many decimals, halves to the even one, as `numpy.round` does.

    Parameters
    ----------
    x
        An array. Integers stay as they are, unless `decimals` is negative.
    decimals
        0 rounds to whole numbers, -2 to hundreds.
    out
        An array that the result is written into, as for `add`.
    """
    if not decimals:
        return apply(OPERATIONS["round"], (x,), out)
    check_arrays("round", (x,))
    rounded = _round_to(x, decimals)
    return rounded if out is None else assign_result("round", out, rounded)


def _round_to(x: GpuArray, decimals: int) -> GpuArray:
    if x.dtype.kind in "iub":
        if decimals > 0:
            return copied(x)
        unit = 10**-decimals
        halves = apply(OPERATIONS["divide"], (x, float(unit)))
        return cast_to(apply(OPERATIONS["multiply"], (apply(OPERATIONS["round"], (halves,)), float(unit))), x.dtype)
    unit = float(10 ** builtin_abs(decimals))
    up, down = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return apply(OPERATIONS[down], (apply(OPERATIONS["round"], (apply(OPERATIONS[up], (x, unit)),)), unit))


@takes_arrays
def real(x: GpuArray, /) -> GpuArray:
    """Return the real parts of complex numbers, a view; real arrays are returned as they are."""
    return _part(x, 0) if x.dtype.kind == "c" else x


@takes_arrays
def imag(x: GpuArray, /) -> GpuArray:
    """Return the imaginary parts of complex numbers, a view; zeros of real arrays."""
    if x.dtype.kind == "c":
        return _part(x, 1)
    result = x.context.empty(x.shape, x.dtype)
    fill(result, x.dtype.type(0))
    return result


def _part(x: GpuArray, number: int) -> GpuArray:
    layout = x.layout
    parts = Layout(layout.shape, tuple(2 * step for step in layout.strides), 2 * layout.offset + number)
    dtype = np.dtype(f"float{4 * x.dtype.itemsize}")
    return GpuArray(x.context, x.buffer, dtype, parts, x.readonly, x.owner)


@overload
def where(condition: Any, /) -> tuple[GpuArray, ...]: ...
@overload
def where(condition: Any, x1: Any, x2: Any, /) -> GpuArray: ...
def where(condition: Any, x1: Any = None, x2: Any = None, /) -> Any:
    """Return elements of `x1` where a condition is true, else of `x2`; without both, what `nonzero` does.

    Parameters
    ----------
    condition
        An array; other dtypes than bool are true where they are not zero. The three operands broadcast.
    x1, x2
        Arrays or numbers. Their dtypes promote as in `add`.
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise ValueError("where: either both or neither of x1 and x2 should be given")
    return apply(OPERATIONS["where"], (condition, x1, x2))


def clip(x: Any, /, min: Any = None, max: Any = None, out: GpuArray | None = None) -> GpuArray:
    """Limit elements to a range.

    Parameters
    ----------
    x
        An array.
    min, max
        Arrays or numbers, which broadcast; None is no limit. The result has the dtype of `x` if they are numbers of
        Python.
    out
        An array that the result is written into, as for `add`.
    """
    if isinstance(x, GpuArray):
        min, max = (None if _is_no_limit(v, x.dtype, side) else v for v, side in ((min, -1), (max, 1)))
    if min is not None and max is not None:
        return apply(OPERATIONS["clip"], (x, min, max), out)
    if min is not None:
        return apply(OPERATIONS["maximum"], (x, min), out)
    if max is not None:
        return apply(OPERATIONS["minimum"], (x, max), out)
    check_arrays("clip", (x,))
    return assign_result("clip", out, x) if out is not None else copied(x)


def _is_no_limit(value: Any, dtype: np.dtype, side: int) -> bool:
    """Return whether a Python integer is beyond the range of an integer dtype, below (-1) or above it (1)."""
    if type(value) is not int or dtype.kind not in "iu":
        return False
    return value < np.iinfo(dtype).min if side < 0 else value > np.iinfo(dtype).max
