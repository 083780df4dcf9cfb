"""Ops that sort, search in sorted arrays, or find unique values."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.exceptions import ShapeError
from pytensor.tensor.extra_ops import SearchsortedOp, Unique
from pytensor.tensor.sort import ArgSortOp, SortOp

from pytensor_cl.codegen.dtypes import is_complex, needs_fp64
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_batched_lift, register_lift
from pytensor_cl.routines.sort.routine import ArgSort, Sort
from pytensor_cl.routines.sort.searchsorted import SearchSorted
from pytensor_cl.routines.sort.unique import Unique as UniqueRoutine
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


def _refuse_complex(node: Apply, info: DeviceInfo) -> NoKernel | None:
    is_refused = is_complex(node.inputs[0].type.dtype)
    return NoKernel("no OpenCL kernel that puts complex numbers in order") if is_refused else None


@register_lift(SortOp, numba_safe=True, every_dtype=True, refuse=_refuse_complex)
class GpuSort(GpuOp):
    """Device counterpart of `SortOp`; every kind is a stable sort."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels along the axis."""
        source = node.inputs[0].type
        return Sort(context, source.dtype, source.ndim, self.host.axis)


@register_lift(ArgSortOp, numba_safe=True, every_dtype=True, refuse=_refuse_complex)
class GpuArgSort(GpuOp):
    """Device counterpart of `ArgSortOp`; every kind is a stable sort."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels along the axis."""
        source = node.inputs[0].type
        return ArgSort(context, source.dtype, source.ndim, self.host.axis)


@register_batched_lift(SortOp, ArgSortOp, every_dtype=True)
def lift_batched_sort(node: Apply, context_name: str, info: DeviceInfo) -> GpuSort | GpuArgSort | NoKernel:
    """Blockwise(sort)(x) -> GpuSort(x), along an axis of x after the batch axes."""
    core: Any = node.op.core_op
    moved = type(core)(core.kind, core.axis + node.op.batch_ndim(node))
    kind = GpuSort if isinstance(core, SortOp) else GpuArgSort
    return _refuse_complex(node, info) or kind(moved, context_name)


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


@register_lift(Unique, numba_safe=True, refuse=_refuse_complex)
class GpuUnique(GpuOp):
    """Device counterpart of `Unique`; a call waits for the device, because the outputs' length depends on the data."""

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Raise ShapeError: the shape depends on the values."""
        raise ShapeError("the number of unique values is known when they are found")

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels for the outputs that the host Op has."""
        host, source = self.host, node.inputs[0].type
        wanted = {"return_index": host.return_index, "return_inverse": host.return_inverse}
        counts = host.return_counts
        return UniqueRoutine(context, source.dtype, source.ndim, host.axis, **wanted, return_counts=counts)
