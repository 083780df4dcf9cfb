"""Normal form of a row function's arrays, the kernel that suits it, and how its work is shared out: arithmetic only."""

from collections.abc import Sequence
from functools import cache
from math import gcd, prod
from typing import NamedTuple

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import BUSY_GROUPS_PER_UNIT, CORE_CACHE_BYTES, ITEMS_PER_UNIT
from pytensor_cl.routines.base.ndrange import power_above, power_of_two
from pytensor_cl.routines.base.two_pass import chunks_of
from pytensor_cl.routines.reduction import plan as planning
from pytensor_cl.routines.reduction.limits import COALESCED_ITEMS, RESIDENT_ITEMS, SHORT_ROW_VECTORS
from pytensor_cl.routines.rowwise.limits import (
    COLUMNS_PER_VECTOR_DIVISOR,
    MAX_SEQUENTIAL_TERMS,
    MIN_CHUNK_ELEMENTS,
    MIN_HELD,
    MIN_NARROW_ROWS,
    MIN_READS_TO_TRANSPOSE,
    MIN_REUSE_TO_TRANSPOSE,
    MIN_SHARED_ELEMENTS,
    MIN_SIMT_ITEM_ELEMENTS,
    WIDE_TILE_VECTORS,
)
from pytensor_cl.runtime.layout import Layout, contiguous_strides

Dims = tuple[tuple[int, ...], ...]


class Rows(NamedTuple):
    """The positions of a row function in normal form: few dimensions, from the innermost outwards.

    `outer`: length of each dimension across rows, then its step in each array; `reduced`: the same of the dimensions
    along a row; `shifts`: start of the traversal in each array, in elements from its first one; `lead`: the array in
    whose memory order the others are traversed.
    """

    outer: Dims
    reduced: Dims
    shifts: tuple[int, ...]
    lead: int

    @property
    def number(self) -> int:
        """Number of rows."""
        return prod(n for n, *_ in self.outer)

    @property
    def total(self) -> int:
        """Number of elements of a row."""
        return prod(n for n, *_ in self.reduced)

    @property
    def columns(self) -> int:
        """Length of the innermost dimension across rows."""
        return self.outer[0][0] if self.outer else 1


def _walk(dims: list[tuple[int, ...]], lead: int, arrays: int) -> tuple[Dims, list[int]]:
    """Order dimensions by the strides of one array, and merge those that are contiguous."""
    order = [lead, *(k for k in range(arrays) if k != lead)]
    found, shifts = planning.canonicalize_dims([(d[0], *(d[1 + k] for k in order)) for d in dims], arrays)
    place = [order.index(k) for k in range(arrays)]
    return tuple((d[0], *(d[1 + p] for p in place)) for d in found), [shifts[p] for p in place]


def normal_form(shape: Sequence[int], layouts: Sequence[Layout], axes: frozenset[int], lead: int) -> Rows:
    """Put the arrays of a row function in normal form.

    `layouts`: layouts of the arrays, spread to the dimensions of `shape`; those of row values have length 1 along
    `axes`; `axes`: axes along the rows; `lead`: number of the array to follow.
    """
    count = len(layouts)
    steps = [[0 if s.shape[d] == 1 else s.strides[d] for s in layouts] for d in range(len(shape))]
    dims = [(n, *steps[d]) for d, n in enumerate(shape)]
    outer, shifts = _walk([dim for d, dim in enumerate(dims) if d not in axes], lead, count)
    along = [dim for d, dim in enumerate(dims) if d in axes]
    if any(dim[0] == 0 for dim in along):  # nothing is read
        return Rows(outer, ((0, *[1] * count),), tuple(shifts), lead)
    reduced, more = _walk(along, lead, count)
    reduced = reduced or ((1, *[0] * count),)
    return Rows(outer, reduced, tuple(a + b for a, b in zip(shifts, more, strict=True)), lead)


def _lies_along(rows: Rows, lanes: int, full: Sequence[int]) -> bool:
    """Return whether vectors along rows are short of few elements, and most full arrays are contiguous along them."""
    along, across = (
        sum(dim[1 + a] == 1 for a in full)
        for dim in (rows.reduced[0], rows.outer[0] if rows.outer else rows.reduced[0])
    )
    return 2 * rows.total >= 3 * lanes and along > across


