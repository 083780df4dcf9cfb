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

_ADD = """Return sums ``x1 + x2``.

    The other elementwise functions have the same arguments, rules of dtypes and errors. Functions of one operand have
    `x` in place of `x1` and `x2`. They return at once: the device computes in the background.

    Parameters
    ----------
    x1, x2
        Arrays of one device, of which the shapes broadcast, or numbers; at least one is an array. A number of Python
        takes the dtype of the array where it is of its kind: ``x + 2`` has the dtype of `x`.
    out
        An array of the result's shape, into which the result is written; it may be an operand. None makes a new array.

    Returns
    -------
    GpuArray
        The result in the common shape, or `out`. Dtypes follow NumPy 2, but integers that become floating-point
        numbers become floatX, or float32 on a device without float64.

    Raises
    ------
    TypeError
        An operand is an array of the host; the function is not defined for the dtypes; or the result cannot be cast to
        the dtype of `out` by NumPy's rule "same_kind".
    ValueError
        The shapes do not broadcast, the arrays are on several devices, or `out` has another shape or is read-only.
    OverflowError
        A Python integer does not fit into the dtype of the array.
    UnsupportedDtype
        The operation is one of float64, which the device does not have.

    Examples
    --------
    >>> import pytensor_cl.array as xp
    >>> x = xp.asarray([1, 2], dtype="int8")
    >>> xp.add(x, 10).tolist(), xp.add(x, 0.5).dtype == xp.asarray(0.5).dtype
    ([11, 12], True)
    """

_DTYPES = {
    "any": "",
    "numbers": "Bools are a `TypeError`.",
    "bits": "Other dtypes are a `TypeError`.",
    "floats": "Integers become floatX; complex numbers are allowed.",
    "reals": "Integers become floatX; complex numbers are a `TypeError`.",
    "real": "Complex numbers are a `TypeError`.",
    "whole": "Integers are copied; complex numbers are a `TypeError`.",
    "truth": "The result is of bools.",
    "order": "The result is of bools. Complex numbers are compared by their real parts, then by the imaginary ones.",
}
"""A sentence of the docstring for each set of dtypes that a function takes."""


def _unary(name: str, summary: str, dtypes: str) -> Callable[..., GpuArray]:
    operation = OPERATIONS[name]

    def function(x: Any, /, out: GpuArray | None = None) -> GpuArray:
        return apply(operation, (x,), out)

    return _named(function, name, summary, dtypes)


def _binary(name: str, summary: str, dtypes: str) -> Callable[..., GpuArray]:
    operation = OPERATIONS[name]

    def function(x1: Any, x2: Any, /, out: GpuArray | None = None) -> GpuArray:
        return apply(operation, (x1, x2), out)

    return _named(function, name, summary, dtypes)


def _logical(name: str, summary: str, dtypes: str) -> Callable[..., GpuArray]:
    """Return a function of truth values; complex numbers, which have no bits to combine, become these first."""
    operation = OPERATIONS[name]

    def truth(x: Any) -> Any:
        return cast_to(x, np.dtype("bool")) if isinstance(x, GpuArray) and x.dtype.kind == "c" else x

    def of_one(x: Any, /, out: GpuArray | None = None) -> GpuArray:
        return apply(operation, (truth(x),), out)

    def of_two(x1: Any, x2: Any, /, out: GpuArray | None = None) -> GpuArray:
        return apply(operation, (truth(x1), truth(x2)), out)

    return _named(of_one if name == "logical_not" else of_two, name, summary, dtypes)


def _named(function: Callable[..., GpuArray], name: str, summary: str, dtypes: str) -> Callable[..., GpuArray]:
    function.__name__ = function.__qualname__ = name
    first, _, more = summary.partition("\n")
    sentences = "\n    ".join(filter(None, (more, _DTYPES[dtypes], "Arguments and errors are as for `add`.")))
    function.__doc__ = _ADD if name == "add" else f"{first}\n\n    {sentences}\n    "
    return function


