"""Positions of the nonzero elements."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Nonzero
from pytensor.tensor.exceptions import ShapeError

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.routines.nonzero import Nonzero as NonzeroRoutine
from pytensor_cl.runtime.context import Context


@register_lift(Nonzero, numba_safe=True, every_dtype=True)
class GpuNonzero(GpuOp):
    """Device counterpart of `Nonzero`: a call waits for the number of positions."""

    is_memory_bound = True

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Raise ShapeError: the shape depends on the values."""
        raise ShapeError("the number of elements that are not zero depends on the values")

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels that count and write the positions."""
        source = node.inputs[0].type
        return NonzeroRoutine(context, source.dtype, source.ndim)
