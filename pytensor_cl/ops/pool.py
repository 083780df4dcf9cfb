"""Pooling."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.codegen.dtypes import computed
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.routines import pool
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context

__all__ = ["GpuAvgPool", "GpuAvgPoolGrad", "GpuMaxPool", "GpuMaxPoolGather", "GpuMaxPoolScatter", "Widened"]


class Widened:
    """A routine whose arrays may be cast before it, and whose result after it; lengths may follow them.

    With an epilogue, the further arrays that it reads come last, and results are as it leaves them.

    Parameters
    ----------
    routine
        Called with the arrays and, if there are any, the tuple of lengths.
    inputs, dtypes
        The arrays, and the dtypes that the routine takes.
    target
        Type of the result; the routine's dtype is what it computes in.
    context
        Where the arrays live.
    further
        Number of further arrays; None: there is no epilogue.
    """

    def __init__(
        self,
        routine: Any,
        inputs: Sequence[Variable],
        dtypes: Sequence[str],
        target: Any,
        context: Context,
        further: int | None = None,
    ) -> None:
        def cast(source: str, wanted: str, ndim: int) -> Copy | None:
            return None if source == wanted else Copy(context, source, ndim, wanted)

        self._routine = routine
        self._casts = [cast(v.type.dtype, d, v.type.ndim) for v, d in zip(inputs, dtypes, strict=True)]
        self._result = cast(routine.output_dtypes[0], target.dtype, target.ndim) if further is None else None
        self._further = further or 0

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of the routine and of the casts."""
        routines = (self._routine, *filter(None, (*self._casts, self._result)))
        return tuple(source for routine in routines for source in routine.sources())

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        count = len(self._casts)
        arrays = [a if c is None else c(a)[0] for a, c in zip(inputs[:count], self._casts, strict=True)]
        end = len(inputs) - self._further
        lengths = (tuple(int(np.asarray(n)) for n in inputs[count:end]),) if inputs[count:end] else ()
        result = self._routine(*arrays, *lengths, *inputs[end:])
        return result if self._result is None else self._result(*result)


class _GpuPool(GpuOp):
    """What the pooling Ops have in common: the parameters are the host Op's; float16 is computed as float32."""

    is_memory_bound = True
    kind: Any = None

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels, with casts of float16."""
        arrays = [v for i, v in enumerate(node.inputs) if self.placement_of(i) is DEVICE]
        dtypes = [computed(v.type.dtype) for v in arrays]
        windows = [pool.Window(k, s, *p) for k, s, p in zip(*self._columns(), strict=True)]
        inc_pad = getattr(self.host, "inc_pad", True)
        routine = self.kind(context, dtypes[0], windows, self.host.ceil, inc_pad=inc_pad, other=dtypes[-1])
        return Widened(routine, arrays, dtypes, node.outputs[0].type, context)

    def _columns(self) -> tuple[Any, ...]:
        return self.host.window, self.host.strides, self.host.padding


class GpuMaxPool(_GpuPool):
    """Device counterpart of `MaxPool`."""

    kind = pool.MaxPool


class GpuMaxPoolScatter(_GpuPool):
    """Device counterpart of `MaxPoolScatter`."""

    kind = pool.MaxPoolScatter


class GpuMaxPoolGather(_GpuPool):
    """Device counterpart of `MaxPoolGather`."""

    kind = pool.MaxPoolGather


class GpuAvgPool(_GpuPool):
    """Device counterpart of `AvgPool`."""

    kind = pool.AvgPool


class GpuAvgPoolGrad(_GpuPool):
    """Device counterpart of `AvgPoolGrad`."""

    operand_placements = (DEVICE, HOST)
    kind = pool.AvgPoolGrad
