"""Products of matrices and of batches of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.codegen.dtypes import computed, is_complex
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.base import ANY, DEVICE, Routine
from pytensor_cl.ops.elemwise import is_by_value
from pytensor_cl.ops.epilogue import StoringOp
from pytensor_cl.routines.elemwise.epilogue import Epilogue
from pytensor_cl.routines.elemwise.routine import Copy, Elemwise
from pytensor_cl.routines.gemm.complex import ComplexGemm
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.scalar.base import element_function

__all__ = ["CheckedAddend", "GpuBatchedDot", "GpuDot", "GpuDot22", "GpuDot22Scalar", "GpuGemm", "GpuMatmul"]


class Promoted:
    """A product of operands that are cast to one dtype first, and whose result may be cast after it.

    Parameters
    ----------
    product
        The routine of the product.
    casts
        Per input the routine that casts it, or None; inputs that follow, those of an epilogue, are left as they are.
    number
        What casts a number of the host; None leaves it as it is.
    result
        The routine that casts the result, or None.
    """

    def __init__(
        self, product: Any, casts: Sequence[Elemwise | None], number: Any = None, result: Copy | None = None
    ) -> None:
        self._product = product
        self._casts = tuple(casts)
        self._number = number
        self._result = result

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of the product and of the casts."""
        routines = (self._product, *filter(None, (*self._casts, self._result)))
        return tuple(source for routine in routines for source in routine.sources())

    def _cast(self, cast: Elemwise | None, value: Any) -> Any:
        if self._number is not None and not isinstance(value, GpuArray):
            return self._number(value)
        return value if cast is None else cast(value)[0]

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        casts = zip(self._casts, inputs, strict=False)
        results: tuple[GpuArray, ...]
        results = self._product(*(self._cast(c, x) for c, x in casts), *inputs[len(self._casts) :])
        return results if self._result is None else self._result(*results)


def _dtype_of_product(dtype: str) -> str:
    """Return what products are computed in: whether any is true, in a sum that can round but never be zero again."""
    return "float32" if dtype == "bool" else computed(dtype)


def promoted(product: Any, inputs: Sequence[Variable], target: Any, context: Context) -> Routine:
    """Return `product`, with casts of those inputs that need them for a result of Type `target`, and of float16."""
    dtype = _dtype_of_product(target.dtype)

    def cast(source: str, ndim: int, target: str) -> Copy | None:
        return None if source == target else Copy(context, source, ndim, target)

    casts = [cast(v.type.dtype, v.type.ndim, dtype) for v in inputs]
    result = cast(dtype, target.ndim, target.dtype)
    return Promoted(product, casts, np.dtype(dtype).type, result) if any((*casts, result)) else product


