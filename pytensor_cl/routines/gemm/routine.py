"""Matrix products: GEMM, and batches of them."""

from collections.abc import Sequence
from functools import cached_property, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.blas import BlasRoutine, Scalar, arithmetic_types, lanes_of, register_bytes
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, Sizes, index_type, ndrange
from pytensor_cl.routines.base.routine import Plans
from pytensor_cl.routines.elemwise.epilogue import Epilogue
from pytensor_cl.routines.gemm.plan import (
    CpuBlocking,
    Product,
    Tile,
    balanced,
    encode,
    grid,
    merge,
    shared_grid,
    splits,
    turned,
)
from pytensor_cl.routines.gemm.simt import Blocks, Shape, blocks_of
from pytensor_cl.routines.gemv.routine import Gemv
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

__all__ = ["BatchedGemm", "Gemm"]

_FINISHING = 64  # work-items of a work-group that adds up parts, schedule simt

# Rows and vectors, by bytes of the device's vector registers: the accumulators and the operands of one step
# must fit in them (32 registers with AVX-512, 16 with AVX). No more rows than a set of the first-level cache has
# ways (8): rows whose distance is a multiple of 4096 bytes share a set.
# By bytes of the vector registers: rows and vectors of the register tile, and bytes along k of a block (with few
# registers a multiply-add needs more of B: the panel that a tile walks along should be near).
_FLOAT_TILES = {64: (8, 3), 32: (4, 3), 16: (4, 2)}
_DEPTH_BYTES = {64: 4096, 32: 2048, 16: 2048}
_INTEGER_TILE = (4, 2)

# Schedule cpu; what the device decides is in runtime/tuning.py.
_REUSE_B = 64  # rows for which unaligned rows of B are worth packing
_REUSE_A = 256  # columns for which rows or columns of A that share sets of a cache are worth packing
_SHORT, _LARGE_BYTES = 128, 8 << 20  # sums, arrays: what an epilogue of short sums reads should stay in the cache
_KEPT_BYTES = 1 << 20  # panels of B that a work-item keeps
_SHARED_WORK = 1 << 22  # multiply-adds from which panels of B are packed once for all work-items,
_SHARED_BYTES = 1 << 24  # up to so many bytes
_SHARED_ROWS = 64, 512  # rows of A, and rows of a work-item, that make it worth while
_FINER, _PACKERS = 2, 4  # work-items then, times as many as otherwise, and those that pack, for each core
_PACKED_ROWS = 8  # of B that are packed at a time
_FETCHED_BYTES = 1 << 20  # of A: more than the caches near a core keep, so it is fetched ahead
_SHORT_PIECE = 128  # bytes of a row of B in a tile: where they are fewer, two lines are read for one and a half
_WAY_BYTES = 4096  # addresses at this distance share a set of the first-level cache


class _Plan(NamedTuple):
    """How to launch for one set of layouts; the empty plan is that of an empty output."""

    kernel: Kernel | None = None
    heads: tuple[tuple[bytes, ...], ...] = ()  # per launch a gemm_plan, and the operands of an epilogue
    global_size: tuple[int, ...] = ()
    local_size: tuple[int, ...] = ()
    scratch: int = 0  # elements
    packing: Kernel | None = None  # packs B before, if that is done once for all
    packing_size: tuple[int, ...] = ()
    finish: Kernel | None = None  # adds up the parts of k, if it was split
    finish_size: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # of the NDRange and its work-groups
    vector: Product | None = None  # a product with one row or one column, left to Gemv
    is_apart: bool = False  # whether the epilogue is a kernel of its own
    is_turned: bool = False  # whether it computes the transposed product


def _check_product(a: Layout, b: Layout) -> None:
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"Shape mismatch: A has shape {a.shape}, B has shape {b.shape}")


