"""Winograd's convolutions on schedule simt: transforms in registers, and a batch of matrix products."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.base.blas import arithmetic_types
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, power_of_two
from pytensor_cl.routines.conv.epilogue import ConvEpilogue
from pytensor_cl.routines.conv.limits import (
    NAIVE_GROUPS_PER_UNIT,
    SIMT_SPLIT_K_GROUPS_PER_UNIT,
    SIMT_WINOGRAD_BYTE_COST,
    SIMT_WINOGRAD_CHUNK_BYTES,
    SIMT_WINOGRAD_GROUP,
    SIMT_WINOGRAD_IMAGE_BYTES,
    SIMT_WINOGRAD_LAUNCH_COST,
    SIMT_WINOGRAD_NEIGHBOURS,
    SIMT_WINOGRAD_ROW_ELEMENTS,
    SIMT_WINOGRAD_TILE,
)
from pytensor_cl.routines.conv.plan import CALL, Axis, Problem, encode
from pytensor_cl.routines.conv.plan import plan_preamble as conv_preamble
from pytensor_cl.routines.conv.winograd import COUNT, SIZE, TAPS, matrices, normalized, part_bounds
from pytensor_cl.routines.gemm.routine import BatchedGemm
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

_POINTS = SIZE * SIZE
_TILES = Struct(("long", "first images rows cols u_row u_point v_row v_point m_row m_point parts u_part"))
_KERNELS = ("filters", "inputs", "outputs")
_WEIGHT_KERNELS = ("inputs", "gradients", "weights")
_Step = Callable[[GpuArray, GpuArray, GpuArray, Sequence[GpuArray]], None]


class _Tiles(NamedTuple):
    """A block of images; fields of <name>_tiles."""

    first: int
    images: int
    rows: int
    cols: int
    u_row: int
    u_point: int
    v_row: int
    v_point: int
    m_row: int
    m_point: int
    parts: int = 1
    u_part: int = 0

    @property
    def number(self) -> int:
        """Number of tiles."""
        return self.images * self.rows * self.cols


def _tiles_of_image(p: Problem) -> int:
    return prod(ceil_div(a.out, COUNT) for a in p.axes[-2:])


def _image_elements(p: Problem) -> int:
    """Return the number of elements of V and M of an image."""
    return _POINTS * _tiles_of_image(p) * p.groups * (p.c + p.m)


def is_profitable(p: Problem, units: int, itemsize: int) -> bool:
    """Return whether the transforms cost less than the multiplications that they save, on `units` compute units.

    Counted in multiply-adds; transforms cost what they move, as they are bound by the memory.
    """
    if _image_elements(p) * itemsize > SIMT_WINOGRAD_IMAGE_BYTES:
        return False
    high = round_up(p.m, SIMT_WINOGRAD_TILE)
    products = _POINTS * p.groups * high * p.c * round_up(p.batch * _tiles_of_image(p), SIMT_WINOGRAD_TILE)
    images = p.batch * p.groups * (p.c * prod(a.image for a in p.axes) + p.m * prod(a.out for a in p.axes))
    filters = p.groups * p.c * p.m * (TAPS**2 + 2 * _POINTS)
    moved = itemsize * (images + filters + 2 * p.batch * _image_elements(p))
    direct = p.groups * high * p.depth * round_up(p.columns, SIMT_WINOGRAD_TILE)
    return products + SIMT_WINOGRAD_BYTE_COST * moved + SIMT_WINOGRAD_LAUNCH_COST * units < direct


def of_weights(p: Problem) -> Problem:
    """Return the convolution y of x with w whose gradient for w, given that for y, is a problem."""
    axes = tuple(Axis(a.taps, a.out, a.image, a.dilation, a.stride, a.pad, a.x, a.y, a.w) for a in p.axes)
    x, y, w = p.x[::-1], (p.w[2], *p.w[:2]), (*p.y[1:], p.y[0])
    return Problem(p.c, p.groups, p.m, p.batch, axes, x, w, y, (p.starts[0], p.starts[2], p.starts[1]))


def is_weights_profitable(p: Problem, units: int, itemsize: int) -> bool:
    """Return the same as `is_profitable` for the gradient for w of a convolution."""
    transformed = p.batch * _image_elements(p)
    if transformed * itemsize > SIMT_WINOGRAD_IMAGE_BYTES:
        return False
    tiles, filters = p.batch * _tiles_of_image(p), p.groups * p.c * p.m
    high, wide = (round_up(n, SIMT_WINOGRAD_TILE) for n in (p.m, p.c))
    images = p.batch * p.groups * (p.c * prod(a.image for a in p.axes) + p.m * prod(a.out for a in p.axes))
    moved = itemsize * (images + 2 * transformed + filters * (TAPS**2 + 2 * _POINTS * _parts(p, units)))
    cost = _POINTS * p.groups * high * wide * tiles + SIMT_WINOGRAD_BYTE_COST * moved
    direct = p.groups * high * p.c * TAPS**2 * p.columns
    return cost + SIMT_WINOGRAD_LAUNCH_COST * units < direct


def _parts(p: Problem, units: int) -> int:
    """Return into how many parts of the images the gradient for w falls, so that all compute units have work."""
    side = 2 * SIMT_WINOGRAD_TILE  # of the tiles of the products
    groups = _POINTS * p.groups * ceil_div(p.m, side) * ceil_div(p.c, side)
    wanted = max(1, min(SIMT_SPLIT_K_GROUPS_PER_UNIT * units // groups, p.batch))
    return next(n for n in range(wanted, 0, -1) if p.batch % n == 0)


class WinogradSimt:
    """Convolutions of stride one with kernels of 3 x 3 taps, of schedule simt; see `winograd.Winograd`.

    `epilogue`: function of each element before it is stored.
    """

    def __init__(self, context: Context, dtype: str, epilogue: ConvEpilogue | None = None) -> None:
        self.context = context
        self.epilogue = epilogue if epilogue is not None and epilogue.fits else None
        self.dtype = context.check_dtype(dtype)

    def source(self, is_weights: bool = False) -> KernelSource:
        """Return the kernels of the transforms; `is_weights`: of the gradient for w."""
        ctype = arithmetic_types(self.dtype)["ctype"]
        preambles: tuple[str, ...] = (conv_preamble(),)
        final: dict[str, object] = {}
        if self.epilogue is not None:
            preambles, final = (*preambles, *self.epilogue.preambles), self.epilogue.arguments(1)
        return kernel_source(
            "conv/simt_winograd",
            preambles=preambles,
            ctype=ctype,
            taps=TAPS,
            count=COUNT,
            tiles=_TILES,
            is_weights=is_weights,
            **matrices(self.dtype.name, ctype, TAPS if is_weights else COUNT),
            **final,
        )

    @cached_property
    def _kernels(self) -> dict[str, Kernel]:
        return self._built(self.source(), _KERNELS)

    @cached_property
    def _weight_kernels(self) -> dict[str, Kernel]:
        return self._built(self.source(is_weights=True), _WEIGHT_KERNELS)

    def _built(self, source: KernelSource, names: Sequence[str]) -> dict[str, Kernel]:
        return {name: self.context.kernel(source, f"{source.name}_{name}") for name in names}

    @cached_property
    def _gemm(self) -> BatchedGemm:
        return BatchedGemm(self.context, self.dtype, schedule="simt")

    def plan(self, p: Problem, span: Sequence[int]) -> _Step:
        """Return a function that enqueues a simplified problem, given x, w, y and the epilogue's arrays.

        `p`: a problem for which Winograd applies, with numbers of 32 bits; `span`: first and one past the last element
        of x and w.
        """
        p = normalized(p)
        return partial(self._run, p, encode(p, span), self._blocks(p, self._most_images(p)))

    def _most_images(self, p: Problem) -> int:
        """Return the most images whose transforms take a limited amount of memory."""
        return max(1, SIMT_WINOGRAD_CHUNK_BYTES // (_image_elements(p) * self.dtype.itemsize))

    def _blocks(self, p: Problem, most: int) -> tuple[_Tiles, ...]:
        """Split the batch into blocks of at most so many images."""
        bounds = part_bounds(p.batch, most)
        rows, cols = (ceil_div(a.out, COUNT) for a in p.axes[-2:])
        u_row = round_up(p.m, SIMT_WINOGRAD_ROW_ELEMENTS)
        row = round_up(max(b - a for a, b in pairwise(bounds)) * rows * cols, SIMT_WINOGRAD_ROW_ELEMENTS)
        c, m = p.groups * p.c, p.groups * p.m
        return tuple(
            _Tiles(a, b - a, rows, cols, u_row, c * u_row, row, c * row, row, m * row) for a, b in pairwise(bounds)
        )

    def _run(
        self,
        p: Problem,
        encoded: bytes,
        blocks: tuple[_Tiles, ...],
        x: GpuArray,
        w: GpuArray,
        y: GpuArray,
        extra: Sequence[GpuArray],
    ) -> None:
        t, empty = blocks[0], self.context.empty
        call = CALL.pack_values(*(a.layout.offset + start for a, start in zip((x, w, y), p.starts, strict=True)))
        u, v, m = (empty((_POINTS * n,), self.dtype) for n in (t.u_point, t.v_point, t.m_point))
        bound = () if self.epilogue is None else self.epilogue.bind(y, extra)
        for t in blocks:
            head = encoded, call, _TILES.pack_values(*t)
            if t.first == 0:
                self._launch(self._kernels["filters"], (p.m, p.groups * p.c), *head, w.buffer, u.buffer)
            self._launch(self._kernels["inputs"], (t.number, p.groups * p.c), *head, x.buffer, v.buffer)
            self._multiply(p, t, u, v, m)
            self._launch(self._kernels["outputs"], (t.number, p.groups * p.m), *head, m.buffer, y.buffer, *bound)

    def _multiply(self, p: Problem, t: _Tiles, u: GpuArray, v: GpuArray, m: GpuArray) -> None:
        batch = _POINTS, p.groups
        a = Layout((*batch, p.m, p.c), (t.u_point, p.c * t.u_row, 1, t.u_row))
        b = Layout((*batch, p.c, t.number), (t.v_point, p.c * t.v_row, t.v_row, 1))
        o = Layout((*batch, p.m, t.number), (t.m_point, p.m * t.m_row, t.m_row, 1))
        self._gemm.launch((m.with_layout(o),), (u.with_layout(a), v.with_layout(b)))

    def plan_weights(self, p: Problem, span: Sequence[int]) -> _Step:
        """Return the same for a problem that is the gradient for w of a convolution, given x, that for y, and w."""
        q = of_weights(p)
        t = self._blocks(q, q.batch)[0]
        parts, u_row = _parts(q, self.context.info.compute_units), round_up(q.c, SIMT_WINOGRAD_ROW_ELEMENTS)
        u_part = q.groups * q.m * u_row
        t = t._replace(u_row=u_row, u_part=u_part, u_point=parts * u_part, parts=parts)
        return partial(self._run_weights, q, encode(q, span), t)

    def _run_weights(
        self,
        p: Problem,
        encoded: bytes,
        t: _Tiles,
        x: GpuArray,
        dy: GpuArray,
        dw: GpuArray,
        extra: Sequence[GpuArray],
    ) -> None:
        arrays = zip((x, dw, dy), p.starts, strict=True)
        head = encoded, CALL.pack_values(*(a.layout.offset + start for a, start in arrays)), _TILES.pack_values(*t)
        u, v, d = (self.context.empty((_POINTS * n,), self.dtype) for n in (t.u_point, t.v_point, t.m_point))
        kernels, batch, tiles = self._weight_kernels, (_POINTS, t.parts, p.groups), t.number // t.parts
        self._launch(kernels["inputs"], (t.number, p.groups * p.c), *head, x.buffer, v.buffer)
        self._launch(kernels["gradients"], (t.number, p.groups * p.m), *head, dy.buffer, d.buffer)
        a = Layout((*batch, p.m, tiles), (t.m_point, tiles, p.m * t.m_row, t.m_row, 1))
        b = Layout((*batch, tiles, p.c), (t.v_point, tiles, p.c * t.v_row, 1, t.v_row))
        o = Layout((*batch, p.m, p.c), (t.u_point, t.u_part, p.m * t.u_row, t.u_row, 1))
        self._gemm.launch((u.with_layout(o),), (d.with_layout(a), v.with_layout(b)))
        self._launch(kernels["weights"], (p.c, p.groups * p.m), *head, u.buffer, dw.buffer)

    def _launch(self, kernel: Kernel, extents: tuple[int, int], *arguments: Any) -> None:
        info = self.context.info
        most = min(SIMT_WINOGRAD_GROUP, info.max_work_group_size, kernel.max_work_group_size(self.context.device))
        width = power_of_two(min(most, SIMT_WINOGRAD_NEIGHBOURS, extents[0]))
        local = width, power_of_two(min(most // width, extents[1]))
        columns, rows = (ceil_div(n, size) for n, size in zip(extents, local, strict=True))
        rows = min(rows, max(1, NAIVE_GROUPS_PER_UNIT * info.compute_units // columns), MAX_GROUPS)
        kernel.launch(self.context.queue, (columns * local[0], rows * local[1]), local, *arguments)
