"""Winograd's convolutions: fewer multiplications for kernels of three by three taps."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property, partial
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.base.blas import arithmetic_types, lanes_of, register_bytes
from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT
from pytensor_cl.routines.conv.epilogue import ConvEpilogue
from pytensor_cl.routines.conv.limits import (
    WINOGRAD_FEATURES,
    WINOGRAD_FEW_TILES,
    WINOGRAD_FILTER_BYTES,
    WINOGRAD_FILTER_COST,
    WINOGRAD_FUSED_BYTES,
    WINOGRAD_IMAGE_BYTES,
    WINOGRAD_KEPT_BYTES,
    WINOGRAD_MIN_ITEM_UNITS,
    WINOGRAD_TILE_COST,
    WINOGRAD_TILE_ROWS,
)
from pytensor_cl.routines.conv.plan import CALL, Axis, Problem, encode
from pytensor_cl.routines.conv.plan import plan_preamble as conv_preamble
from pytensor_cl.routines.conv.winograd_transforms import code, transforms
from pytensor_cl.routines.gemm.problem import plan_preamble as gemm_preamble
from pytensor_cl.routines.gemm.routine import BatchedGemm
from pytensor_cl.routines.gemm.schedule_cpu import micro_kernel_shapes
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout

TAPS, COUNT = 3, 4  # taps of filters, and outputs of a tile, along a dimension
# Rounding errors are a third of those with 0, +-1 and +-2.
_POINTS = tuple(Fraction(n, 4) for n in (0, 3, -3, 6, -6))
_TILES = Struct(
    ("long", "first images feature features"),
    ("long", "rows cols width"),
    ("long", "u_point u_group v_point v_tile m_point m_tile m_group"),
    ("long", "workspace_size depth"),
)
_KERNELS = ("filters", "inputs", "outputs", "fused")
SIZE = TAPS + COUNT - 1


def part_bounds(total: int, most: int) -> list[int]:
    """Return where about equal parts, of at most so much, begin and end."""
    count = ceil_div(total, most)
    return [total * i // count for i in range(count + 1)]


def matrices(dtype: str, vector: str, count: int = COUNT) -> dict[str, object]:
    """Return the transforms, as arguments of a template: C for columns whose elements are of type `vector`.

    `count`: outputs of a tile along a dimension, which with all taps covers as many inputs.
    """
    found = transforms(count, SIZE + 1 - count, _POINTS)._asdict()
    return {f"{name.removesuffix('s')}_matrix": code(matrix, dtype, vector) for name, matrix in found.items()}


class _Tiles(NamedTuple):
    """A block of images and of each group's features; fields of <name>_tiles."""

    first: int
    images: int
    feature: int
    features: int
    rows: int
    cols: int
    width: int
    u_point: int
    u_group: int
    v_point: int
    v_tile: int
    m_point: int
    m_tile: int
    m_group: int
    workspace_size: int
    depth: int = 0

    @property
    def number(self) -> int:
        """Number of tiles."""
        return self.images * self.rows * self.cols


class _Plan(NamedTuple):
    """Launch parameters of one problem."""

    encoded: bytes  # the struct conv_plan
    starts: tuple[int, ...]
    p: Problem
    blocks: tuple[_Tiles, ...]  # blocks of features or of images
    fused: tuple[int, ...] = ()  # NDRange of the fused kernel, which transforms filters itself; empty: not fused


def _forward(a: Axis) -> tuple[Axis, int]:
    """Return an axis whose taps go forward in x, and how far its first one in w is from that of `a`."""
    if a.dilation == 1:
        return a, 0
    reach = a.taps - 1
    return a._replace(dilation=1, pad=a.pad + reach, w=-a.w), reach * a.w


def normalized(p: Problem) -> Problem:
    """Return the same problem with taps that go forward."""
    turned = [_forward(a) for a in p.axes[-2:]]
    axes = (*p.axes[:-2], *(a for a, _ in turned))
    x, w, y = p.starts
    return p._replace(axes=axes, starts=(x, w + sum(start for _, start in turned), y))


def is_applicable(p: Problem) -> bool:
    """Return whether a simplified problem is one of those that Winograd's algorithm is for."""
    first, *image = p.axes
    return (
        (first.out, first.taps, first.image, first.pad) == (1, 1, 1, 0)
        and all(a.taps == TAPS and a.stride == 1 and abs(a.dilation) == 1 for a in image)
        and (p.groups == 1 or (p.x[1] == p.c * p.x[2] and p.y[1] == p.m * p.y[2]))
    )


def is_profitable(p: Problem) -> bool:
    """Return whether the transforms cost less than the multiplications that they save.

    Counted in multiply-adds; those of images are the less, the more channels share them, and those of filters, the more
    tiles do.
    """
    tiles = p.batch * prod(ceil_div(a.out, COUNT) for a in p.axes[-2:])
    products, images = SIZE**2 * p.c * round_up(p.m, WINOGRAD_FEATURES), WINOGRAD_TILE_COST * (p.c + p.m)
    return tiles * (products + images) + WINOGRAD_FILTER_COST * p.c * p.m < p.depth * p.columns * p.m


