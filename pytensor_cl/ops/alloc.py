"""Arrays of one value, and uninitialised arrays."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Alloc, AllocEmpty

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import NegativeLengthError
from pytensor_cl.ops.base import ANY, HOST, GpuOp, Routine
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context


def _shape(extents: Iterable[Any]) -> tuple[int, ...]:
    shape = tuple(int(n) for n in extents)
    if any(n < 0 for n in shape):
        raise NegativeLengthError(f"negative dimensions are not allowed: {shape}")
    return shape


class _Broadcast:
    """Broadcasts a value by strides of zero: no kernel, no new memory."""

    def __init__(self, context: Context, repeated: tuple[bool, ...]) -> None:
        self._context = context
        self._repeated = repeated  # per dimension of the value, whether its length is known to be one

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels."""
        return ()

    def __call__(self, value: Any, *extents: Any) -> tuple[GpuArray, ...]:
        array = value if isinstance(value, GpuArray) else self._context.from_host(np.asarray(value))
        shape = _shape(extents)
        self._check(array.shape, shape)
        return (array.with_layout(array.layout.broadcast_to(shape)),)

    def _check(self, have: tuple[int, ...], shape: tuple[int, ...]) -> None:
        pairs = zip(have, shape[len(shape) - len(have) :], self._repeated, strict=True)
        if any(n == 1 != m and not known for n, m, known in pairs):
            raise ValueError(
                "Runtime broadcasting not allowed. The value to repeat has a dimension of length 1 that was not known "
                f"to be 1 when the function was compiled: shape {have} to {shape}"
            )


@register_lift(Alloc, numba_safe=True, every_dtype=True)
class GpuAlloc(GpuOp):
    """Device counterpart of `Alloc`."""

    view_map = {0: [0]}
    is_compute = False
    operand_placements = (ANY, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view of the repeated value."""
        return _Broadcast(context, node.inputs[0].type.broadcastable)


class _Empty:
    """Allocates an array without writing it."""

    def __init__(self, context: Context, dtype: str) -> None:
        self._context = context
        self._dtype = np.dtype(dtype)

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels."""
        return ()

    def __call__(self, *extents: Any) -> tuple[GpuArray, ...]:
        return (self._context.empty(_shape(extents), self._dtype),)


@register_lift(AllocEmpty, numba_safe=True, every_dtype=True)
class GpuAllocEmpty(GpuOp):
    """Device counterpart of `AllocEmpty`."""

    is_compute = False
    is_source = True
    operand_placements = (HOST,)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the allocation."""
        return _Empty(context, node.outputs[0].type.dtype)
