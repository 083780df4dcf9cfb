"""Draws that take as many numbers of a generator as they happen to need, made in parallel chunks."""

from collections.abc import Iterator
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import round_up
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.routine import DeviceTables
from pytensor_cl.routines.random.distributions import Variate
from pytensor_cl.routines.random.generator import ARGUMENTS, RawSequence, ziggurat_tables
from pytensor_cl.routines.random.limits import (
    CHUNK_PADDING,
    CHUNKS_PER_UNIT,
    FILL_LANES,
    MAX_CHUNK,
    MIN_CHUNK,
    ODD_DRAWS,
    POSITIONS_PER_ODD_DRAW,
    ROUND_POSITIONS,
)
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.program import Kernel


class NotNumpy(Exception):
    """The numbers cannot be those that NumPy draws: the host draws them."""


class Batch(NamedTuple):
    """Draws in the places where chunks left them.

    `array`: the draws of chunk ``j`` begin at ``j * capacity``; `capacity`: places of a chunk; `where`: on the device,
    for each chunk how many draws there are, and then the number of the first one in the batch; `at`, `size`: number of
    the first draw among all, and how many draws of the batch are used.
    """

    array: GpuArray
    capacity: int
    where: GpuArray
    chunks: int
    at: int
    size: int


class _Task(NamedTuple):
    """Data that all batches of a call share."""

    sequence: RawSequence
    generator: np.random.Generator
    values: tuple[float, ...]
    constants: tuple[np.float64, ...]
    is_exact: bool
    table: GpuArray


class _Chunks(NamedTuple):
    """Chunks that one launch follows: first position, length and number of chunks, and the arrays it writes."""

    origin: int
    chunk: int
    chunks: int
    capacity: int
    draws: GpuArray
    report: GpuArray


class _Odd(NamedTuple):
    """Draws whose last digit may differ: chunk, number in it and position of each, and a number that it was made of."""

    places: np.ndarray
    numbers: np.ndarray


