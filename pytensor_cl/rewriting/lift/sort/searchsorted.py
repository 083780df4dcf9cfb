"""SearchsortedOp, alone and in a Blockwise -> GpuSearchSorted."""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import SearchsortedOp

from pytensor_cl.codegen.dtypes import is_complex, needs_fp64
from pytensor_cl.ops.sort.searchsorted import GpuSearchSorted
from pytensor_cl.rewriting.placement.registry import NoKernel, register_batched_lift, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


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
