"""Scalar Ops of complex numbers as OpenCL C.

NumPy's answers where a part is infinite or not a number hold for arithmetic, comparisons, ``abs``, ``sign``, ``sqrt``
and ``log``. Functions are written with functions of real numbers, after Kahan (1987), "Branch cuts for complex
elementary functions", so branch cuts and signed zeros are C99's.
"""

from collections.abc import Callable
from math import log, pi

from pytensor import scalar as ps
from pytensor.tensor.math import MulWithoutZeros

from pytensor_cl.codegen.emitter import Complex, Emitter, Mask, Scalar, Value
from pytensor_cl.scalar.arithmetic import MAX_PRODUCT, maximum, minimum

Emit = Callable[..., Scalar]

INFINITY = float("inf")

# Limits beyond which `sqrt` scales its argument, and the squares by which it does: beyond the first number, and below
# the second.
_SCALING = {
    "float32": ((2.0**125, 2.0**-4), (2.0**-80, 2.0**48)),
    "float64": ((2.0**1021, 2.0**-4), (2.0**-960, 2.0**108)),
}
# Beyond this the inverse hyperbolic tangent is the reciprocal and half of pi, to the last bit.
_FAR = {"float32": 2.0**30, "float64": 2.0**60}
# Beyond this tanh is 1 to the last bit.
_SATURATED = {"float32": 11.0, "float64": 22.0}


def _times_i(z: Complex) -> Complex:
    return Complex(-z.imag, z.real)


def _by_minus_i(z: Complex) -> Complex:
    return Complex(z.imag, -z.real)


def _one(z: Complex) -> Complex:
    return Complex(z.emitter.literal(1, z.real.dtype), z.emitter.literal(0, z.real.dtype))


def _magnitudes(emitter: Emitter, z: Complex) -> tuple[Value, Value, Value]:
    """Return the larger part's size, the ratio of the smaller to it, and the smaller; NaN if a part is."""
    a, b = emitter.bind(z.real.call("fabs")), emitter.bind(z.imag.call("fabs"))
    large, small = emitter.bind(maximum(emitter, a, b)), emitter.bind(minimum(emitter, a, b))
    ratio = emitter.bind(emitter.select(small.equals(0), small, small / large))
    return large, ratio, small


def _shifted(z: Complex, by: int) -> Complex:
    """Add a real number, which leaves the sign of an imaginary zero as it is."""
    return z.emitter.bind(Complex(z.real + by, z.imag))


def _is_infinite(z: Complex) -> Mask:
    return z.real.call("fabs").equals(INFINITY) | z.imag.call("fabs").equals(INFINITY)


def _is_finite(x: Value) -> Mask:
    return x.call("fabs") < INFINITY


def _signed(value: float, x: Value) -> Value:
    """Return a number with the sign of another one."""
    return x.emitter.bind(x.emitter.literal(value, x.dtype).call("copysign", x))


def _abs(emitter: Emitter, z: Complex) -> Value:
    """Without overflow; infinite if a part is, even where the other is NaN."""
    large, ratio, _ = _magnitudes(emitter, z)
    size = emitter.bind(large * emitter.bind((ratio * ratio + 1).call("sqrt")))
    return emitter.bind(emitter.select(_is_infinite(z), emitter.literal(INFINITY, large.dtype), size))


def _angle(emitter: Emitter, z: Complex) -> Value:
    return emitter.bind(z.imag.call("atan2", z.real))


# Arithmetic


def _add(emitter: Emitter, *values: Complex) -> Complex:
    total = values[0]
    for value in values[1:]:
        total = emitter.bind(total + value)
    return total


def _mul(emitter: Emitter, *values: Complex) -> Complex:
    product = values[0]
    for value in values[1:]:
        product = emitter.bind(product * value)
    return product


def _mul_without_zeros(emitter: Emitter, x: Complex, y: Complex) -> Complex:
    both = emitter.select(~y.is_true(), x, emitter.bind(x * y))
    return emitter.select(~x.is_true(), y, emitter.bind(both))


