"""Schedule cpu of convolutions: the method for a problem, and its partition among work-items."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm, prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.integers import balanced_block, ceil_div, round_up
from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT
from pytensor_cl.routines.conv import col2im, fourier, grad_weights, winograd
from pytensor_cl.routines.conv.im2col import Im2colSchedule
from pytensor_cl.routines.conv.limits import (
    DEPTHWISE_ROWS,
    DIRECT_BLOCKS,
    DOT_OUTPUTS,
    FEW_INPUT_CHANNELS,
    FEW_OUTPUT_CHANNELS,
    FOURIER_RATES,
    IMPLICIT_GEMM_TILES,
    LOAD_COST,
    PACK_COST,
)
from pytensor_cl.routines.conv.method import Elements, Method, Partition
from pytensor_cl.routines.conv.plan import Problem, is_large_pointwise


def _grid(p: Problem, rows: int, vectors: int, lanes: int, items: int, packed: int) -> tuple[int, int, int]:
    """Split a problem among work-items along columns, rows and groups, for the least work of the slowest one.

    `packed` columns are packed at a time.
    """
    z = min(p.groups, items)
    tiles_m, tiles_n = ceil_div(p.m, rows), ceil_div(p.columns, vectors * lanes)
    left = ceil_div(items, z)

    def cost(x: int) -> float:
        y = min(left // x, tiles_m)
        tiles = ceil_div(tiles_n, x) * ceil_div(tiles_m, y)
        columns, blocks = p.columns / x, ceil_div(p.columns, x * packed)
        return tiles * rows * vectors + LOAD_COST * columns / lanes + PACK_COST * p.m / y * blocks

    x = min(range(1, min(left, tiles_n) + 1), key=cost)
    return x, max(1, min(left // x, tiles_m)), z


def _depths(p: Problem, depth: int, limit: int, step: int, gather: str) -> tuple[int, int]:
    """Return how much of `depth` is packed, and how much of that is read, at a time: whole channels if they fit."""
    taps = prod(a.taps for a in p.axes)
    unit = lcm(taps, 4)  # whole vectors of packed w
    if unit > limit:
        taps, unit = 1, 16
    block = balanced_block(depth, limit, unit)
    return block, block if gather == "columns" else taps * max(1, step // taps)


def _is_along_taps(p: Problem) -> bool:
    """Return whether rows of taps are longer than rows of output pixels, as in gradients of weights."""
    last = p.axes[-1]
    return last.taps > last.out and last.dilation > 0


def _has_few_channels(p: Problem) -> bool:
    return p.m <= FEW_OUTPUT_CHANNELS or (p.m <= 2 * FEW_OUTPUT_CHANNELS and p.c <= FEW_INPUT_CHANNELS)


@dataclass(frozen=True)
class CpuSchedule:
    """Facts of a device and of a routine that decide how schedule cpu computes a problem.

    `register_bytes`: width of the device's vector registers; `lanes`: elements of a vector; `units`: compute units;
    `tuning`: parameters of ``runtime/tuning.py``; `direct`: whether Fourier transforms are ruled out.
    """

    dtype: np.dtype
    register_bytes: int
    lanes: int
    units: int
    tuning: Mapping[str, int]
    direct: bool = False

    @cached_property
    def im2col(self) -> Im2colSchedule:
        """The schedule of kernels that read filters in place."""
        return Im2colSchedule(self.dtype, self.register_bytes, self.lanes)

    @property
    def tiles(self) -> tuple[tuple[int, int], ...]:
        """Rows and vectors of the register tiles of the kernel that packs its operands."""
        return IMPLICIT_GEMM_TILES.get(self.register_bytes, IMPLICIT_GEMM_TILES[16])

    # --- methods ---

    def method(self, p: Problem) -> Method:
        """Return the method for a simplified problem."""
        first = next(candidate for candidate in _CANDIDATES if candidate.is_applicable(self, p))
        return Method(first.name, first.parameters(self, p))

    def is_fourier(self, p: Problem) -> bool:
        """Return whether Fourier transforms take less time than the method that a problem would have else."""
        along = _is_along_taps(p)
        few = p.m <= FEW_OUTPUT_CHANNELS // 2 if along else p.m == 1 or _has_few_channels(p)
        rate = FOURIER_RATES["dot" if along and few else "direct" if few else "product"]
        return not self.direct and fourier.is_profitable(p, self.dtype.itemsize, rate)

    def direct_block(self, p: Problem, count: int) -> tuple[int, int]:
        """Return rows and vectors of what the direct kernels compute at a time, if there are `count` rows."""
        rows = next(r for r in DIRECT_BLOCKS if count <= r or r == max(DIRECT_BLOCKS))
        needed = ceil_div(p.axes[-1].out, self.lanes)
        return rows, next(v for v in DIRECT_BLOCKS[rows] if v < 2 * needed)

    def tile(self, p: Problem) -> tuple[int, int]:
        """Return rows and vectors of the register tile with the least redundant work."""

        def computed(tile: tuple[int, int]) -> int:
            rows, vectors = tile
            whole, rest = divmod(ceil_div(p.columns, self.lanes), vectors)
            return round_up(p.m, rows) * (whole * vectors + (min(rest, 1) if rest < 2 else vectors))

        return min(self.tiles, key=computed)

    # --- partitions ---

    def partition(self, p: Problem, method: Method) -> Partition | Elements:
        """Return the partition of a simplified problem, for a method with a kernel of its own."""
        return _PARTITIONS[method.name](self, p, method)

    def _elements(self, p: Problem, method: Method) -> Elements:
        return Elements(p.size, 1)

    def _direct(self, p: Problem, method: Method) -> Partition:
        items = max(1, min(ITEMS_PER_UNIT * self.units, p.size * p.depth // self.tuning["conv.grain"]))
        return Partition((items,), (1,))

    def _items(self, p: Problem) -> int:
        """Return how many work-items a problem is worth."""
        return min(self.units, p.size * p.depth // self.tuning["conv.grain"] + 1)

    def _split_k(self, p: Problem, grid: Sequence[int]) -> int:
        """Return into how many parts the sums fall, if the outputs are split among `grid`."""
        if grid[2] != p.groups:
            return 1
        return max(1, min(self._items(p) // prod(grid), p.depth // self.tuning["conv.part"]))

    def _implicit_gemm(self, p: Problem, method: Method) -> Partition:
        gather, rows, vectors = (str(method.parameters[0]), *map(int, map(str, method.parameters[1:])))
        tuning = self.tuning
        x, y, z = grid = _grid(p, rows, vectors, self.lanes, self._items(p), tuning["conv.block_columns"])
        split_k = self._split_k(p, grid)
        limit = tuning["conv.depth_bytes"] // self.dtype.itemsize
        kc, step = _depths(p, ceil_div(p.depth, split_k), limit, tuning["conv.step"], gather)
        mc = balanced_block(ceil_div(p.m, y), tuning["conv.block_rows"], rows)
        nc = balanced_block(ceil_div(p.columns, x), tuning["conv.block_columns"], vectors * self.lanes)
        workspace = kc * (mc + nc)
        size = x, y, z * split_k
        return Partition(size, (1, 1, 1), workspace * prod(size), split_k, (mc, nc, kc, step, workspace))

    def _im2col(self, p: Problem, method: Method) -> Partition:
        items = self._items(p)
        x, y, z = grid = self.im2col.split(p, items).grid
        split_k = self._split_k(p, grid)
        blocks = self.im2col.split(p, items, split_k)
        workspace = self.im2col.workspace_size(blocks)
        size = x, y, z * split_k
        blocking = (0, blocks.columns, blocks.depth, 0, workspace)
        return Partition(size, (1, 1, 1), workspace * prod(size), split_k, blocking)

    # --- gradients in one kernel ---

    def col2im(self, phases: Sequence[Problem], p: Problem) -> col2im.Col2imBlocks | None:
        """Return the blocks of one kernel for the gradient of inputs, all phases; None: another method is better.

        `phases`: simplified problems that compute the gradient, too; `p`: the simplified convolution whose gradient it
        is.
        """
        im2col, itemsize = self.im2col, self.dtype.itemsize
        if not (self._is_product(phases) and col2im.is_applicable(p, im2col.lanes, im2col.mr, itemsize)):
            return None
        return col2im.split_blocks(p, im2col.lanes, im2col.vectors, itemsize, self.units)

    def grad_weights(self, problems: Sequence[Problem], p: Problem) -> grad_weights.GradWeightsBlocks | None:
        """Return the blocks for gradients of weights, from x packed by im2col; None if another method is better."""
        if not (self._is_product(problems) and grad_weights.is_applicable(p, self.lanes)):
            return None
        return grad_weights.split_blocks(p, self.lanes, self._items(p))

    def _is_product(self, problems: Sequence[Problem]) -> bool:
        return all(self.method(p).name in ("implicit_gemm", "im2col") for p in problems if p.depth)


class _Candidate(NamedTuple):
    """A method, and when it is taken: the first applicable one is.

    `is_applicable`: whether it computes a simplified problem, and does so faster than those that come later;
    `parameters`: returns the parameters of its kernel for a problem.
    """

    name: str
    is_applicable: Callable[[CpuSchedule, Problem], bool]
    parameters: Callable[[CpuSchedule, Problem], tuple[object, ...]] = lambda s, p: ()


_CANDIDATES = (
    _Candidate("naive", lambda s, p: s.dtype.kind != "f"),
    _Candidate("fourier", lambda s, p: s.is_fourier(p)),
    _Candidate(
        "dot",
        lambda s, p: _is_along_taps(p) and p.m <= FEW_OUTPUT_CHANNELS // 2,
        lambda s, p: (min(p.axes[-1].out, DOT_OUTPUTS),),
    ),
    _Candidate(
        "depthwise",
        lambda s, p: p.m == 1 and not _is_along_taps(p),
        lambda s, p: s.direct_block(p, 1 if p.axes[-2].out == 1 else DEPTHWISE_ROWS),
    ),
    _Candidate(
        "direct",
        lambda s, p: _has_few_channels(p) and not _is_along_taps(p),
        lambda s, p: s.direct_block(p, p.m),
    ),
    _Candidate("winograd", lambda s, p: winograd.is_applicable(p) and winograd.is_profitable(p)),
    _Candidate("pointwise", lambda s, p: is_large_pointwise(p)),
    _Candidate("im2col", lambda s, p: not _is_along_taps(p) and s.im2col.is_applicable(p)),
    _Candidate(
        "implicit_gemm",
        lambda s, p: True,
        lambda s, p: ("columns" if _is_along_taps(p) else "rows", *s.tile(p)),
    ),
)
_PARTITIONS: dict[str, Callable[[CpuSchedule, Problem, Method], Partition | Elements]] = {
    "naive": CpuSchedule._elements,
    "dot": CpuSchedule._direct,
    "depthwise": CpuSchedule._direct,
    "direct": CpuSchedule._direct,
    "im2col": CpuSchedule._im2col,
    "implicit_gemm": CpuSchedule._implicit_gemm,
}
