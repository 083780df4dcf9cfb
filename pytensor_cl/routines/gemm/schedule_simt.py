"""Division of matrix products among the work-groups of a GPU."""

from math import prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.ndrange import local_memory
from pytensor_cl.routines.gemm.limits import (
    SIMT_BANKS_BYTES,
    SIMT_FEW_COLUMNS,
    SIMT_FEW_ROWS,
    SIMT_LARGE_BYTES,
    SIMT_LARGE_COLUMNS,
    SIMT_LARGE_ITEMS,
    SIMT_LARGE_ROWS,
    SIMT_LARGE_STEP,
    SIMT_SPLIT_K_DEPTH,
    SIMT_SPLIT_K_GROUPS_PER_UNIT,
    SIMT_TILES,
)
from pytensor_cl.runtime.device import DeviceInfo


class GemmShape(NamedTuple):
    """Sizes of a product, and lengths of its batch dimensions."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...]


class WorkGroupTile(NamedTuple):
    """A kernel, and how many parts there are of each sum.

    `group`: work-items along both sides of a work-group; `step`: elements along k between barriers; `split_k`: parts of
    the sums; each has work-groups of its own; `padding`: elements after each row of a block in local memory
    (`_padding`).
    """

    template: str
    group: tuple[int, int]
    step: int
    rows: int
    columns: int
    split_k: int = 1
    padding: int = 0

    def tiles(self, m: int, n: int) -> int:
        """Return the number of tiles of a matrix."""
        return ceil_div(m, self.rows) * ceil_div(n, self.columns)

    @property
    def parameters(self) -> dict[str, int]:
        """Arguments of the template for the tile."""
        if self.template == "gemm/simt_double_buffered":
            return {"rows": self.rows}
        return {"group": self.group[0], "step": self.step, "padding": self.padding}

    def with_split_k(self, shape: GemmShape, units: int) -> "WorkGroupTile":
        """Return the same with k split, if there are fewer tiles than compute units."""
        tiles = self.tiles(shape.m, shape.n)
        if shape.batch or tiles >= units:
            return self
        return self._replace(
            split_k=max(1, min(SIMT_SPLIT_K_GROUPS_PER_UNIT * units // tiles, shape.k // SIMT_SPLIT_K_DEPTH))
        )


_LARGE_TILES = tuple(
    WorkGroupTile("gemm/simt_double_buffered", (16, rows // 8), SIMT_LARGE_STEP, rows, SIMT_LARGE_COLUMNS)
    for rows in SIMT_LARGE_ROWS
)


def _padding(dtype: np.dtype, step: int) -> int:
    """Return how many elements apart the columns of a block must begin to be written at once.

    Where k runs first in memory, neighbouring work-items write a column: `step` elements in as many rows, and the next
    column beside it. Local memory has 32 banks of 4 bytes.
    """
    return max(1, min(8, SIMT_BANKS_BYTES // (dtype.itemsize * step)))


def _general(info: DeviceInfo, dtype: np.dtype, widest: int) -> WorkGroupTile:
    """Return the largest work-group that the device can run, of those no wider than `widest`."""
    fits = (
        WorkGroupTile("gemm/simt", (g, g), s, 4 * g, 4 * g, padding=_padding(dtype, s))
        for g, s in SIMT_TILES
        if g <= widest
        and g * g <= info.max_work_group_size
        and 2 * s * (4 * g + _padding(dtype, s)) * dtype.itemsize <= local_memory(info)
    )
    return next(fits)


def _large(shape: GemmShape, info: DeviceInfo, dtype: np.dtype) -> WorkGroupTile | None:
    """Return large tiles where there are enough for all compute units, and few of them half empty; else None."""
    runs = (
        dtype == np.float32 and info.max_work_group_size >= SIMT_LARGE_ITEMS and local_memory(info) >= SIMT_LARGE_BYTES
    )
    if not (runs and info.has_large_tiles) or shape.m <= SIMT_FEW_ROWS or shape.n <= SIMT_FEW_COLUMNS:
        return None
    units, batches = info.compute_units, prod(shape.batch)
    high, low = (tile.with_split_k(shape, units) for tile in _LARGE_TILES)
    tiles = high.tiles(shape.m, shape.n), low.tiles(shape.m, shape.n)
    if batches * tiles[0] >= units and 2 * tiles[0] <= tiles[1]:
        return high
    return low if batches * tiles[1] * low.split_k >= units else None


def select_tile(shape: GemmShape | None, info: DeviceInfo, dtype: np.dtype, widest: int) -> WorkGroupTile:
    """Choose the kernel and the parts of k for a product.

    `shape`: sizes of the product; None chooses the kernel of most products; `widest`: work-items along a side of a
    work-group, at most.
    """
    general = _general(info, dtype, widest)
    if shape is None:
        return general
    return _large(shape, info, dtype) or general.with_split_k(shape, info.compute_units)
