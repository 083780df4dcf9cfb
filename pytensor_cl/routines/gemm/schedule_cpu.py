"""Schedule cpu of matrix products: register tile, blocking, and partition among work-items.

Costs are counted in steps of a micro-kernel: a vector of B times the rows of a register tile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pytensor_cl.integers import balanced_block, ceil_div, round_up
from pytensor_cl.routines.base.limits import CACHE_WAY_BYTES
from pytensor_cl.routines.gemm.limits import (
    DEPTH_BYTES,
    FAR_READ_COST,
    FLOAT_TILES,
    INTEGER_TILE,
    MIN_HALVED_ROWS,
    NARROW_LANES,
    PACK_A_MIN_COLUMNS,
    PACK_B_MIN_ROWS,
    PACK_ROWS,
    PACKED_B_BYTES,
    PACKED_ROWS,
    PACKING_ITEMS_PER_UNIT,
    PANEL_COST,
    PREFETCHED_BYTES,
    SCATTERED_STORE_COST,
    SHARED_B_ITEMS_RATIO,
    SHARED_B_MAX_BYTES,
    SHARED_B_MAX_ITEM_ROWS,
    SHARED_B_MIN_MULTIPLY_ADDS,
    SHARED_B_MIN_ROWS,
    SHARED_SETS_BYTES,
    SHARED_SETS_MIN_BYTES,
    SHORT_ROW_BYTES,
    SPLIT_K_DEPTH,
    SPLIT_K_RATIO,
    SWAP_RATIO,
    TOLERANCE_RATIO,
)
from pytensor_cl.routines.gemm.problem import CpuBlocking, GemmProblem


def micro_kernel_shapes(rows: int, vectors: int) -> tuple[tuple[int, int], ...]:
    """Return micro-kernels of ``kernels/gemm/microkernel.mako``: rows and half vectors of each."""
    heights = (rows, rows // 2) if rows >= MIN_HALVED_ROWS else (rows,)
    return tuple((height, 2 * count) for height in heights for count in range(1, vectors + 1))


class Tile(NamedTuple):
    """The register tile of schedule cpu: `mr` x `vectors` accumulators of `lanes` elements."""

    mr: int
    vectors: int
    lanes: int

    @property
    def nr(self) -> int:
        """Width in elements."""
        return self.vectors * self.lanes

    @property
    def packed_mr(self) -> int:
        """Rows of a packed panel of A, which is packed four rows at a time."""
        return round_up(self.mr, 4)

    @property
    def packing(self) -> float:
        """Cost of packing a vector of B."""
        return PACK_ROWS / self.mr

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Rows and half vectors of the micro-kernels: the whole tile, and smaller ones for edges."""
        full = micro_kernel_shapes(self.mr, self.vectors)
        return (*full, (self.mr, 1)) if self.mr >= MIN_HALVED_ROWS and self.lanes > NARROW_LANES else full


def register_tile(kind: str, register_bytes: int, lanes: int, tuned: int) -> Tile:
    """Return the register tile of a device.

    `kind`: kind of the dtype: "f", or that of integers; `register_bytes`: width of the vector registers; `lanes`:
    elements of a vector; `tuned`: ten times the rows plus the vectors; 0 takes what suits the registers.
    """
    rows, vectors = INTEGER_TILE
    if kind == "f":
        rows, vectors = divmod(tuned, 10) if tuned else FLOAT_TILES.get(register_bytes, FLOAT_TILES[16])
    return Tile(rows, vectors, lanes)


class CpuPartition(NamedTuple):
    """A partition of a product among work-items, and the blocking of each."""

    size: tuple[int, int, int]  # work-items along n, m, and batch * parts of k
    blocking: CpuBlocking
    workspace: int  # size in elements
    packing_size: tuple[int, int] | None = None  # work-items that pack B, along n and k


