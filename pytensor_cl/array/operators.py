"""Operators of device arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pytensor_cl.array import elementwise, products
from pytensor_cl.array.dispatch import OPERATIONS, NotAnOperand, apply, check_writable
from pytensor_cl.runtime.array import GpuArray


def _operation(name: str) -> Callable[..., GpuArray]:
    operation = OPERATIONS[name]
    return lambda x, y, out=None: apply(operation, (x, y), out)


def _power(x: Any, y: Any, out: GpuArray | None = None) -> GpuArray:
    return elementwise.pow(x, y, out=out)


_BINARY: dict[str, Callable[..., GpuArray]] = {
    "add": _operation("add"),
    "sub": _operation("subtract"),
    "mul": _operation("multiply"),
    "truediv": _operation("divide"),
    "floordiv": _operation("floor_divide"),
    "mod": _operation("remainder"),
    "pow": _power,
    "matmul": lambda x, y, out=None: products.matmul(x, y, out=out),
    "and": _operation("bitwise_and"),
    "or": _operation("bitwise_or"),
    "xor": _operation("bitwise_xor"),
    "lshift": _operation("bitwise_left_shift"),
    "rshift": _operation("bitwise_right_shift"),
    "eq": _operation("equal"),
    "ne": _operation("not_equal"),
    "lt": _operation("less"),
    "le": _operation("less_equal"),
    "gt": _operation("greater"),
    "ge": _operation("greater_equal"),
}
_UNARY: dict[str, Callable[[Any], GpuArray]] = {
    "neg": elementwise.negative,
    "pos": elementwise.positive,
    "invert": elementwise.bitwise_invert,
    "abs": elementwise.abs,
}


def _is_foreign(value: Any) -> bool:
    """Return whether an operand may define the operator itself: it is neither a number nor a NumPy array."""
    return not isinstance(value, GpuArray | np.ndarray | np.generic | bool | int | float | complex)


def _is_repeated(name: str, left: Any, right: Any) -> bool:
    """Return whether Python would repeat a list, or the like, as often as an array of an integer says."""
    return name == "mul" and (isinstance(left, Sequence) or isinstance(right, Sequence))


def binary(name: str, left: Any, right: Any) -> Any:
    """Return the result of an operator; NotImplemented if the other operand is neither an array nor a number."""
    try:
        return _BINARY[name](left, right)
    except NotAnOperand:
        if (_is_foreign(left) or _is_foreign(right)) and not _is_repeated(name, left, right):
            return NotImplemented
        raise


def inplace(name: str, left: GpuArray, right: Any) -> Any:
    """Compute an operator into its left operand.

    Raises `TypeError` or `ValueError`: the result has another shape or an incompatible dtype, or `left` is read-only.
    """
    check_writable(left)
    try:
        return _BINARY[name](left, right, left)
    except NotAnOperand:
        if _is_foreign(right) and not _is_repeated(name, left, right):
            return NotImplemented
        raise


def unary(name: str, operand: GpuArray) -> GpuArray:
    """Return the result of an operator of one operand."""
    return _UNARY[name](operand)
