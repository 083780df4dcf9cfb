"""Floating-point operations and bytes of a node, for the rates in reports."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import CAReduce, Elemwise

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.conv import GpuConv, GpuConvGradInput, GpuConvGradWeight
from pytensor_cl.ops.epilogue import GpuEpilogue
from pytensor_cl.ops.gemm import GpuBatchedDot, GpuDot, GpuDot22, GpuDot22Scalar, GpuGemm, GpuMatmul
from pytensor_cl.ops.gemv import GpuGemv
from pytensor_cl.ops.gemv_pair import GpuGemvPair
from pytensor_cl.ops.grouped_rows import GpuGroupedRows
from pytensor_cl.ops.rowwise import GpuRowwise

Shapes = Sequence[tuple[int, ...]]


def _scalar_count(scalar_op: Any) -> int:
    """Return the operations per element: a function such as exp counts as one."""
    inner = scalar_op.fgraph.toposort() if isinstance(scalar_op, Composite) else ()
    return sum(_scalar_count(node.op) for node in inner) if inner else 1


def _rows(op: Any, inputs: Shapes, outputs: Shapes) -> float:
    return len(op.function.steps) * max(map(prod, (*inputs, *outputs)))


def _grouped(op: Any, inputs: Shapes, outputs: Shapes) -> float:
    indices = op.split(inputs)[1]
    rows = max(n[0] for n in (*inputs, *outputs) if len(n) > 1)
    count: float = (len(op.rows.function.steps) + len(op.scatters)) * rows * prod(indices[0])
    return count


def _product(left: int) -> Callable[[Any, Shapes, Shapes], float]:
    """Count a product of matrices; `left` is the number of the first factor among the inputs."""

    def count(op: Any, inputs: Shapes, outputs: Shapes) -> float:
        return 2.0 * prod(outputs[0]) * (inputs[left][-1] if inputs[left] else 1)

    return count


def _conv(dy: int | None, w: int | None) -> Callable[[Any, Shapes, Shapes], float]:
    """Count a convolution or its gradient; the numbers are positions of two inputs, None stands for the output."""

    def count(op: Any, inputs: Shapes, outputs: Shapes) -> float:
        results, kernels = (outputs[0] if k is None else inputs[k] for k in (dy, w))
        return 2.0 * prod(results) * prod(kernels[1:])

    return count


def _epilogue(op: Any, inputs: Shapes, outputs: Shapes) -> float:
    return flops(op.producer, op.split(inputs)[0], outputs) + _scalar_count(op.function) * prod(outputs[0])


def _pair(op: Any, inputs: Shapes, outputs: Shapes) -> float:
    rows, columns = inputs[2]
    return 4.0 * rows * columns + len(op.pair.function.steps) * rows


_COUNTS: dict[type, Callable[[Any, Shapes, Shapes], float]] = {
    GpuRowwise: _rows,
    GpuGroupedRows: _grouped,
    GpuEpilogue: _epilogue,
    GpuGemm: _product(2),
    GpuGemv: _product(2),
    GpuGemvPair: _pair,
    **dict.fromkeys((GpuDot, GpuDot22, GpuDot22Scalar, GpuBatchedDot, GpuMatmul), _product(0)),
    GpuConv: _conv(None, 1),
    GpuConvGradInput: _conv(1, 0),
    GpuConvGradWeight: _conv(1, None),
}


def flops(op: Any, inputs: Shapes, outputs: Shapes) -> float:
    """Return the floating-point operations of an Op for values of these shapes.

    A multiplication and an addition are two, an elementary function is one. Only elementwise functions, functions of
    rows, reductions, products and convolutions are counted; the result is 0 for others.
    """
    count, host = _COUNTS.get(type(op)), getattr(op, "host", op)
    if count is not None:
        return count(op, inputs, outputs)
    if isinstance(host, Elemwise):
        return _scalar_count(host.scalar_op) * prod(outputs[0])
    return prod(inputs[0]) if isinstance(host, CAReduce) and isinstance(op, GpuOp) else 0


def bytes_moved(node: Apply, inputs: Shapes, outputs: Shapes) -> int:
    """Return the bytes of all inputs and outputs of a node, which it reads and writes at least."""
    dtypes = [getattr(v.type, "dtype", "int8") for v in (*node.inputs, *node.outputs)]
    return sum(prod(n) * _itemsize(dtype) for n, dtype in zip((*inputs, *outputs), dtypes, strict=True))


def _itemsize(dtype: str) -> int:
    bits = "".join(filter(str.isdigit, dtype))
    return int(bits) // 8 if bits else 1
