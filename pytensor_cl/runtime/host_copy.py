"""Copies of large host arrays by all threads of a device that computes in the host's memory."""

import numpy as np

from pytensor_cl.errors import OpenCLError
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.registry import get_context

LARGE = 16 << 20
"""Bytes from which such a copy is faster than NumPy's, by one thread into memory that the system has to clear first."""


def _context() -> Context | None:
    """Return the default context, if the host can see its memory."""
    try:
        context = get_context()
    except OpenCLError:  # there is no device, or not in a forked process
        return None
    return context if context.mappings.are_supported() else None


def copy_by_device(array: np.ndarray) -> np.ndarray | None:
    """Copy an array with its order in memory, as ``array.copy("K")`` does.

    Returns the copy; None if the array has gaps, or no device can copy it.
    """
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    dense = array.transpose(order)
    context = _context() if dense.flags.c_contiguous else None
    if context is None:
        return None
    flat = dense.reshape(-1).view("uint8")
    if context.misalignment(flat) is None:
        return None
    copied = context.copy(context.from_host_zero_copy(flat))
    result = context.mappings.take(copied)
    if result is None:
        return None
    return result.view(array.dtype).reshape(dense.shape).transpose(np.argsort(order))
