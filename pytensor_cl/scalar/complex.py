"""Scalar Ops of complex numbers as OpenCL C.

NumPy's answers where a part is infinite or not a number hold for arithmetic, comparisons, ``abs``, ``sign``, ``sqrt``
and ``log``. Functions are written with those of real numbers, after Kahan (1987), "Branch cuts for complex elementary
functions", so branch cuts and signed zeros are C99's.
"""

from collections.abc import Callable
from math import log

from pytensor import scalar as ps
from pytensor.tensor.math import MulWithoutZeros

from pytensor_cl.codegen.emitter import Complex, Lanes, Mask, Scalar, Value
from pytensor_cl.scalar.arithmetic import MAX_PRODUCT, maximum, minimum

__all__ = ["COMPLEX"]

Emit = Callable[..., Scalar]

INFINITY = float("inf")

# Where `sqrt` scales its argument, and by which squares: beyond the first number, and below the second.
_SCALING = {
    "float32": ((2.0**125, 2.0**-4), (2.0**-80, 2.0**48)),
    "float64": ((2.0**1021, 2.0**-4), (2.0**-960, 2.0**108)),
}
# Beyond this tanh is 1 to the last bit.
_SATURATED = {"float32": 11.0, "float64": 22.0}


def _times_i(z: Complex) -> Complex:
    return Complex(-z.imag, z.real)


def _by_minus_i(z: Complex) -> Complex:
    return Complex(z.imag, -z.real)


def _one(z: Complex) -> Complex:
    return Complex(z.lanes.literal(1, z.real.dtype), z.lanes.literal(0, z.real.dtype))


def _magnitudes(lanes: Lanes, z: Complex) -> tuple[Value, Value, Value]:
    """Return the larger part's size, the ratio of the smaller to it, and the smaller; NaN if a part is."""
    a, b = lanes.let(z.real.call("fabs")), lanes.let(z.imag.call("fabs"))
    large, small = lanes.let(maximum(lanes, a, b)), lanes.let(minimum(lanes, a, b))
    ratio = lanes.let(lanes.select(small.equals(0), small, small / large))
    return large, ratio, small


def _shifted(z: Complex, by: int) -> Complex:
    """Add a real number, which leaves the sign of an imaginary zero as it is."""
    return z.lanes.let(Complex(z.real + by, z.imag))


def _is_infinite(z: Complex) -> Mask:
    return z.real.call("fabs").equals(INFINITY) | z.imag.call("fabs").equals(INFINITY)


def _abs(lanes: Lanes, z: Complex) -> Value:
    """Without overflow; infinite if a part is, even where the other is NaN."""
    large, ratio, _ = _magnitudes(lanes, z)
    size = lanes.let(large * lanes.let((ratio * ratio + 1).call("sqrt")))
    return lanes.let(lanes.select(_is_infinite(z), lanes.literal(INFINITY, large.dtype), size))


def _angle(lanes: Lanes, z: Complex) -> Value:
    return lanes.let(z.imag.call("atan2", z.real))


# Arithmetic


def _add(lanes: Lanes, *values: Complex) -> Complex:
    total = values[0]
    for value in values[1:]:
        total = lanes.let(total + value)
    return total


def _mul(lanes: Lanes, *values: Complex) -> Complex:
    product = values[0]
    for value in values[1:]:
        product = lanes.let(product * value)
    return product


def _mul_without_zeros(lanes: Lanes, x: Complex, y: Complex) -> Complex:
    both = lanes.select(~y.is_true(), x, lanes.let(x * y))
    return lanes.select(~x.is_true(), y, lanes.let(both))