def _divide(emitter: Emitter, x: Complex, y: Complex) -> Complex:
    """Smith's method, as NumPy has it: a division by zero divides both parts by it."""
    c, d = emitter.bind(y.real), emitter.bind(y.imag)
    is_swapped = d.call("fabs") > c.call("fabs")
    large, small = emitter.bind(emitter.select(is_swapped, d, c)), emitter.bind(emitter.select(is_swapped, c, d))
    ratio = emitter.bind(small / large)
    scale = emitter.bind(1 / emitter.bind(large + emitter.bind(small * ratio)))
    a, b = emitter.bind(x.real), emitter.bind(x.imag)
    first, second = emitter.bind(emitter.select(is_swapped, b, a)), emitter.bind(emitter.select(is_swapped, a, b))
    real = emitter.bind((first + emitter.bind(second * ratio)) * scale)
    other = emitter.bind(first * ratio)
    imag = emitter.bind(emitter.select(is_swapped, emitter.bind(other - second), emitter.bind(second - other)) * scale)
    by_zero = emitter.bind(y.real.call("fabs"))
    return emitter.select(~y.is_true(), Complex(a / by_zero, b / by_zero), Complex(real, imag))


def _reciprocal(emitter: Emitter, z: Complex) -> Complex:
    """Return the reciprocal by Smith's method, as NumPy does: NaN for zero."""
    x, y = emitter.bind(z.real), emitter.bind(z.imag)
    is_swapped = y.call("fabs") > x.call("fabs")
    large, small = emitter.bind(emitter.select(is_swapped, y, x)), emitter.bind(emitter.select(is_swapped, x, y))
    ratio = emitter.bind(small / large)
    rest = emitter.bind(large + emitter.bind(small * ratio))
    first, second = emitter.bind(1 / rest), emitter.bind(ratio / rest)
    return Complex(emitter.select(is_swapped, second, first), -emitter.bind(emitter.select(is_swapped, first, second)))


def _sign(emitter: Emitter, z: Complex) -> Complex:
    """The number divided by its size; along an axis if one part is infinite, NaN if both are."""
    size = emitter.bind(_abs(emitter, z))
    zero = emitter.literal(0, size.dtype)

    def part(x: Value) -> Value:
        infinite = emitter.select(
            x.call("fabs").equals(INFINITY), emitter.literal(1, x.dtype).call("copysign", x), zero
        )
        return emitter.bind(emitter.select(size.equals(INFINITY), emitter.bind(infinite), emitter.bind(x / size)))

    unit = Complex(part(z.real), part(z.imag))
    unit = emitter.bind(emitter.select(size.equals(0), Complex(zero, zero), unit))
    both = z.real.call("fabs").equals(INFINITY) & z.imag.call("fabs").equals(INFINITY)
    nan = emitter.literal(float("nan"), size.dtype)
    return emitter.select(both, Complex(nan, nan), unit)


# Comparisons: NumPy orders by the real parts, then by the imaginary parts


def _ordered(strict: bool, swapped: bool) -> Emit:
    def emit(emitter: Emitter, x: Complex, y: Complex) -> Value:
        low, high = (y, x) if swapped else (x, y)
        known = low.imag.equals(low.imag) & high.imag.equals(high.imag)
        inner = low.imag < high.imag if strict else low.imag <= high.imag
        return (((low.real < high.real) & known) | (low.real.equals(high.real) & inner)).as_bool()

    return emit


def extreme(swapped: bool) -> Emit:
    """Return the rule of the lesser of two numbers, or of the greater; the first of them that is NaN is kept."""
    before = _ordered(strict=False, swapped=swapped)

    def emit(emitter: Emitter, x: Complex, y: Complex) -> Complex:
        first = emitter.bind(before(emitter, x, y))
        assert isinstance(first, Value)
        return emitter.select(first.is_true() | emitter.bind(x.is_nan().as_bool()).is_true(), x, y)

    return emit


# Powers and logarithms