abs = _unary("abs", "Return absolute values.\nThe result for complex numbers is real.", "any")
acos = _unary("acos", "Return inverse cosines in radians, ``numpy.arccos``.", "floats")
acosh = _unary("acosh", "Return inverse hyperbolic cosines, ``numpy.arccosh``.", "floats")
add = _binary("add", "", "any")
asin = _unary("asin", "Return inverse sines in radians, ``numpy.arcsin``.", "floats")
asinh = _unary("asinh", "Return inverse hyperbolic sines, ``numpy.arcsinh``.", "floats")
atan = _unary("atan", "Return inverse tangents in radians, ``numpy.arctan``.", "floats")
atan2 = _binary(
    "atan2", "Return the angles of the points (x2, x1) in radians, from -pi to pi, ``numpy.arctan2``.", "reals"
)
atanh = _unary("atanh", "Return inverse hyperbolic tangents, ``numpy.arctanh``.", "floats")
bitwise_and = _binary("bitwise_and", "Return ``x1 & x2`` of integers or bools.", "bits")
bitwise_invert = _unary("bitwise_invert", "Return ``~x`` of integers or bools, ``numpy.invert``.", "bits")
bitwise_left_shift = _binary(
    "bitwise_left_shift",
    "Return ``x1 << x2`` of integers, ``numpy.left_shift``.\nA shift by the number of bits or more gives 0.",
    "bits",
)
bitwise_or = _binary("bitwise_or", "Return ``x1 | x2`` of integers or bools.", "bits")
bitwise_right_shift = _binary("bitwise_right_shift", "Return ``x1 >> x2`` of integers, ``numpy.right_shift``.", "bits")
bitwise_xor = _binary("bitwise_xor", "Return ``x1 ^ x2`` of integers or bools.", "bits")
ceil = _unary("ceil", "Round up to whole numbers.", "whole")
conj = _unary("conj", "Return complex conjugates.\nReal numbers are copied.", "any")
copysign = _binary("copysign", "Return numbers with the size of `x1` and the sign of `x2`.", "reals")
cos = _unary("cos", "Return cosines of angles in radians.", "floats")
cosh = _unary("cosh", "Return hyperbolic cosines.", "floats")
divide = _binary("divide", "Return quotients ``x1 / x2``.", "floats")
equal = _binary("equal", "Return whether elements are equal.", "truth")
exp = _unary("exp", "Return exponentials ``e**x``.", "floats")
exp2 = _unary("exp2", "Return powers of 2, ``2**x``.", "floats")
expm1 = _unary("expm1", "Return ``exp(x) - 1``, accurate near 0.", "floats")
floor = _unary("floor", "Round down to whole numbers.", "whole")
floor_divide = _binary(
    "floor_divide", "Return quotients ``x1 // x2``, rounded down.\nAn integer divided by 0 is 0.", "real"
)
greater = _binary("greater", "Return whether ``x1 > x2``.", "order")
greater_equal = _binary("greater_equal", "Return whether ``x1 >= x2``.", "order")
hypot = _binary("hypot", "Return ``sqrt(x1**2 + x2**2)`` without overflow.", "reals")
isfinite = _unary("isfinite", "Return whether elements are neither infinite nor NaN.", "truth")
isinf = _unary("isinf", "Return whether elements are infinite.", "truth")
isnan = _unary("isnan", "Return whether elements are NaN.", "truth")
less = _binary("less", "Return whether ``x1 < x2``.", "order")
less_equal = _binary("less_equal", "Return whether ``x1 <= x2``.", "order")
log = _unary(
    "log",
    "Return natural logarithms.\nThe logarithm of 0 is minus infinity, and of a negative real number NaN.",
    "floats",
)
log10 = _unary("log10", "Return logarithms to base 10.", "floats")
log1p = _unary("log1p", "Return ``log(1 + x)``, accurate near 0.", "floats")
log2 = _unary("log2", "Return logarithms to base 2.", "floats")
logaddexp = _binary("logaddexp", "Return ``log(exp(x1) + exp(x2))`` without overflow.", "reals")
logical_and = _logical("logical_and", "Return whether both elements are true, that is, not zero.", "truth")
logical_not = _logical("logical_not", "Return whether elements are zero.", "truth")
logical_or = _logical("logical_or", "Return whether at least one of two elements is true, that is, not zero.", "truth")
logical_xor = _logical("logical_xor", "Return whether exactly one of two elements is true, that is, not zero.", "truth")
maximum = _binary("maximum", "Return the greater of two elements.\nIt is NaN where one of them is.", "any")
minimum = _binary("minimum", "Return the lesser of two elements.\nIt is NaN where one of them is.", "any")
multiply = _binary("multiply", "Return products ``x1 * x2``.", "any")
negative = _unary("negative", "Return ``-x``.", "numbers")
nextafter = _binary("nextafter", "Return the next number after `x1` towards `x2`.", "reals")
not_equal = _binary("not_equal", "Return whether elements differ.", "truth")
positive = _unary("positive", "Return a copy of the numbers, ``+x``.", "numbers")
reciprocal = _unary("reciprocal", "Return ``1 / x``.\nThe reciprocals of integers are integers, as in NumPy.", "any")
remainder = _binary(
    "remainder",
    "Return remainders ``x1 % x2``, with the sign of the divisor.\nThe remainder of an integer by 0 is 0.",
    "real",
)
sign = _unary("sign", "Return -1, 0 or 1.\nThe sign of a complex number is ``x / abs(x)``.", "numbers")
signbit = _unary("signbit", "Return whether the sign bit is set.", "real")
sin = _unary("sin", "Return sines of angles in radians.", "floats")
sinh = _unary("sinh", "Return hyperbolic sines.", "floats")
sqrt = _unary("sqrt", "Return square roots.\nThe roots of negative real numbers are NaN.", "floats")
square = _unary("square", "Return squares.", "any")
subtract = _binary("subtract", "Return differences ``x1 - x2``.", "numbers")
tan = _unary("tan", "Return tangents of angles in radians.", "floats")
tanh = _unary("tanh", "Return hyperbolic tangents.", "floats")
trunc = _unary("trunc", "Round towards zero, to whole numbers.", "whole")


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
