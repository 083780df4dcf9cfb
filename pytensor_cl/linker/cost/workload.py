"""The workload of a call: how much of each kind of work there is, from the shapes of its arguments.

A kind is named by what it counts. Words of memory are of four bytes.
"""

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
from pytensor.tensor.linalg.decomposition.eigen import Eigh, Eigvalsh
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape_i
from pytensor.tensor.shape import Shape as ShapeOp
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pytensor_cl.linker.cost.linear_algebra import COUNTED, work_of_matrices
from pytensor_cl.linker.cost.shapes import Shape, ShapeEnv, core_of

__all__ = ["scalar_ops_of", "workload_of"]

_ARITHMETIC = frozenset(
    (
        *("Abs", "Add", "AND", "Cast", "Ceil", "Clip", "EQ", "Floor", "GE", "GT", "Identity", "Invert", "IsInf"),
        *("IsNan", "LE", "LT", "Maximum", "Minimum", "Mul", "NEQ", "Neg", "OR", "Reciprocal", "RoundHalfToEven"),
        *("Second", "Sign", "Sqr", "Sqrt", "Sub", "Switch", "TrueDiv", "Trunc", "XOR"),
    )
)
"""Scalar Ops for which a processor has vector instructions."""
_EXP = frozenset(("Exp", "Exp2", "Expm1", "Log", "Log10", "Log1mexp", "Log1p", "Log2", "Sigmoid", "Softplus"))
_TRIGONOMETRIC = frozenset(
    (
        *("ArcCos", "ArcSin", "ArcTan", "ArcTan2", "ArcCosh", "ArcSinh", "ArcTanh", "Cos", "Cosh", "IntDiv", "Mod"),
        *("Pow", "Sin", "Sinh", "Tan", "Tanh"),
    )
)
_NO_WORK = (DimShuffle, Reshape, ShapeOp, Shape_i, CheckAndRaise)
_SCALAR_CONVERSIONS = (MakeVector, ScalarFromTensor, TensorFromScalar)
THIN = 8
"""Rows, columns or depth of a product below which it is as slow as a product with a vector."""


def scalar_ops_of(scalar_op: Any) -> list[Any]:
    """Return the scalar Ops of a Composite, or the scalar Op itself."""
    inner = getattr(scalar_op, "fgraph", None)
    return [scalar_op] if inner is None else [s for n in inner.toposort() for s in scalar_ops_of(n.op)]


def _kind(scalar_op: Any) -> str:
    name = type(scalar_op).__name__
    if name in _ARITHMETIC:
        return "arithmetic_elements"
    if name in _EXP:
        return "exp_elements"
    return "trigonometric_elements" if name in _TRIGONOMETRIC else "special_elements"


class _Counter:
    """Adds up the work of the nodes of a graph, and of the graphs inside its Ops."""

    def __init__(self) -> None:
        self.amounts: dict[str, float] = defaultdict(float)

    def add(self, fgraph: FunctionGraph, known: ShapeEnv) -> None:
        """Count the work of a graph."""
        for node in fgraph.toposort():
            if isinstance(node.op, OpFromGraph):
                self._add_inner_graph(node, known)
                continue
            known.infer(node)
            if node.outputs[0] not in known.values:
                self._add_node(node, fgraph, known)

    def _add_inner_graph(self, node: Apply, known: ShapeEnv) -> None:
        inner = node.op.fgraph
        within = ShapeEnv({})
        for mine, outer in zip(inner.inputs, node.inputs, strict=True):
            within.shapes[mine] = known.shape(outer)
            if outer in known.values or isinstance(outer, Constant):
                within.values[mine] = known.value(outer)
        self.add(inner, within)
        known.shapes.update((o, within.shape(i)) for o, i in zip(node.outputs, inner.outputs, strict=True))

    def _add_node(self, node: Apply, fgraph: FunctionGraph, known: ShapeEnv) -> None:
        op = core_of(node.op)
        inputs, outputs = [known.shape(v) for v in node.inputs], [known.shape(v) for v in node.outputs]
        count = next((_WORK_OF[t] for t in type(op).__mro__ if t in _WORK_OF), _other)
        for kind, amount in count(node, fgraph, inputs, outputs):
            self.amounts[kind] += amount


Amounts = Iterable[tuple[str, float]]
Shapes = Sequence[Shape]


def _width(variable: Variable) -> float:
    """Return the size of an element in words of four bytes."""
    dtype = getattr(variable.type, "numpy_dtype", np.dtype("float32"))
    return dtype.itemsize / 4


