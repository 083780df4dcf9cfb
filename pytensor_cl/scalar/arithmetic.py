"""Arithmetic of integers and real numbers with NumPy's rules, as OpenCL C."""

import numpy as np

from pytensor_cl.codegen.emitter import Lanes, Mask, Value

__all__ = [
    "absolute",
    "add",
    "clip",
    "floor_divide",
    "is_float",
    "is_signed",
    "maximum",
    "minimum",
    "modulo",
    "mul",
    "mul_without_zeros",
    "power",
    "product_power",
    "sign",
]

MAX_PRODUCT = 8
"""Largest constant exponent that is written as multiplications: each costs half an ulp."""


def add(lanes: Lanes, *values: Value) -> Value:
    total = values[0]
    for value in values[1:]:
        total = lanes.let(total | value if value.dtype == "bool" else total + value)
    return total


def mul(lanes: Lanes, *values: Value) -> Value:
    product = values[0]
    for value in values[1:]:
        product = lanes.let(product & value if value.dtype == "bool" else product * value)
    return product


def mul_without_zeros(lanes: Lanes, x: Value, y: Value) -> Value:
    both = lanes.select(y.equals(0), x, mul(lanes, x, y))
    return lanes.select(x.equals(0), y, lanes.let(both))


def is_float(value: Value) -> bool:
    return np.dtype(value.dtype).kind == "f"


def is_signed(value: Value) -> bool:
    return np.dtype(value.dtype).kind == "i"


def _safe_divisor(lanes: Lanes, y: Value) -> Value:
    """Replace the integers that processors trap on; ``x // 1`` is ``-(x // -1)``, and ``x % 1`` is ``x % -1``."""
    bad = y.equals(0) | y.equals(-1) if is_signed(y) else y.equals(0)
    return lanes.let(lanes.select(bad, lanes.literal(1, y.dtype), y))


def _divide_integers(lanes: Lanes, x: Value, y: Value) -> tuple[Value, Value, Mask]:
    """Return the divisor that was used, the remainder and where C rounded up but Python rounds down."""
    divisor = _safe_divisor(lanes, y)
    remainder = lanes.let(x - lanes.let(x / divisor) * divisor)
    return divisor, remainder, remainder.differs(0) & ((remainder ^ divisor) < 0)


def _floor_divide_integers(lanes: Lanes, x: Value, y: Value) -> Value:
    zero = lanes.literal(0, x.dtype)
    if not is_signed(x):
        return lanes.select(y.equals(0), zero, lanes.let(x / _safe_divisor(lanes, y)))
    divisor, _, rounded_up = _divide_integers(lanes, x, y)
    quotient = lanes.let(x / divisor)
    floor = lanes.let(lanes.select(rounded_up, quotient - 1, quotient))
    floor = lanes.let(lanes.select(y.equals(-1), -x, floor))
    return lanes.select(y.equals(0), zero, floor)


def _modulo_of_integers(lanes: Lanes, x: Value, y: Value) -> Value:
    if not is_signed(x):
        divisor = _safe_divisor(lanes, y)
        return x - lanes.let(x / divisor) * divisor
    divisor, remainder, rounded_up = _divide_integers(lanes, x, y)
    return lanes.select(rounded_up, remainder + divisor, remainder)


def _divide_vectors(lanes: Lanes, function: str, x: Value, y: Value) -> Value | None:
    """Divide by way of floats, except by a constant: that is a multiplication to compilers."""
    if y.constant is not None:
        return None
    divided = x.call_own("integer_division", function, y)
    return lanes.let(divided) if lanes.count > 1 else None


def _wrong_sign(remainder: Value, y: Value) -> Mask:
    return remainder.differs(0) & ((y < 0) ^ (remainder < 0))


def floor_divide(lanes: Lanes, x: Value, y: Value) -> Value:
    """``//`` with NumPy's rules for floats: exact where the quotient is nearly an integer."""
    if x.dtype == "bool":
        return _floor_divide_integers(lanes, x.cast("int8"), y.cast("int8")).cast("bool")
    if not is_float(x):
        return _divide_vectors(lanes, "floor_divide", x, y) or _floor_divide_integers(lanes, x, y)
    remainder = lanes.let(x.call("fmod", y))
    quotient = lanes.let((x - remainder) / y)
    quotient = lanes.let(lanes.select(_wrong_sign(remainder, y), quotient - 1, quotient))
    floor = lanes.let(quotient.call("floor"))
    floor = lanes.let(lanes.select((quotient - floor) > 0.5, floor + 1, floor))
    plain = lanes.let(x / y)
    signed_zero = lanes.literal(0, x.dtype).call("copysign", plain)
    floor = lanes.let(lanes.select(quotient.equals(0), signed_zero, floor))
    return lanes.select(y.equals(0), plain, floor)


