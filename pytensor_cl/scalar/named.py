"""Elementwise functions of NumPy's as OpenCL C, by name, that PyTensor has no scalar Op for, or another one.

``element_function(NAMED["hypot"], ("float32", "float32"), ("float32",))`` is one of them. Where a name is also that of
an Op in `base.RULES`, the function here is NumPy's, and that of the Op is PyTensor's.
"""

from collections.abc import Callable

import numpy as np

from pytensor_cl.codegen.emitter import Complex, Emitter, Mask, Scalar, Value
from pytensor_cl.scalar.arithmetic import is_float, is_signed, maximum, minimum
from pytensor_cl.scalar.base import NamedOp, Rule, Unsupported
from pytensor_cl.scalar.complex import INFINITY, extreme

LOG_OF_TWO = 0.6931471805599453


# Bits


def _shift(name: str, operator: str) -> NamedOp:
    """Shift; a count that is negative, or the number of bits or more, leaves no bit but copies of the sign."""

    def emit(emitter: Emitter, x: Value, y: Value) -> Value:
        if is_float(x) or x.dtype == "bool":
            raise Unsupported(f"{name} is of integers, not of {x.dtype}")
        inside = y < 8 * np.dtype(x.dtype).itemsize
        inside = inside & (y >= 0) if is_signed(x) else inside
        zero = emitter.literal(0, x.dtype)
        count = emitter.bind(emitter.select(inside, y, zero))
        if operator == "<<":
            template, rest = emitter.arithmetic(operator, x.dtype), zero
        else:  # that of signed integers is arithmetic, so it is not written as one of unsigned integers
            template = f"(({emitter.type(x.dtype)})({{}} >> {{}}))"
            rest = emitter.bind(emitter.select(x < 0, emitter.literal(-1, x.dtype), zero)) if is_signed(x) else zero
        shifted = emitter.bind(Value(template.format(x.text, count.text), x.dtype, emitter))
        return emitter.select(inside, shifted, rest)

    return NamedOp(name, Rule(emit))


def _as_integer(x: Value, kind: str) -> Value:
    return x.emitter.bind(x.bits(f"{kind}{8 * np.dtype(x.dtype).itemsize}"))


def _signbit(emitter: Emitter, x: Value) -> Value:
    if is_float(x):
        return (_as_integer(x, "int") < 0).as_bool()
    return (x < 0).as_bool() if is_signed(x) else emitter.literal(False, "bool")


def _next_after(emitter: Emitter, x: Value, y: Value) -> Value:
    """Step from `x` to the next number towards `y`: numbers of one sign are in the order of their bits.

    Only integers are compared, since a device may take subnormal numbers for zero.
    """
    a, b = _as_integer(x, "uint"), _as_integer(y, "uint")
    dtype = np.dtype(x.dtype)
    sign = 1 << (8 * dtype.itemsize - 1)
    infinite = int(dtype.type(np.inf).view(a.dtype))
    size_a, size_b = emitter.bind(a & (sign - 1)), emitter.bind(b & (sign - 1))
    is_inwards = (size_a > size_b) | ((a ^ b) >= sign)
    moved = emitter.bind(emitter.select(is_inwards, emitter.bind(a - 1), emitter.bind(a + 1)))
    smallest = emitter.bind((b & sign) | 1)
    moved = emitter.bind(emitter.select(size_a.equals(0), smallest, moved))
    is_same = a.equals(b) | (size_a.equals(0) & size_b.equals(0))
    moved = emitter.bind(emitter.select(is_same, b, moved))
    moved = emitter.bind(emitter.select(size_b > infinite, b, moved))
    return emitter.bind(emitter.select(size_a > infinite, a, moved)).bits(x.dtype)


# Floats


def _is_finite(x: Value) -> Mask:
    return x.call("fabs") < INFINITY


def _isfinite(emitter: Emitter, x: Value) -> Value:
    return _is_finite(x).as_bool() if is_float(x) else emitter.literal(True, "bool")


def _isfinite_complex(emitter: Emitter, z: Complex) -> Value:
    return (_is_finite(z.real) & _is_finite(z.imag)).as_bool()


def _logaddexp(emitter: Emitter, x: Value, y: Value) -> Value:
    """``log(exp(x) + exp(y))`` without overflow; equal infinities have no difference."""
    distance = emitter.bind(emitter.bind(x - y).call("fabs"))
    rest = emitter.bind(emitter.bind((-distance).call("exp")).call("log1p"))
    total = emitter.bind(emitter.bind(maximum(emitter, x, y)) + rest)
    return emitter.select(x.equals(y), x + LOG_OF_TWO, total)


def _rounding(name: str, builtin: str, of_complex: bool = False) -> NamedOp:
    """A rounding to whole numbers, which changes no integer."""

    def emit(emitter: Emitter, x: Value) -> Value:
        return x.call(builtin) if is_float(x) else x

    def emit_complex(emitter: Emitter, z: Complex) -> Complex:
        return Complex(z.real.call(builtin), z.imag.call(builtin))

    return NamedOp(name, Rule(emit), emit_complex if of_complex else None)


def _clip(emitter: Emitter, x: Value, low: Value, high: Value) -> Value:
    """Keep NaN of any argument; the upper bound counts where the bounds are in the wrong order."""
    return minimum(emitter, emitter.bind(maximum(emitter, x, low)), high)


def _clip_complex(emitter: Emitter, x: Complex, low: Complex, high: Complex) -> Scalar:
    upper, lower = extreme(swapped=True), extreme(swapped=False)
    return lower(emitter, emitter.bind(upper(emitter, x, low)), high)


def _named(name: str, emit: Callable[..., Value], of_complex: Callable[..., Scalar] | None = None) -> NamedOp:
    return NamedOp(name, Rule(emit), of_complex)


NAMED: dict[str, NamedOp] = {
    op.name: op
    for op in (
        _shift("bitwise_left_shift", "<<"),
        _shift("bitwise_right_shift", ">>"),
        _rounding("ceil", "ceil"),
        _named("clip", _clip, _clip_complex),
        _named("copysign", lambda emitter, x, y: x.call("copysign", y)),
        _rounding("floor", "floor"),
        _named("hypot", lambda emitter, x, y: x.call("hypot", y)),
        NamedOp("isfinite", Rule(_isfinite, cast=False), _isfinite_complex),
        _named("logaddexp", _logaddexp),
        NamedOp("nextafter", Rule(_next_after), takes_halves=True),
        _rounding("round", "rint", of_complex=True),
        NamedOp("signbit", Rule(_signbit, cast=False)),
        _rounding("trunc", "trunc"),
    )
}
"""The functions; `element_function` takes them as it takes scalar Ops."""
