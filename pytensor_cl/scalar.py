"""PyTensor's scalar Ops as OpenCL C: a table, and the walk through a `Composite`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Constant
from pytensor.scalar import math as psm
from pytensor.tensor.math import MulWithoutZeros

from pytensor_cl.dtypes import is_supported
from pytensor_cl.routines.lanes import Lanes, Mask, Value
from pytensor_cl.special import SPECIAL

__all__ = ["ScalarFunction", "element_function", "supported"]

Values = tuple[Value, ...]
Emit = Callable[..., Value]

MAX_PRODUCT = 8
"""Largest constant exponent that is written as multiplications: each costs half an ulp."""


class Unsupported(TypeError):
    """There is no code for an Op; the message is the reason."""


class Rule(NamedTuple):
    """How to write an Op.

    Attributes
    ----------
    emit
        Takes a `Lanes` and one `Value` per input.
    cast
        Whether the inputs are cast to the dtype of the output first.
    """

    emit: Emit
    cast: bool = True


# Arithmetic


def _add(lanes: Lanes, *values: Value) -> Value:
    total = values[0]
    for value in values[1:]:
        total = lanes.let(total | value if value.dtype == "bool" else total + value)
    return total


def _mul(lanes: Lanes, *values: Value) -> Value:
    product = values[0]
    for value in values[1:]:
        product = lanes.let(product & value if value.dtype == "bool" else product * value)
    return product


def _mul_without_zeros(lanes: Lanes, x: Value, y: Value) -> Value:
    both = lanes.select(y.equals(0), x, _mul(lanes, x, y))
    return lanes.select(x.equals(0), y, lanes.let(both))


def _is_float(value: Value) -> bool:
    return np.dtype(value.dtype).kind == "f"


def _is_signed(value: Value) -> bool:
    return np.dtype(value.dtype).kind == "i"


def _safe_divisor(lanes: Lanes, y: Value) -> Value:
    """Replace the integers that processors trap on; ``x // 1`` is ``-(x // -1)``, and ``x % 1`` is ``x % -1``."""
    bad = y.equals(0) | y.equals(-1) if _is_signed(y) else y.equals(0)
    return lanes.let(lanes.select(bad, lanes.literal(1, y.dtype), y))


def _divide_integers(lanes: Lanes, x: Value, y: Value) -> tuple[Value, Value, Mask]:
    """Return the divisor that was used, the remainder and where C rounded up but Python rounds down."""
    divisor = _safe_divisor(lanes, y)
    remainder = lanes.let(x - lanes.let(x / divisor) * divisor)
    return divisor, remainder, remainder.differs(0) & ((remainder ^ divisor) < 0)


def _floor_divide_integers(lanes: Lanes, x: Value, y: Value) -> Value:
    zero = lanes.literal(0, x.dtype)
    if not _is_signed(x):
        return lanes.select(y.equals(0), zero, lanes.let(x / _safe_divisor(lanes, y)))
    divisor, _, rounded_up = _divide_integers(lanes, x, y)
    quotient = lanes.let(x / divisor)
    floor = lanes.let(lanes.select(rounded_up, quotient - 1, quotient))
    floor = lanes.let(lanes.select(y.equals(-1), -x, floor))
    return lanes.select(y.equals(0), zero, floor)


def _wrong_sign(remainder: Value, y: Value) -> Mask:
    return remainder.differs(0) & ((y < 0) ^ (remainder < 0))


def _floor_divide(lanes: Lanes, x: Value, y: Value) -> Value:
    """``//`` with NumPy's rules for floats: exact where the quotient is nearly an integer."""
    if x.dtype == "bool":
        return _floor_divide_integers(lanes, x.cast("int8"), y.cast("int8")).cast("bool")
    if not _is_float(x):
        return _floor_divide_integers(lanes, x, y)
    remainder = lanes.let(x.call_vector("arithmetic", "fmod", y))
    quotient = lanes.let((x - remainder) / y)
    quotient = lanes.let(lanes.select(_wrong_sign(remainder, y), quotient - 1, quotient))
    floor = lanes.let(quotient.call("floor"))
    floor = lanes.let(lanes.select((quotient - floor) > 0.5, floor + 1, floor))
    plain = lanes.let(x / y)
    signed_zero = lanes.literal(0, x.dtype).call("copysign", plain)
    floor = lanes.let(lanes.select(quotient.equals(0), signed_zero, floor))
    return lanes.select(y.equals(0), plain, floor)


