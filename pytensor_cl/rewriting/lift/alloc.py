"""Alloc and AllocEmpty -> arrays made on the device."""

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Alloc, AllocEmpty

from pytensor_cl.ops.alloc import GpuAlloc, GpuAllocEmpty
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Alloc, every_dtype=True)
def lift_alloc(op: Alloc, node: Apply, context_name: str, info: DeviceInfo) -> GpuAlloc:
    """Alloc(value, n, m) -> a view of the value with strides of zero."""
    return GpuAlloc(op, context_name)


@register_lift(AllocEmpty, every_dtype=True)
def lift_alloc_empty(op: AllocEmpty, node: Apply, context_name: str, info: DeviceInfo) -> GpuAllocEmpty:
    """AllocEmpty(n, m) -> memory of the device."""
    return GpuAllocEmpty(op, context_name)
