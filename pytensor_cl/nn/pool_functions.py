"""Pooling, with the names and the argument order of Theano's ``pool_2d``, and adaptive and global pooling."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, overload

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import cast
from pytensor.tensor.type import discrete_dtypes, uint_dtypes
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn import pool as pool_ops
from pytensor_cl.nn.pool import MaxPool, MaxPoolIndices, SumPool
from pytensor_cl.nn.pool_host import Bins, Geometry, Sliding
from pytensor_cl.nn.windows import Window, as_flag, as_ints, as_pads, as_variable, refuse_keywords

MODES = ("max", *pool_ops.MODES)
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


def _pool(x: Variable, windows: Geometry, mode: str) -> Variable:
    """Return what a mode makes of windows."""
    if mode == "max":
        return MaxPool(windows)(x)
    dtype = x.type.dtype
    if dtype in discrete_dtypes:
        wide = "uint64" if dtype in uint_dtypes else "int64"
        x = cast(x, wide if mode == "sum" else pytensor.config.floatX)
    return SumPool(windows, mode)(x)


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
    Elements at each side: an integer, or per dimension an integer or a pair (before, after). Less than what the window
    reaches over, ``dilation * (ws - 1) + 1``.
mode
    ``"max"``: the largest element; padding never is. ``"sum"``. ``"average_inc_pad"``: the average, where elements of
    the padding count as zeros. ``"average_exc_pad"``: the average without padding. What a window has outside of the
    padded input never counts.
dilation
    From element to element of a window: an integer, or one per dimension.
return_indices
    Whether the result is a pair with the position of each largest element; only for mode ``"max"``.

Returns
-------
TensorVariable
    Shape (..., {dims}), of the dtype of `input`; averages of integers have floatX, sums int64 or uint64. The gradient
    of the largest element goes to the first of several. With `return_indices` a list of this and the indices, int64,
    of the elements in the flattened dimensions that are pooled. A window that is dilated over the padding may have no
    element: then the largest is the lowest value there is, with the index -1, the average zero.

Raises
------
TypeError
    A parameter is not of its type, or has the name of another library; or `input` is complex and has no largest
    element.
ValueError
    A parameter has no meaning for `input`.
"""


class Pooling(Protocol):
    """Type of ``pool_1d``, ``pool_2d`` and ``pool_3d``."""

    @overload
    def __call__(
        self,
        input: Any,
        ws: int | Sequence[int],
        ignore_border: bool = True,
        stride: int | Sequence[int] | None = None,
        pad: Any = 0,
        mode: str = "max",
        *,
        dilation: int | Sequence[int] = 1,
        return_indices: Literal[False] = False,
    ) -> TensorVariable:
        """Return the windows' results."""

    @overload
    def __call__(
        self,
        input: Any,
        ws: int | Sequence[int],
        ignore_border: bool = True,
        stride: int | Sequence[int] | None = None,
        pad: Any = 0,
        mode: str = "max",
        *,
        dilation: int | Sequence[int] = 1,
        return_indices: Literal[True],
    ) -> list[TensorVariable]:
        """Return the windows' largest elements, and their positions."""


def _make_pool(ndim: int) -> Pooling:
    name = f"pool_{ndim}d"

    def pool(
        input: Any,
        ws: int | Sequence[int],
        ignore_border: bool = True,
        stride: int | Sequence[int] | None = None,
        pad: Any = 0,
        mode: str = "max",
        *,
        dilation: int | Sequence[int] = 1,
        return_indices: bool = False,
        **others: Any,
    ) -> Any:
        refuse_keywords(name, others, _ELSEWHERE)
        x = as_variable(input, f"{name}: input")
        extents = as_ints(ws, ndim, f"{name}: ws")
        if x.type.ndim < ndim:
            raise TypeError(f"{name}: input must have {ndim} dimension(s) or more, not {x.type}")
        steps = extents if stride is None else as_ints(stride, ndim, f"{name}: stride")
        spread = as_ints(dilation, ndim, f"{name}: dilation")
        pads: Any = as_pads(pad, ndim, f"{name}: pad", modes=())
        windows = tuple(Window(k, s, d, *p) for k, s, d, p in zip(extents, steps, spread, pads, strict=True))
        if any(max(w.before, w.after) >= w.reach for w in windows):
            raise ValueError(f"{name}: pad must be less than what ws={ws!r} reaches over, not {pad!r}")
        sliding = Sliding(windows, not as_flag(ignore_border, f"{name}: ignore_border"))
        mode = _as_mode(name, mode)
        if not as_flag(return_indices, f"{name}: return_indices"):
            return _pool(x, sliding, mode)
        if mode != "max":
            raise ValueError(f"{name}: return_indices is only for mode='max', not {mode!r}")
        return [MaxPool(sliding)(x), MaxPoolIndices(sliding)(x)]

    pool.__name__ = pool.__qualname__ = name
    dims = ", ".join(("depth", "height", "width")[-ndim:]) if ndim > 1 else "length"
    pool.__doc__ = _DOC.format(number=f"{ndim} " if ndim > 1 else "", s="s" * (ndim > 1), dims=dims)
    return pool


