"""Notes what a thread allocates and enqueues, so that the same can be enqueued again without working it out."""

from threading import get_ident
from typing import Any, NamedTuple

from pytensor_cl.runtime import opencl as cl

__all__ = ["CapturedAllocation", "Launch", "LaunchCapture"]


class CapturedAllocation(NamedTuple):
    """Memory that was allocated while the recorder listened; the same block may serve several, one after the other.

    Attributes
    ----------
    number
        Counts the allocations.
    nbytes
        What was asked for.
    """

    number: int
    nbytes: int


class Launch(NamedTuple):
    """A kernel that was enqueued.

    Attributes
    ----------
    kernel
        The pyopencl kernel.
    global_size, local_size
        The NDRange.
    arguments
        BufferPool, by-value arguments, and a `CapturedAllocation` in place of each buffer that was allocated meanwhile.
    """

    kernel: "cl.Kernel"
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    arguments: tuple[Any, ...]


class LaunchCapture:
    """Listens to a context while ``listens`` is true, to the thread that made it only.

    Attributes
    ----------
    listens
        Whether what happens now belongs to the recording.
    launches
        What was enqueued since the list was emptied.
    trouble
        What happened that cannot be repeated by launches alone.
    """

    def __init__(self) -> None:
        self.listens = False
        self.launches: list[Launch] = []
        self.trouble = ""
        self.blocks: dict[int, CapturedAllocation] = {}
        self._thread = get_ident()
        self._count = 0

    def hears(self) -> bool:
        """Whether the caller's doings are recorded."""
        return self.listens and get_ident() == self._thread

    def allocated(self, handle: int, nbytes: int) -> None:
        """Note an allocation; an earlier one of the same block is over, whoever has it now."""
        self.blocks.pop(handle, None)
        if self.hears():
            self._count += 1
            self.blocks[handle] = CapturedAllocation(self._count, nbytes)

    def launched(self, kernel: "cl.Kernel", global_size: Any, local_size: Any, arguments: tuple[Any, ...]) -> None:
        """Note a launch."""
        if self.hears():
            self.launches.append(Launch(kernel, global_size, local_size, tuple(map(self.place, arguments))))

    def other(self, what: str) -> None:
        """Note something that is no launch."""
        if self.hears():
            self.trouble = self.trouble or what

    def place(self, argument: Any) -> Any:
        """Return the `CapturedAllocation` that a buffer is; anything else comes back."""
        handle = getattr(argument, "int_ptr", None)
        return argument if handle is None else self.blocks.get(handle, argument)
