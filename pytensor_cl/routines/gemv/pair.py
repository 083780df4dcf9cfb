"""A matrix-vector product, a function of its elements, and the transposed product with a result of that function."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.base.blas import lanes_of
from pytensor_cl.routines.base.limits import GROUP_ITEMS, ITEMS_PER_UNIT
from pytensor_cl.routines.base.ndrange import power_above, power_of_two
from pytensor_cl.routines.base.routine import Plans, Routine, layout_of, value_arguments
from pytensor_cl.routines.base.two_pass import KernelLaunch, PartialResults, TwoPass
from pytensor_cl.routines.gemv.limits import (
    FINISH_COLUMNS,
    ITEM_ROWS,
    PAIR_BLOCK_BYTES,
    PAIR_BLOCK_ROWS,
    PAIR_FINISH_COLUMNS,
    PAIR_GROUPS_PER_UNIT,
    PAIR_MAX_COLUMNS,
    PAIR_ONE_GROUP_STEPS,
    PAIR_ROW_ITEMS,
)
from pytensor_cl.routines.gemv.routine import Gemv
from pytensor_cl.routines.rowwise.program import Program, Reduce, RowFunction, accumulator
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

Operands = Sequence[Any]


class PairFunction(NamedTuple):
    """The row function between the two products.

    `function`: function of one-dimensional arrays, reduced along their axis; `product`: number of the value that is the
    first product; an operand; `factor`: number of the value that the second product takes; `is_stored`: for each output
    of the function, whether it is one of the routine's. The factor is among its outputs.
    """

    function: RowFunction
    product: int
    factor: int
    is_stored: tuple[bool, ...]


class _Array(NamedTuple):
    """An array among the arguments of the kernels; `value` is its number in the function."""

    name: str
    value: int
    kind: str
    dtype: str
    is_output: bool


class _Value(NamedTuple):
    name: str
    dtype: str


class _Plan(NamedTuple):
    """Launch parameters for one set of layouts; `passes` is None where the three steps are launched one by one."""

    encoded: bytes = b""
    passes: TwoPass | None = None
    workspace: int = 0  # size in elements
    totals: int = 0  # size of the partial results of reductions, in bytes


class _Split(NamedTuple):
    """Split of the work.

    `variant`: which kernel; `group`: work-items of a work-group; `items`: work-items (cpu) or work-groups (simt);
    `block`: rows of a block (cpu), or work-items of a row (simt); `workspace_size`: elements for each work-item (cpu),
    or columns that a group of the last launch adds up (simt).
    """

    variant: str
    group: int
    items: int
    padded_k: int
    block: int
    workspace_size: int
    finish_groups: int


def is_one_pass(function: RowFunction, factor: int) -> bool:
    """Return whether outputs, reduced values and the factor need no reduction or table: one loop has them all."""
    wanted = [v for v in function.outputs if function.kinds[v] == "full"]
    wanted += [step.source for step in function.steps if isinstance(step, Reduce)]
    return not function.tables and all(function.stages[v] == 0 for v in (*wanted, factor))


class GemvPair(Routine):
    """``z = alpha A x + beta y``, ``r, ... = f(z, ...)`` and ``alpha_t A.T r + beta_t y_t``.

    Called with ``(y, alpha, A, x, beta, *operands, y_t, alpha_t, beta_t)``, where `operands` are those of the function
    but for the first product; gives the second product, then what is stored of the function's outputs. A is
    read once from memory if it is not wider than high and its rows are contiguous, and on schedule simt not too long,
    or on schedule cpu if its columns are; else these are three steps.

    `is_dropped`, `broadcast`: entries for each operand of the function and then (is_dropped) each output; see
    `Rowwise`; `is_repeated`: whether y is of length 1, and whether y_t is; `has_addend`: whether alpha is not known to
    be 1, or beta not known to be 0; `has_fp64`: whether to use double precision; None uses it if the device supports
    it.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        pair: PairFunction,
        is_dropped: Sequence[bool],
        broadcast: Sequence[Sequence[bool]],
        *,
        is_repeated: tuple[bool, bool] = (False, False),
        has_addend: bool = True,
        schedule: str | None = None,
        has_fp64: bool | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.dtype = context.check_dtype(dtype)
        self.pair = pair
        function = pair.function
        self._gemv = Gemv(context, dtype, has_y=True, schedule=self.schedule)
        self._rows = Rowwise(context, function, 1, (0,), is_dropped, broadcast, self.schedule, has_fp64)
        self._program = Program(function, context.info.has_fp64 if has_fp64 is None else has_fp64)
        stored = (t for t, keep in zip(self._rows.output_dtypes, pair.is_stored, strict=True) if keep)
        self.output_dtypes = (self.dtype.name, *stored)
        self._scalars = [(k, np.dtype(t if t != "bool" else "uint8").type) for k, t in self._operands("value")]
        # The inputs of the first product come before the operands, which lack that product.
        self.value_arguments = value_arguments((5 + k - (k > pair.product), t) for k, t in self._scalars)
        self._arrays = self._describe_arrays()
        totals = [total for loop in self._program.passes(self._lanes, 1) for total in loop.totals]
        arrays = max(1, len(self._arrays))
        self._plan_struct = Struct(
            ("long", "n k padded_k block items workspace_size a_row a_col x_step y_step yt_step o_step"),
            ("long", f"step[{arrays}] partial_at[{max(1, len(totals))}]"),
        )
        self._call = Struct(
            ("long", f"a x y yt o scalar_at[4] at[{arrays}]"), (ctype(self.dtype), "alpha beta alpha_t beta_t")
        )
        self._is_repeated = is_repeated
        self._has_addend = has_addend
        self._built: dict[str, tuple[Kernel, Kernel]] = {}
        self._plans: Plans[_Plan] = Plans()

    def _operands(self, *kinds: str) -> list[tuple[int, str]]:
        """Return number and dtype of the function's operands of some kinds, but for the first product."""
        operands = enumerate(self.pair.function.operands)
        return [(k, o.dtype) for k, o in operands if o.kind in kinds and k != self.pair.product]

    def _describe_arrays(self) -> tuple[_Array, ...]:
        function, stored = self.pair.function, self.pair.is_stored
        read = (_Array(f"x{k}", k, function.kinds[k], t, False) for k, t in self._operands("full", "row"))
        written = (
            _Array(f"y{o}", v, function.kinds[v], function.dtypes[v], True)
            for o, v in enumerate(function.outputs)
            if stored[o]
        )
        return (*read, *written)

    # Kernels

    def value_kernels(self) -> Iterable[Kernel]:
        """Return the kernels that take numbers of the host: those of one pass, or of the second of three steps."""
        return *(kernel for both in self._built.values() for kernel in both), *self._rows.value_kernels()

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of one pass, for matrices with contiguous rows."""
        return (self._source("row" if self.schedule == "cpu" else f"{16 // self.dtype.itemsize}"),)

    @property
    def _group(self) -> int:
        """Work-items of a work-group on schedule simt; each has rows' sums and accumulators in local memory."""
        accumulators = 16 * sum(isinstance(step, Reduce) for step in self.pair.function.steps)
        return self.limits.size(GROUP_ITEMS, (ITEM_ROWS + 1) * self.dtype.itemsize + accumulators)

    def _source(self, variant: str) -> KernelSource:
        """Return the kernels: on schedule cpu for rows or columns, on schedule simt for so many lanes."""
        function = self.pair.function
        program, lanes = self._program, self._lanes
        loops = program.passes(lanes, 1)
        totals = [total for loop in loops for total in loop.totals]
        rows = [(v, function.dtypes[v]) for v in (*(k for k, _ in self._operands("row")), *program.row_values)]
        preambles: list[str] = []
        if self.schedule == "cpu":
            wide = lanes_of(self.context, self.dtype)
            full = [(t, lanes) for t in (self.dtype.name, *(a.dtype for a in self._arrays if a.kind == "full"))]
            vectors = dict.fromkeys([*full, (self.dtype.name, 4)])
            preambles = [render("common/vector_access", dtype=dtype, lanes=n) for dtype, n in vectors]
            template, own = "gemv/pair", {"lanes": lanes, "wide": wide, "order": variant}
        else:
            template, own = "gemv/pair_simt", {"lanes": int(variant), "group": self._group, "rows": ITEM_ROWS}
        preambles += dict.fromkeys(text for f in program.element_functions() for text in f.preambles)
        sizes = [1 << k for k in range(lanes.bit_length())]
        folds = (False, True) if self.schedule == "cpu" else (False,)
        preambles += dict.fromkeys(accumulator(t, n, fold) for fold in folds for t in totals for n in sizes)
        return kernel_source(
            template,
            preambles=tuple(preambles),
            ctype=ctype(self.dtype),
            dtype=self.dtype.name,
            product=self.pair.product,
            factor=self.pair.factor,
            has_addend=self._has_addend,
            arrays=self._arrays,
            values=tuple(_Value(f"c{k}", t) for k, t in self._operands("value")),
            loops=loops,
            row_values=tuple(rows),
            totals=totals,
            plan=self._plan_struct,
            call=self._call,
            **own,
        )

    @property
    def _lanes(self) -> int:
        if self.schedule == "simt":
            return 1
        return 8 if self.pair.function.itemsize == 8 else 16

    def _kernels(self, variant: str, group: int) -> tuple[Kernel, Kernel]:
        if variant not in self._built:
            source = self._source(variant)
            product, finish = (self.limits.kernel(source, source.name + part, group) for part in ("", "_finish"))
            self._built[variant] = product, finish
        return self._built[variant]

    # Layouts

    def _split(self, inputs: Operands) -> tuple[Operands, Operands, Operands]:
        """Return the inputs of the first product, of the function, and of the second product.

        The first product is None among the function's operands; the second product's inputs lack A and the factor.
        """
        operands = list(inputs[5:-3])
        operands.insert(self.pair.product, None)
        return inputs[:5], operands, inputs[-3:]

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the second product and of the stored values.

        Raises `ValueError`: the shapes do not fit together.
        """
        first, operands, (yt, alpha, beta) = self._split(inputs)
        self._check_addends(first[0], yt, first[2].shape)
        (z,) = self._gemv.layout(*first)
        made = self._rows.layout(*(z if layout is None else layout for layout in operands))
        factor = made[self.pair.function.outputs.index(self.pair.factor)]
        (g,) = self._gemv.layout(yt, alpha, first[2].transpose((1, 0)), factor, beta)
        return (g, *(layout for layout, keep in zip(made, self.pair.is_stored, strict=True) if keep))

    def _check_addends(self, y: Layout, yt: Layout, lengths: Sequence[int]) -> None:
        for addend, is_repeated, length in zip((y, yt), self._is_repeated, lengths, strict=False):
            if addend.shape != ((1,) if is_repeated else (length,)):
                raise ValueError(
                    f"an addend of shape {addend.shape} does not fit a product of shape {(length,)} "
                    "(no run-time broadcasting)"
                )

    # Launch

    def launch(self, outputs: Sequence[GpuArray], inputs: Operands) -> None:
        """Enqueue the pass, or the three steps; the outputs may have any strides."""
        layouts = [layout_of(v) for v in (*inputs, *outputs)]
        key = (layouts[2].offset % 4, *[layout[:2] for layout in layouts])
        make = partial(self._plan, inputs, outputs)
        plan = self._plans.lookup(key, partial(self.limits.with_fitting_groups, make, self._built.clear))
        if plan.passes is None:
            self._three_steps(outputs, inputs)
            return
        first, operands, (yt, alpha_t, beta_t) = self._split(inputs)
        y, alpha, a, x, beta = first
        arrays = [*(operands[k] for k, _ in self._operands("full", "row")), *outputs[1:]]
        scalars = (alpha, beta, alpha_t, beta_t)
        offsets = [v.layout.offset for v in (a, x, y, yt, outputs[0])]
        places = [v.layout.offset if isinstance(v, GpuArray) else 0 for v in scalars]
        values = [self.dtype.type(0) if isinstance(v, GpuArray) else v for v in scalars]
        call = self._call.pack_values(*offsets, *places, *([v.layout.offset for v in arrays] or [0]), *values)
        memory = self.context.memory
        arguments: list[Any] = [convert(operands[k]) for k, convert in self._scalars]
        arguments += [v.buffer for v in arrays]
        arguments += [plan.encoded, call, a.buffer, x.buffer, y.buffer, yt.buffer, outputs[0].buffer]
        workspaces = self._workspace(plan.workspace), memory.allocate(plan.totals) if plan.totals else None
        device_scalars = [v.buffer if isinstance(v, GpuArray) else None for v in scalars]

        partials = plan.passes.allocate(self.context)
        for launch in (*plan.passes.first, *filter(None, [plan.passes.final])):
            launch.enqueue(self.context.queue, *arguments, partials, *workspaces, *device_scalars)

    def _workspace(self, count: int) -> Any:
        return self.context.empty((count,), self.dtype).buffer if count else None

    def _plan(self, inputs: Operands, outputs: Sequence[GpuArray]) -> _Plan:
        split = (self._split_cpu if self.schedule == "cpu" else self._split_simt)(inputs[2].layout)
        if split is None:
            return _Plan()
        a, x = (inputs[i].layout for i in (2, 3))
        n, k = a.shape
        (g, *_), y, yt = outputs, *(inputs[i].layout.broadcast_to((m,)) for i, m in ((0, n), (-3, k)))
        steps, totals = self._steps(inputs, outputs), self._partial_totals(split.items)
        strides = [*a.strides, *x.strides, *y.strides, *yt.strides, *g.layout.strides]
        sizes = [n, k, split.padded_k, split.block, split.items, split.workspace_size]
        group = split.group
        product, finish = self._kernels(split.variant, group)
        first = KernelLaunch(product, (split.items * group,), (group,))
        final = KernelLaunch(finish, (split.finish_groups * group,), (group,))
        partials = PartialResults.of(split.items * split.padded_k, [(self.dtype, False)])
        encoded = self._plan_struct.pack_values(*sizes, *strides, *(steps or [0]), *(totals.offsets or [0]))
        passes = TwoPass((first,), final if split.items > 1 else None, partials.nbytes)
        workspace = split.items * split.workspace_size if self.schedule == "cpu" else 0
        return _Plan(encoded, passes, workspace, totals.nbytes)

    def _split_cpu(self, a: Layout) -> "_Split | None":
        order = self._order(a)
        if not order:
            return None
        (n, k), wide = a.shape, lanes_of(self.context, self.dtype)
        lanes = max(self._lanes, wide)
        padded_k = round_up(k, wide)
        fitting = PAIR_BLOCK_BYTES[order] // (k * self.dtype.itemsize) // lanes * lanes
        block = max(lanes, min(PAIR_BLOCK_ROWS[order], fitting))
        most_items = n * k // self.context.tuning["gemm.vector_grain"] + 1
        items = max(1, min(ITEMS_PER_UNIT * self.context.info.compute_units, most_items, n // block))
        workspace_size = round_up(padded_k + block, 16)
        return _Split(order, 1, items, padded_k, block, workspace_size, ceil_div(k, PAIR_FINISH_COLUMNS))

    def _split_simt(self, a: Layout) -> "_Split | None":
        """Return the split to groups of work-items; None where rows are too long, or not contiguous."""
        (n, k), (row, col), group = a.shape, a.strides, self._group
        if not n >= k > 0 or (col != 1 and k > 1):
            return None
        most = 16 // self.dtype.itemsize
        lanes = next(v for v in (4, 2, 1) if v <= most and not (row % v or k % v or a.offset % v))
        width = power_above(k // lanes)
        if width > min(PAIR_ROW_ITEMS, group):
            return None
        steps = ceil_div(n, ITEM_ROWS * group // width)
        busy = PAIR_GROUPS_PER_UNIT * self.context.info.compute_units
        items = 1 if steps <= PAIR_ONE_GROUP_STEPS else min(busy, ceil_div(steps, 2))
        columns = min(power_of_two(max(FINISH_COLUMNS, group // items)), power_above(k), group)
        return _Split(f"{lanes}", group, items, k, width, columns, ceil_div(k, columns) + 1)

    def _order(self, a: Layout) -> str:
        """Return along which dimension the vectors of the single pass run; None where three launches are faster."""
        (n, k), (row, col) = a.shape, a.strides
        if not n >= k > 0:
            return ""
        if (col == 1 or k == 1) and row >= k:
            return "row"
        return "col" if row == 1 and k <= PAIR_MAX_COLUMNS else ""

    def _steps(self, inputs: Operands, outputs: Sequence[GpuArray]) -> list[int]:
        _, operands, _ = self._split(inputs)
        arrays = [*(operands[k] for k, _ in self._operands("full", "row")), *outputs[1:]]
        return [v.layout.strides[0] if d.kind == "full" else 0 for v, d in zip(arrays, self._arrays, strict=True)]

    def _partial_totals(self, items: int) -> PartialResults:
        """Return the offsets of the partial results of the function's reductions."""
        totals = (total for loop in self._program.passes(self._lanes, 1) for total in loop.totals)
        return PartialResults.of(items, [(total.acc_dtype, bool(total.compensation)) for total in totals])

    def _three_steps(self, outputs: Sequence[GpuArray], inputs: Operands) -> None:
        (y, alpha, a, x, beta), operands, (yt, alpha_t, beta_t) = self._split(inputs)
        function = self.pair.function
        z = self.context.empty((a.shape[0],), self.dtype)
        self._gemv.launch((z,), (y, alpha, a, x, beta))
        operands = [z if v is None else v for v in operands]
        stored = iter(outputs[1:])
        layouts = self._rows.layout(*map(layout_of, operands))
        made = [
            next(stored) if keep else self.context.empty(layout.shape, dtype)
            for keep, layout, dtype in zip(self.pair.is_stored, layouts, self._rows.output_dtypes, strict=True)
        ]
        self._rows.launch(made, operands)
        r = made[function.outputs.index(self.pair.factor)]
        transposed = a.with_layout(a.layout.transpose((1, 0)))
        self._gemv.launch(outputs[:1], (yt, alpha_t, transposed, r, beta_t))