def _divide(lanes: Lanes, x: Complex, y: Complex) -> Complex:
    """Smith's method, as NumPy has it: a division by zero is that of both parts."""
    c, d = lanes.let(y.real), lanes.let(y.imag)
    steep = d.call("fabs") > c.call("fabs")
    large, small = lanes.let(lanes.select(steep, d, c)), lanes.let(lanes.select(steep, c, d))
    ratio = lanes.let(small / large)
    scale = lanes.let(1 / lanes.let(large + lanes.let(small * ratio)))
    a, b = lanes.let(x.real), lanes.let(x.imag)
    first, second = lanes.let(lanes.select(steep, b, a)), lanes.let(lanes.select(steep, a, b))
    real = lanes.let((first + lanes.let(second * ratio)) * scale)
    difference = lanes.let(second - lanes.let(first * ratio))
    imag = lanes.let(lanes.select(steep, -difference, difference) * scale)
    by_zero = lanes.let(y.real.call("fabs"))
    return lanes.select(~y.is_true(), Complex(a / by_zero, b / by_zero), Complex(real, imag))


def _reciprocal(lanes: Lanes, z: Complex) -> Complex:
    """As NumPy has it: not a number for zero."""
    x, y = lanes.let(z.real), lanes.let(z.imag)
    steep = y.call("fabs") > x.call("fabs")
    large, small = lanes.let(lanes.select(steep, y, x)), lanes.let(lanes.select(steep, x, y))
    ratio = lanes.let(small / large)
    rest = lanes.let(large + lanes.let(small * ratio))
    first, second = lanes.let(1 / rest), lanes.let(ratio / rest)
    return Complex(lanes.select(steep, second, first), -lanes.let(lanes.select(steep, first, second)))


def _sign(lanes: Lanes, z: Complex) -> Complex:
    """The number divided by its size; along an axis if one part is infinite, NaN if both are."""
    size = lanes.let(_abs(lanes, z))
    zero = lanes.literal(0, size.dtype)

    def part(x: Value) -> Value:
        infinite = lanes.select(x.call("fabs").equals(INFINITY), lanes.literal(1, x.dtype).call("copysign", x), zero)
        return lanes.let(lanes.select(size.equals(INFINITY), lanes.let(infinite), lanes.let(x / size)))

    unit = Complex(part(z.real), part(z.imag))
    unit = lanes.let(lanes.select(size.equals(0), Complex(zero, zero), unit))
    both = z.real.call("fabs").equals(INFINITY) & z.imag.call("fabs").equals(INFINITY)
    nan = lanes.literal(float("nan"), size.dtype)
    return lanes.select(both, Complex(nan, nan), unit)


# Comparisons: NumPy's order is that of the real parts, then that of the imaginary ones


def _ordered(strict: bool, swapped: bool) -> Emit:
    def emit(lanes: Lanes, x: Complex, y: Complex) -> Value:
        low, high = (y, x) if swapped else (x, y)
        known = low.imag.equals(low.imag) & high.imag.equals(high.imag)
        inner = low.imag < high.imag if strict else low.imag <= high.imag
        return (((low.real < high.real) & known) | (low.real.equals(high.real) & inner)).as_bool()

    return emit


def _extreme(swapped: bool) -> Emit:
    before = _ordered(strict=False, swapped=swapped)

    def emit(lanes: Lanes, x: Complex, y: Complex) -> Complex:
        first = lanes.let(before(lanes, x, y))
        assert isinstance(first, Value)
        return lanes.select(first.is_true() | lanes.let(x.is_nan().as_bool()).is_true(), x, y)

    return emit


# Powers and logarithms


def _exp(lanes: Lanes, z: Complex) -> Complex:
    """In two factors, so that the result overflows only where it must."""
    half = lanes.let(lanes.let(z.real * 0.5).call("exp"))
    zero = lanes.literal(0, half.dtype)

    def scaled(x: Value) -> Value:
        return lanes.let(lanes.select(half.equals(0), zero, lanes.let(half * x) * half))

    imag = scaled(lanes.let(z.imag.call("sin")))
    return Complex(scaled(lanes.let(z.imag.call("cos"))), lanes.select(z.imag.equals(0), z.imag, imag))