class Winograd:
    """Convolutions of stride one with kernels of 3 x 3 taps, of schedule cpu.

    The algorithm is F(4 x 4, 3 x 3) of Lavin and Gray, "Fast algorithms for convolutional neural networks" (2015,
    arXiv:1509.09308): 36 multiplications for 16 outputs, instead of 144. In float32 results are about five times less
    accurate than sums: with 512 channels, errors are 2e-6 of the outputs' standard deviation.

    `epilogue`: function of each element before it is stored.
    """

    def __init__(self, context: Context, dtype: str, epilogue: ConvEpilogue | None = None) -> None:
        self.context = context
        self.epilogue = epilogue if epilogue is not None and epilogue.fits else None
        self.dtype = context.check_dtype(dtype)
        self.lanes = lanes_of(context, self.dtype)
        self.panel = 2 * self.lanes  # features whose filters are stored together

    # --- kernels ---

    def source(self) -> KernelSource:
        """Return the kernels of the transforms."""
        types = {"ctype": arithmetic_types(self.dtype)["ctype"], "itemsize": self.dtype.itemsize, "lanes": self.lanes}
        vectors = self.panel // self.lanes
        tile = {"mr": self._mr, "micro": f"gemm_{types['ctype']}_{self._mr}x{vectors}x{self.lanes}"}
        multiply = render(
            "gemm/microkernel", **types, micro=tile["micro"], shapes=micro_kernel_shapes(self._mr, vectors)
        )
        preambles: tuple[str, ...] = (
            conv_preamble(),
            render("conv/vector_types", **types),
            gemm_preamble(),
            multiply,
        )
        final: dict[str, object] = {}
        if self.epilogue is not None:
            preambles, final = (*preambles, *self.epilogue.preambles), self.epilogue.arguments(self.lanes)
        return kernel_source(
            "conv/winograd_filters",
            preambles=preambles,
            **types,
            **tile,
            panel=self.panel,
            taps=TAPS,
            count=COUNT,
            tiles=_TILES,
            **matrices(self.dtype.name, f"{types['ctype']}{self.lanes}"),
            **final,
        )

    @property
    def _mr(self) -> int:
        """Rows of a register tile."""
        return WINOGRAD_TILE_ROWS.get(register_bytes(self.context), 4)

    @cached_property
    def _kernels(self) -> Callable[[str], Any]:
        source = self.source()
        return {name: self.context.kernel(source, f"{source.name}_{name}") for name in _KERNELS}.__getitem__

    @cached_property
    def _gemm(self) -> BatchedGemm:
        return BatchedGemm(self.context, self.dtype, schedule="cpu")

    # --- plans ---

    def plan(
        self, p: Problem, span: Sequence[int]
    ) -> Callable[[GpuArray, GpuArray, GpuArray, Sequence[GpuArray]], None]:
        """Return a function that enqueues a simplified problem, given x, w, y and the epilogue's arrays.

        `p`: a problem for which Winograd applies; `span`: first and one past the last element of x and w (`encode`).
        """
        q = normalized(p)
        moved = q.starts[1] - p.starts[1]
        span = (*span[:2], *(end - moved for end in span[2:]))
        tiles = q.batch * prod(ceil_div(a.out, COUNT) for a in q.axes[-2:])
        plan = _Plan(encode(q, span), q.starts, q, self._blocks(q, tiles <= WINOGRAD_FEW_TILES))
        return partial(self._run_fused, self._fused(plan)) if tiles <= WINOGRAD_FEW_TILES else partial(self._run, plan)

    def _fused(self, plan: _Plan) -> _Plan:
        """Return the plan for a kernel that multiplies filters as it transforms them."""
        t, units = plan.blocks[0], self.context.info.compute_units
        panels = plan.p.groups * t.m_group // self.panel
        x = min(panels, ITEMS_PER_UNIT * units)
        y = min(max(1, units // x), t.images * t.rows)
        count = ceil_div(t.images * t.rows, y) * t.cols
        fitting = WINOGRAD_FUSED_BYTES // (SIZE**2 * self.panel * self.dtype.itemsize)
        depth = min(plan.p.c, max(1, fitting // self.lanes) * self.lanes)
        u, m = (n * self.panel + self.lanes for n in (depth, round_up(count, self._mr)))
        t = t._replace(
            u_point=u, m_point=m, m_tile=self.panel, depth=depth, workspace_size=SIZE**2 * (u + m) + t.workspace_size
        )
        return plan._replace(blocks=(t,), fused=(x, y))

    def _blocks(self, p: Problem, whole: bool) -> tuple[_Tiles, ...]:
        """Split the features into blocks, or the batch, or neither."""
        size = SIZE**2 * self.dtype.itemsize
        rows, cols = (ceil_div(a.out, COUNT) for a in p.axes[-2:])
        channels = round_up(p.groups * p.c, self.lanes)
        each = size * rows * cols * (channels + p.groups * round_up(p.m, self.panel))
        images, panels = [0, p.batch], [0, ceil_div(p.m, self.panel)]
        if whole:
            pass
        elif p.batch * each > WINOGRAD_KEPT_BYTES:
            images = part_bounds(p.batch, max(1, WINOGRAD_IMAGE_BYTES // each))
        else:
            panels = part_bounds(panels[1], max(1, WINOGRAD_FILTER_BYTES // (size * p.c * p.groups * self.panel)))
        m_group = max(b - a for a, b in pairwise(panels)) * self.panel
        features, tiles = p.groups * m_group, max(b - a for a, b in pairwise(images)) * rows * cols
        # At distances of a power of two, all points would share a set of the cache.
        u, v, m = (n + self.lanes for n in (p.c * features, tiles * channels, tiles * features))
        width = round_up(cols * COUNT + TAPS - 1, self.lanes)
        workspace = SIZE * (width + self.lanes) * self.lanes
        strides = (rows, cols, width, u, p.c * m_group, v, channels, m, features, m_group, workspace)
        spans = [(a * self.panel, min(p.m, b * self.panel)) for a, b in pairwise(panels)]
        return tuple(_Tiles(a, b - a, f, g - f, *strides) for f, g in spans for a, b in pairwise(images))

    # --- launch ---

    def _run(self, plan: _Plan, x: GpuArray, w: GpuArray, y: GpuArray, extra: Sequence[GpuArray]) -> None:
        p, t, empty = plan.p, plan.blocks[0], self.context.empty
        call = CALL.pack_values(*(a.layout.offset + start for a, start in zip((x, w, y), plan.starts, strict=True)))
        u, v, m = (empty((SIZE**2 * n,), self.dtype) for n in (t.u_point, t.v_point, t.m_point))
        workspace = empty((ITEMS_PER_UNIT * self.context.info.compute_units * t.workspace_size,), self.dtype)
        inputs, outputs = t.v_tile // self.lanes, t.m_tile // self.lanes  # vectors of a tile
        bound = () if self.epilogue is None else self.epilogue.bind(y, extra)
        for t in plan.blocks:
            head, rows = (plan.encoded, call, _TILES.pack_values(*t)), t.images * t.rows
            if t.first == 0:
                self._launch("filters", p.c * outputs // 8, *head, w.buffer, u.buffer)
            if t.feature == 0:
                self._launch("inputs", rows * inputs, *head, x.buffer, v.buffer, workspace.buffer)
            self._multiply(p, t, u, v, m)
            self._launch("outputs", rows * outputs, *head, m.buffer, y.buffer, workspace.buffer, *bound)

    def _run_fused(self, plan: _Plan, x: GpuArray, w: GpuArray, y: GpuArray, extra: Sequence[GpuArray]) -> None:
        (t,) = plan.blocks
        call = CALL.pack_values(*(a.layout.offset + start for a, start in zip((x, w, y), plan.starts, strict=True)))
        v = self.context.empty((SIZE**2 * t.v_point + self._mr * t.v_tile,), self.dtype)
        items = max(prod(plan.fused), ITEMS_PER_UNIT * self.context.info.compute_units)
        workspace = self.context.empty((items * t.workspace_size,), self.dtype)
        head = (plan.encoded, call, _TILES.pack_values(*t))
        bound = () if self.epilogue is None else self.epilogue.bind(y, extra)
        self._launch("inputs", t.images * t.rows * t.v_tile // self.lanes, *head, x.buffer, v.buffer, workspace.buffer)
        buffers = (w.buffer, v.buffer, y.buffer, workspace.buffer)
        self._kernels("fused").launch(self.context.queue, plan.fused, (1, 1), *head, *buffers, *bound)

    def _multiply(self, p: Problem, t: _Tiles, u: GpuArray, v: GpuArray, m: GpuArray) -> None:
        batch = (SIZE**2, p.groups, ceil_div(t.features, self.panel))
        a = Layout((*batch, t.number, p.c), (t.v_point, p.c, 0, t.v_tile, 1))
        b = Layout((*batch, p.c, self.panel), (t.u_point, t.u_group, p.c * self.panel, self.panel, 1))
        o = Layout((*batch, t.number, self.panel), (t.m_point, t.m_group, self.panel, t.m_tile, 1))
        self._gemm.launch((m.with_layout(o),), (v.with_layout(a), u.with_layout(b)))

    def _launch(self, name: str, units: int, *arguments: Any) -> None:
        items = max(1, min(ITEMS_PER_UNIT * self.context.info.compute_units, units // WINOGRAD_MIN_ITEM_UNITS))
        self._kernels(name).launch(self.context.queue, (items,), (1,), *arguments)
