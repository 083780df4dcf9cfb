"""Parts of a buffer as buffers (sub-buffers), which are released in the reverse of the order in which they were made.

NVIDIA's driver (580.159 on an H200) ends the process in ``clReleaseMemObject`` where several parts of a buffer, used by
kernels, are released in another order. So all parts stay until the buffer is gone, and then go at once.
"""

import os
from collections import deque
from ctypes import py_object, pythonapi
from operator import methodcaller
from threading import RLock
from typing import Any

from pytensor_cl.runtime import opencl as cl

__all__ = ["Parts", "parts_of"]

_ATTRIBUTE = "_pytensor_cl_parts"
_lock = RLock()  # an RLock: a buffer may be released by the garbage collector while its thread makes a part


class Parts:
    """The parts of a buffer. They are released with this object, whoever refers to them.

    `buffer`: the buffer, not itself a part of another one.
    """

    # An interrupt may leave an object without attributes, but `__del__` reads this one.
    _process = 0

    def __init__(self, buffer: Any) -> None:
        self._whole = cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True)  # the pools' type has no sub-buffers
        self._made: list[Any] = []
        self._shared: dict[tuple[int, int], Any] = {}
        self._process = os.getpid()

    def __len__(self) -> int:
        return len(self._made)

    def new(self, begin: int, nbytes: int) -> "cl.Buffer":
        """Return a part that nothing else uses: `nbytes` bytes from byte `begin` on.

        Raises pyopencl's errors: the buffer is a part of another one, or `begin` is not aligned.
        """
        with _lock:
            part = self._whole.get_sub_region(begin, nbytes)
            pythonapi.Py_IncRef(py_object(part))  # only `__del__` may release it
            self._made.append(part)
        return part

    def known(self, begin: int, nbytes: int) -> "cl.Buffer | None":
        """Return the part of `nbytes` bytes from byte `begin` on if `part` has made it, else None."""
        return self._shared.get((begin, nbytes))

    def part(self, begin: int, nbytes: int) -> "cl.Buffer":
        """Return the part of `nbytes` bytes from byte `begin` on, the same object each time; errors are as of `new`."""
        part = self._shared.get((begin, nbytes))
        if part is None:
            with _lock:
                part = self._shared.get((begin, nbytes))
                if part is None:
                    part = self._shared[begin, nbytes] = self.new(begin, nbytes)
        return part

    def __del__(
        self,
        process: Any = os.getpid,
        run: Any = deque,
        release: Any = methodcaller("release"),
        decref: Any = pythonapi.Py_DecRef,
        py_object: Any = py_object,
    ) -> None:
        # The interpreter's end may drop this object when the module has no names any more, or without a call of this
        # method: then the parts stay until the process has ended.
        if self._process != process():  # a forked child may not call the driver
            return
        # Loops in C, which no signal's handler interrupts: what that raises would leave the rest, and be lost here.
        run(map(release, reversed(self._made)), 0)
        run(map(decref, map(py_object, self._made)), 0)


def parts_of(buffer: Any) -> Parts:
    """Return the parts of a buffer, which exist as long as this Python object: keep it while one is used."""
    found: Parts | None = getattr(buffer, _ATTRIBUTE, None)
    if found is None:
        with _lock:
            found = getattr(buffer, _ATTRIBUTE, None)
            if found is None:
                found = Parts(buffer)
                setattr(buffer, _ATTRIBUTE, found)
    return found
