"""Powers of matrices by repeated squares."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT, MIN_ITEM_ELEMENTS, SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import Sizes, ndrange
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.routines.linalg.base import BlockedRoutine, stacked
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class Squares(BlockedRoutine):
    """Each matrix of a batch, squared a number of times.

    Inputs are the matrices (..., n, n) and how often each is squared (...), of int32, which the host reads: a call
    waits for the device. The output has the shape of the first input.
    """

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        super().__init__(context, dtype, schedule)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the product."""
        product = self._gemm if self.is_complex else self._product
        return (*product.sources(), self._select_source)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the powers.

        Raises `ValueError`: there is not one number for each matrix.
        """
        x, counts = inputs
        if x.shape[:-2] != counts.shape:
            raise ValueError(f"matrices of shape {x.shape}, and {counts.shape} numbers of squares")
        return (Layout.contiguous(x.shape),)

    @cached_property
    def _select(self) -> Kernel:
        source = self._select_source
        return self.context.kernel(source, source.name)

    @cached_property
    def _select_source(self) -> KernelSource:
        return kernel_source("linalg/select", ctype=ctype(self.real), schedule=self.schedule)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Read the numbers, and enqueue the products; the output is C-contiguous."""
        (output,) = outputs
        x, counts = (v for v in inputs if isinstance(v, GpuArray))
        if not output.size:
            return
        highest = int(np.asarray(counts, dtype=np.int64).max())
        counts = contiguous(counts)
        target = stacked(output)
        self._copy(x, output)
        for step in range(highest):
            self._take(target, self._new_product(target, target, is_transposed=False), counts, step)

    def _take(self, target: GpuArray, square: GpuArray, counts: GpuArray, step: int) -> None:
        numbers_of = 1 + self.is_complex  # real numbers in an element
        count, size = target.shape[0], target.shape[1] * target.shape[2] * numbers_of
        offsets = [np.int64(counts.layout.offset), *(np.int64(v.layout.offset * numbers_of) for v in (target, square))]
        numbers = np.int64(count), np.int64(size), np.int32(step)
        kernel = self._select
        work: Sizes
        if self.schedule == "cpu":
            work = (
                (max(1, min(target.size // MIN_ITEM_ELEMENTS, ITEMS_PER_UNIT * self.context.info.compute_units)),),
                (1,),
            )
        else:
            work = ndrange(self.context, kernel, target.size, SMALL_GROUP_ITEMS)
        buffers = counts.buffer, target.buffer, square.buffer
        kernel.launch(self.context.queue, *work, *numbers, *offsets, *buffers)
