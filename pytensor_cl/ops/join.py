"""Concatenation, and its opposite."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.basic import Join, MakeVector, Split

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.base import ANY, DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.routines import join
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context


@register_lift(Join, numba_safe=True, every_dtype=True)
class GpuJoin(GpuOp):
    """Device counterpart of `Join`: arrays of any dtypes along an axis."""

    is_memory_bound = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the copies."""
        target = node.outputs[0].type
        return join.Join(context, [v.type.dtype for v in node.inputs], target.dtype, target.ndim, self.host.axis)


@register_lift(MakeVector, numba_safe=True, every_dtype=True)
class GpuMakeVector(GpuOp):
    """Device counterpart of `MakeVector`: 0-d arrays, and values of the host, in a vector."""

    is_memory_bound = True
    operand_placements = (ANY,)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the copies."""
        return join.Stack(context, node.outputs[0].type.dtype)


class _Split:
    """Views of the parts along an axis."""

    def __init__(self, axis: int, count: int) -> None:
        self._axis = axis
        self._count = count

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels."""
        return ()

    def __call__(self, array: GpuArray, splits: Any) -> tuple[GpuArray, ...]:
        sizes = [int(n) for n in splits]
        self._check(sizes, array.shape[self._axis])
        ends = np.cumsum(sizes).tolist()
        before = (slice(None),) * self._axis
        parts = ((*before, slice(end - size, end)) for end, size in zip(ends, sizes, strict=True))
        return tuple(array.view(array.layout.subscript(part)) for part in parts)

    def _check(self, sizes: list[int], extent: int) -> None:
        if len(sizes) != self._count:
            raise ValueError("Length of splits is not equal to n_splits")
        if sum(sizes) != extent:
            raise ValueError(f"Split sizes sum to {sum(sizes)}; expected {extent}")
        if any(n < 0 for n in sizes):
            raise ValueError("Split sizes cannot be negative")


@register_lift(Split, numba_safe=True, every_dtype=True)
class GpuSplit(GpuOp):
    """Device counterpart of `Split`: views of the parts."""

    is_compute = False
    operand_placements = (DEVICE, HOST)

    def __init__(self, host: Op, context_name: str) -> None:
        super().__init__(host, context_name)
        self.view_map = {i: [0] for i in range(host.len_splits)}

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the views."""
        return _Split(self.host.axis, self.host.len_splits)
