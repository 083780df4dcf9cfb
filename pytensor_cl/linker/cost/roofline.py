"""How long one core of the host would need for a node at least: what a device has to beat."""

from collections.abc import Sequence
from math import prod
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i

from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu

__all__ = ["bytes_moved", "is_simple", "roofline_seconds"]

FREE = (GpuFromHost, HostFromGpu, GpuToGpu, Shape, Shape_i, DimShuffle, Reshape)
"""What the host need not do, or need not touch the data for."""
CACHE = 1 << 25
"""Bytes: what a core has close by. NUMBA runs elementwise functions and reductions on one."""
BYTES_PER_SECOND, BYTES_PER_SECOND_OF_CACHE = 4e10, 2e11
"""Of a node that moves more than that, and of others."""
FLOPS = 1e13
"""A good BLAS on many cores."""
SIMPLE, HARD = 1e-11, 5e-10
"""Seconds per element of arithmetic that vector instructions do, and of functions that are made of many.
NUMBA took 0.03 ns for each step of a chain of comparisons, choices and products of float32."""

_SIMPLE: frozenset[str] = frozenset(
    (
        *("Abs", "Add", "AND", "Cast", "Ceil", "Clip", "EQ", "Floor", "GE", "GT", "Identity", "Invert", "IsInf"),
        *("IsNan", "LE", "LT", "Maximum", "Minimum", "Mul", "NEQ", "Neg", "OR", "Reciprocal", "RoundHalfToEven"),
        *("Second", "Sign", "Sqr", "Sqrt", "Sub", "Switch", "TrueDiv", "Trunc", "XOR"),
    )
)
_PRODUCTS = ("Dot", "Gem", "Matmul")


def _per_element(scalar_op: Any) -> float:
    """Seconds per element of a scalar Op."""
    if isinstance(scalar_op, Composite):
        return sum(_per_element(n.op) for n in scalar_op.fgraph.toposort())
    return SIMPLE if is_simple(scalar_op) else HARD


def is_simple(scalar_op: Any) -> bool:
    """Return whether a scalar Op is arithmetic that vector instructions do."""
    return type(scalar_op).__name__ in _SIMPLE


def _product_flops(inputs: Sequence[int], outputs: Sequence[int]) -> float:
    """Multiplications and additions of a product of matrices with so many elements: the root of mk, kn, mn is mnk."""
    largest = sorted(inputs)[-2:]
    return 2 * prod((*largest, *outputs[:1])) ** 0.5


def roofline_seconds(node: Apply, inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]) -> float:
    """Return the least time that a node can take on the host.

    Parameters
    ----------
    node
        A node of a rewritten graph, on the host or on a device.
    inputs, outputs
        Shapes of its values.
    """
    op: Any = node.op
    if isinstance(op, FREE) or not getattr(op, "is_compute", True):
        return 0.0
    read, written = list(map(prod, inputs)), list(map(prod, outputs))
    return max(_moving(bytes_moved(node, inputs, outputs)), _computing(op, read, written))


def _moving(nbytes: int) -> float:
    return nbytes / (BYTES_PER_SECOND if nbytes > CACHE else BYTES_PER_SECOND_OF_CACHE)


def bytes_moved(node: Apply, inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]) -> int:
    """Return the bytes of all inputs and outputs of a node: what it has to read and write at least."""
    kinds = [getattr(v.type, "dtype", "int8") for v in (*node.inputs, *node.outputs)]
    return sum(prod(n) * _itemsize(kind) for n, kind in zip((*inputs, *outputs), kinds, strict=True))


def _itemsize(dtype: str) -> int:
    bits = "".join(filter(str.isdigit, dtype))
    return int(bits) // 8 if bits else 1


def _computing(op: Any, inputs: Sequence[int], outputs: Sequence[int]) -> float:
    host = getattr(op, "host", op)
    if isinstance(host, Elemwise):
        return max(outputs) * _per_element(host.scalar_op)
    if any(word in str(host) for word in _PRODUCTS):
        return _product_flops(inputs, outputs) / FLOPS
    return max((*inputs, *outputs), default=0) * SIMPLE
