"""Normal form of a matrix product, how its work is shared out, and what kernels are told of it: arithmetic only."""

import struct
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from pytensor_cl.runtime.layout import Layout, collapse

__all__ = [
    "CpuBlocking",
    "Product",
    "Tile",
    "balanced",
    "encode",
    "grid",
    "merge",
    "shared_grid",
    "sizes_of",
    "splits",
    "turned",
]

_BATCH_DIMS = 4  # of gemm_operand.batch; more become several launches
_HEAD = struct.Struct("18q")  # gemm_plan before its operands
_OPERAND = struct.Struct("7q")  # gemm_operand
_HALVED = 8  # rows of a tile that has one of half as many beside it
_PACKED = 4  # columns that panels are packed by at least: half a vector of as many has no function of its own

# Schedule cpu; what the device decides is in runtime/tuning.py.
_PACKING = 6.4  # rows of A by which a vector of B is multiplied in the time in which it is packed
_SCATTERED = 0.2  # cost of storing an element of a column, relative to a step along k of a vector times a tile's rows
_GAIN = 0.9  # time for which a product is turned
_LONG = 16  # how many times longer than m and n k must be to be split
_PART = 512  # elements along k that are worth another work-item where k is split
_PANEL = 0.15  # cost of a panel beside that of its vectors, relative likewise
_READING = 1.0  # cost of a vector that a work-item reads from far caches, relative likewise
_TOLERANCE = 1.03  # plans that take this much longer are as good as the best


def sizes_of(rows: int, vectors: int) -> tuple[tuple[int, int], ...]:
    """Return micro-kernels of kernels/gemm/microkernel.mako: rows and half vectors of a tile and of smaller ones."""
    low = (rows, rows // 2) if rows >= _HALVED else (rows,)
    return tuple((height, 2 * count) for height in low for count in range(1, vectors + 1))


class Tile(NamedTuple):
    """The register tile of the cpu schedule: `rows` x `vectors` accumulators of `lanes` elements."""

    rows: int
    vectors: int
    lanes: int

    @property
    def cols(self) -> int:
        """Width in elements."""
        return self.vectors * self.lanes

    @property
    def packing(self) -> float:
        """Cost of packing a vector of B, relative to multiplying it by the tile's rows."""
        return _PACKING / self.rows

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Rows and half vectors of the functions that multiply: the whole tile, and smaller ones for edges."""
        full = sizes_of(self.rows, self.vectors)
        return (*full, (self.rows, 1)) if self.rows >= _HALVED and self.lanes > _PACKED else full


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


class CpuBlocking(NamedTuple):
    """How the cpu schedule goes through a product; fields of gemm_plan."""

    m_block: int = 1
    k_block: int = 1
    pack_a: bool = False
    pack_b: bool = False
    packed_b: int = 0
    scratch: int = 0
    shared: int = 0
    ahead: bool = False
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


def encode(p: Product, way: CpuBlocking, has_epilogue: bool) -> tuple[tuple[bytes, ...], ...]:
    """Pack a gemm_plan for each launch, and the operands of an epilogue, of which there is one at least."""
    inner = ((1,) * _BATCH_DIMS + p.batch)[-_BATCH_DIMS:]
    head = _HEAD.pack(p.m, p.n, p.k, *way, prod(inner), *inner)
    plans = [head + operands for operands in _operands(p, (p.a, p.b, p.c, p.o))]
    if not has_epilogue:
        return tuple((plan,) for plan in plans)
    further = (operands or bytes(_OPERAND.size) for operands in _operands(p, p.further))
    return tuple(zip(plans, further, strict=True))


def balanced(total: int, limit: int, unit: int) -> int:
    """Size of the fewest equal blocks of at most `limit`, in whole units."""
    count = -(-total // limit) or 1
    return -(-total // (count * unit)) * unit or unit


def grid(p: Product, tile: Tile, items: int, units: int, packing: float = 0) -> tuple[int, int, int]:
    """Split a product among at most about `items` work-items along n, m and the batch.

    Parameters
    ----------
    p, tile
        What is computed, and with which tile.
    items, units
        Work-items that there may be, and those that run at a time.
    packing
        Cost of packing a vector of B, relative to multiplying it by a tile's rows.
    """
    batches = prod(p.batch)
    z = min(batches, items)
    rows, columns, left = -(-p.m // tile.rows), -(-p.n // tile.lanes), -(-items // z)

    def seconds(grid: tuple[int, int]) -> float:
        x, y = grid
        high, wide = -(-rows // y), -(-columns // x)
        vectors = wide + _PANEL * -(-wide // tile.vectors)
        return -(-batches // z) * -(-x * y * z // units) * vectors * (high + packing)

    grids = [(x, y) for x in range(1, min(left, columns) + 1) for y in {max(1, min(left // x, rows)), 1}]
    best = _TOLERANCE * min(map(seconds, grids))
    good = [g for g in grids if seconds(g) <= best]
    x, y = min(good, key=lambda g: (-g[0] * g[1], p.m / g[1] + p.n / g[0]))
    return x, y, z


def shared_grid(p: Product, tile: Tile, items: int, units: int) -> tuple[int, int, int]:
    """Split a product among at most `items` work-items along n and m, if B is packed before they begin.

    What counts is how much of A and of B they all read, and how much is left for some when others are through.

    Parameters
    ----------
    p, tile, items, units
        As those of `grid`.
    """
    rows, panels = -(-p.m // tile.rows), -(-p.n // tile.cols)

    def seconds(grid: tuple[int, int]) -> float:
        x, y = grid
        largest = -(-panels // x) * tile.vectors * -(-rows // y)
        return _READING * (y * p.n + x * p.m) / tile.lanes / units + largest / 2

    grids = ((x, y) for x in range(1, min(panels, items) + 1) for y in range(1, min(rows, items // x) + 1))
    return *min(grids, key=seconds), 1


def _cost(p: Product, tile: Tile) -> float:
    """Cost of a product: vectors of B that are multiplied by a tile's rows, for each step along k."""
    half = tile.lanes // 2
    vectors = (p.n // tile.lanes * 2 + -(-(p.n % tile.lanes) // half)) / 2
    low = tile.rows // 2
    high = -(-p.m // low) / 2
    gathered, scattered = p.b[-1] != 1, p.o[-1] != 1
    return vectors * (high + tile.packing * gathered) + _SCATTERED * scattered * p.m * p.n / max(1, p.k)


def turned(p: Product, tile: Tile) -> Product:
    """Return the transposed product, B.T @ A.T, where that is cheaper: vectors then lie along m, else p itself."""

    def transposed(x: tuple[int, ...]) -> tuple[int, ...]:
        return (*x[:-2], x[-1], x[-2])

    other = Product(p.n, p.m, p.k, p.batch, transposed(p.b), transposed(p.a), transposed(p.c), transposed(p.o))
    return other if _cost(other, tile) < _GAIN * _cost(p, tile) else p


def splits(p: Product, items: int) -> int:
    """In how many parts k is computed, because it is what there is most of."""
    return 1 if p.batch or p.k < _LONG * max(p.m, p.n) else max(1, min(items, p.k // _PART))
