"""Thunks of device nodes and transfers, and the cells through which nodes read shared variables."""

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.linker.steps.host import Cell, Thunk
from pytensor_cl.ops.base import Routine
from pytensor_cl.ops.transfer import download
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.sharedvar import DeviceCell

__all__ = [
    "CopyOnReadCell",
    "HostImporter",
    "PeekCell",
    "ShapeOnlyCell",
    "device_thunk",
    "download_thunk",
    "read_only",
    "upload_thunk",
]


def _references(cell: Cell) -> int:
    """Count the references to what is in a cell; the count includes some of this function's own."""
    value = cell[0]
    return getrefcount(value)


_SOLE = _references([object()])
"""References to an array that only one cell holds: versions of Python count differently."""


BEGINNINGS, LONG_COPY = 3, 1 << 19
"""Different places at which an argument may begin before it is copied, if it has less than so many bytes: that takes
10 to 30 us more."""


class PeekCell:
    """Reads a shared variable's host value without giving up its device copies.

    Parameters
    ----------
    cell
        The shared variable's storage.
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: DeviceCell) -> None:
        self._cell = cell

    def __getitem__(self, index: int) -> Any:
        return self._cell.peek()


class CopyOnReadCell(PeekCell):
    """Gives a copy of a shared variable's value to a node that changes it: a failed call must change nothing."""

    __slots__ = ()

    def __getitem__(self, index: int) -> Any:
        return np.array(self._cell.peek())


class ShapeOnlyCell(PeekCell):
    """Reads a shared variable where it is: a device array has the shape too."""

    __slots__ = ()

    def __getitem__(self, index: int) -> Any:
        return self._cell.anywhere()


class HostImporter:
    """Brings arguments to the device, where they are if that can be; kernels then depend on where they begin.

    Arrays that begin anywhere would each want a recording of its own, so those that are quickly copied then are.

    Parameters
    ----------
    context
        Where to.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: set[int] = set()

    def slack(self, array: np.ndarray) -> int | None:
        """Return how many bytes before the array the device begins to read; None if it gets a copy."""
        slack = self._context.slack(array)
        if slack is None or array.nbytes >= LONG_COPY:
            return slack
        self._seen.add(slack)
        return slack if len(self._seen) <= BEGINNINGS else None

    def __call__(self, array: np.ndarray) -> GpuArray:
        """Bring an array, whose `slack` was asked for if it makes a difference."""
        if len(self._seen) > BEGINNINGS and array.nbytes < LONG_COPY:
            return self._context.from_host(array, borrow=True)
        return self._context.wrap(array)


def read_only(cell: Cell) -> Cell:
    """Return what reads a cell and leaves a shared variable where it is."""
    return PeekCell(cell) if isinstance(cell, DeviceCell) else cell


def device_thunk(routine: Routine, inputs: Sequence[Cell], outputs: Sequence[Cell], by_value: Sequence[bool]) -> Thunk:
    """Enqueue a device node.

    Parameters
    ----------
    routine
        What computes it.
    inputs, outputs
        Its storage cells.
    by_value
        Which inputs are 0-d arrays of the host that the routine takes as NumPy scalars.
    """
    pairs = tuple(zip(inputs, by_value, strict=True))
    plain = not any(by_value)

    def values() -> list[Any]:
        if plain:
            return [c[0] for c in inputs]
        return [c[0][()] if scalar else c[0] for c, scalar in pairs]

    def one() -> None:
        (out[0],) = routine(*values())

    def several() -> None:
        for cell, value in zip(outputs, routine(*values()), strict=True):
            cell[0] = value

    out = outputs[0]
    return one if len(outputs) == 1 else several


def upload_thunk(context: Context, node: Apply, source: Cell, out: Cell, bring: Callable[[Any], GpuArray]) -> Thunk:
    """Bring a host value to the device: a shared variable's where it is, a constant's once, others each time.

    Parameters
    ----------
    context
        Where to.
    node
        The upload.
    source, out
        Its storage cells.
    bring
        Makes a device array of a value that is not on the device yet.
    """
    name, dtype = context.name, node.inputs[0].type.numpy_dtype

    def resident() -> None:
        out[0] = source.device(name)

    def each_time() -> None:
        value = source[0]
        if value.dtype != dtype:  # a function that trusts its inputs lets anything in
            raise TypeError(f"expected an array with dtype={dtype} (got {value.dtype})")
        out[0] = bring(value)

    if isinstance(source, DeviceCell):
        return resident
    if isinstance(node.inputs[0], Constant):
        return constant_thunk(context, np.asarray(node.inputs[0].data), out)
    return each_time


def constant_thunk(context: Context, value: np.ndarray, out: Cell) -> Thunk:
    """Upload a constant now; if the device has no room for it, when it is needed: the error then names the node."""
    try:
        array: GpuArray | None = context.from_host(value)
    except OutOfDeviceMemory:
        array = None

    def constant() -> None:
        nonlocal array
        if array is None:
            if context.queue.recorder is not None:
                context.queue.recorder.trouble = "a constant was uploaded late"
            array = context.from_host(value)
        out[0] = array

    return constant


def download_thunk(source: Cell, out: Cell, sole: bool) -> Thunk:
    """Wait for a device array and bring it to the host.

    Parameters
    ----------
    source, out
        Storage cells.
    sole
        Nobody reads the device array after the call, so that its memory may become the host's where it can be reached.
    """

    def copy() -> None:
        out[0] = download(source[0])

    def move() -> None:
        is_sole = _references(source) <= _SOLE  # before there is one more
        array = source[0]
        host = array.context.views.hand_over(array) if is_sole else None
        out[0] = download(array) if host is None else host

    return move if sole else copy
