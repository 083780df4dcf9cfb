"""Windows that slide along the dimensions of an array: how many there are, and what they see."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

__all__ = ["Pads", "Window", "as_ints", "as_pads", "known", "padded", "pool_positions", "positions", "resolve", "views"]

Pad = tuple[int, int] | str
Pads = tuple[Pad, ...]

BORDER_MODES = ("half", "full")


class Window(NamedTuple):
    """A window along one dimension; `extent` and paddings may be symbolic."""

    extent: Any
    stride: int = 1
    dilation: int = 1
    before: Any = 0
    after: Any = 0

    @property
    def reach(self) -> Any:
        """Elements from the first to the last that a window sees."""
        return (self.extent - 1) * self.dilation + 1


def as_ints(value: int | Sequence[int], ndim: int, name: str) -> tuple[int, ...]:
    """Return one positive integer per dimension.

    Raises
    ------
    ValueError
        There are not so many, or one is not positive.
    """
    values = (value,) * ndim if isinstance(value, int | np.integer) else tuple(value)
    if len(values) != ndim or any(int(v) != v or v < 1 for v in values):
        raise ValueError(f"{name} must be a positive integer, or {ndim} of them, not {value!r}")
    return tuple(int(v) for v in values)


def _as_pad(value: Any) -> Pad:
    if isinstance(value, str):
        return value
    pad = (value, value) if isinstance(value, int | np.integer) else tuple(value)
    if len(pad) != 2 or any(int(p) != p or p < 0 for p in pad):
        raise ValueError(f"padding must be an integer from 0, or one before and one after, not {value!r}")
    return int(pad[0]), int(pad[1])


def as_pads(value: Any, ndim: int) -> Pads:
    """Return per dimension the padding before and after, or the name of a border mode that tells when it is known.

    Raises
    ------
    ValueError
        There are not so many, one is negative, or there is no such border mode.
    """
    if isinstance(value, str) and value not in (*BORDER_MODES, "valid"):
        raise ValueError(f"border_mode must be valid, half, full, or paddings, not {value!r}")
    if isinstance(value, str | int | np.integer):
        value = (0 if value == "valid" else value,) * ndim
    if len(value) != ndim:
        raise ValueError(f"border_mode {value!r} is not for {ndim} dimensions")
    return tuple(map(_as_pad, value))


def resolve(pad: Pad, extent: Any, dilation: int) -> tuple[Any, Any]:
    """Return the padding before and after for a window of that extent."""
    if not isinstance(pad, str):
        return pad
    reach = (extent - 1) * dilation + 1
    width = reach // 2 if pad == "half" else reach - 1
    return width, width


def known(*values: Any) -> bool:
    """Whether none is None, as static lengths are that PyTensor does not know."""
    return all(v is not None for v in values)


def _at_least_zero(count: Any, is_meant: Any) -> Any:
    """Return a number of places; none where it makes no sense."""
    if isinstance(count, Variable) or isinstance(is_meant, Variable):
        return pt.switch(is_meant & pt.ge(count, 0), count, 0)
    return max(count, 0) if is_meant else 0


def positions(length: Any, window: Window) -> Any:
    """Return how many places a kernel has along a dimension; `length` may be symbolic."""
    room = length + window.before + window.after - window.reach
    return _at_least_zero(room // window.stride + 1, window.extent > 0)


def pool_positions(length: Any, window: Window, ceil: bool) -> Any:
    """Return how many places a pooling window has along a dimension; `length` may be symbolic.

    With `ceil` the last window may reach out of the padded dimension, if it begins before its end and not in the
    padding behind it. There is none where there is nothing to pool.
    """
    room = length + window.before + window.after - window.reach
    if not ceil:
        return _at_least_zero(room // window.stride + 1, length > 0)
    count = -(-room // window.stride) + 1
    begins_behind = (count - 1) * window.stride >= length + window.before
    one = pt.cast(begins_behind, "int64") if isinstance(count, Variable) else int(begins_behind)
    return _at_least_zero(count - one, length > 0)


def padded(x: np.ndarray, windows: Sequence[Window], counts: Sequence[int], fill: Any) -> np.ndarray:
    """Return `x` with padding about its last dimensions, so that so many windows fit into each."""
    leading = x.ndim - len(windows)
    widths = [(0, 0)] * leading
    for n, w, count in zip(x.shape[leading:], windows, counts, strict=True):
        end = (count - 1) * w.stride + w.reach
        widths.append((w.before, max(w.after, end - n - w.before)))
    return np.pad(x, widths, constant_values=fill) if np.any(widths) else x


def views(x: np.ndarray, windows: Sequence[Window], counts: Sequence[int]) -> np.ndarray:
    """Return what windows see of the last dimensions of a padded array.

    Parameters
    ----------
    x
        Shape (..., n1, n2...); all windows fit.
    windows, counts
        Per dimension the window, and how many places it takes; none is zero.

    Returns
    -------
    ndarray
        Shape (..., counts..., extents...); a view.
    """
    leading, strides = x.ndim - len(windows), x.strides
    steps = [s * w.stride for s, w in zip(strides[leading:], windows, strict=True)]
    inside = [s * w.dilation for s, w in zip(strides[leading:], windows, strict=True)]
    shape = (*x.shape[:leading], *counts, *(w.extent for w in windows))
    return np.lib.stride_tricks.as_strided(x, shape, (*strides[:leading], *steps, *inside), writeable=x.flags.writeable)
