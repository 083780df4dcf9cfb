"""Convolutions."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.signal.conv import Convolve1d, Convolve2d
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.dtypes import computed, is_complex
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.nn import conv as host_ops
from pytensor_cl.nn.conv_host import Geometry
from pytensor_cl.nn.windows import resolve
from pytensor_cl.ops.adapters import with_casts
from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.epilogue import SupportsEpilogue
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.base.routine import Plans
from pytensor_cl.routines.conv.epilogue import ConvEpilogue, is_of_channels
from pytensor_cl.routines.conv.routine import ConvForward, ConvGradInput, ConvGradWeight, Convolve
from pytensor_cl.routines.elemwise.epilogue import Epilogue
from pytensor_cl.routines.elemwise.routine import Cast, Elemwise
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


class _Moded:
    """A convolution whose mode is a host value, and which broadcasts only where the host Op does.

    `repeated` tells for each signal and batch dimension whether its length is known to be one.
    """

    def __init__(self, routine: Convolve, casts: Sequence[Elemwise | None], repeated: Sequence[Sequence[bool]]) -> None:
        self._routine = routine
        self._casts = tuple(casts)
        self._repeated = list(zip(*repeated, strict=True))

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of the convolution and of the casts."""
        routines = (self._routine, *filter(None, self._casts))
        return tuple(source for routine in routines for source in routine.sources())

    def __call__(self, x: GpuArray, w: GpuArray, full: Any) -> tuple[GpuArray, ...]:
        # The batch dimensions: `repeated` has an entry for each.
        for n, m, known in zip(x.shape, w.shape, self._repeated, strict=False):
            if n != m and not any(known):
                raise ValueError(
                    "Incompatible Blockwise batch input shapes: the batch dimensions of a convolution do not match "
                    f"(no run-time broadcasting): {x.shape} and {w.shape}"
                )
        x, w = (a if c is None else c(a)[0] for a, c in zip((x, w), self._casts, strict=True))
        return self._routine(x, w, bool(np.asarray(full).reshape(())))


def _refuse_convolution(node: Apply, info: DeviceInfo) -> NoKernel | None:
    if node.outputs[0].type.dtype == "bool":
        return NoKernel("no OpenCL kernel for convolutions of bool")
    mode = node.inputs[2].type
    if isinstance(mode, TensorType) and not all(mode.broadcastable):
        return NoKernel("no OpenCL kernel for a batch of convolutions of different modes")
    return None