def pattern_of(rows: Rows, lanes: int, light: Sequence[int] = ()) -> str:
    """Return ``"rows"`` where vectors, or work-items, should run along the rows, ``"columns"`` where across them.

    `lanes`: elements of a vector: fewer rows than that leave some of it idle; `light`: the full arrays, if more time
    goes into loads and stores than into what is computed for each row: gathered vectors cost more than putting lanes
    together.
    """
    lead = 1 + rows.lead
    if rows.columns < lanes <= rows.total:
        return "rows"
    if 1 < rows.total <= SHORT_ROW_VECTORS * lanes and not (light and _lies_along(rows, lanes, light)):
        return "columns"
    outer = tuple((d[0], d[lead], d[lead]) for d in rows.outer)
    reduced = tuple((d[0], d[lead]) for d in rows.reduced)
    return planning.select_variant(planning.Problem(outer, reduced, 0, 0)).pattern


def is_narrow(rows: Rows, lanes: int, full: Sequence[int]) -> bool:
    """Return whether the elements across rows are fewer than a vector has, but what follows may fill it.

    `rows`: the normal form; `lanes`: elements of a vector; `full`: the full arrays.
    """
    if (
        len(rows.outer) != 1
        or len(rows.reduced) != 1
        or not lanes <= COLUMNS_PER_VECTOR_DIVISOR * rows.columns < COLUMNS_PER_VECTOR_DIVISOR * lanes
    ):
        return False
    (_, *across), (count, *along) = rows.outer[0], rows.reduced[0]
    lead = rows.lead in full and across[rows.lead] == 1
    return lead and count >= MIN_NARROW_ROWS and all((across[a], along[a]) in ((1, rows.columns), (0, 1)) for a in full)


def with_long_run(rows: Rows, lanes: int) -> Rows:
    """Put the longest dimension of a row first, if the one that is there is shorter than a vector."""
    if rows.reduced[0][0] >= lanes:
        return rows
    longest = max(rows.reduced, key=lambda d: d[0])
    return rows._replace(reduced=(longest, *(d for d in rows.reduced if d is not longest)))


def with_wide_columns(rows: Rows, lanes: int) -> Rows:
    """Put the longest dimension across rows first, if the one that is there would leave lanes of a vector idle."""
    if rows.columns >= lanes or not rows.outer:
        return rows
    longest = max(rows.outer, key=lambda d: d[0])
    if longest[0] <= rows.columns:
        return rows
    return rows._replace(outer=(longest, *(d for d in rows.outer if d is not longest)))


def access_of(rows: Rows, pattern: str) -> tuple[str, ...]:
    """Return for each array how its lanes are addressed: ``unit``, ``splat`` (all the same) or ``gather``."""
    dim = rows.reduced[0] if pattern == "rows" else (rows.outer[0] if rows.outer else (1,) * (len(rows.shifts) + 1))
    return tuple({0: "splat", 1: "unit"}.get(step, "gather") for step in dim[1:])


def tiled(
    rows: Rows, access: Sequence[str], lanes: int, full: Sequence[int], written: int
) -> tuple[int, tuple[str, ...]]:
    """Say how many columns a block of rows has that is turned in registers, and which arrays have such blocks.

    `rows`: the normal form, with vectors across rows; `lanes`: elements of a vector; `full`: the full arrays;
    `written`: number of the first output.

    Returns columns, a power of two; 0 where no array has blocks. Returns access to each array, ``tile`` for those that
    have.
    """
    total = rows.total
    if not (
        rows.outer
        and len(rows.reduced) == 1
        and 1 < total <= SHORT_ROW_VECTORS * lanes <= SHORT_ROW_VECTORS * rows.columns
    ):
        return 0, tuple(access)
    columns = min(lanes, 1 << (total - 1).bit_length())
    found = list(access)
    for a in full:
        step = rows.outer[0][1 + a]
        is_dense = step == total or (step > total and (a < written or total >= columns))
        if rows.reduced[0][1 + a] == 1 and is_dense:
            found[a] = "tile"
    # One array alone is gathered as fast as it is turned, unless there is nothing between its rows.
    is_worthwhile = found.count("tile") > 1 or (found.count("tile") == 1 and total == columns)
    return (columns, tuple(found)) if is_worthwhile else (0, tuple(access))


class PreTransposed(NamedTuple):
    """An array that is copied first, so that its lanes are side by side.

    `view`: its elements in the order of the copy; the offset counts from the array's own.
    """

    array: int
    view: Layout


