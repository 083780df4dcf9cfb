"""Blockwise of an Op for which PyTensor has no batched form -> Ops with more dimensions, which have kernels.

PyTensor's rewrites have replaced those that only need another axis. Of the others, indexing with batches of indices
gets an index array for each batch dimension, and an Op with a batch of lengths gets the one length that all must equal.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.basic import Alloc, ARange, Join, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import RavelMultiIndex, UnravelIndex
from pytensor.tensor.rewriting.basic import topo_constant_folding
from pytensor.tensor.shape import Reshape, Shape_i
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    inc_subtensor,
    set_subtensor,
)
from pytensor.tensor.type import integer_dtypes

from pytensor_cl.ops.registry import note_reason
from pytensor_cl.rewriting.decompose.batch import Batch, known_integer, repeated

RAGGED = "what each batch takes may differ in shape, as far as is known when the function is compiled"
Label = tuple[str, int]
"""Role of a dimension: a batch dimension, a dimension of the index arrays, or a sliced axis."""


class RaggedBatch(ValueError):
    """The shape of the result may differ from batch to batch."""


def count(start: Variable, stop: Variable, step: Variable | int) -> Variable:
    """Return the number of steps from one integer to another, which is excluded."""
    distance = stop if known_integer(start) == 0 else stop - start
    return pt.maximum(distance if known_integer(step) == 1 else -(-distance // step), 0)


class BatchIndex:
    """The index of a Blockwise of an indexing Op, whose first input has the batch dimensions `axes`.

    A `RaggedBatch` is raised if there is no such index.
    """

    def __init__(self, batch: Batch, inputs: Sequence[Variable], axes: Sequence[int]) -> None:
        if any(v.type.dtype == "bool" for v in inputs):
            raise RaggedBatch("each batch of a mask may select another number of elements")
        self._batch = batch
        self._axes = list(axes)
        self._ndim = batch.node.inputs[0].type.ndim - batch.ndim
        self._entries = [_entry(e, inputs) for e in batch.core.idx_list]
        self._moving = [i for i, e in enumerate(self._entries) if isinstance(e, slice) and not self._is_fixed(e)]
        self._width = self._count_dims()
        own = [self._core_entry(axis, entry) for axis, entry in enumerate(self._entries)]
        self._index = (*map(self._batch_entry, self._axes), *own)
        self._free = [axis for axis in range(batch.ndim) if axis not in self._axes]
        self._labels_of_result = self._labels(
            [True] * len(axes) + self._arrays(), [("batch", b) for b in range(batch.ndim)]
        )
        self._target_labels = [("batch", b) for b in range(batch.ndim)] + self._core_labels()

    def _count_dims(self) -> int:
        """Return the number of dimensions of the index arrays, without those of the batch."""
        own = max((e.type.ndim - self._batch.ndim for e in self._entries if not isinstance(e, slice)), default=0)
        if own and self._moving:
            raise RaggedBatch("slices of a batch beside arrays")
        return own or len(self._moving)

    def _is_fixed(self, entry: slice) -> bool:
        return all(v is None or self._batch.is_same(v) for v in (entry.start, entry.stop, entry.step))

    def _arrays(self) -> list[bool]:
        """Return for each axis outside of the batch whether an array indexes it."""
        rest = self._ndim - len(self._entries)
        return [not isinstance(e, slice) or i in self._moving for i, e in enumerate(self._entries)] + [False] * rest

    def _labels(self, is_array: Sequence[bool], batch: list[Label]) -> list[Label]:
        """Return the roles of the result's dimensions in NumPy's order: adjacent index arrays stay in place."""
        skipped = len(is_array) - self._ndim
        places = [i for i, yes in enumerate(is_array) if yes]
        sliced: list[Label] = [("axis", i - skipped) for i, yes in enumerate(is_array) if not yes]
        if not places:
            return sliced
        joined = places[-1] - places[0] == len(places) - 1
        at = places[0] if joined else 0
        return [*sliced[:at], *batch, *(("own", j) for j in range(self._width)), *sliced[at:]]

    def _core_labels(self) -> list[Label]:
        """Return the dimensions of the result without batches."""
        if not self._moving:
            return self._labels(self._arrays(), [])
        own = {axis: ("own", j) for j, axis in enumerate(self._moving)}
        rest = range(len(self._entries), self._ndim)
        kept = [i for i, e in enumerate(self._entries) if isinstance(e, slice)]
        return [own.get(axis, ("axis", axis)) for axis in (*kept, *rest)]

    def _batch_entry(self, axis: int) -> Variable:
        """Return 0, 1, 2, ... along a batch dimension."""
        length = self._batch.length(axis)
        known = getattr(length, "data", None)
        steps = pt.arange(length) if known is None else pt.constant(np.arange(int(known)))
        return steps.dimshuffle([0 if i == axis else "x" for i in range(self._batch.ndim + self._width)])

    def _core_entry(self, axis: int, entry: Any) -> Any:
        """Return the index of an axis outside of the batch."""
        batch = self._batch.ndim
        if isinstance(entry, slice):
            if axis not in self._moving:
                bounds = (entry.start, entry.stop, entry.step)
                return slice(*(v if v is None else self._batch.squeezed(v) for v in bounds))
            at = self._moving.index(axis)
            order = [batch if j == at else "x" for j in range(self._width)]
            return self._steps(axis, entry).dimshuffle(*range(batch), *order)
        missing = self._width - (entry.type.ndim - batch)
        return entry.dimshuffle(*range(batch), *["x"] * missing, *range(batch, entry.type.ndim))

    def _steps(self, axis: int, entry: slice) -> Variable:
        """Return the positions of the slice of each batch; all slices must have the same length."""
        batch = self._batch
        step = 1 if entry.step is None else known_integer(entry.step)
        if not step:
            raise RaggedBatch("the step of a slice is not known")
        length = batch.extent(batch.node.inputs[0], batch.ndim + axis)
        first, last = (pt.constant(0), length) if step > 0 else (length - 1, pt.constant(-1))
        low, high = (first, last) if step > 0 else (last, first)

        def bound(value: Variable | None, otherwise: Variable) -> Variable:
            if value is None:
                return otherwise.dimshuffle(["x"] * batch.ndim)
            wide = pt.cast(value, "int64")
            return pt.switch(wide < 0, pt.maximum(wide + length, low), pt.minimum(wide, high))

        start, stop = bound(entry.start, first), bound(entry.stop, last)
        number = batch.uniform(count(start, stop, step))
        steps = pt.arange(number)
        return pt.expand_dims(start, batch.ndim) + (steps if step == 1 else steps * step)

    def take(self, array: Variable) -> Variable:
        """Return the indexed elements of an array without the batch dimensions of length one."""
        found = self._batch.checked(array, self._free)[self._index]
        return found.dimshuffle(
            [self._labels_of_result.index(d) if d in self._labels_of_result else "x" for d in self._target_labels]
        )

    def put(self, array: Variable, value: Variable, is_set: bool) -> Variable:
        """Set elements of an array of all batches, or add to them."""
        missing = len(self._target_labels) - value.type.ndim
        aligned = pt.expand_dims(value, tuple(range(self._batch.ndim, self._batch.ndim + missing)))
        ordered = aligned.dimshuffle([self._target_labels.index(d) for d in self._labels_of_result])
        return (set_subtensor if is_set else inc_subtensor)(array[self._index], ordered)


def _entry(entry: Any, inputs: Sequence[Variable]) -> Any:
    """Return the index of an axis: a slice of variables, or a variable."""
    if not isinstance(entry, slice):
        return inputs[entry]
    return slice(*(None if e is None else inputs[e] for e in (entry.start, entry.stop, entry.step)))


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


def _join(batch: Batch) -> list[Variable]:
    """Join(x, y) -> the same along a later axis."""
    parts = batch.node.inputs
    axis = batch.ndim + batch.core.axis % (parts[0].type.ndim - batch.ndim)
    return [pt.join(axis, *map(batch.broadcast, parts))]


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
    Join: _join,
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
