"""Dtypes of the array functions: NumPy 2's promotion, and the floating-point dtype that integers become."""

from typing import Any, NamedTuple

import numpy as np
import pytensor

from pytensor_cl.codegen.dtypes import SUPPORTED
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.registry import get_context

DTypeLike = Any

bool = np.dtype("bool")
int8 = np.dtype("int8")
int16 = np.dtype("int16")
int32 = np.dtype("int32")
int64 = np.dtype("int64")
uint8 = np.dtype("uint8")
uint16 = np.dtype("uint16")
uint32 = np.dtype("uint32")
uint64 = np.dtype("uint64")
float16 = np.dtype("float16")
float32 = np.dtype("float32")
float64 = np.dtype("float64")
complex64 = np.dtype("complex64")
complex128 = np.dtype("complex128")

_PYTHON = {int: int64, float: float64, complex: complex128}
KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}
"""Kinds of dtypes in the array API standard, and their letters in NumPy."""


def default_float(context: Context) -> np.dtype:
    """Return the dtype of floating-point results of integers: floatX, float32 on devices without float64."""
    return float64 if pytensor.config.floatX == "float64" and context.info.has_fp64 else float32


def default_complex(context: Context) -> np.dtype:
    """Return the complex dtype of which both parts have the default floating-point dtype."""
    return complex128 if default_float(context) == float64 else complex64


def narrowed(dtype: np.dtype, kinds: "tuple[Any, ...]", context: Context) -> np.dtype:
    """Return the default dtype in place of a floating-point one that has its width from integers alone.

    `dtype`: what NumPy gives; `kinds`: dtypes of the operands, or classes of Python's numbers.
    """
    if dtype.kind not in "fc" or any(isinstance(k, np.dtype) and k.kind in "fc" for k in kinds):
        return dtype
    return default_float(context) if dtype.kind == "f" else default_complex(context)


def of_python(kind: type, context: Context) -> np.dtype:
    """Return the dtype of an array of Python's numbers of a class."""
    if kind is float:
        return default_float(context)
    if kind is complex:
        return default_complex(context)
    return np.dtype(kind)


def _dtype_or_scalar(value: Any) -> Any:
    if isinstance(value, GpuArray):
        return value.dtype
    if isinstance(value, np.generic | np.ndarray):
        return value.dtype
    return value


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """Return the dtype that an operation of these operands has.

    Parameters
    ----------
    arrays_and_dtypes
        Arrays, dtypes, and numbers of Python, which take the dtype of the arrays where it is of their kind.

    Returns
    -------
    numpy.dtype
        NumPy 2's; integers with a Python ``float`` become floatX.

    Raises
    ------
    TypeError
        There is no such dtype.
    """
    if not arrays_and_dtypes:
        raise ValueError("result_type needs at least one array or dtype")
    values = [_dtype_or_scalar(v) for v in arrays_and_dtypes]
    kinds = tuple(
        v if isinstance(v, np.dtype) else np.dtype(v) if isinstance(v, str | type) else type(v) for v in values
    )
    if any(isinstance(v, int | float | complex) for v in values):
        return narrowed(np.result_type(*values), kinds, get_context())
    return np.result_type(*values)


def can_cast(from_: Any, to: DTypeLike, /) -> "np.bool_ | Any":
    """Return whether an array, or a dtype, can be cast without a loss of range, as NumPy's rule "safe"."""
    return np.can_cast(_dtype_or_scalar(from_), to)


class finfo_object(NamedTuple):
    """Limits of a floating-point dtype, as numbers of Python."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype


class iinfo_object(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: np.dtype


def finfo(type: Any, /) -> finfo_object:
    """Return the limits of a floating-point dtype, an array's or a dtype; of the parts if it is complex."""
    info = np.finfo(_dtype_or_scalar(type))
    eps, most, least, normal = (float(x) for x in (info.eps, info.max, info.min, info.smallest_normal))
    return finfo_object(info.bits, eps, most, least, normal, np.dtype(info.dtype))


def iinfo(type: Any, /) -> iinfo_object:
    """Return the limits of an integer dtype, an array's or a dtype."""
    info = np.iinfo(_dtype_or_scalar(type))
    return iinfo_object(info.bits, int(info.max), int(info.min), np.dtype(info.dtype))


def isdtype(dtype: DTypeLike, kind: Any) -> "Any":
    """Return whether a dtype is another one, or of a kind, such as ``"integral"``, or one of a tuple of these.

    Raises `ValueError`: there is no such kind.
    """
    dtype = np.dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in KINDS:
        return dtype.kind in KINDS[kind]
    if isinstance(kind, str) and kind not in SUPPORTED:
        raise ValueError(f"isdtype: there is no kind {kind!r}; kinds are {', '.join(map(repr, KINDS))}")
    return dtype == np.dtype(kind)
