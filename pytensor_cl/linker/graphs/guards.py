"""Guards: checks that values of a call are those for which a graph was captured."""

from typing import Any

import numpy as np

from pytensor_cl.linker.graphs.buffers import BufferBinding
from pytensor_cl.linker.types import Cell, GuardFailure, Thunk

__all__ = ["ValueTooLarge", "alias_guard", "freeze_value", "value_guard"]

MAX_GUARD_BYTES = 256
"""Bytes of a host value that may be part of a signature, or of a guard."""


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
