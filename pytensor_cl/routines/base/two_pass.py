"""Reductions in two passes: the first leaves partial results in a buffer, the final one combines them in order."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.base.limits import CACHE_LINE_BYTES, CHUNK_ALIGNMENT_ELEMENTS
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.program import Kernel


def chunks_of(total: int, wanted: int) -> tuple[int, int]:
    """Return length and number of about `wanted` chunks; the length keeps aligned vectors aligned."""
    if wanted <= 1:
        return max(total, 1), 1
    length = ceil_div(total, CHUNK_ALIGNMENT_ELEMENTS * wanted) * CHUNK_ALIGNMENT_ELEMENTS
    return length, ceil_div(total, length)


class KernelLaunch(NamedTuple):
    """A launch, all but its buffers and the offsets of the arrays.

    `global_size`, `local_size`: NDRange and work-group; None leaves the work-group's size to the driver; `geometry`:
    the struct with extents and strides; `in_shift`, `out_shift`: elements from an array's first element to where the
    launch begins.
    """

    kernel: Kernel
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    geometry: bytes = b""
    in_shift: int = 0
    out_shift: int = 0

    def enqueue(self, queue: Any, *arguments: Any) -> None:
        """Launch with these arguments; wait for nothing."""
        self.kernel.launch(queue, self.global_size, self.local_size, *arguments)


class PartialResults(NamedTuple):
    """Offsets of the partial results of several reductions in one buffer.

    `offsets`: bytes from the buffer's begin to the first partial result of each reduction; `nbytes`: size of the
    buffer.
    """

    offsets: tuple[int, ...]
    nbytes: int

    @classmethod
    def of(cls, count: int, accumulators: Iterable[tuple[Any, bool]]) -> "PartialResults":
        """Return the layout.

        `count`: partial results of each reduction; 0 where one launch does all; `accumulators`: for each reduction the
        dtype of its accumulator, and whether there is a rounding error to each value. The rounding errors follow the
        values.
        """
        end, offsets = 0, []
        for dtype, is_compensated in accumulators:
            offsets.append(end)
            nbytes = (2 if is_compensated else 1) * count * np.dtype(dtype).itemsize
            end += round_up(nbytes, CACHE_LINE_BYTES)
        return cls(tuple(offsets), end)


class TwoPass(NamedTuple):
    """The launches of a reduction for one set of layouts.

    `first`: the launches of the first pass, which write partial results; without `final` they write the results;
    `final`: combines the partial results; None where one pass does all, or one launch both passes; `partial_bytes`:
    size of the buffer between the passes.
    """

    first: tuple[KernelLaunch, ...] = ()
    final: KernelLaunch | None = None
    partial_bytes: int = 0

    @property
    def joins(self) -> bool:
        """Whether one launch does both passes."""
        return self.final is None and self.partial_bytes > 0

    def allocate(self, context: Context) -> Any:
        """Return a buffer for the partial results; None if there are none.

        The context's queue is in order, so no event connects the passes, and the buffer may be dropped once the final
        pass is enqueued.
        """
        return context.memory.allocate(self.partial_bytes) if self.partial_bytes else None
