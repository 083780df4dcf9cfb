"""How the kernels of the conv family are launched."""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from pytensor_cl.routines.conv.col2im import Fold
from pytensor_cl.routines.conv.grad_weights import Weights
from pytensor_cl.routines.conv.plan import Problem, encode
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

__all__ = ["Launch", "Whole", "fold_launch", "in_parts", "weights_launch"]


class Whole(NamedTuple):
    """A gradient that one kernel may compute.

    Attributes
    ----------
    name
        Of the variant: "fold" or "weights".
    convolution
        Makes the convolution whose gradient it is, from the layouts of what the problems have as x, w and y.
    """

    name: str
    convolution: Callable[[Layout, Layout, Layout], Problem]


class Launch(NamedTuple):
    """How to launch one problem."""

    kernel: Kernel
    encoded: bytes  # conv_plan
    starts: tuple[int, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    scratch: int = 0  # elements
    parts: int = 1  # of the sums, which are added up in the end
    target: Layout | None = None  # of their sum, in y


def in_parts(launch: Launch, p: Problem, span: Sequence[int], parts: int, blocks: Sequence[int] = (0,) * 5) -> Launch:
    """Complete a launch whose sums fall into parts."""
    target = p.target
    if parts > 1:
        p = p.into(Layout.contiguous(target.shape))
    return launch._replace(encoded=encode(p, span, blocks, parts), starts=p.starts, parts=parts, target=target)


def fold_launch(kernel: Kernel, p: Problem, fold: Fold, lanes: int, units: int) -> Launch:
    """Return how to launch conv_fold.mako for a convolution, on a device with so many compute units."""
    scratch = fold.scratch(prod(a.taps for a in p.axes), lanes)
    items = min(4 * units, p.groups * p.batch * fold.blocks)
    encoded = encode(p, (0,) * 4, (fold.channels, fold.apart, fold.depth, 0, scratch))
    return Launch(kernel, encoded, p.starts[::-1], (items,), (1,), scratch * items)


def weights_launch(kernel: Kernel, p: Problem, weights: Weights, lanes: int, span: Sequence[int]) -> Launch:
    """Return how to launch conv_weights.mako for a convolution; `span` is that of x, as of `encode`."""
    parts = max(1, weights.grid[2] // p.groups)
    taps = tuple(a.taps for a in p.axes)
    target = Layout((p.groups, p.m, p.c, *taps), (*p.w, *(a.w for a in p.axes)), p.starts[1])
    if parts > 1:
        p = p._replace(w=(p.m * p.depth, p.depth, prod(taps)), starts=(p.starts[0], 0, p.starts[2]))
    scratch = weights.scratch(lanes)
    blocks = (weights.rows, weights.columns, weights.wide, weights.in_place, scratch)
    encoded = encode(p, (*span[:2], 0, 0), blocks, parts, p.groups * p.m * p.depth)
    starts = p.starts[0], p.starts[2], p.starts[1]
    return Launch(kernel, encoded, starts, weights.grid, (1, 1, 1), scratch * prod(weights.grid), parts, target)