pool_1d, pool_2d, pool_3d = map(_make_pool, (1, 2, 3))


def adaptive_pool(input: Any, output_size: int | Sequence[int | None], mode: str = "max") -> TensorVariable:
    """Pool so that the result has given lengths: window i of m has the elements floor(i n / m) to ceil((i + 1) n / m).

    Parameters
    ----------
    input
        Shape (..., n1, n2...): the last 1 to 3 dimensions are pooled.
    output_size
        Lengths of the result, one for each dimension that is pooled, None for a dimension that stays as it is. An
        integer is for all dimensions but the first two, which are the batch and the channels.
    mode
        The mode of `pool_2d`; there is no padding, so that both averages are the same.

    Returns
    -------
    TensorVariable
        Shape (..., m1, m2...), of the dtype that `pool_2d` gives.

    Raises
    ------
    TypeError
        A parameter is not of its type, or `input` is complex and has no largest element.
    ValueError
        A parameter has no meaning for `input`, or there is nothing to pool; what static shapes do not show is found
        when the function is called.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pytensor_cl import nn
    >>> images = pt.tensor(shape=(None, 3, None, None))
    >>> nn.adaptive_pool(images, 7, mode="average_exc_pad").type.shape
    (None, 3, 7, 7)
    """
    x = as_variable(input, "adaptive_pool: input")
    mode = _as_mode("adaptive_pool", mode)
    is_for_all = not isinstance(output_size, Sequence) or isinstance(output_size, str)
    ndim = x.type.ndim - 2 if is_for_all else len(output_size)  # type: ignore[arg-type]
    if not 1 <= ndim <= min(3, x.type.ndim):
        raise ValueError(
            f"adaptive_pool: output_size={output_size!r} is for {ndim} dimensions: needed are 1 to 3 that {x.type} has"
        )
    sizes = [output_size] * ndim if is_for_all else list(output_size)  # type: ignore[arg-type]
    numbers = as_ints([1 if n is None else n for n in sizes], ndim, "adaptive_pool: output_size")
    kept = [d for d, n in enumerate(sizes) if n is None]
    if not kept:
        return _pool(x, Bins(numbers), mode)
    # Dimensions that stay are put before those that are pooled.
    first = x.type.ndim - ndim
    pooled = [d for d in range(ndim) if d not in kept]
    if not pooled:
        raise ValueError(f"adaptive_pool: output_size={output_size!r} has no number")
    order = [*range(first), *(first + d for d in (*kept, *pooled))]
    y = _pool(x.dimshuffle(order), Bins(tuple(numbers[d] for d in pooled)), mode)
    return y.dimshuffle([order.index(d) for d in range(x.type.ndim)])


def global_pool(input: Any, mode: str = "average_exc_pad") -> TensorVariable:
    """Pool all of each channel.

    Parameters
    ----------
    input
        Shape (N, C, ...): a batch of signals with C channels.
    mode
        The mode of `pool_2d`; there is no padding, so that both averages are the same.

    Returns
    -------
    TensorVariable
        Shape (N, C), of the dtype that `pool_2d` gives.

    Raises
    ------
    TypeError
        `input` has less than three dimensions, or is complex and has no largest element.
    ValueError
        There is no such mode; or channels have no elements, of which there is no largest.
    """
    x = as_variable(input, "global_pool: input")
    if x.type.ndim < 3:
        raise TypeError(f"global_pool: input must have three dimensions or more (batch, channels, space), not {x.type}")
    mode = _as_mode("global_pool", mode)
    axes = tuple(range(2, x.type.ndim))
    if mode == "max":  # as pooling: its gradient goes to the first of several largest elements
        rows = x.reshape((x.shape[0], x.shape[1], pt.prod(x.shape[2:])))  # -1 has no meaning for an empty batch
        return adaptive_pool(rows, (1,))[..., 0]
    return x.sum(axis=axes) if mode == "sum" else x.mean(axis=axes)