def _mod(lanes: Lanes, x: Value, y: Value) -> Value:
    """``%`` with the sign of the divisor."""
    if x.dtype == "bool":
        return _mod(lanes, x.cast("uint8"), y.cast("uint8")).cast("bool")
    if not _is_float(x):
        if not _is_signed(x):
            divisor = _safe_divisor(lanes, y)
            return x - lanes.let(x / divisor) * divisor
        divisor, remainder, rounded_up = _divide_integers(lanes, x, y)
        return lanes.select(rounded_up, remainder + divisor, remainder)
    remainder = lanes.let(x.call_vector("arithmetic", "fmod", y))
    signed_zero = lanes.literal(0, x.dtype).call("copysign", y)
    moved = lanes.let(lanes.select(_wrong_sign(remainder, y), remainder + y, remainder))
    return lanes.select(remainder.equals(0), signed_zero, moved)


def _product_power(lanes: Lanes, x: Value, exponent: int) -> Value:
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
    if not _is_signed(x):
        return result
    alternating = lanes.let(lanes.select((y & 1).differs(0), x, one))
    inverse = lanes.let(lanes.select(x.equals(1) | x.equals(-1), alternating, zero))
    return lanes.select(y < 0, inverse, result)


def _pow(lanes: Lanes, x: Value, y: Value) -> Value:
    exponent = None if y.constant is None else float(y.constant)
    if exponent is None or abs(exponent) > MAX_PRODUCT or not (2 * exponent).is_integer():
        return x.call_vector("arithmetic", "pow", y) if _is_float(x) else _integer_power(lanes, x, y)
    if not _is_float(x):
        return _integer_power(lanes, x, y) if exponent < 0 else _product_power(lanes, x, int(exponent))
    result = _product_power(lanes, x, int(abs(exponent)))
    if not exponent.is_integer():
        root = x.call("sqrt")
        result = root if abs(exponent) < 1 else result * root
    return 1 / lanes.let(result) if exponent < 0 else result


def _abs(lanes: Lanes, x: Value) -> Value:
    if _is_float(x):
        return x.call("fabs")
    if not _is_signed(x):
        return x
    return Value(f"as_{lanes.type(x.dtype)}(abs({x.text}))", x.dtype, lanes)


def _sign(lanes: Lanes, x: Value) -> Value:
    zero, one = lanes.literal(0, x.dtype), lanes.literal(1, x.dtype)
    if not _is_signed(x) and not _is_float(x):
        return lanes.select(x > 0, one, zero)
    # NaN is neither above, below nor equal to zero, and stays itself.
    at_zero = lanes.let(lanes.select(x.equals(0), zero, x))
    negative = lanes.let(lanes.select(x < 0, lanes.literal(-1, x.dtype), at_zero))
    return lanes.select(x > 0, one, negative)


def _maximum(lanes: Lanes, x: Value, y: Value) -> Value:
    return lanes.select((x >= y) | x.is_nan() if _is_float(x) else x >= y, x, y)


def _minimum(lanes: Lanes, x: Value, y: Value) -> Value:
    return lanes.select((x <= y) | x.is_nan() if _is_float(x) else x <= y, x, y)


def _clip(lanes: Lanes, x: Value, low: Value, high: Value) -> Value:
    return lanes.select(x < low, low, lanes.let(lanes.select(x > high, high, x)))


# Logic


def _promoted(x: Value, y: Value) -> tuple[Value, Value]:
    dtype = str(np.result_type(x.dtype, y.dtype))
    return x.lanes.let(x.cast(dtype)), x.lanes.let(y.cast(dtype))


