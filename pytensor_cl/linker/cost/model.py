"""How long a call would take on each side, guessed from the shapes of its arguments: who goes first.

The prices are of one core with AVX-512. Nothing depends on them but which side begins, and how long the others wait
until they are tried: what is fastest is measured. They were fitted to the times of 120 functions of three sizes each.
"""

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import NamedTuple

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.linker.cost.shapes import Extents
from pytensor_cl.linker.cost.workload import scalars_of, tally
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.host_cpu import granted_cores

__all__ = ["CostEstimate", "guess"]


class CostEstimate(NamedTuple):
    """Seconds of a call on each side; how many nodes C would build, with element-wise ones fused."""

    device: float
    numba: float
    c: float
    nodes: int


class _Price(NamedTuple):
    """Seconds on each side, of one core."""

    device: float
    numba: float
    c: float


class _Device(NamedTuple):
    """Seconds of a call that does nothing; how many of the cores that the prices are of; bytes moved in a second."""

    call: float
    cores: float
    speed: float


NUMBA_CALL, C_CALL = 2.2e-6, 1.1e-6
"""Seconds of an empty function."""
LARGE, FAULT = 1 << 25, 0.3e-9
"""Bytes of a result from which on its memory comes from the system, and what a byte of that takes."""

_NODES: dict[str, _Price] = {
    "copy": _Price(0.0, 2.4e-7, 8e-7),
    "draw": _Price(5e-6, 1e-6, 5e-6),
    "interpreted": _Price(1e-5, 1.8e-6, 1e-5),
    "item": _Price(1.5e-5, 4.5e-7, 1.5e-5),
    "lookup": _Price(0.0, 1e-7, 4e-7),
    "loop": _Price(0.0, 1.4e-7, 5e-7),
    "number": _Price(0.0, 6e-9, 3e-8),
    "other": _Price(0.0, 2.8e-7, 1.1e-6),
    "product": _Price(0.0, 2.4e-7, 4e-7),
    "product with a vector": _Price(0.0, 2.4e-7, 2.5e-6),
    "scan": _Price(0.0, 2e-6, 5e-5),
    "scatter": _Price(0.0, 2e-7, 2.8e-6),
    "step": _Price(2.8e-8, 2e-8, 4e-7),
    "view": _Price(0.0, 2e-8, 3e-7),
}
"""What does not become less with more cores; `step` is a node of a loop, once."""

_ELEMENTS: dict[str, _Price] = {
    "accumulated": _Price(4e-10, 1.6e-9, 3.3e-9),
    "all": _Price(6e-11, 4e-11, 9e-10),
    "all by comparison": _Price(2.5e-10, 2.9e-10, 1e-9),
    "any": _Price(1e-9, 9e-10, 1.3e-9),
    "argmax": _Price(2e-10, 9e-10, 1e-10),
    "branch": _Price(5e-11, 5e-11, 1.1e-9),
    "compared": _Price(0.0, 1e-10, 8e-11),
    "columns": _Price(1e-10, 9e-11, 1e-10),
    "columns by comparison": _Price(1e-10, 1e-10, 1e-10),
    "drawn": _Price(2e-8, 1.5e-8, 2e-8),
    "exp": _Price(2e-10, 3.6e-9, 3.2e-9),
    "in steps": _Price(5e-11, 5e-11, 2e-10),
    "looked up": _Price(7e-10, 7e-10, 1.4e-9),
    "masked": _Price(1.2e-9, 2.5e-9, 3.8e-9),
    "moved": _Price(4.5e-11, 4.5e-11, 7e-11),
    "rows": _Price(5e-11, 5e-11, 3.4e-9),
    "rows by comparison": _Price(6e-11, 8e-10, 1.5e-9),
    "rows looked up": _Price(2e-9, 4.5e-9, 2.4e-9),
    "scattered": _Price(3.6e-10, 3e-10, 4.4e-9),
    "searched": _Price(1.7e-8, 2e-8, 2e-8),
    "simple": _Price(2e-11, 1e-11, 1.2e-10),
    "softmax": _Price(1e-9, 7e-9, 1.2e-8),
    "solved": _Price(2e-10, 2e-10, 2e-10),
    "sorted": _Price(8e-9, 5.5e-8, 0.0),
    "special": _Price(1.6e-9, 1.8e-8, 2e-8),
    "trigonometric": _Price(5.5e-10, 6.4e-9, 6.2e-9),
}
_FLOPS: dict[str, _Price] = {
    "flops": _Price(1.4e-11, 1.4e-11, 1.6e-11),
    "thin flops": _Price(4.5e-11, 3.2e-11, 5e-11),
}
"""Kinds of which all sides share the cores: products are those of a BLAS on the host."""

