"""Blockwise of an Op for which PyTensor has no batched form -> Ops with more dimensions, which have kernels.

PyTensor's rewrites have replaced those that only need another axis. Of the others, indexing with batches of indices
gets an index array for each batch dimension, and an Op with a batch of lengths gets the one length that all must equal.
"""

from collections.abc import Callable

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.basic import Alloc, ARange, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import RavelMultiIndex, UnravelIndex
from pytensor.tensor.rewriting.basic import topo_constant_folding
from pytensor.tensor.shape import Reshape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import integer_dtypes

from pytensor_cl.ops.registry import note_reason
from pytensor_cl.rewriting.decompose.batch import Batch, known_integer, repeated
from pytensor_cl.rewriting.decompose.batch_index import BatchIndex, RaggedBatch, count

__all__ = ["decompose_blockwise"]

RAGGED = "what each batch takes may differ in shape, as far as is known when the function is compiled"


def _alloc(batch: Batch) -> list[Variable]:
    """Alloc(value, n) -> one array; the value is aligned on the right."""
    value, *lengths = batch.node.inputs
    missing = len(lengths) + batch.ndim - value.type.ndim
    aligned = pt.expand_dims(value, tuple(range(batch.ndim, batch.ndim + missing)))
    return [pt.alloc(aligned, *batch.shape(), *map(batch.uniform, lengths))]


def _reshape(batch: Batch) -> list[Variable]:
    """Reshape(x, shape) -> one array. Shapes may differ from batch to batch if only in where their -1 is."""
    x, shape = batch.node.inputs
    if repeated(shape, batch.ndim) is None:
        shape = _without_unknown(shape, [batch.extent(x, axis) for axis in range(batch.ndim, x.type.ndim)])
    lengths = batch.uniform(shape)
    core = [lengths[i] for i in range(batch.core.ndim)]
    return [batch.broadcast(x).reshape((*batch.shape(), *core))]


def _split(batch: Batch) -> list[Variable]:
    """Split(x, lengths) -> the same along a later axis."""
    x, lengths = batch.node.inputs
    axis = batch.ndim + batch.core.axis % (x.type.ndim - batch.ndim)
    return Split(batch.core.len_splits, axis).make_node(batch.broadcast(x), batch.uniform(lengths)).outputs


def _shape_i(batch: Batch) -> list[Variable]:
    """Shape_i(x) -> the same length for each batch."""
    (x,) = batch.node.inputs
    return [pt.alloc(batch.extent(x, batch.ndim + batch.core.i), *batch.shape())]


def _without_unknown(shapes: Variable, extents: list[Variable]) -> Variable:
    """Replace the -1 of each shape by its length; an ambiguous one stays, so that Reshape raises."""
    unknown = pt.eq(shapes, -1)
    known = pt.switch(unknown, 1, shapes).prod(axis=-1, keepdims=True)
    is_determined = pt.neq(known, 0) & pt.eq(unknown.sum(axis=-1, keepdims=True), 1)
    size = pt.prod(pt.stack(extents)) if extents else pt.constant(1, dtype="int64")
    length = size // pt.switch(pt.eq(known, 0), 1, known)
    return pt.switch(unknown & is_determined, length, shapes).astype(shapes.type.dtype)


def _count(start: Variable, stop: Variable, step: Variable) -> Variable:
    """Return the number of steps from one float64 to another, which is excluded."""
    return pt.cast(pt.maximum(pt.ceil((stop - start) / step), 0), "int64")


def _arange(batch: Batch) -> list[Variable]:
    """ARange(start, stop, step) -> start + i * step, as NumPy computes it: from the first two elements."""
    dtype = batch.core.dtype
    inputs = batch.node.inputs
    is_integer = all(v.type.dtype in integer_dtypes for v in inputs)
    start, stop, step = (pt.cast(v, "int64" if is_integer else "float64") for v in inputs)
    length = batch.uniform((count if is_integer else _count)(start, stop, step))
    if known_integer(inputs[0]) == 0 and known_integer(inputs[2]) == 1:
        return [pt.alloc(pt.arange(length, dtype=dtype), *batch.shape(), length)]
    first, second = pt.cast(start, dtype), pt.cast(start + step, dtype)
    origin, delta = (pt.expand_dims(v, batch.ndim) for v in (batch.broadcast(first), second - first))
    return [pt.cast(origin + pt.cast(pt.arange(length), dtype) * delta, dtype)]


def _flat_index(batch: Batch) -> list[Variable]:
    """RavelMultiIndex(i, j, dims) and UnravelIndex(i, dims): elementwise, but for dims."""
    *indices, dims = batch.node.inputs
    if not batch.is_same(dims):
        raise RaggedBatch("extents that differ from batch to batch")
    ndim = max(v.type.ndim for v in indices)
    aligned = (pt.expand_dims(v, tuple(range(batch.ndim, batch.ndim + ndim - v.type.ndim))) for v in indices)
    first, *others = map(batch.broadcast, aligned)
    return batch.core.make_node(batch.checked(first, range(batch.ndim)), *others, batch.squeezed(dims)).outputs


def _subtensor(batch: Batch) -> list[Variable]:
    """x[i, j:k] -> x[arange(len(x)), i, places from j to k]."""
    source, *inputs = batch.node.inputs
    axes = [axis for axis in range(batch.ndim) if not source.type.broadcastable[axis]]
    core = range(batch.ndim, source.type.ndim)
    return [batch.broadcast(BatchIndex(batch, inputs, axes).take(source.dimshuffle(*axes, *core)))]


def _inc_subtensor(batch: Batch) -> list[Variable]:
    """x[j:k] += y, the same."""
    source, value, *inputs = batch.node.inputs
    index = BatchIndex(batch, inputs, range(batch.ndim))
    return [index.put(batch.broadcast(source), value, batch.core.set_instead_of_inc)]


_FORMS: dict[type[Op], Callable[[Batch], list[Variable]]] = {
    Alloc: _alloc,
    Reshape: _reshape,
    Shape_i: _shape_i,
    Split: _split,
    ARange: _arange,
    RavelMultiIndex: _flat_index,
    UnravelIndex: _flat_index,
    Subtensor: _subtensor,
    AdvancedSubtensor: _subtensor,
    IncSubtensor: _inc_subtensor,
}


def _replacements(fgraph: FunctionGraph, node: Apply) -> list[tuple[Variable, Variable]]:
    """Return the outputs of a node with their replacements; none if there is no batched form."""
    batch = Batch(fgraph, node)
    form = _FORMS.get(type(batch.core))
    try:
        new = form(batch) if batch.ndim and form is not None else []
    except RaggedBatch:
        new = []
    if not new:
        note_reason(node, RAGGED)
    return [(old, old.type.filter_variable(value)) for old, value in zip(node.outputs, new, strict=bool(new))]


def decompose_blockwise(fgraph: FunctionGraph) -> None:
    """Replace Blockwise nodes of Ops that have a batched form, in place."""
    kinds = (*_FORMS, AdvancedIncSubtensor)
    found = [n for n in fgraph.toposort() if isinstance(n.op, Blockwise) and type(n.op.core_op) in kinds]
    for node in found:
        fgraph.replace_all(_replacements(fgraph, node), reason="opencl_decompose", import_missing=True)
    if found:
        topo_constant_folding.rewrite(fgraph)
