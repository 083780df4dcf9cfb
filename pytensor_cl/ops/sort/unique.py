"""Unique values of an array."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.exceptions import ShapeError
from pytensor.tensor.extra_ops import Unique

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.sort.unique import Unique as UniqueRoutine
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["GpuUnique"]


def _refuse_complex(node: Apply, info: DeviceInfo) -> NoKernel | None:
    is_refused = is_complex(node.inputs[0].type.dtype)
    return NoKernel("no OpenCL kernel that puts complex numbers in order") if is_refused else None


@register_lift(Unique, numba_safe=True, refuse=_refuse_complex)
class GpuUnique(GpuOp):
    """Device counterpart of `Unique`; a call waits for the device, because the outputs' length depends on the data."""

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Raise ShapeError: the shape depends on the values."""
        raise ShapeError("the number of unique values is known when they are found")

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels for the outputs that the host Op has."""
        host, source = self.host, node.inputs[0].type
        wanted = {"return_index": host.return_index, "return_inverse": host.return_inverse}
        counts = host.return_counts
        return UniqueRoutine(context, source.dtype, source.ndim, host.axis, **wanted, return_counts=counts)
