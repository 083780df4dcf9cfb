"""Printing of device arrays: shape and dtype, or values where they are asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from pytensor_cl.runtime.array import GpuArray

_shows_values: ContextVar[bool] = ContextVar("shows_values", default=False)
_default = [False]


def set_printoptions(*, values: bool) -> None:
    """Choose whether ``repr`` and ``str`` of device arrays show values.

    They show shape, dtype and context by default, without waiting for the device. Values wait for it. NumPy's
    ``np.set_printoptions`` determines how they look, and from which size they are abbreviated: only the corners of
    larger arrays are copied to the host. ``f"{r:v}"`` shows the values of one array.
    """
    _default[0] = values


@contextmanager
def printoptions(*, values: bool) -> Iterator[None]:
    """Choose whether device arrays show values within a ``with`` statement (`set_printoptions`)."""
    token = _shows_values.set(values)
    try:
        yield
    finally:
        _shows_values.reset(token)


def shows_values() -> bool:
    """Return whether ``repr`` shows values."""
    return _shows_values.get() or _default[0]


def _corners(x: GpuArray, edge: int) -> Any:
    """Return the elements that an abbreviation shows, on the host: ``2 * edge + 1`` along longer dimensions."""
    for axis, n in enumerate(x.shape):
        if n > 2 * edge + 1:
            before = (slice(None),) * axis
            places = np.concatenate([np.arange(edge + 1), np.arange(n - edge, n)])
            x = x[(*before, places)]
    return x.to_host()


def values_text(x: GpuArray) -> str:
    """Return the values as NumPy prints them; what is there instead if the device fails."""
    try:
        options = np.get_printoptions()
        if x.size <= options["threshold"]:
            return np.array2string(x.to_host(), separator=", ")
        corners = _corners(x, options["edgeitems"])
        return np.array2string(corners, separator=", ", threshold=0)
    except Exception as error:  # a failing device must still be able to print its arrays
        return f"<values not available: {error}>"


def representation(x: GpuArray) -> str:
    """Return the text of ``repr`` with values."""
    return f"GpuArray({values_text(x)}, dtype={x.dtype}, context={x.context.name!r})"