class Stream:
    """Draw a variate as NumPy does."""

    def __init__(self, context: Context, variate: Variate, schedule: str) -> None:
        self.context, self.variate, self.schedule = context, variate, schedule
        self._kernels: dict[str, Kernel] = {}
        self._patch: Kernel | None = None

    def source(self, generator: str) -> KernelSource:
        """Return the kernel for a generator."""
        variate = self.variate
        preambles = (
            render("random/generator", generator=generator, lanes=FILL_LANES[self.schedule]),
            render("random/variates", generator=generator, needed=variate.needed),
        )
        return kernel_source(
            "random/stream",
            preambles=preambles,
            generator=generator,
            state=ARGUMENTS[generator],
            draw=variate.draw.format(g=generator),
            fast=variate.fast,
            kind=variate.kind,
            parameters=variate.numbers,
            words=variate.word_bits,
            schedule=self.schedule,
        )

    def _kernel(self, generator: str) -> Kernel:
        if generator not in self._kernels:
            self._kernels[generator] = self.context.kernel(self.source(generator))
        return self._kernels[generator]

    def draw(self, sequence: RawSequence, generator: np.random.Generator, size: int, values: Any) -> Iterator[Batch]:
        """Yield the draws, batch by batch, and leave the Generator where NumPy would.

        `generator`: it is changed when the last batch is there; `values`: parameters of the variate.

        Raises `NotNumpy`: the numbers differ from NumPy's.
        """
        variate = self.variate
        constants = tuple(map(np.float64, variate.constants(*values)))
        table = tables_on(self.context)
        if variate.table is not None:
            table = self.context.from_host(variate.table(*values))
        task = _Task(sequence, generator, tuple(values), constants, variate.is_exact(*values), table)
        # NumPy takes the pending half of a number first: its position is -1.
        origin = -1 if variate.word_bits == 32 and sequence.pending is not None else 0
        done = 0
        while done < size:
            chunks = self._chunks(origin, (size - done) * variate.takes(*values))
            report, odd = self._followed(task, chunks)
            self._recompute_odd(task, chunks, odd)
            counts, firsts, ends = report
            starts = np.cumsum(counts) - counts
            total = int(counts.sum())
            if done + total >= size:
                total = size - done
                last = int(np.searchsorted(starts, total, "left")) - 1
                self._finish(task, chunks, last, int(firsts[last]), total - int(starts[last]))
            where = self.context.from_host(np.concatenate([counts, starts]))
            yield Batch(chunks.draws, chunks.capacity, where, chunks.chunks, done, total)
            done += total
            origin = int(ends[-1])

    def _chunks(self, origin: int, positions: float) -> _Chunks:
        """Share out the positions; chunks are even, so that draws of two numbers each begin where chunks do."""
        variate, units = self.variate, self.context.info.compute_units
        shares = CHUNKS_PER_UNIT * units * (1 if self.schedule == "cpu" else 8 * SMALL_GROUP_ITEMS)
        longest = max(MAX_CHUNK[self.schedule], (32 if self.schedule == "cpu" else 8) * variate.warm)
        chunk = int(min(max(MIN_CHUNK, positions / shares), longest)) & ~1
        # More than the expected number of positions, so that one round nearly always makes all draws.
        count = max(1, ceil(min(1.005 * positions + 4 * positions**0.5 + 32, ROUND_POSITIONS) / chunk))
        capacity = ceil(chunk / variate.least) + CHUNK_PADDING
        draws = self.context.empty((count * capacity,), "float64" if variate.kind == "double" else "int64")
        return _Chunks(origin, chunk, count, capacity, draws, self.context.empty((3, count), "int64"))

    def _launch(self, task: _Task, chunks: _Chunks, again: np.ndarray, items: int) -> _Odd:
        """Follow the chains of all chunks, or of some again; return draws whose last digit may differ.

        Raises `NotNumpy`: there are too many of those.
        """
        context, sequence = self.context, task.sequence
        lists = task.is_exact and self.variate.kind == "double"
        most = ODD_DRAWS + chunks.chunks * chunks.chunk // POSITIONS_PER_ODD_DRAW if lists else 0
        odd_count = context.from_host(np.zeros(1, "int32"))
        places, numbers = context.empty((max(most, 1), 3), "int64"), context.empty((max(most, 1),), "float64")
        group = 1 if self.schedule == "cpu" else SMALL_GROUP_ITEMS
        extents = chunks.origin, chunks.chunk, self.variate.warm, items, chunks.chunks
        self._kernel(sequence.name).launch(
            context.queue,
            (round_up(items, group),),
            (group,),
            *sequence.arguments,
            np.uint32(sequence.pending or 0),
            *map(np.int64, extents),
            context.from_host(again).buffer,
            np.int64(chunks.capacity),
            task.table.buffer,
            chunks.draws.buffer,
            chunks.report.buffer,
            odd_count.buffer,
            np.int32(most),
            places.buffer,
            numbers.buffer,
            *task.constants,
        )
        found = int(context.download(odd_count)[0]) if lists else 0
        if found > most:
            raise NotNumpy("more draws than expected use functions whose last digit differs")
        return _Odd(context.download(places[:found]), context.download(numbers[:found]))

    def _followed(self, task: _Task, chunks: _Chunks) -> tuple[np.ndarray, _Odd]:
        """Follow the chains until each chunk begins where the one before it ends; return the report.

        Raises `NotNumpy`: chains do not meet.
        """
        odd = self._launch(task, chunks, np.array([-1, -1]), chunks.chunks)
        for _ in range(chunks.chunks):  # each round settles one more chunk at least
            report = self.context.download(chunks.report)
            _, firsts, ends = report
            apart = np.flatnonzero(firsts[1:] != ends[:-1]) + 1
            if not apart.size:
                return report, odd
            is_kept = ~np.isin(odd.places[:, 0], apart)
            more = self._launch(task, chunks, np.stack([apart, ends[apart - 1]], axis=1), apart.size)
            odd = _Odd(*(np.concatenate([a[is_kept], b]) for a, b in zip(odd, more, strict=True)))
        raise NotNumpy("chains of draws do not meet")

    def _recompute_odd(self, task: _Task, chunks: _Chunks, odd: _Odd) -> None:
        """Replace draws whose last digit may differ by those that the host computes."""
        count, variate, context = len(odd.numbers), self.variate, self.context
        if not count:
            return
        if variate.recompute is not None:
            drawn = variate.recompute(odd.numbers, *map(float, task.constants)).tolist()
        else:
            drawn = []
            for position in odd.places[:, 2].tolist():
                task.sequence.go(position)
                drawn.append(variate.numpy(task.generator, 1, *task.values)[0])
            task.sequence.restore()
        if self._patch is None:
            self._patch = context.kernel(kernel_source("random/patch", kind=variate.kind))
        places, values = context.from_host(odd.places), context.from_host(np.array(drawn, chunks.draws.dtype))
        numbers = np.int64(chunks.capacity), np.int64(count)
        # A fixed size of work-groups: PoCL compiles a kernel again for each size, and the count differs between calls.
        self._patch.launch(
            context.queue,
            (round_up(count, SMALL_GROUP_ITEMS),),
            (SMALL_GROUP_ITEMS,),
            chunks.draws.buffer,
            *numbers,
            places.buffer,
            values.buffer,
        )

    def _finish(self, task: _Task, chunks: _Chunks, number: int, position: int, count: int) -> None:
        """Let NumPy make the draws of the last chunk, so that the Generator is in NumPy's state.

        Raises `NotNumpy`: the device has drawn something else.
        """
        begin = number * chunks.capacity
        mine = self.context.download(chunks.draws[begin : begin + count])
        (task.sequence.go_to_half if self.variate.word_bits == 32 else task.sequence.go)(position)
        own = self.variate.numpy(task.generator, count, *task.values)
        is_same = np.array_equal(mine, own) if task.is_exact else np.allclose(mine, own, rtol=1e-9, atol=1e-12)
        if not is_same:
            task.sequence.restore()
            raise NotNumpy("this NumPy draws other numbers")


def tables_on(context: Context) -> GpuArray:
    """Return the tables of the ziggurats."""
    kept = context.tables.setdefault("random", DeviceTables(1 << 16))
    return kept.lookup("ziggurat", lambda: (context.from_host(ziggurat_tables()),))[0]
