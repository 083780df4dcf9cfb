"""What is done in a repeated call besides enqueueing kernels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply

from pytensor_cl.linker.replay.buffer_bindings import ArrayLocation, BufferBinding, BufferDonation
from pytensor_cl.linker.steps.host import Cell, Thunk
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.host_mapping import address_of
from pytensor_cl.sharedvar import DeviceCell, is_held_elsewhere

__all__ = [
    "GuardFailure",
    "TooLarge",
    "Upload",
    "alias_step",
    "constant_step",
    "frozen",
    "guard_step",
    "input_step",
    "lending",
    "number_setter",
    "resident_step",
    "upload_step",
    "value_step",
]

MAX_GUARD_BYTES = 256
"""Bytes of a value that may tell calls apart."""


class GuardFailure(Exception):
    """A value of the call differs from the one that was recorded."""


class TooLarge(TypeError):
    """A value cannot tell calls apart: it is too large, or cannot be compared."""


def frozen(value: Any) -> Any:
    """Return a value as a part of a key.

    Raises
    ------
    TooLarge
        It is too large, or nothing that can be compared.
    """
    array = np.asarray(value)
    if array.nbytes > MAX_GUARD_BYTES or array.dtype == object:
        raise TooLarge(f"launches depend on a value of the host of {array.nbytes:,} bytes, more than {MAX_GUARD_BYTES}")
    return array.shape, array.tobytes()


def value_step(cell: Cell, convert: Any, set_bytes: Callable[[int, Any], None], index: int) -> Thunk:
    return lambda: set_bytes(index, convert(cell[0][()]))


def number_setter(set_bytes: Callable[[int, Any], None], index: int, convert: Any) -> Callable[[Any], None]:
    return lambda value: set_bytes(index, convert(value))


def constant_step(cell: Cell, value: Any) -> Thunk:
    return lambda: cell.__setitem__(0, np.array(value))


def upload_step(thunk: Thunk, cell: Cell, slot: BufferBinding, layout: Layout, _: BufferDonation | None) -> Thunk:
    def run() -> None:
        thunk()
        array = cell[0]
        if array.layout != layout:
            raise GuardFailure
        slot.bind(array.buffer)

    return run


def lending(context: Context, node: Apply, source: Cell, out: Cell, thunk: Thunk) -> Thunk:
    """Return an upload that leaves copies of small arrays in memory of the host, whose address is known.

    Parameters
    ----------
    context, node, source, out
        As those of `steps.upload_thunk`.
    thunk
        Uploads others, and shared variables whose copy stays.
    """
    dtype, name = node.inputs[0].type.numpy_dtype, context.name

    def argument() -> None:
        value = source[0]
        lent = context.lend(value) if value.dtype == dtype else None
        if lent is None:
            thunk()
        else:
            out[0] = lent

    def shared() -> None:
        stays = name in source.devices or not is_held_elsewhere(source)
        lent = None if stays else context.lend(np.asarray(source.peek(), dtype))
        if lent is None:
            thunk()
        else:
            out[0] = lent

    return shared if isinstance(source, DeviceCell) else argument


@dataclass(frozen=True)
class Upload:
    """An upload to a slot, which need not be one where kernels ask for the address alone.

    Attributes
    ----------
    thunk
        Brings the value as an array of the device, and binds it; whatever value it is.
    source
        Where the value is.
    place
        Where it is in a recorded call, as an array of the device.
    context
        Where to.
    is_in_place
        Whether it is read where it is, if it is contiguous.
    """

    thunk: Thunk
    source: Cell
    place: ArrayLocation
    context: Context
    is_in_place: bool

    def __call__(self) -> None:
        """Bring the value."""
        self.thunk()

    def direct(self) -> Thunk:
        """Return what tells kernels the address of the value, or of its copy if it is small; there is no buffer."""
        slot, dtype, layout = self.place
        pointers = slot.pointers()
        if pointers is None:
            return self.thunk
        if self.context.is_small(layout.size * dtype.itemsize):
            return _copying(self, pointers)
        return _in_place(self, pointers) if self.is_in_place else self.thunk


def _copying(upload: Upload, pointers: Sequence[tuple[np.ndarray, int]]) -> Thunk:
    thunk, source, (slot, dtype, layout) = upload.thunk, upload.source, upload.place
    shape = layout.shape

    def run() -> None:
        value = source[0]
        if value.dtype != dtype or value.shape != shape:
            thunk()
            return
        copied = np.array(value, order="C")
        address = address_of(copied)
        for words, index in pointers:
            words[index] = address
        slot.keep(copied)

    return run


def _in_place(upload: Upload, pointers: Sequence[tuple[np.ndarray, int]]) -> Thunk:
    thunk, source, (slot, dtype, layout), context = upload.thunk, upload.source, upload.place, upload.context
    before, alignment = layout.offset * dtype.itemsize, context.info.host_alignment

    def run() -> None:
        value = source[0]
        address = address_of(value) if value.dtype == dtype and value.flags.c_contiguous else 0
        if not address or address % alignment != before:
            thunk()
            return
        for words, index in pointers:
            words[index] = address - before
        slot.keep(value)  # the caller may let go of it

    return run


def resident_step(
    thunk: Thunk, cell: Cell, slot: BufferBinding, layout: Layout, donation: BufferDonation | None
) -> Thunk:
    def run() -> None:
        thunk()
        array = cell[0]
        if array.layout != layout:
            raise GuardFailure
        if donation is not None:
            donation.offer(array)
        slot.hold(array)

    return run


def input_step(cell: Cell, slot: BufferBinding, donation: BufferDonation | None) -> Thunk:
    def run() -> None:
        array = cell[0]
        if donation is not None:
            donation.offer(array)
        slot.hold(array)

    return run


def alias_step(cell: Cell, slot: BufferBinding) -> Thunk:
    """Check that two inputs share their memory, as they did."""

    def run() -> None:
        if cell[0].buffer is not slot.buffer:
            raise GuardFailure

    return run


def guard_step(cell: Cell, expected: Any) -> Thunk:
    def run() -> None:
        if frozen(cell[0]) != expected:
            raise GuardFailure

    return run
