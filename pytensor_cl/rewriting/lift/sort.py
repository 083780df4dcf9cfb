"""Ops that sort or search -> their device Ops."""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import SearchsortedOp, Unique
from pytensor.tensor.sort import ArgSortOp, SortOp

from pytensor_cl.codegen.dtypes import is_complex, needs_fp64
from pytensor_cl.ops.registry import NoKernel, register_batched_lift, register_lift
from pytensor_cl.ops.sort.searchsorted import GpuSearchSorted
from pytensor_cl.ops.sort.sort import GpuArgSort, GpuSort
from pytensor_cl.ops.sort.unique import GpuUnique
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


@register_batched_lift(SearchsortedOp)
@register_lift(SearchsortedOp)
def lift_searchsorted(
    op: SearchsortedOp | Blockwise, node: Apply, context_name: str, info: DeviceInfo
) -> GpuSearchSorted | NoKernel:
    """searchsorted(x, v) -> GpuSearchSorted(x, v)."""
    dtypes = {v.type.dtype for v in node.inputs[:2]}
    dtype = np.promote_types(*(v.type.dtype for v in node.inputs[:2]))
    if is_complex(dtype) or ("float16" in dtypes and len(dtypes) == 2):
        return NoKernel(f"no OpenCL kernel that compares {' and '.join(sorted(dtypes))}")
    if needs_fp64(dtype) and not info.has_fp64:
        return NoKernel(f"{info.name} has no double precision, in which such dtypes are compared", missing_fp64=True)
    return GpuSearchSorted(op, context_name)


@register_lift(Unique)
def lift_unique(op: Unique, node: Apply, context_name: str, info: DeviceInfo) -> GpuUnique | NoKernel:
    """unique(x) -> GpuUnique(x), of values or along an axis."""
    if is_complex(node.inputs[0].type.dtype):
        return NoKernel("no OpenCL kernel that puts complex numbers in order")
    return GpuUnique(op, context_name)