def _expm1(lanes: Lanes, z: Complex) -> Complex:
    half = lanes.let(lanes.let(z.imag * 0.5).call("sin"))
    growth = lanes.let(z.real.call("expm1"))
    real = lanes.let(growth * lanes.let(z.imag.call("cos"))) - lanes.let(half * half * 2)
    return Complex(real, _exp(lanes, z).imag)


def _log_abs(lanes: Lanes, z: Complex) -> Value:
    large, ratio, small = _magnitudes(lanes, z)
    far = lanes.let(large.call("log") + lanes.let((ratio * ratio).call("log1p")) * 0.5)
    excess = lanes.let((large - 1) * (large + 1) + lanes.let(small * small))
    near = lanes.let(excess.call("log1p") * 0.5)
    size = lanes.let(lanes.select((large > 0.5) & (large < 2), near, far))
    return lanes.select(_is_infinite(z), lanes.literal(INFINITY, size.dtype), size)


def _log(lanes: Lanes, z: Complex) -> Complex:
    return Complex(lanes.let(_log_abs(lanes, z)), _angle(lanes, z))


def _log1p(lanes: Lanes, z: Complex) -> Complex:
    x, y = z.real, z.imag
    whole = lanes.let(_log(lanes, _shifted(z, 1)))
    near = lanes.let(lanes.let(x * (x + 2) + lanes.let(y * y)).call("log1p") * 0.5)
    is_near = (x.call("fabs") < 0.5) & (y.call("fabs") < 0.5)
    return Complex(lanes.select(is_near, near, whole.real), whole.imag)


def _scaled(function: Callable[[Lanes, Complex], Complex], before: float = 1, after: float = 1) -> Emit:
    def emit(lanes: Lanes, z: Complex) -> Complex:
        z = z if before == 1 else lanes.let(z.scaled(before))
        result = lanes.let(function(lanes, z))
        return result if after == 1 else result.scaled(after)

    return emit


def _sqrt(lanes: Lanes, z: Complex) -> Complex:
    dtype = z.real.dtype
    (high, down), (low, up) = _SCALING[dtype]
    large, *_ = _magnitudes(lanes, z)

    def factor(above: float, below: float) -> Value:
        one = lanes.let(lanes.select(large < low, lanes.literal(below, dtype), lanes.literal(1, dtype)))
        return lanes.let(lanes.select(large > high, lanes.literal(above, dtype), one))

    near = lanes.let(z.scaled(factor(down, up)))
    half = lanes.let(near.real.call("fabs") * 0.5) + lanes.let(_abs(lanes, near) * 0.5)
    root = lanes.let(lanes.let(half).call("sqrt"))
    other = lanes.let(near.imag.call("fabs") / (root * 2))
    other = lanes.let(lanes.select(root.equals(0), root, other))
    right = near.real >= 0
    real, imag = lanes.select(right, root, other), lanes.let(lanes.select(right, other, root))
    result = lanes.let(Complex(real, imag.call("copysign", near.imag)).scaled(factor(down**-0.5, up**-0.5)))
    infinite = Complex(lanes.literal(INFINITY, dtype), z.imag)
    return lanes.select(z.imag.call("fabs").equals(INFINITY), infinite, result)


def _product(lanes: Lanes, z: Complex, exponent: int) -> Complex:
    """``z ** exponent`` for a positive exponent, by squaring."""
    result = None
    while exponent:
        if exponent & 1:
            result = z if result is None else lanes.let(result * z)
        exponent >>= 1
        z = lanes.let(z * z) if exponent else z
    return result or z


