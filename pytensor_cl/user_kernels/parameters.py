"""Parameters of kernels that users write: their texts, and the dtypes that placeholders stand for in a call."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import SUPPORTED, ctype, is_complex, is_supported
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.user_kernels.c_text import KEYWORDS

_PARAMETER = re.compile(r"(?:(raw)\s+)?(\w+)\s+(\w+)")
_MACRO = re.compile(r"(?:M|FLT|DBL|HALF|FP|S?CHAR|UCHAR|U?SHRT|U?INT|U?LONG|CLK?)_[A-Z0-9_]+$")
_RESERVED = {
    "i": "the number of the element",
    "n": "the number of elements",
}

_OF_C = {ctype(dtype): dtype for dtype in SUPPORTED if dtype not in ("bool", "float16") and not is_complex(dtype)}
"""Dtypes of arrays by the names of their types in OpenCL C."""

Number = bool | int | float | complex | np.generic


class Parameter(NamedTuple):
    """A parameter of a kernel.

    Attributes
    ----------
    name
        Its name in the operation.
    type
        A NumPy dtype, or one letter, a placeholder.
    is_raw
        Whether the operation indexes it; else it is one element.
    """

    name: str
    type: str
    is_raw: bool = False

    @property
    def is_placeholder(self) -> bool:
        """Whether the type is found in each call."""
        return len(self.type) == 1

    def __str__(self) -> str:
        return f"{'raw ' * self.is_raw}{self.type} {self.name}"


def parse_parameters(text: str, what: str) -> tuple[Parameter, ...]:
    """Return the parameters of a text such as ``"float32 x, raw T y"``.

    Raises
    ------
    TypeError
        It is no string.
    ValueError
        A parameter is malformed, or its name is reserved.
    """
    if not isinstance(text, str):
        raise TypeError(f"{what} is a string such as 'float32 x, T y', not {text!r}")
    parts = [part.strip() for part in text.split(",")]
    return tuple(_parse(part, what) for part in parts if part) if any(parts) else ()


def _parse(text: str, what: str) -> Parameter:
    found = _PARAMETER.fullmatch(text)
    if found is None:
        raise ValueError(f"{what}: {text!r} is no parameter: write a dtype and a name, such as 'float32 x', 'raw T y'")
    raw, kind, name = found.groups()
    _check_name(name, what)
    if len(kind) > 1:
        _check_type(kind, what)
    elif not kind.isalpha():
        raise ValueError(f"{what}: {kind!r} in {text!r} is no placeholder: one letter is")
    return Parameter(name, kind, raw is not None)


def _check_name(name: str, what: str) -> None:
    if name in KEYWORDS:
        raise ValueError(f"{what}: {name!r} is a word of OpenCL C: choose another name")
    if _MACRO.match(name):
        raise ValueError(f"{what}: {name!r} is a macro of OpenCL C, or may be one: choose another name")
    if name in _RESERVED:
        raise ValueError(f"{what}: {name!r} is {_RESERVED[name]} in the operation: choose another name")
    if name.startswith("_"):
        raise ValueError(f"{what}: names that begin with an underscore, such as {name!r}, are reserved")
    if not name.isidentifier():
        raise ValueError(f"{what}: {name!r} is no name")


def _check_type(kind: str, what: str) -> None:
    if kind in _OF_C:
        raise ValueError(f"{what}: types have the names of NumPy's dtypes: write {_OF_C[kind]} for {kind} of OpenCL C")
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise ValueError(f"{what}: {kind!r} is no NumPy dtype; parameters have: {', '.join(SUPPORTED)}") from None
    if dtype.name != kind:
        raise ValueError(f"{what}: {kind!r} is not the full name of a dtype: write {dtype.name}")
    if not is_supported(dtype):
        raise ValueError(f"{what}: device arrays cannot hold {kind}; they can: {', '.join(SUPPORTED)}")


def check_distinct(parameters: Sequence[Parameter]) -> None:
    """Raise a `ValueError` if two parameters have one name."""
    names = [p.name for p in parameters]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two parameters are called {twice!r}")
    for p in parameters:
        shadowed = [q.name for q in parameters if q.is_placeholder and q.type == p.name]
        if shadowed:
            raise ValueError(f"{p.name!r} is a parameter and the placeholder of {shadowed[0]!r}: choose another letter")


def private_type(dtype: str) -> str:
    """Return the OpenCL C type of one element in an operation."""
    return {"bool": "bool", "float16": "float"}.get(dtype) or ctype(dtype)


def is_number(value: Any) -> bool:
    """Return whether an argument is taken by value: a number of Python or NumPy, or an array of NumPy without axes."""
    return isinstance(value, Number) or (isinstance(value, np.ndarray) and value.ndim == 0)


def is_variable(value: Any) -> bool:
    """Return whether a value is a variable of a PyTensor graph; PyTensor is not imported for that."""
    return hasattr(value, "owner") and hasattr(value, "eval")


OF_VARIABLES = "kernels are called with arrays; for variables of a graph make an Op, pytensor_cl.as_op(kernel)"
"""The message of a kernel that was called with a variable."""


def number_dtype(value: Any, has_fp64: bool) -> str:
    """Return the dtype that a number gives to a placeholder; without double precision floats of Python are float32."""
    if isinstance(value, np.generic | np.ndarray):
        return value.dtype.name
    if type(value) is int:
        return "int64"  # whatever the value is: a call is kept for later numbers of the same type
    dtype = np.asarray(value).dtype.name
    return dtype if has_fp64 else {"float64": "float32", "complex128": "complex64"}.get(dtype, dtype)


def types_of_placeholders(
    kernel: str, parameters: Sequence[Parameter], dtypes: Sequence[Any], context: Context
) -> tuple[tuple[str, str], ...]:
    """Return the placeholders with the dtypes that a user gives them, in the order in which they come.

    Raises `TypeError`: there are more or fewer dtypes.
    """
    letters = list(dict.fromkeys(p.type for p in parameters if p.is_placeholder))
    if len(dtypes) != len(letters):
        raise TypeError(
            f"kernel {kernel!r} has {len(letters)} placeholders ({', '.join(letters) or 'none'}), not {len(dtypes)}: "
            "pass a dtype for each"
        )
    return tuple(sorted((letter, context.check_dtype(t).name) for letter, t in zip(letters, dtypes, strict=True)))


def bind_placeholders(
    kernel: str, parameters: Iterable[tuple[Parameter, Any]], has_fp64: bool
) -> tuple[tuple[str, str], ...]:
    """Return the dtypes of the placeholders: those of arrays, then those of numbers.

    `parameters`: parameters with their arguments, None where there is none.

    Raises
    ------
    TypeError
        Two arrays give one placeholder different dtypes.
    """
    pairs = [(p, argument) for p, argument in parameters if p.is_placeholder and argument is not None]
    bound: dict[str, str] = {}
    givers: dict[str, str] = {}
    for p, argument in pairs:
        if isinstance(argument, GpuArray):
            dtype = argument.dtype.name
            if bound.setdefault(p.type, dtype) != dtype:
                raise TypeError(
                    f"kernel {kernel!r}: {givers[p.type]} is {bound[p.type]} and {p.name} is {dtype}, but both are "
                    f"declared {p.type}: convert one, or declare them with two letters"
                )
            givers.setdefault(p.type, p.name)
    scalars: dict[str, list[str]] = {}
    for p, argument in pairs:
        if p.type not in bound and not isinstance(argument, GpuArray):
            scalars.setdefault(p.type, []).append(number_dtype(argument, has_fp64))
    bound.update({letter: np.result_type(*found).name for letter, found in scalars.items()})
    for letter, dtype in bound.items():
        if dtype not in SUPPORTED:
            raise UnsupportedDtype(f"kernel {kernel!r}: device arrays cannot hold {dtype}, which {letter} stands for")
    return tuple(sorted(bound.items()))


def dtype_of(parameter: Parameter, types: Mapping[str, str], kernel: str) -> str:
    """Return the dtype of a parameter."""
    if not parameter.is_placeholder:
        return parameter.type
    found = types.get(parameter.type)
    if found is None:
        raise TypeError(
            f"kernel {kernel!r}: no argument says what {parameter.type} of {parameter} is: pass the array "
            f"{parameter.name}"
        )
    return found


def check_array_dtype(parameter: Parameter, array: GpuArray, dtype: str, kernel: str) -> None:
    """Raise a `TypeError` if an array has another dtype than its parameter."""
    if array.dtype.name != dtype:
        raise TypeError(
            f"kernel {kernel!r}: {parameter.name} is declared {dtype}, the array has {array.dtype.name}: convert it, "
            "or declare the parameter with a letter, which takes every dtype"
        )


def convert_number(parameter: Parameter, value: Any, dtype: str, kernel: str) -> np.generic:
    """Return a number as the NumPy scalar of a parameter's dtype.

    Raises
    ------
    OverflowError
        An integer does not fit.
    TypeError
        The number is of a kind that the dtype does not hold: a float for an integer, a complex number for a float.
    """
    number = value[()] if isinstance(value, np.ndarray) else value
    target = np.dtype(dtype)
    array = np.asarray(number)
    given = array.dtype
    is_exact = np.can_cast(given, target, "same_kind") or (given.kind in "iu" and target.kind in "iu")
    if array.ndim or not is_exact:
        raise TypeError(f"kernel {kernel!r}: {parameter.name} is {dtype}, which does not hold {value!r}")
    if target.kind in "iu":
        limits = np.iinfo(target)
        if not limits.min <= int(number) <= limits.max:
            raise OverflowError(f"kernel {kernel!r}: {parameter.name} is {dtype}, which does not hold {value!r}")
    with np.errstate(over="ignore"):
        return target.type(number)
