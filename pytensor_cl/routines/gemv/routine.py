"""Matrix-vector products, dot products and rank-one updates."""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.base.blas import BlasRoutine, Scalar, arithmetic_types, lanes_of
from pytensor_cl.routines.base.limits import GROUP_ITEMS, SMALL_GROUP_ITEMS, STEPPED_INT_LIMIT
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, ndrange, power_above, power_of_two
from pytensor_cl.routines.base.routine import Plans
from pytensor_cl.routines.base.two_pass import KernelLaunch, PartialResults, TwoPass
from pytensor_cl.routines.gemv.limits import (
    FINISH_COLUMNS,
    ITEM_ROWS,
    MIN_ITEM_ROWS,
    ROW_COL_ITEMS_PER_UNIT,
    ROW_ITEMS,
    SPLIT_GROUPS_PER_UNIT,
    SPLIT_LOADS_PER_ITEM,
)
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

_OWN_FIELDS = {"cpu": "packed_x_size", "simt": "is_vector width finish_width"}
_PLANS = {
    schedule: Struct(
        ("long", "m k"),
        ("long", "a_start x_start y_start o_start"),
        ("long", "a_row a_col x_step y_step o_step"),
        ("long", f"{fields} split_k"),
        name="gemv_plan",
    )
    for schedule, fields in _OWN_FIELDS.items()
}
_VARIANTS = {"cpu": ("row", "col"), "simt": ("rows", "long", "col")}
_GER_PLAN = Struct(("long", "m n a_row a_col x_step y_step o_row o_col"))


class _Problem(NamedTuple):
    """A product ``A @ x`` whose larger strides are not negative."""

    m: int
    k: int
    starts: tuple[int, ...]  # first elements of A, x, y and the output, from their offsets
    a_row: int
    a_col: int
    x: int
    y: int
    o: int


class _Plan(NamedTuple):
    """Launch parameters for one set of layouts."""

    encoded: bytes = b""  # the struct gemv_plan
    passes: TwoPass = TwoPass()
    workspace: int = 0  # size in elements


class _Update(NamedTuple):
    """Launch parameters of a rank-one update for one set of layouts."""

    encoded: bytes  # the struct <name>_plan
    global_size: tuple[int, int]
    local_size: tuple[int, int]


def _forward(a: Layout, x: Layout, y: Layout, o: Layout) -> _Problem:
    """Turn round the dimensions along which A runs backwards, so that more of them are contiguous."""
    (m, k), (row, col) = a.shape, a.strides
    starts, steps = [0, 0, 0, 0], [x.strides[0], y.strides[0], o.strides[0]]
    if col < 0:
        starts[0], starts[1] = starts[0] + (k - 1) * col, (k - 1) * steps[0]
        col, steps[0] = -col, -steps[0]
    if row < 0:
        starts[0], starts[2], starts[3] = starts[0] + (m - 1) * row, (m - 1) * steps[1], (m - 1) * steps[2]
        row, steps[1], steps[2] = -row, -steps[1], -steps[2]
    return _Problem(m, k, tuple(starts), row, col, *steps)


class _Split(NamedTuple):
    """Split of the work on schedule simt.

    `width`: work-items along the contiguous dimension of A; `groups`: work-groups along m; `split_k`: parts of k.
    """

    variant: str
    is_vector: bool
    width: int
    groups: int
    split_k: int = 1


