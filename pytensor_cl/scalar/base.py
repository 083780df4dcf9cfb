"""PyTensor's scalar Ops as OpenCL C: a table, and the traversal of a `Composite`.

Ops on float16 compute in float32, and round each output to float16, inside a `Composite` too: a fused graph and one
that is not give the same numbers, which are PyTensor's Python backend's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Constant
from pytensor.scalar import math as psm
from pytensor.scalar.basic import ScalarInnerGraphOp
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.math import MulWithoutZeros

from pytensor_cl.codegen.dtypes import computed, is_complex, is_supported, needs_fp64
from pytensor_cl.codegen.emitter import Emitter, Mask, Scalar, Value
from pytensor_cl.scalar.arithmetic import (
    absolute,
    add,
    clip,
    floor_divide,
    is_float,
    is_signed,
    maximum,
    minimum,
    modulo,
    mul,
    mul_without_zeros,
    power,
    sign,
)
from pytensor_cl.scalar.complex import COMPLEX
from pytensor_cl.scalar.loop import EmitGraph, emit_loop
from pytensor_cl.scalar.special import OF_PYMC, SPECIAL
from pytensor_cl.scalar.user_kernel import UserScalar

Values = tuple[Scalar, ...]
Emit = Callable[..., Value]


class Unsupported(TypeError):
    """There is no code for an Op; the message is the reason."""


class Rule(NamedTuple):
    """Rule that writes a scalar Op as OpenCL C.

    Attributes
    ----------
    emit
        Takes an `Emitter` and one `Value` per input.
    cast
        Whether the inputs are cast to the dtype of the output first.
    """

    emit: Emit
    cast: bool = True


@dataclass(frozen=True, eq=False)
class NamedOp:
    """A function of NumPy's that is written as OpenCL C and is no scalar Op of PyTensor's; see `named.NAMED`.

    `rule`: for real dtypes; `of_complex`: takes complex numbers of one dtype, None where there is no such function;
    `takes_halves`: whether the rule takes float16 as it is stored, instead of float32.
    """

    name: str
    rule: Rule
    of_complex: Callable[..., Scalar] | None = None
    takes_halves: bool = False


type ScalarOp = ps.ScalarOp | NamedOp
"""What `element_function` takes."""


# Logic


def _promoted(x: Value, y: Value) -> tuple[Value, Value]:
    dtype = str(np.result_type(x.dtype, y.dtype))
    return x.emitter.bind(x.cast(dtype)), x.emitter.bind(y.cast(dtype))


def _compare_signs(emit: Callable[[Value, Value], Mask], x: Value, y: Value) -> Mask:
    """Compare int64 and uint64 exactly: no integer type holds both."""
    emitter = x.emitter
    signed = x if is_signed(x) else y
    negative = emitter.bind(signed.cast("int64")) < 0
    below = emit(emitter.bind(x.cast("uint64")), emitter.bind(y.cast("uint64")))
    minus_one, zero = emitter.literal(-1, "int64"), emitter.literal(0, "int64")
    outcome = emit(minus_one, zero) if signed is x else emit(zero, minus_one)
    return (negative & outcome) | (~negative & below)


def _comparison(emit: Callable[[Value, Value], Mask]) -> Rule:
    def compare(emitter: Emitter, x: Value, y: Value) -> Value:
        mixed = {np.dtype(x.dtype).kind, np.dtype(y.dtype).kind} == {"i", "u"}
        if mixed and np.result_type(x.dtype, y.dtype).kind == "f":
            return _compare_signs(emit, x, y).as_bool()
        return emit(*_promoted(x, y)).as_bool()

    return Rule(compare, cast=False)


def _float_test(emit: Callable[[Value], Mask]) -> Rule:
    def test(emitter: Emitter, x: Value) -> Value:
        return emit(x).as_bool() if is_float(x) else emitter.literal(False, "bool")

    return Rule(test, cast=False)


def _bitwise(method: Callable[[Value, Value], Value]) -> Rule:
    def emit(emitter: Emitter, x: Value, y: Value) -> Value:
        if is_float(x):
            raise Unsupported("no integer type holds both int64 and uint64, so their bits cannot be combined")
        return method(x, y)

    return Rule(emit)


def _invert(emitter: Emitter, x: Value) -> Value:
    if x.dtype == "bool":
        return x ^ True
    return x ^ (-1 if is_signed(x) else np.iinfo(x.dtype).max)


def _reciprocal(emitter: Emitter, x: Value) -> Value:
    """``1 / x``, which for integers is 0 but for 1 and -1: a division by zero may end the process on a CPU."""
    if is_float(x):
        return 1 / x
    divides = x.equals(1) | x.equals(-1) if is_signed(x) else x.equals(1)
    return emitter.select(divides, x, emitter.literal(0, x.dtype))


# Functions


def _sigmoid(emitter: Emitter, x: Value) -> Value:
    """``1 / (1 + exp(-x))`` without overflow, accurate in both tails."""
    small = emitter.bind((-x.call("fabs")).call("exp"))
    numerator = emitter.select(x < 0, small, emitter.literal(1, x.dtype))
    return numerator / (small + 1)


def _softplus(emitter: Emitter, x: Value) -> Value:
    """``log(1 + exp(x))`` without overflow."""
    own = x.call_library("softplus", "softplus")
    if emitter.count > 1:
        return own
    small = emitter.bind((-x.call("fabs")).call("exp"))
    return x.call("fmax", 0) + small.call("log1p")


def _log1mexp(emitter: Emitter, x: Value) -> Value:
    """``log(1 - exp(x))`` for ``x < 0`` (Maechler 2012, "Accurately computing log(1 - exp(-|a|))")."""
    own = x.call_library("log1mexp", "log1mexp")
    if emitter.count > 1:
        return own
    far = emitter.bind((-x.call("exp")).call("log1p"))
    near = emitter.bind((-x.call("expm1")).call("log"))
    return emitter.select(x < -0.6931471805599453, far, near)


def _builtin(name: str) -> Rule:
    return Rule(lambda emitter, x, *others: x.call(name, *others))


BUILTINS: dict[type[ps.ScalarOp], str] = {
    ps.ArcCos: "acos",
    ps.ArcCosh: "acosh",
    ps.ArcSin: "asin",
    ps.ArcSinh: "asinh",
    ps.ArcTan: "atan",
    ps.ArcTan2: "atan2",
    ps.ArcTanh: "atanh",
    ps.Ceil: "ceil",
    ps.Cos: "cos",
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
    ps.Sin: "sin",
    ps.Sinh: "sinh",
    ps.Sqrt: "sqrt",
    ps.Tan: "tan",
    ps.Tanh: "tanh",
    ps.Trunc: "trunc",
    psm.Erf: "erf",
    psm.Erfc: "erfc",
    psm.Gamma: "tgamma",
}
"""Ops that are one OpenCL built-in of float32 or float64."""

RULES: dict[type[ps.ScalarOp], Rule] = {
    **{op: _builtin(name) for op, name in BUILTINS.items()},
    **{op: Rule(emit) for op, emit in SPECIAL.items()},
    ps.Abs: Rule(absolute),
    ps.Add: Rule(add),
    ps.AND: _bitwise(Value.__and__),
    ps.Cast: Rule(lambda emitter, x: x, cast=False),
    ps.Clip: Rule(clip),
    ps.Conj: Rule(lambda emitter, x: x),
    ps.EQ: _comparison(Value.equals),
    ps.GE: _comparison(Value.__ge__),
    ps.GT: _comparison(Value.__gt__),
    ps.Identity: Rule(lambda emitter, x: x),
    ps.Imag: Rule(lambda emitter, x: emitter.literal(0, x.dtype)),
    ps.IntDiv: Rule(floor_divide),
    ps.Invert: Rule(_invert),
    ps.IsInf: _float_test(lambda x: x.call("fabs").equals(float("inf"))),
    ps.IsNan: _float_test(Value.is_nan),
    ps.LE: _comparison(Value.__le__),
    ps.LT: _comparison(Value.__lt__),
    ps.Maximum: Rule(maximum),
    ps.Minimum: Rule(minimum),
    ps.Mod: Rule(modulo),
    ps.Mul: Rule(mul),
    ps.Neg: Rule(lambda emitter, x: -x),
    ps.NEQ: _comparison(Value.differs),
    ps.OR: _bitwise(Value.__or__),
    ps.Pow: Rule(power),
    ps.Real: Rule(lambda emitter, x: x),
    ps.Reciprocal: Rule(_reciprocal),
    ps.Second: Rule(lambda emitter, x, y: y, cast=False),
    ps.Sign: Rule(sign),
    ps.Sqr: Rule(lambda emitter, x: mul(emitter, x, x)),
    ps.Sub: Rule(lambda emitter, x, y: x - y),
    ps.Switch: Rule(lambda emitter, condition, x, y: emitter.select(condition.is_true(), x, y)),
    ps.TrueDiv: Rule(lambda emitter, x, y: x / y),
    ps.XOR: _bitwise(Value.__xor__),
    MulWithoutZeros: Rule(mul_without_zeros),
    psm.Log1mexp: Rule(_log1mexp),
    psm.Psi: Rule(lambda emitter, x: x.call_library("digamma", "digamma")),
    psm.Sigmoid: Rule(_sigmoid),
    psm.Softplus: Rule(_softplus),
    psm.TriGamma: Rule(lambda emitter, x: x.call_library("digamma", "trigamma")),
}
"""The rule that writes each Op; `emit` writes `Composite` and `ScalarLoop` itself."""

KEEP_FIRST: frozenset[type[ps.ScalarOp]] = frozenset({ps.Second, ps.Switch})
"""Ops whose first input keeps its own dtype, which does not affect the dtype of the result."""

MOVES: frozenset[type[ps.ScalarOp]] = frozenset({ps.Identity, ps.Second, ps.Switch})
"""Ops that compute nothing: what they return need not be widened if it is float16."""


def _kept(op: ScalarOp) -> int:
    """Return how many of the first inputs keep their own dtype."""
    return 1 if type(op) in KEEP_FIRST else 0


def _is_complex(op: ScalarOp, values: Values, dtypes: Sequence[str]) -> bool:
    """Return whether an output is complex, or an input from which it is computed."""
    return any(map(is_complex, (*dtypes, *(value.dtype for value in values[_kept(op) :]))))


def _cast_inputs(emitter: Emitter, op: ScalarOp, values: Values, dtype: str) -> Values:
    kept = _kept(op)
    return values[:kept] + tuple(emitter.bind(emitter.cast(value, dtype)) for value in values[kept:])


def _name(op: ScalarOp) -> str:
    return op.name if isinstance(op, NamedOp) else type(op).__name__


def _emit_complex(emitter: Emitter, op: ScalarOp, values: Values, dtype: str) -> Scalar:
    """Write an Op of which an input or the output is complex; all inputs are cast to one dtype that holds each."""
    emit = op.of_complex if isinstance(op, NamedOp) else COMPLEX.get(type(op))
    if emit is None:
        raise Unsupported(f"no OpenCL kernel for {_name(op)} of complex numbers yet")
    own = [dtype] if is_complex(dtype) else []
    common = str(np.result_type("complex64", *(value.dtype for value in values[_kept(op) :]), *own))
    return emit(emitter, *_cast_inputs(emitter, op, values, common))


def _rule(op: ScalarOp) -> Rule | None:
    if isinstance(op, NamedOp):
        return op.rule
    kind = type(op)
    if kind not in RULES and kind.__module__ == "pymc.distributions.dist_math" and kind.__name__ in OF_PYMC:
        return Rule(OF_PYMC[kind.__name__])
    return RULES.get(kind)


def _takes_halves(op: ScalarOp) -> bool:
    return op.takes_halves if isinstance(op, NamedOp) else type(op) in MOVES


def _emit_real(emitter: Emitter, op: ScalarOp, values: Values, dtype: str) -> Scalar:
    rule = _rule(op)
    if rule is None:
        raise Unsupported(f"no OpenCL kernel for {_name(op)} yet")
    if not _takes_halves(op):
        values, dtype = tuple(value.promote_half() for value in values if isinstance(value, Value)), computed(dtype)
    if rule.cast:
        values = _cast_inputs(emitter, op, values, dtype)
    return rule.emit(emitter, *values)


def emit(emitter: Emitter, op: ScalarOp, values: Values, dtypes: Sequence[str]) -> Values:
    """Write one Op; return its outputs, bound to names."""
    if isinstance(op, ps.Composite):
        return _emit_graph(emitter, op, values)
    if isinstance(op, UserScalar):
        return (_call(emitter, op, values)[op.output],)
    is_of_pairs = _is_complex(op, values, dtypes)
    if isinstance(op, ScalarLoop):
        if is_of_pairs:
            raise Unsupported("no OpenCL kernel for loops over complex numbers yet")
        return emit_loop(emitter, op, cast("tuple[Value, ...]", values), cast("EmitGraph", _emit_graph))
    write = _emit_complex if is_of_pairs else _emit_real
    return (emitter.bind(emitter.cast(write(emitter, op, values, dtypes[0]), dtypes[0])),)


def _call(emitter: Emitter, op: UserScalar, values: Values) -> Values:
    """Write a call of a user's function; return all its outputs."""
    inputs = [emitter.cast(v, t) for v, t in zip(values, op.function.input_dtypes, strict=True)]
    return tuple(map(emitter.bind, op.function.emit(emitter, inputs)))