def _pow(lanes: Lanes, x: Complex, y: Complex) -> Complex:
    """``exp(y * log(x))``; small constant integers are multiplied out."""
    if y.real.constant is not None and y.imag.constant is not None and float(y.imag.constant) == 0:
        exponent = float(y.real.constant)
        if exponent.is_integer() and 0 < abs(exponent) <= MAX_PRODUCT:
            result = lanes.let(_product(lanes, x, int(abs(exponent))))
            return _reciprocal(lanes, result) if exponent < 0 else result
    zero = lanes.literal(0, x.real.dtype)
    nan = lanes.literal(float("nan"), x.real.dtype)
    general = lanes.let(_exp(lanes, lanes.let(lanes.let(_log(lanes, x)) * y)))
    of_zero = lanes.let(lanes.select(y.real > 0, zero, nan))
    general = lanes.let(lanes.select(x.is_true(), general, Complex(of_zero, of_zero)))
    return lanes.select(y.is_true(), general, _one(x))


# Trigonometric and hyperbolic functions; those of z are those of i z


def _grown(lanes: Lanes, angle: Value, name: str, argument: Value) -> Value:
    """A hyperbolic function times one of an angle: zero times infinity is zero here."""
    grown = lanes.let(lanes.let(argument.call(name)) * angle)
    return lanes.let(lanes.select(angle.equals(0), angle, grown))


def _sinh(lanes: Lanes, z: Complex) -> Complex:
    cos, sin = lanes.let(z.imag.call("cos")), lanes.let(z.imag.call("sin"))
    return Complex(_grown(lanes, cos, "sinh", z.real), _grown(lanes, sin, "cosh", z.real))


def _cosh(lanes: Lanes, z: Complex) -> Complex:
    cos, sin = lanes.let(z.imag.call("cos")), lanes.let(z.imag.call("sin"))
    return Complex(_grown(lanes, cos, "cosh", z.real), _grown(lanes, sin, "sinh", z.real))


def _tanh(lanes: Lanes, z: Complex) -> Complex:
    limit = _SATURATED[z.real.dtype]
    size = lanes.let(z.real.call("fabs"))
    bounded = lanes.let(lanes.select(size > limit, lanes.literal(limit, size.dtype), size).call("copysign", z.real))
    tan, sinh = lanes.let(z.imag.call("tan")), lanes.let(bounded.call("sinh"))
    slope = lanes.let(tan * tan + 1)
    square = lanes.let(sinh * sinh)
    rest = lanes.let(slope * square + 1)
    real = lanes.let(slope * sinh) * lanes.let((square + 1).call("sqrt")) / rest
    # The imaginary part decays on: 4 sin(y) cos(y) exp(-2 |x|) is 4 tan(y) / (1 + tan(y)**2) exp(-2 |x|).
    decayed = lanes.let(tan / slope * 4) * lanes.let(lanes.let(size * -2).call("exp"))
    one = lanes.literal(1, size.dtype).call("copysign", z.real)
    near = lanes.let(Complex(real, tan / rest))
    return lanes.select(size > limit, Complex(one, lanes.let(decayed)), near)


def _asinh(lanes: Lanes, z: Complex) -> Complex:
    up = lanes.let(_sqrt(lanes, _shifted(_by_minus_i(z), 1)))
    down = lanes.let(_sqrt(lanes, _shifted(_times_i(z), 1)))
    cross = lanes.let(up.real * down.imag) - lanes.let(down.real * up.imag)
    dot = lanes.let(up.real * down.real) - lanes.let(up.imag * down.imag)
    return Complex(lanes.let(cross).call("asinh"), z.imag.call("atan2", lanes.let(dot)))


def _acos(lanes: Lanes, z: Complex) -> Complex:
    below, above = (lanes.let(_sqrt(lanes, _shifted(w, 1))) for w in (-z, z))
    cross = lanes.let(above.real * below.imag) - lanes.let(above.imag * below.real)
    return Complex(below.real.call("atan2", above.real) * 2, lanes.let(cross).call("asinh"))