@dataclass(frozen=True)
class CpuSchedule:
    """Facts of a device and of a routine that decide how schedule cpu computes a product.

    `tile`: the register tile; `itemsize`: bytes of an element; `register_bytes`: width of the device's vector
    registers; `units`: compute units; `tuning`: parameters of ``runtime/tuning.py``; `can_share_b`: whether a kernel
    that packs B for all work-items costs little: one launch runs all kernels of a call; `stores_partial_sums`: whether
    the output can hold sums of some of the blocks along k.
    """

    tile: Tile
    itemsize: int
    register_bytes: int
    units: int
    tuning: Mapping[str, int]
    can_share_b: bool
    stores_partial_sums: bool

    def partition(self, p: GemmProblem, extra_items: int = 0) -> CpuPartition:
        """Choose the work-items of a product, and the blocking of each.

        `p`: the product; `extra_items`: work-items that are worth while for what is done with the elements, however
        short the sums are.
        """
        per_unit = self.tuning["gemm.items_per_unit"] * (1 + abs(p.triangle))  # some have less to do, or nothing
        items = min(
            per_unit * self.units,
            p.multiply_adds // self.tuning["gemm.grain"] + 1 + extra_items,
        )
        split_k = 1 if p.triangle else split_k_parts(p, items)
        packs_b = p.b[-1] != 1 or self.prefers_panels(p)
        packing = self.tile.packing if packs_b else 0
        x, y, z = (1, 1, 1) if split_k > 1 else grid(p, self.tile, items, self.units, packing)
        if packs_b and split_k == 1 and self.shares_b(p, ceil_div(p.m, y)):
            x, y, z = shared_b_grid(p, self.tile, SHARED_B_ITEMS_RATIO * items, self.units)
            blocking = self._shared_blocking(p, x, y)
            workspace = blocking.shared_b_size + blocking.workspace_size * x * y
            return CpuPartition((x, y, z), blocking, workspace, self._packing_size(p))
        blocking = self._blocking(p, x, y, split_k)
        count = x * y * z * split_k
        blocking = blocking._replace(split_k_start=blocking.workspace_size * count)
        partial_sums = split_k * p.m * p.n if split_k > 1 else 0
        return CpuPartition((x, y, z * split_k), blocking, blocking.split_k_start + partial_sums)

    def swap_operands(self, p: GemmProblem) -> GemmProblem:
        """Return ``C.T = B.T @ A.T`` where that is faster, because vectors are along m then; else p itself."""
        other = p.transposed()
        return other if self._cost(other) < SWAP_RATIO * self._cost(p) else p

    def prefers_panels(self, p: GemmProblem) -> bool:
        """Return whether B is worth packing: its rows cross cache lines, share sets, or have short pieces."""
        row_bytes = p.b[-2] * self.itemsize
        shares_sets = row_bytes % SHARED_SETS_BYTES == 0 and p.k * row_bytes > SHARED_SETS_MIN_BYTES
        return p.b[-2] % self.tile.lanes != 0 or shares_sets or self.tile.nr * self.itemsize < SHORT_ROW_BYTES

    def shares_b(self, p: GemmProblem, rows: int) -> bool:
        """Return whether B, which has to be packed, is packed once for all work-items, which would have `rows` each."""
        is_worth_it = (
            not p.batch
            and p.m >= SHARED_B_MIN_ROWS
            and rows <= SHARED_B_MAX_ITEM_ROWS
            and p.m * p.n * p.k >= SHARED_B_MIN_MULTIPLY_ADDS
        )
        fits = p.k * p.n * self.itemsize <= SHARED_B_MAX_BYTES
        return is_worth_it and fits and self.can_share_b and self.units > 1

    def _cost(self, p: GemmProblem) -> float:
        """Cost of a product for each step along k."""
        half, low_mr = self.tile.lanes // 2, self.tile.mr // 2
        vectors = (p.n // self.tile.lanes * 2 + ceil_div(p.n % self.tile.lanes, half)) / 2
        row_tiles = ceil_div(p.m, low_mr) / 2
        packs_b, scatters = p.b[-1] != 1, p.o[-1] != 1
        stores = SCATTERED_STORE_COST * scatters * p.m * p.n / max(1, p.k)
        return vectors * (row_tiles + self.tile.packing * packs_b) + stores

    def _packing_size(self, p: GemmProblem) -> tuple[int, int]:
        """Work-items that pack B, along n and k: whole rows, or whole columns if these are contiguous."""
        most = PACKING_ITEMS_PER_UNIT * self.units
        rows, panels = ceil_div(p.k, PACKED_ROWS), ceil_div(p.n, self.tile.nr)
        return (1, min(most, rows)) if p.b[-1] == 1 else (min(most, panels), 1)

    def _depth(self, p: GemmProblem) -> int:
        """Elements along k of a block: all, where partial sums cannot be stored."""
        if not self.stores_partial_sums:
            return max(1, p.k)
        by_width = DEPTH_BYTES.get(self.register_bytes, DEPTH_BYTES[16])
        return (self.tuning["gemm.depth_bytes"] or by_width) // self.itemsize

    def _aliases_cache_sets(self, stride: int) -> bool:
        return stride * self.itemsize % CACHE_WAY_BYTES == 0

    def _common_blocking(self, p: GemmProblem, rows: int, columns: int, split_k: int) -> CpuBlocking:
        """Return the blocks of a work-item of these rows and columns, and whether it packs A."""
        # Whole cache lines along k keep the panels aligned.
        kc = balanced_block(ceil_div(p.k, split_k), self._depth(p), 16)
        mc = balanced_block(rows, self.tuning["gemm.block_rows"], self.tile.mr)
        pack_a = columns >= PACK_A_MIN_COLUMNS and any(map(self._aliases_cache_sets, p.a[-2:]))
        prefetch = not pack_a and p.m * p.k * p.batch_count * self.itemsize >= PREFETCHED_BYTES
        return CpuBlocking(mc, kc, pack_a, prefetch=prefetch, triangle=p.triangle, split_k=split_k)

    def _blocking(self, p: GemmProblem, x: int, y: int, split_k: int) -> CpuBlocking:
        """Return the blocking where each work-item packs its part of B."""
        tile, rows, columns = self.tile, ceil_div(p.m, y), ceil_div(p.n, x)
        blocking = self._common_blocking(p, rows, columns, split_k)
        mc, kc = blocking.mc, blocking.kc
        pack_b = p.b[-1] != 1 or (rows >= PACK_B_MIN_ROWS and self.prefers_panels(p))
        kept = 0  # columns whose panels are kept for more blocks of rows
        if pack_b and rows > mc:
            kept = round_up(columns, tile.lanes)
            kept = kept if kc * kept * self.itemsize <= PACKED_B_BYTES else 0
        packed_b_size = kc * max(tile.nr, kept)
        packed_a_size = kc * (mc // tile.mr if blocking.pack_a else 1) * tile.packed_mr
        return blocking._replace(
            pack_b=pack_b, packed_b_size=packed_b_size, workspace_size=packed_b_size + packed_a_size
        )

    def _shared_blocking(self, p: GemmProblem, x: int, y: int) -> CpuBlocking:
        """Blocking where B is packed once for all work-items; `packed_b_size` is the row length of the packed B."""
        tile = self.tile
        blocking = self._common_blocking(p, ceil_div(p.m, y), ceil_div(p.n, x), 1)
        row_length = round_up(p.n, tile.lanes)
        panels_of_a = blocking.mc // tile.mr if blocking.pack_a else 0
        packed_a_size = blocking.kc * panels_of_a * tile.packed_mr
        shared = p.k * row_length
        return blocking._replace(packed_b_size=row_length, workspace_size=packed_a_size, shared_b_size=shared)


def split_k_parts(p: GemmProblem, items: int) -> int:
    """Return the number of parts of k, where k is much longer than m and n."""
    return 1 if p.batch or p.k < SPLIT_K_RATIO * max(p.m, p.n) else max(1, min(items, p.k // SPLIT_K_DEPTH))


def grid(p: GemmProblem, tile: Tile, items: int, units: int, packing: float = 0) -> tuple[int, int, int]:
    """Split a product among at most about `items` work-items along n, m and the batch.

    `p`, `tile`: the product, and its register tile; `items`, `units`: the most work-items, and those that run at a
    time; `packing`: cost of packing a vector of B.
    """
    z = min(p.batch_count, items)
    row_tiles, vectors, left = ceil_div(p.m, tile.mr), ceil_div(p.n, tile.lanes), ceil_div(items, z)

    def cost(size: tuple[int, int]) -> float:
        x, y = size
        rows, columns = ceil_div(row_tiles, y), ceil_div(vectors, x)
        columns_cost = columns + PANEL_COST * ceil_div(columns, tile.vectors)
        return ceil_div(p.batch_count, z) * ceil_div(x * y * z, units) * columns_cost * (rows + packing)

    sizes = [(x, y) for x in range(1, min(left, vectors) + 1) for y in {max(1, min(left // x, row_tiles)), 1}]
    best = TOLERANCE_RATIO * min(map(cost, sizes))
    good = [size for size in sizes if cost(size) <= best]
    x, y = min(good, key=lambda size: (-size[0] * size[1], p.m / size[1] + p.n / size[0]))
    return x, y, z


def shared_b_grid(p: GemmProblem, tile: Tile, items: int, units: int) -> tuple[int, int, int]:
    """Split a product among at most `items` work-items along n and m, if B is packed before they begin.

    What counts is how much of A and of B they all read, and how much is left for some when others are through.
    """
    row_tiles, panels = ceil_div(p.m, tile.mr), ceil_div(p.n, tile.nr)

    def cost(size: tuple[int, int]) -> float:
        x, y = size
        largest = ceil_div(panels, x) * tile.vectors * ceil_div(row_tiles, y)
        return FAR_READ_COST * (y * p.n + x * p.m) / tile.lanes / units + largest / 2

    sizes = ((x, y) for x in range(1, min(panels, items) + 1) for y in range(1, min(row_tiles, items // x) + 1))
    return *min(sizes, key=cost), 1
