"""The arena of a context: memory for intermediate results of captured graphs.

Nothing in it is used after the call, so all captured graphs share it.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.memory.parts import parts_of
from pytensor_cl.runtime.queue import Queue

_MIN_ALIGNMENT = 128  # bytes of the largest type of OpenCL C, a long16


class Arena:
    """A few large buffers, usually one. Captured graphs use parts of them.

    `queue`: the context's queue; `largest`: largest buffer of the device, in bytes; `buffers`: the buffers; `version`:
    changes when the buffers change; parts of earlier buffers are invalid then; `alignment`: offsets of parts are
    multiples of it, in bytes; `limit`: largest buffer, in bytes: a multiple of `alignment`.
    """

    def __init__(self, queue: Queue, largest: int) -> None:
        self._queue = queue
        self.alignment = max(_MIN_ALIGNMENT, queue.handle.device.mem_base_addr_align // 8)
        self.limit = largest // self.alignment * self.alignment
        self.buffers: list[cl.Buffer] = []
        self.version = 0

    @property
    def nbytes(self) -> int:
        """Total size of the buffers, in bytes."""
        return sum(b.size for b in self.buffers)

    @property
    def part_count(self) -> int:
        """Number of parts of the buffers: they exist as long as the buffers, whether a graph uses them or not."""
        return sum(len(parts_of(b)) for b in self.buffers)

    def fits(self, extents: Sequence[int]) -> bool:
        """Return whether the buffers have at least these sizes."""
        return len(extents) <= len(self.buffers) and all(
            n <= b.size for n, b in zip(extents, self.buffers, strict=False)
        )

    def grow(self, extents: Sequence[int], allocate: Callable[[int], "cl.Buffer"]) -> None:
        """Replace the buffers by larger ones. No part of the old ones may be in use."""
        sizes = [max(pair) for pair in zip_longest(extents, [b.size for b in self.buffers], fillvalue=0)]
        self.free()
        self.buffers = [allocate(n) for n in sizes]
        self.version += 1

    def free(self) -> None:
        """Release the buffers."""
        if self.buffers:
            self._queue.finish_raw()
        self.buffers = []
        self.version += 1

    def part(self, number: int, offset: int, nbytes: int) -> "cl.Buffer":
        """Return some bytes of a buffer as a buffer, which exists as long as the whole one."""
        return parts_of(self.buffers[number]).part(offset, nbytes)
