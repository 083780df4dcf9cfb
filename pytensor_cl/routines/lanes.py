"""Write OpenCL C expressions once, for scalars and for vectors of any number of lanes.

A `Value` is an expression with a NumPy dtype, a `Mask` the outcome of a comparison. Their operators
give new expressions that follow NumPy: integers wrap, comparisons do not promote. `Lanes` collects the
statements that bind expressions to names; a repeated expression is bound once.
"""

from dataclasses import dataclass
from typing import Union

import numpy as np

from pytensor_cl.dtypes import ctype, literal, vector_type
from pytensor_cl.template import render

__all__ = ["Lanes", "Mask", "Value"]

Number = bool | int | float
Operand = Union["Value", Number]

_MASK_TYPES = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """True or false in each lane: -1 or 0 in integers of `size` bytes, 1 or 0 for a single lane."""

    text: str
    size: int
    lanes: "Lanes"

    def _join(self, operator: str, other: "Mask") -> "Mask":
        other = other.resize(self.size)
        return Mask(f"({self.text} {operator} {other.text})", self.size, self.lanes)

    def __and__(self, other: "Mask") -> "Mask":
        return self._join("&", other)

    def __or__(self, other: "Mask") -> "Mask":
        return self._join("|", other)

    def __xor__(self, other: "Mask") -> "Mask":
        return self._join("^", other)

    def __invert__(self) -> "Mask":
        return Mask(f"{'!' if self.lanes.count == 1 else '~'}{self.text}", self.size, self.lanes)

    def resize(self, size: int) -> "Mask":
        """Return the same truth in integers of another size."""
        if self.lanes.count == 1 or size == self.size:
            return Mask(self.text, size, self.lanes)
        target = vector_type(_MASK_TYPES[size], self.lanes.count)
        return Mask(f"convert_{target}({self.text})", size, self.lanes)

    def anywhere(self) -> str:
        """Return a C condition: true in at least one lane."""
        return self.text if self.lanes.count == 1 else f"any({self.text})"

    def as_bool(self) -> "Value":
        """Return the stored form of a bool: 0 or 1 in a byte."""
        if self.lanes.count == 1:
            return Value(f"(uchar)({self.text})", "bool", self.lanes)
        one = self.lanes.literal(1, "int8").text
        return Value(f"as_{self.lanes.type('bool')}({self.resize(1).text} & {one})", "bool", self.lanes)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An expression of type `dtype`, one per lane; `constant` is set where it is known."""

    text: str
    dtype: str
    lanes: "Lanes"
    constant: np.generic | None = None

    def _operand(self, other: Operand) -> "Value":
        return other if isinstance(other, Value) else self.lanes.literal(other, self.dtype)

    def _arithmetic(self, operator: str, left: "Value", right: "Value") -> "Value":
        template = self.lanes.arithmetic(operator, self.dtype)
        return Value(template.format(left.text, right.text), self.dtype, self.lanes)

    def _compare(self, operator: str, other: Operand) -> Mask:
        text = f"({self.text} {operator} {self._operand(other).text})"
        return Mask(text, np.dtype(self.dtype).itemsize, self.lanes)

    def __add__(self, other: Operand) -> "Value":
        return self._arithmetic("+", self, self._operand(other))

    def __sub__(self, other: Operand) -> "Value":
        return self._arithmetic("-", self, self._operand(other))

    def __rsub__(self, other: Number) -> "Value":
        return self._operand(other) - self

    def __mul__(self, other: Operand) -> "Value":
        return self._arithmetic("*", self, self._operand(other))

    def __truediv__(self, other: Operand) -> "Value":
        return self._arithmetic("/", self, self._operand(other))

    def __rtruediv__(self, other: Number) -> "Value":
        return self._operand(other) / self

    def __and__(self, other: Operand) -> "Value":
        return self._arithmetic("&", self, self._operand(other))

    def __or__(self, other: Operand) -> "Value":
        return self._arithmetic("|", self, self._operand(other))

    def __xor__(self, other: Operand) -> "Value":
        return self._arithmetic("^", self, self._operand(other))

    def __neg__(self) -> "Value":
        if np.dtype(self.dtype).kind == "f":
            return Value(f"(-{self.text})", self.dtype, self.lanes)
        return 0 - self

    def __lt__(self, other: Operand) -> Mask:
        return self._compare("<", other)

    def __le__(self, other: Operand) -> Mask:
        return self._compare("<=", other)

    def __gt__(self, other: Operand) -> Mask:
        return self._compare(">", other)

    def __ge__(self, other: Operand) -> Mask:
        return self._compare(">=", other)

    def equals(self, other: Operand) -> Mask:
        """Compare for equality (``==`` compares the expressions themselves)."""
        return self._compare("==", other)

    def differs(self, other: Operand) -> Mask:
        """Compare for inequality."""
        return self._compare("!=", other)

    def is_nan(self) -> Mask:
        """Return where the value is not a number."""
        return self._compare("!=", self)

    def is_true(self) -> Mask:
        """Return where the value is not zero."""
        return self._compare("!=", 0)

    def call(self, function: str, *others: Operand) -> "Value":
        """Apply an OpenCL built-in that keeps the type."""
        texts = [self.text, *(self._operand(other).text for other in others)]
        return Value(f"{function}({', '.join(texts)})", self.dtype, self.lanes)

    def call_own(self, family: str, function: str, *others: Operand) -> "Value":
        """Apply a function of ``kernels/functions/<family>.mako``."""
        self.lanes.preambles[render(f"functions/{family}", dtype=self.dtype)] = None
        return self.call(f"{function}_{self.lanes.type(self.dtype)}", *others)

    def call_vector(self, family: str, function: str, *others: Operand) -> "Value":
        """Apply a built-in whose vector form is replaced by one of ``kernels/functions/<family>.mako``."""
        own = self.call_own(family, function, *others)
        return self.call(function, *others) if self.lanes.count == 1 else own

    def bits(self, dtype: str) -> "Value":
        """Reinterpret the bits as another dtype of the same size."""
        if dtype == self.dtype:
            return self
        return Value(f"as_{self.lanes.type(dtype)}({self.text})", dtype, self.lanes)

    def cast(self, dtype: str) -> "Value":
        """Convert as ``ndarray.astype`` does on x86-64."""
        if dtype == self.dtype:
            return self
        if self.constant is not None:
            with np.errstate(all="ignore"):
                return self.lanes.literal(self.constant.astype(dtype), dtype)
        if dtype == "bool":
            return self.is_true().as_bool()
        if np.dtype(self.dtype).kind == "f" and np.dtype(dtype).kind in "iu":
            return self._truncate(dtype)
        return self._convert(dtype)

    def _convert(self, dtype: str) -> "Value":
        target = self.lanes.type(dtype)
        text = f"({target})({self.text})" if self.lanes.count == 1 else f"convert_{target}({self.text})"
        return Value(text, dtype, self.lanes)

    def _truncate(self, dtype: str) -> "Value":
        """Round a float towards zero.

        What is out of range, and NaN, becomes the lowest value of int32 or int64; narrower and unsigned
        types take the low bits of that. x86-64 has it so, and OpenCL leaves it open.
        """
        x = self.lanes.let(self)
        wide = "int64" if dtype in ("uint32", "int64", "uint64") else "int32"
        if dtype != "uint64":
            return self.lanes.let(x._clamped(wide)).cast(dtype)
        half = 2.0**63
        high = self.lanes.let((x - half)._clamped(wide) ^ np.iinfo(wide).min)
        return self.lanes.select(x >= half, high, x._clamped(wide)).bits(dtype)

    def _clamped(self, dtype: str) -> "Value":
        x = self.lanes.let(self)
        info = np.iinfo(dtype)
        inside = (x >= float(info.min)) & (x < -float(info.min))
        return self.lanes.select(inside, x._convert(dtype), self.lanes.literal(info.min, dtype))


class Lanes:
    """Statements over `count` lanes.

    Parameters
    ----------
    count
        1 writes scalar code, 2, 4, 8 or 16 vector code.

    Attributes
    ----------
    statements
        C statements, one a line, in order.
    dtypes
        Every dtype that was bound to a name.
    preambles
        Helper functions that the statements call.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.statements: list[str] = []
        self.dtypes: set[str] = set()
        self.preambles: dict[str, None] = {}
        self._bound: dict[tuple[str, str], Value] = {}

    def type(self, dtype: str) -> str:
        """Return the C type of one value of `dtype` per lane."""
        return vector_type(dtype, self.count)

    def literal(self, value: Number | np.generic, dtype: str) -> Value:
        """Return a constant, the same in every lane."""
        constant = np.dtype(dtype).type(value)
        return Value(f"({self.type(dtype)})({literal(constant, dtype)})", dtype, self, constant)

    def arithmetic(self, operator: str, dtype: str) -> str:
        """Return a format string of two operands, e.g. ``({} + {})``.

        Signed overflow is undefined in C, so integers are computed unsigned.
        """
        kind, size = np.dtype(dtype).kind, np.dtype(dtype).itemsize
        if kind == "f" or operator == "/":
            return f"({{}} {operator} {{}})"
        if self.count == 1:
            # C widens small integers to int: bring the result back to its own width.
            unsigned = ctype(f"uint{8 * max(size, 4)}")
            return f"(({ctype(dtype)})(({unsigned}){{}} {operator} ({unsigned}){{}}))"
        if kind != "i":
            return f"({{}} {operator} {{}})"
        unsigned = self.type(f"uint{8 * size}")
        return f"as_{self.type(dtype)}(as_{unsigned}({{}}) {operator} as_{unsigned}({{}}))"

    def _new_name(self) -> str:
        return f"t{len(self.statements)}"

    def let(self, value: Value) -> Value:
        """Bind an expression to a name (constants and names stay as they are)."""
        self.dtypes.add(value.dtype)
        if value.constant is not None or value.text.isidentifier():
            return value
        key = value.text, value.dtype
        if key not in self._bound:
            name = self._new_name()
            self.statements.append(f"const {self.type(value.dtype)} {name} = {value.text};")
            self._bound[key] = Value(name, value.dtype, self)
        return self._bound[key]

    def variable(self, value: Value) -> Value:
        """Bind an expression to a name that later statements may assign to."""
        self.dtypes.add(value.dtype)
        name = self._new_name()
        self.statements.append(f"{self.type(value.dtype)} {name} = {value.text};")
        return Value(name, value.dtype, self)

    def assign(self, variable: Value, value: Value) -> None:
        """Add the statement ``variable = value``."""
        self.statements.append(f"{variable.text} = {value.text};")

    def raw(self, text: str) -> None:
        """Add a line of C, such as the head or the end of a loop."""
        self.statements.append(text)

    def select(self, mask: Mask, if_true: Value, if_false: Value) -> Value:
        """Choose between two values of one dtype in each lane."""
        dtype = if_true.dtype
        if self.count == 1:
            return Value(f"({mask.text} ? {if_true.text} : {if_false.text})", dtype, self)
        mask = mask.resize(np.dtype(dtype).itemsize)
        return Value(f"select({if_false.text}, {if_true.text}, {mask.text})", dtype, self)

    def body(self, outputs: tuple[Value, ...]) -> str:
        """Return all statements, then those that set ``o0``, ``o1``... to `outputs`."""
        ends = (f"o{k} = {value.text};" for k, value in enumerate(outputs))
        return "\n".join((*self.statements, *ends))
