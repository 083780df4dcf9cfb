"""Permutation of the elements of each row."""

from collections.abc import Sequence
from typing import Any

from pytensor_cl.routines.indexing.take_along_axis import TakeAlongAxis
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout


class PermuteRowElements(TakeAlongAxis):
    """Permute each row: ``permute(x, index)`` is ``x[..., index]``, row by row.

    `broadcast`: for each dimension of `x` and of the index, whether its length is known to be one, so that it may be
    repeated; `inverse`: undo the permutation.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        index_dtype: str,
        broadcast: Sequence[Sequence[bool]],
        inverse: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, dtype, index_dtype, len(broadcast[0]), "index", inverse, schedule)
        self._broadcast = [tuple(known) for known in broadcast]

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the common shape of array and index.

        Raises `ValueError`: the shapes differ where the length is not known to be one.
        """
        x, y = (layout.shape for layout in inputs)
        for n, m, n_known, m_known in zip(x, y, *self._broadcast, strict=True):
            if n != m and not (n_known if n == 1 else m == 1 and m_known):
                raise ValueError(f"Dimension mismatch: {n}, {m}")
        return (Layout.contiguous(tuple(m if n == 1 else n for n, m in zip(x, y, strict=True))),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the kernel; the output is C-contiguous."""
        (output,), (x, index) = outputs, inputs
        if not output.size:
            return
        where = index.with_layout(index.layout.broadcast_to(output.shape))
        moved = output if self._arguments["inverse"] else x
        length, step = moved.shape[-1], moved.layout.strides[-1]
        target = self._rows(output, output) if moved is output else output
        source = self._rows(x, output) if moved is x else x.with_layout(x.layout.broadcast_to(output.shape))
        self.take(target, source, where, length, step)

    @staticmethod
    def _rows(array: GpuArray, output: GpuArray) -> GpuArray:
        """Return each row's first element, along the row: the index picks the others."""
        shape, strides, offset = array.layout
        first = Layout((*shape[:-1], 1), (*strides[:-1], 0), offset)
        return array.with_layout(first.broadcast_to(output.shape))

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's IndexError."""
        return IndexError(f"index {finding.value} is out of bounds for axis 0 with size {finding.limit}")