def _compare_signs(emit: Callable[[Value, Value], Mask], x: Value, y: Value) -> Mask:
    """Compare int64 and uint64 exactly: no integer type holds both."""
    lanes = x.lanes
    signed = x if _is_signed(x) else y
    negative = lanes.let(signed.cast("int64")) < 0
    below = emit(lanes.let(x.cast("uint64")), lanes.let(y.cast("uint64")))
    minus_one, zero = lanes.literal(-1, "int64"), lanes.literal(0, "int64")
    outcome = emit(minus_one, zero) if signed is x else emit(zero, minus_one)
    return (negative & outcome) | (~negative & below)


def _comparison(emit: Callable[[Value, Value], Mask]) -> Rule:
    def compare(lanes: Lanes, x: Value, y: Value) -> Value:
        mixed = {np.dtype(x.dtype).kind, np.dtype(y.dtype).kind} == {"i", "u"}
        if mixed and np.result_type(x.dtype, y.dtype).kind == "f":
            return _compare_signs(emit, x, y).as_bool()
        return emit(*_promoted(x, y)).as_bool()

    return Rule(compare, cast=False)


def _float_test(emit: Callable[[Value], Mask]) -> Rule:
    def test(lanes: Lanes, x: Value) -> Value:
        return emit(x).as_bool() if _is_float(x) else lanes.literal(False, "bool")

    return Rule(test, cast=False)


def _bitwise(method: Callable[[Value, Value], Value]) -> Rule:
    def emit(lanes: Lanes, x: Value, y: Value) -> Value:
        if _is_float(x):
            raise Unsupported("no integer type holds both int64 and uint64, so their bits cannot be combined")
        return method(x, y)

    return Rule(emit)


def _invert(lanes: Lanes, x: Value) -> Value:
    if x.dtype == "bool":
        return x ^ True
    return x ^ (-1 if _is_signed(x) else np.iinfo(x.dtype).max)


# Functions


def _sigmoid(lanes: Lanes, x: Value) -> Value:
    """``1 / (1 + exp(-x))`` without overflow, accurate in both tails."""
    small = lanes.let((-x.call("fabs")).call("exp"))
    numerator = lanes.select(x < 0, small, lanes.literal(1, x.dtype))
    return numerator / (small + 1)


def _softplus(lanes: Lanes, x: Value) -> Value:
    """``log(1 + exp(x))`` without overflow."""
    small = lanes.let((-x.call("fabs")).call("exp"))
    return x.call("fmax", 0) + small.call("log1p")


def _log1mexp(lanes: Lanes, x: Value) -> Value:
    """``log(1 - exp(x))`` for ``x < 0`` (Maechler 2012, "Accurately computing log(1 - exp(-|a|))")."""
    far = lanes.let((-x.call("exp")).call("log1p"))
    near = lanes.let((-x.call("expm1")).call("log"))
    return lanes.select(x < -0.6931471805599453, far, near)


def _trigonometric(name: str, series: Callable[[Value, Value], Value]) -> Rule:
    """Use `series`, of x and its square, near zero.

    PoCL 3.0's float32 vectors are wrong below 2**-8 if the argument is huge in another lane.
    """

    def emit(lanes: Lanes, x: Value) -> Value:
        value = x.call(name)
        if lanes.count == 1 or x.dtype != "float32":
            return value
        small = lanes.let(series(x, lanes.let(x * x)))
        return lanes.select(x.call("fabs") < 2.0**-7, small, lanes.let(value))

    return Rule(emit)


def _builtin(name: str) -> Rule:
    return Rule(lambda lanes, x, *others: x.call(name, *others))


