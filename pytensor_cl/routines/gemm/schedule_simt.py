"""Division of matrix products among the work-groups of a GPU."""

from math import prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.ndrange import local_memory
from pytensor_cl.routines.gemm.limits import (
    SIMT_BANKS_BYTES,
    SIMT_BYTE_COST,
    SIMT_FEW_COLUMNS,
    SIMT_FEW_ROWS,
    SIMT_FORMS,
    SIMT_ITEM_BYTES,
    SIMT_LARGE_TILES,
    SIMT_LAUNCH_COST,
    SIMT_MOST_GROUPS,
    SIMT_REGISTERS,
    SIMT_SPLIT_K_DEPTH,
    SIMT_SPLIT_K_GROUPS_PER_UNIT,
    SIMT_TILES,
    LargeTile,
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
    (`_padding`); `slices`: parts of a work-group that share out each step along k; `matrix`: k of the instruction that
    multiplies; 0: none; `item_rows`: rows of sums of a work-item that has them in registers; `fragments`, `registers`:
    see kernels/gemm/simt_double_buffered.mako.
    """

    template: str
    group: tuple[int, int]
    step: int
    rows: int
    columns: int
    split_k: int = 1
    padding: int = 0
    slices: int = 1
    matrix: int = 0
    item_rows: int = 8
    fragments: int = 1
    registers: int = SIMT_REGISTERS

    def tiles(self, m: int, n: int) -> int:
        """Return the number of tiles of a matrix."""
        return ceil_div(m, self.rows) * ceil_div(n, self.columns)

    @property
    def is_large(self) -> bool:
        """Whether the sums of a tile are in registers; dimension 0 then counts batches and parts too."""
        return self.template == _LARGE

    @property
    def local_elements(self) -> int:
        """Elements in local memory of a tile with sums in registers: two stages."""
        return 2 * self.step * (self.rows + self.columns)

    @property
    def parameters(self) -> dict[str, int]:
        """Arguments of the template for the tile."""
        if self.is_large:
            names = ("rows", "columns", "step", "slices", "matrix", "item_rows", "fragments", "registers")
            return {name: getattr(self, name) for name in names}
        return {"group": self.group[0], "step": self.step, "padding": self.padding}

    def with_split_k(self, shape: GemmShape, units: int) -> "WorkGroupTile":
        """Return the same with k split, if there are fewer tiles than compute units."""
        return self._replace(split_k=_most_parts(self, shape, units))


_LARGE = "gemm/simt_double_buffered"


def _most_parts(tile: WorkGroupTile, shape: GemmShape, units: int) -> int:
    """Return into how many parts k may be split."""
    tiles = tile.tiles(shape.m, shape.n)
    if shape.batch or tiles >= units:
        return 1
    return max(1, min(SIMT_SPLIT_K_GROUPS_PER_UNIT * units // tiles, shape.k // SIMT_SPLIT_K_DEPTH))


def large_tiles(
    dtype: np.dtype, matrix: int, form: int = 0, has_many_registers: bool = False
) -> tuple[tuple[WorkGroupTile, LargeTile], ...]:
    """Return the tiles with sums in registers, and their costs; none for an integer type.

    `matrix`: k of the instruction for matrices of float64; 0: there is none; `form`: another form of the largest tile
    of float32, its number in `SIMT_FORMS`; 0: none; `has_many_registers`: whether work-items may have 255 registers.
    """
    matrix = matrix if dtype == np.float64 else 0
    name = "matrix" if matrix else dtype.name
    if has_many_registers and dtype == np.float32:
        name += ", many registers"
    tiles = [(_tile_of(large, dtype, matrix), large) for large in SIMT_LARGE_TILES.get(name, ())]
    if form and dtype == np.float32:
        rows, columns, step, item_rows, fragments, registers = SIMT_FORMS[form]
        first = tiles[0][1]._replace(
            rows=rows, columns=columns, step=step, item_rows=item_rows, fragments=fragments, registers=registers
        )
        tiles[0] = _tile_of(first, dtype, 0), first
    return tuple(tiles)


def _tile_of(large: LargeTile, dtype: np.dtype, matrix: int) -> WorkGroupTile:
    items = large.rows * large.columns * large.slices * 8 * dtype.itemsize // (large.item_rows * SIMT_ITEM_BYTES)
    return WorkGroupTile(
        _LARGE,
        (32, items // 32),
        large.step,
        large.rows,
        large.columns,
        slices=large.slices,
        matrix=matrix,
        item_rows=large.item_rows,
        fragments=large.fragments,
        registers=large.registers,
    )


def _fits(tile: WorkGroupTile, info: DeviceInfo, dtype: np.dtype) -> bool:
    """Return whether the device has the local memory and the work-group size for a tile with sums in registers."""
    is_small = tile.local_elements * dtype.itemsize <= local_memory(info)
    return is_small and prod(tile.group) <= info.max_work_group_size


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


def runs_large(info: DeviceInfo, dtype: np.dtype) -> bool:
    """Return whether the device runs tiles with sums in registers."""
    tiles = large_tiles(dtype, info.features.matrix_f64)
    return info.has_large_tiles and any(_fits(tile, info, dtype) for tile, _ in tiles)


def _cost(
    tile: WorkGroupTile, large: LargeTile, shape: GemmShape, info: DeviceInfo, dtype: np.dtype, launches: int
) -> float:
    """Return the time of a product, in multiply-adds of a compute unit.

    `large`: costs of the tile; `launches`: launches that follow if k is split.
    """
    groups = tile.tiles(shape.m, shape.n) * prod(shape.batch) * tile.split_k
    of_unit = ceil_div(groups, info.compute_units)
    multiply_adds = tile.rows * tile.columns * ceil_div(shape.k, tile.split_k)
    cost = of_unit * (multiply_adds * (large.alone if of_unit == 1 else large.cost) + large.group)
    if tile.split_k == 1:
        return cost
    rate = 1.0 if dtype == np.float32 or tile.matrix else 0.5
    partial = tile.split_k * shape.m * shape.n * dtype.itemsize
    return cost + rate * (launches * SIMT_LAUNCH_COST + partial * SIMT_BYTE_COST)


def _large(shape: GemmShape, info: DeviceInfo, dtype: np.dtype, launches: int, form: int) -> WorkGroupTile | None:
    """Return the tile with sums in registers that costs least; None if the device has not the means for them."""
    if not runs_large(info, dtype):
        return None
    on_cpu = info.kind == "cpu"
    if on_cpu and (shape.m <= SIMT_FEW_ROWS or shape.n <= SIMT_FEW_COLUMNS):
        return None
    best: tuple[float, WorkGroupTile] | None = None
    # PTX, whose instructions `warp_shuffles` are, has 255 registers for a work-item.
    for tile, large in large_tiles(dtype, info.features.matrix_f64, form, info.features.warp_shuffles):
        groups = tile.tiles(shape.m, shape.n) * prod(shape.batch)
        most = _most_parts(tile, shape, info.compute_units)
        if (
            not _fits(tile, info, dtype)
            or groups * most > SIMT_MOST_GROUPS
            or (on_cpu and groups * most < info.compute_units)
        ):
            continue
        for parts in (1 << n for n in range(most.bit_length())):
            split = tile._replace(split_k=parts)
            cost = _cost(split, large, shape, info, dtype, launches)
            if best is None or cost < best[0]:
                best = cost, split
    return best and best[1]


def select_tile(
    shape: GemmShape | None, info: DeviceInfo, dtype: np.dtype, widest: int, launches: int = 1, form: int = 0
) -> WorkGroupTile:
    """Choose the kernel and the parts of k for a product.

    `shape`: sizes of the product; None chooses the kernel of most products; `widest`: work-items along a side of a
    work-group, at most; `launches`: launches that follow if k is split; `form`: see `large_tiles`.
    """
    general = _general(info, dtype, widest)
    if shape is None:
        return general
    return _large(shape, info, dtype, launches, form) or general.with_split_k(shape, info.compute_units)
