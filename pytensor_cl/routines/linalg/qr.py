"""QR factors by Householder reflections."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.linalg.base import SIZES, BlockedRoutine, rows_of, stacked, strides_argument
from pytensor_cl.routines.linalg.limits import COMPLEX_REFLECTIONS
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout


class BlockReflection(NamedTuple):
    """The product ``I - V @ T @ V.T``, with the conjugate transpose of complex V, of the reflections of a panel.

    `first`: row and column of the whole matrix where the panel begins; `vectors`: v (count, rows, columns); `factor`: t
    (count, columns, columns), upper triangular.
    """

    first: int
    vectors: GpuArray
    factor: GpuArray


class Householder(BlockedRoutine):
    """A routine that needs the QR factors of batches of matrices.

    The columns are divided into panels, which a kernel factors; products of matrices apply the reflections of a panel
    to what is right of it (C. Bischof and C. Van Loan, The WY representation for products of Householder matrices,
    1987).
    """

    template = "linalg/qr"

    @property
    def _width(self) -> int:
        return COMPLEX_REFLECTIONS if self.is_complex else min(32, self.block)

    def _each(self, function: str, units: int, sizes: bytes, arrays: Sequence[GpuArray]) -> None:
        """Enqueue a kernel whose work-items share `units`, and which takes sizes, strides and buffers."""
        kernel = self._kernel(function)
        arguments = (sizes, *map(strides_argument, arrays), *(v.buffer for v in arrays))
        kernel.launch(self.context.queue, *self._grid(kernel, units), *arguments)

    def factor(self, a: GpuArray) -> list[BlockReflection]:
        """Enqueue the factors of a (count, m, n) in place; return the reflections. R is in the upper triangle."""
        count, m, n = a.shape
        reflections = []
        for first in range(0, min(m, n), self._width):
            last = min(first + self._width, n)
            panel = rows_of(a, first, m, first, last)
            width = min(last, m) - first
            taus = self._factor_panel(panel)
            vectors = self.context.empty((count, m - first, width), self.dtype)
            sizes = SIZES.pack_values(*vectors.shape, 0)
            self._each("vectors", vectors.size, sizes, (rows_of(panel, 0, m - first, 0, width), vectors))
            factor = self._new_product(vectors, vectors)
            kernel = self._kernel("factor")
            arguments = SIZES.pack_values(count, width, width, 0), strides_argument(factor), taus.buffer, factor.buffer
            kernel.launch(self.context.queue, *self._grid(kernel, count), *arguments)
            reflections.append(BlockReflection(first, vectors, factor))
            if last < n:
                self._reflect(reflections[-1], rows_of(a, first, m, last, n), is_transposed=True)
        return reflections

    def _factor_panel(self, panel: GpuArray) -> GpuArray:
        count = panel.shape[0]
        taus = self.context.empty((count, self.block), self.dtype)
        arguments = SIZES.pack_values(*panel.shape, 0), strides_argument(panel), panel.buffer, taus.buffer
        if self.schedule == "simt":
            kernel = self._kernel("panel", self.limits.size(SMALL_GROUP_ITEMS))
            size = self._group_grid(count)
        else:
            kernel = self._kernel("panel")
            size = self._grid(kernel, count)
        kernel.launch(self.context.queue, *size, *arguments)
        return taus

    def _reflect(self, reflection: BlockReflection, target: GpuArray, is_transposed: bool) -> None:
        """Enqueue the product of the reflections of a panel, or its transpose, with rows of a matrix, in place."""
        _, vectors, factor = reflection
        inner = self._new_product(vectors, target)
        inner = self._new_product(factor, inner, is_transposed)
        self._subtract_product(target, vectors, inner)

    def _fits_lanes(self, shape: tuple[int, ...], columns: int) -> bool:
        """Return whether matrices (count, m, n) with `columns` columns of Q are factored in the lanes of vectors."""
        has_lanes = self.schedule == "cpu" and not self.is_complex
        return has_lanes and shape[0] >= self.lanes and max(*shape[1:], columns) <= self.block

    def _factor_in_lanes(self, a: GpuArray, q: GpuArray | None, r: GpuArray | None, has_signs: bool = False) -> None:
        """Enqueue the first columns of Q and the first rows of R of A (count, m, n).

        With `has_signs` the columns of Q have the directions of those of A, which are orthogonal.
        """
        count, m, n = a.shape
        columns = 0 if q is None else q.shape[2]
        kernel = self._kernel("lanes")
        size = self._grid(kernel, ceil_div(count, self.lanes))
        workspace = self.context.empty((size[0][0] * m * (n + columns) * self.lanes,), self.dtype)
        places = (strides_argument(a if v is None else v) for v in (a, q, r))
        numbers = np.int64(0 if r is None else r.shape[1]), np.int32(has_signs)
        buffers = (None if v is None else v.buffer for v in (a, q, r, workspace))
        kernel.launch(self.context.queue, *size, SIZES.pack_values(count, m, n, columns), *places, *numbers, *buffers)

    def form(self, q: GpuArray, reflections: Sequence[BlockReflection]) -> None:
        """Enqueue the first columns of Q: q is (count, m, columns)."""
        _, m, columns = q.shape
        self._each("identity", q.size, SIZES.pack_values(*q.shape, 0), (q,))
        for reflection in reversed(reflections):
            self._reflect(reflection, rows_of(q, reflection.first, m, reflection.first, columns), is_transposed=False)

    def orthonormal(self, a: GpuArray, q: GpuArray) -> None:
        """Enqueue q (count, m, columns): orthonormal columns, of which the first n have the directions of those of a.

        a (count, m, n) has orthogonal columns, in descending order of their norms, and is overwritten.
        """
        count, m, n = a.shape

        def run() -> None:
            if self._fits_lanes(a.shape, q.shape[2]):
                self._factor_in_lanes(a, q, None, has_signs=True)
                return
            reflections = self.factor(a)
            self.form(q, reflections)
            first = rows_of(q, 0, m, 0, n)
            self._each("signs", first.size, SIZES.pack_values(count, m, n, 0), (a, first))

        self.limits.with_fitting_groups(run, self._kernels.clear)


class QR(Householder):
    """Q and R of ``A = Q @ R`` for batches of matrices, as of LAPACK's geqrf and orgqr: the diagonal of R is real.

    The input is A (..., m, n). Outputs are Q (..., m, m) and R (..., m, n) with mode ``"full"``, Q (..., m, k) and R
    (..., k, n) with ``"economic"``, where k = min(m, n), or R (..., m, n) alone with ``"r"``.

    `mode`: ``"full"``, ``"economic"`` or ``"r"``.
    """

    def __init__(self, context: Context, dtype: str, mode: str = "full", schedule: str | None = None) -> None:
        super().__init__(context, dtype, schedule)
        self.mode = mode
        self.output_dtypes = (self.dtype.name,) * (1 if mode == "r" else 2)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the factors."""
        *batch, m, n = inputs[0].shape
        k = min(m, n)
        if self.mode == "r":
            return (Layout.contiguous((*batch, m, n)),)
        rank = m if self.mode == "full" else k
        return Layout.contiguous((*batch, m, rank)), Layout.contiguous((*batch, rank, n))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the outputs are C-contiguous."""
        *first, r = outputs
        (a,) = (v for v in inputs if isinstance(v, GpuArray))
        if prod(a.shape[:-2]):
            self.limits.with_fitting_groups(lambda: self._run(first, r, a), self._kernels.clear)

    def _run(self, first: Sequence[GpuArray], r: GpuArray, a: GpuArray) -> None:
        q = stacked(first[0]) if first else None
        if a.size and self._fits_lanes((prod(a.shape[:-2]), *a.shape[-2:]), 0 if q is None else q.shape[2]):
            self._factor_in_lanes(self._matrices(a, a.shape[:-2]), q, stacked(r))
            return
        factored = self.context.empty(a.shape, self.dtype)
        if factored.size:
            self._copy(a, factored)
        reflections = self.factor(stacked(factored))
        if r.size:
            upper = rows_of(stacked(factored), 0, r.shape[-2])
            self._each("upper", r.size, SIZES.pack_values(*upper.shape, 0), (upper, stacked(r)))
        for q in first:
            if q.size:
                self.form(stacked(q), reflections)
