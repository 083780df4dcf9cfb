"""SortOp and ArgSortOp, alone and in a Blockwise -> GpuSort and GpuArgSort."""

from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.sort import ArgSortOp, SortOp

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.ops.sort.sort import GpuArgSort, GpuSort
from pytensor_cl.rewriting.placement.registry import NoKernel, register_batched_lift, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []

_OPS = {SortOp: GpuSort, ArgSortOp: GpuArgSort}


@register_lift(*_OPS, every_dtype=True)
def lift_sort(
    op: SortOp | ArgSortOp, node: Apply, context_name: str, info: DeviceInfo
) -> GpuSort | GpuArgSort | NoKernel:
    """sort(x) -> GpuSort(x), argsort(x) likewise."""
    if is_complex(node.inputs[0].type.dtype):
        return NoKernel("no OpenCL kernel that puts complex numbers in order")
    return _OPS[type(op)](op, context_name)


@register_batched_lift(*_OPS, every_dtype=True)
def lift_batched_sort(
    op: Blockwise, node: Apply, context_name: str, info: DeviceInfo
) -> GpuSort | GpuArgSort | NoKernel:
    """Blockwise(sort)(x) -> GpuSort(x), along an axis as many dimensions further."""
    if is_complex(node.inputs[0].type.dtype):
        return NoKernel("no OpenCL kernel that puts complex numbers in order")
    core = op.core_op
    moved = type(core)(core.kind, core.axis + op.batch_ndim(node))
    return _OPS[type(core)](moved, context_name)
