"""Search in sorted arrays."""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import SearchsortedOp

from pytensor_cl.codegen.dtypes import is_complex, needs_fp64
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.sort.searchsorted import SearchSorted
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["GpuSearchSorted"]


def _refuse_dtypes(node: Apply, info: DeviceInfo) -> NoKernel | None:
    dtypes = {v.type.dtype for v in node.inputs[:2]}
    dtype = np.promote_types(*(v.type.dtype for v in node.inputs[:2]))
    if is_complex(dtype) or ("float16" in dtypes and len(dtypes) == 2):
        return NoKernel(f"no OpenCL kernel that compares {' and '.join(sorted(dtypes))}")
    if needs_fp64(dtype) and not info.has_fp64:
        return NoKernel(f"{info.name} has no double precision, in which such dtypes are compared", missing_fp64=True)
    return None


@register_lift(SearchsortedOp, numba_safe=True, batched=True, refuse=_refuse_dtypes)
class GpuSearchSorted(GpuOp):
    """Device counterpart of `SearchsortedOp`, alone or in a Blockwise."""

    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel for the side and the dtypes."""
        rows, values, *sorter = (v.type for v in node.inputs)
        core = self.host.core_op if isinstance(self.host, Blockwise) else self.host
        dtypes = (rows.dtype, values.dtype)
        core_ndim = values.ndim - rows.ndim + 1
        return SearchSorted(context, dtypes, core_ndim, core.side, next((s.dtype for s in sorter), None))
