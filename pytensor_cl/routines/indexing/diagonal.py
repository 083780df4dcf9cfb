"""Diagonals: their layout, and copies of arrays with another one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.routines.elemwise.routine import Copy, Fill
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout


def diagonal(layout: Layout, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Layout:
    """Return the layout of a view of diagonals: a new last dimension takes the place of two.

    `offset`: distance above the main diagonal (below, if negative); `axis1`, `axis2`: rows and columns.
    """
    (rows, columns), steps = ([values[axis1], values[axis2]] for values in layout[:2])
    skip = (max(-offset, 0), max(offset, 0))
    length = max(0, min(rows - skip[0], columns - skip[1]))
    start = layout.offset + (skip[0] * steps[0] + skip[1] * steps[1] if length else 0)
    others = [axis for axis in range(layout.ndim) if axis not in (axis1, axis2)]
    shape, strides = ([values[axis] for axis in others] for values in layout[:2])
    return Layout((*shape, length), (*strides, sum(steps)), start)


def _main_diagonal(layout: Layout) -> Layout:
    """Return the layout of the elements whose indices are all the same."""
    if layout.ndim == 2:
        return diagonal(layout)
    if len(set(layout.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return Layout(layout.shape[:1], (sum(layout.strides),), layout.offset)


class FillDiagonal(Routine):
    """Copy an array, with one value all along a diagonal.

    Inputs are the array, the value (an array of no dimensions, or a NumPy scalar), and how far the diagonal is
    above the main one (an integer; only for two dimensions, and may be left out).

    `ndim`: dimensions of the array, at least two.
    """

    def __init__(self, context: Context, dtype: str, ndim: int, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (dtype,)
        self._copy = Copy(context, dtype, ndim, None, schedule)
        self._repeat = Copy(context, dtype, 1, None, schedule)
        self._fill = Fill(context, dtype, 1, schedule)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the copies."""
        return (*self._copy.sources(), *self._repeat.sources(), *self._fill.sources())

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the copy.

        Raises `ValueError`: there are more than two dimensions, of different lengths.
        """
        _main_diagonal(inputs[0])
        return (Layout.contiguous(inputs[0].shape),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the copy and the fill; the output may have any strides."""
        (output,), (source, value, *offset) = outputs, inputs
        place = diagonal(output.layout, int(offset[0])) if offset else _main_diagonal(output.layout)
        self._copy.launch((output,), (source,))
        line = output.with_layout(place)
        if isinstance(value, GpuArray):
            self._repeat.launch((line,), (value.with_layout(value.layout.dimshuffle(("x",))),))
        else:
            self._fill.launch((line,), (np.dtype(self.output_dtypes[0]).type(value),))
