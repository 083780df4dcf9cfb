"""Shared parts of the matrix routines: dtypes, and scalars that come by value or are on the device."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import ctype, is_special
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context

Scalar = GpuArray | np.generic
Buffer = Any  # a pyopencl buffer; None is a null pointer


def register_bytes(context: Context) -> int:
    """Return the width of the device's vector registers."""
    return 4 * max(4, context.device.native_vector_width_float)


def lanes_of(context: Context, dtype: np.dtype) -> int:
    """Return how many elements the vectors of the cpu schedule hold."""
    return min(16, max(4, register_bytes(context) // dtype.itemsize))


def arithmetic_types(dtype: np.dtype) -> dict[str, str]:
    """Return the C types that the kernels store and that they compute with.

    Signed overflow is undefined in C, so integers are computed unsigned, and not narrower than C's own
    promotion.
    """
    if dtype.kind == "f":
        return {"ctype": ctype(dtype), "wide": ctype(dtype)}
    return {"ctype": ctype(f"uint{8 * dtype.itemsize}"), "wide": ctype(f"uint{8 * max(4, dtype.itemsize)}")}


def call_struct(operands: str, scalar_type: str) -> Struct:
    """Return the struct of what may change from call to call: offsets, and scalars that are given by value.

    `operands`: names of the arrays, separated by spaces; `scalar_type`: C type of alpha and beta.
    """
    return Struct(("long", f"{operands} alpha_at beta_at"), (scalar_type, "alpha beta"))


class BlasRoutine(Routine):
    """``alpha * (A times B) + beta * C``.

    Called with ``(C, alpha, A, B, beta)`` if `has_c`, with ``(alpha, A, B)`` if only `has_alpha`, else with
    ``(A, B)``.

    `operands`: names of the arrays in the struct that kernels take in each call, separated by spaces.
    """

    def __init__(
        self,
        context: Context,
        dtype: str | np.dtype,
        operands: str,
        has_c: bool,
        has_alpha: bool,
        schedule: str | None,
    ) -> None:
        super().__init__(context, schedule)
        self.dtype = context.check_dtype(dtype)
        if self.dtype.kind == "b" or is_special(self.dtype):
            raise UnsupportedDtype(f"matrix products of {self.dtype} have no kernels of their own")
        self.output_dtypes = (self.dtype.name,)
        self.has_c, self.has_alpha = has_c, has_alpha or has_c
        # The numbers that may change from call to call. Kernels compute integers unsigned, so they have another type
        # than NumPy's.
        self._call = call_struct(operands, ctype(self.dtype))
        self._call_typedef = call_struct(operands, arithmetic_types(self.dtype)["ctype"])
        self._zero = self.dtype.type(0)

    def _normalize_inputs(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Sort the inputs: C, alpha, A, B, beta; None for those that this routine has not."""
        if self.has_c:
            return tuple(inputs)
        return (None, *inputs, None) if self.has_alpha else (None, None, *inputs, None)

    def _bind(self, starts: Sequence[int], *scalars: Scalar | None) -> tuple[bytes, tuple[Buffer, ...]]:
        """Return the struct of what may change from call to call, and the buffers of scalars that are on the device.

        `starts`: offset of each array; `*scalars`: alpha and beta; None for those that this routine has not.
        """
        if not self.has_alpha:
            return self._call.pack_values(*starts, 0, 0, self._zero, self._zero), ()
        values = [self._zero if value is None or isinstance(value, GpuArray) else value for value in scalars]
        places = [value.layout.offset if isinstance(value, GpuArray) else 0 for value in scalars]
        buffers = [value.buffer if isinstance(value, GpuArray) else None for value in scalars]
        # The kernels have arguments for those that the routine has.
        return self._call.pack_values(*starts, *places, *values), tuple(buffers[: self.has_alpha + self.has_c])

    def _workspace(self, count: int) -> Buffer:
        """Return a buffer of `count` elements for one launch.

        The queue is in order, so the buffer may be dropped once the launch is enqueued.
        """
        return self.context.empty((count,), self.dtype).buffer if count else None
