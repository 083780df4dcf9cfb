"""Schur forms, eigenvalues and eigenvectors of general square matrices, by QR iterations."""

from collections.abc import Sequence

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.template import render
from pytensor_cl.routines.base.routine import Checked
from pytensor_cl.routines.linalg.base import (
    SIZES,
    BlockedRoutine,
    MatrixFunction,
    stacked,
    strides_argument,
    transposed,
)
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout


def helpers(routine: BlockedRoutine) -> tuple[str, ...]:
    """Return helper functions of kernels for general square matrices."""
    kind, schedule = ctype(routine.real), routine.schedule
    texts = [render("linalg/complex", ctype=kind, lanes=routine.lanes, schedule=schedule)]
    if schedule == "cpu":
        texts.append(render("linalg/rows", ctype=kind, lanes=routine.lanes))
    if not routine.is_complex:
        texts.append(render("linalg/small_system", ctype=kind))
    return tuple(texts)


class _QRIteration(MatrixFunction):
    """A routine that makes matrices triangular, or block triangular."""

    template = "linalg/schur"

    def _preambles(self) -> tuple[str, ...]:
        return (*helpers(self), render("runtime/error_flag"))

    def _iterate(self, a: GpuArray, is_scaled: bool, is_whole: bool) -> tuple[GpuArray, GpuArray, GpuArray, GpuArray]:
        """Enqueue T and the transpose of Z of a (count, n, n); return them, the notes and the scales of the kernels.

        `is_scaled`: whether rows and columns are scaled first; `is_whole`: whether there is Z, and more of T than its
        diagonal blocks.
        """
        count, n, _ = a.shape
        t, zt = (self.context.empty(a.shape, self.dtype) for _ in range(2))
        notes = self.context.empty((count, n + 3), np.dtype("int32"))
        scales = self.context.empty((count, n + 1), self.real)
        balance = self._kernel("balance")
        sizes = SIZES.pack_values(count, n, n, is_scaled), strides_argument(a)
        buffers = a.buffer, t.buffer, notes.buffer, scales.buffer
        balance.launch(self.context.queue, *self._grid(balance, count), *sizes, *buffers)
        reduce, grid = self._shared("reduce", count)
        reflections = self.context.empty(a.shape, self.dtype)
        spare = self.context.empty((grid[0][0] * n,), self.dtype)
        size = SIZES.pack_values(count, n, n, is_whole)
        buffers = notes.buffer, t.buffer, reflections.buffer, spare.buffer
        reduce.launch(self.context.queue, *grid, size, *buffers)
        if is_whole:
            form = self._kernel("form")
            buffers = notes.buffer, scales.buffer, reflections.buffer, zt.buffer
            form.launch(self.context.queue, *self._grid(form, count * n), size, *buffers)
        iterate, grid = self._shared("iterate", count)
        iterate.launch(self.context.queue, *grid, size, notes.buffer, t.buffer, zt.buffer)
        return t, zt, notes, scales


class Schur(_QRIteration):
    """T and Z of the Schur forms ``A = Z @ T @ Z.conj().T`` of batches of square matrices.

    The input is A (..., n, n). Outputs are T (..., n, n), triangular, and Z (..., n, n), unitary. Real matrices have a
    real T with blocks of two rows, whose diagonal elements are equal, for pairs of complex eigenvalues. Matrices with
    elements that are not finite, and those for which the iteration does not converge, have NaN in both, as of PyTensor.

    The matrix is reduced to Hessenberg form by Householder reflections; QR steps with implicit shifts follow (Golub and
    Van Loan, Matrix Computations, 7.4 and 7.5).
    """

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        super().__init__(context, dtype, schedule)
        self.output_dtypes = (self.dtype.name,) * 2

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of T and Z.

        Raises `ValueError`: the matrix is not square.
        """
        (a,) = inputs
        if a.shape[-1] != a.shape[-2]:
            raise ValueError(f"expected square matrix; got shape {a.shape}")
        return (Layout.contiguous(a.shape),) * 2

    def _run(self, outputs: Sequence[GpuArray], a: GpuArray) -> None:
        count, n, _ = a.shape
        t, zt, notes, scales = self._iterate(a, is_scaled=False, is_whole=True)
        targets = [stacked(v) for v in outputs]
        finish = self._kernel("finish")
        arguments = SIZES.pack_values(count, n, n, 0), *map(strides_argument, targets)
        buffers = (v.buffer for v in (notes, scales, t, zt, *targets))
        finish.launch(self.context.queue, *self._grid(finish, count * n), *arguments, *buffers)


class Eigen(_QRIteration, Checked):
    """Eigenvalues and eigenvectors of batches of square matrices, as of `numpy.linalg.eig`.

    The input is A (..., n, n). Outputs are the eigenvalues (..., n), in no order, and the eigenvectors (..., n, n),
    which are the columns, have length one, and may differ from LAPACK's by factors of length one. Both are complex.
    Elements that are not finite are an error, and so is an iteration that does not converge.

    `dtype`: that of the computation: real matrices have conjugate pairs of complex eigenvalues, exactly; `has_vectors`:
    whether there is the second output.
    """

    def __init__(self, context: Context, dtype: str, *, has_vectors: bool = True, schedule: str | None = None) -> None:
        super().__init__(context, dtype, schedule)
        self.has_vectors = has_vectors
        self.output_dtypes = (np.result_type(self.dtype, "complex64").name,) * (1 + has_vectors)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the values and of the vectors.

        Raises `numpy.linalg.LinAlgError`: the matrix is not square.
        """
        (a,) = inputs
        if a.shape[-1] != a.shape[-2]:
            raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
        return (Layout.contiguous(a.shape[:-1]), Layout.contiguous(a.shape))[: 1 + self.has_vectors]

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's error."""
        if finding.detail == 1:
            return np.linalg.LinAlgError("Array must not contain infs or NaNs")
        return np.linalg.LinAlgError("Eigenvalues did not converge")

    def _run(self, outputs: Sequence[GpuArray], a: GpuArray) -> None:
        count, n, _ = a.shape
        t, zt, notes, scales = self._iterate(a, is_scaled=True, is_whole=self.has_vectors)
        values, target = outputs[0], stacked(outputs[-1]) if self.has_vectors else t
        y = self._vectors(t, zt, notes) if self.has_vectors else t
        kernel = self._kernel("normalise")
        sizes = SIZES.pack_values(count, n, n, self.has_vectors)
        arguments = sizes, strides_argument(target), np.int64(values.layout.offset)
        buffers = (v.buffer for v in (notes, scales, t, y, values, target, self.error_flag))
        kernel.launch(self.context.queue, *self._grid(kernel, count * n), *arguments, *buffers, self.number)

    def _vectors(self, t: GpuArray, zt: GpuArray, notes: GpuArray) -> GpuArray:
        """Enqueue the eigenvectors, of any length; vectors are rows on schedule cpu, else columns."""
        count, n, _ = t.shape
        length = n if self.is_complex else 2 * n  # real and imaginary parts apart
        x = self.context.empty((count, length, n) if self.schedule == "cpu" else (count, n, length), self.dtype)
        kernel = self._kernel("vectors")
        buffers = notes.buffer, t.buffer, x.buffer
        kernel.launch(self.context.queue, *self._grid(kernel, count * n), SIZES.pack_values(*t.shape, 0), *buffers)
        left, right = (x, zt) if self.schedule == "cpu" else (transposed(zt), x)
        return self._new_product(left, right, is_transposed=False)
