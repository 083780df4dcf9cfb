"""Solutions of Sylvester's equation for block triangular matrices."""

from collections.abc import Sequence

import numpy as np

from pytensor_cl.routines.linalg.base import SIZES, BlockedRoutine, stacked, strides_argument, transposed
from pytensor_cl.routines.linalg.schur import helpers
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout


class TriangularSylvester(BlockedRoutine):
    """X of ``A @ X + X @ B = C`` for batches of matrices A and B that are block triangular, as in Schur forms.

    Inputs are A (..., m, m), B (..., n, n) and C (..., m, n); batch dimensions broadcast. The output has the shape of C
    with all batch dimensions. Real A and B may have blocks of two rows on their diagonals; complex ones are triangular.
    Where an eigenvalue of A is an eigenvalue of -B, up to rounding errors, X is large, as of LAPACK's trsyl.

    The blocks of X follow from small linear systems, one after the other (R. Bartels and G. Stewart, Solution of the
    matrix equation AX + XB = C, 1972).
    """

    template = "linalg/sylvester"

    def _preambles(self) -> tuple[str, ...]:
        return helpers(self)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of X.

        Raises `ValueError`: a or b is not square, or the shapes do not fit together.
        """
        a, b, c = (v.shape for v in inputs)
        for shape in (a, b):
            if shape[-1] != shape[-2]:
                raise ValueError(f"expected square matrix; got shape {shape}")
        if c[-2:] != (a[-1], b[-1]):
            raise ValueError(f"shapes of a {a}, b {b} and c {c} are incompatible")
        return (Layout.contiguous((*np.broadcast_shapes(a[:-2], b[:-2], c[:-2]), *c[-2:])),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the output is C-contiguous."""
        if outputs[0].size:
            arrays = [v for v in inputs if isinstance(v, GpuArray)]
            self.limits.with_fitting_groups(lambda: self._run(outputs[0], *arrays), self._kernels.clear)

    def _run(self, output: GpuArray, a: GpuArray, b: GpuArray, c: GpuArray) -> None:
        *batch, m, n = output.shape
        left, right = (self._rows(self._matrices(v, tuple(batch))) for v in (a, b))
        xt = self.context.empty((*batch, n, m), self.dtype)
        self._copy(transposed(c), xt)
        kernel, grid = self._shared("solve", left.shape[0])
        sizes = SIZES.pack_values(left.shape[0], m, n, 0)
        buffers = left.buffer, right.buffer, xt.buffer
        kernel.launch(self.context.queue, *grid, sizes, strides_argument(left), strides_argument(right), *buffers)
        self._copy(transposed(stacked(xt)), stacked(output))

    def _rows(self, array: GpuArray) -> GpuArray:
        """Return matrices whose rows are contiguous."""
        if array.layout.strides[-1] == 1:
            return array
        target = self.context.empty(array.shape, self.dtype)
        self._copy(array, target)
        return target
