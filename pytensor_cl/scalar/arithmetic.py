"""Arithmetic of integers and real numbers with NumPy's rules, as OpenCL C."""

import numpy as np

from pytensor_cl.codegen.emitter import Emitter, Mask, Value

MAX_PRODUCT = 8
"""Largest constant exponent that is written as multiplications: each costs half an ulp."""


def add(emitter: Emitter, *values: Value) -> Value:
    total = values[0]
    for value in values[1:]:
        total = emitter.bind(total | value if value.dtype == "bool" else total + value)
    return total


def mul(emitter: Emitter, *values: Value) -> Value:
    product = values[0]
    for value in values[1:]:
        product = emitter.bind(product & value if value.dtype == "bool" else product * value)
    return product


def mul_without_zeros(emitter: Emitter, x: Value, y: Value) -> Value:
    both = emitter.select(y.equals(0), x, mul(emitter, x, y))
    return emitter.select(x.equals(0), y, emitter.bind(both))


def is_float(value: Value) -> bool:
    return np.dtype(value.dtype).kind == "f"


def is_signed(value: Value) -> bool:
    return np.dtype(value.dtype).kind == "i"


def _safe_divisor(emitter: Emitter, y: Value) -> Value:
    """Replace the integers that processors trap on; ``x // 1`` is ``-(x // -1)``, and ``x % 1`` is ``x % -1``."""
    bad = y.equals(0) | y.equals(-1) if is_signed(y) else y.equals(0)
    return emitter.bind(emitter.select(bad, emitter.literal(1, y.dtype), y))


def _divide_integers(emitter: Emitter, x: Value, y: Value) -> tuple[Value, Value, Mask]:
    """Return the divisor that was used, the remainder and where C rounded up but Python rounds down."""
    divisor = _safe_divisor(emitter, y)
    remainder = emitter.bind(x - emitter.bind(x / divisor) * divisor)
    return divisor, remainder, remainder.differs(0) & ((remainder ^ divisor) < 0)


def _floor_divide_integers(emitter: Emitter, x: Value, y: Value) -> Value:
    zero = emitter.literal(0, x.dtype)
    if not is_signed(x):
        return emitter.select(y.equals(0), zero, emitter.bind(x / _safe_divisor(emitter, y)))
    divisor, _, rounded_up = _divide_integers(emitter, x, y)
    quotient = emitter.bind(x / divisor)
    floor = emitter.bind(emitter.select(rounded_up, quotient - 1, quotient))
    floor = emitter.bind(emitter.select(y.equals(-1), -x, floor))
    return emitter.select(y.equals(0), zero, floor)


def _modulo_of_integers(emitter: Emitter, x: Value, y: Value) -> Value:
    if not is_signed(x):
        divisor = _safe_divisor(emitter, y)
        return x - emitter.bind(x / divisor) * divisor
    divisor, remainder, rounded_up = _divide_integers(emitter, x, y)
    return emitter.select(rounded_up, remainder + divisor, remainder)


def _divide_vectors(emitter: Emitter, function: str, x: Value, y: Value) -> Value | None:
    """Divide by way of floats, except by a constant: that is a multiplication to compilers."""
    if y.constant is not None:
        return None
    divided = x.call_library("integer_division", function, y)
    return emitter.bind(divided) if emitter.count > 1 else None


def _wrong_sign(remainder: Value, y: Value) -> Mask:
    return remainder.differs(0) & ((y < 0) ^ (remainder < 0))


def floor_divide(emitter: Emitter, x: Value, y: Value) -> Value:
    """``//`` with NumPy's rules for floats: exact where the quotient is nearly an integer."""
    if x.dtype == "bool":
        return _floor_divide_integers(emitter, x.cast("int8"), y.cast("int8")).cast("bool")
    if not is_float(x):
        return _divide_vectors(emitter, "floor_divide", x, y) or _floor_divide_integers(emitter, x, y)
    remainder = emitter.bind(x.call("fmod", y))
    quotient = emitter.bind((x - remainder) / y)
    quotient = emitter.bind(emitter.select(_wrong_sign(remainder, y), quotient - 1, quotient))
    floor = emitter.bind(quotient.call("floor"))
    floor = emitter.bind(emitter.select((quotient - floor) > 0.5, floor + 1, floor))
    plain = emitter.bind(x / y)
    signed_zero = emitter.literal(0, x.dtype).call("copysign", plain)
    floor = emitter.bind(emitter.select(quotient.equals(0), signed_zero, floor))
    return emitter.select(y.equals(0), plain, floor)


