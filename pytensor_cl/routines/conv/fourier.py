"""Convolutions by Fourier transforms: for large kernels, a product for each frequency instead of sums over taps."""

from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache, partial
from itertools import pairwise, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import balanced_block, ceil_div, round_up
from pytensor_cl.routines.base.blas import arithmetic_types, lanes_of
from pytensor_cl.routines.base.ndrange import item_range, ndrange
from pytensor_cl.routines.conv.limits import (
    FOURIER_BLOCKS,
    FOURIER_CHUNK_BYTES,
    FOURIER_ELEMENT_COST,
    FOURIER_FILTER_BYTES,
    FOURIER_FREQUENCIES,
    FOURIER_FREQUENCY_COST,
    FOURIER_IMAGE_BYTES,
    FOURIER_LAUNCH_COST,
    FOURIER_LINE_COST,
    FOURIER_MAX_RATIO,
    FOURIER_MIN_TAPS,
    FOURIER_MOVE_COST,
)
from pytensor_cl.routines.conv.plan import Axis, Problem, with_ascending_taps
from pytensor_cl.routines.elemwise.routine import Copy, Fill
from pytensor_cl.routines.fft.routine import IRFFT, RFFT
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout, collapse, contiguous_strides

_SIZES = Struct(("long", "groups m b k row frequencies"))
_TILES = Struct(
    ("long", "images groups m"),
    ("long", "out[3] tiles[3] block[3]"),
    ("long", "extent[3] first[3]"),
    ("long", "step[6]"),
)
_LEAD = 6  # dimensions of windows in front of the elements
_DIMS = 7  # dimensions of transformed arrays: with as many for each array, programs share kernels


class Tiling(NamedTuple):
    """One spatial dimension, cut into tiles that are transformed.

    `length`: of a transform; `number`: of tiles; `block`: positions of a tile, or its taps where the taps are cut;
    `lead`: zeros in front of the first tile of x; `first`: the first element of a result that is wanted.
    """

    length: int
    number: int
    block: int
    lead: int
    first: int

    @property
    def is_cut(self) -> bool:
        """Whether tiles begin where their number says, after zeros; a single one begins where the image does."""
        return self.number > 1 or self.length == 1

    @property
    def reach(self) -> int:
        """Elements that all tiles cover."""
        return (self.number - 1) * self.block + self.length