def _elemwise(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    """Count a node as a part of a fused loop: values between elementwise nodes are not written to memory."""
    scalars = scalar_ops_of(core_of(node.op).scalar_op)
    elements = prod(outputs[0])
    if elements <= 1 and max(map(prod, inputs), default=0) <= 1:
        yield "scalar_ops", len(scalars)
        return
    width = _width(node.outputs[0])
    is_power = any(isinstance(v, Constant) for v in node.inputs[1:])
    for scalar in scalars:
        kind = "arithmetic_elements" if is_power and type(scalar).__name__ == "Pow" else _kind(scalar)
        yield kind, elements * (width if kind == "arithmetic_elements" else 1)
        if type(scalar).__name__ == "Switch":
            yield "switch_elements", elements
    if not all(isinstance(client.op, Elemwise) for client, _ in fgraph.clients[node.outputs[0]]):
        yield "elementwise_loops", 1
        yield "moved_words", elements * width
    for variable, shape in zip(node.inputs, inputs, strict=True):
        if variable.owner is None or not isinstance(variable.owner.op, Elemwise):
            yield "moved_words", prod(shape) * _width(variable)


def _reduction(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    op = core_of(node.op)
    ndim = len(inputs[0])
    axes = range(ndim) if op.axis is None else op.axis
    kind = "reduced_all" if len(axes) == ndim else "reduced_columns" if ndim - 1 not in axes else "reduced_rows"
    yield "elementwise_loops", 1
    elements = prod(inputs[0])
    yield (kind if isinstance(op.scalar_op, Add) else f"{kind} by comparison"), elements
    yield "moved_words", elements * _width(node.inputs[0])


def _product(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    inner = inputs[0][-1] if inputs[0] else 1
    flops = 2 * prod(outputs[0]) * inner
    is_thin = len(outputs[0]) < 2 or min(inner, *outputs[0][-2:]) < THIN
    yield ("matrix_products", prod(outputs[0][:-2])) if len(outputs[0]) > 1 else ("vector_products", 1)
    yield ("gemv_flops" if is_thin else "gemm_flops"), flops * _width(node.outputs[0])


def _gather(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "gather_nodes", 1
    if any(v.type.dtype == "bool" for v in node.inputs[1:]):
        yield "masked_elements", prod(inputs[0])
        return
    found, count = prod(outputs[0]), max(map(prod, inputs[1:]), default=1)
    is_of_elements = count >= found  # and not of rows
    yield ("gathered_elements" if is_of_elements else "gathered_rows"), count
    yield "moved_words", 0 if is_of_elements else 2 * found * _width(node.outputs[0])


def _scatter(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "scatter_nodes", 1
    yield "scattered_elements", max(prod(inputs[1]), *map(prod, inputs[2:]))
    yield "moved_words", prod(outputs[0]) * _width(node.outputs[0])


def _scan(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    op: Any = core_of(node.op)
    steps = max((n[0] for n in (*inputs, *outputs) if n), default=1)
    inner = op.fgraph.toposort()
    wide = max((prod(n) // max(n[0], 1) for n in outputs if n), default=1)
    yield "scan_nodes", 1
    yield "scan_steps", steps
    yield "scan_step_nodes", steps * len(inner)
    yield "scan_elements", steps * wide * len(inner)


def _copy(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "copy_nodes", 1
    yield "moved_words", sum(map(prod, outputs)) * _width(node.outputs[0])


def _view(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "view_nodes", 1


def _sort(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "other_nodes", 1
    yield "sorted_elements", prod(inputs[0])
    yield "sort_comparisons", prod(inputs[0]) * log2(max(inputs[0][-1:], default=1) + 1) ** 2


def _scalar(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "scalar_ops", 1


def _elements_of(kind: str) -> Callable[..., Amounts]:
    def count(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
        yield "other_nodes", 1
        yield kind, max(map(prod, (*inputs, *outputs)), default=0)

    return count


def _random(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    yield "random_nodes", 1
    yield "random_draws", prod(outputs[-1])


def _matrices(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    op = core_of(node.op)
    if len(inputs[0]) < 2 or (isinstance(op, Eigh | Eigvalsh) and len(inputs) > 1):
        return _other(node, fgraph, inputs, outputs)
    nodes = [("other_nodes" if isinstance(op, COp) else "python_nodes", 1.0)]
    return (*nodes, *work_of_matrices(op, inputs, _width(node.outputs[0])))


def _other(node: Apply, fgraph: FunctionGraph, inputs: Shapes, outputs: Shapes) -> Amounts:
    op = core_of(node.op)
    elements = max(map(prod, (*inputs, *outputs)), default=0)
    longest = max((n[-1] for n in (*inputs, *outputs) if len(n) > 1), default=1)
    yield ("other_nodes" if isinstance(op, COp) else "python_nodes"), 1
    if op is not node.op:  # a Blockwise calls the core Op for each item of the batch
        yield "batch_items", prod(outputs[0][: node.op.batch_ndim(node)])
    if type(op).__module__.startswith("pytensor.tensor.linalg"):
        yield "linalg_operations", elements * longest
    else:
        yield "other_elements", elements


_WORK_OF: Mapping[type[Op], Callable[..., Amounts]] = {
    Elemwise: _elemwise,
    CAReduce: _reduction,
    Dot: _product,
    AdvancedSubtensor: _gather,
    AdvancedIncSubtensor: _scatter,
    Scan: _scan,
    RandomVariable: _random,
    **dict.fromkeys((Alloc, IncSubtensor, Join, Split), _copy),
    **dict.fromkeys((SortOp, ArgSortOp), _sort),
    Subtensor: _view,
    **dict.fromkeys((Softmax, LogSoftmax), _elements_of("softmax_elements")),
    **dict.fromkeys(COUNTED, _matrices),
    CumOp: _elements_of("cumulative_elements"),
    SearchsortedOp: _elements_of("searched_elements"),
    Argmax: _elements_of("argmax_elements"),
    **dict.fromkeys((*_SCALAR_CONVERSIONS, AllocEmpty), _scalar),
    **dict.fromkeys(_NO_WORK, lambda *_: ()),
}


def workload_of(fgraph: FunctionGraph, given: Sequence[Shape]) -> tuple[dict[str, float], list[Shape]]:
    """Return the amount of each kind of work, and the shapes of the results.

    Parameters
    ----------
    fgraph
        A graph of host Ops in canonical form.
    given
        Shapes of its inputs.
    """
    known, counter = ShapeEnv(dict(zip(fgraph.inputs, given, strict=True))), _Counter()
    counter.add(fgraph, known)
    return counter.amounts, [known.shape(v) for v in fgraph.outputs]
