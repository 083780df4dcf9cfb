"""NumPy dtypes and the OpenCL C types that store them."""

from typing import Any, NamedTuple

import numpy as np


class _CType(NamedTuple):
    """OpenCL C notation of a dtype."""

    name: str
    suffix: str  # suffix of integer or float literals, such as "ul" or "f"
    minimum: str | None = None  # name of the least value, where C has no literal for it, such as INT_MIN


# bool is stored as uchar (0 or 1): OpenCL C's own bool has no defined size.
# float16 is stored as the bits of a half, and computed as float32: kernels/common/half.mako. Complex numbers are pairs.
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
    "float16": _CType("ushort", ""),
    "float32": _CType("float", "f"),
    "float64": _CType("double", ""),
    "complex64": _CType("float2", "f"),
    "complex128": _CType("double2", ""),
}

_PARTS = {"complex64": "float32", "complex128": "float64"}
_CARRIERS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "ulong2"}


def is_supported(dtype: str | np.dtype) -> bool:
    """Return whether device arrays can hold `dtype`."""
    return str(np.dtype(dtype)) in SUPPORTED


def ctype(dtype: str | np.dtype) -> str:
    """Return the OpenCL C type that stores `dtype`."""
    return SUPPORTED[str(np.dtype(dtype))].name


def carrier(dtype: str | np.dtype) -> str:
    """Return an OpenCL C type of the size of `dtype`, for kernels that only move elements."""
    return _CARRIERS[np.dtype(dtype).itemsize]


def widened(name: str, lanes: int) -> str:
    """Return the vector of `lanes` elements of an OpenCL C type, which may itself be a pair, such as ``float2``."""
    if lanes == 1:
        return name
    return f"{name[:-1]}{2 * lanes}" if name.endswith("2") else f"{name}{lanes}"


def vector_type(dtype: str | np.dtype, lanes: int) -> str:
    """Return the OpenCL C vector type of `lanes` elements (the scalar type for one lane).

    That of complex numbers has twice as many components: real and imaginary parts in turn, at most 8 of each.
    """
    return widened(ctype(dtype), lanes)


def repeated(dtype: str | np.dtype, lanes: int, value: str) -> str:
    """Return the OpenCL C expression of `lanes` elements that are all the same."""
    count = lanes if is_complex(dtype) else 1
    return f"({vector_type(dtype, lanes)})({', '.join([value] * count)})"


def to_long(kind: str, value: str, lanes: int = 1) -> str:
    """Return the OpenCL C expression of an integer, or a vector of integers, as ``long``.

    Programs that use it have kernels/common/to_long.mako.

    `kind`: OpenCL C type of the integer, or of an element; `value`: the integer; `lanes`: elements of the vector.
    """
    if kind == "int" and lanes > 1:
        # The names of the functions stand in the text: drivers' build variants look for them.
        return f"ints_to_longs({value}, convert_long{lanes}, as_uint{lanes})"
    if kind == "int":
        return f"int_to_long({value})"
    return f"(long)({value})" if lanes == 1 else f"convert_long{lanes}({value})"


def access_name(dtype: str | np.dtype, lanes: int) -> str:
    """Return the suffix of the functions of kernels/common/vector_access.mako; unlike vector types, pairs have one."""
    return f"{ctype(dtype)}_{lanes}" if is_complex(dtype) else vector_type(dtype, lanes)


def is_complex(dtype: str | np.dtype) -> bool:
    """Return whether `dtype` is one of complex numbers."""
    return np.dtype(dtype).kind == "c"


def is_special(dtype: str | np.dtype) -> bool:
    """Return whether `dtype` is one that a kernel must be written for: float16, or one of complex numbers."""
    return str(np.dtype(dtype)) == "float16" or is_complex(dtype)


def part(dtype: str | np.dtype) -> str:
    """Return the dtype of real and imaginary parts; that of real numbers is their own."""
    name = str(np.dtype(dtype))
    return _PARTS.get(name, name)


def computed(dtype: str | np.dtype) -> str:
    """Return the dtype in which kernels compute: float32 for float16, else `dtype` itself."""
    name = str(np.dtype(dtype))
    return "float32" if name == "float16" else name


def needs_fp64(dtype: str | np.dtype) -> bool:
    """Return whether the device must have double precision to touch `dtype`."""
    return part(dtype) == "float64"


def _float_literal(value: float, suffix: str) -> str:
    if np.isnan(value):
        return "NAN" if suffix else "nan(0ul)"
    if np.isinf(value):
        constant = "INFINITY" if suffix else "((double)INFINITY)"
        return constant if value > 0 else f"(-{constant})"
    # Hexadecimal floats are exact and need no rounding by the driver's parser.
    text = float(value).hex()
    return f"({text}{suffix})" if text.startswith("-") else text + suffix


def _integer_literal(number: int, kind: _CType, dtype: np.dtype) -> str:
    if kind.minimum is not None and number == np.iinfo(dtype).min:
        return kind.minimum
    text = f"{number}{kind.suffix}"
    return f"({text})" if number < 0 else text


def literal(value: Any, dtype: str | np.dtype) -> str:
    """Return a C literal of the type that stores `dtype`, exact to the last bit."""
    dtype = np.dtype(dtype)
    kind = SUPPORTED[str(dtype)]
    value = dtype.type(value)
    if dtype.kind == "c":
        parts = (_float_literal(float(x), kind.suffix) for x in (value.real, value.imag))
        return f"({kind.name})({', '.join(parts)})"
    if dtype == "float16":
        return str(int(value.view("uint16")))
    if dtype.kind == "f":
        return _float_literal(float(value), kind.suffix)
    if dtype.kind == "b":
        return "1" if value else "0"
    return _integer_literal(int(value), kind, dtype)