def _emit_graph(emitter: Emitter, composite: ScalarInnerGraphOp, values: Values) -> Values:
    graph = composite.fgraph
    known: dict[Any, Scalar] = dict(zip(graph.inputs, values, strict=True))

    def value_of(variable: Any) -> Scalar:
        if variable not in known and isinstance(variable, Constant):
            _check_dtype(variable.type.dtype)
            known[variable] = emitter.constant(variable.data, variable.type.dtype)
        return known[variable]

    calls: dict[Any, Values] = {}  # of users' functions with several outputs, each of which is a node
    for node in graph.toposort():
        dtypes = [_check_dtype(out.type.dtype) for out in node.outputs]
        inputs = tuple(map(value_of, node.inputs))
        if isinstance(node.op, UserScalar):
            key = (node.op.function, *node.inputs)
            if key not in calls:
                calls[key] = _call(emitter, node.op, inputs)
            known[node.outputs[0]] = calls[key][node.op.output]
            continue
        known.update(zip(node.outputs, emit(emitter, node.op, inputs, dtypes), strict=True))
    return tuple(map(value_of, graph.outputs))


def _check_dtype(dtype: str) -> str:
    if not is_supported(dtype):
        raise Unsupported(f"{dtype} is not supported on OpenCL devices yet")
    return dtype


