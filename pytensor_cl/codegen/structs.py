"""Structs of kernels: one declaration gives the C typedef, the NumPy dtype and the bytes of a value."""

import re
import struct
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np

from pytensor_cl.integers import round_up

_MEMBER = re.compile(r"([A-Za-z_]\w*)((?:\[\d+\])*)")
_CODES = {
    "char": "b",
    "uchar": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "float": "f",
    "double": "d",
}  # format characters of the module struct, with standard sizes
_PAIRS = {"float2": "float", "double2": "double"}  # complex numbers
_LINE = 110  # characters of a line of a typedef


@dataclass(frozen=True)
class Field:
    """A member of a struct: its OpenCL C type or struct, the shape if it is an array, and its offset in bytes."""

    name: str
    type: "str | Struct"
    shape: tuple[int, ...]
    offset: int


StructRow = tuple["str | Struct", str]
"""Type and names of one declaration: ``("long", "rows columns shape[4]")``."""


def _layout_of(kind: "str | Struct") -> tuple[int, int, str, np.dtype]:
    """Return size, alignment, format and dtype of a type."""
    if isinstance(kind, Struct):
        return kind.size, kind.alignment, kind.format, kind.dtype
    if kind in _PAIRS:
        code = _CODES[_PAIRS[kind]]
        size = 2 * struct.calcsize(f"={code}")
        return size, size, 2 * code, np.dtype(f"c{size}")
    if kind not in _CODES:
        raise ValueError(f"{kind!r} is not a type of a struct's member; choose from {sorted({*_CODES, *_PAIRS})}")
    size = struct.calcsize(f"={_CODES[kind]}")
    return size, size, _CODES[kind], np.dtype(f"={_CODES[kind]}")


class Struct:
    """A C struct, with the layout that OpenCL C gives it: each member is aligned to its size.

    Parameters
    ----------
    *rows
        The declarations in order, each with the type and the names of its members, separated by spaces. A type is an
        OpenCL C scalar type, ``float2`` or ``double2`` for complex numbers, or another struct. A name with numbers in
        brackets is an array of that shape.
    name
        C name of the type; a member of another struct needs it.

    Attributes
    ----------
    fields
        The members.
    size, alignment
        In bytes.
    format
        Format string of Python's module `struct`, without the byte order.
    dtype
        The structured NumPy dtype of the same layout.
    pack_values
        Returns the bytes of all numbers in order, arrays and nested structs one number after another. It is the fastest
        way: for launches that pack anew in each call. A complex number is two of the numbers.

    Raises
    ------
    ValueError
        A type is unknown, or a name is no C identifier or used twice.

    Examples
    --------
    >>> plan = Struct(("long", "rows shape[2]"), ("float", "alpha"), name="plan")
    >>> print(plan.c_typedef())
    typedef struct {
        long rows, shape[2];
        float alpha;
    } plan;
    >>> plan.pack(rows=3, shape=(4, 5), alpha=0.5) == plan.pack_values(3, 4, 5, 0.5)
    True
    """

    def __init__(self, *rows: StructRow, name: str = "") -> None:
        self.name = name
        self._rows = rows
        fields: list[Field] = []
        parts: list[str] = []
        dtypes: list[np.dtype] = []
        end, self.alignment = 0, 1
        for kind, members in rows:
            size, alignment, code, dtype = _layout_of(kind)
            self.alignment = max(self.alignment, alignment)
            for member in members.split():
                match = _MEMBER.fullmatch(member)
                if match is None or any(match[1] == field.name for field in fields):
                    raise ValueError(f"{member!r} is no name of a member, or it is used twice")
                shape = tuple(map(int, re.findall(r"\d+", match[2])))
                offset = round_up(end, alignment)
                parts.append(f"{offset - end}x" if offset > end else "")
                parts.append(code * prod(shape))
                fields.append(Field(match[1], kind, shape, offset))
                dtypes.append(np.dtype((dtype, shape)) if shape else dtype)
                end = offset + size * prod(shape)
        self.fields = tuple(fields)
        self.size = round_up(end, self.alignment)
        self.format = "".join(parts) + (f"{self.size - end}x" if self.size > end else "")
        self.dtype = np.dtype(
            {
                "names": [field.name for field in fields],
                "formats": dtypes,
                "offsets": [field.offset for field in fields],
                "itemsize": self.size,
            }
        )
        self.pack_values: Callable[..., bytes] = struct.Struct(f"={self.format}").pack

    def __repr__(self) -> str:
        """Return all that a rendered text can depend on."""
        nested = "".join(f"{field.type!r} " for field in self.fields if isinstance(field.type, Struct))
        return f"<Struct {nested}{self.c_typedef(self.name or 'unnamed')}>"

    def c_typedef(self, name: str | None = None, comment: str = "") -> str:
        """Return the typedef in OpenCL C, without those of nested structs; `comment` follows the opening brace.

        Raises
        ------
        ValueError
            The struct, or one that is a member, has no name.
        """
        name = self.name if name is None else name
        if not name:
            raise ValueError("a struct needs a name for its typedef")
        lines = ["typedef struct {" + (f"  // {comment}" if comment else "")]
        for kind, members in self._rows:
            if isinstance(kind, Struct) and not kind.name:
                raise ValueError(f"the struct of member {members} of {name} has no name")
            spelling = kind.name if isinstance(kind, Struct) else kind
            if not members.split():
                continue
            declaration = f"{spelling} {', '.join(members.split())};"
            lines += textwrap.wrap(declaration, _LINE, initial_indent=" " * 4, subsequent_indent=" " * 8)
        return "\n".join((*lines, f"}} {name};"))

    def pack(self, **values: Any) -> bytes:
        """Return the bytes of a value, given by its members.

        An array member is a sequence, nested if it has several dimensions; a struct is its bytes or a mapping.

        Raises
        ------
        TypeError
            A member is missing, or there is none of that name.
        ValueError
            An array has another shape.
        struct.error
            A number does not fit into its member.
        """
        names = [field.name for field in self.fields]
        if values.keys() != set(names):
            missing, extra = sorted(set(names) - values.keys()), sorted(values.keys() - set(names))
            raise TypeError(f"struct {self.name}: missing {missing}, unexpected {extra}")
        numbers: list[Any] = []
        for field in self.fields:
            for element in self._elements(field, values[field.name], field.shape):
                _append(numbers, field.type, element)
        return self.pack_values(*numbers)

    def _elements(self, field: Field, value: Any, shape: tuple[int, ...]) -> Iterator[Any]:
        """Yield the elements of a member, which may be an array."""
        if not shape:
            yield value
            return
        if len(value) != shape[0]:
            raise ValueError(f"{field.name}{list(field.shape)} of struct {self.name} got {len(value)} for {shape[0]}")
        for item in value:
            yield from self._elements(field, item, shape[1:])

    def unpack(self, packed: bytes) -> np.void:
        """Return the value of packed bytes, a NumPy record with the members by name."""
        return np.frombuffer(packed, self.dtype)[0]

    def renamed(self, name: str) -> Self:
        """Return the same struct under another C name."""
        return type(self)(*self._rows, name=name)


def _append(numbers: list[Any], kind: "str | Struct", value: Any) -> None:
    """Append the numbers of one member to a list."""
    if isinstance(kind, Struct):
        packed = value if isinstance(value, bytes) else kind.pack(**value)
        numbers.extend(struct.unpack(f"={kind.format}", packed))
    elif kind in _PAIRS:
        numbers.extend((value.real, value.imag))
    else:
        numbers.append(value)
