"""NumPy dtypes and the OpenCL C types that store them."""

from typing import Any, NamedTuple

import numpy as np

__all__ = ["SUPPORTED", "ctype", "is_supported", "literal", "needs_fp64", "vector_type"]


class _CType(NamedTuple):
    """How a dtype is spelt in OpenCL C."""

    name: str
    suffix: str  # of an integer or float literal
    minimum: str | None = None  # named constant where the literal cannot be written directly


# bool is stored as uchar (0 or 1): OpenCL C's own bool has no defined size.
SUPPORTED: dict[str, _CType] = {
    "bool": _CType("uchar", ""),
    "int8": _CType("char", ""),
    "int16": _CType("short", ""),
    "int32": _CType("int", "", "INT_MIN"),
    "int64": _CType("long", "L", "LONG_MIN"),
    "uint8": _CType("uchar", ""),
    "uint16": _CType("ushort", ""),
    "uint32": _CType("uint", "u"),
    "uint64": _CType("ulong", "ul"),
    "float32": _CType("float", "f"),
    "float64": _CType("double", ""),
}


def is_supported(dtype: str | np.dtype) -> bool:
    """Tell whether device arrays can hold `dtype`."""
    return str(np.dtype(dtype)) in SUPPORTED


def ctype(dtype: str | np.dtype) -> str:
    """Return the OpenCL C type that stores `dtype`."""
    return SUPPORTED[str(np.dtype(dtype))].name


def vector_type(dtype: str | np.dtype, lanes: int) -> str:
    """Return the OpenCL C vector type of `lanes` elements (the scalar type for one lane)."""
    return ctype(dtype) + (str(lanes) if lanes > 1 else "")


def needs_fp64(dtype: str | np.dtype) -> bool:
    """Tell whether the device must have double precision to touch `dtype`."""
    return str(np.dtype(dtype)) == "float64"


def _float_literal(value: float, suffix: str) -> str:
    if np.isnan(value):
        return "NAN" if suffix else "nan(0ul)"
    if np.isinf(value):
        constant = "INFINITY" if suffix else "((double)INFINITY)"
        return constant if value > 0 else f"(-{constant})"
    # Hexadecimal floats are exact and need no rounding by the driver's parser.
    text = float(value).hex()
    return f"({text}{suffix})" if text.startswith("-") else text + suffix


def literal(value: Any, dtype: str | np.dtype) -> str:
    """Return a C literal of the type that stores `dtype`, exact to the last bit."""
    dtype = np.dtype(dtype)
    kind = SUPPORTED[str(dtype)]
    value = dtype.type(value)
    if dtype.kind == "f":
        return _float_literal(float(value), kind.suffix)
    if dtype.kind == "b":
        return "1" if value else "0"
    number = int(value)
    if kind.minimum is not None and number == np.iinfo(dtype).min:
        return kind.minimum
    text = f"{number}{kind.suffix}"
    return f"({text})" if number < 0 else text