def modulo(emitter: Emitter, x: Value, y: Value) -> Value:
    """``%`` with the sign of the divisor."""
    if x.dtype == "bool":
        return modulo(emitter, x.cast("uint8"), y.cast("uint8")).cast("bool")
    if not is_float(x):
        return _divide_vectors(emitter, "modulo", x, y) or _modulo_of_integers(emitter, x, y)
    remainder = emitter.bind(x.call("fmod", y))
    signed_zero = emitter.literal(0, x.dtype).call("copysign", y)
    moved = emitter.bind(emitter.select(_wrong_sign(remainder, y), remainder + y, remainder))
    return emitter.select(remainder.equals(0), signed_zero, moved)


def product_power(emitter: Emitter, x: Value, exponent: int) -> Value:
    """``x ** exponent`` by squaring."""
    result = emitter.literal(1, x.dtype)
    while exponent:
        if exponent & 1:
            result = x if result.constant is not None else emitter.bind(result * x)
        exponent >>= 1
        x = emitter.bind(x * x) if exponent else x
    return result


def _integer_power(emitter: Emitter, x: Value, y: Value) -> Value:
    """Wrap round like NumPy; a negative exponent, which NumPy refuses, truncates towards zero."""
    one, zero = emitter.literal(1, x.dtype), emitter.literal(0, x.dtype)
    base, left, result = emitter.variable(x), emitter.variable(y), emitter.variable(one)
    emitter.raw(f"while ({(left > 0).anywhere()}) {{")
    emitter.assign(result, emitter.select((left & 1).differs(0), result * base, result))
    emitter.assign(base, base * base)
    emitter.assign(left, Value(f"({left.text} >> 1)", left.dtype, emitter))
    emitter.raw("}")
    if not is_signed(x):
        return result
    alternating = emitter.bind(emitter.select((y & 1).differs(0), x, one))
    inverse = emitter.bind(emitter.select(x.equals(1) | x.equals(-1), alternating, zero))
    return emitter.select(y < 0, inverse, result)


def _without_sign(emitter: Emitter, x: Value) -> Value:
    """Half powers of -0 and of -infinity are the half powers of 0 and of infinity."""
    return emitter.bind(emitter.select(x.equals(-float("inf")), -x, emitter.bind(x + 0)))


def power(emitter: Emitter, x: Value, y: Value) -> Value:
    exponent = None if y.constant is None else float(y.constant)
    if exponent is None or abs(exponent) > MAX_PRODUCT or not (2 * exponent).is_integer():
        return x.call("pow", y) if is_float(x) else _integer_power(emitter, x, y)
    if not is_float(x):
        return _integer_power(emitter, x, y) if exponent < 0 else product_power(emitter, x, int(exponent))
    if not exponent.is_integer():
        x = _without_sign(emitter, x)
    result = product_power(emitter, x, int(abs(exponent)))
    if not exponent.is_integer():
        root = x.call("sqrt")
        result = root if abs(exponent) < 1 else result * root
    return 1 / emitter.bind(result) if exponent < 0 else result


def absolute(emitter: Emitter, x: Value) -> Value:
    if is_float(x):
        return x.call("fabs")
    if not is_signed(x):
        return x
    return Value(f"as_{emitter.type(x.dtype)}(abs({x.text}))", x.dtype, emitter)


def sign(emitter: Emitter, x: Value) -> Value:
    zero, one = emitter.literal(0, x.dtype), emitter.literal(1, x.dtype)
    if not is_signed(x) and not is_float(x):
        return emitter.select(x > 0, one, zero)
    # NaN is neither above, below nor equal to zero, and stays itself.
    at_zero = emitter.bind(emitter.select(x.equals(0), zero, x)) if is_float(x) else zero
    negative = emitter.bind(emitter.select(x < 0, emitter.literal(-1, x.dtype), at_zero))
    return emitter.select(x > 0, one, negative)


def maximum(emitter: Emitter, x: Value, y: Value) -> Value:
    return emitter.select((x >= y) | x.is_nan() if is_float(x) else x >= y, x, y)


def minimum(emitter: Emitter, x: Value, y: Value) -> Value:
    return emitter.select((x <= y) | x.is_nan() if is_float(x) else x <= y, x, y)


def clip(emitter: Emitter, x: Value, low: Value, high: Value) -> Value:
    return emitter.select(x < low, low, emitter.bind(emitter.select(x > high, high, x)))
