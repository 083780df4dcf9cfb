"""Concatenation, and its opposite."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import Join, MakeVector, Split

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.base import ANY, DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.names import Show
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


class GpuJoinedElemwise(GpuOp):
    """An elementwise function, some of whose outputs are stored side by side in one array.

    `parts` are the numbers of these outputs. The node's outputs are their concatenation along `axis`, and the others.
    """

    __props__ = ("elemwise", "context_name", "axis", "parts")
    is_memory_bound = True

    def __init__(self, elemwise: GpuElemwise, axis: int, parts: tuple[int, ...]) -> None:
        super().__init__(elemwise.host, elemwise.context_name)
        self.elemwise, self.axis, self.parts = elemwise, axis, parts

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuJoined{{{self.elemwise.named(show)}, axis={self.axis}}}"

    def placement_of(self, index: int) -> str:
        """Arrays must be on the device; 0-d inputs may be host values."""
        return ANY

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node."""
        node = self.elemwise.make_node(*inputs)
        types = [v.type.host_type for v in node.outputs]
        first = types[self.parts[0]]
        shape = list(first.shape)
        length = shape[self.axis]
        shape[self.axis] = None if length is None else length * len(self.parts)
        others = [kind for k, kind in enumerate(types) if k not in self.parts]
        return self.apply(list(node.inputs), [first.clone(shape=tuple(shape)), *others])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shapes that the elementwise function infers; the concatenation is longer along the axis."""
        found = self.elemwise.infer_shape(self.elemwise.make_node(*node.inputs), shapes)
        joined = list(found[self.parts[0]])
        joined[self.axis] = joined[self.axis] * len(self.parts)
        return [tuple(joined), *(shape for k, shape in enumerate(found) if k not in self.parts)]

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of the elementwise function, which writes parts of one array."""
        elemwise: Any = self.elemwise.routine(self.elemwise.make_node(*node.inputs), context)
        return join.JoinedElemwise(elemwise, self.axis, self.parts)


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
        return tuple(array.with_layout(array.layout.subscript(part)) for part in parts)

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
