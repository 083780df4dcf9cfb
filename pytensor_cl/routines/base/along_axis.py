"""Base class of scans and sorts: operations along one axis whose output has the shape of the input."""

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from pytensor_cl.routines.base.routine import Plans, Routine
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class _Plan(Protocol):
    @property
    def problem(self) -> Any: ...


class Operands(NamedTuple):
    """The arguments of a kernel that stand for its arrays.

    `input`, `output`: buffer, and the offset where the kernel begins.
    """

    input: tuple[Any, np.int64]
    output: tuple[Any, np.int64]


class AlongAxis[Plan: _Plan](Routine):
    """An operation along an axis of an array of any strides; the output has its shape.

    A subclass defines `_plan`, which returns what a launch does for the layout of the input and the strides of the
    output, and `_enqueue`. A plan has the attribute ``problem`` with the first elements of the arrays.

    `ndim`: number of dimensions; `axis`: along which; not negative.
    """

    _noun: ClassVar[str] = "an operation"
    """The name in messages."""

    def __init__(self, context: Context, ndim: int, axis: int, schedule: str | None) -> None:
        super().__init__(context, schedule)
        self.ndim = ndim
        self.axis = axis
        self._kernels: dict[Hashable, Kernel] = {}
        self._plans: Plans[Plan] = Plans()

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output: the input's shape.

        Raises
        ------
        ValueError
            The input has another number of dimensions.
        """
        (source,) = inputs
        if source.ndim != self.ndim:
            raise ValueError(f"{self._noun} of {self.ndim} dimensions, not of shape {source.shape}")
        return (Layout.contiguous(source.shape),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the output may have any strides."""
        (output,), (source,) = outputs, inputs
        if not isinstance(source, GpuArray):
            raise TypeError(f"{self._noun} needs an array on the device")
        layout, (_, out_strides, out_offset) = source.layout, output.layout
        key = layout.shape, layout.strides, out_strides
        plan = self._plans.get(key)
        if plan is None:
            make = partial(self._plan, layout, out_strides)
            plan = self._plans.store(key, self.limits.with_fitting_groups(make, self._kernels.clear))
        read = source.buffer, np.int64(layout.offset + plan.problem.in_shift)
        written = output.buffer, np.int64(out_offset + plan.problem.out_shift)
        self._enqueue(plan, source, Operands(read, written))

    def _plan(self, layout: Layout, out_strides: tuple[int, ...]) -> Plan:
        raise NotImplementedError

    def _enqueue(self, plan: Plan, source: GpuArray, operands: Operands) -> None:
        raise NotImplementedError
