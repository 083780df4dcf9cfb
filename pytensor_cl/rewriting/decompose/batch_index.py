"""Indexing of all batches at once, with an index array for each batch dimension."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.subtensor import inc_subtensor, set_subtensor

from pytensor_cl.rewriting.decompose.batch import Batch, known_integer

__all__ = ["BatchIndex", "RaggedBatch", "count"]

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
        """For each axis besides those of the batch, whether an array indexes it."""
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
        """Return what indexes an axis besides those of the batch."""
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
    """Return what indexes an axis: a slice of variables, or a variable."""
    if not isinstance(entry, slice):
        return inputs[entry]
    return slice(*(None if e is None else inputs[e] for e in (entry.start, entry.stop, entry.step)))
