"""Places of the elements that are not zero."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.exceptions import ShapeError

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.nonzero import Nonzero
from pytensor_cl.runtime.context import Context

__all__ = ["GpuNonzero"]


class GpuNonzero(GpuOp):
    """Device counterpart of `Nonzero`: waits for the number of places."""

    is_memory_bound = True

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Give up: only the values tell."""
        raise ShapeError("the number of elements that are not zero depends on the values")

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels that count and write the places."""
        source = node.inputs[0].type
        return Nonzero(context, source.dtype, source.ndim)
