"""Bindings of a captured graph: what sets the kernel arguments that differ from call to call, and guards.

A captured graph runs its bindings before and between its launches. Arguments of the function, shared variables and
results have other buffers in each call. Guards check that the values are those for which the graph was captured.
"""

from collections.abc import Callable
from ctypes import addressof, c_char
from dataclasses import dataclass
from sys import getrefcount
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from pytensor_cl.linker.replay.memory import ArenaRange
from pytensor_cl.linker.types import Cell, GuardFailure, Thunk
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.interfaces import BoundKernel
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.arena import Arena
from pytensor_cl.runtime.memory.host_mapping import address_of
from pytensor_cl.sharedvar import DeviceCell, is_held_elsewhere

__all__ = [
    "ArenaBinding",
    "ArgumentBinding",
    "ArrayLocation",
    "BufferBinding",
    "BufferDonation",
    "DeviceInputBinding",
    "SharedBinding",
    "ValueTooLarge",
    "alias_guard",
    "constant_step",
    "freeze_value",
    "scalar_binding",
    "scalar_setter",
    "value_guard",
]

MAX_GUARD_BYTES = 256
"""Bytes of a host value that may be part of a signature, or of a guard."""


def _no_array() -> None:
    """Replace a weak reference to an array that does not exist any more."""


class BufferBinding:
    """A buffer that differs from call to call, and the kernel arguments that are set to it.

    Attributes
    ----------
    buffer
        The buffer of this call; None between two calls.
    arguments
        Kernels whose argument it is, and the index of the argument.
    array_ref
        Weak reference to the array that was bound last.
    """

    __slots__ = ("_setters", "arguments", "array_ref", "buffer")

    def __init__(self) -> None:
        self.buffer: Any = None
        self.arguments: list[tuple[BoundKernel, int]] = []
        self.array_ref: Callable[[], GpuArray | None] = _no_array
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
        self.array_ref = _no_array

    def bind_array(self, array: GpuArray) -> None:
        """Set the kernel arguments to the buffer of an array, unless it is bound already. The array is not kept."""
        if self.array_ref() is array:
            self.buffer = array.buffer
        else:
            self.bind(array.buffer)
            self.array_ref = ref(array)


class ArenaBinding(BufferBinding):
    """A range of the arena. Its buffer changes when the arena grows.

    Parameters
    ----------
    range
        Which bytes.

    Attributes
    ----------
    whole
        The buffer of the arena that has the range, kept while the graph may compute there.
    """

    __slots__ = ("range", "whole")

    def __init__(self, range: ArenaRange) -> None:
        super().__init__()
        self.range = range
        self.whole: Any = None

    def bind_arena(self, arena: Arena) -> None:
        """Bind the range of the arena's present buffers."""
        self.whole = arena.buffers[self.range.number]
        self.bind(arena.part(*self.range))

    def unbind(self) -> None:
        """Drop the references to the arena's buffers."""
        self.whole = self.buffer = None


class ArrayLocation(NamedTuple):
    """Where a device variable was in the captured call.

    Attributes
    ----------
    memory
        A `BufferBinding`, a `CapturedAllocation`, or a buffer that stays the same.
    dtype, layout
        Of the array.
    """

    memory: Any
    dtype: np.dtype
    layout: Layout


# Donation


def _reference_counts(array: Any) -> tuple[int, int]:
    """Count the references to an array, and to its buffer."""
    return getrefcount(array), getrefcount(array.buffer)


class BufferDonation:
    """An update that is written to the memory of the old value, if nothing else refers to the old value.

    Parameters
    ----------
    context, location
        Of the new value.
    nbytes
        Its size.
    out
        Cell of the new value.
    holders
        How many cells refer to the old value when `acquire` is called.

    Attributes
    ----------
    binding
        Of the new value.
    reuse_count
        In how many calls the memory of the old value was used.
    """

    def __init__(self, context: Context, location: ArrayLocation, nbytes: int, out: Cell, holders: int) -> None:
        self._context, self._location, self._nbytes = context, location, nbytes
        self._out = out
        self._expected_counts = _COUNTS_OF_ONE_HOLDER[0] + holders - 1, _COUNTS_OF_ONE_HOLDER[1]
        self.binding = BufferBinding()
        self.array: GpuArray | None = None
        self.reuse_count = 0

    def acquire(self, array: GpuArray) -> None:
        """Bind the memory of the old value; new memory if something else refers to it.

        Called by a binding that holds the array in one local variable: the reference counts depend on that.
        """
        self._out[0] = None
        if _reference_counts(array) == self._expected_counts:
            self.reuse_count += 1
            self.array = array
        else:
            buffer = self._context.memory.allocate(self._nbytes)
            self.array = GpuArray(self._context, buffer, self._location.dtype, self._location.layout)
        self.binding.bind_array(self.array)

    def take(self) -> GpuArray:
        """Return the new value, and drop the reference to it."""
        array, self.array = self.array, None
        assert array is not None
        return array


