"""Views of arrays as rows: few kernels serve all shapes, as they depend on numbers of dimensions."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy.lib.array_utils import normalize_axis_index

from pytensor_cl.array.launches import copied, thread_cache
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout, collapse


def cached[Routine](key: tuple[Any, ...], make: Callable[[], Routine]) -> Routine:
    """Return the thread's routine of a key; make it if there is none."""
    cache = thread_cache()
    routine = cache.get(key)
    if routine is None:
        routine = cache[key] = make()
    return routine


def merged(x: GpuArray, groups: Sequence[Sequence[int]]) -> GpuArray:
    """Return the array with each group of dimensions merged into one: a view where one is possible, else a copy."""
    order = [axis for group in groups for axis in group]
    moved = x.with_layout(x.layout.transpose(order))
    shape, strides = [], []
    for group in groups:
        sizes, (steps,) = collapse([x.layout.shape[a] for a in group], ([x.layout.strides[a] for a in group],))
        if len(sizes) > 1:
            dense = copied(moved)
            return dense.with_layout(Layout.contiguous([_product(x, g) for g in groups]))
        shape.append(sizes[0] if sizes else 1)
        strides.append(steps[0] if steps else 0)
    return x.with_layout(Layout(tuple(shape), tuple(strides), x.layout.offset))


def _product(x: GpuArray, group: Sequence[int]) -> int:
    size = 1
    for axis in group:
        size *= x.shape[axis]
    return size


def as_rows(x: GpuArray, axis: int) -> tuple[GpuArray, Callable[[GpuArray], GpuArray]]:
    """Return the array as a matrix whose rows run along a dimension, and what puts such a matrix in its place again.

    Raises `AxisError`: there is no such dimension.
    """
    axis = normalize_axis_index(axis, x.ndim)
    others = [a for a in range(x.ndim) if a != axis]
    rows = merged(x, (others, (axis,)))
    shape = tuple(x.shape[a] for a in others)
    order = tuple(len(others) if a == axis else others.index(a) for a in range(x.ndim))

    def back(result: GpuArray) -> GpuArray:
        layout = result.layout.reshape((*shape, result.shape[-1]))
        assert layout is not None
        return result.with_layout(layout.transpose(order))

    return rows, back
