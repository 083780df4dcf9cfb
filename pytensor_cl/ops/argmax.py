"""Positions of the largest elements along axes."""

from pytensor.graph.basic import Apply
from pytensor.tensor.math import Argmax

from pytensor_cl.codegen.dtypes import computed, is_complex
from pytensor_cl.ops.adapters import WithCasts, copy_or_none
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.argmax import Argmax as ArgmaxRoutine
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


def _refuse_complex(node: Apply, info: DeviceInfo) -> NoKernel | None:
    is_refused = is_complex(node.inputs[0].type.dtype)
    return NoKernel("no OpenCL kernel for the argmax of complex numbers") if is_refused else None


@register_lift(Argmax, numba_safe=True, every_dtype=True, refuse=_refuse_complex)
class GpuArgmax(GpuOp):
    """Device counterpart of `Argmax`."""

    is_memory_bound = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of the search over the axes."""
        source = node.inputs[0].type
        wide = computed(source.dtype)
        routine = ArgmaxRoutine(context, wide, source.ndim, self.host.axis)
        cast = copy_or_none(context, source.dtype, source.ndim, wide)
        return routine if cast is None else WithCasts(routine, [cast])
