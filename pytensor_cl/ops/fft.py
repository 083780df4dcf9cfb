"""Fourier transforms."""

from typing import Any, NoReturn

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.routines.fft.routine import FFT, IRFFT, RFFT
from pytensor_cl.runtime.context import Context

__all__ = ["GpuFourier", "GpuIRFFT", "GpuRFFT"]


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


class GpuRFFT(_GpuRealTransform):
    """Device counterpart of `RFFTOp`."""

    kernel = RFFT


class GpuIRFFT(_GpuRealTransform):
    """Device counterpart of `IRFFTOp`."""

    kernel = IRFFT


class GpuFourier(GpuOp):
    """Device counterpart of `Fourier`: computes in double precision if the output's dtype requires it."""

    operand_placements = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels, with a cast where the input is not double precision."""
        source = node.inputs[0].type
        return FFT(context, "float64", source.ndim, source.dtype)