@dataclass(frozen=True)
class ScalarFunction:
    """A scalar Op as an element function (see `routines.elemwise.ElementFunction`)."""

    scalar_op: ScalarOp
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    preambles: tuple[str, ...] = field(init=False)
    dtypes: frozenset[str] = field(init=False)
    operations: int = field(init=False)

    def __post_init__(self) -> None:
        emitter, outputs = self._write(1)
        object.__setattr__(self, "operations", emitter.operations(outputs))
        object.__setattr__(self, "preambles", tuple(emitter.preambles))
        object.__setattr__(self, "dtypes", frozenset(emitter.dtypes).union(self.input_dtypes, self.output_dtypes))

    @property
    def itemsize(self) -> int:
        """Bytes of the widest type, intermediates included."""
        return max(np.dtype(dtype).itemsize for dtype in self.dtypes)

    def _write(self, count: int) -> tuple[Emitter, Values]:
        emitter = Emitter(count)
        inputs = tuple(emitter.input(f"i{k}", _check_dtype(t)) for k, t in enumerate(self.input_dtypes))
        for dtype in self.output_dtypes:
            _check_dtype(dtype)
        results = emit(emitter, self.scalar_op, inputs, self.output_dtypes)
        return emitter, tuple(emitter.cast(r, t) for r, t in zip(results, self.output_dtypes, strict=True))

    def statements(self, lanes: int) -> str:
        """Return statements that assign ``o0..`` from ``i0..``."""
        writer, outputs = self._write(lanes)
        return writer.body(outputs)


