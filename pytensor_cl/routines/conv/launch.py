"""Launches of the kernels of the conv family."""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT
from pytensor_cl.routines.conv.col2im import Col2imBlocks
from pytensor_cl.routines.conv.grad_weights import GradWeightsBlocks
from pytensor_cl.routines.conv.plan import Problem, encode
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class FusedGradient(NamedTuple):
    """A gradient that one kernel may compute.

    `convolution`: makes the convolution whose gradient it is, from the layouts of what the problems have as x, w and y.
    """

    name: str
    convolution: Callable[[Layout, Layout, Layout], Problem]


class Launch(NamedTuple):
    """Launch parameters of one problem."""

    kernel: Kernel
    encoded: bytes  # the struct conv_plan
    starts: tuple[int, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    workspace: int = 0  # size in elements
    split_k: int = 1  # number of parts of the sums; a second kernel adds them
    target: Layout | None = None  # layout in y of the sum of these parts


def with_split_k(
    launch: Launch, p: Problem, span: Sequence[int], split_k: int, blocks: Sequence[int] = (0,) * 5
) -> Launch:
    """Complete a launch whose sums fall into parts."""
    target = p.target
    if split_k > 1:
        p = p.into(Layout.contiguous(target.shape))
    return launch._replace(encoded=encode(p, span, blocks, split_k), starts=p.starts, split_k=split_k, target=target)


def col2im_launch(kernel: Kernel, p: Problem, blocks: Col2imBlocks, lanes: int, units: int) -> Launch:
    """Return the launch of kernels/conv/col2im.mako for a convolution, on a device with `units` compute units."""
    workspace = blocks.workspace_size(prod(a.taps for a in p.axes), lanes)
    items = min(ITEMS_PER_UNIT * units, p.groups * p.batch * blocks.blocks)
    encoded = encode(p, (0,) * 4, (blocks.channels, blocks.row_stride, blocks.depth, 0, workspace))
    return Launch(kernel, encoded, p.starts[::-1], (items,), (1,), workspace * items)


def grad_weights_launch(
    kernel: Kernel, p: Problem, blocks: GradWeightsBlocks, lanes: int, span: Sequence[int]
) -> Launch:
    """Return the launch of kernels/conv/grad_weights.mako for a convolution; `span`: that of x in `encode`."""
    split_k = max(1, blocks.grid[2] // p.groups)
    taps = tuple(a.taps for a in p.axes)
    target = Layout((p.groups, p.m, p.c, *taps), (*p.w, *(a.w for a in p.axes)), p.starts[1])
    if split_k > 1:
        p = p._replace(w=(p.m * p.depth, p.depth, prod(taps)), starts=(p.starts[0], 0, p.starts[2]))
    workspace = blocks.workspace_size(lanes)
    sizes = (blocks.rows, blocks.columns, blocks.row_length, blocks.in_place, workspace)
    encoded = encode(p, (*span[:2], 0, 0), sizes, split_k, p.groups * p.m * p.depth)
    starts = p.starts[0], p.starts[2], p.starts[1]
    return Launch(kernel, encoded, starts, blocks.grid, (1, 1, 1), workspace * prod(blocks.grid), split_k, target)