def _exp(emitter: Emitter, z: Complex) -> Complex:
    """Return the exponential as two factors, so that the result overflows only where it must."""
    half = emitter.bind(emitter.bind(z.real * 0.5).call("exp"))

    def scaled(x: Value) -> Value:
        is_zero = half.equals(0) & (x.equals(x) | z.real.equals(-INFINITY))
        return emitter.bind(emitter.select(is_zero, _signed(0, x), emitter.bind(half * x) * half))

    imag = scaled(emitter.bind(z.imag.call("sin")))
    real = scaled(emitter.bind(z.imag.call("cos")))
    real = emitter.bind(emitter.select(z.real.equals(INFINITY) & ~_is_finite(z.imag), z.real, real))
    return Complex(real, emitter.select(z.imag.equals(0), z.imag, imag))


def _expm1(emitter: Emitter, z: Complex) -> Complex:
    half = emitter.bind(emitter.bind(z.imag * 0.5).call("sin"))
    growth = emitter.bind(z.real.call("expm1"))
    real = emitter.bind(growth * emitter.bind(z.imag.call("cos"))) - emitter.bind(half * half * 2)
    return Complex(_of_unknown_angle(emitter, z, growth, emitter.bind(real)), _exp(emitter, z).imag)


def _log_abs(emitter: Emitter, z: Complex) -> Value:
    large, ratio, small = _magnitudes(emitter, z)
    far = emitter.bind(large.call("log") + emitter.bind((ratio * ratio).call("log1p")) * 0.5)
    excess = emitter.bind((large - 1) * (large + 1) + emitter.bind(small * small))
    near = emitter.bind(excess.call("log1p") * 0.5)
    size = emitter.bind(emitter.select((large > 0.5) & (large < 2), near, far))
    return emitter.select(_is_infinite(z), emitter.literal(INFINITY, size.dtype), size)


def _log(emitter: Emitter, z: Complex) -> Complex:
    return Complex(emitter.bind(_log_abs(emitter, z)), _angle(emitter, z))


def _log1p(emitter: Emitter, z: Complex) -> Complex:
    x, y = z.real, z.imag
    whole = emitter.bind(_log(emitter, _shifted(z, 1)))
    near = emitter.bind(emitter.bind(x * (x + 2) + emitter.bind(y * y)).call("log1p") * 0.5)
    is_near = (x.call("fabs") < 0.5) & (y.call("fabs") < 0.5)
    return Complex(emitter.select(is_near, near, whole.real), whole.imag)


def _scaled(function: Callable[[Emitter, Complex], Complex], before: float = 1, after: float = 1) -> Emit:
    def emit(emitter: Emitter, z: Complex) -> Complex:
        z = z if before == 1 else emitter.bind(z.scaled(before))
        result = emitter.bind(function(emitter, z))
        return result if after == 1 else result.scaled(after)

    return emit


def _sqrt(emitter: Emitter, z: Complex) -> Complex:
    dtype = z.real.dtype
    (high, down), (low, up) = _SCALING[dtype]
    large, *_ = _magnitudes(emitter, z)

    def factor(above: float, below: float) -> Value:
        one = emitter.bind(emitter.select(large < low, emitter.literal(below, dtype), emitter.literal(1, dtype)))
        return emitter.bind(emitter.select(large > high, emitter.literal(above, dtype), one))

    near = emitter.bind(z.scaled(factor(down, up)))
    half = emitter.bind(near.real.call("fabs") * 0.5) + emitter.bind(_abs(emitter, near) * 0.5)
    root = emitter.bind(emitter.bind(half).call("sqrt"))
    other = emitter.bind(near.imag.call("fabs") / (root * 2))
    other = emitter.bind(emitter.select(root.equals(0), root, other))
    right = near.real >= 0
    real, imag = emitter.select(right, root, other), emitter.bind(emitter.select(right, other, root))
    result = emitter.bind(Complex(real, imag.call("copysign", near.imag)).scaled(factor(down**-0.5, up**-0.5)))
    infinite = Complex(emitter.literal(INFINITY, dtype), z.imag)
    return emitter.select(z.imag.call("fabs").equals(INFINITY), infinite, result)