class _CalibrationArray:
    """Stands for an array to which one cell refers. Reference counts differ between versions of Python."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = object()

    @staticmethod
    def acquire(array: Any) -> tuple[int, int]:
        """Count references at the depth of `BufferDonation.acquire`."""
        return _reference_counts(array)


def _count_as_bindings_do(cell: Cell) -> tuple[int, int]:
    """Count references at the depth of `SharedBinding` and `DeviceInputBinding`."""
    array = cell[0]
    return _CalibrationArray.acquire(array)


_COUNTS_OF_ONE_HOLDER = _count_as_bindings_do([_CalibrationArray()])


# Bindings of inputs


class DeviceInputBinding:
    """Binds an input of the function that is a device array.

    Parameters
    ----------
    cell
        Storage of the input.
    binding
        What is bound.
    donation
        The update that may use its memory.
    """

    def __init__(self, cell: Cell, binding: BufferBinding, donation: BufferDonation | None) -> None:
        self._cell, self._binding, self._donation = cell, binding, donation

    def __call__(self) -> None:
        """Bind the array of this call."""
        array = self._cell[0]
        if self._donation is not None:
            self._donation.acquire(array)
        self._binding.bind_array(array)


@dataclass(frozen=True)
class UploadSource:
    """The upload of a captured call, which a binding replaces.

    Attributes
    ----------
    context
        The destination.
    source, out
        Cells of the host value and of the device array.
    thunk
        The step of the upload.
    location
        Where the device array was in the captured call.
    may_stage
        Whether small values may be copied to host memory that kernels read, instead of a device buffer.
    """

    context: Context
    source: Cell
    out: Cell
    thunk: Thunk
    location: ArrayLocation
    may_stage: bool


class SharedBinding:
    """Binds the device copy of a shared variable.

    Parameters
    ----------
    upload
        Of the shared variable.
    donation
        The update that may use its memory.
    """

    def __init__(self, upload: UploadSource, donation: BufferDonation | None) -> None:
        self._upload, self._donation = upload, donation
        self._source: DeviceCell = upload.source
        self._out, self._name = upload.out, upload.context.name
        self._binding: BufferBinding = upload.location.memory
        self._layout = upload.location.layout

    def __call__(self) -> None:
        """Bind the device copy; kernel arguments stay as they are if it is the array of the last call."""
        if self._name in self._source.devices:
            self._out[0] = self._source.devices[self._name]
        else:
            self.to_device()
        array: GpuArray = self._out[0]
        if array.layout != self._layout:
            raise GuardFailure
        if self._donation is not None:
            self._donation.acquire(array)
        binding = self._binding
        if binding.array_ref() is not array:
            binding.bind_array(array)
        binding.buffer = array.buffer

    def to_device(self) -> None:
        """Put the value into the cell of the device array.

        A host array that other code may change is read in each call. If it is small, a staged copy takes 10 us less
        than an upload.
        """
        source, upload = self._source, self._upload
        is_kept = self._name in source.devices or not is_held_elsewhere(source)
        if upload.may_stage and not is_kept:
            dtype = upload.location.dtype
            staged = upload.context.stage(np.asarray(source.peek(), dtype))
            if staged is not None:
                self._out[0] = staged
                return
        upload.thunk()


class ArgumentBinding:
    """Binds an argument of the function, or a value that a host node has computed.

    Kernels of a batch read addresses from a table. `read_by_address` then lets them read the value in host memory, or a
    staged copy of it if it is small, and no buffer is made. Else the value gets a buffer in each call.

    Parameters
    ----------
    upload
        Of the value.
    is_imported
        Whether the device reads the caller's memory, if the value is contiguous.
    """

    def __init__(self, upload: UploadSource, is_imported: bool = False) -> None:
        self._upload = upload
        self._source = upload.source
        self._binding: BufferBinding = upload.location.memory
        self._dtype, self._layout = upload.location.dtype, upload.location.layout
        self._is_imported = is_imported
        self._is_staged = False
        self._misalignment = self._layout.offset * self._dtype.itemsize
        self._alignment = upload.context.info.host_alignment
        self._pointers: list[tuple[np.ndarray, int]] | None = None

    @property
    def binding(self) -> BufferBinding:
        """What is bound."""
        return self._binding

    def read_by_address(self) -> None:
        """Let kernels read host memory, where that is possible; all of them read addresses from a table."""
        self._is_staged = self._upload.context.is_small(self._layout.size * self._dtype.itemsize)
        if self._is_staged or self._is_imported:
            words = [kernel.argument_word(index) for kernel, index in self._binding.arguments]
            self._pointers = [word for word in words if word is not None]

    def __call__(self) -> None:
        """Set the kernel arguments for the value of this call."""
        pointers, value = self._pointers, self._source[0]
        if pointers is None or value.dtype != self._dtype:
            self.bind_buffer()
            return
        if self._is_staged and value.shape == self._layout.shape:
            value = np.array(value, order="C")
        elif self._is_staged or not value.flags.c_contiguous:
            self.bind_buffer()
            return
        try:
            address = addressof(c_char.from_buffer(value))  # `address_of`, without a call
        except (TypeError, ValueError, BufferError):
            address = address_of(value)  # it is read-only, or empty
        if not self._is_staged:
            if address % self._alignment != self._misalignment:
                self.bind_buffer()
                return
            address -= self._misalignment
        for table, index in pointers:
            table[index] = address
        binding = self._binding
        binding.buffer = value  # kept until the call has ended: the caller may drop it before
        binding.array_ref = _no_array

    def bind_buffer(self) -> None:
        """Make a buffer of the value, and bind it.

        Raises
        ------
        GuardFailure
            Its layout on the device differs from that of the captured call.
        """
        self.to_device()
        array = self._upload.out[0]
        if array.layout != self._layout:
            raise GuardFailure
        self._binding.bind(array.buffer)

    def to_device(self) -> None:
        """Put the value into the cell of the device array."""
        upload = self._upload
        value = self._source[0]
        staged = upload.context.stage(value) if upload.may_stage and value.dtype == self._dtype else None
        if staged is None:
            upload.thunk()
        else:
            upload.out[0] = staged


# Guards, and values of the host


class ValueTooLarge(TypeError):
    """A host value cannot be part of a signature: it is too large, or cannot be compared."""


def freeze_value(value: Any) -> tuple[tuple[int, ...], bytes]:
    """Return the shape and the bytes of a value, as a part of a signature.

    Raises
    ------
    ValueTooLarge
        The value has more than `MAX_GUARD_BYTES` bytes, or cannot be compared.
    """
    array = np.asarray(value)
    if array.nbytes > MAX_GUARD_BYTES or array.dtype == object:
        raise ValueTooLarge(
            f"launches depend on a value of the host of {array.nbytes:,} bytes, more than {MAX_GUARD_BYTES}"
        )
    return array.shape, array.tobytes()


def value_guard(cell: Cell, expected: Any) -> Thunk:
    """Return a step that checks that a host value is that of the captured call."""

    def check() -> None:
        if freeze_value(cell[0]) != expected:
            raise GuardFailure

    return check


def alias_guard(cell: Cell, binding: BufferBinding) -> Thunk:
    """Return a step that checks that two inputs share their memory, as in the captured call."""

    def check() -> None:
        if cell[0].buffer is not binding.buffer:
            raise GuardFailure

    return check


def scalar_binding(cell: Cell, convert: Any, kernel: BoundKernel, index: int) -> Thunk:
    """Return a step that passes a 0-d value to a kernel by value."""
    set_bytes = kernel.set_bytes
    return lambda: set_bytes(index, convert(cell[0][()]))


def scalar_setter(convert: Any, kernel: BoundKernel, index: int) -> Callable[[Any], None]:
    """Return a function that passes a number to a kernel by value."""
    set_bytes = kernel.set_bytes
    return lambda value: set_bytes(index, convert(value))


def constant_step(cell: Cell, value: Any) -> Thunk:
    """Return a step that puts a copy of a host value into its cell."""

    def copy() -> None:
        cell[0] = np.array(value)

    return copy
