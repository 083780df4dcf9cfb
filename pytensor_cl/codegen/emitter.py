"""Write OpenCL C expressions once, for scalars and for vectors of any number of lanes.

A `Value` is an expression with a NumPy dtype, a `Complex` a pair of them, a `Mask` the outcome of a comparison.
Their operators give new expressions that follow NumPy: integers wrap, comparisons do not promote. A value of float16
is the bits that are stored: it can be moved and cast, all else needs `Value.promote_half`. `Emitter` collects the
statements that bind expressions to names; a repeated expression is bound once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Union

import numpy as np

from pytensor_cl.codegen.dtypes import ctype, is_complex, literal, part, to_long, vector_type
from pytensor_cl.codegen.template import render

SHORT_FUNCTION = 24
"""Statements of a function whose kernels of schedule simt load several elements before they compute."""

Number = bool | int | float
Operand = Union["Value", Number]

_MASK_TYPES = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}

VECTOR_FAMILIES = {
    **{(name, dtype): "trigonometric" for name in ("cos", "sin", "tan") for dtype in ("float32", "float64")},
    **{(name, dtype): "log" for name in ("log", "log10", "log2") for dtype in ("float32", "float64")},
    **{(name, dtype): "log1p" for name in ("acosh", "asinh", "atanh", "log1p") for dtype in ("float32", "float64")},
    **{("atan", dtype): "atan" for dtype in ("float32", "float64")},
    **{("tanh", dtype): "tanh" for dtype in ("float32", "float64")},
    **{(name, dtype): "expm1" for name in ("cosh", "expm1", "sinh") for dtype in ("float32", "float64")},
    **{("pow", dtype): "pow" for dtype in ("float32", "float64")},
    **{(name, dtype): "erfc" for name in ("erf", "erfc") for dtype in ("float32", "float64")},
    **{("exp", dtype): "exp" for dtype in ("float32", "float64")},
    **{("fmod", dtype): "arithmetic" for dtype in ("float32", "float64")},
}
"""Built-ins whose vector form is wrong, or slow, on PoCL: what is called instead, in ``kernels/math``."""

_OF_WHOLE_REGISTERS = frozenset(
    (
        "atan",
        "betainc_inverse_vector",
        "betainc_vector",
        "digamma",
        "erfc",
        "exp",
        "expm1",
        "gammainc_inverse_vector",
        "gammainc_vector",
        "gammaln",
        "hyp2f1_vector",
        "log",
        "log1mexp",
        "log1p",
        "ndtri_exp",
        "polygamma_vector",
        "pow",
        "softplus",
        "tanh",
        "trigonometric",
    )
)
"""Families that have their functions for scalars and for these lanes only:"""
_WHOLE = {"float32": (8, 16), "float64": (8,)}


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """True or false in each lane: -1 or 0 in integers of `size` bytes, 1 or 0 for a single lane."""

    text: str
    size: int
    emitter: "Emitter"

    def _join(self, operator: str, other: "Mask") -> "Mask":
        other = other.resize(self.size)
        return Mask(f"({self.text} {operator} {other.text})", self.size, self.emitter)

    def __and__(self, other: "Mask") -> "Mask":
        return self._join("&", other)

    def __or__(self, other: "Mask") -> "Mask":
        return self._join("|", other)

    def __xor__(self, other: "Mask") -> "Mask":
        return self._join("^", other)

    def __invert__(self) -> "Mask":
        return Mask(f"{'!' if self.emitter.count == 1 else '~'}{self.text}", self.size, self.emitter)

    def resize(self, size: int) -> "Mask":
        """Return the same truth in integers of another size."""
        if self.emitter.count == 1 or size == self.size:
            return Mask(self.text, size, self.emitter)
        target = vector_type(_MASK_TYPES[size], self.emitter.count)
        return Mask(f"convert_{target}({self.text})", size, self.emitter)

    def anywhere(self) -> str:
        """Return a C condition: true in at least one lane."""
        return self.text if self.emitter.count == 1 else f"any({self.text})"

    def as_bool(self) -> "Value":
        """Return the stored form of a bool: 0 or 1 in a byte."""
        if self.emitter.count == 1:
            return Value(f"(uchar)({self.text})", "bool", self.emitter)
        one = self.emitter.literal(1, "int8").text
        return Value(f"as_{self.emitter.type('bool')}({self.resize(1).text} & {one})", "bool", self.emitter)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An expression of type `dtype`, one per lane; `constant` is set where it is known."""

    text: str
    dtype: str
    emitter: "Emitter"
    constant: np.generic | None = None

    def _operand(self, other: Operand) -> "Value":
        return other if isinstance(other, Value) else self.emitter.literal(other, self.dtype)

    def _arithmetic(self, operator: str, left: "Value", right: "Value") -> "Value":
        template = self.emitter.arithmetic(operator, self.dtype)
        return Value(template.format(left.text, right.text), self.dtype, self.emitter)

    def _compare(self, operator: str, other: Operand) -> Mask:
        text = f"({self.text} {operator} {self._operand(other).text})"
        return Mask(text, np.dtype(self.dtype).itemsize, self.emitter)

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
            return Value(f"(-{self.text})", self.dtype, self.emitter)
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
        """Return where the value is not zero; float16 is stored as its bits, and those of -0.0 are not zero."""
        return self.promote_half()._compare("!=", 0)

    def call(self, function: str, *others: Operand) -> "Value":
        """Apply an OpenCL built-in that keeps the type, or what replaces it for vectors."""
        family = VECTOR_FAMILIES.get((function, self.dtype))
        own = self.call_library(family, function, *others) if family else None
        return own if own and self.emitter.count > 1 else self._apply(function, *others)

    def _apply(self, function: str, *others: Operand) -> "Value":
        texts = [self.text, *(self._operand(other).text for other in others)]
        return Value(f"{function}({', '.join(texts)})", self.dtype, self.emitter)

    def call_library(self, family: str, function: str, *others: Operand) -> "Value":
        """Apply a function of ``kernels/math/<family>.mako``."""
        self.emitter.preambles[render(f"math/{family}", dtype=self.dtype)] = None
        if family in _OF_WHOLE_REGISTERS and self.emitter.count not in (1, *_WHOLE[self.dtype]):
            return self._apply_to_parts(function, *others)
        return self._apply(f"{function}_{self.emitter.type(self.dtype)}", *others)

    def _apply_to_parts(self, function: str, *others: Operand) -> "Value":
        """Apply a function that there is for fewer lanes only, or for more."""
        names = [self.emitter.bind(value).text for value in (self, *map(self._operand, others))]
        most, least = _WHOLE[self.dtype][-1], _WHOLE[self.dtype][0]
        if self.emitter.count > most:
            half = f"{function}_{vector_type(self.dtype, self.emitter.count // 2)}"
            low, high = (f"{half}({', '.join(f'({n}).{part}' for n in names)})" for part in ("lo", "hi"))
            return Value(f"({self.emitter.type(self.dtype)})({low}, {high})", self.dtype, self.emitter)
        whole, copies = vector_type(self.dtype, least), least // self.emitter.count
        repeated = ", ".join(f"({whole})({', '.join([n] * copies)})" for n in names)
        lowest = ".lo" * (copies.bit_length() - 1)
        return Value(f"{function}_{whole}({repeated}){lowest}", self.dtype, self.emitter)

    def bits(self, dtype: str) -> "Value":
        """Reinterpret the bits as another dtype of the same size."""
        if dtype == self.dtype:
            return self
        return Value(f"as_{self.emitter.type(dtype)}({self.text})", dtype, self.emitter)

    def cast(self, dtype: str) -> "Value":
        """Convert as ``ndarray.astype`` does on x86-64."""
        if dtype == self.dtype:
            return self
        if self.constant is not None:
            with np.errstate(all="ignore"):
                return self.emitter.literal(self.constant.astype(dtype), dtype)
        if self.dtype == "float16":
            return self.promote_half().cast(dtype)
        if dtype == "float16":
            return self._narrowed()
        if dtype == "bool":
            return self.is_true().as_bool()
        if np.dtype(self.dtype).kind == "f" and np.dtype(dtype).kind in "iu":
            return self._truncate(dtype)
        return self._convert(dtype)

    def promote_half(self) -> "Value":
        """Return float16 as float32, and anything else as it is."""
        if self.dtype != "float16":
            return self
        if self.constant is not None:
            return self.emitter.literal(self.constant, "float32")
        return self.emitter.bind(self._by_half("widen", "float32"))

    def _narrowed(self) -> "Value":
        x = self._rounded_to_odd() if self.dtype == "float64" else self.emitter.bind(self.cast("float32"))
        return x._by_half("narrow", "float16")

    def _by_half(self, direction: str, dtype: str) -> "Value":
        self.emitter.preambles[render("common/half")] = None
        return Value(f"{direction}_half{self.emitter.count}({self.text})", dtype, self.emitter)

    def _rounded_to_odd(self) -> "Value":
        """Round float64 to float32, away from even, so that rounding once more is right (Boldo and Melquiond 2008)."""
        lanes = self.emitter
        x = lanes.bind(self)
        near = lanes.bind(x._convert("float32"))
        back = lanes.bind(near._convert("float64"))
        bits = lanes.bind(near.bits("int32"))
        inside = lanes.bind(lanes.select(back.call("fabs") > x.call("fabs"), bits - 1, bits))
        return lanes.bind(lanes.select(back.differs(x), inside | 1, inside).bits("float32"))

    def _convert(self, dtype: str) -> "Value":
        if self.dtype == "int32" and dtype in ("int64", "uint64"):
            self.emitter.preambles[render("common/to_long")] = None
            return Value(to_long("int", self.text, self.emitter.count), "int64", self.emitter).bits(dtype)
        self.emitter.widens_bytes |= np.dtype(self.dtype).itemsize == 1 and np.dtype(dtype).kind in "iu"
        target = self.emitter.type(dtype)
        text = f"({target})({self.text})" if self.emitter.count == 1 else f"convert_{target}({self.text})"
        return Value(text, dtype, self.emitter)

    def _truncate(self, dtype: str) -> "Value":
        """Round a float towards zero.

        What is out of range, and NaN, becomes the lowest value of int32 or int64; narrower and unsigned
        types take the low bits of that. x86-64 has it so, and OpenCL leaves it open.
        """
        x = self.emitter.bind(self)
        wide = "int64" if dtype in ("uint32", "int64", "uint64") else "int32"
        if dtype != "uint64":
            return self.emitter.bind(x._clamped(wide)).cast(dtype)
        half = 2.0**63
        high = self.emitter.bind((x - half)._clamped(wide) ^ np.iinfo(wide).min)
        return self.emitter.select(x >= half, high, x._clamped(wide)).bits(dtype)

    def _clamped(self, dtype: str) -> "Value":
        x = self.emitter.bind(self)
        info = np.iinfo(dtype)
        inside = (x >= float(info.min)) & (x < -float(info.min))
        return self.emitter.select(inside, x._convert(dtype), self.emitter.literal(info.min, dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex number in each lane: two values of one dtype, float32 or float64."""

    real: Value
    imag: Value

    @property
    def emitter(self) -> "Emitter":
        """Emitter that writes the real and the imaginary part."""
        return self.real.emitter

    @property
    def dtype(self) -> str:
        """The complex dtype."""
        return str(np.result_type(self.real.dtype, "complex64"))

    def __add__(self, other: "Complex") -> "Complex":
        return Complex(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: "Complex") -> "Complex":
        return Complex(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: "Complex") -> "Complex":
        # A product that has a name is not contracted with a sum: z * conj(z) is real.
        bind, (a, b), (c, d) = self.emitter.bind, (self.real, self.imag), (other.real, other.imag)
        return Complex(bind(a * c) - bind(b * d), bind(a * d) + bind(b * c))

    def __neg__(self) -> "Complex":
        return Complex(-self.real, -self.imag)

    def scaled(self, factor: Operand) -> "Complex":
        """Multiply by a real number."""
        return Complex(self.real * factor, self.imag * factor)

    def equals(self, other: "Complex") -> Mask:
        """Compare for equality."""
        return self.real.equals(other.real) & self.imag.equals(other.imag)

    def is_nan(self) -> Mask:
        """Return where a part is not a number."""
        return self.real.is_nan() | self.imag.is_nan()

    def is_true(self) -> Mask:
        """Return where the number is not zero."""
        return self.real.is_true() | self.imag.is_true()


Scalar = Value | Complex


class Emitter:
    """Statements over `count` lanes.

    `count`: 1 writes scalar code, 2, 4, 8 or 16 vector code; `statements`: C statements, one a line, in order;
    `dtypes`: every dtype that was bound to a name; `preambles`: functions that the statements call; `widens_bytes`:
    whether bytes were cast to wider integers.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.statements: list[str] = []
        self.dtypes: set[str] = set()
        self.preambles: dict[str, None] = {}
        self.widens_bytes = False
        self._bound: dict[tuple[str, str], Value] = {}

    def type(self, dtype: str) -> str:
        """Return the C type of one value of `dtype` per lane."""
        return vector_type(dtype, self.count)

    def literal(self, value: Number | np.generic, dtype: str) -> Value:
        """Return a constant, the same in every lane."""
        constant = np.dtype(dtype).type(value)
        return Value(f"({self.type(dtype)})({literal(constant, dtype)})", dtype, self, constant)

    def constant(self, value: object, dtype: str) -> Scalar:
        """Return a constant, real or complex."""
        number = np.dtype(dtype).type(value)
        if not is_complex(dtype):
            return self.literal(number, dtype)
        return Complex(self.literal(number.real, part(dtype)), self.literal(number.imag, part(dtype)))

    def input(self, name: str, dtype: str) -> Scalar:
        """Return the value of a name that is declared in the type that stores `dtype`."""
        if not is_complex(dtype):
            return Value(name, dtype, self)
        return Complex(Value(f"{name}.even", part(dtype), self), Value(f"{name}.odd", part(dtype), self))

    def cast(self, value: Scalar, dtype: str) -> Scalar:
        """Convert as ``ndarray.astype`` does: real dtypes get the real part, bool whether either part is not zero."""
        if is_complex(dtype):
            zero = self.literal(0, part(dtype))
            parts = (value.real, value.imag) if isinstance(value, Complex) else (value, zero)
            return Complex(parts[0].cast(part(dtype)), parts[1].cast(part(dtype)))
        if isinstance(value, Complex):
            return value.is_true().as_bool() if dtype == "bool" else value.real.cast(dtype)
        return value.cast(dtype)

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

    def bind[T: (Value, Complex, Scalar)](self, value: T) -> T:
        """Bind an expression to a name (constants and names stay as they are)."""
        if isinstance(value, Complex):
            return Complex(self._let(value.real), self._let(value.imag))
        return self._let(value)

    def _let(self, value: Value) -> Value:
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

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end what was bound inside: between the braces of a loop."""
        outside = dict(self._bound)
        yield
        self._bound = outside

    def select[T: (Value, Complex, Scalar)](self, mask: Mask, if_true: T, if_false: T) -> T:
        """Choose between two values of one dtype in each lane."""
        if isinstance(if_true, Complex) and isinstance(if_false, Complex):
            real = self._select(mask, if_true.real, if_false.real)
            return Complex(real, self._select(mask, if_true.imag, if_false.imag))
        assert isinstance(if_true, Value) and isinstance(if_false, Value)
        return self._select(mask, if_true, if_false)

    def _select(self, mask: Mask, if_true: Value, if_false: Value) -> Value:
        dtype = if_true.dtype
        size, is_integer = np.dtype(dtype).itemsize, np.dtype(dtype).kind in "iu"
        if self.count == 1 and (size == 1 or (self.widens_bytes and is_integer)):
            # LLVM 15 for x86 crashes where one byte is chosen by ?: and the other one is a constant (docs/drivers.md).
            # Compilers make choices between bytes of those between wider integers that were bytes.
            kind = self.type(dtype)
            chosen = f"bitselect(({kind})({if_false.text}), ({kind})({if_true.text}), ({kind})-({mask.text}))"
            return Value(chosen, dtype, self)
        if self.count == 1:
            return Value(f"({mask.text} ? {if_true.text} : {if_false.text})", dtype, self)
        mask = mask.resize(np.dtype(dtype).itemsize)
        if np.dtype(dtype).kind == "f":  # PoCL's select() is a call, before which all vectors of a loop are stored
            return Value(f"({mask.text} ? {if_true.text} : {if_false.text})", dtype, self)
        return Value(f"select({if_false.text}, {if_true.text}, {mask.text})", dtype, self)

    def body(self, outputs: Sequence[Scalar]) -> str:
        """Return all statements, then those that set ``o0``, ``o1``... to `outputs`."""
        ends = (line for k, value in enumerate(outputs) for line in _assignments(f"o{k}", value))
        return "\n".join((*self.statements, *ends))

    def operations(self, outputs: Sequence[Scalar]) -> int:
        """Return how many statements `body` returns."""
        return len(self.statements) + len(outputs)


def unroll_of(operations: int) -> int:
    """Return how many elements a work-item of schedule simt loads before it computes.

    The memory of a large GPU is not kept busy by one element for each work-item. Where much is computed, the registers
    are needed for that.

    `operations`: number of statements that are emitted for one element.
    """
    return 4 if operations <= SHORT_FUNCTION else 1


def _assignments(name: str, value: Scalar) -> tuple[str, ...]:
    if isinstance(value, Complex):
        return f"{name}.even = {value.real.text};", f"{name}.odd = {value.imag.text};"
    return (f"{name} = {value.text};",)