def _product(emitter: Emitter, z: Complex, exponent: int) -> Complex:
    """``z ** exponent`` for a positive exponent, by squaring."""
    result = None
    while exponent:
        if exponent & 1:
            result = z if result is None else emitter.bind(result * z)
        exponent >>= 1
        z = emitter.bind(z * z) if exponent else z
    return result or z


def _pow(emitter: Emitter, x: Complex, y: Complex) -> Complex:
    """``exp(y * log(x))``; small constant integers are multiplied out."""
    if y.real.constant is not None and y.imag.constant is not None and float(y.imag.constant) == 0:
        exponent = float(y.real.constant)
        if exponent.is_integer() and 0 < abs(exponent) <= MAX_PRODUCT:
            result = emitter.bind(_product(emitter, x, int(abs(exponent))))
            return _reciprocal(emitter, result) if exponent < 0 else result
    zero = emitter.literal(0, x.real.dtype)
    nan = emitter.literal(float("nan"), x.real.dtype)
    general = emitter.bind(_exp(emitter, emitter.bind(emitter.bind(_log(emitter, x)) * y)))
    of_zero = emitter.bind(emitter.select(y.real > 0, zero, nan))
    general = emitter.bind(emitter.select(x.is_true(), general, Complex(of_zero, of_zero)))
    return emitter.select(y.is_true(), general, _one(x))


# Trigonometric and hyperbolic functions; trigonometric ones of z are hyperbolic ones of i z


def _grown(emitter: Emitter, angle: Value, name: str, argument: Value) -> Value:
    """A hyperbolic function times one of an angle: zero times infinity is zero here."""
    own = emitter.bind(argument.call(name))
    grown = emitter.bind(own * angle)
    if name == "sinh":  # of zero it is zero, of whatever angle
        grown = emitter.bind(emitter.select(argument.equals(0) & angle.is_nan(), argument, grown))
    zero = angle
    if name == "sinh":
        zero = emitter.bind(emitter.select(argument.is_nan(), angle, emitter.bind(_signed(1, argument)) * angle))
    return emitter.bind(emitter.select(angle.equals(0), zero, grown))


def _of_unknown_angle(emitter: Emitter, z: Complex, limit: Value, real: Value) -> Value:
    """Return the real part; it is `limit` if the real part of `z` is infinite and the imaginary one is not finite."""
    return emitter.bind(emitter.select(z.real.call("fabs").equals(INFINITY) & ~_is_finite(z.imag), limit, real))


def _without_angle(emitter: Emitter, z: Complex, name: str, real: Value) -> Value:
    """Return the real part; that of an infinite number whose angle is unknown is infinite."""
    return _of_unknown_angle(emitter, z, z.real if name == "sinh" else z.real.call("fabs"), real)


def _sinh(emitter: Emitter, z: Complex) -> Complex:
    cos, sin = emitter.bind(z.imag.call("cos")), emitter.bind(z.imag.call("sin"))
    real = _without_angle(emitter, z, "sinh", _grown(emitter, cos, "sinh", z.real))
    return Complex(real, _grown(emitter, sin, "cosh", z.real))


def _cosh(emitter: Emitter, z: Complex) -> Complex:
    cos, sin = emitter.bind(z.imag.call("cos")), emitter.bind(z.imag.call("sin"))
    real = _without_angle(emitter, z, "cosh", _grown(emitter, cos, "cosh", z.real))
    return Complex(real, _grown(emitter, sin, "sinh", z.real))


