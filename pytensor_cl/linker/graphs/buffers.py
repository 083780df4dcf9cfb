"""Buffers that differ from call to call, the kernel arguments that are set to them, and ranges of the arena."""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from pytensor_cl.linker.graphs.memory import ArenaRange
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.interfaces import BoundKernel
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.arena import Arena


def no_array() -> None:
    """Weak reference to no array."""


class BufferBinding:
    """A buffer that differs from call to call, and the kernel arguments that are set to it."""

    __slots__ = ("_setters", "arguments", "array_ref", "buffer")

    def __init__(self) -> None:
        self.buffer: Any = None  # buffer of this call; None between two calls
        self.arguments: list[tuple[BoundKernel, int]] = []
        self.array_ref: Callable[[], GpuArray | None] = no_array  # weak, to the array that was bound last
        self._setters: list[tuple[Callable[[int, Any], None], int]] = []

    def add_argument(self, kernel: BoundKernel, index: int) -> None:
        """Set an argument of a kernel to the buffer of each call."""
        self.arguments.append((kernel, index))
        self._setters.append((kernel.set_buffer, index))

    def bind(self, buffer: Any) -> None:
        """Set the kernel arguments to a buffer."""
        for set_buffer, index in self._setters:
            set_buffer(index, buffer)
        self.buffer = buffer
        self.array_ref = no_array

    def bind_array(self, array: GpuArray) -> None:
        """Set the kernel arguments to the buffer of an array, unless it is bound already. The array is not kept."""
        if self.array_ref() is array:
            self.buffer = array.buffer
        else:
            self.bind(array.buffer)
            self.array_ref = ref(array)


class ArenaBinding(BufferBinding):
    """A range of the arena. Its buffer changes when the arena grows."""

    __slots__ = ("range", "whole")

    def __init__(self, range: ArenaRange) -> None:
        super().__init__()
        self.range = range
        self.whole: Any = None  # the arena's buffer that has the range, kept while the graph may compute there

    def bind_arena(self, arena: Arena) -> None:
        """Bind the range of the arena's present buffers."""
        self.whole = arena.buffers[self.range.number]
        self.bind(arena.part(*self.range))

    def unbind(self) -> None:
        """Drop the references to the arena's buffers."""
        self.whole = self.buffer = None


class ArrayLocation(NamedTuple):
    """Memory, dtype and layout of a device variable in the captured call."""

    memory: Any  # a BufferBinding, a CapturedAllocation, or a buffer that is the same in each call
    dtype: np.dtype
    layout: Layout