def _acosh(lanes: Lanes, z: Complex) -> Complex:
    below, above = (lanes.let(_sqrt(lanes, _shifted(z, by))) for by in (-1, 1))
    dot = lanes.let(below.real * above.real) + lanes.let(below.imag * above.imag)
    return Complex(lanes.let(dot).call("asinh"), below.imag.call("atan2", above.real) * 2)


def _atanh(lanes: Lanes, z: Complex) -> Complex:
    x, y = lanes.let(z.real.call("fabs")), z.imag
    rest = lanes.let(1 - x)
    square = lanes.let(y * y)
    real = lanes.let(lanes.let(x * 4 / (lanes.let(rest * rest) + square)).call("log1p") * 0.25)
    imag = lanes.let(y * 2).call("atan2", lanes.let(rest * (x + 1)) - square) * 0.5
    return Complex(real.call("copysign", z.real), imag)


def _turned(function: Callable[[Lanes, Complex], Complex]) -> Emit:
    """The trigonometric counterpart of an odd hyperbolic function: ``-i f(i z)``."""
    return lambda lanes, z: _by_minus_i(lanes.let(function(lanes, lanes.let(_times_i(z)))))


COMPLEX: dict[type[ps.ScalarOp], Emit] = {
    ps.Abs: _abs,
    ps.Add: _add,
    ps.ArcCos: _acos,
    ps.ArcCosh: _acosh,
    ps.ArcSin: _turned(_asinh),
    ps.ArcSinh: _asinh,
    ps.ArcTan: _turned(_atanh),
    ps.ArcTanh: _atanh,
    ps.Cast: lambda lanes, z: z,
    ps.Complex: lambda lanes, x, y: Complex(x.real, y.real),
    ps.Conj: lambda lanes, z: Complex(z.real, -z.imag),
    ps.Cos: lambda lanes, z: _cosh(lanes, lanes.let(_times_i(z))),
    ps.Cosh: _cosh,
    ps.EQ: lambda lanes, x, y: x.equals(y).as_bool(),
    ps.Exp: _exp,
    ps.Exp2: _scaled(_exp, before=log(2)),
    ps.Expm1: _expm1,
    ps.GE: _ordered(strict=False, swapped=True),
    ps.GT: _ordered(strict=True, swapped=True),
    ps.Identity: lambda lanes, z: z,
    ps.Imag: lambda lanes, z: z.imag,
    ps.IsInf: lambda lanes, z: _is_infinite(z).as_bool(),
    ps.IsNan: lambda lanes, z: z.is_nan().as_bool(),
    ps.LE: _ordered(strict=False, swapped=False),
    ps.Log: _log,
    ps.Log10: _scaled(_log, after=1 / log(10)),
    ps.Log1p: _log1p,
    ps.Log2: _scaled(_log, after=1 / log(2)),
    ps.LT: _ordered(strict=True, swapped=False),
    ps.Maximum: _extreme(swapped=True),
    ps.Minimum: _extreme(swapped=False),
    ps.Mul: _mul,
    ps.Neg: lambda lanes, z: -z,
    ps.NEQ: lambda lanes, x, y: (~x.equals(y)).as_bool(),
    ps.Pow: _pow,
    ps.Real: lambda lanes, z: z.real,
    ps.Reciprocal: _reciprocal,
    ps.Second: lambda lanes, x, y: y,
    ps.Sign: _sign,
    ps.Sin: _turned(_sinh),
    ps.Sinh: _sinh,
    ps.Sqr: lambda lanes, z: z * z,
    ps.Sqrt: _sqrt,
    ps.Sub: lambda lanes, x, y: x - y,
    ps.Switch: lambda lanes, condition, x, y: lanes.select(condition.is_true(), x, y),
    ps.Tan: _turned(_tanh),
    ps.Tanh: _tanh,
    ps.TrueDiv: _divide,
    MulWithoutZeros: _mul_without_zeros,
}
"""Inputs are complex numbers of one dtype, but for the first of `Second` and `Switch`. Other Ops stay on the host."""
