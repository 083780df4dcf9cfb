"""Capture of launches: which kernels a thread enqueues and which buffers it allocates, so that both can be repeated."""

from threading import get_ident
from typing import Any, NamedTuple

from pytensor_cl.runtime import opencl as cl


class CapturedAllocation(NamedTuple):
    """A buffer that was allocated during a capture. One buffer of the pool may be several of them, one after the other.

    `number`: counts the allocations, from 1; `nbytes`: requested bytes.
    """

    number: int
    nbytes: int


class Launch(NamedTuple):
    """A kernel that was enqueued.

    `kernel`: the pyopencl kernel; `global_size`, `local_size`: the NDRange; `arguments`: buffers, by-value arguments,
    and a `CapturedAllocation` in place of each buffer that was allocated meanwhile.
    """

    kernel: "cl.Kernel"
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    arguments: tuple[Any, ...]


class LaunchCapture:
    """Record of the commands and allocations of the thread that made this object, while ``is_on`` is true.

    `is_on`: whether commands are captured now; `launches`: kernels that were enqueued since the list was replaced;
    `unsupported`: the first command that cannot be repeated by launches alone; empty if there was none.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.launches: list[Launch] = []
        self.unsupported = ""
        self._allocations: dict[int, CapturedAllocation] = {}  # keys: handles of buffers
        self._thread = get_ident()
        self._count = 0

    def is_active(self) -> bool:
        """Return whether commands of the calling thread are captured."""
        return self.is_on and get_ident() == self._thread

    def note_allocation(self, handle: int, nbytes: int) -> None:
        """Note an allocation. An earlier one of the same buffer is over, whichever thread has the buffer now."""
        self._allocations.pop(handle, None)
        if self.is_active():
            self._count += 1
            self._allocations[handle] = CapturedAllocation(self._count, nbytes)

    def note_launch(self, kernel: "cl.Kernel", global_size: Any, local_size: Any, arguments: tuple[Any, ...]) -> None:
        """Note a launch."""
        if self.is_active():
            self.launches.append(Launch(kernel, global_size, local_size, tuple(map(self.resolve, arguments))))

    def note_unsupported(self, command: str) -> None:
        """Note a command that is no launch, such as "a download"."""
        if self.is_active():
            self.unsupported = self.unsupported or command

    def resolve(self, argument: Any) -> Any:
        """Return the `CapturedAllocation` that a buffer is; any other argument unchanged."""
        handle = getattr(argument, "int_ptr", None)
        return argument if handle is None else self._allocations.get(handle, argument)