def pre_transposed(rows: Rows, pattern: str, candidates: Sequence[int]) -> tuple[Rows, tuple[PreTransposed, ...]]:
    """Copy arrays that are read many times with a stride to another layout: all differences of two sets of points.

    `candidates`: arrays that may be copied.
    """
    dims, shifts, copies = [*rows.outer, *rows.reduced], list(rows.shifts), []
    first, reads = len(rows.outer), rows.number * rows.total
    order = list(range(first, len(dims))) + list(range(first))
    if pattern == "columns" and first:
        order.insert(0, order.pop(order.index(0)))
    for a in candidates if reads >= MIN_READS_TO_TRANSPOSE else ():
        moved = [d for d in order if dims[d][1 + a]]
        if dims[order[0]][1 + a] in (0, 1) or MIN_REUSE_TO_TRANSPOSE * prod(dims[d][0] for d in moved) > reads:
            continue
        shape, strides = zip(*((dims[d][0], dims[d][1 + a]) for d in reversed(moved)), strict=True)
        copies.append(PreTransposed(a, Layout(shape, strides, shifts[a])))
        shifts[a] = 0
        for d, step in zip(moved, contiguous_strides(shape)[::-1], strict=True):
            dims[d] = (*dims[d][: 1 + a], step, *dims[d][2 + a :])
    return Rows(tuple(dims[:first]), tuple(dims[first:]), tuple(shifts), rows.lead), tuple(copies)


class Split(NamedTuple):
    """Split of the work among work-items.

    `chunk`, `chunks`: length and number of the chunks of a row; where there are several, there is a launch for each
    loop; `work_items`: work-items on schedule cpu, work-groups per chunk on schedule simt; `blocks`: tasks of a
    chunk; `tiles`: tasks side by side; `width`: rows of a task; `is_cached`: whether the input of a task is still in
    the cache in its next loop; `threads_per_row`, `held`: on schedule simt: work-items of a row, and elements that each
    keeps in registers (0: none).
    """

    chunk: int
    chunks: int
    work_items: int
    blocks: int
    tiles: int = 1
    width: int = 1
    is_cached: bool = True
    threads_per_row: int = 1
    held: int = 0


def _column_tile(rows: Rows, lanes: int, tile_vectors: int, nbytes: int) -> tuple[int, bool]:
    """Return the width of a tile in rows, and whether it stays in the cache.

    A narrow tile is slower than a second pass over memory: it touches many pages, and loads bytes that it does not use.
    """
    fitting = CORE_CACHE_BYTES // max(1, rows.total * lanes * nbytes)
    is_cached = fitting >= min(WIDE_TILE_VECTORS, tile_vectors, ceil_div(rows.columns, lanes))
    return (min(tile_vectors, fitting) if is_cached else tile_vectors) * lanes, is_cached


