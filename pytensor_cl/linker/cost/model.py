"""The cost model: estimates the time of a call on each backend from the shapes of its arguments.

The estimates decide which backend runs the first calls, and how long others wait until they are tried. The fastest one
is then found by measurement. The unit costs are those of one core with AVX-512, fitted by least squares of relative
errors to the times of 120 functions of three sizes each.
"""

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import NamedTuple

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.linker.cost.shapes import Shape
from pytensor_cl.linker.cost.workload import scalar_ops_of, workload_of
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.scan import MAX_CAPTURED_KERNELS, GpuScan
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.host_cpu import granted_cores

__all__ = ["CostEstimate", "estimate_call"]


class CostEstimate(NamedTuple):
    """Estimated seconds of a call on each backend, the nodes to compile, and whether the host calls a BLAS.

    Chains of elementwise nodes count as one.
    """

    device: float
    numba: float
    c: float
    compiled_nodes: int
    uses_blas: bool = False


class _UnitCost(NamedTuple):
    """Seconds of one unit of work on one core, by backend."""

    device: float
    numba: float
    c: float


class _DeviceRates(NamedTuple):
    """Seconds of a call that does nothing, equivalent cores, and bytes a second between host and device."""

    call_seconds: float
    cores: float
    transfer_rate: float


NUMBA_CALL, C_CALL = 2.2e-6, 1.1e-6
"""Seconds of an empty function."""
LARGE_RESULT, PAGE_FAULT = 1 << 25, 0.3e-9
"""Bytes of a result from which the allocator gets new pages from the system, and the seconds for a byte of those."""

_PER_NODE: dict[str, _UnitCost] = {
    "copy_nodes": _UnitCost(0.0, 2.4e-7, 8e-7),
    "random_nodes": _UnitCost(5e-6, 1e-6, 5e-6),
    "python_nodes": _UnitCost(1e-5, 1.8e-6, 1e-5),
    "batch_items": _UnitCost(1.5e-5, 4.5e-7, 1.5e-5),
    "matrix_items": _UnitCost(0.0, 1e-7, 1e-5),
    "batched_matrix_items": _UnitCost(0.0, 1e-7, 1e-5),
    "gather_nodes": _UnitCost(0.0, 1e-7, 4e-7),
    "elementwise_loops": _UnitCost(0.0, 1.4e-7, 5e-7),
    "scalar_ops": _UnitCost(0.0, 6e-9, 3e-8),
    "other_nodes": _UnitCost(0.0, 2.8e-7, 1.1e-6),
    "matrix_products": _UnitCost(0.0, 2.4e-7, 4e-7),
    "vector_products": _UnitCost(0.0, 2.4e-7, 2.5e-6),
    "scan_nodes": _UnitCost(0.0, 2e-6, 5e-5),
    "scatter_nodes": _UnitCost(0.0, 2e-7, 2.8e-6),
    "scan_step_nodes": _UnitCost(2.8e-8, 2e-8, 4e-7),
    "view_nodes": _UnitCost(0.0, 2e-8, 3e-7),
}
"""Costs of a node whatever its size. More cores do not reduce them."""

_PER_ELEMENT: dict[str, _UnitCost] = {
    "cumulative_elements": _UnitCost(4e-10, 1.6e-9, 3.3e-9),
    "reduced_all": _UnitCost(6e-11, 4e-11, 9e-10),
    "minmax_all": _UnitCost(2.5e-10, 2.9e-10, 1e-9),
    "other_elements": _UnitCost(1e-9, 9e-10, 1.3e-9),
    "argmax_elements": _UnitCost(2e-10, 9e-10, 1e-10),
    "switch_elements": _UnitCost(5e-11, 5e-11, 1.1e-9),
    "sort_comparisons": _UnitCost(0.0, 1e-10, 8e-11),
    "reduced_columns": _UnitCost(1e-10, 9e-11, 1e-10),
    "minmax_columns": _UnitCost(1e-10, 1e-10, 1e-10),
    "random_draws": _UnitCost(2e-8, 1.5e-8, 2e-8),
    "exp_elements": _UnitCost(2e-10, 3.6e-9, 3.2e-9),
    "scan_elements": _UnitCost(5e-11, 5e-11, 2e-10),
    "gathered_elements": _UnitCost(7e-10, 7e-10, 1.4e-9),
    "masked_elements": _UnitCost(1.2e-9, 2.5e-9, 3.8e-9),
    "moved_words": _UnitCost(4.5e-11, 4.5e-11, 7e-11),
    "reduced_rows": _UnitCost(5e-11, 5e-11, 3.4e-9),
    "minmax_rows": _UnitCost(6e-11, 8e-10, 1.5e-9),
    "gathered_rows": _UnitCost(2e-9, 4.5e-9, 2.4e-9),
    "scattered_elements": _UnitCost(3.6e-10, 3e-10, 4.4e-9),
    "searched_elements": _UnitCost(1.7e-8, 2e-8, 2e-8),
    "arithmetic_elements": _UnitCost(2e-11, 1e-11, 1.2e-10),
    "softmax_elements": _UnitCost(1e-9, 7e-9, 1.2e-8),
    "linalg_operations": _UnitCost(2e-10, 2e-10, 2e-10),
    "matrix_elements": _UnitCost(6e-9, 3e-9, 3e-9),
    "batched_matrix_elements": _UnitCost(2e-9, 3e-9, 3e-9),
    "matrix_rotation_elements": _UnitCost(0.0, 1e-7, 1e-7),
    "batched_matrix_rotation_elements": _UnitCost(0.0, 1e-7, 1e-7),
    "matrix_rotations": _UnitCost(1e-8, 2e-10, 2e-10),
    "batched_matrix_rotations": _UnitCost(6e-9, 2e-10, 2e-10),
    "sorted_elements": _UnitCost(8e-9, 5.5e-8, 0.0),
    "special_elements": _UnitCost(1.6e-9, 1.8e-8, 2e-8),
    "trigonometric_elements": _UnitCost(5.5e-10, 6.4e-9, 6.2e-9),
}
"""Costs of an element. On the device they are divided by the cores; the host's functions run on one core."""

