"""Unique values of an array."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.exceptions import ShapeError

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.sort.unique import Unique
from pytensor_cl.runtime.context import Context

__all__ = ["GpuUnique"]


class GpuUnique(GpuOp):
    """Device counterpart of `Unique`; a call waits for the device, because the outputs' length depends on the data."""

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Raise: the shape depends on the values.

        Raises
        ------
        ShapeError
            In every case.
        """
        raise ShapeError("the number of unique values is known when they are found")

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels for the outputs that the host Op has."""
        host, source = self.host, node.inputs[0].type
        wanted = {"return_index": host.return_index, "return_inverse": host.return_inverse}
        counts = host.return_counts
        return Unique(context, source.dtype, source.ndim, host.axis, **wanted, return_counts=counts)