@register_lift(Convolve1d, Convolve2d, numba_safe=False, batched=True, refuse=_refuse_convolution)
class GpuConvolve(GpuOp):
    """Device counterpart of `Convolve1d` and `Convolve2d`, alone or in a Blockwise."""

    operand_placements = (DEVICE, DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the convolution, with casts of the signals that need them."""
        core = self.host.core_op if isinstance(self.host, Blockwise) else self.host
        dtype = node.outputs[0].type.dtype
        signals = [v.type for v in node.inputs[:2]]
        casts = [
            None if t.dtype == dtype else Elemwise(context, Cast(t.dtype, dtype), (t.broadcastable,), t.ndim, (False,))
            for t in signals
        ]
        repeated = [t.broadcastable[: -core.ndim] for t in signals]
        direct = getattr(core, "method", "auto") == "direct"
        return _Moded(Convolve(context, dtype, core.ndim, direct=direct), casts, repeated)


class _Parametrised:
    """A convolution whose symbolic parameters are host values; the padding may depend on the extents of its filters.

    It is called with the inputs of a node: two arrays, lengths and parameters, and the operands of an epilogue.
    """

    def __init__(self, make: Any, host: Any, kernels: int, operands: int) -> None:
        self._make = make
        self._host = host
        self._kernels = kernels
        self._operands = operands
        self._routines: Plans[Any] = Plans()
        plain = self._routine(host.geometry([1] * (host.first_parameter + host.symbolic_parameters)), (1,) * host.ndim)
        self.sources = plain.sources
        self.output_dtypes = plain.output_dtypes

    @property
    def methods(self) -> set[str]:
        """Names of the methods that calls so far have taken."""
        return set().union(*(routine.methods for routine in self._routines.values()))

    def _routine(self, geometry: Geometry, extents: Sequence[int]) -> Any:
        dims = zip(geometry.padding, extents, geometry.dilation, strict=True)
        fixed = geometry._replace(padding=tuple(resolve(p, k, d) for p, k, d in dims))
        return self._routines.lookup(fixed, partial(self._make, fixed))

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        end = len(inputs) - self._operands
        first, integers = self._host.first_parameter, [int(np.asarray(n)) for n in inputs[2:end]]
        arguments = [*inputs[:2], *([tuple(integers[: first - 2])] if first > 2 else [])]
        geometry = self._host.geometry([*inputs[:2], *integers])
        geometry.check_parameters()
        kernels = arguments[self._kernels]
        extents = kernels.shape[2:] if isinstance(kernels, GpuArray) else kernels
        result: tuple[GpuArray, ...] = self._routine(geometry, extents)(*arguments, *inputs[end:])
        return result


class _GpuConv(GpuOp):
    """Common part of a convolution with channels and its gradients; the parameters are the host Op's."""

    operand_placements: Sequence[str] = (DEVICE, DEVICE, HOST)
    kind: Any = None
    kernels = 0

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the convolution, with casts of the arrays that need them; float16 is computed as float32."""
        return self._routine(node, context, None)

    def _routine(self, node: Apply, context: Context, epilogue: ConvEpilogue | None) -> Routine:
        host, target = self.host, node.outputs[0].type
        dtype = computed(target.dtype)

        def make(geometry: Geometry) -> Any:
            return self.kind(context, dtype, host.ndim, *geometry, epilogue=epilogue)

        operands = 0 if epilogue is None else len(epilogue.of_channels)
        routine = _Parametrised(make, host, self.kernels, operands)
        return with_casts(routine, node.inputs[:2], dtype, target, context, has_epilogue=epilogue is not None)


MAX_EPILOGUE_OPERANDS = 4
"""Arrays that the epilogue of a convolution may read: its arguments must fit in 1024 bytes, which every device has."""


class _ConvWithEpilogue(SupportsEpilogue, _GpuConv):
    """A convolution whose kernel can apply a function to the elements that it stores."""

    def can_apply(self, node: Apply, extra: Sequence[Variable]) -> bool:
        """Return whether the operands have its dtype, and one element for each channel or the output's shape."""
        target = node.outputs[0].type
        alike = all(v.type.dtype == target.dtype for v in extra)
        known = [v.type.broadcastable for v in extra]
        reach = all(flags == target.broadcastable or is_of_channels(flags) for flags in known)
        return target.dtype in ("float32", "float64") and alike and reach and len(extra) <= MAX_EPILOGUE_OPERANDS

    def routine_with_epilogue(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the convolution."""
        return self._routine(node, context, None if epilogue is None else ConvEpilogue(context, epilogue))


def _refuse_dtype(node: Apply, info: DeviceInfo) -> NoKernel | None:
    dtype = node.outputs[0].type.dtype
    is_refused = dtype == "bool" or is_complex(dtype)
    return NoKernel(f"no OpenCL kernel for convolutions of {dtype}") if is_refused else None


@register_lift(host_ops.Conv, numba_safe=False, every_dtype=True, refuse=_refuse_dtype)
class GpuConv(_ConvWithEpilogue):
    """Device counterpart of `pytensor_cl.nn.conv.Conv`."""

    kind = ConvForward
    kernels = 1


@register_lift(host_ops.ConvGradInput, numba_safe=False, every_dtype=True, refuse=_refuse_dtype)
class GpuConvGradInput(_ConvWithEpilogue):
    """Device counterpart of `ConvGradInput`."""

    kind = ConvGradInput
    kernels = 0


@register_lift(host_ops.ConvGradWeight, numba_safe=False, every_dtype=True, refuse=_refuse_dtype)
class GpuConvGradWeight(_GpuConv):
    """Device counterpart of `ConvGradWeight`; its last inputs are the extents of the filters."""

    kind = ConvGradWeight
    kernels = 2
