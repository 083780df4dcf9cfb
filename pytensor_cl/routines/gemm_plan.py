"""What kernels are told of a matrix product: the fields of kernels/gemm_plan.mako."""

import struct
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from pytensor_cl.runtime.layout import Layout, collapse

__all__ = ["HALVED", "Product", "Way", "encode", "merge", "sizes_of"]

HALVED = 8  # rows of a tile that has one of half as many beside it
_BATCH_DIMS = 4  # of gemm_operand.batch; more become several launches
_HEAD = struct.Struct("16q")  # gemm_plan before its operands
_OPERAND = struct.Struct("7q")  # gemm_operand


class Product(NamedTuple):
    """A product whose batch dimensions and m are merged as far as all operands allow.

    The strides are those of the batch dimensions, then of rows and columns.
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]
    o: tuple[int, ...]
    further: tuple[tuple[int, ...], ...] = ()  # arrays that an epilogue reads


def merge(a: Layout, b: Layout, c: Layout, o: Layout, *further: Layout) -> Product:
    """Merge batch dimensions, and those along which B repeats into m, so that few large products remain.

    Parameters
    ----------
    a, b, c, o, further
        Layouts with the same batch dimensions before the last two.
    """
    n, k = b.shape[-1], a.shape[-1]
    repeats = (*b.strides[:-2], 0)  # B is the same for every row of A
    rows = (x.strides[:-1] for x in (c, o, *further))
    shape, strides = collapse(a.shape[:-1], (a.strides[:-1], repeats, *rows))
    if not shape or strides[1][-1] != 0:  # the last one is a batch dimension: m was 1
        shape, strides = (*shape, 1), tuple((*s, 0) for s in strides)
    ra, rb, *others = strides
    rc, ro, *rest = ((*row, x.strides[-1]) for row, x in zip(others, (c, o, *further), strict=True))
    full = (*ra, a.strides[-1]), (*rb[:-1], *b.strides[-2:]), rc, ro, tuple(rest)
    return Product(shape[-1], n, k, shape[:-1], *full)


def _starts(shape: Sequence[int], strides: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Offsets of each operand for every index of the dimensions that the kernel has no room for."""
    for index in product(*map(range, shape)):
        yield tuple(sum(i * s for i, s in zip(index, row, strict=False)) for row in strides)


class Way(NamedTuple):
    """How the cpu schedule goes through a product; fields of gemm_plan."""

    m_block: int = 1
    k_block: int = 1
    pack_a: bool = False
    pack_b: bool = False
    packed_b: int = 0
    scratch: int = 0
    splits: int = 1
    partial: int = 0


def _operands(p: Product, operands: Sequence[tuple[int, ...]]) -> list[bytes]:
    """Pack a gemm_operand of each for each launch."""
    outer = max(0, len(p.batch) - _BATCH_DIMS)
    lead = (0,) * (_BATCH_DIMS - len(p.batch) + outer)
    return [
        b"".join(_OPERAND.pack(at, *x[-2:], *lead, *x[outer:-2]) for at, x in zip(starts, operands, strict=True))
        for starts in _starts(p.batch[:outer], operands)
    ]


def encode(p: Product, way: Way, has_epilogue: bool) -> tuple[tuple[bytes, ...], ...]:
    """Pack a gemm_plan for each launch, and the operands of an epilogue, of which there is one at least."""
    inner = ((1,) * _BATCH_DIMS + p.batch)[-_BATCH_DIMS:]
    head = _HEAD.pack(p.m, p.n, p.k, *way, prod(inner), *inner)
    plans = [head + operands for operands in _operands(p, (p.a, p.b, p.c, p.o))]
    if not has_epilogue:
        return tuple((plan,) for plan in plans)
    further = (operands or bytes(_OPERAND.size) for operands in _operands(p, p.further))
    return tuple(zip(plans, further, strict=True))


def sizes_of(rows: int, vectors: int) -> tuple[tuple[int, int], ...]:
    """Return the functions of kernels/gemm_tile.mako: rows and half vectors of a whole tile, and of smaller ones."""
    low = (rows, rows // 2) if rows >= HALVED else (rows,)
    return tuple((height, 2 * count) for height in low for count in range(1, vectors + 1))
