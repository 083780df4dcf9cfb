"""What is done in a repeated call besides enqueueing kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply

from pytensor_cl.linker.host import Cell, Thunk
from pytensor_cl.linker.slots import Donation, Slot
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.sharedvar import DeviceCell, is_held_elsewhere

__all__ = [
    "Mismatch",
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

LARGEST_KEY = 256
"""Bytes of a value that may tell calls apart."""


class Mismatch(Exception):
    """A value of the call differs from the one that was recorded."""


def frozen(value: Any) -> Any:
    """Return a value as a part of a key.

    Raises
    ------
    TypeError
        It is too large, or nothing that can be compared.
    """
    array = np.asarray(value)
    if array.nbytes > LARGEST_KEY or array.dtype == object:
        raise TypeError("no value that tells calls apart")
    return array.shape, array.tobytes()


def value_step(cell: Cell, convert: Any, set_bytes: Callable[[int, Any], None], index: int) -> Thunk:
    return lambda: set_bytes(index, convert(cell[0][()]))


def number_setter(set_bytes: Callable[[int, Any], None], index: int, convert: Any) -> Callable[[Any], None]:
    return lambda value: set_bytes(index, convert(value))


def constant_step(cell: Cell, value: Any) -> Thunk:
    return lambda: cell.__setitem__(0, np.array(value))


def upload_step(thunk: Thunk, cell: Cell, slot: Slot, layout: Layout, _: Donation | None) -> Thunk:
    def run() -> None:
        thunk()
        array = cell[0]
        if array.layout != layout:
            raise Mismatch
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


def resident_step(thunk: Thunk, cell: Cell, slot: Slot, layout: Layout, donation: Donation | None) -> Thunk:
    def run() -> None:
        thunk()
        array = cell[0]
        if array.layout != layout:
            raise Mismatch
        if donation is not None:
            donation.offer(array)
        slot.hold(array)

    return run


def input_step(cell: Cell, slot: Slot, donation: Donation | None) -> Thunk:
    def run() -> None:
        array = cell[0]
        if donation is not None:
            donation.offer(array)
        slot.hold(array)

    return run


def alias_step(cell: Cell, slot: Slot) -> Thunk:
    """Check that two inputs share their memory, as they did."""

    def run() -> None:
        if cell[0].buffer is not slot.buffer:
            raise Mismatch

    return run


def guard_step(cell: Cell, expected: Any) -> Thunk:
    def run() -> None:
        if frozen(cell[0]) != expected:
            raise Mismatch

    return run