def split_cpu(
    rows: Rows,
    pattern: str,
    units: int,
    lanes: int,
    tile_vectors: int,
    *,
    passes: int,
    nbytes: int,
    is_rounded: bool,
    min_task: int = MIN_CHUNK_ELEMENTS,
) -> Split:
    """Share out the work to a few work-items, each with a run of tasks.

    `units`: compute units of the device; `lanes`, `tile_vectors`: elements of a vector, and the most vectors of a tile;
    `passes`: passes over a row; `nbytes`: bytes that a task has for each position of its rows; `is_rounded`: whether
    long chains of operations lose digits; `min_task`: elements of a chunk below which splitting costs more than it
    gives.
    """
    count, total = rows.number, rows.total
    width, is_cached = (
        _column_tile(rows, lanes, tile_vectors, nbytes)
        if pattern == "columns"
        else (1, total * nbytes <= CORE_CACHE_BYTES)
    )
    if passes == 1:
        width = tile_vectors * lanes if pattern == "columns" else 1
    tiles = ceil_div(rows.columns, width) if pattern == "columns" else 1
    blocks = count // rows.columns * tiles if pattern == "columns" else count
    workers = ITEMS_PER_UNIT * units if count * total >= MIN_SHARED_ELEMENTS else 1
    chunks = 1
    # With few blocks, rows are split as well. Each loop over a split row is a launch, which finds less in the caches,
    # so rows that stay in a core's cache are split only if compute units would idle.
    if blocks < (2 * units if is_cached and passes > 1 else 4 * workers):
        # A multiple of `workers` tasks, unless chunks would be too short.
        chunks = min(workers // gcd(blocks, workers), count * total // (blocks * min_task))
    if is_rounded and chunks > 1:
        chunks = max(chunks, ceil_div(total, MAX_SEQUENTIAL_TERMS))
    chunk, chunks = chunks_of(total, chunks)
    return Split(chunk, chunks, min(workers, blocks * chunks), blocks, tiles, width, is_cached and chunks == 1)


def split_simt(rows: Rows, pattern: str, units: int, group: int, most_held: int) -> Split:
    """Share out the work to many work-groups of `group` work-items.

    `most_held`: elements of a row that a work-item may keep in registers; a power of two, or 0.
    """
    count, total, is_along = rows.number, rows.total, pattern == "rows"
    if is_along and 0 < total <= most_held * group:
        held, threads = _held(count, total, units, group, most_held)
        return Split(total, 1, ceil_div(count, group // threads), count, 1, 1, True, threads, held)
    wanted = BUSY_GROUPS_PER_UNIT * units
    across = 1 if is_along else min(power_of_two(count), COALESCED_ITEMS, group)
    if not is_along and count >= wanted * group:  # enough to do without sharing
        across = group
    threads_per_row = min(group // across, power_of_two(total))
    if is_along:
        threads_per_row = min(threads_per_row, power_of_two(max(1, total // 4)))
    groups = ceil_div(count, group // threads_per_row)
    chunks = 1
    if groups < units:
        chunks = min(wanted // groups, total // (MIN_SIMT_ITEM_ELEMENTS * threads_per_row))
    chunk, chunks = chunks_of(total, chunks)
    return Split(chunk, chunks, groups, count, 1, 1, False, threads_per_row)


def _held(count: int, total: int, units: int, group: int, most: int) -> tuple[int, int]:
    """Return how many elements a work-item keeps, and the work-items of a row: few, but all units must be busy."""
    held = MIN_HELD
    while held < most and total > held * COALESCED_ITEMS:
        held *= 2
    threads = power_above(ceil_div(total, held))
    while held > MIN_HELD and 2 * threads <= group and count * threads < RESIDENT_ITEMS * units // 2:
        held, threads = held // 2, 2 * threads
    return held, threads


def vector_access(rows: Rows, full: Sequence[int], offsets: Sequence[int], lanes: int) -> tuple[str, ...]:
    """Return ``vector`` for each array whose rows are aligned vectors, else ``gather``.

    `full`: the full arrays; `offsets`: start of each array in its buffer, in elements; `lanes`: elements of a vector.
    """

    def is_aligned(a: int) -> bool:
        starts = rows.shifts[a] + offsets[a], rows.total, *(dim[1 + a] for dim in rows.outer)
        return len(rows.reduced) == 1 and rows.reduced[0][1 + a] == 1 and not any(n % lanes for n in starts)

    return tuple("vector" if a in full and is_aligned(a) else "gather" for a in range(len(rows.shifts)))


def fits_int(rows: Rows) -> bool:
    """Return whether a C int holds every index and step, with room for one block more."""
    reach = sum(n * max(1, *map(abs, steps)) for n, *steps in (*rows.outer, *rows.reduced))
    return max(reach, rows.number * rows.total) < 1 << 30


@cache
def geometry_struct(index: str, dims: tuple[int, int], arrays: int, spills: int, totals: int) -> Struct:
    """Return the struct with the layouts of the arrays and the partition of the work.

    `index`: C type of its members; `dims`: dimensions across and along rows that it holds, from the innermost outwards;
    lengths and steps in elements; `arrays`, `spills`, `totals`: number of arrays, of values that are spilled between
    passes, and of reductions.
    """
    outer, reduced = dims
    return Struct(
        (index, "blocks tiles width total chunk chunks parts partial_slots scratch"),
        (index, "threads_per_row"),
        (index, f"outer[{outer}] reduced[{reduced}]"),
        (index, f"outer_step[{arrays}][{outer}] reduced_step[{arrays}][{reduced}]"),
        (index, f"spill_at[{max(1, spills)}] partial_at[{max(1, totals)}]"),
        name="geometry",
    )


def pack_geometry(
    rows: Rows,
    split: Split,
    dims: tuple[int, int],
    scratch: Sequence[int],
    parts: int,
    partial_at: Sequence[int],
    index: str,
) -> bytes:
    """Pack the struct of `geometry_struct`.

    `rows`, `split`: the normal form, and the split of the work; `dims`: dimensions across and along rows that the
    struct holds; `scratch`: bytes that a work-item spills, then the offset of each value; `parts`: number of partial
    results of each row; `partial_at`: offsets of the partial results of each reduction, in bytes; `index`: C type of
    the members.
    """
    arrays = len(rows.shifts)
    outer = rows.outer + ((1, *[0] * arrays),) * (dims[0] - len(rows.outer))
    reduced = rows.reduced + ((1, *[0] * arrays),) * (dims[1] - len(rows.reduced))
    scratch_bytes, *spill_at = scratch
    return geometry_struct(index, dims, arrays, len(spill_at), len(partial_at)).pack(
        blocks=split.blocks,
        tiles=split.tiles,
        width=split.width,
        total=rows.total,
        chunk=split.chunk,
        chunks=split.chunks,
        parts=parts,
        partial_slots=split.blocks * split.width,
        scratch=scratch_bytes,
        threads_per_row=split.threads_per_row,
        outer=[length for length, *_ in outer],
        reduced=[length for length, *_ in reduced],
        outer_step=list(zip(*(steps for _, *steps in outer), strict=True)),
        reduced_step=list(zip(*(steps for _, *steps in reduced), strict=True)),
        spill_at=spill_at or (0,),
        partial_at=partial_at or (0,),
    )
