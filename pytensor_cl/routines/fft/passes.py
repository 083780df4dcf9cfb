"""Passes of a Fourier transform whose elements stay in registers: arithmetic without a device.

A work-item holds some elements of a line. Each pass of Stockham's algorithm is a butterfly on them, and between two
passes the work-items of a line exchange elements through local memory.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.fft.limits import (
    BANKS_BYTES,
    MIN_REGISTER_LENGTH_ELEMENTS,
    REGISTER_ELEMENTS,
    REGISTER_RADICES,
)


class RegisterLimits(NamedTuple):
    """Work-items and bytes of local memory that a work-group may have, and the size of a real number."""

    items: int
    local_bytes: int
    itemsize: int


class Pass(NamedTuple):
    """A pass: `radix` times the transforms of length `done` that there are become transforms of `radix` * `done`.

    `butterflies`: those of a line; `slots`: those of a work-item; `table`: where its twiddle factors begin; `block`,
    `padding`: in the exchange after it, so many elements of local memory are unused after each block.
    """

    radix: int
    done: int
    butterflies: int
    slots: int
    table: int
    block: int
    padding: int


def _factorisations(n: int, largest: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a number as a product of at most so many radices, in descending order."""
    if n == 1:
        yield ()
        return
    for radix in REGISTER_RADICES:
        if radix <= largest and n % radix == 0 and most:
            yield from ((radix, *rest) for rest in _factorisations(n // radix, radix, most - 1))


def _work_items(length: int, radices: tuple[int, ...], most: int) -> tuple[int, int] | None:
    """Return the elements of a work-item and the number of work-items, both as small as possible; None if too many."""
    choices = []
    for radix in radices:
        for slots in range(1, REGISTER_ELEMENTS // radix + 1):
            items = ceil_div(length // radix, slots)
            elements = max(ceil_div(length // r, items) * r for r in radices)
            if items <= most and elements <= REGISTER_ELEMENTS:
                choices.append((elements, items))
    return min(choices, default=None)


@cache
def choose_radices(length: int, most_items: int) -> tuple[tuple[int, ...], int] | None:
    """Return the radices of the passes for a length, and the number of work-items; None if there is no good choice.

    The fewest passes are best, as each of them but the first moves all elements through local memory; then the
    smallest of the largest radix, which leaves the most work-items to hide latencies.
    """
    if length < MIN_REGISTER_LENGTH_ELEMENTS:
        return None
    for passes in range(2, length.bit_length()):
        found = []
        for radices in _factorisations(length, max(REGISTER_RADICES), passes):
            sizes = _work_items(length, radices, most_items) if len(radices) == passes else None
            if sizes is not None:
                found.append((sizes, max(radices), sum(radices), radices))
        if found:
            (_, items), *_, radices = min(found)
            return radices, items
    return None


def passes_of(length: int, radices: tuple[int, ...], items: int, banks: int) -> tuple[Pass, ...]:
    """Return the passes.

    Neighbouring work-items store runs of `done` elements, `done` * `radix` apart, and read runs as long as a warp or as
    a line has work-items. A block is at least as long as a run that is read.
    """
    passes: list[Pass] = []
    done, table = 1, 0
    for radix in radices:
        width, count = done * radix, length // radix
        block = width * ceil_div(min(items, banks), width)
        padding = done if done < banks and width % 2 == 0 else 0
        passes.append(Pass(radix, done, count, ceil_div(count, items), table, block, padding))
        table += done * (radix - 1) if done > 1 else 0
        done = width
    return tuple(passes)


def pitch_of(length: int, passes: tuple[Pass, ...], spacing: int, banks: int) -> int:
    """Return the distance of two lines in local memory, as small as possible: `spacing` banks, modulo all of them."""
    pitch = max(length + ceil_div(length, p.block) * p.padding for p in passes[:-1])
    return pitch + (spacing - pitch) % banks if spacing < banks else pitch


def fits(length: int, limits: RegisterLimits) -> bool:
    """Return whether a device has room for one line of a length."""
    chosen = choose_radices(length, limits.items)
    if chosen is None:
        return False
    banks = BANKS_BYTES // limits.itemsize
    passes = passes_of(length, *chosen, banks)
    return pitch_of(length, passes, banks, banks) * limits.itemsize <= limits.local_bytes
