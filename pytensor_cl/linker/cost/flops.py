"""How many operations of arithmetic a node is, by the usual conventions; 0 where nobody counts them."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import CAReduce, Elemwise

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.conv import GpuConv, GpuConvGradInput, GpuConvGradWeight
from pytensor_cl.ops.epilogue import GpuEpilogue
from pytensor_cl.ops.gemm import GpuBatchedDot, GpuDot, GpuDot22, GpuDot22Scalar, GpuGemm, GpuMatmul
from pytensor_cl.ops.gemv import GpuGemv
from pytensor_cl.ops.gemv_pair import GpuGemvPair
from pytensor_cl.ops.rowwise import GpuRowwise

__all__ = ["flops"]

Shapes = Sequence[tuple[int, ...]]


def _steps(scalar_op: Any) -> int:
    """Operations per element: a function such as exp counts as one."""
    inner = scalar_op.fgraph.toposort() if isinstance(scalar_op, Composite) else ()
    return sum(_steps(node.op) for node in inner) if inner else 1


def _rows(op: Any, inputs: Shapes, outputs: Shapes) -> float:
    return len(op.function.steps) * max(map(prod, (*inputs, *outputs)))


def _product(left: int) -> Callable[[Any, Shapes, Shapes], float]:
    """Count a product of matrices; `left` is the number of the first factor among the inputs."""

    def count(op: Any, inputs: Shapes, outputs: Shapes) -> float:
        return 2.0 * prod(outputs[0]) * (inputs[left][-1] if inputs[left] else 1)

    return count


def _conv(dy: int | None, w: int | None) -> Callable[[Any, Shapes, Shapes], float]:
    """Count a convolution or its gradient; the numbers are those of two inputs, None stands for the output."""

    def count(op: Any, inputs: Shapes, outputs: Shapes) -> float:
        results, kernels = (outputs[0] if k is None else inputs[k] for k in (dy, w))
        return 2.0 * prod(results) * prod(kernels[1:])

    return count


def _epilogue(op: Any, inputs: Shapes, outputs: Shapes) -> float:
    return flops(op.producer, op.split(inputs)[0], outputs) + _steps(op.function) * prod(outputs[0])


def _pair(op: Any, inputs: Shapes, outputs: Shapes) -> float:
    rows, columns = inputs[2]
    return 4.0 * rows * columns + len(op.pair.function.steps) * rows


_COUNTS: dict[type, Callable[[Any, Shapes, Shapes], float]] = {
    GpuRowwise: _rows,
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
    """Return how many operations an Op is for values of these shapes.

    A multiplication and an addition are two, an elementary function is one. Those of other Ops than functions of
    elements and rows, products and convolutions are not counted.

    Parameters
    ----------
    op
        Of a rewritten graph.
    inputs, outputs
        Shapes of its values.
    """
    count, host = _COUNTS.get(type(op)), getattr(op, "host", op)
    if count is not None:
        return count(op, inputs, outputs)
    if isinstance(host, Elemwise):
        return _steps(host.scalar_op) * prod(outputs[0])
    return prod(inputs[0]) if isinstance(host, CAReduce) and isinstance(op, GpuOp) else 0
