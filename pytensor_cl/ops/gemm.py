"""Products of matrices and of batches of them."""

from collections.abc import Sequence
from typing import Any

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor import blas
from pytensor.tensor.math import Dot

from pytensor_cl.codegen.dtypes import computed, is_complex
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.adapters import CheckedAddend, CheckedBatch, Reordered, with_casts
from pytensor_cl.ops.base import ANY, DEVICE, Routine
from pytensor_cl.ops.elemwise import is_by_value
from pytensor_cl.ops.epilogue import SupportsEpilogue
from pytensor_cl.ops.registry import register_batched_lift, register_lift
from pytensor_cl.routines.elemwise.epilogue import Epilogue
from pytensor_cl.routines.elemwise.routine import Elemwise
from pytensor_cl.routines.gemm.complex import ComplexGemm
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.scalar.base import element_function

MAX_EPILOGUE_OPERANDS = 6
"""Arrays that the epilogue of a product may read: its arguments must fit in the 1024 bytes that every device has."""


def _compute_dtype(dtype: str) -> str:
    """Return the dtype in which a product is computed.

    The product of booleans is "or" of "and". A float32 sum of ones may round, but it is zero only if all terms are.
    """
    return "float32" if dtype == "bool" else computed(dtype)


def _product(kind: type[Gemm], node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
    """Return a product of the node's first two inputs; float16 and bool are computed in float32."""
    target = node.outputs[0].type
    dtype = _compute_dtype(target.dtype)
    product: Any
    if is_complex(target.dtype):
        product = ComplexGemm(context, kind, target.dtype)
    else:
        product = kind(context, dtype, epilogue=epilogue)
    return with_casts(product, node.inputs, dtype, target, context)


class _ScaledComplex:
    """``alpha * A @ B + beta * C`` of complex numbers: a product, then an elementwise function.

    Called with ``(C, alpha, A, B, beta)``, or with ``(alpha, A, B)``. Where ``beta`` is zero, C is not read. `by_value`
    tells whether alpha, and beta, are host scalars.
    """

    def __init__(self, context: Context, dtype: str, has_c: bool, by_value: Sequence[bool]) -> None:
        self._product = ComplexGemm(context, Gemm, dtype)
        product, alpha, c, beta = (ps.get_scalar_type(dtype)() for _ in range(4))
        inputs, result = [product, alpha], ps.mul(alpha, product)
        if has_c:
            inputs = [product, alpha, c, beta]
            result = ps.switch(ps.eq(beta, ps.constant(0, dtype=dtype)), result, ps.add(result, ps.mul(beta, c)))
        function = element_function(ps.Composite(inputs, [result]), [dtype] * len(inputs), [dtype])
        values = [False, by_value[0], False, by_value[-1]][: len(inputs)]
        self._finish = Elemwise(context, function, [(True, True)] * len(inputs), 2, values)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the product and of the sum."""
        return (*self._product.sources(), *self._finish.sources())

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        c, alpha, a, b, beta = inputs if len(inputs) == 5 else (None, *inputs, None)
        (product,) = self._product(a, b)
        scalars = [_as_matrix(x) if isinstance(x, GpuArray) else x for x in (alpha, beta)]
        addend = () if c is None else (c, scalars[1])
        return self._finish(product, scalars[0], *addend)


def _as_matrix(scalar: GpuArray) -> GpuArray:
    return scalar.with_layout(Layout((1, 1), (0, 0), scalar.layout.offset))


def scaled_product(
    inputs: Sequence[Variable], target: Any, context: Context, epilogue: Epilogue | None = None
) -> Routine:
    """Return the routine of ``(C, alpha, A, B, beta)``, or of ``(alpha, A, B)``, for a result of Type `target`."""
    dtype, has_c = target.dtype, len(inputs) == 5
    if is_complex(dtype):
        scalars = [v for v in inputs if v.type.ndim == 0]
        return _ScaledComplex(context, dtype, has_c, [is_by_value(v) for v in scalars])
    dtype = computed(dtype)
    product = Gemm(context, dtype, has_c=has_c, has_alpha=True, epilogue=epilogue)
    return with_casts(product, inputs, dtype, target, context)


class _GpuProduct(SupportsEpilogue):
    """A product of matrices, whose kernel can apply a function to the elements that it stores.

    Input number `right` is the right operand.
    """

    right = 1

    def prefers_row_major(self, index: int) -> bool:
        """The right operand is packed where its rows are not contiguous."""
        return index == self.right

    def can_apply(self, node: Apply, extra: Sequence[Variable]) -> bool:
        """Return whether the result needs no cast, is no vector, and the epilogue does not read too many arrays."""
        target = node.outputs[0].type
        is_vector = any(target.broadcastable[-2:])
        return target.dtype in ("float32", "float64") and not is_vector and len(extra) <= MAX_EPILOGUE_OPERANDS


@register_lift(Dot, numba_safe=True, every_dtype=True)
class GpuDot(_GpuProduct):
    """Device counterpart of `Dot`: two matrices of any dtypes."""

    def routine_with_epilogue(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the GEMM."""
        return _product(Gemm, node, context, epilogue)


@register_lift(blas.Dot22, numba_safe=False, every_dtype=True)
class GpuDot22(GpuDot):
    """Device counterpart of `Dot22`: two matrices of one floating dtype."""


@register_lift(blas.Dot22Scalar, numba_safe=False, every_dtype=True)
class GpuDot22Scalar(_GpuProduct):
    """Device counterpart of `Dot22Scalar`: ``alpha * A @ B``."""

    operand_placements = (DEVICE, DEVICE, ANY)
    scalars_on_device = True

    def routine_with_epilogue(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the GEMM."""
        a, b, alpha = node.inputs
        return Reordered(scaled_product([alpha, a, b], node.outputs[0].type, context, epilogue), (2, 0, 1))


@register_lift(blas.Gemm, numba_safe=False, every_dtype=True)
class GpuGemm(_GpuProduct):
    """Device counterpart of `Gemm`: ``beta * C + alpha * A @ B``; C is not overwritten."""

    operand_placements = (DEVICE, ANY, DEVICE, DEVICE, ANY)
    scalars_on_device = True
    right = 3

    def accepts_donation(self, index: int) -> bool:
        """The result may be C itself."""
        return not index

    def routine_with_epilogue(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the GEMM."""
        return CheckedAddend(scaled_product(node.inputs, node.outputs[0].type, context, epilogue), node)


@register_lift(blas.BatchedDot, numba_safe=False, every_dtype=True)
class GpuBatchedDot(_GpuProduct):
    """Device counterpart of `BatchedDot`: ``out[i] = A[i] @ B[i]``."""

    def routine_with_epilogue(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the batched GEMM."""
        return CheckedBatch(_product(BatchedGemm, node, context, epilogue), node)


@register_batched_lift(Dot, every_dtype=True)
class GpuMatmul(GpuBatchedDot):
    """Device counterpart of ``Blockwise(Dot)``: any batch dimensions, broadcast as static shapes allow."""