class Tilings(NamedTuple):
    """The tiles of a problem; `cuts_taps`: tiles are of taps, whose results are added; else they are of positions."""

    axes: tuple[Tiling, ...]
    cuts_taps: bool

    @property
    def number(self) -> int:
        """Number of tiles of an image, or of a kernel."""
        return prod(t.number for t in self.axes)

    @property
    def size(self) -> int:
        """Elements of a tile."""
        return prod(t.length for t in self.axes)

    @property
    def spectrum(self) -> tuple[int, ...]:
        """Numbers of frequencies along the dimensions that are transformed."""
        lengths = self.lengths
        return (*lengths[:-1], lengths[-1] // 2 + 1)

    @property
    def transformed(self) -> list[int]:
        """Numbers of the dimensions that are transformed."""
        return [i for i, t in enumerate(self.axes) if t.length > 1]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the transforms."""
        return tuple(t.length for t in self.axes if t.length > 1)

    def row(self, lanes: int) -> int:
        """Return numbers of a row: whole vectors, and not a power of two."""
        row = 2 * round_up(prod(self.spectrum), lanes)
        return row + 2 * lanes * (row % (16 * lanes) == 0)


@cache
def _fast_lengths(most: int) -> tuple[int, ...]:
    """Return even lengths with short passes, up to the first that is not below `most`."""
    lengths = [8]
    while lengths[-1] < most:
        k = 1 << (lengths[-1].bit_length() - 1)
        lengths.append(next(n for n in (k * 5 // 4, k * 3 // 2, 2 * k) if n > lengths[-1]))
    return tuple(lengths)


def _whole(a: Axis) -> Tiling | None:
    """Return one tile that is as long as need be; None if kernels reach too far beyond the image."""
    first = a.taps - 1 - a.pad
    wanted = max(a.image + max(a.pad, 0), first + a.out, a.taps)
    return None if first < 0 else Tiling(_fast_lengths(wanted)[-1], 1, a.out, 0, first)


def _tilings(a: Axis, cuts_taps: bool) -> list[Tiling]:
    """Return the ways to cut a dimension of stride and dilation one."""
    kept, cut = (a.out, a.taps) if cuts_taps else (a.taps, a.out)
    if kept == 1:  # without a transform
        return [Tiling(1, cut, 1, a.pad, 0)]
    whole = _whole(a)
    found = [] if whole is None else [whole]
    for n in _fast_lengths(FOURIER_MAX_RATIO * kept):
        block = n - kept + 1
        if 2 * block >= kept and block < cut:
            found.append(Tiling(n, ceil_div(cut, block), block, a.pad, (block if cuts_taps else kept) - 1))
    return found


def _windows(source: Layout, counts: Sequence[int], steps: Sequence[int], lengths: Sequence[int]) -> Layout:
    """Return tiles of the last three dimensions, as three dimensions in front of these."""
    inner = source.strides[3:]
    outer = (step * stride for step, stride in zip(steps, inner, strict=True))
    return Layout((*source.shape[:3], *counts, *lengths), (*source.strides[:3], *outer, *inner), source.offset)


def _is_possible(p: Problem) -> bool:
    return all((a.stride == 1 or a.out == 1) and (abs(a.dilation) == 1 or a.taps == 1) for a in p.axes)


def cost(p: Problem, tiles: Tilings) -> float:
    """Return the work of a problem, in multiply-adds of an element."""
    x, w, y = p.batch * p.groups * p.c, p.groups * p.m * p.c, p.batch * p.groups * p.m
    number = tiles.number
    transformed = (x + w) * number + y if tiles.cuts_taps else (x + y) * number + w
    moved = p.size + (x * number * tiles.size if number > 1 else 0)
    rows = FOURIER_BLOCKS[p.m < FOURIER_BLOCKS[0][0]][0]
    products = p.batch * p.groups * round_up(p.m, rows) * p.c * number * prod(tiles.spectrum)
    return (
        FOURIER_LAUNCH_COST
        + (FOURIER_ELEMENT_COST + FOURIER_LINE_COST / tiles.lengths[-1]) * transformed * tiles.size
        + FOURIER_FREQUENCY_COST * products
        + FOURIER_MOVE_COST * moved
    )


def _bytes(p: Problem, tiles: Tilings, itemsize: int) -> tuple[int, int]:
    """Return the sizes of the spectra of w, and of all arrays of one image: tiles and spectra of x and of y."""
    row = p.groups * tiles.row(1) * itemsize
    of_taps, of_positions = (tiles.number, 1) if tiles.cuts_taps else (1, tiles.number)
    return p.m * p.c * row * of_taps, 2 * row * (p.c * tiles.number + p.m * of_positions)


@lru_cache(maxsize=256)
def best_tilings(p: Problem, itemsize: int) -> Tilings | None:
    """Return the tiles for a simplified problem; None if it cannot be computed so within the limits of memory."""
    p = with_ascending_taps(p, "x")
    if not _is_possible(p) or not p.depth:
        return None
    found = []
    for cuts_taps in (False, True):
        for axes in product(*(_tilings(a, cuts_taps) for a in p.axes)):
            tiles = Tilings(axes, cuts_taps)
            if not tiles.lengths:
                continue
            filters, image = _bytes(p, tiles, itemsize)
            if filters <= p.m * FOURIER_FILTER_BYTES and image <= FOURIER_IMAGE_BYTES:
                found.append(tiles)
    return min(found, key=partial(cost, p), default=None)


def is_profitable(p: Problem, itemsize: int, multiply_add: float) -> bool:
    """Return whether transforms take less than the sums of a simplified problem.

    `multiply_add`: time of a multiply-add of the method that computes it else, relative to one of a matrix product.
    """
    taps = sum(a.taps > 1 and a.out > 1 and min(a.taps, a.out) for a in p.axes)
    if taps < FOURIER_MIN_TAPS or p.size * p.depth * multiply_add < FOURIER_LAUNCH_COST:
        return False
    tiles = best_tilings(p, itemsize)
    return tiles is not None and cost(p, tiles) < p.size * p.depth * multiply_add


def _bounds(total: int, most: int) -> tuple[int, ...]:
    """Return where about equal parts, of at most so much but at least one, begin and end."""
    part = balanced_block(total, max(1, most), 1)
    return (*range(0, total, part), total)


class _Plan(NamedTuple):
    """`p`: with taps in the order of x; `channels`, `images`: where parts of m and of the batch begin and end."""

    p: Problem
    tiles: Tilings
    channels: tuple[int, ...]
    images: tuple[int, ...]


class Fourier:
    """Convolutions of stride and dilation one by way of the spectra of tiles of x and of w.

    Transforms are circular. Tiles of positions overlap by the taps (the overlap-save method); where the kernel is
    larger than the result, as in gradients of weights, tiles are of taps, and are summed over like channels. What is
    transformed at a time is bounded by `FOURIER_IMAGE_BYTES` and `FOURIER_CHUNK_BYTES`, the spectra of w by
    `FOURIER_FILTER_BYTES`: there are parts of the batch, and of the channels of y.
    """

    def __init__(self, context: Context, dtype: str, schedule: str) -> None:
        self.context = context
        self.dtype = context.check_dtype(dtype)
        self.schedule = schedule
        self.is_simt = schedule == "simt"
        self.lanes = 1 if self.is_simt else lanes_of(context, self.dtype)

    # --- kernels ---

    def source(self, few: bool) -> KernelSource:
        """Return the kernels beside the transforms; `few`: for few channels of y."""
        rows, columns = FOURIER_BLOCKS[few]
        return kernel_source(
            "conv/fourier",
            ctype=arithmetic_types(self.dtype)["ctype"],
            lanes=self.lanes,
            rows=rows,
            columns=columns,
            chunk=FOURIER_FREQUENCIES,
            sizes=_SIZES,
            tiles=_TILES,
            is_simt=self.is_simt,
        )

    @cached_property
    def _kernels(self) -> Callable[[str, bool], Any]:
        built: dict[tuple[str, bool], Any] = {}

        def kernel(name: str, few: bool) -> Any:
            if (name, few) not in built:
                source = self.source(few)
                built[name, few] = self.context.kernel(source, f"{source.name}_{name}")
            return built[name, few]

        return kernel

    @cached_property
    def _forward(self) -> Callable[[int], RFFT]:
        return cache(lambda ndim: RFFT(self.context, self.dtype.name, ndim, self.schedule))

    @cached_property
    def _inverse(self) -> IRFFT:
        return IRFFT(self.context, self.dtype.name, _DIMS, self.schedule)

    @cached_property
    def _copy(self) -> Copy:
        return Copy(self.context, self.dtype.name, 6, schedule=self.schedule)

    @cached_property
    def _fill(self) -> Fill:
        return Fill(self.context, self.dtype.name, 1, schedule=self.schedule)

    # --- plans ---

    def plan(
        self, p: Problem, span: Sequence[int]
    ) -> Callable[[GpuArray, GpuArray, GpuArray, Sequence[GpuArray]], None]:
        """Return a function that enqueues a simplified problem, given x, w and y."""
        tiles = best_tilings(p, self.dtype.itemsize)
        assert tiles is not None
        p = with_ascending_taps(p, "x")
        filters, image = _bytes(p, tiles, self.dtype.itemsize)
        channels = _bounds(p.m, FOURIER_FILTER_BYTES * p.m // filters)
        images = _bounds(p.batch, FOURIER_CHUNK_BYTES // image)
        return partial(self._run, _Plan(p, tiles, channels, images))

    # --- launch ---

    def _run(self, plan: _Plan, x: GpuArray, w: GpuArray, y: GpuArray, extra: Sequence[GpuArray]) -> None:
        tiles, (first_x, first_w, first_y) = plan.tiles, plan.p.starts
        for m, m_end in pairwise(plan.channels):
            starts = first_x, first_w + m * plan.p.w[1], first_y + m * plan.p.y[2]
            of_channels = plan.p._replace(m=m_end - m, starts=starts)
            filters = self._spectra(self._filters(of_channels, tiles, w), tiles)
            for n, n_end in pairwise(plan.images):
                starts = first_x + n * plan.p.x[0], first_w, of_channels.starts[2] + n * plan.p.y[0]
                p = of_channels._replace(batch=n_end - n, starts=starts)
                images = self._spectra(self._images(p, tiles, x), tiles)
                self._store(p, tiles, self._product(p, tiles, images, filters), y)

    def _padded(self, source: GpuArray, lead: Sequence[int], shape: Sequence[int]) -> GpuArray:
        """Return a contiguous copy with zeros around it, or cut off.

        `source`: with three dimensions and three spatial ones; `lead`, `shape`: zeros in front, and extents, of the
        latter.
        """
        target = self.context.empty((*source.shape[:3], *shape), self.dtype)
        flat = target.with_layout(Layout((target.size,), (1,), target.layout.offset))
        self._fill.launch((flat,), (self.dtype.type(0),))
        spans = [(max(0, -b), min(n, e - b)) for n, b, e in zip(source.shape[3:], lead, shape, strict=True)]
        if all(a < b for a, b in spans):
            inner = source[(..., *(slice(a, b) for a, b in spans))]
            room = target[(..., *(slice(a + k, b + k) for (a, b), k in zip(spans, lead, strict=True)))]
            self._copy.launch((room,), (inner,))
        return target

    def _images(self, p: Problem, tiles: Tilings, x: GpuArray) -> GpuArray:
        """Return overlapping tiles of x: groups, images, then tiles and channels, then elements.

        Tiles of positions stand before the channels, and tiles of taps after them.
        """
        shape = p.groups, p.batch, p.c, *(a.image for a in p.axes)
        strides = p.x[1], p.x[0], p.x[2], *(a.x for a in p.axes)
        image = x.with_layout(Layout(shape, strides, x.layout.offset + p.starts[0]))
        lead = [t.lead if t.is_cut else 0 for t in tiles.axes]
        extents = [t.reach if t.is_cut else a.image for t, a in zip(tiles.axes, p.axes, strict=True)]
        if any(lead) or any(n > a.image for n, a in zip(extents, p.axes, strict=True)):
            image = self._padded(image, lead, extents)
        lengths = [min(t.length, n) for t, n in zip(tiles.axes, extents, strict=True)]
        layout = _windows(image.layout, [t.number for t in tiles.axes], [t.block for t in tiles.axes], lengths)
        return image.with_layout(layout if tiles.cuts_taps else layout.transpose((0, 1, 3, 4, 5, 2, 6, 7, 8)))

    def _filters(self, p: Problem, tiles: Tilings, w: GpuArray) -> GpuArray:
        """Return kernels, reversed: groups, channels of y, channels of x, tiles of taps, elements."""
        taps, counts, lengths = [a.taps for a in p.axes], [1, 1, 1], [a.taps for a in p.axes]
        layout = Layout((p.groups, p.m, p.c, *taps), (*p.w, *(a.w for a in p.axes)), w.layout.offset + p.starts[1])
        kernel = w.with_layout(layout)
        if tiles.cuts_taps:
            counts = [t.number for t in tiles.axes]
            lengths = [t.block if t.is_cut else n for t, n in zip(tiles.axes, taps, strict=True)]
            extents = [n * block for n, block in zip(counts, lengths, strict=True)]
            if extents != taps:
                kernel = self._padded(kernel, (0, 0, 0), extents)
        layout = _windows(kernel.layout, counts, lengths, lengths)
        backwards = (..., *(slice(None, None, -1) for _ in taps))
        return kernel.with_layout(layout)[backwards]

    def _spectra(self, windows: GpuArray, tiles: Tilings) -> GpuArray:
        """Return the spectra of tiles; a row for each, in order."""
        (shape, strides, offset), row = windows.layout, tiles.row(self.lanes)
        steps = [row * s for s in contiguous_strides(shape[:_LEAD])]
        spectra = self.context.empty((prod(shape[:_LEAD]), row), self.dtype)
        lead, (reads, writes) = collapse(shape[:_LEAD], [strides[:_LEAD], steps])
        axes = [_LEAD + i for i in tiles.transformed]
        ones = max(1, _DIMS - len(lead) - len(axes))
        unit, zeros = (1,) * ones, (0,) * ones
        source = (*unit, *lead, *(shape[k] for k in axes)), (*zeros, *reads, *(strides[k] for k in axes)), offset
        inner = contiguous_strides((*tiles.spectrum, 2))
        target = (*unit, *lead, *tiles.spectrum, 2), (*zeros, *writes, *inner), spectra.layout.offset
        transform = self._forward(ones + len(lead) + len(axes))
        transform.transform(windows.with_layout(Layout(*source)), spectra.with_layout(Layout(*target)), tiles.lengths)
        return spectra

    def _product(self, p: Problem, tiles: Tilings, x: GpuArray, w: GpuArray) -> GpuArray:
        """Return the spectra of y: a row for each group, channel, image and tile."""
        b, k = (p.batch, p.c * tiles.number) if tiles.cuts_taps else (p.batch * tiles.number, p.c)
        row, few = tiles.row(self.lanes), p.m < FOURIER_BLOCKS[0][0]
        y = self.context.empty((p.groups * p.m * b, row), self.dtype)
        frequencies = round_up(prod(tiles.spectrum), self.lanes)
        sizes = _SIZES.pack_values(p.groups, p.m, b, k, row, frequencies)
        rows, columns = FOURIER_BLOCKS[few]
        each = ceil_div(b, columns) * frequencies if self.is_simt else ceil_div(frequencies, FOURIER_FREQUENCIES)
        units = p.groups * ceil_div(p.m, rows) * each
        scale = self.dtype.type(1 / tiles.size)
        self._launch("product", few, units, sizes, x.buffer, w.buffer, y.buffer, scale)
        return y

    def _store(self, p: Problem, tiles: Tilings, spectra: GpuArray, y: GpuArray) -> None:
        """Transform back, and store what is wanted."""
        counts = (1, 1, 1) if tiles.cuts_taps else tuple(t.number for t in tiles.axes)
        lead = p.groups, p.m, p.batch, *counts
        row, spectrum = tiles.row(self.lanes), tiles.spectrum
        blocks = [a.out if tiles.cuts_taps else t.block for a, t in zip(p.axes, tiles.axes, strict=True)]
        *outer, last = axes = tiles.transformed
        extents = [blocks[i] if i in outer else tiles.axes[i].length for i in range(3)]
        first = [tiles.axes[i].first if i == last else 0 for i in range(3)]
        rows, ones = prod(lead), (1,) * (_DIMS - 2 - len(axes))
        z = self.context.empty((*ones, rows, *(extents[i] for i in axes)), self.dtype)
        shape = (*ones, rows, *spectrum, 2)
        strides = (*(0 for _ in ones), row, *contiguous_strides((*spectrum, 2)))
        source = spectra.with_layout(Layout(shape, strides, spectra.layout.offset))
        wanted = tuple(tiles.axes[i].first for i in outer)
        self._inverse.transform(source, z, tiles.lengths, wanted, True)
        out = [a.out for a in p.axes]
        values = _TILES.pack_values(
            p.batch, p.groups, p.m, *out, *counts, *blocks, *extents, *first, *p.y, *(a.y for a in p.axes)
        )
        units = p.size if self.is_simt else p.size // out[2]
        start = np.int64(y.layout.offset + p.starts[2])
        self._launch("store", p.m < FOURIER_BLOCKS[0][0], units, values, z.buffer, y.buffer, start)

    def _launch(self, name: str, few: bool, units: int, *arguments: Any) -> None:
        kernel = self._kernels(name, few)
        size = ndrange(self.context, kernel, units) if self.is_simt else item_range(self.context, units, 1)
        kernel.launch(self.context.queue, *size, *arguments)
