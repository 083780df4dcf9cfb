"""Functions of the elements that index arrays pick; other elements are never computed."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT
from pytensor_cl.routines.base.ndrange import Sizes, index_type, item_range, ndrange
from pytensor_cl.routines.base.routine import Plans, layout_of, struct_argument
from pytensor_cl.routines.elemwise.routine import ElementFunction, Elemwise
from pytensor_cl.routines.indexing.base import NO_LAUNCH, Indexing, Launch, index_type_of
from pytensor_cl.routines.indexing.gather_scatter import Gather
from pytensor_cl.routines.indexing.limits import MIN_ITEM_FUSED
from pytensor_cl.routines.indexing.plan import Bounds, Selection, select
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class _Plan(NamedTuple):
    launch: Launch
    shape: tuple[int, ...]
    shifts: tuple[int, ...]  # first selected element of each array
    repeats: bool = False  # whether there are more elements than the function has


class GatherFused(Indexing):
    """``f(x, y, ...)[i, j, ...]`` without the rest of ``f(x, y, ...)``: ``pick(x, y, ..., i, j, ...)``.

    Every axis is indexed, by an integer array or by a number of the host. Where that selects more elements than there
    are, the function is computed first.

    `broadcast`, `by_value`: properties of the function's inputs, see `Elemwise`; one at least is an array;
    `index_types`, `bounds`, `constant`: properties of each axis, see `Indexing`; one at least is an array.
    """

    def __init__(
        self,
        context: Context,
        function: ElementFunction,
        broadcast: Sequence[Sequence[bool | None]],
        by_value: Sequence[bool],
        index_types: Sequence[tuple[str, int] | None],
        bounds: Sequence[Bounds | None] | None = None,
        *,
        constant: bool = False,
        schedule: str | None = None,
    ) -> None:
        axes = range(len(index_types))
        index = axes, index_types, bounds
        super().__init__(context, function.output_dtypes[0], len(axes), *index, constant=constant, schedule=schedule)
        self._gather_arguments = index
        self._function = Elemwise(context, function, broadcast, len(axes), by_value, self.schedule)
        self._places = [k for k, value in enumerate(by_value) if not value]
        dtypes = ("uint8" if t == "bool" else t for t in function.input_dtypes)
        self._values = [np.dtype(t).type if value else None for t, value in zip(dtypes, by_value, strict=True)]
        self._fused_offsets = Struct(("long", f"o i[{len(self._arrays)}] x[{len(self._places)}]"), name="offsets")
        self._plans: Plans[_Plan] = Plans()

    def _source(self, index: str) -> KernelSource:
        function = self._function.function
        return kernel_source(
            "indexing/gather_fused",
            preambles=(render("runtime/error_flag"), render("common/to_long"), *function.preambles),
            plan=self._fused_struct(index),
            offsets=self._fused_offsets,
            inputs=tuple(function.input_dtypes),
            by_value=self._function.by_value,
            output=self.output_dtypes[0],
            statements=function.statements(1),
            index_types=tuple(map(ctype, self._dtypes)),
            checked=tuple(b is None for b in self._bounds),
            ndim=max(1, self.result_ndim),
            index=index,
            in_parts=self.schedule == "cpu",
            plan_in_buffer=self._plan_in_buffer(index),
        )

    def _plan_in_buffer(self, index: str) -> bool:
        """Return whether the kernel's struct leaves no room for the other arguments."""
        pointers = 16 * (len(self._values) + len(self._arrays) + 2) + 4
        used = self._fused_struct(index).size + self._fused_offsets.size + pointers
        return used > self.context.info.max_parameter_size

    def _fused_struct(self, index: str) -> Struct:
        """Return the struct of the kernel; strides are over the dimensions of the result, in elements."""
        n, count = max(1, self.result_ndim), len(self._arrays)
        return Struct(
            (index, f"size shape[{n}] i[{count}][{n}] length[{count}] axis[{count}]"),
            (index, f"step[{len(self._places)}][{count}]"),
            name="plan",
        )

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel with 32-bit indices."""
        return (self._source("int"),)

    def _split(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        count = len(self._function.by_value)
        return inputs[:count], inputs[count:]

    def layout(self, *inputs: Layout | int) -> tuple[Layout, ...]:
        """Return the layout of the result; index inputs may be numbers.

        Raises `ValueError`: the shapes of the function's inputs do not fit together. Raises `IndexError`: the index
        arrays do not broadcast together, or a number is out of range.
        """
        operands, values = self._split(inputs)
        (whole,) = self._function.layout(*operands)
        return (Layout.contiguous(select(self.entries, whole, values).shape),)

    # Launch

    @cached_property
    def _gather(self) -> Gather:
        return Gather(
            self.context,
            self.output_dtypes[0],
            self.ndim,
            *self._gather_arguments,
            constant=self.constant,
            schedule=self.schedule,
        )

    def _planned(self, inputs: Sequence[Any]) -> _Plan:
        operands, values = self._split(inputs)
        key = *[operands[k].layout[:2] for k in self._places], *self.key(operands[self._places[0]], values)
        plan = self._plans.get(key)
        return self._plans.store(key, self._plan(operands, values)) if plan is None else plan

    def _plan(self, operands: Sequence[Any], values: Sequence[Any]) -> _Plan:
        (whole,) = self._function.layout(*map(layout_of, operands))
        spread = [operands[k].layout.broadcast_to(whole.shape) for k in self._places]
        selections = [self.select(layout, values) for layout in spread]
        result = Layout.contiguous(selections[0].shape)
        shifts = tuple(s.offset for s in selections)
        if result.size == 0:
            return _Plan(NO_LAUNCH, result.shape, shifts)
        fits = all(index_type_of(a, s, result) == "int" for a, s in zip(spread, selections, strict=True))
        index = index_type(result.size, self._most_items) if fits else "long"
        packed = self._fused_struct(index).pack_values(*self._geometry(result, selections))
        geometry = struct_argument(self.context, packed, self._plan_in_buffer(index))
        kernel = self.kernel(self._source(index))
        launch = Launch(kernel, *self._sizes_of(kernel, result.size), geometry)
        return _Plan(launch, result.shape, shifts, result.size > whole.size)

    @staticmethod
    def _geometry(result: Layout, selections: Sequence[Selection]) -> list[int]:
        indices = selections[0].arrays
        strides = [step for i in indices for step in i.strides or (0,)]
        steps = [array.step for s in selections for array in s.arrays]
        lengths, axes = [i.length for i in indices], [i.axis for i in indices]
        return [result.size, *(result.shape or (1,)), *strides, *lengths, *axes, *steps]

    @property
    def _most_items(self) -> int:
        """Size of the largest NDRange, by which the kernel's index goes past the end."""
        return GROUPS_PER_UNIT * self.context.info.compute_units * GROUP_ITEMS

    def _sizes_of(self, kernel: Kernel, size: int) -> Sizes:
        if self.schedule == "cpu":
            return item_range(self.context, size, MIN_ITEM_FUSED)
        return ndrange(self.context, kernel, size, GROUP_ITEMS, GROUPS_PER_UNIT)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the kernel; the output is C-contiguous."""
        self._run(self._planned(inputs), outputs[0], inputs)

    def _run(self, plan: _Plan, output: GpuArray, inputs: Sequence[Any]) -> None:
        if plan.launch.kernel is None:
            return
        operands, values = self._split(inputs)
        used = self.used(values)
        arguments: list[Any] = [
            v if value is None else value(v) for value, v in zip(self._values, operands, strict=True)
        ]
        starts = []
        for k, shift in zip(self._places, plan.shifts, strict=True):
            starts.append(operands[k].layout.offset + shift)
            arguments[k] = operands[k].buffer
        offsets = self._fused_offsets.pack_values(output.layout.offset, *[a.layout.offset for a in used], *starts)
        error_flag = self.error_flag.buffer if self.is_checked else None
        _, size, group, geometry = plan.launch
        buffers = *arguments, *[a.buffer for a in used], output.buffer
        plan.launch.kernel.launch(self.context.queue, size, group, *buffers, offsets, geometry, error_flag, self.number)

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Compute a new array."""
        plan = self._planned(inputs)
        if plan.repeats:
            operands, values = self._split(inputs)
            if self.is_checked:
                self._gather.set_error_flag(self.error_flag, int(self.number))
            return self._gather(*self._function(*operands), *values)
        output = self.context.empty(plan.shape, self.output_dtypes[0])
        self._run(plan, output, inputs)
        return (output,)
