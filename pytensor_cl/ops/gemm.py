"""Products of matrices and of batches of them."""

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import DEVICE, EITHER, GpuOp, Routine
from pytensor_cl.routines.elemwise import Cast, Elemwise
from pytensor_cl.routines.gemm import BatchedGemm, Gemm
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.template import KernelSource

__all__ = ["CheckedAddend", "GpuBatchedDot", "GpuDot", "GpuDot22", "GpuDot22Scalar", "GpuGemm", "GpuMatmul"]


class Promoted:
    """A product of operands that are cast to the result's dtype first.

    Parameters
    ----------
    product
        The routine of the product.
    casts
        Per input the routine that casts it, or None.
    """

    def __init__(self, product: Any, casts: Sequence[Elemwise | None]) -> None:
        self._product = product
        self._casts = tuple(casts)

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of the product and of the casts."""
        routines = (self._product, *filter(None, self._casts))
        return tuple(source for routine in routines for source in routine.sources())

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        return self._product(*(x if c is None else c(x)[0] for c, x in zip(self._casts, inputs, strict=True)))


def promoted(product: Any, node: Apply, context: Context) -> Routine:
    """Return `product`, with casts of those inputs of `node` that need them."""
    dtype = node.outputs[0].type.dtype

    def cast(source: Any) -> Elemwise | None:
        if source.dtype == dtype:
            return None
        return Elemwise(context, Cast(source.dtype, dtype), (source.broadcastable,), source.ndim, (False,))

    casts = [cast(v.type) for v in node.inputs]
    return Promoted(product, casts) if any(casts) else product


class GpuDot(GpuOp):
    """Device counterpart of `Dot`: two matrices of any dtypes."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the GEMM."""
        return promoted(Gemm(context, node.outputs[0].type.dtype), node, context)


class GpuDot22(GpuDot):
    """Device counterpart of `Dot22`: two matrices of one floating dtype."""


class GpuDot22Scalar(GpuOp):
    """Device counterpart of `Dot22Scalar`: ``alpha * A @ B``."""

    demands = (DEVICE, DEVICE, EITHER)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the GEMM."""
        gemm = Gemm(context, node.outputs[0].type.dtype, has_alpha=True)
        return _Reordered(gemm, (2, 0, 1))


class _Reordered:
    """A routine that takes its inputs in another order than the Op."""

    def __init__(self, routine: Any, order: Sequence[int]) -> None:
        self._routine = routine
        self._order = tuple(order)
        self.sources = routine.sources

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        return self._routine(*(inputs[i] for i in self._order))


class GpuGemm(GpuOp):
    """Device counterpart of `Gemm`: ``beta * C + alpha * A @ B``; C is not overwritten."""

    demands = (DEVICE, EITHER, DEVICE, DEVICE, EITHER)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the GEMM."""
        return CheckedAddend(Gemm(context, node.outputs[0].type.dtype, has_c=True), node)


class CheckedAddend:
    """A product with an addend, repeated only along dimensions that were known to be one at compile time.

    Parameters
    ----------
    routine
        Called with ``(C, alpha, A, B, beta)``.
    node
        Has these inputs.
    """

    def __init__(self, routine: Any, node: Apply) -> None:
        c, _, a, b, _ = (v.type for v in node.inputs)
        self._routine = routine
        product = (a.shape[0] == 1, *b.broadcastable[1:])
        self._repeated = [m or n for m, n in zip(c.broadcastable, product, strict=True)]
        self.sources = routine.sources

    def __call__(self, c: GpuArray, alpha: Any, a: GpuArray, b: GpuArray, beta: Any) -> tuple[GpuArray, ...]:
        product = (a.shape[0], *b.shape[1:])
        pairs = zip(c.shape, product, self._repeated, strict=True)
        if c.shape != product and any(n != m and not known for n, m, known in pairs):
            raise ValueError(
                f"an addend of shape {c.shape} does not fit a product of shape {product} (no run-time broadcasting)"
            )
        return self._routine(c, alpha, a, b, beta)


class _CheckedBatch:
    """A batched product that refuses to broadcast where the host Op does.

    Parameters
    ----------
    routine
        Called with the two operands.
    repeated
        Per operand and batch dimension, from the right, whether its length is known to be one.
    """

    def __init__(self, routine: Any, repeated: tuple[Sequence[bool], Sequence[bool]]) -> None:
        self._routine = routine
        self._repeated = list(zip(*repeated, strict=False))
        self.sources = routine.sources

    def __call__(self, a: GpuArray, b: GpuArray) -> tuple[GpuArray, ...]:
        extents = zip(a.shape[-3::-1], b.shape[-3::-1], strict=False)
        for (n, m), known in zip(extents, self._repeated, strict=True):
            if n != m and not any(known):
                raise ValueError(
                    "the batch dimensions of a product do not match (no run-time broadcasting): "
                    f"{a.shape} and {b.shape}"
                )
        return self._routine(a, b)


def _checked(node: Apply, context: Context) -> Routine:
    product = promoted(BatchedGemm(context, node.outputs[0].type.dtype), node, context)
    a, b = (v.type.broadcastable[-3::-1] for v in node.inputs)
    return _CheckedBatch(product, (a, b))


class GpuBatchedDot(GpuOp):
    """Device counterpart of `BatchedDot`: ``out[i] = A[i] @ B[i]``."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the batched GEMM."""
        return _checked(node, context)


class GpuMatmul(GpuOp):
    """Device counterpart of ``Blockwise(Dot)``: any batch dimensions, broadcast as static shapes allow."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the batched GEMM."""
        return _checked(node, context)