def element_function(scalar_op: ScalarOp, input_dtypes: Sequence[str], output_dtypes: Sequence[str]) -> ScalarFunction:
    """Return the OpenCL C of a scalar Op.

    Raises
    ------
    Unsupported
        There is none; the message is what `supported` returns.
    """
    return _function(_Same(scalar_op), tuple(input_dtypes), tuple(output_dtypes))


class _Same:
    """A scalar Op that equals itself alone: Composites with 0.0 and with -0.0 are equal to PyTensor."""

    __slots__ = ("op",)

    def __init__(self, op: ScalarOp) -> None:
        self.op = op

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.op is other.op

    def __hash__(self) -> int:
        return id(self.op)


@lru_cache(maxsize=512)
def _function(same: _Same, input_dtypes: tuple[str, ...], output_dtypes: tuple[str, ...]) -> ScalarFunction:
    """Return the lowering, which several rewrites and the routine use."""
    return ScalarFunction(same.op, input_dtypes, output_dtypes)


def supported(
    scalar_op: ScalarOp, input_dtypes: Sequence[str], output_dtypes: Sequence[str], has_fp64: bool
) -> str | None:
    """Return None if a device can compute the Op, else the reason why not.

    Parameters
    ----------
    scalar_op
        A scalar Op, `Composite` included.
    input_dtypes, output_dtypes
        Dtypes of the inputs and outputs of the node.
    has_fp64
        Whether the device has double precision.
    """
    try:
        function = element_function(scalar_op, input_dtypes, output_dtypes)
    except Unsupported as error:
        return str(error)
    if not has_fp64 and any(map(needs_fp64, function.dtypes)):
        return "it computes in float64, which the device does not have"
    return None
