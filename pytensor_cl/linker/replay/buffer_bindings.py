"""What the kernels of a recording compute in: memory that is another one in each call, or part of the arena."""

from collections.abc import Callable
from sys import getrefcount
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from pytensor_cl.linker.capture.memory_plan import ArenaRange
from pytensor_cl.linker.steps.host import Cell
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.interfaces import BoundKernel
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.arena import Arena

__all__ = ["ArenaBinding", "ArrayLocation", "BufferBinding", "BufferDonation"]


def _nobody() -> None:
    """Stands for a reference to what is gone."""


class BufferBinding:
    """A buffer that is another one in each call, and the kernel arguments that it is.

    Attributes
    ----------
    buffer
        What is bound now; None between two calls.
    """

    __slots__ = ("_array", "_kernels", "buffer", "uses")

    def __init__(self) -> None:
        self.buffer: Any = None
        self.uses: list[tuple[Callable[[int, Any], None], int]] = []
        self._kernels: list[BoundKernel] = []  # of these uses
        self._array: Callable[[], GpuArray | None] = _nobody

    @property
    def array(self) -> GpuArray | None:
        """What is held now, or was held last."""
        return self._array()

    def add_use(self, kernel: BoundKernel, index: int) -> None:
        """Make the buffer an argument of a kernel."""
        self.uses.append((kernel.set_buffer, index))
        self._kernels.append(kernel)

    def bind(self, buffer: Any) -> None:
        """Make the kernels use a buffer."""
        for set_argument, index in self.uses:
            set_argument(index, buffer)
        self.buffer = buffer
        self._array = _nobody

    def keep(self, array: np.ndarray) -> None:
        """Keep an array of the host whose address the kernels were told."""
        self.buffer = array
        self._array = _nobody

    def pointers(self) -> list[tuple[np.ndarray, int]] | None:
        """Return what the kernels read its address from; None where they want a buffer."""
        words = [kernel.argument_word(index) for kernel, (_, index) in zip(self._kernels, self.uses, strict=True)]
        found = [word for word in words if word is not None]
        return found if len(found) == len(words) else None

    def hold(self, array: GpuArray) -> None:
        """Make the kernels use the buffer of an array that may come again: only its life is watched, nothing kept."""
        if self._array() is array:
            self.buffer = array.buffer
        else:
            self.bind(array.buffer)
            self._array = ref(array)


class ArrayLocation(NamedTuple):
    """Where a device variable is during a recorded call.

    Attributes
    ----------
    memory
        A `BufferBinding`, a `CapturedAllocation`, or a buffer that stays.
    dtype, layout
        Of the array.
    """

    memory: Any
    dtype: np.dtype
    layout: Layout


def _references(array: Any) -> tuple[int, int]:
    """Count the references to an array, and to its buffer."""
    return getrefcount(array), getrefcount(array.buffer)


class BufferDonation:
    """An update that is written where the old value is, if nobody else refers to that.

    Parameters
    ----------
    context, place
        Of the new value.
    nbytes
        Its size.
    out
        Cell of the new value.
    holders
        How many cells refer to the old value when it is offered.
    """

    def __init__(self, context: Context, place: ArrayLocation, nbytes: int, out: Cell, holders: int) -> None:
        self._context, self._place, self._nbytes = context, place, nbytes
        self._out = out
        self._alone = _REFERENCES[0] + holders - 1, _REFERENCES[1]
        self.slot = BufferBinding()
        self.array: GpuArray | None = None
        self.taken = 0  # how often

    def offer(self, array: GpuArray) -> None:
        """Take the memory of the old value, or new one."""
        self._out[0] = None
        if _references(array) == self._alone:
            self.taken += 1
            self.array = array
        else:
            buffer = self._context.memory.allocate(self._nbytes)
            self.array = GpuArray(self._context, buffer, self._place.dtype, self._place.layout)
        self.slot.hold(self.array)

    def take(self) -> GpuArray:
        """Return the new value; nothing of it stays here."""
        array, self.array = self.array, None
        assert array is not None
        return array


class _Example:
    """An array that one cell refers to, for counting: Python's versions count differently."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = object()

    @staticmethod
    def offer(array: Any) -> tuple[int, int]:
        """As `BufferDonation.offer`."""
        return _references(array)


def _references_of_one(cell: Cell) -> tuple[int, int]:
    """As the steps that offer arrays."""
    array = cell[0]
    return _Example.offer(array)


_REFERENCES = _references_of_one([_Example()])


class ArenaBinding(BufferBinding):
    """A part of the arena, which is another buffer when the arena has grown.

    Parameters
    ----------
    region
        Which bytes.

    Attributes
    ----------
    whole
        The buffer of which it is a part: the arena may have let go of it while a call still computes there.
    """

    __slots__ = ("region", "whole")

    def __init__(self, region: ArenaRange) -> None:
        super().__init__()
        self.region = region
        self.whole: Any = None

    def settle(self, arena: Arena) -> None:
        """Be the part of the arena that there is now."""
        self.whole = arena.buffers[self.region.number]
        self.bind(arena.part(*self.region))

    def leave(self) -> None:
        """Let go of it."""
        self.whole = self.buffer = None
