"""Plan of a sort: keys compared as unsigned integers, and the choice between networks and radix sort."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT
from pytensor_cl.routines.reduction.plan import canonicalize_dims
from pytensor_cl.routines.sort.limits import CHUNK_STEP, MAX_NETWORK_ROW, MAX_NETWORK_ROW_OF_MANY, MIN_ITEM_KEYS
from pytensor_cl.runtime.layout import Layout


class KeyCode(NamedTuple):
    """C code of keys.

    `dtype`: the unsigned integer that holds a key and, reinterpreted, a value; `to_key`, `from_key`: expressions of the
    unsigned integer ``x``.
    """

    dtype: str
    to_key: str
    from_key: str


def _float_code(dtype: np.dtype, unsigned: np.dtype, merges_zeros: bool) -> tuple[str, str]:
    top = 1 << (8 * dtype.itemsize - 1)
    infinity = int(np.array(np.inf, dtype).view(unsigned))
    everything, sign, magnitude, limit = (literal(v, unsigned) for v in (2 * top - 1, top, top - 1, infinity))
    ordered = f"x & {sign} ? ~x : x ^ {sign}"
    if merges_zeros:
        ordered = f"(x & {magnitude}) == 0 ? {sign} : {ordered}"
    return f"(x & {magnitude}) > {limit} ? {everything} : {ordered}", f"x & {sign} ? x ^ {sign} : ~x"


def key_code(dtype: str, merges_zeros: bool, is_descending: bool = False) -> KeyCode:
    """Return how values become unsigned integers of the same order: NaN, which has one key, last.

    `merges_zeros`: whether -0.0 has the key of 0.0, and not the one before it; `is_descending`: whether the order is
    turned round, NaN first.
    """
    if is_descending:
        ascending = key_code(dtype, merges_zeros)
        turned = f"(({ctype(ascending.dtype)})~x)"
        return KeyCode(ascending.dtype, f"~({ascending.to_key})", ascending.from_key.replace("x", turned))
    kind = np.dtype(dtype)
    unsigned = np.dtype(f"uint{8 * kind.itemsize}")
    if kind.kind == "f":
        return KeyCode(str(unsigned), *_float_code(kind, unsigned, merges_zeros))
    if kind.kind == "i":
        flipped = f"x ^ {literal(1 << (8 * kind.itemsize - 1), unsigned)}"
        return KeyCode(str(unsigned), flipped, flipped)
    return KeyCode(str(unsigned), "x", "x")


class Problem(NamedTuple):
    """The rows: length and steps along the axis; length and steps (output, input) of each other dimension."""

    length: int
    in_step: int
    out_step: int
    outer: tuple[tuple[int, ...], ...]
    in_shift: int
    out_shift: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return prod(n for n, *_ in self.outer)


class Split(NamedTuple):
    """Chunks of a row, and how many work-items or work-groups share the chunks of all rows."""

    chunk: int
    chunks: int
    workers: int


def normal_form(layout: Layout, out_strides: Sequence[int], axis: int) -> Problem:
    """Take the axis out, and put the other dimensions in the output's order in memory."""
    others = [d for d in range(layout.ndim) if d != axis]
    dims = [(layout.shape[d], out_strides[d], layout.strides[d]) for d in others]
    outer, (out_shift, in_shift) = canonicalize_dims(dims, 2)
    return Problem(layout.shape[axis], layout.strides[axis], out_strides[axis], outer, in_shift, out_shift)


def uses_network(problem: Problem, many: int, tile: int) -> bool:
    """Return whether a network is faster than the passes of a radix sort.

    `problem`: the rows; `many`: rows that fill the vectors of all compute units; `tile`: elements that there is room
    for.
    """
    return problem.length <= min(tile, MAX_NETWORK_ROW_OF_MANY if problem.rows >= many else MAX_NETWORK_ROW)


def share_out(problem: Problem, units: int, tile: int) -> Split:
    """Cut rows into chunks: enough to keep the device busy, none too small to justify its counts of digits.

    `tile`: elements that a work-group moves at once; 0 on schedule cpu.
    """
    least, wanted, step = (tile, 8 * units, tile) if tile else (MIN_ITEM_KEYS, 2 * units, CHUNK_STEP)
    wanted = max(1, min(ceil_div(wanted, problem.rows), problem.length // least))
    chunk = ceil_div(problem.length, wanted * step) * step
    chunks = ceil_div(problem.length, chunk)
    tasks = problem.rows * chunks
    return Split(chunk, chunks, tasks if tile else min(tasks, ITEMS_PER_UNIT * units))


def split_digit(bits: int) -> list[tuple[int, int]]:
    """Return the parts of a digit, of at most four bits, by which a tile is sorted: the lowest bit, and how many."""
    count = ceil_div(bits, 4)
    cuts = [bits * k // count for k in range(count + 1)]
    return [(low, high - low) for low, high in pairwise(cuts)]


def share_group(problem: Problem, units: int, group: int, tile: int) -> Split:
    """Return the work-items for a short row, the rows that a work-group sorts at once, and how many work-groups."""
    threads = min(group, 1 << max(problem.length // 2 - 1, 0).bit_length())
    slots = min(group // threads, tile // problem.length)
    return Split(threads, slots, min(ceil_div(problem.rows, slots), 64 * units))


@cache
def geometry_struct(dims: int) -> Struct:
    """Return the struct with the layouts of the rows, which are along the axis.

    `dims` is the number of the other dimensions, ordered from the innermost outwards; lengths and steps in elements.
    """
    return Struct(
        ("long", "rows length chunk chunks in_step out_step"),
        ("long", f"outer[{dims}] outer_out[{dims}] outer_in[{dims}]"),
        name="geometry",
    )


def pack_geometry(problem: Problem, split: Split, dims: int) -> bytes:
    """Pack the struct of `geometry_struct`."""
    lengths, out_steps, in_steps = zip(*problem.outer, *((1, 0, 0),) * (dims - len(problem.outer)), strict=True)
    return geometry_struct(dims).pack(
        rows=problem.rows,
        length=problem.length,
        chunk=split.chunk,
        chunks=split.chunks,
        in_step=problem.in_step,
        out_step=problem.out_step,
        outer=lengths,
        outer_out=out_steps,
        outer_in=in_steps,
    )


def element_type(key: str, indexed: bool, is_128_bit: bool) -> tuple[str, int]:
    """Return the C type of what moves, and its bytes."""
    if not indexed:
        return ctype(key), np.dtype(key).itemsize
    return ("ulong2", 16) if is_128_bit else ("ulong", 8)