BUILTINS: dict[type[ps.ScalarOp], str] = {
    ps.ArcCos: "acos",
    ps.ArcCosh: "acosh",
    ps.ArcSin: "asin",
    ps.ArcSinh: "asinh",
    ps.ArcTan: "atan",
    ps.ArcTan2: "atan2",
    ps.ArcTanh: "atanh",
    ps.Ceil: "ceil",
    ps.Cosh: "cosh",
    ps.Exp: "exp",
    ps.Exp2: "exp2",
    ps.Expm1: "expm1",
    ps.Floor: "floor",
    ps.Log: "log",
    ps.Log10: "log10",
    ps.Log1p: "log1p",
    ps.Log2: "log2",
    ps.RoundHalfAwayFromZero: "round",
    ps.RoundHalfToEven: "rint",
    ps.Sinh: "sinh",
    ps.Sqrt: "sqrt",
    ps.Tanh: "tanh",
    ps.Trunc: "trunc",
    psm.Erf: "erf",
    psm.Erfc: "erfc",
    psm.Gamma: "tgamma",
    psm.GammaLn: "lgamma",
}
"""Ops that are one OpenCL built-in of float32 or float64."""

RULES: dict[type[ps.ScalarOp], Rule] = {
    **{op: _builtin(name) for op, name in BUILTINS.items()},
    **{op: Rule(emit) for op, emit in SPECIAL.items()},
    ps.Abs: Rule(_abs),
    ps.Add: Rule(_add),
    ps.AND: _bitwise(Value.__and__),
    ps.Cast: Rule(lambda lanes, x: x),
    ps.Clip: Rule(_clip),
    ps.Conj: Rule(lambda lanes, x: x),
    ps.Cos: _trigonometric("cos", lambda x, square: 1 - square * 0.5),
    ps.EQ: _comparison(Value.equals),
    ps.GE: _comparison(Value.__ge__),
    ps.GT: _comparison(Value.__gt__),
    ps.Identity: Rule(lambda lanes, x: x),
    ps.IntDiv: Rule(_floor_divide),
    ps.Invert: Rule(_invert),
    ps.IsInf: _float_test(lambda x: x.call("fabs").equals(float("inf"))),
    ps.IsNan: _float_test(Value.is_nan),
    ps.LE: _comparison(Value.__le__),
    ps.LT: _comparison(Value.__lt__),
    ps.Maximum: Rule(_maximum),
    ps.Minimum: Rule(_minimum),
    ps.Mod: Rule(_mod),
    ps.Mul: Rule(_mul),
    ps.Neg: Rule(lambda lanes, x: -x),
    ps.NEQ: _comparison(Value.differs),
    ps.OR: _bitwise(Value.__or__),
    ps.Pow: Rule(_pow),
    ps.Real: Rule(lambda lanes, x: x),
    ps.Reciprocal: Rule(lambda lanes, x: 1 / x),
    ps.Second: Rule(lambda lanes, x, y: y, cast=False),
    ps.Sign: Rule(_sign),
    ps.Sin: _trigonometric("sin", lambda x, square: x * (1 - square * (1 / 6))),
    ps.Sqr: Rule(lambda lanes, x: _mul(lanes, x, x)),
    ps.Sub: Rule(lambda lanes, x, y: x - y),
    ps.Switch: Rule(lambda lanes, condition, x, y: lanes.select(condition.is_true(), x, y)),
    ps.Tan: _trigonometric("tan", lambda x, square: x * (square * (1 / 3) + 1)),
    ps.TrueDiv: Rule(lambda lanes, x, y: x / y),
    ps.XOR: _bitwise(Value.__xor__),
    MulWithoutZeros: Rule(_mul_without_zeros),
    psm.Log1mexp: Rule(_log1mexp),
    psm.Psi: Rule(lambda lanes, x: x.call_own("digamma", "digamma")),
    psm.Sigmoid: Rule(_sigmoid),
    psm.Softplus: Rule(_softplus),
    psm.TriGamma: Rule(lambda lanes, x: x.call_own("digamma", "trigamma")),
}
"""How to write each Op. `Composite` is the only other one, see `_emit`."""

KEEP_FIRST: frozenset[type[ps.ScalarOp]] = frozenset({ps.Switch})
"""Ops whose first input keeps its own dtype."""


def _cast_inputs(lanes: Lanes, op: ps.ScalarOp, values: Values, dtype: str) -> Values:
    kept = 1 if type(op) in KEEP_FIRST else 0
    return values[:kept] + tuple(lanes.let(value.cast(dtype)) for value in values[kept:])


