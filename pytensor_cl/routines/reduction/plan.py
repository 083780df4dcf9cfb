"""Normal form of a reduction, the kernel that suits it, and how its work is shared out: arithmetic only.

Dimensions are first put in order and merged, so that few patterns remain: outer rows with a contiguous reduced
run, reduced rows with contiguous outer columns, and either of them with any step. Where there are few outputs
and much to reduce, the range is split into chunks whose results a second pass reduces.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from math import gcd, inf, prod
from typing import NamedTuple, Self

import numpy as np

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.ndrange import power_of_two
from pytensor_cl.routines.base.two_pass import chunks_of
from pytensor_cl.routines.reduction.limits import (
    COALESCED_ITEMS,
    LONG_RUN_ELEMENTS,
    MAX_ITEM_ELEMENTS,
    MAX_ITEM_VECTORS,
    MAX_JOINED_PARTS,
    MAX_SEQUENTIAL_TERMS,
    MAX_SIMT_LANES,
    MIN_PACKED_ARRAY_ELEMENTS,
    MIN_ROW_ELEMENTS,
    MIN_THREADS_ALONG,
    NARROW_ROW_VECTORS,
    OUTERMOST_LENGTH,
    PACKED_ELEMENTS,
    RESIDENT_ITEMS,
    SHORT_ROW_VECTORS,
    SHORT_RUN_ELEMENTS,
    SIMT_LOAD_BYTES,
)
from pytensor_cl.runtime.layout import collapse, contiguous_strides
from pytensor_cl.runtime.tuning import DEFAULTS, Tuning


class Problem(NamedTuple):
    """A reduction in normal form: few dimensions, from the innermost outwards, with positive strides in the input.

    `outer`: length, step in the input and step in the output of each outer dimension; `reduced`: length and step in the
    input of each reduced dimension; `in_shift`, `out_shift`: start of the traversal, in elements from the first
    element.
    """

    outer: tuple[tuple[int, ...], ...]
    reduced: tuple[tuple[int, ...], ...]
    in_shift: int
    out_shift: int

    @property
    def outputs(self) -> int:
        """Number of results."""
        return prod(n for n, *_ in self.outer)

    @property
    def total(self) -> int:
        """Number of elements that go into a result."""
        return prod(n for n, _ in self.reduced)

    @property
    def run(self) -> tuple[int, ...]:
        """Length and step of the innermost reduced dimension."""
        return self.reduced[0] if self.reduced else (1, 1)

    @property
    def columns(self) -> tuple[int, ...]:
        """Length and step of the innermost outer dimension."""
        return self.outer[0][:2] if self.outer else (1, 1)


def canonicalize_dims(dims: Iterable[tuple[int, ...]], operands: int) -> tuple[tuple[tuple[int, ...], ...], list[int]]:
    """Order and merge dimensions (length, step in each operand); return them and the shifts of the operands.

    The order in which elements are visited is free. It is ascending in the first operand, the largest
    step outermost; step zero, which repeats what was read, counts as the largest.
    """
    dims = list(dims)
    shifts = [sum((n - 1) * steps[k] for n, *steps in dims if steps[0] < 0) for k in range(operands)]
    upward = [(n, *(-s for s in steps)) if steps[0] < 0 else (n, *steps) for n, *steps in dims]
    upward.sort(key=lambda d: (d[1] or inf, *map(abs, d[2:])), reverse=True)
    sizes, merged = collapse([d[0] for d in upward], [[d[k + 1] for d in upward] for k in range(operands)])
    return tuple(zip(sizes, *merged, strict=True))[::-1], shifts


def normal_form(
    shape: Sequence[int], in_strides: Sequence[int], out_strides: Sequence[int], axes: Collection[int]
) -> Problem:
    """Put a reduction in normal form.

    `shape`, `in_strides`: the input's, strides in elements; `out_strides`: the output's, one for each axis that is
    kept; `axes`: the reduced axes.
    """
    dims = list(zip(shape, in_strides, strict=True))
    left = [dim for axis, dim in enumerate(dims) if axis not in axes]
    outer_dims = [(*dim, step) for dim, step in zip(left, out_strides, strict=True)]
    outer, (in_shift, out_shift) = canonicalize_dims(outer_dims, 2)
    gone = [dim for axis, dim in enumerate(dims) if axis in axes]
    if any(n == 0 for n, _ in gone):  # nothing is read
        return Problem(outer, ((0, 1),), 0, out_shift)
    reduced, (reduced_shift,) = canonicalize_dims(gone, 1)
    return Problem(outer, reduced, in_shift + reduced_shift, out_shift)


def in_two_passes(problem: Problem, chunks: int) -> tuple[Problem, Problem]:
    """Divide a reduction: the first part leaves a row of outputs per chunk, the second reduces the rows."""
    outputs = problem.outputs
    steps = contiguous_strides([n for n, *_ in problem.outer][::-1])[::-1]
    pairs = list(zip(problem.outer, steps, strict=True))
    first = problem._replace(outer=tuple((n, own, row) for (n, own, _), row in pairs), out_shift=0)
    outer, _ = canonicalize_dims(((n, row, out) for (n, _, out), row in pairs), 2)
    return first, Problem(outer, ((chunks, outputs),), 0, problem.out_shift)


class RowPacking(NamedTuple):
    """A reduction of narrow rows, several of which are taken for one.

    `first`: makes as many results of each column as rows are one; `rest`: the rows that are left; nothing is reduced.
    """

    first: Problem
    rest: Problem


def packed_rows(problem: Problem, lanes: int) -> RowPacking | None:
    """Take several rows for one if they are dense, but too narrow for whole vectors; else return None."""
    width, step = problem.columns
    if len(problem.outer) != 1 or step != 1 or problem.reduced != ((problem.total, width),):
        return None
    if width % lanes == 0 or width >= NARROW_ROW_VECTORS * lanes or problem.total * width < MIN_PACKED_ARRAY_ELEMENTS:
        return None
    group = lanes // gcd(width, lanes)
    group *= max(1, PACKED_ELEMENTS // (group * width))
    whole, rest = divmod(problem.total, group)
    wide, left = group * width, rest * width
    first = Problem(((wide, 1, 1),), ((whole, wide),), problem.in_shift, 0)
    return RowPacking(first, Problem(((left, 1, 1),), (), problem.in_shift + whole * wide, 0))


def after_packed_rows(problem: Problem, packing: RowPacking, chunks: int) -> Problem:
    """Return the problem that remains when `chunks` rows of results and the rest follow one another."""
    width = problem.columns[0]
    rows = (chunks * packing.first.outputs + packing.rest.outputs) // width
    return problem._replace(reduced=((rows, width),), in_shift=0)


def outermost_stage(problem: Problem) -> Problem | None:
    """Return the reduction of the outermost dimension only, if that is to come first; else None.

    What is inside it is one long row then; else there would be many short runs.
    """
    if len(problem.reduced) < 2 or not problem.outer or problem.outputs * problem.total < MIN_PACKED_ARRAY_ELEMENTS:
        return None
    *inside, (length, step) = problem.reduced
    row = 1
    dims = sorted((d[1], d[0]) for d in (*inside, *problem.outer))
    for stride, n in dims:
        row *= n if stride == row else 0
    is_short = dims[0][1] < SHORT_RUN_ELEMENTS
    if length < OUTERMOST_LENGTH or row != step or not is_short:
        return None
    return Problem(((row, 1, 1),), ((length, row),), problem.in_shift, 0)


def after_outermost_stage(problem: Problem, first: Problem, chunks: int) -> Problem:
    """Return the problem that remains when the outermost dimension has become `chunks` rows."""
    return problem._replace(reduced=(*problem.reduced[:-1], (chunks, first.outputs)), in_shift=0)


class Variant(NamedTuple):
    """Variant of the kernel.

    `pattern`: ``"rows"``: along the reduced run; ``"columns"``: across outer columns; ``"short"``: across them too, one
    vector after another; `unit`: whether vectors are contiguous, or gathered.
    """

    pattern: str
    unit: bool


def select_variant(problem: Problem, lanes: int = 0) -> Variant:
    """Return the kernel that suits a problem.

    `lanes`: elements of a vector on schedule cpu, which has a kernel for short reductions; 0 for the other schedule.
    """
    length, step = problem.run
    columns, column_step = problem.columns
    if lanes and 1 < problem.total <= SHORT_ROW_VECTORS * lanes and column_step != 1 and columns >= lanes:
        return Variant("short", unit=False)
    if (step == 1 or length == 1) and (length >= MIN_ROW_ELEMENTS or length >= columns):
        return Variant("rows", unit=True)
    if column_step == 1 and columns > 1:
        return Variant("columns", unit=True)
    # No dimension is contiguous: gather along the one whose elements are closer.
    if columns < MIN_ROW_ELEMENTS or (length >= MIN_ROW_ELEMENTS and step <= column_step):
        return Variant("rows", unit=False)
    return Variant("columns", unit=False)


class SimtVariant(NamedTuple):
    """Variant of a kernel of schedule simt.

    `along`: whether neighbouring work-items read along the reduced run; `is_run`: whether the reduced range is one
    dimension; `lanes`: elements of a load.
    """

    along: bool
    is_run: bool
    lanes: int

    @classmethod
    def of(cls, problem: Problem, lanes: int) -> Self:
        """Return the kernel for a problem.

        `lanes`: elements of an aligned vector, if the input begins at a multiple of it; else 1.
        """
        along, is_run = select_variant(problem).pattern == "rows", len(problem.reduced) <= 1
        length, step = problem.run
        places = length, problem.in_shift, *(dim[1] for dim in problem.outer)
        is_aligned = along and is_run and length and step == 1 and not any(n % lanes for n in places)
        return cls(along, is_run, lanes if is_aligned else 1)


def simt_lanes(dtype: str) -> int:
    """Return the elements of a load of schedule simt: at most 16 bytes, which is the widest of GPUs."""
    return max(1, min(MAX_SIMT_LANES, SIMT_LOAD_BYTES // np.dtype(dtype).itemsize))


class Split(NamedTuple):
    """Split of the work among work-items.

    `chunk`, `chunks`: length and number of the chunks of the reduced range; where there are several, a second pass
    follows; `global_size`, `local_size`: the NDRange; `blocks`, `tiles`: on schedule cpu: tasks of a chunk, and tiles
    across the innermost outer dimension; `threads_per_output`: on schedule simt: work-items that share an output.
    """

    chunk: int
    chunks: int
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    blocks: int = 0
    tiles: int = 1
    threads_per_output: int = 1


def _is_interleaved(problem: Problem) -> bool:
    """Return whether runs of different outputs alternate in memory: a chunk per run then reads it in order.

    In sums over all axes but one in the middle (as of a batch norm) this is up to twice as fast, because the
    hardware prefetches.
    """
    length, step = problem.run
    between = problem.columns[1] if problem.outer else 0
    return (
        step == 1 and len(problem.reduced) > 1 and length in LONG_RUN_ELEMENTS and problem.reduced[1][1] > between > 0
    )


def split_cpu(
    problem: Problem,
    units: int,
    lanes: int,
    *,
    may_split: bool,
    is_rounded: bool,
    pattern: str | None = None,
    may_be_wide: bool = False,
    tuning: Tuning = DEFAULTS,
) -> Split:
    """Share out the work to a few work-items, each with a run of tasks.

    `units`: compute units of the device; `lanes`: elements of a vector; `may_split`: whether there may be chunks;
    `is_rounded`: whether long chains of operations lose digits; `pattern`: that of the kernel; None uses that of
    `select_variant`; `may_be_wide`: whether a tile may be twice as wide if it then spans rows that follow one another.
    """
    outputs, total, columns = problem.outputs, problem.total, problem.columns[0]
    pattern = pattern or select_variant(problem).pattern
    tile = tuning["reduction.column_tile"] * lanes
    if may_be_wide and columns <= 2 * tile and problem.run[1] == columns:
        tile = columns
    tiles = 1 if pattern == "rows" else ceil_div(columns, tile)
    blocks = outputs if pattern == "rows" else outputs // columns * tiles
    workers = tuning["reduction.items_per_unit"] * units if outputs * total >= tuning["reduction.small"] else 1
    chunks = 1
    if may_split and blocks < 4 * workers:
        # A multiple of `workers` tasks, unless chunks would be too short.
        chunks = min(workers // gcd(blocks, workers), outputs * total // (blocks * tuning["reduction.min_task"]))
    if may_split and is_rounded:
        chunks = max(chunks, ceil_div(total, MAX_SEQUENTIAL_TERMS.get(pattern, total)))
    chunk, chunks = chunks_of(total, chunks)
    if may_split and workers > 1 and _is_interleaved(problem):
        chunk, chunks = problem.run[0], total // problem.run[0]
    return Split(chunk, chunks, (min(workers, blocks * chunks),), (1,), blocks, tiles)


def split_simt(
    problem: Problem, units: int, group: int, *, may_split: bool, lanes: int = 1, tuning: Tuning = DEFAULTS
) -> Split:
    """Share out the work to many work-groups of `group` work-items.

    `lanes`: elements of a load.
    """
    outputs, loads = problem.outputs, problem.total // lanes
    is_along = select_variant(problem).pattern == "rows"
    wanted = tuning["reduction.groups_per_unit"] * units
    if is_along:
        threads_per_output = _threads_along(outputs, loads, units, group, lanes)
    else:
        # Without sharing, if there is enough to do.
        across = group if outputs >= wanted * group else min(power_of_two(outputs), COALESCED_ITEMS, group)
        threads_per_output = min(group // across, power_of_two(loads))
    groups = ceil_div(outputs, group // threads_per_output)
    chunks = 1
    if may_split and groups < wanted:
        chunks = min(wanted // groups, problem.total // (tuning["reduction.min_thread"] * threads_per_output))
    chunk, chunks = chunks_of(problem.total, chunks)
    return Split(chunk, chunks, (groups * group, chunks), (group, 1), 0, 1, threads_per_output)


def joins_quickly(split: Split, counters: int) -> bool:
    """Return whether the work-group that comes last adds up the partial results of its outputs in a few steps."""
    groups = split.global_size[0] // split.local_size[0]
    return groups <= counters and split.chunks <= MAX_JOINED_PARTS * split.threads_per_output


def _threads_along(outputs: int, loads: int, units: int, group: int, lanes: int) -> int:
    """Return the work-items of an output whose range they read along: few meet sooner, but all units must be busy."""
    most = min(group, power_of_two(loads))
    each = MAX_ITEM_VECTORS if lanes > 1 else MAX_ITEM_ELEMENTS
    threads = min(most, max(MIN_THREADS_ALONG, power_of_two(ceil_div(loads, each))))
    while threads < most and outputs * threads < RESIDENT_ITEMS * units:
        threads *= 2
    return threads


def fits_int(problem: Problem) -> bool:
    """Return whether a C int holds every index and step, with room for one block more."""
    reach = sum(n * max(1, *map(abs, steps)) for n, *steps in (*problem.outer, *problem.reduced))
    return max(reach, problem.outputs * problem.total) < 1 << 30


@cache
def geometry_struct(index: str, outer_dims: int, reduced_dims: int) -> Struct:
    """Return the struct, for reductions and argmax, with the layouts of the arrays and the partition of the work.

    `index`: C type of its members; `outer_dims`, `reduced_dims`: dimensions that it holds, from the innermost outwards;
    lengths and steps are in elements.
    """
    return Struct(
        (index, "outputs total chunk chunks chunk_stride error_stride blocks tiles"),
        (index, "threads_per_output"),
        (index, f"outer[{outer_dims}] outer_in[{outer_dims}] outer_out[{outer_dims}]"),
        (index, f"reduced[{reduced_dims}] reduced_in[{reduced_dims}]"),
        name="geometry",
    )


def pack_geometry(
    problem: Problem, split: Split, error_stride: int, dims: tuple[int, int], index: str, lanes: int = 1
) -> bytes:
    """Pack the struct of `geometry_struct`.

    `problem`, `split`: the reduction, and the split of its work; `error_stride`: elements between a partial result and
    its rounding error; `dims`: kept and reduced dimensions that the struct holds; `index`: C type of its members;
    `lanes`: elements of a load of schedule simt, in which the range is counted.
    """
    outer = problem.outer + ((1, 0, 0),) * (dims[0] - len(problem.outer))
    reduced = problem.reduced + ((1, 0),) * (dims[1] - len(problem.reduced))
    lengths, in_steps, out_steps = zip(*outer, strict=True)
    reduced_lengths, reduced_steps = zip(*reduced, strict=True)
    return geometry_struct(index, *dims).pack(
        outputs=problem.outputs,
        total=problem.total // lanes,
        chunk=split.chunk // lanes,
        chunks=split.chunks,
        chunk_stride=problem.outputs,
        error_stride=error_stride,
        blocks=split.blocks,
        tiles=split.tiles,
        threads_per_output=split.threads_per_output,
        outer=lengths,
        outer_in=in_steps,
        outer_out=out_steps,
        reduced=reduced_lengths,
        reduced_in=reduced_steps,
    )