def _tanh(emitter: Emitter, z: Complex) -> Complex:
    limit = _SATURATED[z.real.dtype]
    size = emitter.bind(z.real.call("fabs"))
    bounded = emitter.bind(
        emitter.select(size > limit, emitter.literal(limit, size.dtype), size).call("copysign", z.real)
    )
    tan, sinh = emitter.bind(z.imag.call("tan")), emitter.bind(bounded.call("sinh"))
    slope = emitter.bind(tan * tan + 1)
    square = emitter.bind(sinh * sinh)
    rest = emitter.bind(slope * square + 1)
    real = emitter.bind(slope * sinh) * emitter.bind((square + 1).call("sqrt")) / rest
    # The imaginary part decays on: 4 sin(y) cos(y) exp(-2 |x|) is 4 tan(y) / (1 + tan(y)**2) exp(-2 |x|).
    decayed = emitter.bind(tan / slope * 4) * emitter.bind(emitter.bind(size * -2).call("exp"))
    decayed = emitter.bind(emitter.select(size.equals(INFINITY) & tan.is_nan(), _signed(0, z.imag), decayed))
    real = emitter.bind(emitter.select(z.real.equals(0), z.real, emitter.bind(real)))
    imag = emitter.bind(emitter.select(z.imag.equals(0), z.imag, emitter.bind(tan / rest)))
    one = emitter.bind(_signed(1, z.real))
    unknown = emitter.bind(z.imag * 0)  # NaN if the imaginary part is not finite
    far = emitter.bind(emitter.select(size.equals(INFINITY), one, one + unknown))
    return emitter.select(size > limit, Complex(far, decayed), Complex(real, imag))


def _asinh(emitter: Emitter, z: Complex) -> Complex:
    up = emitter.bind(_sqrt(emitter, _shifted(_by_minus_i(z), 1)))
    down = emitter.bind(_sqrt(emitter, _shifted(_times_i(z), 1)))
    cross = emitter.bind(up.real * down.imag) - emitter.bind(down.real * up.imag)
    dot = emitter.bind(up.real * down.real) - emitter.bind(up.imag * down.imag)
    near = emitter.bind(Complex(emitter.bind(cross).call("asinh"), z.imag.call("atan2", emitter.bind(dot))))
    imag = emitter.bind(emitter.select(z.imag.equals(0), z.imag, near.imag))
    angle = emitter.bind(z.imag.call("atan2", z.real.call("fabs")))
    return emitter.select(_is_infinite(z), Complex(_signed(INFINITY, z.real), angle), Complex(near.real, imag))


def _acos(emitter: Emitter, z: Complex) -> Complex:
    below, above = (emitter.bind(_sqrt(emitter, _shifted(w, 1))) for w in (-z, z))
    cross = emitter.bind(above.real * below.imag) - emitter.bind(above.imag * below.real)
    real = emitter.bind(below.real.call("atan2", above.real) * 2)
    real = emitter.bind(emitter.select(z.real.equals(0) & z.imag.is_nan(), _half_pi(emitter, real), real))
    angle = emitter.bind(z.imag.call("fabs").call("atan2", z.real))
    infinite = Complex(angle, emitter.bind(-_signed(INFINITY, z.imag)))
    return emitter.select(_is_infinite(z), infinite, Complex(real, emitter.bind(emitter.bind(cross).call("asinh"))))


def _acosh(emitter: Emitter, z: Complex) -> Complex:
    below, above = (emitter.bind(_sqrt(emitter, _shifted(z, by))) for by in (-1, 1))
    dot = emitter.bind(below.real * above.real) + emitter.bind(below.imag * above.imag)
    real = emitter.bind(emitter.bind(dot).call("asinh"))
    imag = emitter.bind(below.imag.call("atan2", above.real) * 2)
    imag = emitter.bind(emitter.select(z.real.equals(0) & z.imag.is_nan(), _half_pi(emitter, imag), imag))
    infinite = Complex(emitter.literal(INFINITY, real.dtype), _angle(emitter, z))
    return emitter.select(_is_infinite(z), infinite, Complex(real, imag))


def _half_pi(emitter: Emitter, like: Value) -> Value:
    return emitter.literal(pi / 2, like.dtype)


