"""The memory in which recorded calls compute: nothing in it outlives a call, so all recordings share it."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.queue import Queue

__all__ = ["Arena"]

_LEAST = 128  # bytes: the largest type of OpenCL C, a long16


class Arena:
    """A few large buffers, as a rule one, of which recordings use parts.

    Parameters
    ----------
    queue
        The context's queue.
    largest
        Bytes that the device allocates at once.

    Attributes
    ----------
    buffers
        What there is.
    version
        Changes when the buffers do: parts of earlier ones are void.
    alignment
        Bytes at whose multiples a part may begin.
    limit
        The largest multiple of that which can be allocated.
    """

    def __init__(self, queue: Queue, largest: int) -> None:
        self._queue = queue
        self.alignment = max(_LEAST, queue.handle.device.mem_base_addr_align // 8)
        self.limit = largest // self.alignment * self.alignment
        self.buffers: list[cl.Buffer] = []
        self.version = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(b.size for b in self.buffers)

    def fits(self, extents: Sequence[int]) -> bool:
        """Whether there are buffers of at least so many bytes."""
        return len(extents) <= len(self.buffers) and all(
            n <= b.size for n, b in zip(extents, self.buffers, strict=False)
        )

    def grow(self, extents: Sequence[int], allocate: Callable[[int], "cl.Buffer"]) -> None:
        """Replace the buffers by larger ones; the parts of the old ones must have been let go."""
        sizes = [max(pair) for pair in zip_longest(extents, [b.size for b in self.buffers], fillvalue=0)]
        self.free()
        self.buffers = [allocate(n) for n in sizes]
        self.version += 1

    def free(self) -> None:
        """Give the buffers back to the device."""
        if self.buffers:
            self._queue.finish_raw()
        self.buffers = []
        self.version += 1

    def part(self, number: int, offset: int, nbytes: int) -> "cl.Buffer":
        """Return some bytes of a buffer as a buffer."""
        return self.buffers[number].get_sub_region(offset, nbytes)
