"""Elements of each row, picked by an index: Choose and PermuteRowElements."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import Choose, PermuteRowElements
from pytensor.tensor.exceptions import ShapeError
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.indexing.permute_row_elements import PermuteRowElements as PermuteRoutine
from pytensor_cl.routines.indexing.take_along_axis import Choose as ChooseRoutine
from pytensor_cl.routines.indexing.take_along_axis import ChooseFromList
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


def _refuse_index(node: Apply, info: DeviceInfo) -> NoKernel | None:
    is_refused = node.inputs[0].type.dtype == "uint64"
    return NoKernel("NumPy takes no uint64 as an index") if is_refused else None


@register_lift(Choose, numba_safe=False, every_dtype=True, refuse=_refuse_index)
class GpuChoose(GpuOp):
    """Device counterpart of `Choose` from the rows of an array."""

    is_memory_bound = True
    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        index, choices = (v.type for v in node.inputs)
        return ChooseRoutine(context, choices.dtype, index.dtype, index.ndim, choices.ndim, self.host.mode)


class ChooseOf(Op):
    """`Choose` from tensors that are inputs of the node, and not items of a list: ``(index, *choices)``."""

    __props__ = ("mode",)

    def __init__(self, mode: Literal["raise", "wrap", "clip"]) -> None:
        self.mode = mode

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node whose result has the dimensions of the index."""
        index, *choices = inputs
        shape = tuple(1 if n == 1 else None for n in index.type.shape)
        return Apply(self, list(inputs), [TensorType(choices[0].type.dtype, shape)()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Compute the result by NumPy."""
        index, *choices = inputs
        output_storage[0][0] = np.choose(index, choices, mode=self.mode)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Any:
        """Leave the shape to the result: arrays of one element are broadcast, whatever their Types say."""
        raise ShapeError("the shape is known when the arrays are")


@register_lift(ChooseOf, numba_safe=False, every_dtype=True, refuse=_refuse_index)
class GpuChooseOf(GpuOp):
    """Device counterpart of `ChooseOf`."""

    is_memory_bound = True
    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels."""
        index, first = (v.type for v in node.inputs[:2])
        return ChooseFromList(context, first.dtype, index.dtype, index.ndim, first.ndim, self.host.mode)


def _refuse_number(node: Apply, info: DeviceInfo) -> NoKernel | None:
    return None if node.inputs[0].type.ndim else NoKernel("a permutation of no elements")


@register_lift(PermuteRowElements, numba_safe=False, every_dtype=True, refuse=_refuse_number)
class GpuPermuteRowElements(GpuOp):
    """Device counterpart of `PermuteRowElements`."""

    is_memory_bound = True
    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        x, index = (v.type for v in node.inputs)
        broadcast = x.broadcastable, index.broadcastable
        return PermuteRoutine(context, x.dtype, index.dtype, broadcast, self.host.inverse)
