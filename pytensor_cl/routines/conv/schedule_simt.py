"""Schedule simt of convolutions: the method for a problem, and its partition among the work-groups of a GPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple, cast

import numpy as np

from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS, STEPPED_INT_LIMIT
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, local_memory
from pytensor_cl.routines.conv import fourier, winograd, winograd_simt
from pytensor_cl.routines.conv.limits import (
    FOURIER_RATES,
    SIMT_FEW_CHANNELS,
    SIMT_FEW_CHANNELS_GROUP,
    SIMT_FEW_COLUMNS,
    SIMT_GROUP_COST,
    SIMT_IDLE_COSTS,
    SIMT_LARGE_BYTES,
    SIMT_LARGE_COLUMNS,
    SIMT_LARGE_COSTS,
    SIMT_LARGE_ROWS,
    SIMT_LARGE_STEP,
    SIMT_LAUNCH_COST,
    SIMT_MIN_POINTWISE_POSITIONS,
    SIMT_PARTIAL_SUM_COST,
    SIMT_SPLIT_K_GROUPS_PER_UNIT,
    SIMT_SPLIT_K_TERMS,
    SIMT_TILES,
)
from pytensor_cl.routines.conv.method import Elements, Method, Partition
from pytensor_cl.routines.conv.plan import Problem, is_large_pointwise
from pytensor_cl.runtime.device import DeviceInfo


class Tile(NamedTuple):
    """Output tile of a work-group.

    `group`: shape of a work-group; `rows`, `columns`: channels and positions; `step`: terms of the sums between
    barriers.
    """

    template: str
    group: tuple[int, ...]
    rows: int
    columns: int
    step: int
    parameters: tuple[tuple[str, int], ...]

    def count(self, p: Problem) -> int:
        """Return the number of tiles of a group of a problem."""
        return ceil_div(p.m, self.rows) * ceil_div(p.columns, self.columns)

    def split_k(self, p: Problem, units: int, tuning: Mapping[str, int]) -> int:
        """Return the number of parts of the sums, so that each of `units` compute units has work."""
        if self.template == "conv/simt_double_buffered":
            return min(_parts(self, p, units), key=partial(_cost, self, p, units))
        wanted = ceil_div(tuning["conv.groups_per_unit"] * units, p.groups * self.count(p))
        return max(1, min(wanted, p.depth // (tuning["conv.simt_part"] * self.step)))


def _parts(tile: Tile, p: Problem, units: int) -> tuple[int, ...]:
    """Return into how many parts the sums of large tiles may be split."""
    wanted = SIMT_SPLIT_K_GROUPS_PER_UNIT * units // (p.groups * tile.count(p))
    return tuple(range(1, max(1, min(wanted, p.depth // SIMT_SPLIT_K_TERMS)) + 1))


def _cost(tile: Tile, p: Problem, units: int, parts: int) -> float:
    """Return the time with large tiles, in multiply-adds of a compute unit."""
    of_unit = ceil_div(p.groups * tile.count(p) * parts, units)
    idle = next((cost for items, cost in SIMT_IDLE_COSTS if of_unit * prod(tile.group) <= items), 1.0)
    sums = tile.rows * tile.columns * ceil_div(p.depth, parts * tile.step) * tile.step * idle
    cost = of_unit * (sums * SIMT_LARGE_COSTS[tile.rows] + SIMT_GROUP_COST)
    return cost + (SIMT_LAUNCH_COST + SIMT_PARTIAL_SUM_COST * parts * p.size / units if parts > 1 else 0)


def _general(info: DeviceInfo, itemsize: int) -> Tile:
    """Return the largest that the device can run.

    Rows of its blocks in local memory are padded: work-items that store neighbours along k use different banks.
    """
    width, step, padding = next(
        (g, s, pad)
        for g, s in SIMT_TILES
        for pad in (max(1, min(8, 128 // (itemsize * s))),)
        if g * g <= info.max_work_group_size
        and 2 * s * (4 * g + pad) * itemsize + 40 * (4 * g + s) <= local_memory(info)
    )
    parameters = (("group", width), ("step", step), ("padding", padding))
    return Tile("conv/simt", (width, width), 4 * width, 4 * width, step, parameters)


def _reach(extents: Sequence[int], strides: Sequence[int]) -> int:
    return sum(n * abs(stride) for n, stride in zip(extents, strides, strict=True))


def is_small(p: Problem) -> bool:
    """Return whether offsets within a group, and positions, are numbers of 32 bits."""
    wide = [a.out * a.stride + a.taps * abs(a.dilation) + abs(a.pad) for a in p.axes]  # with padding
    return (
        max(
            *wide,
            p.groups * p.columns,
            p.depth,
            _reach((p.batch, p.c, *wide), (p.x[0], p.x[2], *(a.x for a in p.axes))),
            _reach((p.m, p.c, *(a.taps for a in p.axes)), (*p.w[1:], *(a.w for a in p.axes))),
            _reach((p.batch, p.m, *(a.out for a in p.axes)), (p.y[0], p.y[2], *(a.y for a in p.axes))),
        )
        < STEPPED_INT_LIMIT
    )


def _large(p: Problem, rows: int) -> Tile:
    last = p.axes[-1]
    volumes = p.axes[0][:3] != (1, 1, 1) or p.axes[0].pad != 0
    parameters = ("rows", rows), ("k_contiguous", int(last.taps > last.out)), ("volumes", int(volumes))
    return Tile("conv/simt_double_buffered", (8, 4, rows // 16), rows, SIMT_LARGE_COLUMNS, SIMT_LARGE_STEP, parameters)


def _is_enough(p: Problem, info: DeviceInfo) -> bool:
    """Return whether large tiles, of parts of the sums if need be, keep a device busy."""
    tiles = p.groups * _large(p, min(SIMT_LARGE_ROWS)).count(p)
    return p.columns > SIMT_FEW_COLUMNS and tiles * max(1, p.depth // SIMT_SPLIT_K_TERMS) >= info.compute_units


def tile_of(p: Problem | None, info: DeviceInfo, dtype: np.dtype) -> Tile:
    """Choose the kernel for a simplified problem; None chooses the one for any problem."""
    runs = (
        dtype == np.float32
        and info.max_work_group_size >= 2 * max(SIMT_LARGE_ROWS)
        and local_memory(info) >= SIMT_LARGE_BYTES
    )
    if p is None or not (runs and info.has_large_tiles and _is_enough(p, info) and is_small(p)):
        return _general(info, dtype.itemsize)
    units = info.compute_units
    tiles = [_large(p, rows) for rows in SIMT_LARGE_ROWS]
    return min(tiles, key=lambda tile: min(_cost(tile, p, units, parts) for parts in _parts(tile, p, units)))


@dataclass(frozen=True)
class SimtSchedule:
    """Facts of a device and of a routine that decide how schedule simt computes a problem.

    `info`: the device, with the limits that hold for the routine's kernels; `tuning`: parameters of
    ``runtime/tuning.py``; `direct`: whether Fourier transforms are ruled out.
    """

    dtype: np.dtype
    info: DeviceInfo
    tuning: Mapping[str, int]
    direct: bool = False

    def method(self, p: Problem) -> Method:
        """Return the method for a simplified problem."""
        is_float = self.dtype.kind == "f"
        rate = FOURIER_RATES["simt" if p.m < SIMT_FEW_CHANNELS else "simt product"]
        if is_float and not self.direct and fourier.is_profitable(p, self.dtype.itemsize, rate):
            return Method("fourier")
        if is_float and p.m < SIMT_FEW_CHANNELS and is_small(p):
            return Method("small_m", (p.m,))
        if not is_float or p.m < SIMT_FEW_CHANNELS:
            return Method("naive")
        if self._suits_winograd(p, winograd_simt.is_profitable):
            return Method("winograd")
        if self._suits_winograd(winograd_simt.of_weights(p), winograd_simt.is_weights_profitable):
            return Method("winograd_weights")
        if is_large_pointwise(p, SIMT_MIN_POINTWISE_POSITIONS):
            return Method("pointwise")
        return self.tiles(p)

    def _suits_winograd(self, p: Problem, is_profitable: Callable[[Problem, int, int], bool]) -> bool:
        """Return whether Winograd's algorithm applies to a convolution, and takes less time."""
        return (
            winograd.is_applicable(p)
            and is_small(p)
            and all(a.image for a in p.axes)
            and is_profitable(p, self.info.compute_units, self.dtype.itemsize)
        )

    def tiles(self, p: Problem | None) -> Method:
        """Return the method with tiles in local memory; None takes the tile for any problem."""
        return Method("simt", (tile_of(p, self.info, self.dtype),))

    def partition(self, p: Problem, method: Method) -> Partition | Elements:
        """Return the partition of a simplified problem, for a method with a kernel of its own."""
        if method.name == "naive":
            return Elements(p.size, SMALL_GROUP_ITEMS)
        if method.name == "small_m":
            return Elements(ceil_div(p.size, p.m), SIMT_FEW_CHANNELS_GROUP)
        tile = cast(Tile, method.parameters[0])
        split_k = tile.split_k(p, self.info.compute_units, self.tuning)
        columns, rows, *others = tile.group
        size = (tile.count(p) * columns, min(p.groups * split_k, MAX_GROUPS) * rows, *others)
        return Partition(size, tile.group, split_k=split_k)
