"""Repetition of elements."""

from pytensor.graph.basic import Apply
from pytensor.tensor.extra_ops import Repeat

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.routines.repeat import Repeat as RepeatRoutine
from pytensor_cl.runtime.context import Context


@register_lift(Repeat, numba_safe=True, every_dtype=True)
class GpuRepeat(GpuOp):
    """Device counterpart of `Repeat`: a call waits for the sum of the repetitions."""

    is_memory_bound = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels that add up the numbers and copy the elements."""
        source, repeats = (v.type for v in node.inputs)
        return RepeatRoutine(context, source.dtype, source.ndim, self.host.axis, repeats.dtype)
