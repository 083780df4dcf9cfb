"""RFFTOp, IRFFTOp and Fourier -> their device Ops."""

from pytensor.graph.basic import Apply
from pytensor.tensor.fft import IRFFTOp, RFFTOp
from pytensor.tensor.fourier import Fourier

from pytensor_cl.ops.fft import GpuFourier, GpuIRFFT, GpuRFFT
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []

_REAL = ("float32", "float64")


@register_lift(RFFTOp)
def lift_rfft(op: RFFTOp, node: Apply, context_name: str, info: DeviceInfo) -> GpuRFFT | NoKernel:
    """RFFTOp(x, s) -> GpuRFFT(x, s); the lengths stay on the host."""
    return _missing(node) or GpuRFFT(op, context_name)


@register_lift(IRFFTOp)
def lift_irfft(op: IRFFTOp, node: Apply, context_name: str, info: DeviceInfo) -> GpuIRFFT | NoKernel:
    """IRFFTOp(x, s) -> GpuIRFFT(x, s); the lengths stay on the host."""
    return _missing(node) or GpuIRFFT(op, context_name)


def _missing(node: Apply) -> NoKernel | None:
    dtype = node.inputs[0].type.dtype
    return None if dtype in _REAL else NoKernel(f"no OpenCL kernel for Fourier transforms of {dtype} yet")


@register_lift(Fourier, every_dtype=True)
def lift_fourier(op: Fourier, node: Apply, context_name: str, info: DeviceInfo) -> GpuFourier | NoKernel:
    """Fourier(x, n, axis) -> GpuFourier(x, n, axis); length and axis stay on the host."""
    if node.inputs[0].type.dtype == "float16":
        return NoKernel("no OpenCL kernel for Fourier transforms of float16 yet")
    return GpuFourier(op, context_name)