def _emit(lanes: Lanes, op: ps.ScalarOp, values: Values, dtypes: Sequence[str]) -> Values:
    """Write one Op; return its outputs, bound to names."""
    if isinstance(op, ps.Composite):
        return _emit_graph(lanes, op, values)
    rule = RULES.get(type(op))
    if rule is None:
        raise Unsupported(f"no OpenCL kernel for {type(op).__name__} yet")
    if rule.cast:
        values = _cast_inputs(lanes, op, values, dtypes[0])
    return (lanes.let(rule.emit(lanes, *values).cast(dtypes[0])),)


def _emit_graph(lanes: Lanes, composite: ps.Composite, values: Values) -> Values:
    graph = composite.fgraph
    known: dict[Any, Value] = dict(zip(graph.inputs, values, strict=True))

    def value_of(variable: Any) -> Value:
        if variable not in known and isinstance(variable, Constant):
            _check_dtype(variable.type.dtype)
            known[variable] = lanes.literal(variable.data, variable.type.dtype)
        return known[variable]

    for node in graph.toposort():
        dtypes = [_check_dtype(out.type.dtype) for out in node.outputs]
        inputs = tuple(map(value_of, node.inputs))
        known.update(zip(node.outputs, _emit(lanes, node.op, inputs, dtypes), strict=True))
    return tuple(map(value_of, graph.outputs))


def _check_dtype(dtype: str) -> str:
    if not is_supported(dtype):
        raise Unsupported(f"{dtype} is not supported on OpenCL devices yet")
    return dtype


@dataclass(frozen=True)
class ScalarFunction:
    """A scalar Op as an element function (see `routines.elemwise.ElementFunction`)."""

    scalar_op: ps.ScalarOp
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    preambles: tuple[str, ...] = field(init=False)
    dtypes: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        lanes, _ = self._write(1)
        object.__setattr__(self, "preambles", tuple(lanes.preambles))
        object.__setattr__(self, "dtypes", frozenset(lanes.dtypes).union(self.input_dtypes, self.output_dtypes))

    @property
    def itemsize(self) -> int:
        """Bytes of the widest type that takes part, intermediates included."""
        return max(np.dtype(dtype).itemsize for dtype in self.dtypes)

    def _write(self, count: int) -> tuple[Lanes, Values]:
        lanes = Lanes(count)
        inputs = tuple(Value(f"i{k}", _check_dtype(t), lanes) for k, t in enumerate(self.input_dtypes))
        for dtype in self.output_dtypes:
            _check_dtype(dtype)
        results = _emit(lanes, self.scalar_op, inputs, self.output_dtypes)
        return lanes, tuple(r.cast(t) for r, t in zip(results, self.output_dtypes, strict=True))

    def statements(self, lanes: int) -> str:
        """Return statements that assign ``o0..`` from ``i0..``."""
        writer, outputs = self._write(lanes)
        return writer.body(outputs)


def element_function(
    scalar_op: ps.ScalarOp, input_dtypes: Sequence[str], output_dtypes: Sequence[str]
) -> ScalarFunction:
    """Return the OpenCL C of a scalar Op.

    Raises
    ------
    Unsupported
        There is none; the message is what `supported` returns.
    """
    return ScalarFunction(scalar_op, tuple(input_dtypes), tuple(output_dtypes))


def supported(
    scalar_op: ps.ScalarOp, input_dtypes: Sequence[str], output_dtypes: Sequence[str], has_fp64: bool
) -> str | None:
    """Return None if a device can compute the Op, else the reason why not.

    Parameters
    ----------
    scalar_op
        A scalar Op, `Composite` included.
    input_dtypes, output_dtypes
        Of the node.
    has_fp64
        Whether the device has double precision.
    """
    try:
        function = element_function(scalar_op, input_dtypes, output_dtypes)
    except Unsupported as error:
        return str(error)
    if "float64" in function.dtypes and not has_fp64:
        return "it computes in float64, which the device does not have"
    return None
