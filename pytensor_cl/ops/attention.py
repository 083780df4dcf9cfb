"""Attention."""

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply

from pytensor_cl.codegen.dtypes import computed
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.nn import attention as markers
from pytensor_cl.ops.adapters import copy_or_none
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.routines.attention import routine as routines
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context


class _WithCasts:
    """A routine whose inputs and outputs are cast where there is a routine for it."""

    def __init__(self, routine: Any, casts: Sequence[Copy | None], results: Sequence[Copy | None]) -> None:
        self._routine, self._casts, self._results = routine, tuple(casts), tuple(results)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the routine and of the casts."""
        copies = (*self._casts, *self._results)
        return (*self._routine.sources(), *(s for copy in copies if copy is not None for s in copy.sources()))

    def __call__(self, *inputs: GpuArray) -> tuple[GpuArray, ...]:
        cast = (v if copy is None else copy(v)[0] for v, copy in zip(inputs, self._casts, strict=True))
        results = self._routine(*cast)
        return tuple(v if copy is None else copy(v)[0] for v, copy in zip(results, self._results, strict=True))


class _GpuAttention(GpuOp):
    """Common part of attention and its gradients; float16 is computed as float32."""

    kind: Any = None

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels, with casts of float16 and of a mask of another dtype."""
        dtype = computed(node.inputs[0].type.dtype)
        types = [v.type for v in node.inputs]
        wanted = [dtype if t.dtype.startswith("float") else t.dtype for t in types]
        host = self.host
        mask = wanted[3] if host.mask else None
        form = routines.Form(host.causal, host.grouped, mask, host.scale, host.dropout)
        routine = self.kind(context, dtype, form)
        casts = [copy_or_none(context, t.dtype, t.ndim, d) for t, d in zip(types, wanted, strict=True)]
        outputs = [copy_or_none(context, dtype, v.type.ndim, v.type.dtype) for v in node.outputs]
        return _WithCasts(routine, casts, outputs) if any((*casts, *outputs)) else routine


@register_lift(markers.Attention, numba_safe=True, every_dtype=True)
class GpuAttention(_GpuAttention):
    """Device counterpart of `Attention`."""

    kind = routines.Attention


@register_lift(markers.AttentionGrad, numba_safe=True, every_dtype=True)
class GpuAttentionGrad(_GpuAttention):
    """Device counterpart of `AttentionGrad`."""

    kind = routines.AttentionGrad
