"""Matrix products of complex numbers, made of those of real ones."""

from collections.abc import Sequence

import numpy as np

from pytensor_cl.codegen.dtypes import part
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.base.blas import Scalar
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.routines.gemm.routine import Gemm
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout


def parts(array: GpuArray) -> tuple[GpuArray, GpuArray]:
    """Return views of the real and of the imaginary parts of an array of complex numbers."""
    shape, strides, offset = array.layout
    dtype, steps = np.dtype(part(array.dtype)), tuple(2 * s for s in strides)
    starts = 2 * offset, 2 * offset + 1
    real, imag = (GpuArray(array.context, array.buffer, dtype, Layout(shape, steps, start)) for start in starts)
    return real, imag


class ComplexGemm(Routine):
    """``A @ B`` of complex numbers: four products of real matrices, of which two add to what is there.

    Three would do (Higham 1992), but lose accuracy where real and imaginary parts differ in size.

    `kind`: `Gemm` or `BatchedGemm`; `dtype`: complex64 or complex128, of every operand.
    """

    def __init__(self, context: Context, kind: type[Gemm], dtype: str, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (dtype,)
        real = np.dtype(part(dtype))
        self._product = kind(context, real, schedule=schedule)
        self._update = kind(context, real, has_c=True, schedule=schedule)
        self._one = real.type(1)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the products."""
        return (*self._product.sources(), *self._update.sources())

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the product.

        Raises `ValueError`: the shapes do not fit together.
        """
        return self._product.layout(*inputs)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Scalar]) -> None:
        """Enqueue the products; the output may have any strides, and must not be an input."""
        (out,), (a, b) = outputs, inputs
        assert isinstance(a, GpuArray) and isinstance(b, GpuArray)
        (real, imag), (a_real, a_imag), (b_real, b_imag) = parts(out), parts(a), parts(b)
        self._product.launch((real,), (a_real, b_real))
        self._update.launch((real,), (real, -self._one, a_imag, b_imag, self._one))
        self._product.launch((imag,), (a_real, b_imag))
        self._update.launch((imag,), (imag, self._one, a_imag, b_real, self._one))