def modulo(lanes: Lanes, x: Value, y: Value) -> Value:
    """``%`` with the sign of the divisor."""
    if x.dtype == "bool":
        return modulo(lanes, x.cast("uint8"), y.cast("uint8")).cast("bool")
    if not is_float(x):
        return _divide_vectors(lanes, "modulo", x, y) or _modulo_of_integers(lanes, x, y)
    remainder = lanes.let(x.call("fmod", y))
    signed_zero = lanes.literal(0, x.dtype).call("copysign", y)
    moved = lanes.let(lanes.select(_wrong_sign(remainder, y), remainder + y, remainder))
    return lanes.select(remainder.equals(0), signed_zero, moved)


def product_power(lanes: Lanes, x: Value, exponent: int) -> Value:
    """``x ** exponent`` by squaring."""
    result = lanes.literal(1, x.dtype)
    while exponent:
        if exponent & 1:
            result = x if result.constant is not None else lanes.let(result * x)
        exponent >>= 1
        x = lanes.let(x * x) if exponent else x
    return result


def _integer_power(lanes: Lanes, x: Value, y: Value) -> Value:
    """Wrap round like NumPy; a negative exponent, which NumPy refuses, truncates towards zero."""
    one, zero = lanes.literal(1, x.dtype), lanes.literal(0, x.dtype)
    base, left, result = lanes.variable(x), lanes.variable(y), lanes.variable(one)
    lanes.raw(f"while ({(left > 0).anywhere()}) {{")
    lanes.assign(result, lanes.select((left & 1).differs(0), result * base, result))
    lanes.assign(base, base * base)
    lanes.assign(left, Value(f"({left.text} >> 1)", left.dtype, lanes))
    lanes.raw("}")
    if not is_signed(x):
        return result
    alternating = lanes.let(lanes.select((y & 1).differs(0), x, one))
    inverse = lanes.let(lanes.select(x.equals(1) | x.equals(-1), alternating, zero))
    return lanes.select(y < 0, inverse, result)


def _without_sign(lanes: Lanes, x: Value) -> Value:
    """Half powers of -0 and of -infinity are those of 0 and of infinity."""
    return lanes.let(lanes.select(x.equals(-float("inf")), -x, lanes.let(x + 0)))


def power(lanes: Lanes, x: Value, y: Value) -> Value:
    exponent = None if y.constant is None else float(y.constant)
    if exponent is None or abs(exponent) > MAX_PRODUCT or not (2 * exponent).is_integer():
        return x.call("pow", y) if is_float(x) else _integer_power(lanes, x, y)
    if not is_float(x):
        return _integer_power(lanes, x, y) if exponent < 0 else product_power(lanes, x, int(exponent))
    if not exponent.is_integer():
        x = _without_sign(lanes, x)
    result = product_power(lanes, x, int(abs(exponent)))
    if not exponent.is_integer():
        root = x.call("sqrt")
        result = root if abs(exponent) < 1 else result * root
    return 1 / lanes.let(result) if exponent < 0 else result


def absolute(lanes: Lanes, x: Value) -> Value:
    if is_float(x):
        return x.call("fabs")
    if not is_signed(x):
        return x
    return Value(f"as_{lanes.type(x.dtype)}(abs({x.text}))", x.dtype, lanes)


def sign(lanes: Lanes, x: Value) -> Value:
    zero, one = lanes.literal(0, x.dtype), lanes.literal(1, x.dtype)
    if not is_signed(x) and not is_float(x):
        return lanes.select(x > 0, one, zero)
    # NaN is neither above, below nor equal to zero, and stays itself.
    at_zero = lanes.let(lanes.select(x.equals(0), zero, x)) if is_float(x) else zero
    negative = lanes.let(lanes.select(x < 0, lanes.literal(-1, x.dtype), at_zero))
    return lanes.select(x > 0, one, negative)


def maximum(lanes: Lanes, x: Value, y: Value) -> Value:
    return lanes.select((x >= y) | x.is_nan() if is_float(x) else x >= y, x, y)


def minimum(lanes: Lanes, x: Value, y: Value) -> Value:
    return lanes.select((x <= y) | x.is_nan() if is_float(x) else x <= y, x, y)


def clip(lanes: Lanes, x: Value, low: Value, high: Value) -> Value:
    return lanes.select(x < low, low, lanes.let(lanes.select(x > high, high, x)))
