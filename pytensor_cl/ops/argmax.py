"""Positions of the largest elements along axes."""

from pytensor.graph.basic import Apply

from pytensor_cl.codegen.dtypes import computed
from pytensor_cl.ops.adapters import WithCasts, copy_or_none
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.argmax import Argmax
from pytensor_cl.runtime.context import Context

__all__ = ["GpuArgmax"]


class GpuArgmax(GpuOp):
    """Device counterpart of `Argmax`."""

    is_memory_bound = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of the search over the axes."""
        source = node.inputs[0].type
        wide = computed(source.dtype)
        routine = Argmax(context, wide, source.ndim, self.host.axis)
        cast = copy_or_none(context, source.dtype, source.ndim, wide)
        return routine if cast is None else WithCasts(routine, [cast])
