"""Convolutions as products of filters that are read in place."""

from math import lcm, prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.codegen.template import render
from pytensor_cl.integers import balanced_block, ceil_div
from pytensor_cl.routines.base.blas import arithmetic_types
from pytensor_cl.routines.base.limits import CACHE_WAY_BYTES
from pytensor_cl.routines.conv.limits import (
    IM2COL_COPY_COST,
    IM2COL_EDGE_COLUMNS,
    IM2COL_MATRIX_BYTES,
    IM2COL_MAX_COLUMNS,
    IM2COL_MAX_DEPTH,
    IM2COL_MIN_COLUMNS,
    IM2COL_MIN_DEPTH,
    IM2COL_PACKED_COLUMNS,
    IM2COL_TILE_COST,
    IM2COL_TILES,
)
from pytensor_cl.routines.conv.plan import Problem, runs_of
from pytensor_cl.routines.gemm.problem import plan_preamble
from pytensor_cl.routines.gemm.schedule_cpu import micro_kernel_shapes


class Blocks(NamedTuple):
    """Split of a problem: work-items along columns, rows and groups, then the sizes of blocks."""

    grid: tuple[int, int, int]
    columns: int
    depth: int


class Im2colSchedule:
    """Schedule of im2col on a CPU: splits problems, and holds the register tile that all its kernels share.

    `register_bytes`: width of the device's vector registers; `lanes`: elements of a vector.
    """

    def __init__(self, dtype: np.dtype, register_bytes: int, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        self.mr, self.vectors = IM2COL_TILES.get(register_bytes, IM2COL_TILES[16])

    def is_applicable(self, p: Problem) -> bool:
        """Return whether the filter elements of a sum are contiguous in w, so that they need not be packed.

        Rows at a distance of a multiple of 4096 bytes share a set of the first-level cache, at half of it two sets.
        """
        has_one_tap = p.depth == p.c  # with one tap there is little work besides reading w
        shares_sets = p.w[1] * self.dtype.itemsize % (CACHE_WAY_BYTES // 2 if has_one_tap else CACHE_WAY_BYTES) == 0
        in_place = p.depth > 0 and p.m >= self.mr and runs_of(p) == (p.depth, 1, 0)
        return in_place and (p.columns < IM2COL_PACKED_COLUMNS or not shares_sets)

    def tile(self) -> dict[str, object]:
        """Return the arguments of the template for the register tile."""
        name = f"gemm_{arithmetic_types(self.dtype)['ctype']}_{self.mr}x{self.vectors}x{self.lanes}"
        return {"micro": name, "mr": self.mr, "vectors": self.vectors}

    def preambles(self) -> tuple[str, ...]:
        """Return OpenCL C that must precede the kernel: the products of register tiles."""
        types = {"ctype": arithmetic_types(self.dtype)["ctype"], "itemsize": self.dtype.itemsize, "lanes": self.lanes}
        name = self.tile()["micro"]
        return plan_preamble(), render(
            "gemm/microkernel", **types, micro=name, shapes=micro_kernel_shapes(self.mr, self.vectors)
        )

    def split(self, p: Problem, items: int, parts: int = 1) -> Blocks:
        """Split a problem among at most `items` work-items, for the least work of the slowest one."""
        z = min(p.groups, items)
        left = ceil_div(items, z)
        tiles, vectors = ceil_div(p.m, self.mr), ceil_div(p.columns - IM2COL_EDGE_COLUMNS, self.lanes) or 1

        def cost(x: int) -> float:
            high, wide = ceil_div(tiles, min(left // x, tiles)), ceil_div(vectors, x)
            return (wide + IM2COL_TILE_COST * ceil_div(wide, self.vectors)) * high * self.mr + IM2COL_COPY_COST * wide

        x = min(range(1, min(left, vectors) + 1), key=cost)
        columns, depth = self._block(p, ceil_div(p.columns, x), ceil_div(p.depth, parts))
        return Blocks((x, max(1, min(left // x, tiles)), z), columns, depth)

    def _block(self, p: Problem, columns: int, depth: int) -> tuple[int, int]:
        """Return columns and rows of the matrix of a block: whole channels if they fit."""
        size, lanes = IM2COL_MATRIX_BYTES // self.dtype.itemsize, self.lanes
        unit = lcm(prod(a.taps for a in p.axes), lanes)
        unit = unit if unit <= IM2COL_MAX_DEPTH else lanes
        width = balanced_block(columns, IM2COL_MAX_COLUMNS, lanes)
        depth = balanced_block(depth, max(unit, IM2COL_MIN_DEPTH, min(IM2COL_MAX_DEPTH, size // width)), unit)
        return balanced_block(columns, max(IM2COL_MIN_COLUMNS, min(IM2COL_MAX_COLUMNS, size // depth)), lanes), depth

    def workspace_size(self, blocks: Blocks) -> int:
        """Return how many elements of the workspace a work-item needs."""
        return blocks.depth * (blocks.columns + self.lanes + IM2COL_EDGE_COLUMNS)
