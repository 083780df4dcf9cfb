"""Cumulative sums and products along an axis."""

from pytensor.graph.basic import Apply
from pytensor.tensor.extra_ops import CumOp

from pytensor_cl.codegen.dtypes import computed
from pytensor_cl.ops.adapters import with_casts
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.routines.cumop import CumOp as CumOpRoutine
from pytensor_cl.runtime.context import Context


@register_lift(CumOp, numba_safe=True, every_dtype=True)
class GpuCumOp(GpuOp):
    """Device counterpart of `CumOp`: cumsum and cumprod."""

    is_memory_bound = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel along the axis."""
        source = node.inputs[0].type
        wide = computed(source.dtype)
        routine = CumOpRoutine(context, self.host.mode, wide, source.ndim, self.host.axis)
        return with_casts(routine, node.inputs, wide, node.outputs[0].type, context)
