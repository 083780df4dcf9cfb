"""Thunks of device nodes and transfers, and the cells through which nodes read shared variables."""

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.linker.types import Cell, Thunk
from pytensor_cl.ops.base import Routine
from pytensor_cl.ops.transfer import download
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.sharedvar import DeviceCell


def _reference_count(cell: Cell) -> int:
    """Count the references to the value of a cell; the count includes this function's references."""
    value = cell[0]
    return getrefcount(value)


_ONE_HOLDER = _reference_count([object()])
"""The count for a value that only one cell refers to. How many references the function adds differs between versions of
Python, so it is measured."""
MAX_OFFSETS = 3
"""Different misalignments of one argument that get captured graphs of their own; at others it is copied."""
ALWAYS_IMPORT_BYTES = 1 << 19
"""Size in bytes from which arguments are never copied: a copy of fewer takes 10 to 30 us."""


class ArgumentImporter:
    """Imports arguments into device buffers without a copy, where the device can read host memory.

    Kernels then depend on the misalignment of an array: its distance from the last address at which a buffer may begin.
    Each misalignment needs a captured graph of its own. So small arrays with many different misalignments are copied.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._misalignments: set[int] = set()

    def misalignment(self, array: np.ndarray) -> int | None:
        """Return the distance in bytes from the last address at which a buffer may begin; None to copy the array."""
        misalignment = self._context.misalignment(array)
        if misalignment is None or array.nbytes >= ALWAYS_IMPORT_BYTES:
            return misalignment
        self._misalignments.add(misalignment)
        return misalignment if len(self._misalignments) <= MAX_OFFSETS else None

    def __call__(self, array: np.ndarray) -> GpuArray:
        """Import or upload an array, as `misalignment` has decided."""
        if len(self._misalignments) > MAX_OFFSETS and array.nbytes < ALWAYS_IMPORT_BYTES:
            return self._context.from_host(array, borrow=True)
        return self._context.from_host_zero_copy(array)


def device_thunk(routine: Routine, inputs: Sequence[Cell], outputs: Sequence[Cell], by_value: Sequence[bool]) -> Thunk:
    """Return the thunk of a device node: it enqueues the node's kernels.

    Inputs that are 0-d arrays of the host, marked in `by_value`, are passed as NumPy scalars.
    """
    pairs = tuple(zip(inputs, by_value, strict=True))
    has_scalars = any(by_value)

    def values() -> list[Any]:
        if not has_scalars:
            return [c[0] for c in inputs]
        return [c[0][()] if scalar else c[0] for c, scalar in pairs]

    def one() -> None:
        (out[0],) = routine(*values())

    def several() -> None:
        for cell, value in zip(outputs, routine(*values()), strict=True):
            cell[0] = value

    out = outputs[0]
    return one if len(outputs) == 1 else several


def upload_thunk(context: Context, node: Apply, source: Cell, out: Cell, upload: Callable[[Any], GpuArray]) -> Thunk:
    """Return the thunk of an upload: constants are uploaded once, shared variables when they have changed.

    `upload` makes a device array of an argument, or of a value that a host node has computed.
    """
    name, dtype = context.name, node.inputs[0].type.numpy_dtype

    def shared() -> None:
        out[0] = source.device(name)

    def each_call() -> None:
        value = source[0]
        if value.dtype != dtype:  # a function with trust_input=True checks nothing
            if value.dtype.newbyteorder("=") != dtype:
                raise TypeError(f"expected an array with dtype={dtype} (got {value.dtype})")
            source[0] = value = value.astype(dtype)
        out[0] = upload(value)

    if isinstance(source, DeviceCell):
        return shared
    if isinstance(node.inputs[0], Constant):
        return _constant_thunk(context, np.asarray(node.inputs[0].data), out)
    return each_call


def _constant_thunk(context: Context, value: np.ndarray, out: Cell) -> Thunk:
    """Upload a constant now. If the device has no memory for it, the thunk tries again: the error names the node."""
    try:
        array: GpuArray | None = context.from_host(value)
    except OutOfDeviceMemory:
        array = None

    def constant() -> None:
        nonlocal array
        if array is None:
            if context.queue.capture is not None:
                context.queue.capture.unsupported = "a constant was uploaded late"
            array = context.from_host(value)
        out[0] = array

    return constant


def download_thunk(source: Cell, out: Cell, exclusive: bool) -> Thunk:
    """Return the thunk of a download: it waits for the device.

    If nothing reads the device array after the call (`exclusive`), and the host can read its memory, the memory becomes
    the result.
    """

    def copy() -> None:
        out[0] = download(source[0])

    def export() -> None:
        is_exclusive = _reference_count(source) <= _ONE_HOLDER  # before `array` is one more
        array = source[0]
        host = array.context.mappings.take(array) if is_exclusive else None
        out[0] = download(array) if host is None else host

    return export if exclusive else copy
