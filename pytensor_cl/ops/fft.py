"""Fourier transforms."""

from typing import Any, NoReturn

from pytensor.graph.basic import Apply
from pytensor.tensor.fft import IRFFTOp, RFFTOp
from pytensor.tensor.fourier import Fourier

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.fft.routine import FFT, IRFFT, RFFT
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


class _GpuRealTransform(GpuOp):
    operand_placements = (DEVICE, HOST)  # the lengths determine the output's shape
    kernel: type[RFFT] | type[IRFFT]

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels of the input's dtype."""
        source = node.inputs[0].type
        return self.kernel(context, source.dtype, source.ndim)

    def infer_shape(self, node: Apply, shapes: Any) -> NoReturn:
        """The host Op has no shape inference."""
        raise NotImplementedError


def _refuse_dtype(node: Apply, info: DeviceInfo) -> NoKernel | None:
    dtype = node.inputs[0].type.dtype
    is_real = dtype in ("float32", "float64")
    return None if is_real else NoKernel(f"no OpenCL kernel for Fourier transforms of {dtype} yet")


@register_lift(RFFTOp, numba_safe=False, refuse=_refuse_dtype)
class GpuRFFT(_GpuRealTransform):
    """Device counterpart of `RFFTOp`."""

    kernel = RFFT


@register_lift(IRFFTOp, numba_safe=False, refuse=_refuse_dtype)
class GpuIRFFT(_GpuRealTransform):
    """Device counterpart of `IRFFTOp`."""

    kernel = IRFFT


def _refuse_half(node: Apply, info: DeviceInfo) -> NoKernel | None:
    is_half = node.inputs[0].type.dtype == "float16"
    return NoKernel("no OpenCL kernel for Fourier transforms of float16 yet") if is_half else None


@register_lift(Fourier, numba_safe=False, every_dtype=True, refuse=_refuse_half)
class GpuFourier(GpuOp):
    """Device counterpart of `Fourier`: computes in double precision if the output's dtype requires it."""

    operand_placements = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels, with a cast where the input is not double precision."""
        source = node.inputs[0].type
        return FFT(context, "float64", source.ndim, source.dtype)