def _row_width(steps: int) -> int:
    """Return how many work-items share a row of so many loads, so that few are idle."""
    if steps <= ROW_ITEMS:
        return power_above(steps)
    widths = [ROW_ITEMS, ROW_ITEMS // 2, ROW_ITEMS // 4]
    return next((w for w in widths if 4 * round_up(steps, w) <= 5 * steps), widths[-1])


def split_simt(p: _Problem, lanes: int, group: int, units: int) -> _Split:
    """Share out the work to groups that keep the device busy; more parts of k are worth it if each has much to read."""
    busy = SPLIT_GROUPS_PER_UNIT * units
    is_row = p.m == 1 or (p.a_col <= p.a_row and p.k > 1)
    if is_row:
        is_vector = p.a_col == 1 and p.x == 1 and (p.a_row % lanes == 0 or p.m == 1)
        steps = ceil_div(p.k, lanes if is_vector else 1)
        width = min(_row_width(steps), group)
        if steps >= 4 * ROW_ITEMS and p.m * ROW_ITEMS < 2 * busy * ITEM_ROWS * group:
            width = min(2 * ROW_ITEMS, group)  # smaller tiles end at about the same time
        groups = ceil_div(p.m, ITEM_ROWS * group // width)
        if p.k < STEPPED_INT_LIMIT and (steps <= ROW_ITEMS or 2 * groups >= busy):
            return _Split("rows", is_vector, width, min(groups, MAX_GROUPS))
        wanted = ceil_div(busy * group, p.m)  # work-items of a row, if each takes several loads
        width = min(group, power_above(wanted), max(ROW_ITEMS, power_of_two(steps // 4)))
        groups, variant = ceil_div(p.m, group // width), "long"
    else:
        is_vector = p.a_row == 1 and p.a_col % lanes == 0 and p.m % lanes == 0
        columns = lanes if is_vector else 1
        width = min(power_above(ceil_div(p.m, columns)), ROW_ITEMS, group)
        groups, variant = ceil_div(p.m, width * columns), "col"
    worth = p.m * p.k // (groups * group * (lanes if is_vector else 1) * SPLIT_LOADS_PER_ITEM)
    split_k = max(1, min(busy // groups, worth, p.k // 32, MAX_GROUPS))
    return _Split(variant, is_vector, width, min(groups, MAX_GROUPS), split_k)


class Gemv(BlasRoutine):
    """``alpha * A @ x + beta * y``; A, x and y with any strides.

    Called with ``(y, alpha, A, x, beta)`` if `has_y`, with ``(alpha, A, x)`` if only `has_alpha`, else with
    ``(A, x)``. ``x @ A`` is this with A transposed. Where ``beta`` is zero, y is not read. The output may
    have any strides, and may be y itself.

    `dtype`: dtype of every operand: float32, float64 or an integer type; `has_y`: add ``beta * y``; y may be any shape
    that broadcasts to the product's; `has_alpha`: scale by ``alpha``. The scalars are NumPy scalars, or 0-d device
    arrays, which the kernel reads.
    """

    def __init__(
        self,
        context: Context,
        dtype: str | np.dtype,
        *,
        has_y: bool = False,
        has_alpha: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, dtype, "a x y o", has_y, has_alpha, schedule)
        self._plans: Plans[_Plan] = Plans()
        self._flags = {
            **arithmetic_types(self.dtype),
            "has_alpha": self.has_alpha,
            "has_y": has_y,
            "call": self._call_typedef,
        }
        self._make = {"cpu": self._plan_cpu, "simt": self._plan_simt}[self.schedule]
        self._kernels: dict[str, Kernel] = {}

    # --- kernels ---

    @property
    def _group(self) -> int:
        """Work-items of a work-group; each has the sums of several rows in local memory."""
        size = max(4, self.dtype.itemsize)
        return self.limits.size(GROUP_ITEMS, (ITEM_ROWS + 1) * size) if self.schedule == "simt" else 1

    @property
    def _simt_lanes(self) -> int:
        """Elements of a vector on schedule simt: 16 bytes, and four elements at most."""
        return min(4, 16 // self.dtype.itemsize)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the two variants of the product, and the second launch of a split sum."""
        is_cpu, itemsize = self.schedule == "cpu", self.dtype.itemsize
        arguments = {"group": self._group, "itemsize": itemsize, "lanes": self._simt_lanes, "rows": ITEM_ROWS}
        if is_cpu:
            block = self.context.tuning["gemm.vector_block"] // itemsize
            arguments = {"itemsize": itemsize, "lanes": lanes_of(self.context, self.dtype), "block": block}
        preambles = (render("gemv/plan", plan=_PLANS[self.schedule]),)
        product = kernel_source(f"gemv/{self.schedule}", preambles=preambles, **self._flags, **arguments)
        return product, kernel_source("gemv/split_k_reduce", preambles=preambles, **self._flags, group=self._group)

    def _kernel(self, suffix: str) -> Kernel:
        if suffix not in self._kernels:
            product, finish = self.sources()
            self.context.build((product, finish))
            self._kernels["finish"] = self.limits.kernel(finish, finish.name, self._group)
            for variant in _VARIANTS[self.schedule]:
                self._kernels[variant] = self.limits.kernel(product, f"{product.name}_{variant}", self._group)
        return self._kernels[suffix]

    # --- layouts ---

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the product.

        Raises `ValueError`: the shapes do not fit together.
        """
        y, _, a, x, _ = self._normalize_inputs(inputs)
        if a.ndim != 2 or x.ndim != 1:
            raise ValueError(f"A must be a matrix and x a vector; A has shape {a.shape}, x has shape {x.shape}")
        if a.shape[1] != x.shape[0]:
            raise ValueError(f"Shape mismatch: A has shape {a.shape}, x has shape {x.shape}")
        if y is not None and y.shape not in ((), (1,), (a.shape[0],)):
            raise ValueError(f"Shape mismatch: A has shape {a.shape}, x has shape {x.shape}, y has shape {y.shape}")
        return (Layout.contiguous((a.shape[0],)),)

    # --- plans ---

    def _plan(self, a: Layout, x: Layout, y: Layout | None, o: Layout) -> _Plan:
        if o.size == 0:
            return _Plan()
        p = _forward(a, x, o if y is None else y.broadcast_to(o.shape), o)
        return self._make(p)

    def _encode(self, p: _Problem, *sizes: int) -> bytes:
        values = p.m, p.k, *p.starts, p.a_row, p.a_col, p.x, p.y, p.o, *sizes
        return _PLANS[self.schedule].pack_values(*values)

    def _passes(self, p: _Problem, product: KernelLaunch, split_k: int, final_items: int) -> TwoPass:
        """Return the launch of the product; and if k is split, that of `final_items` work-items that adds up."""
        if split_k == 1:
            return TwoPass((product,))
        final = KernelLaunch(self._kernel("finish"), (final_items,), (self._group,))
        return TwoPass((product,), final, PartialResults.of(p.m * split_k, [(self.dtype, False)]).nbytes)

    def _plan_cpu(self, p: _Problem) -> _Plan:
        variant = "row" if p.m == 1 or p.a_col == 1 or (p.a_row != 1 and p.a_col <= p.a_row) else "col"
        grain, units = self.context.tuning["gemm.vector_grain"], self.context.info.compute_units
        items = min(ROW_COL_ITEMS_PER_UNIT[variant] * units, p.m * p.k // grain + 1)
        along_m = max(1, min(items, p.m // MIN_ITEM_ROWS[variant]))
        split_k = items // along_m
        packed_x_size = 0 if variant == "col" or p.x == 1 else p.k // split_k + 32
        size = (along_m, split_k)
        passes = self._passes(p, KernelLaunch(self._kernel(variant), size, (1, 1)), split_k, 1)
        return _Plan(self._encode(p, packed_x_size, split_k), passes, packed_x_size * prod(size))

    def _plan_simt(self, p: _Problem) -> _Plan:
        group, units = self._group, self.context.info.compute_units
        split = split_simt(p, self._simt_lanes, group, units)
        product = KernelLaunch(self._kernel(split.variant), (split.groups * group, split.split_k), (group, 1))
        finish_width = min(max(FINISH_COLUMNS, group // split.split_k), power_above(p.m), group)
        finish = min(ceil_div(p.m, finish_width), MAX_GROUPS) * group
        encoded = self._encode(p, split.is_vector, split.width, power_of_two(finish_width), split.split_k)
        return _Plan(encoded, self._passes(p, product, split.split_k, finish))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Scalar]) -> None:
        """Enqueue the product; the output may have any strides."""
        (out,) = outputs
        y, alpha, a, x, beta = self._normalize_inputs(inputs)
        la, lx, lo = a.layout, x.layout, out.layout
        ly, y_at, addend = (None, 0, None) if y is None else (y.layout, y.layout.offset, y.buffer)
        key = (la[:2], lx[1], lo[1], ly and ly[:2])
        plan = self._plans.get(key)
        if plan is None:
            make = partial(self._plan, la, lx, ly, lo)
            plan = self._plans.store(key, self.limits.with_fitting_groups(make, self._kernels.clear))
        call, scalars = self._bind((la.offset, lx.offset, y_at, lo.offset), alpha, beta)
        queue, workspace, partials = (
            self.context.queue,
            self._workspace(plan.workspace),
            plan.passes.allocate(self.context),
        )
        for launch in plan.passes.first:
            operands = a.buffer, x.buffer, addend, out.buffer
            launch.enqueue(queue, plan.encoded, call, *operands, partials, workspace, *scalars)
        if plan.passes.final is not None:
            plan.passes.final.enqueue(queue, plan.encoded, call, addend, out.buffer, partials, *scalars)


class Dot(Gemv):
    """``a @ b`` where one of the two is a vector, or both are."""

    def __init__(self, context: Context, dtype: str | np.dtype, *, schedule: str | None = None) -> None:
        super().__init__(context, dtype, schedule=schedule)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the product, 0-d for two vectors.

        Raises `ValueError`: the shapes do not fit together.
        """
        a, b = inputs
        if sorted((a.ndim, b.ndim)) not in ([1, 1], [1, 2]):
            raise ValueError(f"one of a and b, or both, must be a vector; they are {a.ndim}-d and {b.ndim}-d")
        if a.shape[-1] != b.shape[0]:
            raise ValueError(f"Shape mismatch: A has shape {a.shape}, B has shape {b.shape}")
        return (Layout.contiguous(a.shape[:-1] + b.shape[1:]),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Scalar]) -> None:
        """Enqueue the product; the output may have any strides."""
        (out,) = outputs
        _, _, a, b, _ = self._normalize_inputs(inputs)
        if b.ndim == 2:
            a, b = b.T, a
        elif a.ndim == 1:
            a, out = a.with_layout(_with_axis(a.layout)), out.with_layout(_with_axis(out.layout))
        super().launch((out,), (a, b))


def _with_axis(layout: Layout) -> Layout:
    """Put a dimension of length one in front."""
    return Layout((1, *layout.shape), (0, *layout.strides), layout.offset)


def _ger_call(scalar_type: str) -> Struct:
    """Return the struct of what may change from call to call."""
    return Struct(("long", "a x y o alpha_at"), (scalar_type, "alpha"))


class Ger(BlasRoutine):
    """``A + alpha * outer(x, y)``, called with ``(A, alpha, x, y)``; any strides.

    `dtype`: dtype of every operand: float32, float64 or an integer type.
    """

    def __init__(self, context: Context, dtype: str | np.dtype, *, schedule: str | None = None) -> None:
        super().__init__(context, dtype, "a x y o", False, True, schedule)
        self._call = _ger_call(ctype(self.dtype))
        self._plans: Plans[_Update] = Plans()
        self._source = kernel_source(
            "gemv/ger",
            **arithmetic_types(self.dtype),  # type: ignore[arg-type]
            lanes=lanes_of(context, self.dtype),
            itemsize=self.dtype.itemsize,
            cpu=self.schedule == "cpu",
            plan=_GER_PLAN,
            call=_ger_call(arithmetic_types(self.dtype)["ctype"]),
        )
        self._kernel: Kernel | None = None

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel."""
        return (self._source,)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of A.

        Raises `ValueError`: the shapes do not fit together.
        """
        a, _, x, y = inputs
        if a.shape != x.shape + y.shape or x.ndim != 1:
            raise ValueError(f"Shape mismatch: A has shape {a.shape}, x has shape {x.shape}, y has shape {y.shape}")
        return (Layout.contiguous(a.shape),)

    def _plan(self, kernel: Kernel, a: Layout, x: Layout, y: Layout, o: Layout) -> "_Update":
        m, n = a.shape
        encoded = _GER_PLAN.pack_values(m, n, *a.strides, *x.strides, *y.strides, *o.strides)
        if self.schedule == "cpu":
            items = min(self.context.info.compute_units, m, a.size // self.context.tuning["gemm.vector_grain"])
            return _Update(encoded, (1, max(1, items)), (1, 1))
        _, (group,) = ndrange(self.context, kernel, n, SMALL_GROUP_ITEMS)
        return _Update(encoded, (round_up(min(n, MAX_GROUPS), group), min(m, MAX_GROUPS)), (group, 1))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Scalar]) -> None:
        """Enqueue the update; the output may have any strides, and may be A itself."""
        (out,) = outputs
        operands: tuple[Any, ...] = tuple(inputs)
        a, alpha, x, y = operands
        if out.size == 0:
            return
        self._kernel = self._kernel or self.context.kernel(self._source)
        la, lx, ly, lo = a.layout, x.layout, y.layout, out.layout
        key = (la[:2], lx[1], ly[1], lo[1])
        plan = self._plans.get(key) or self._plans.store(key, self._plan(self._kernel, la, lx, ly, lo))
        call, scalars = self._bind((la.offset, lx.offset, ly.offset, lo.offset), alpha)
        buffers = (a.buffer, x.buffer, y.buffer, out.buffer, *scalars)
        self._kernel.launch(self.context.queue, plan.global_size, plan.local_size, plan.encoded, call, *buffers)
