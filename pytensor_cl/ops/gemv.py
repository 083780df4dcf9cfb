"""Products of a matrix and a vector."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.blas import Gemv

from pytensor_cl.codegen.dtypes import computed, is_complex
from pytensor_cl.ops.adapters import CheckedAddend, with_casts
from pytensor_cl.ops.base import ANY, DEVICE, GpuOp, Routine
from pytensor_cl.ops.gemm import scaled_product
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.routines.gemv.routine import Gemv as GemvRoutine
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context


class _ComplexGemv:
    """A product of a complex matrix and a complex vector, computed as one of two matrices."""

    def __init__(self, product: Any) -> None:
        self._product = product
        self.sources = product.sources

    def __call__(self, y: GpuArray, alpha: Any, a: GpuArray, x: GpuArray, beta: Any) -> tuple[GpuArray, ...]:
        columns = (v.with_layout(v.layout.dimshuffle((0, "x"))) for v in (y, x))
        (result,) = self._product(next(columns), alpha, a, next(columns), beta)
        return (result.with_layout(result.layout.reshape(result.shape[:1])),)


@register_lift(Gemv, numba_safe=False, every_dtype=True)
class GpuGemv(GpuOp):
    """Device counterpart of `Gemv`: ``beta * y + alpha * A @ x``; y is not overwritten."""

    operand_placements = (DEVICE, ANY, DEVICE, DEVICE, ANY)
    scalars_on_device = True

    def accepts_donation(self, index: int) -> bool:
        """The result may be y itself."""
        return not index

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the GEMV."""
        target = node.outputs[0].type
        if is_complex(target.dtype):
            return CheckedAddend(_ComplexGemv(scaled_product(node.inputs, target, context)), node)
        dtype = computed(target.dtype)
        product = GemvRoutine(context, dtype, has_y=True)
        return CheckedAddend(with_casts(product, node.inputs, dtype, target, context), node)