def _product(kind: type[Gemm], node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
    """Return a product of the node's first two inputs; that of float16 and bool is computed in float32."""
    dtype = node.outputs[0].type.dtype
    whole: Any
    if is_complex(dtype):
        whole = ComplexGemm(context, kind, dtype)
    else:
        whole = kind(context, _dtype_of_product(dtype), epilogue=epilogue)
    return promoted(whole, node.inputs, node.outputs[0].type, context)


class ScaledComplex:
    """``alpha * A @ B + beta * C`` of complex numbers: the product, then a function of each element.

    Called with ``(C, alpha, A, B, beta)``, or with ``(alpha, A, B)``. Where ``beta`` is zero, C does not count.

    Parameters
    ----------
    context
        Where the arrays live.
    dtype
        Of every operand.
    has_c
        Whether there is an addend.
    by_value
        Whether alpha, and beta, are numbers of the host.
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
    return scalar.view(Layout((1, 1), (0, 0), scalar.layout.offset))


def scaled(inputs: Sequence[Variable], target: Any, context: Context, epilogue: Epilogue | None = None) -> Routine:
    """Return the routine of ``(C, alpha, A, B, beta)``, or of ``(alpha, A, B)``, for a result of Type `target`."""
    dtype, has_c = target.dtype, len(inputs) == 5
    if is_complex(dtype):
        numbers = [v for v in inputs if v.type.ndim == 0]
        return ScaledComplex(context, dtype, has_c, [is_by_value(v) for v in numbers])
    product = Gemm(context, computed(dtype), has_c=has_c, has_alpha=True, epilogue=epilogue)
    return promoted(product, inputs, target, context)


MOST_FURTHER = 6
"""Arrays that the epilogue of a product may read: its arguments must fit in the 1024 bytes that every device has."""


class Product(StoringOp):
    """A product of matrices, whose kernel can apply a function to what it stores."""

    def applies(self, node: Apply, further: Sequence[Variable]) -> bool:
        """Whether it is computed in the dtype that it has, and is no product of a matrix and a vector."""
        target = node.outputs[0].type
        is_vector = any(target.broadcastable[-2:])
        return target.dtype in ("float32", "float64") and not is_vector and len(further) <= MOST_FURTHER


class GpuDot(Product):
    """Device counterpart of `Dot`: two matrices of any dtypes."""

    def routine_with(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the GEMM."""
        return _product(Gemm, node, context, epilogue)


class GpuDot22(GpuDot):
    """Device counterpart of `Dot22`: two matrices of one floating dtype."""


class GpuDot22Scalar(Product):
    """Device counterpart of `Dot22Scalar`: ``alpha * A @ B``."""

    operand_placements = (DEVICE, DEVICE, ANY)
    scalars_on_device = True

    def routine_with(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the GEMM."""
        a, b, alpha = node.inputs
        return _Reordered(scaled([alpha, a, b], node.outputs[0].type, context, epilogue), (2, 0, 1))


class _Reordered:
    """A routine that takes its first inputs in another order than the Op."""

    def __init__(self, routine: Any, order: Sequence[int]) -> None:
        self._routine = routine
        self._order = tuple(order)
        self.sources = routine.sources

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        return self._routine(*(inputs[i] for i in self._order), *inputs[len(self._order) :])


class GpuGemm(Product):
    """Device counterpart of `Gemm`: ``beta * C + alpha * A @ B``; C is not overwritten."""

    operand_placements = (DEVICE, ANY, DEVICE, DEVICE, ANY)
    scalars_on_device = True

    def may_overwrite(self, index: int) -> bool:
        """The result may be C itself."""
        return not index

    def routine_with(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the GEMM."""
        return CheckedAddend(scaled(node.inputs, node.outputs[0].type, context, epilogue), node)


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

    def __call__(
        self, c: GpuArray, alpha: Any, a: GpuArray, b: GpuArray, beta: Any, *further: GpuArray
    ) -> tuple[GpuArray, ...]:
        product = (a.shape[0], *b.shape[1:])
        pairs = zip(c.shape, product, self._repeated, strict=True)
        if c.shape != product and any(n != m and not known for n, m, known in pairs):
            raise ValueError(
                f"an addend of shape {c.shape} does not fit a product of shape {product} (no run-time broadcasting)"
            )
        return self._routine(c, alpha, a, b, beta, *further)


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

    def __call__(self, a: GpuArray, b: GpuArray, *further: GpuArray) -> tuple[GpuArray, ...]:
        extents = zip(a.shape[-3::-1], b.shape[-3::-1], strict=False)
        for (n, m), known in zip(extents, self._repeated, strict=True):
            if n != m and not any(known):
                raise ValueError(
                    "the batch dimensions of a product do not match (no run-time broadcasting): "
                    f"{a.shape} and {b.shape}"
                )
        return self._routine(a, b, *further)


def _checked(node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
    product = _product(BatchedGemm, node, context, epilogue)
    a, b = (v.type.broadcastable[-3::-1] for v in node.inputs)
    return _CheckedBatch(product, (a, b))


class GpuBatchedDot(Product):
    """Device counterpart of `BatchedDot`: ``out[i] = A[i] @ B[i]``."""

    def routine_with(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the batched GEMM."""
        return _checked(node, context, epilogue)


class GpuMatmul(Product):
    """Device counterpart of ``Blockwise(Dot)``: any batch dimensions, broadcast as static shapes allow."""

    def routine_with(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the batched GEMM."""
        return _checked(node, context, epilogue)
