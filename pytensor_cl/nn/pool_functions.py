"""Pooling, with the names and the argument order of Theano's ``pool_2d``."""

from collections.abc import Sequence
from typing import Any

import pytensor
from pytensor.graph.basic import Variable
from pytensor.tensor import cast
from pytensor.tensor.type import discrete_dtypes

from pytensor_cl.nn.pool import AvgPool, MaxPool
from pytensor_cl.nn.windows import as_flag, as_ints, as_pads, as_variable, refuse_keywords

MODES = ("max", "average_inc_pad", "average_exc_pad")
_ELSEWHERE = {
    "ds": "it is ws here",
    "st": "it is stride here",
    "window": "it is ws here",
    "kernel_size": "it is ws here",
    "pool_size": "it is ws here",
    "strides": "it is stride here",
    "padding": "it is pad here",
    "ceil_mode": "ignore_border=False is the same as ceil_mode=True",
    "count_include_pad": "it is mode='average_inc_pad' or mode='average_exc_pad' here",
}
"""Arguments of other libraries: how to say the same here."""


def _as_mode(name: str, mode: Any) -> str:
    if not isinstance(mode, str):
        raise TypeError(f"{name}: mode must be one of {MODES}, not {mode!r}")
    if mode not in MODES:
        raise ValueError(f"{name}: mode must be one of {MODES}, not {mode!r}")
    return mode


_DOC = """Pool the last {number}dimension{s} of an array.

Parameters
----------
input
    Shape (..., {dims}).
ws
    Length of the window: an integer, or one per dimension.
ignore_border
    Whether windows are inside the padded input; else the last one may reach out of it, as long as it does not
    begin in the padding. Theano's default was False.
stride
    From window to window: an integer, or one per dimension. None: as long as the window.
pad
    Elements at each side: an integer, or per dimension an integer or a pair (before, after). Less than the window.
mode
    ``"max"``: the largest element; padding never is. ``"average_inc_pad"``: the average, where elements of the padding
    count as zeros. ``"average_exc_pad"``: the average without padding. What a window has outside of the padded input
    never counts.

Returns
-------
TensorVariable
    Shape (..., {dims}), of the dtype of `input`; averages of integers have floatX. The gradient of the largest element
    goes to the first of several.

Raises
------
TypeError
    A parameter is not of its type, or has the name of another library; or `input` is complex and has no largest
    element.
ValueError
    A parameter has no meaning for `input`.
"""


def _make_pool(ndim: int) -> Any:
    name = f"pool_{ndim}d"

    def pool(
        input: Any,
        ws: int | Sequence[int],
        ignore_border: bool = True,
        stride: int | Sequence[int] | None = None,
        pad: Any = 0,
        mode: str = "max",
        **others: Any,
    ) -> Variable:
        refuse_keywords(name, others, _ELSEWHERE)
        x = as_variable(input, f"{name}: input")
        windows = as_ints(ws, ndim, f"{name}: ws")
        if x.type.ndim < ndim:
            raise TypeError(f"{name}: input must have {ndim} dimension(s) or more, not {x.type}")
        steps = windows if stride is None else as_ints(stride, ndim, f"{name}: stride")
        pads: Any = as_pads(pad, ndim, f"{name}: pad", modes=())
        if any(max(map(int, p)) >= k for p, k in zip(pads, windows, strict=True)):
            raise ValueError(f"{name}: pad must be less than ws={ws!r} in each dimension, not {pad!r}")
        is_partial = not as_flag(ignore_border, f"{name}: ignore_border")
        kind = _as_mode(name, mode)
        if kind == "max":
            return MaxPool(windows, steps, pads, is_partial)(x)
        if x.type.dtype in discrete_dtypes:
            x = cast(x, pytensor.config.floatX)
        return AvgPool(windows, steps, pads, is_partial, kind == "average_inc_pad")(x)

    pool.__name__ = pool.__qualname__ = name
    dims = ", ".join(("depth", "height", "width")[-ndim:]) if ndim > 1 else "length"
    pool.__doc__ = _DOC.format(number=f"{ndim} " if ndim > 1 else "", s="s" * (ndim > 1), dims=dims)
    return pool


pool_1d, pool_2d, pool_3d = map(_make_pool, (1, 2, 3))
