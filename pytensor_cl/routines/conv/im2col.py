"""Convolutions as products of filters that are read in place."""

from math import lcm, prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.codegen.template import render
from pytensor_cl.routines.base.blas import arithmetic_types
from pytensor_cl.routines.conv.plan import Problem, runs_of
from pytensor_cl.routines.gemm.problem import plan_preamble
from pytensor_cl.routines.gemm.schedule_cpu import micro_kernel_shapes

__all__ = ["EDGE", "Im2colSchedule"]

# Rows and vectors of the register tile, by bytes of the device's vector registers.
_TILES = {64: (8, 3), 32: (4, 3), 16: (4, 2)}
EDGE = 4  # columns that take less time one by one than as a vector
_MATRIX_BYTES = 384 << 10  # of the matrix of a block: it should stay in the second-level cache
_COLUMNS, _DEPTH = 384, 1024  # of such a block at most
_NARROW, _SHORT = 96, 256  # what they should be at least
_CACHE_WAY_BYTES, _MANY = (
    4096,
    512,
)  # of a cache; columns that justify packing rows that share a cache set
_COPYING = 5  # cost of copying a vector to the matrix, in multiply-adds
_PANEL = 0.15  # cost of a tile beside that of its vectors


class Blocks(NamedTuple):
    """How a problem is split: work-items along columns, rows and groups, then sizes of blocks."""

    grid: tuple[int, int, int]
    columns: int
    depth: int


def _balanced(total: int, limit: int, unit: int) -> int:
    """Size of the fewest equal blocks of at most `limit`, in whole units."""
    count = -(-total // limit) or 1
    return -(-total // (count * unit)) * unit or unit


class Im2colSchedule:
    """How to split problems, and what kernels for them have in common.

    Parameters
    ----------
    dtype
        Of the arrays.
    register_bytes
        Width of the device's vector registers.
    lanes
        Elements of a vector.
    """

    def __init__(self, dtype: np.dtype, register_bytes: int, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        self.mr, self.vectors = _TILES.get(register_bytes, _TILES[16])

    def is_applicable(self, p: Problem) -> bool:
        """Whether the filter elements of one sum of a simplified problem are contiguous in w, and need not be packed.

        Rows at a distance of a multiple of 4096 bytes share a set of the first-level cache, at half of it two sets.
        """
        has_one_tap = p.depth == p.c  # which leaves little else to do
        shares_sets = p.w[1] * self.dtype.itemsize % (_CACHE_WAY_BYTES // 2 if has_one_tap else _CACHE_WAY_BYTES) == 0
        in_place = p.depth > 0 and p.m >= self.mr and runs_of(p) == (p.depth, 1, 0)
        return in_place and (p.columns < _MANY or not shares_sets)

    def tile(self) -> dict[str, object]:
        """Return the arguments of the template for the register tile."""
        name = f"gemm_{arithmetic_types(self.dtype)['ctype']}_{self.mr}x{self.vectors}x{self.lanes}"
        return {"micro": name, "mr": self.mr, "vectors": self.vectors}

    def preambles(self) -> tuple[str, ...]:
        """Return what must precede the kernel: the products of register tiles."""
        types = {"ctype": arithmetic_types(self.dtype)["ctype"], "itemsize": self.dtype.itemsize, "lanes": self.lanes}
        name = self.tile()["micro"]
        return plan_preamble(), render(
            "gemm/microkernel", **types, micro=name, shapes=micro_kernel_shapes(self.mr, self.vectors)
        )

    def split(self, p: Problem, items: int, parts: int = 1) -> Blocks:
        """Split a problem among at most so many work-items, for the least work of the slowest one."""
        z = min(p.groups, items)
        left = -(-items // z)
        tiles, vectors = -(-p.m // self.mr), -(-(p.columns - EDGE) // self.lanes) or 1

        def cost(x: int) -> float:
            high, wide = -(-tiles // min(left // x, tiles)), -(-vectors // x)
            return (wide + _PANEL * -(-wide // self.vectors)) * high * self.mr + _COPYING * wide

        x = min(range(1, min(left, vectors) + 1), key=cost)
        columns, depth = self._block(p, -(-p.columns // x), -(-p.depth // parts))
        return Blocks((x, max(1, min(left // x, tiles)), z), columns, depth)

    def _block(self, p: Problem, columns: int, depth: int) -> tuple[int, int]:
        """Return columns and rows of the matrix of a block: whole channels if they fit."""
        size, lanes = _MATRIX_BYTES // self.dtype.itemsize, self.lanes
        unit = lcm(prod(a.taps for a in p.axes), lanes)
        unit = unit if unit <= _DEPTH else lanes
        width = _balanced(columns, _COLUMNS, lanes)
        depth = _balanced(depth, max(unit, _SHORT, min(_DEPTH, size // width)), unit)
        return _balanced(columns, max(_NARROW, min(_COLUMNS, size // depth)), lanes), depth

    def workspace_size(self, blocks: Blocks) -> int:
        """Return how many elements of the workspace a work-item needs."""
        return blocks.depth * (blocks.columns + self.lanes + EDGE)