KERNEL, NUMBER, NODE, LOOP = 4e-6, 3.7e-6, 2.2e-6, 1.1e-5
"""Seconds in a call on a device: of a kernel, of a scalar Op of the host on a number, of another node there, and of a
scan besides what it does."""


def guess(
    fgraph: FunctionGraph, given: Sequence[Extents], info: DeviceInfo | None, nodes: Sequence[Apply] = ()
) -> CostEstimate:
    """Return how long a call may take.

    Parameters
    ----------
    fgraph
        A graph of host Ops in canonical form.
    given
        Shapes of its inputs.
    info
        Of the device; None if there is nothing for one to do.
    nodes
        What would run on the device and beside it.
    """
    amounts, results = tally(fgraph, given)
    to, cores = _device(info), granted_cores()
    apart = [sum(amounts.get(kind, 0.0) * price[side] for kind, price in _NODES.items()) for side in range(3)]
    along = [sum(amounts.get(kind, 0.0) * price[side] for kind, price in _ELEMENTS.items()) for side in range(3)]
    flops = [sum(amounts.get(kind, 0.0) * price[side] for kind, price in _FLOPS.items()) for side in range(3)]
    sizes = [4 * prod(shape) for shape in results]
    faults = FAULT * sum(n for n in sizes if n > LARGE)
    moved = (4 * sum(map(prod, given)) + sum(sizes)) / to.speed
    device = to.call + _beside(nodes) + apart[0] + (along[0] + flops[0]) / to.cores + moved
    numba = NUMBA_CALL + apart[1] + along[1] + flops[1] / cores + faults
    c = C_CALL + apart[2] + along[2] + flops[2] / cores + faults
    built = _built(amounts)
    return CostEstimate(device, numba, c if config.cxx else inf, built)


def _built(amounts: Mapping[str, float]) -> int:
    """Return how many nodes C has code of its own for: element-wise ones become part of others that read them."""
    numbers = min(amounts.get("number", 0), 1)
    return int(numbers + sum(n for kind, n in amounts.items() if kind in _NODES and kind not in _UNBUILT))


_UNBUILT = frozenset(("interpreted", "item", "number", "step", "view"))


def _beside(nodes: Sequence[Apply]) -> float:
    """Return what the nodes of a device call take, whatever the sizes: kernels, and what the host does."""
    total = 0.0
    for node in nodes:
        op = node.op
        if isinstance(op, GpuOp):
            total += KERNEL * op.is_compute
        elif isinstance(op, Scan):
            total += LOOP
        elif isinstance(op, Elemwise) and not node.outputs[0].type.ndim and node.outputs[0].type.dtype[0] in "fc":
            total += NUMBER * len(scalars_of(op.scalar_op))
        elif not isinstance(op, GpuFromHost | HostFromGpu):
            total += NODE
    return total


def _device(info: DeviceInfo | None) -> _Device:
    if info is None:
        return _Device(5e-6, 1, inf)
    if info.kind == "cpu":
        return _Device(2.6e-5, info.compute_units, inf)
    return _Device(4e-5, 8 * info.compute_units, inf if info.shares_host_memory else 1e10)