def _atanh(emitter: Emitter, z: Complex) -> Complex:
    x, y = emitter.bind(z.real.call("fabs")), z.imag
    rest = emitter.bind(1 - x)
    square = emitter.bind(y * y)
    real = emitter.bind(emitter.bind(x * 4 / (emitter.bind(rest * rest) + square)).call("log1p") * 0.25)
    imag = emitter.bind(y * 2).call("atan2", emitter.bind(rest * (x + 1)) - square) * 0.5
    real = emitter.bind(emitter.select(x.equals(0), x, emitter.bind(real)))
    infinite = _is_infinite(z)
    large, ratio, _ = _magnitudes(emitter, z)
    is_far = infinite | (large > _FAR[x.dtype])
    inverse = emitter.bind(emitter.bind(emitter.bind(x / large) / large) / emitter.bind(ratio * ratio + 1))
    inverse = emitter.bind(emitter.select(infinite, emitter.literal(0, x.dtype), inverse))
    right = emitter.bind(emitter.select(y.is_nan(), y, _signed(pi / 2, y)))
    real = emitter.bind(emitter.select(is_far, inverse, real))
    return Complex(real.call("copysign", z.real), emitter.select(is_far, right, emitter.bind(imag)))


def _turned(function: Callable[[Emitter, Complex], Complex]) -> Emit:
    """The trigonometric counterpart of an odd hyperbolic function: ``-i f(i z)``."""
    return lambda emitter, z: _by_minus_i(emitter.bind(function(emitter, emitter.bind(_times_i(z)))))


COMPLEX: dict[type[ps.ScalarOp], Emit] = {
    ps.Abs: _abs,
    ps.Add: _add,
    ps.ArcCos: _acos,
    ps.ArcCosh: _acosh,
    ps.ArcSin: _turned(_asinh),
    ps.ArcSinh: _asinh,
    ps.ArcTan: _turned(_atanh),
    ps.ArcTanh: _atanh,
    ps.Cast: lambda emitter, z: z,
    ps.Complex: lambda emitter, x, y: Complex(x.real, y.real),
    ps.Conj: lambda emitter, z: Complex(z.real, -z.imag),
    ps.Cos: lambda emitter, z: _cosh(emitter, emitter.bind(_times_i(z))),
    ps.Cosh: _cosh,
    ps.EQ: lambda emitter, x, y: x.equals(y).as_bool(),
    ps.Exp: _exp,
    ps.Exp2: _scaled(_exp, before=log(2)),
    ps.Expm1: _expm1,
    ps.GE: _ordered(strict=False, swapped=True),
    ps.GT: _ordered(strict=True, swapped=True),
    ps.Identity: lambda emitter, z: z,
    ps.Imag: lambda emitter, z: z.imag,
    ps.IsInf: lambda emitter, z: _is_infinite(z).as_bool(),
    ps.IsNan: lambda emitter, z: z.is_nan().as_bool(),
    ps.LE: _ordered(strict=False, swapped=False),
    ps.Log: _log,
    ps.Log10: _scaled(_log, after=1 / log(10)),
    ps.Log1p: _log1p,
    ps.Log2: _scaled(_log, after=1 / log(2)),
    ps.LT: _ordered(strict=True, swapped=False),
    ps.Maximum: extreme(swapped=True),
    ps.Minimum: extreme(swapped=False),
    ps.Mul: _mul,
    ps.Neg: lambda emitter, z: -z,
    ps.NEQ: lambda emitter, x, y: (~x.equals(y)).as_bool(),
    ps.Pow: _pow,
    ps.Real: lambda emitter, z: z.real,
    ps.Reciprocal: _reciprocal,
    ps.Second: lambda emitter, x, y: y,
    ps.Sign: _sign,
    ps.Sin: _turned(_sinh),
    ps.Sinh: _sinh,
    ps.Sqr: lambda emitter, z: z * z,
    ps.Sqrt: _sqrt,
    ps.Sub: lambda emitter, x, y: x - y,
    ps.Switch: lambda emitter, condition, x, y: emitter.select(condition.is_true(), x, y),
    ps.Tan: _turned(_tanh),
    ps.Tanh: _tanh,
    ps.TrueDiv: _divide,
    MulWithoutZeros: _mul_without_zeros,
}
"""Inputs are complex numbers of one dtype, but for the first of `Second` and `Switch`. Other Ops stay on the host."""
