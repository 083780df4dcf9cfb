"""Matrix products: GEMM, and batches of them."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.blas import BlasRoutine, Scalar, arithmetic_types, lanes_of, register_bytes
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, Sizes, index_type, ndrange
from pytensor_cl.routines.base.routine import Plans
from pytensor_cl.routines.base.two_pass import KernelLaunch, TwoPass
from pytensor_cl.routines.elemwise.epilogue import NO_EPILOGUE, Epilogue
from pytensor_cl.routines.gemm.limits import CACHED_OUTPUT_BYTES, PACKED_ROWS, SHORT_SUM_TERMS
from pytensor_cl.routines.gemm.problem import CpuBlocking, GemmProblem, canonical_problem, encode, plan_preamble
from pytensor_cl.routines.gemm.schedule_cpu import CpuSchedule, Tile, register_tile
from pytensor_cl.routines.gemm.schedule_simt import GemmShape, WorkGroupTile, runs_large, select_tile
from pytensor_cl.routines.gemv.routine import Gemv
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class _Plan(NamedTuple):
    """Launch parameters for one set of layouts; the empty plan belongs to an empty output."""

    arguments: tuple[tuple[bytes, ...], ...] = ()  # a gemm_plan and an epilogue's operands, for each launch
    passes: TwoPass | None = None  # the final pass adds up the parts of k, if it was split
    packing: KernelLaunch | None = None  # launch that packs B first, for all work-items
    vector: GemmProblem | None = None  # a product with one row or one column, left to Gemv
    is_unfused: bool = False  # whether the epilogue is a kernel of its own
    swaps_operands: bool = False  # whether it computes the transposed product


def _check_product(a: Layout, b: Layout) -> None:
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"Shape mismatch: A has shape {a.shape}, B has shape {b.shape}")


class Gemm(BlasRoutine):
    """``alpha * A @ B + beta * C`` of matrices with any strides.

    Called with ``(C, alpha, A, B, beta)`` if `has_c`, with ``(alpha, A, B)`` if only `has_alpha`, else with
    ``(A, B)``. Where ``beta`` is zero, C is not read. The output may have any strides, and may be C itself.
    The extra arrays of an epilogue come last; its outputs differ in dtype and offset only, and are no inputs.

    `dtype`: dtype of every operand: float32, float64 or an integer type; `has_c`: add ``beta * C``; C and the product
    broadcast; `has_alpha`: scale by ``alpha``. The scalars are NumPy scalars, or 0-d device arrays, which the kernel
    reads; `is_lower`: whether only the lower triangle of the output, which is square, is used. On schedule cpu tiles
    above it are left as they are; elements above it in other tiles are computed; `epilogue`: function of each element
    before it is stored; for float32 and float64.
    """

    def __init__(
        self,
        context: Context,
        dtype: str | np.dtype,
        *,
        has_c: bool = False,
        has_alpha: bool = False,
        is_lower: bool = False,
        schedule: str | None = None,
        epilogue: Epilogue | None = None,
    ) -> None:
        super().__init__(context, dtype, "a b c o", has_c, has_alpha, schedule)
        self.is_lower = is_lower
        self.epilogue = epilogue
        self._own_inputs = 2 + self.has_alpha + 2 * self.has_c
        if epilogue is not None:
            self.output_dtypes = epilogue.output_dtypes
        self._plans: Plans[_Plan] = Plans()
        self._sources: dict[tuple[WorkGroupTile | None, str], KernelSource] = {}
        self._kernels: dict[tuple[KernelSource, str], Kernel] = {}
        self._make = {"cpu": self._plan_cpu, "simt": self._plan_simt}[self.schedule]

    # --- kernels ---

    @property
    def tile(self) -> Tile:
        """The register tile of the cpu schedule on this device."""
        lanes = lanes_of(self.context, self.dtype)
        return register_tile(self.dtype.kind, register_bytes(self.context), lanes, self.context.tuning["gemm.tile"])

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel that most products run; none where the sizes decide."""
        if self.schedule == "cpu":
            return (self._source(None),)
        info = self.limits.info
        if info.kind != "cpu" and runs_large(info, self.dtype):
            return ()  # a tile's program is built for the first product that runs it, with its limit of registers
        return (self._source(self._work_group_tile(None)),)

    def _source(self, tile: WorkGroupTile | None, index: str = "int") -> KernelSource:
        """Return the kernel of schedule cpu, or of a tile of schedule simt with this type of indices."""
        key = tile and tile._replace(split_k=1), index
        if key not in self._sources:
            preambles, arguments = self._cpu_arguments() if tile is None else ((), {"index": index, **tile.parameters})
            flags = {"has_alpha": self.has_alpha, "has_c": self.has_c, **arithmetic_types(self.dtype)}
            if tile is not None:
                arguments["call"] = self._call_typedef
            if self.epilogue is None:
                flags |= NO_EPILOGUE
            else:
                lanes = self.tile.lanes if self.schedule == "cpu" else 1
                preambles = (*preambles, *self.epilogue.preambles(lanes))
                flags |= self.epilogue.arguments(lanes)
            template = "gemm/cpu" if tile is None else tile.template
            preambles = (plan_preamble(), *preambles)
            self._sources[key] = kernel_source(template, preambles=preambles, **flags, **arguments)
        return self._sources[key]

    def _cpu_arguments(self) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Return the micro-kernels and stores of schedule cpu, and the arguments of its template."""
        tile, types, itemsize = self.tile, arithmetic_types(self.dtype), self.dtype.itemsize
        micro = f"gemm_{types['ctype']}_{'x'.join(map(str, tile))}"
        store = f"{micro}_{'c' if self.has_c else 'alpha' if self.has_alpha else 'plain'}"
        micro_kernels = render(
            "gemm/microkernel",
            micro=micro,
            ctype=types["ctype"],
            itemsize=itemsize,
            lanes=tile.lanes,
            shapes=tile.shapes,
            prefetching=((tile.mr, 2 * tile.vectors),),
        )
        shared = {"micro": micro, "store": store, "itemsize": itemsize, **tile._asdict()}
        stores = render(
            "gemm/store", has_alpha=self.has_alpha, has_c=self.has_c, call=self._call_typedef, **types, **shared
        )
        return (micro_kernels, stores), {"shapes": tile.shapes, "packed_rows": PACKED_ROWS, **shared}

    def _work_group_tile(self, p: GemmProblem | None) -> WorkGroupTile:
        shape = None if p is None else GemmShape(p.m, p.n, p.k, p.batch)
        launches = 1 if self.epilogue is None else 2  # no epilogue is part of a split product
        tuning = self.context.tuning
        return select_tile(shape, self.limits.info, self.dtype, tuning["gemm.group"], launches, tuning["gemm.form"])

    def _kernel(self, source: KernelSource, suffix: str = "", work_items: int = 1) -> Kernel:
        key = source, suffix
        if key not in self._kernels:
            self._kernels[key] = self.limits.kernel(source, source.name + suffix, work_items)
        return self._kernels[key]

    # --- layouts ---

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the product.

        Raises `ValueError`: the shapes do not fit together.
        """
        product = self._layout(*self._normalize_inputs(inputs[: self._own_inputs]))
        return (product,) if self.epilogue is None else self.epilogue.layout(product, inputs[self._own_inputs :])

    def _layout(self, c: Layout | None, alpha: Layout | None, a: Layout, b: Layout, beta: Layout | None) -> Layout:
        if a.ndim != 2 or b.ndim != 2:
            raise ValueError(f"A and B must be matrices; A has shape {a.shape}, B has shape {b.shape}")
        _check_product(a, b)
        return _with_addend(c, a, b, (a.shape[0], b.shape[1]))

    # --- plans ---

    def _problem(self, a: Layout, b: Layout, c: Layout | None, o: Layout, extra: Sequence[Layout] = ()) -> GemmProblem:
        *batch, m, n = o.shape  # m and n may be those of C, to which the product is repeated
        a, b = a.broadcast_to((*batch, m, a.shape[-1])), b.broadcast_to((*batch, b.shape[-2], n))
        c = o if c is None else c.broadcast_to(o.shape)
        p = canonical_problem(a, b, c, o, *(x.broadcast_to(o.shape) for x in extra))
        is_triangle = self.is_lower and p.m == m  # no batch dimension is part of m
        return p._replace(triangle=1) if is_triangle else p

    def _plan(self, a: Layout, b: Layout, c: Layout | None, o: Layout, extra: Sequence[Layout]) -> _Plan:
        if o.size == 0:
            return _Plan()
        p = self._problem(a, b, c, o, extra)
        is_vector = not p.batch and 1 in (p.m, p.n)
        if self.epilogue is None:
            return _Plan(vector=p) if is_vector else self._make(p)
        splits_rows = (
            p.m != self._problem(a, b, c, o).m
        )  # an operand of the epilogue keeps batches from being one matrix
        if is_vector or splits_rows or self._reads_too_much(p, o.size):
            return _Plan(is_unfused=True)
        return self._make(p)

    def _reads_too_much(self, p: GemmProblem, size: int) -> bool:
        """Return whether large arrays are better traversed from end to end than tile by tile, between short sums."""
        lengths = (*p.batch, p.m, p.n)
        full = 1 + sum(all(s for s, n in zip(x, lengths, strict=True) if n > 1) for x in p.epilogue_operands)
        is_large = full * size * self.dtype.itemsize >= CACHED_OUTPUT_BYTES
        return self.schedule == "cpu" and full > 1 and is_large and p.k < SHORT_SUM_TERMS

    def _cpu_schedule(self) -> CpuSchedule:
        return CpuSchedule(
            self.tile,
            self.dtype.itemsize,
            register_bytes(self.context),
            self.context.info.compute_units,
            self.context.tuning,
            can_share_b=self.context.batch_launcher is not None,
            stores_partial_sums=self.epilogue is None or self.epilogue.sum_output is not None,
        )

    def _plan_cpu(self, p: GemmProblem) -> _Plan:
        schedule, given, extra_items = self._cpu_schedule(), p, 0
        if self.epilogue is None:
            p = schedule.swap_operands(p)
        else:  # GPUs need many work-items, however short the sums are
            extra_items = p.m * p.n * p.batch_count // self.context.tuning["elemwise.tile"]
        partition = schedule.partition(p, extra_items)
        source, arguments = self._source(None), encode(p, partition.blocking, self.epilogue is not None)
        product = KernelLaunch(self._kernel(source), partition.size, (1, 1, 1))
        packing = None
        if partition.packing_size is not None:
            packing = KernelLaunch(self._kernel(source, "_panels"), partition.packing_size, (1, 1))
        passes = self._passes(product, partition.workspace, partition.blocking.split_k, source, p)
        return _Plan(arguments, passes, packing, is_unfused=passes is None, swaps_operands=p is not given)

    def _plan_simt(self, p: GemmProblem) -> _Plan:
        tile = self._work_group_tile(p)
        (columns, rows), parts = tile.group, tile.split_k
        size = (tile.tiles(p.m, p.n) * columns, min(p.batch_count * parts, MAX_GROUPS) * rows)
        if tile.is_large:
            size = (tile.tiles(p.m, p.n) * p.launch_batch_count * parts * columns, rows)
        offset_in_tile = (max(tile.rows, tile.columns) + tile.step) * max(map(abs, (*p.a[-2:], *p.b[-2:])))
        tile_count = 2 * tile.tiles(p.m, p.n) * p.batch_count * parts  # bound of the loop counter over tiles
        largest = max(offset_in_tile, p.m + tile.rows, p.n + tile.columns, p.k + tile.step, tile_count)
        source = self._source(tile, index_type(largest))
        arguments = encode(p, CpuBlocking(split_k=parts), self.epilogue is not None)
        workspace = parts * p.m * p.n if parts > 1 else 0
        product = KernelLaunch(self._kernel(source, "", columns * rows), size, tile.group)
        passes = self._passes(product, workspace, parts, source, p)
        return _Plan(arguments, passes, is_unfused=passes is None)

    def _passes(
        self, product: KernelLaunch, workspace: int, split_k: int, source: KernelSource, p: GemmProblem
    ) -> TwoPass | None:
        """Return the launch of the product; and if k is split, that which adds up. No epilogue runs with split k."""
        nbytes = workspace * self.dtype.itemsize
        if split_k == 1:
            return TwoPass((product,), None, nbytes)
        if self.epilogue is not None:
            return None
        finish = self._kernel(source, "_finish")
        size: Sizes = (min(self.context.info.compute_units, p.m),), (1,)
        if self.schedule == "simt":
            size = ndrange(self.context, finish, p.m * p.n, SMALL_GROUP_ITEMS, 128)
        return TwoPass((product,), KernelLaunch(finish, *size), nbytes)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the product; the output may have any strides."""
        epilogue, out = self.epilogue, outputs[0]
        own, extra = (inputs, ()) if epilogue is None else (inputs[: self._own_inputs], inputs[self._own_inputs :])
        c, alpha, a, b, beta = self._normalize_inputs(own)
        la, lb, lo = a.layout, b.layout, out.layout
        lc, c_at, addend = (None, 0, None) if c is None else (c.layout, c.layout.offset, c.buffer)
        key = (la[:2], lb[:2], lo[1], lc and lc[:2], *[x.layout[:2] for x in extra])
        plan = self._plans.get(key)
        if plan is None:
            make = partial(self._plan, la, lb, lc, lo, [x.layout for x in extra])
            plan = self._plans.store(key, self.limits.with_fitting_groups(make, self._kernels.clear))
        if plan.passes is None:
            self._launch_otherwise(plan, outputs, inputs)
            return
        start, sums, bound = lo.offset, out.buffer, ()
        if epilogue is not None:
            (start, sums), bound = epilogue.sum_in(outputs), epilogue.bind(outputs, extra)
        if plan.swaps_operands:
            a, b, la, lb = b, a, lb, la
        call, scalars = self._bind((la.offset, lb.offset, c_at, start), alpha, beta)
        queue, workspace = self.context.queue, plan.passes.allocate(self.context)
        rest = (addend, sums, workspace, *scalars, *bound)
        for launch in plan.passes.first:
            for arguments in plan.arguments:
                if plan.packing is not None:
                    plan.packing.enqueue(queue, arguments[0], call, b.buffer, workspace)
                launch.enqueue(queue, *arguments, call, a.buffer, b.buffer, *rest)
        if plan.passes.final is not None:
            plan.passes.final.enqueue(queue, *plan.arguments[0], call, *rest)

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
        elif plan.is_unfused and self.epilogue is not None:
            product = self.context.empty(outputs[0].shape, self.dtype)
            self._plain.launch((product,), inputs[: self._own_inputs])
            self.epilogue.unfused.launch(outputs, (product, *inputs[self._own_inputs :]))

    def _launch_vector(self, p: GemmProblem, out: GpuArray, inputs: Sequence[Scalar]) -> None:
        """Multiply one operand, a vector, by the other: A by a column, or the transpose of B by a row."""
        c, alpha, a, b, beta = self._normalize_inputs(inputs)
        axis = 0 if p.n == 1 else 1
        matrix, vector = ((a, p.a), (b, p.b)) if axis == 0 else ((b, p.b[::-1]), (a, p.a[::-1]))
        count = p.m if axis == 0 else p.n
        product = (_view(matrix[0], (count, p.k), matrix[1]), _view(vector[0], (p.k,), vector[1][:1]))
        scaled = (alpha, *product) if self.has_alpha else product
        full = scaled if c is None else (_view(c, (count,), p.c[axis : axis + 1]), *scaled, beta)
        self._gemv.launch((_view(out, (count,), p.o[axis : axis + 1]),), full)


def _view(array: GpuArray, shape: tuple[int, ...], strides: tuple[int, ...]) -> GpuArray:
    return array.with_layout(Layout(shape, strides, array.layout.offset))


class BatchedGemm(Gemm):
    """``A @ B`` over the last two dimensions; the leading ones broadcast as in `numpy.matmul`."""

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
