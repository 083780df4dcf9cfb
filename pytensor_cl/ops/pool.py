"""Pooling."""

from typing import Any

from pytensor.graph.basic import Apply

from pytensor_cl.codegen.dtypes import computed, is_complex
from pytensor_cl.nn import pool as host_ops
from pytensor_cl.nn.pool_host import Bins, Geometry
from pytensor_cl.ops.adapters import IntegerTuple, WithCasts, copy_or_none
from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines import pool
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


class _GpuPool(GpuOp):
    """Common part of the pooling Ops. The parameters are the host Op's; float16 is computed as float32."""

    is_memory_bound = True
    kind: Any = None

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels, with casts of float16."""
        arrays = [v for i, v in enumerate(node.inputs) if self.placement_of(i) is DEVICE]
        dtypes = [computed(v.type.dtype) for v in arrays]
        mode = getattr(self.host, "mode", "average_inc_pad")
        routine = self.kind(context, dtypes[0], *_windows(self.host.windows), mode=mode, other=dtypes[-1])
        casts = [copy_or_none(context, v.type.dtype, v.type.ndim, d) for v, d in zip(arrays, dtypes, strict=True)]
        target = node.outputs[0].type
        result = copy_or_none(context, routine.output_dtypes[0], target.ndim, target.dtype)
        return WithCasts(IntegerTuple(routine, len(arrays)), casts, result)


def _windows(geometry: Geometry) -> tuple[list[Any], bool]:
    """Return windows as the routines take them, and whether the last may reach out of the padding."""
    if isinstance(geometry, Bins):
        return [pool.Bin(n) for n in geometry.numbers], False
    return [pool.Window(w.extent, w.stride, w.before, w.after, w.dilation) for w in geometry.windows], geometry.ceil


def _refuse_complex(node: Apply, info: DeviceInfo) -> NoKernel | None:
    is_refused = any(is_complex(v.type.dtype) for v in node.inputs)
    return NoKernel("no OpenCL kernel for pooling of complex numbers") if is_refused else None


@register_lift(host_ops.MaxPool, numba_safe=False, every_dtype=True, refuse=_refuse_complex)
class GpuMaxPool(_GpuPool):
    """Device counterpart of `MaxPool`."""

    kind = pool.MaxPool


@register_lift(host_ops.MaxPoolIndices, numba_safe=False, every_dtype=True, refuse=_refuse_complex)
class GpuMaxPoolIndices(_GpuPool):
    """Device counterpart of `MaxPoolIndices`."""

    kind = pool.MaxPoolIndices


@register_lift(host_ops.MaxPoolScatter, numba_safe=False, every_dtype=True, refuse=_refuse_complex)
class GpuMaxPoolScatter(_GpuPool):
    """Device counterpart of `MaxPoolScatter`."""

    kind = pool.MaxPoolScatter


@register_lift(host_ops.MaxPoolGather, numba_safe=False, every_dtype=True, refuse=_refuse_complex)
class GpuMaxPoolGather(_GpuPool):
    """Device counterpart of `MaxPoolGather`."""

    kind = pool.MaxPoolGather


@register_lift(host_ops.SumPool, numba_safe=False, every_dtype=True, refuse=_refuse_complex)
class GpuSumPool(_GpuPool):
    """Device counterpart of `SumPool`."""

    kind = pool.SumPool


@register_lift(host_ops.SumPoolGrad, numba_safe=False, every_dtype=True, refuse=_refuse_complex)
class GpuSumPoolGrad(_GpuPool):
    """Device counterpart of `SumPoolGrad`."""

    operand_placements = (DEVICE, HOST)
    kind = pool.SumPoolGrad
