"""Singular values and the eigenvalues of symmetric or Hermitian matrices, by Jacobi rotations."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.linalg.base import SIZES, MatrixFunction, stacked, strides_argument, transposed
from pytensor_cl.routines.linalg.qr import Householder
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout

OF_W, OF_V, ASCENDING, SHIFTED, CONJUGATED, SCALED = 1, 2, 4, 8, 16, 32
"""Flags of the kernel that sorts."""


class _Jacobi(MatrixFunction):
    """A routine that orthogonalises the vectors of matrices."""

    template = "linalg/jacobi"

    def _rotate(self, w: GpuArray, v: GpuArray, shape: tuple[int, int, int], has_v: bool) -> GpuArray:
        """Enqueue the rotations of `columns` vectors of `rows` elements; return their norms (count, columns)."""
        count, rows, columns = shape
        norms = self.context.empty((count, columns), self.real)
        arguments: tuple[Any, ...] = (SIZES.pack_values(*shape, has_v), w.buffer, v.buffer, norms.buffer)
        if self.schedule == "simt":
            kernel = self._kernel("rotate", self.limits.size(SMALL_GROUP_ITEMS))
            size = self._group_grid(count)
        elif count >= self.lanes and rows <= self.block and not self.is_complex:
            kernel = self._kernel("lanes")
            size = self._grid(kernel, ceil_div(count, self.lanes))
            vectors = size[0][0] * columns * (rows + columns)
            arguments = (*arguments, self.context.empty((vectors * self.lanes,), self.dtype).buffer)
        else:
            kernel = self._kernel("rotate")
            size = self._grid(kernel, count)
        kernel.launch(self.context.queue, *size, *arguments)
        return norms

    def _sort(
        self,
        shape: tuple[int, int, int],
        flags: int,
        sources: Sequence[GpuArray | None],
        values: GpuArray,
        targets: Sequence[GpuArray],
    ) -> None:
        """Enqueue the sorted values, and vectors as columns of two targets (count, rows, columns).

        `sources` are the vectors, those of the rotations, the norms and the shifts.
        """
        kernel = self._kernel("sort")
        places = (*map(strides_argument, targets), np.int64(values.layout.offset))
        buffers = [None if v is None else v.buffer for v in (*sources, values, *targets)]
        arguments = (SIZES.pack_values(*shape, flags), *places, *buffers)
        kernel.launch(self.context.queue, *self._grid(kernel, shape[0] * shape[2]), *arguments)


class SymmetricEigen(_Jacobi):
    """Eigenvalues, in ascending order, and eigenvectors of batches of symmetric or Hermitian matrices.

    The input is A (..., n, n), of which one triangle is read. Outputs are the eigenvalues (..., n) and the
    eigenvectors (..., n, n), which are the columns. The signs of the vectors may differ from LAPACK's, and complex ones
    by factors of length one.

    A multiple of the identity makes the matrix positive semidefinite; its singular values are found by rotations.

    `lower`: whether the lower triangle is read; `has_vectors`: whether there is the second output.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        *,
        lower: bool = True,
        has_vectors: bool = True,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, dtype, schedule)
        self.lower = lower
        self.has_vectors = has_vectors
        self.output_dtypes = (self.real.name, self.dtype.name)[: 1 + has_vectors]

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the values and of the vectors.

        Raises `ValueError`: the matrix is not square.
        """
        (a,) = inputs
        if a.shape[-1] != a.shape[-2]:
            raise ValueError(f"expected square matrix; got shape {a.shape}")
        layouts = Layout.contiguous(a.shape[:-1]), Layout.contiguous(a.shape)
        return layouts[: len(self.output_dtypes)]

    def _run(self, outputs: Sequence[GpuArray], a: GpuArray) -> None:
        count, n, _ = shape = a.shape
        w = self.context.empty(shape, self.dtype)
        v = self.context.empty(shape, self.dtype) if self.has_vectors else w
        shifts = self.context.empty((count, 2), self.real)
        kernel = self._kernel("shift")
        sizes = SIZES.pack_values(count, n, n, not self.lower)
        buffers = a.buffer, w.buffer, shifts.buffer
        kernel.launch(self.context.queue, *self._grid(kernel, count), sizes, strides_argument(a), *buffers)
        norms = self._rotate(w, v, (count, n, n), self.has_vectors)
        target = stacked(outputs[1]) if self.has_vectors else w
        flags = ASCENDING + (OF_V if self.has_vectors else 0)
        if self.has_vectors and not self.is_complex:
            kernel = self._kernel("values")
            sizes, grid = SIZES.pack_values(count, n, n, 0), self._grid(kernel, count * n)
            kernel.launch(self.context.queue, *grid, sizes, w.buffer, v.buffer, shifts.buffer, norms.buffer)
            flags += SCALED
        else:
            flags += SHIFTED
        self._sort((count, n, n), flags, (w, v, norms, shifts), outputs[0], (target, target))


class SVD(_Jacobi):
    """``A = U @ diag(s) @ Vt`` for batches of matrices.

    The input is A (..., m, n). Outputs are U (..., m, m), s (..., k) in descending order, and Vt (..., n, n), where
    k = min(m, n); U (..., m, k) and Vt (..., k, n) if the matrices are not full; or s alone. The signs of the vectors
    may differ from LAPACK's, and complex ones by factors of length one.

    Rotations find ``U @ diag(s)`` and V of the matrix or of its transpose, whichever has no more columns than rows. The
    QR factors of the former give U, orthogonal also where singular values are zero.

    `full_matrices`: whether U and Vt are square; `compute_uv`: whether there are U and Vt.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        *,
        full_matrices: bool = True,
        compute_uv: bool = True,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, dtype, schedule)
        self.full_matrices = full_matrices
        self.compute_uv = compute_uv
        name = self.dtype.name
        self.output_dtypes = (name, self.real.name, name) if compute_uv else (self.real.name,)
        self._householder = Householder(context, dtype, schedule)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the factors."""
        *batch, m, n = inputs[0].shape
        k = min(m, n)
        values = Layout.contiguous((*batch, k))
        if not self.compute_uv:
            return (values,)
        left, right = (m, n) if self.full_matrices else (k, k)
        return Layout.contiguous((*batch, m, left)), values, Layout.contiguous((*batch, right, n))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the outputs are C-contiguous."""
        (a,) = (v for v in inputs if isinstance(v, GpuArray))
        batch = a.shape[:-2]
        if not prod(batch):
            return
        if not a.size:
            for q in outputs[::2] if self.compute_uv else ():
                if q.size:
                    self._householder.form(stacked(q), ())
            return
        self.limits.with_fitting_groups(lambda: self._run(outputs, self._matrices(a, batch)), self._kernels.clear)

    def _run(self, outputs: Sequence[GpuArray], a: GpuArray) -> None:
        is_wide = a.shape[1] < a.shape[2]
        tall = transposed(a) if is_wide else a
        count, rows, columns = shape = tall.shape
        w = self.context.empty((count, columns, rows) if self.schedule == "cpu" else shape, self.dtype)
        self._copy(transposed(tall) if self.schedule == "cpu" else tall, w)
        v = self.context.empty((count, columns, columns), self.dtype) if self.compute_uv else w
        norms = self._rotate(w, v, (count, rows, columns), self.compute_uv)
        if not self.compute_uv:
            self._sort((count, rows, columns), 0, (w, v, norms, None), outputs[0], (w, w))
            return
        u, s, vt = outputs
        left, right = stacked(u), transposed(stacked(vt))
        if is_wide:
            left, right = right, left
        scaled = self.context.empty(shape, self.dtype)
        self._sort((count, rows, columns), OF_W + OF_V + CONJUGATED, (w, v, norms, None), s, (scaled, right))
        self._householder.orthonormal(scaled, left)