class Gemm(BlasRoutine):
    """``alpha * A @ B + beta * C`` of matrices with any strides.

    Called with ``(C, alpha, A, B, beta)`` if `has_c`, with ``(alpha, A, B)`` if only `has_alpha`, else with
    ``(A, B)``. Where ``beta`` is zero, C is not read. The output may have any strides, and may be C itself.
    The further arrays of an epilogue come last; its outputs differ in dtype and offset only, and are no inputs.

    Parameters
    ----------
    context
        Where the arrays live.
    dtype
        Of every operand: float32, float64 or an integer type.
    has_c
        Add ``beta * C``; C and the product broadcast.
    has_alpha
        Scale by ``alpha``. The scalars are NumPy scalars, or 0-d device arrays, which the kernel reads.
    schedule
        ``"cpu"`` or ``"simt"``; None takes what suits the device.
    epilogue
        What is computed of each element before it is stored; for float32 and float64.
    """

    def __init__(
        self,
        context: Context,
        dtype: str | np.dtype,
        *,
        has_c: bool = False,
        has_alpha: bool = False,
        schedule: str | None = None,
        epilogue: Epilogue | None = None,
    ) -> None:
        super().__init__(context, dtype, has_c, has_alpha, schedule)
        self.epilogue = epilogue
        self._own_inputs = 2 + self.has_alpha + 2 * self.has_c
        if epilogue is not None:
            self.output_dtypes = epilogue.output_dtypes
        self._plans: Plans[_Plan] = Plans()
        self._sources: dict[tuple[Blocks | None, str], KernelSource] = {}
        self._kernels: dict[tuple[KernelSource, str], Kernel] = {}
        self._make = {"cpu": self._plan_cpu, "simt": self._plan_simt}[self.schedule]

    # --- kernels ---

    @property
    def tile(self) -> Tile:
        """The register tile of the cpu schedule on this device."""
        rows, vectors = _INTEGER_TILE
        if self.dtype.kind == "f":
            chosen = self.context.tuning["gemm.tile"]
            by_width = _FLOAT_TILES.get(register_bytes(self.context), _FLOAT_TILES[16])
            rows, vectors = divmod(chosen, 10) if chosen else by_width
        return Tile(rows, vectors, lanes_of(self.context, self.dtype))

    def _render(self, template: str, *preambles: str, **extra: object) -> KernelSource:
        flags: dict[str, object] = {"has_alpha": self.has_alpha, "has_c": self.has_c, **arithmetic_types(self.dtype)}
        if self.epilogue is None:
            flags |= {"inputs": (), "repeated": (), "outputs": (), "statements": ""}
        else:
            lanes = self.tile.lanes if self.schedule == "cpu" else 1
            preambles = (*preambles, *self.epilogue.preambles(lanes))
            flags |= self.epilogue.arguments(lanes)
        return kernel_source(template, preambles=(render("gemm/plan"), *preambles), **flags, **extra)

    def _cpu(self) -> KernelSource:
        tile, types = self.tile, arithmetic_types(self.dtype)
        tiles = f"gemm_{types['ctype']}_{'x'.join(map(str, tile))}"
        shared = {"tiles": tiles, "itemsize": self.dtype.itemsize, **tile._asdict()}
        flags = {"has_alpha": self.has_alpha, "has_c": self.has_c}
        store = f"{tiles}_{'c' if self.has_c else 'alpha' if self.has_alpha else 'plain'}"
        whole = ((tile.rows, 2 * tile.vectors),)
        multiply = {"lanes": tile.lanes, "sizes": tile.sizes, "itemsize": self.dtype.itemsize, "ahead": whole}
        functions = (
            render("gemm/microkernel", tiles=tiles, ctype=types["ctype"], **multiply),
            render("gemm/store", store=store, **types, **flags, **shared),
        )
        return self._render("gemm/cpu", *functions, store=store, sizes=tile.sizes, packed_rows=_PACKED_ROWS, **shared)

    def _simt(self, blocks: Blocks, index: str) -> KernelSource:
        return self._render(blocks.template, index=index, **blocks.parameters)

    def _blocks(self, p: Product | None) -> Blocks:
        shape = None if p is None else Shape(p.m, p.n, p.k, p.batch)
        return blocks_of(shape, self.limits.info, self.dtype, self.context.tuning["gemm.group"])

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel that most products run."""
        return (self._source(None if self.schedule == "cpu" else self._blocks(None)),)

    def _source(self, blocks: Blocks | None, index: str = "int") -> KernelSource:
        """Return the kernel of schedule cpu, or of blocks of schedule simt."""
        key = blocks and blocks._replace(splits=1), index
        if key not in self._sources:
            self._sources[key] = self._cpu() if blocks is None else self._simt(blocks, index)
        return self._sources[key]

    def _kernel(self, source: KernelSource, suffix: str = "", work_items: int = 1) -> Kernel:
        key = source, suffix
        if key not in self._kernels:
            self._kernels[key] = self.limits.kernel(source, source.name + suffix, work_items)
        return self._kernels[key]

    # --- layouts ---

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the product.

        Raises
        ------
        ValueError
            The shapes do not fit together.
        """
        product = self._layout(*self._split(inputs[: self._own_inputs]))
        return (product,) if self.epilogue is None else self.epilogue.layout(product, inputs[self._own_inputs :])

    def _layout(self, c: Layout | None, alpha: Layout | None, a: Layout, b: Layout, beta: Layout | None) -> Layout:
        if a.ndim != 2 or b.ndim != 2:
            raise ValueError(f"A and B must be matrices; A has shape {a.shape}, B has shape {b.shape}")
        _check_product(a, b)
        return _with_addend(c, a, b, (a.shape[0], b.shape[1]))

    # --- plans ---

    def _product(self, a: Layout, b: Layout, c: Layout | None, o: Layout, further: Sequence[Layout] = ()) -> Product:
        *batch, m, n = o.shape  # m and n may be those of C, to which the product is repeated
        a, b = a.broadcast_to((*batch, m, a.shape[-1])), b.broadcast_to((*batch, b.shape[-2], n))
        return merge(a, b, o if c is None else c.broadcast_to(o.shape), o, *(x.broadcast_to(o.shape) for x in further))

    def _plan_cpu(self, p: Product) -> _Plan:
        tile, units, tuning = self.tile, self.context.info.compute_units, self.context.tuning
        given = p
        if self.epilogue is None:  # which tells rows from columns
            p = turned(p, tile)
        work = p.m * p.n * max(1, p.k) * prod(p.batch)
        packs = p.b[-1] != 1 or self._is_scattered(p.b[-2], tile)
        items = min(
            tuning["gemm.items_per_unit"] * units, work // tuning["gemm.grain"] + 1 + self._items_of_epilogue(p)
        )
        parts = splits(p, items)
        size = (1, 1, 1) if parts > 1 else grid(p, tile, items, units, tile.packing * packs)
        is_shared = packs and parts == 1 and self._shares_panels(p, -(-p.m // size[1]))
        if is_shared:
            size = shared_grid(p, tile, _FINER * items, units)
        x, y, z = size
        way = self._shared_way(p, x, y) if is_shared else self._way(p, x, y, z, parts)
        source, heads = self._source(None), encode(p, way, self.epilogue is not None)
        plan = _Plan(self._kernel(source), heads, (x, y, z * parts), (1, 1, 1), way.partial, is_turned=p is not given)
        if is_shared:
            return plan._replace(packing=self._kernel(source, "_panels"), packing_size=self._packing_size(p))
        return plan if parts == 1 else self._finished(plan, source, p, parts, ((min(units, p.m),), (1,)))

    def _shares_panels(self, p: Product, high: int) -> bool:
        """Whether B, which has to be packed, is packed once for all work-items, which had `high` rows each.

        That is a kernel more, which costs little where one launch runs all kernels of a call.
        """
        few, many = _SHARED_ROWS
        is_worth_it = not p.batch and p.m >= few and high <= many and p.m * p.n * p.k >= _SHARED_WORK
        fits = p.k * p.n * self.dtype.itemsize <= _SHARED_BYTES
        return is_worth_it and fits and self.context.batch_launcher is not None and self.context.info.compute_units > 1

    def _packing_size(self, p: Product) -> tuple[int, int]:
        """Work-items that pack B, along n and k: whole rows, or whole columns if these are contiguous."""
        many = _PACKERS * self.context.info.compute_units
        rows, panels = -(-p.k // _PACKED_ROWS), -(-p.n // self.tile.cols)
        return (1, min(many, rows)) if p.b[-1] == 1 else (min(many, panels), 1)

    def _common_way(self, p: Product, high: int, wide: int, parts: int) -> CpuBlocking:
        """Return how work-items of so many rows and columns go through a product, but for what they pack."""
        # Whole cache lines along k keep the panels aligned.
        kb = balanced(-(-p.k // parts), self._depth(p), 16)
        mb = balanced(high, self.context.tuning["gemm.block_rows"], self.tile.rows)
        pack_a = wide >= _REUSE_A and any(map(self._shares_sets, p.a[-2:]))
        ahead = not pack_a and p.m * p.k * prod(p.batch) * self.dtype.itemsize >= _FETCHED_BYTES
        return CpuBlocking(mb, kb, pack_a, ahead=ahead, splits=parts)

    def _way(self, p: Product, x: int, y: int, z: int, parts: int) -> CpuBlocking:
        tile, high, wide = self.tile, -(-p.m // y), -(-p.n // x)
        way = self._common_way(p, high, wide, parts)
        mb, kb = way.m_block, way.k_block
        pack_b = p.b[-1] != 1 or (high >= _REUSE_B and self._is_scattered(p.b[-2], tile))
        across = -(-wide // tile.lanes) * tile.lanes if pack_b and high > mb else 0  # all panels are kept for more rows
        packed_b = kb * max(tile.cols, across if kb * across * self.dtype.itemsize <= _KEPT_BYTES else 0)
        scratch = packed_b + kb * (mb // tile.rows if way.pack_a else 1) * -(-tile.rows // 4) * 4
        partial = scratch * x * y * z * parts
        return way._replace(pack_b=pack_b, packed_b=packed_b, scratch=scratch, partial=partial)

    def _shared_way(self, p: Product, x: int, y: int) -> CpuBlocking:
        """Return the way where B is packed once for all work-items: `packed_b` columns, filled up."""
        tile = self.tile
        way = self._common_way(p, -(-p.m // y), -(-p.n // x), 1)
        packed_b = -(-p.n // tile.lanes) * tile.lanes
        panels_a = way.m_block // tile.rows if way.pack_a else 0
        scratch = way.k_block * panels_a * -(-tile.rows // 4) * 4
        shared = p.k * packed_b
        return way._replace(packed_b=packed_b, scratch=scratch, shared=shared, partial=shared + scratch * x * y)

    def _finished(self, plan: _Plan, source: KernelSource, p: Product, parts: int, size: Sizes) -> _Plan:
        """Return a plan with room for the sums of the parts of k, and a second launch that adds them up."""
        finish = None if self.epilogue is not None else self._kernel(source, "_finish")
        return plan._replace(scratch=plan.scratch + parts * p.m * p.n, finish=finish, finish_size=size)

    def _items_of_epilogue(self, p: Product) -> int:
        """Work-items that the elements are worth, however short the sums are."""
        return 0 if self.epilogue is None else p.m * p.n * prod(p.batch) // self.context.tuning["elemwise.tile"]

    def _reads_too_much(self, p: Product, size: int) -> bool:
        """Whether large arrays are better walked through from end to end than tile by tile, between short sums."""
        whole = 1 + sum(all(s for s, n in zip(x, (*p.batch, p.m, p.n), strict=True) if n > 1) for x in p.further)
        large = whole * size * self.dtype.itemsize >= _LARGE_BYTES
        return self.schedule == "cpu" and whole > 1 and large and p.k < _SHORT

    def _depth(self, p: Product) -> int:
        """Elements along k of a block: all, where incomplete sums cannot be stored."""
        no_sums = self.epilogue is not None and self.epilogue.sum_output is None
        if no_sums:
            return max(1, p.k)
        by_width = _DEPTH_BYTES.get(register_bytes(self.context), _DEPTH_BYTES[16])
        return (self.context.tuning["gemm.depth_bytes"] or by_width) // self.dtype.itemsize

    def _is_scattered(self, stride: int, tile: Tile) -> bool:
        """Whether rows of B cross cache lines, or pieces of them are so short that panels use the cache better."""
        return stride % tile.lanes != 0 or tile.cols * self.dtype.itemsize < _SHORT_PIECE

    def _shares_sets(self, stride: int) -> bool:
        return stride * self.dtype.itemsize % _WAY_BYTES == 0

    def _plan_simt(self, p: Product) -> _Plan:
        blocks = self._blocks(p)
        (across, down), parts = blocks.group, blocks.splits
        size = (blocks.tiles(p.m, p.n) * across, min(prod(p.batch) * parts, MAX_GROUPS) * down)
        reach = (blocks.columns + blocks.step) * max(map(abs, (*p.a[-2:], *p.b[-2:])))  # within a tile
        rows, columns = p.m + blocks.rows, p.n + blocks.columns
        count = 2 * blocks.tiles(p.m, p.n) * prod(p.batch) * parts  # how far the loop over tiles may count
        source = self._source(blocks, index_type(max(reach, rows, columns, p.k + blocks.step, count)))
        heads = encode(p, CpuBlocking(splits=parts), self.epilogue is not None)
        plan = _Plan(self._kernel(source, "", across * down), heads, size, blocks.group)
        if parts == 1:
            return plan
        finish_size: Sizes = (1,), (1,)
        if self.epilogue is None:
            finish_size = ndrange(self.context, self._kernel(source, "_finish"), p.m * p.n, _FINISHING, 128)
        return self._finished(plan, source, p, parts, finish_size)

    def _plan(self, a: Layout, b: Layout, c: Layout | None, o: Layout, further: Sequence[Layout]) -> _Plan:
        if o.size == 0:
            return _Plan()
        p = self._product(a, b, c, o, further)
        is_vector = not p.batch and 1 in (p.m, p.n)
        if self.epilogue is None:
            return _Plan(vector=p) if is_vector else self._make(p)
        splits_rows = p.m != self._product(a, b, c, o).m  # what it reads keeps batches from being one matrix
        if is_vector or splits_rows or self._reads_too_much(p, o.size):
            return _Plan(is_apart=True)
        plan = self._make(p)
        return _Plan(is_apart=True) if any(plan.finish_size) else plan

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the product; the output may have any strides."""
        epilogue, out = self.epilogue, outputs[0]
        own, further = (inputs, ()) if epilogue is None else (inputs[: self._own_inputs], inputs[self._own_inputs :])
        c, alpha, a, b, beta = self._split(own)
        la, lb, lo = a.layout, b.layout, out.layout
        lc, c_at, addend = (None, 0, None) if c is None else (c.layout, c.layout.offset, c.buffer)
        key = (la[:2], lb[:2], lo[1], lc and lc[:2], *[x.layout[:2] for x in further])
        plan = self._plans.get(key)
        if plan is None:
            make = partial(self._plan, la, lb, lc, lo, [x.layout for x in further])
            plan = self._plans.remember(key, self.limits.settle(make, self._kernels.clear))
        if plan.kernel is None:
            self._launch_otherwise(plan, outputs, inputs)
            return
        start, sums, bound = lo.offset, out.buffer, ()
        if epilogue is not None:
            (start, sums), bound = epilogue.sum_in(outputs), epilogue.bind(outputs, further)
        alpha, alpha_at, alpha_buffer = self._scalar(alpha)
        beta, beta_at, beta_buffer = self._scalar(beta)
        if plan.is_turned:
            a, b, la, lb = b, a, lb, la
        call = self._call.pack(la.offset, lb.offset, c_at, start, alpha_at, beta_at, alpha, beta)
        rest = (addend, sums, self._workspace(plan.scratch), *self._scalars((alpha_buffer, beta_buffer)))
        queue = self.context.queue
        for head in plan.heads:
            if plan.packing is not None:
                plan.packing.launch(queue, plan.packing_size, (1, 1), head[0], call, b.buffer, rest[2])
            plan.kernel.launch(queue, plan.global_size, plan.local_size, *head, call, a.buffer, b.buffer, *rest, *bound)
        if plan.finish is not None:
            plan.finish.launch(queue, *plan.finish_size, *plan.heads[0], call, *rest, *bound)

    @cached_property
    def _gemv(self) -> Gemv:
        return Gemv(self.context, self.dtype, has_y=self.has_c, has_alpha=self.has_alpha, schedule=self.schedule)

    @cached_property
    def _plain(self) -> "Gemm":
        return type(self)(self.context, self.dtype, has_c=self.has_c, has_alpha=self.has_alpha, schedule=self.schedule)

    def _launch_otherwise(self, plan: _Plan, outputs: Sequence[GpuArray], inputs: Sequence[Scalar]) -> None:
        """Leave a vector to Gemv, and the epilogue to a kernel of its own."""
        if plan.vector is not None:
            self._launch_vector(plan.vector, outputs[0], inputs)
        elif plan.is_apart and self.epilogue is not None:
            product = self.context.empty(outputs[0].shape, self.dtype)
            self._plain.launch((product,), inputs[: self._own_inputs])
            self.epilogue.apart.launch(outputs, (product, *inputs[self._own_inputs :]))

    def _launch_vector(self, p: Product, out: GpuArray, inputs: Sequence[Scalar]) -> None:
        """Multiply one operand, a vector, by the other: A by a column, or the transpose of B by a row."""
        c, alpha, a, b, beta = self._split(inputs)
        axis = 0 if p.n == 1 else 1
        matrix, vector = ((a, p.a), (b, p.b)) if axis == 0 else ((b, p.b[::-1]), (a, p.a[::-1]))
        count = p.m if axis == 0 else p.n
        product = (_view(matrix[0], (count, p.k), matrix[1]), _view(vector[0], (p.k,), vector[1][:1]))
        scaled = (alpha, *product) if self.has_alpha else product
        full = scaled if c is None else (_view(c, (count,), p.c[axis : axis + 1]), *scaled, beta)
        self._gemv.launch((_view(out, (count,), p.o[axis : axis + 1]),), full)


def _view(array: GpuArray, shape: tuple[int, ...], strides: tuple[int, ...]) -> GpuArray:
    return array.view(Layout(shape, strides, array.layout.offset))


class BatchedGemm(Gemm):
    """``A @ B`` over the last two dimensions; the leading ones broadcast as in `numpy.matmul`.

    Parameters
    ----------
    context, dtype, has_c, has_alpha, schedule
        As of `Gemm`.
    """

    def _layout(self, c: Layout | None, alpha: Layout | None, a: Layout, b: Layout, beta: Layout | None) -> Layout:
        if a.ndim < 2 or b.ndim < 2:
            raise ValueError(f"A and B need two dimensions or more; A has shape {a.shape}, B has shape {b.shape}")
        _check_product(a, b)
        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError as error:
            raise ValueError(f"Shape mismatch: A has shape {a.shape}, B has shape {b.shape}") from error
        return _with_addend(c, a, b, (*batch, a.shape[-2], b.shape[-1]))


def _with_addend(c: Layout | None, a: Layout, b: Layout, shape: tuple[int, ...]) -> Layout:
    """Layout of the sum of C and a product of this shape, which both broadcast."""
    if c is None:
        return Layout.contiguous(shape)
    try:
        whole = np.broadcast_shapes(shape, c.shape)
    except ValueError:
        whole = ()
    if len(whole) != len(shape):
        shapes = f"A has shape {a.shape}, B has shape {b.shape}, C has shape {c.shape}"
        raise ValueError(f"Shape mismatch: {shapes}")
    return Layout.contiguous(whole)
