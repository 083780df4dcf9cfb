"""Search in sorted arrays."""

from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.sort.searchsorted import SearchSorted
from pytensor_cl.runtime.context import Context

__all__ = ["GpuSearchSorted"]


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
