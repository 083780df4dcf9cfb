"""What there is to do in a call, from the shapes of its arguments: how much of each kind of work."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log2, prod
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.c.op import COp
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Add
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc, AllocEmpty, Join, MakeVector, ScalarFromTensor, Split, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, SearchsortedOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pytensor_cl.linker.cost.roofline import is_simple
from pytensor_cl.linker.cost.shapes import Extents, ShapeEnv, core_of

__all__ = ["scalars_of", "tally"]

_EXP = frozenset(("Exp", "Exp2", "Expm1", "Log", "Log10", "Log1mexp", "Log1p", "Log2", "Sigmoid", "Softplus"))
_TRIGONOMETRIC = frozenset(
    (
        *("ArcCos", "ArcSin", "ArcTan", "ArcTan2", "ArcCosh", "ArcSinh", "ArcTanh", "Cos", "Cosh", "IntDiv", "Mod"),
        *("Pow", "Sin", "Sinh", "Tan", "Tanh"),
    )
)
_FREE = (DimShuffle, Reshape, Shape, Shape_i, CheckAndRaise)
_NUMBERS = (MakeVector, ScalarFromTensor, TensorFromScalar)
THIN = 8
"""Columns of a product below which it is as good as one with a vector."""


def scalars_of(scalar_op: Any) -> list[Any]:
    """Return the scalar Ops that one is made of."""
    inner = getattr(scalar_op, "fgraph", None)
    return [scalar_op] if inner is None else [s for n in inner.toposort() for s in scalars_of(n.op)]


def _kind(scalar_op: Any) -> str:
    name = type(scalar_op).__name__
    if is_simple(scalar_op):
        return "simple"
    return "exp" if name in _EXP else "trigonometric" if name in _TRIGONOMETRIC else "special"


class _Tally:
    """Walks through a graph."""

    def __init__(self) -> None:
        self.amounts: dict[str, float] = defaultdict(float)

    def walk(self, fgraph: FunctionGraph, known: ShapeEnv) -> None:
        """Count what a graph does."""
        for node in fgraph.toposort():
            if isinstance(node.op, OpFromGraph):
                self._inside(node, known)
                continue
            known.take(node)
            if node.outputs[0] not in known.values:
                self._count(node, fgraph, known)

    def _inside(self, node: Apply, known: ShapeEnv) -> None:
        inner = node.op.fgraph
        within = ShapeEnv({})
        for mine, outer in zip(inner.inputs, node.inputs, strict=True):
            within.shapes[mine] = known.shape(outer)
            if outer in known.values or isinstance(outer, Constant):
                within.values[mine] = known.value(outer)
        self.walk(inner, within)
        known.shapes.update((o, within.shape(i)) for o, i in zip(node.outputs, inner.outputs, strict=True))

    def _count(self, node: Apply, fgraph: FunctionGraph, known: ShapeEnv) -> None:
        op = core_of(node.op)
        inputs, outputs = [known.shape(v) for v in node.inputs], [known.shape(v) for v in node.outputs]
        count = next((_COUNTS[t] for t in type(op).__mro__ if t in _COUNTS), _any)
        for kind, amount in count(node, fgraph, inputs, outputs):
            self.amounts[kind] += amount


Amounts = Iterable[tuple[str, float]]
Shapes = Sequence[Extents]


def _width(variable: Variable) -> float:
    """Bytes of an element, in those of a float32."""
    dtype = getattr(variable.type, "numpy_dtype", np.dtype("float32"))
    return dtype.itemsize / 4


def _elemwise(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    """Count a node as a part of a loop: what comes from others of the kind and goes to them is not written."""
    scalars = scalars_of(core_of(node.op).scalar_op)
    elements = prod(outputs[0])
    if elements <= 1 and max(map(prod, inputs), default=0) <= 1:
        yield "number", len(scalars)
        return
    width = _width(node.outputs[0])
    is_power = any(isinstance(v, Constant) for v in node.inputs[1:])
    for scalar in scalars:
        kind = "simple" if is_power and type(scalar).__name__ == "Pow" else _kind(scalar)
        yield kind, elements * (width if kind == "simple" else 1)
        if type(scalar).__name__ == "Switch":
            yield "branch", elements
    if not all(isinstance(client.op, Elemwise) for client, _ in fgraph.clients[node.outputs[0]]):
        yield "loop", 1
        yield "moved", elements * width
    given = zip(node.inputs, inputs, strict=True)
    yield "moved", sum(prod(n) * _width(v) for v, n in given if not (v.owner and isinstance(v.owner.op, Elemwise)))


def _reduction(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    op = core_of(node.op)
    ndim = len(inputs[0])
    axes = range(ndim) if op.axis is None else op.axis
    kind = "all" if len(axes) == ndim else "columns" if ndim - 1 not in axes else "rows"
    yield "loop", 1
    elements = prod(inputs[0])
    yield (kind if isinstance(op.scalar_op, Add) else f"{kind} by comparison"), elements
    yield "moved", elements * _width(node.inputs[0])


def _product(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    inner = inputs[0][-1] if inputs[0] else 1
    flops = 2 * prod(outputs[0]) * inner
    is_thin = len(outputs[0]) < 2 or min(inner, *outputs[0][-2:]) < THIN
    yield ("product", prod(outputs[0][:-2])) if len(outputs[0]) > 1 else ("product with a vector", 1)
    yield ("thin flops" if is_thin else "flops"), flops * _width(node.outputs[0])


def _picked(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "lookup", 1
    if any(v.type.dtype == "bool" for v in node.inputs[1:]):
        yield "masked", prod(inputs[0])
        return
    found, count = prod(outputs[0]), max(map(prod, inputs[1:]), default=1)
    is_of_numbers = count >= found  # and not of rows
    yield ("looked up" if is_of_numbers else "rows looked up"), count
    yield "moved", 0 if is_of_numbers else 2 * found * _width(node.outputs[0])


def _scattered(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "scatter", 1
    yield "scattered", max(prod(inputs[1]), *map(prod, inputs[2:]))
    yield "moved", prod(outputs[0]) * _width(node.outputs[0])


def _scan(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    op: Any = node.op
    steps = max((n[0] for n in (*inputs, *outputs) if n), default=1)
    inner = op.fgraph.toposort()
    wide = max((prod(n) // max(n[0], 1) for n in outputs if n), default=1)
    yield "scan", 1
    yield "step", steps * len(inner)
    yield "in steps", steps * wide * len(inner)


def _copied(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "copy", 1
    yield "moved", sum(map(prod, outputs)) * _width(node.outputs[0])


def _view(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "view", 1


def _sorted(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "other", 1
    yield "sorted", prod(inputs[0])
    yield "compared", prod(inputs[0]) * log2(max(inputs[0][-1:], default=1) + 1) ** 2


def _few(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "number", 1


def _as(kind: str) -> Callable[..., Amounts]:
    def count(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
        yield "other", 1
        yield kind, max(map(prod, (*inputs, *outputs)), default=0)

    return count


def _drawn(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "draw", 1
    yield "drawn", prod(outputs[-1])


def _any(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    op = core_of(node.op)
    elements = max(map(prod, (*inputs, *outputs)), default=0)
    longest = max((n[-1] for n in (*inputs, *outputs) if len(n) > 1), default=1)
    yield ("other" if isinstance(op, COp) else "interpreted"), 1
    if op is not node.op:  # each element of a batch by a call
        yield "item", prod(outputs[0][: node.op.batch_ndim(node)])
    if type(op).__module__.startswith("pytensor.tensor.linalg"):
        yield "solved", elements * longest
    else:
        yield "any", elements


_COUNTS: Mapping[type[Op], Callable[..., Amounts]] = {
    Elemwise: _elemwise,
    CAReduce: _reduction,
    Dot: _product,
    AdvancedSubtensor: _picked,
    AdvancedIncSubtensor: _scattered,
    Scan: _scan,
    RandomVariable: _drawn,
    **dict.fromkeys((Alloc, IncSubtensor, Join, Split), _copied),
    **dict.fromkeys((SortOp, ArgSortOp), _sorted),
    Subtensor: _view,
    **dict.fromkeys((Softmax, LogSoftmax), _as("softmax")),
    CumOp: _as("accumulated"),
    SearchsortedOp: _as("searched"),
    Argmax: _as("argmax"),
    **dict.fromkeys((*_NUMBERS, AllocEmpty), _few),
    **dict.fromkeys(_FREE, lambda *_: ()),
}


def tally(fgraph: FunctionGraph, given: Sequence[Extents]) -> tuple[dict[str, float], list[Extents]]:
    """Return how much of each kind of work there is, and the shapes of the results.

    Parameters
    ----------
    fgraph
        A graph of host Ops in canonical form.
    given
        Shapes of its inputs.
    """
    known, found = ShapeEnv(dict(zip(fgraph.inputs, given, strict=True))), _Tally()
    found.walk(fgraph, known)
    return found.amounts, [known.shape(v) for v in fgraph.outputs]