_PER_FLOP: dict[str, _UnitCost] = {
    "gemm_flops": _UnitCost(1.4e-11, 1.4e-11, 1.6e-11),
    "gemv_flops": _UnitCost(4.5e-11, 3.2e-11, 5e-11),
    "matrix_flops": _UnitCost(4.4e-11, 4.4e-11, 4.4e-11),
    "batched_matrix_flops": _UnitCost(1e-10, 3e-10, 3e-10),
}
"""Costs that are divided by the cores on each backend: products on the host are those of a BLAS."""

KERNEL, SCALAR_OP, HOST_NODE, SCAN = 4e-6, 3.7e-6, 2.2e-6, 1.1e-5
"""Seconds in a call on the device: of a kernel, of a scalar Op that the host computes for a 0-d value, of another node
of the host, and of a Scan besides its steps."""
REPLAYED_KERNEL, LAUNCHED_KERNEL = 1.2e-6, 2.5e-5
"""Seconds of a kernel of a loop: in a replay of the whole loop, and where the host launches each step."""


def estimate_call(
    fgraph: FunctionGraph, given: Sequence[Shape], info: DeviceInfo | None, nodes: Sequence[Apply] = ()
) -> CostEstimate:
    """Estimate the time of a call on each backend.

    Parameters
    ----------
    fgraph
        A graph of host Ops in canonical form.
    given
        Shapes of its inputs.
    info
        Of the device; None if no node is on a device.
    nodes
        The nodes of a call on the device.
    """
    amounts, results = workload_of(fgraph, given)
    rates, cores = _device_rates(info), granted_cores()

    def cost(table: Mapping[str, _UnitCost], backend: int) -> float:
        return sum(amounts.get(kind, 0.0) * unit[backend] for kind, unit in table.items())

    def host_seconds(backend: int) -> float:
        return cost(_PER_NODE, backend) + cost(_PER_ELEMENT, backend) + cost(_PER_FLOP, backend) / cores + page_faults

    result_bytes = [4 * prod(shape) for shape in results]
    page_faults = PAGE_FAULT * sum(n for n in result_bytes if n > LARGE_RESULT)
    transferred = 4 * sum(map(prod, given)) + sum(result_bytes)
    divided = cost(_PER_ELEMENT, 0) + cost(_PER_FLOP, 0)
    device = rates.call_seconds + _device_nodes(nodes, amounts) + cost(_PER_NODE, 0) + divided / rates.cores
    device += transferred / rates.transfer_rate
    c = C_CALL + host_seconds(2) if config.cxx else inf
    uses_blas = any(kind in amounts for kind in _BLAS_KINDS)
    return CostEstimate(device, NUMBA_CALL + host_seconds(1), c, _compiled_nodes(amounts), uses_blas)


_BLAS_KINDS = ("matrix_products", "vector_products", "linalg_operations", "matrix_items", "batched_matrix_items")
_NOT_COMPILED = frozenset(
    (*_BLAS_KINDS[3:], "python_nodes", "batch_items", "scalar_ops", "scan_step_nodes", "view_nodes")
)
"""Work without compiled code of its own."""


def _compiled_nodes(amounts: Mapping[str, float]) -> int:
    """Return how many nodes a backend compiles: a chain of elementwise ones is one, and so are all scalar Ops."""
    scalar = min(amounts.get("scalar_ops", 0), 1)
    return int(scalar + sum(n for kind, n in amounts.items() if kind in _PER_NODE and kind not in _NOT_COMPILED))


def _loop_seconds(op: GpuScan, steps: float) -> float:
    """Return the seconds that the kernels of a loop take whatever their sizes."""
    kernels = steps * op.step_kernels
    is_replayed = op.is_capturable and kernels <= MAX_CAPTURED_KERNELS
    return kernels * (REPLAYED_KERNEL if is_replayed else LAUNCHED_KERNEL)


def _device_nodes(nodes: Sequence[Apply], amounts: Mapping[str, float]) -> float:
    """Return the seconds that the nodes of a device call take whatever their sizes: kernels, and nodes of the host."""
    total = 0.0
    steps = amounts.get("scan_steps", 0.0) / max(amounts.get("scan_nodes", 1.0), 1.0)
    for node in nodes:
        op = node.op
        if isinstance(op, GpuScan):
            total += _loop_seconds(op, steps)
        elif isinstance(op, GpuOp):
            total += KERNEL * op.is_compute
        elif isinstance(op, Scan):
            total += SCAN
        elif isinstance(op, Elemwise) and not node.outputs[0].type.ndim and node.outputs[0].type.dtype[0] in "fc":
            total += SCALAR_OP * len(scalar_ops_of(op.scalar_op))
        elif not isinstance(op, GpuFromHost | HostFromGpu):
            total += HOST_NODE
    return total


def _device_rates(info: DeviceInfo | None) -> _DeviceRates:
    if info is None:
        return _DeviceRates(5e-6, 1, inf)
    if info.kind == "cpu":
        return _DeviceRates(2.6e-5, info.compute_units, inf)
    return _DeviceRates(4e-5, 8 * info.compute_units, inf if info.shares_host_memory else 1e10)
