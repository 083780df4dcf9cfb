"""Sums of weighted elements along an axis: resizing of images, and their neighbourhoods."""

from typing import Any

from pytensor.graph.basic import Apply

from pytensor_cl.codegen.dtypes import computed, is_complex
from pytensor_cl.nn.resampling import WeightedTake
from pytensor_cl.ops.adapters import WithCasts, copy_or_none
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines import resampling
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


def _moves(node: Apply) -> bool:
    """Return whether each result is an element, which may be of any dtype."""
    return len(node.inputs) == 2 and node.inputs[1].type.shape[0] == 1


def _refuse(node: Apply, info: DeviceInfo) -> NoKernel | None:
    x, index = node.inputs[:2]
    if index.type.dtype != "int32":
        return NoKernel("its kernel takes tables of 32-bit indices")
    if not _moves(node) and (x.type.dtype == "bool" or is_complex(x.type.dtype)):
        return NoKernel(f"no OpenCL kernel for sums of {x.type.dtype} by tables")
    return None


@register_lift(WeightedTake, numba_safe=False, every_dtype=True, refuse=_refuse)
class GpuWeightedTake(GpuOp):
    """Device counterpart of `WeightedTake`; float16 is computed as float32."""

    is_memory_bound = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel, with casts of float16 unless it only moves elements."""
        host: Any = self.host
        x, moves = node.inputs[0].type, _moves(node)
        dtype = x.dtype if moves else computed(x.dtype)
        options = {"has_weights": len(node.inputs) == 3, "has_gaps": host.has_gaps, "moves": moves}
        routine = resampling.WeightedTake(context, dtype, host.axis, **options)
        if dtype == x.dtype:
            return routine
        casts = [copy_or_none(context, x.dtype, x.ndim, dtype)]
        return WithCasts(routine, casts, copy_or_none(context, dtype, x.ndim, x.dtype))
