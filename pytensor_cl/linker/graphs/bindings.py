"""Bindings of a captured graph: steps that set the kernel arguments which differ from call to call.

A captured graph runs its bindings before and between its launches. Arguments of the function, shared variables and
results have other buffers in each call.
"""

from collections.abc import Callable
from ctypes import addressof, c_char
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytensor_cl.linker.graphs.buffer_donation import BufferDonation
from pytensor_cl.linker.graphs.buffers import ArrayLocation, BufferBinding, no_array
from pytensor_cl.linker.types import Cell, GuardFailure, Thunk
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.interfaces import BoundKernel
from pytensor_cl.runtime.memory.host_mapping import address_of
from pytensor_cl.sharedvar import DeviceCell, is_held_elsewhere

__all__ = ["ArgumentBinding", "DeviceInputBinding", "SharedBinding", "constant_step", "scalar_binding", "scalar_setter"]


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
        binding.array_ref = no_array

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
