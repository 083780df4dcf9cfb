"""Cholesky factors."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.routines.gemm.routine import BatchedGemm
from pytensor_cl.routines.linalg.base import SIZES, BlockedRoutine, rows_of, stacked, strides_argument, transposed
from pytensor_cl.routines.linalg.limits import UPDATE_BLOCKS
from pytensor_cl.routines.linalg.triangular import CholeskySolve, TriangularSolve
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout


class Cholesky(BlockedRoutine):
    """L of ``A = L @ L.T``, or U of ``A = U.T @ U``, for batches of symmetric positive definite matrices.

    Of complex ones, which are Hermitian, the transposes are conjugated, and imaginary parts of the diagonal not read.

    The input is A (..., n, n), of which one triangle is read; the output has its shape. The other triangle of the
    output is zero. A factor is NaN where A is not positive definite.

    The matrix is divided in halves: the factor of the first one, a triangular solve, a symmetric update, the factor of
    the rest (F. Gustavson, Recursion leads to automatic variable blocking for dense linear-algebra algorithms, 1997).

    `lower`: whether L is computed, from the lower triangle; else U, from the upper one.
    """

    template = "linalg/cholesky"

    def __init__(self, context: Context, dtype: str, *, lower: bool = True, schedule: str | None = None) -> None:
        super().__init__(context, dtype, schedule)
        self.lower = lower

    @cached_property
    def _triangular(self) -> TriangularSolve:
        return TriangularSolve(self.context, self.dtype.name, conjugated=True, schedule=self.schedule)

    @cached_property
    def _symmetric(self) -> BatchedGemm:
        return BatchedGemm(self.context, self.real, has_c=True, is_lower=True, schedule=self.schedule)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the factor.

        Raises `numpy.linalg.LinAlgError`: the matrix is not square.
        """
        (a,) = inputs
        if a.shape[-1] != a.shape[-2]:
            raise np.linalg.LinAlgError(f"Input array is expected to be square but has the shape: {a.shape}.")
        return (Layout.contiguous(a.shape),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the output is C-contiguous."""
        (output,) = outputs
        (a,) = (v for v in inputs if isinstance(v, GpuArray))
        if not output.size:
            return
        batch, n = output.shape[:-2], output.shape[-1]
        factor = stacked(output)
        if n <= self.block:
            a = self._matrices(a, batch)
            if not self.lower:
                a, factor = transposed(a), transposed(factor)
            self.limits.with_fitting_groups(lambda: self._factor_block(a, factor, whole=True), self._kernels.clear)
            return
        copies_all = self.schedule == "simt" or self.is_complex
        if copies_all:
            self._copy(a, output)
        else:
            a = self._matrices(a, batch)
        if not self.lower:
            a, factor = transposed(a), transposed(factor)
        if not copies_all:
            self._copy_triangle(a, factor)
        self.limits.with_fitting_groups(lambda: self._factor(factor), self._kernels.clear)
        self._clear_upper(factor)

    def _factor(self, factor: GpuArray) -> None:
        """Enqueue the factor in place: factor (count, n, n) holds A before."""
        n = factor.shape[-1]
        if n <= self.block:
            self._factor_block(factor, factor, whole=False)
            return
        half = self._half(n)
        panel = rows_of(factor, half, n, 0, half)
        first = rows_of(factor, 0, half, 0, half)
        self._factor(first)
        self._triangular.solve(first, transposed(panel))
        self._update(rows_of(factor, half, n, half, n), panel)
        self._factor(rows_of(factor, half, n, half, n))

    def _update(self, target: GpuArray, panel: GpuArray) -> None:
        """Enqueue ``target -= panel @ panel.T`` for the lower triangle; elements above it become arbitrary."""
        n = target.shape[-1]
        if self.schedule == "cpu" or n <= UPDATE_BLOCKS * self.block:
            self._subtract_product(target, panel, transposed(panel), "right", self._symmetric)
            return
        half = self._half(n)
        first, second = rows_of(panel, 0, half), rows_of(panel, half, n)
        self._update(rows_of(target, 0, half, 0, half), first)
        self._subtract_product(rows_of(target, half, n, 0, half), second, transposed(first), "right")
        self._update(rows_of(target, half, n, half, n), second)

    def _factor_block(self, a: GpuArray, factor: GpuArray, whole: bool) -> None:
        """Enqueue the kernel of matrices of at most `block` rows."""
        count, n, _ = factor.shape
        places = strides_argument(a), strides_argument(factor)
        arguments: tuple[Any, ...] = (SIZES.pack_values(count, n, n, whole), *places, a.buffer, factor.buffer)
        if self.schedule == "simt":
            kernel = self._kernel("block" if self.is_complex else "group", self.limits.size(SMALL_GROUP_ITEMS))
            size = self._group_grid(count)
        elif count >= self.lanes and not self.is_complex:
            kernel = self._kernel("lanes")
            size = self._grid(kernel, ceil_div(count, self.lanes))
            vectors = size[0][0] * n * n
            arguments = (*arguments, self.context.empty((vectors * self.lanes,), self.dtype).buffer)
        else:
            kernel = self._kernel("block")
            size = self._grid(kernel, count)
        kernel.launch(self.context.queue, *size, *arguments)

    def _copy_triangle(self, a: GpuArray, factor: GpuArray) -> None:
        """Enqueue the copy of the lower triangle, and zeros above it; schedule cpu."""
        count, n, _ = factor.shape
        kernel = self._kernel("begin")
        places = strides_argument(a), strides_argument(factor)
        arguments = SIZES.pack_values(count, n, n, 1), *places, a.buffer, factor.buffer
        kernel.launch(self.context.queue, *self._grid(kernel, count * n), *arguments)

    def _clear_upper(self, factor: GpuArray) -> None:
        """Enqueue zeros above the diagonal, on schedule cpu where tiles of products lie across it; mark failures."""
        count, n, _ = factor.shape
        tile = self._symmetric.tile
        width = n if self.schedule == "simt" or self.is_complex else min(n, tile.nr + tile.mr)
        kernel = self._kernel("finish")
        arguments = SIZES.pack_values(count, n, width, 1), strides_argument(factor), factor.buffer
        kernel.launch(self.context.queue, *self._grid(kernel, count * n * n), *arguments)


class PositiveSolve(Routine):
    """X of ``A @ X = B`` for batches of symmetric positive definite matrices A, of which one triangle is read.

    Inputs and output are those of `CholeskySolve`, with A in place of its factor. X is NaN where A is not positive
    definite.

    `lower`: whether the lower triangle is read; `is_vector`: whether B is a vector, or a batch of vectors.
    """

    def __init__(
        self, context: Context, dtype: str, *, lower: bool = True, is_vector: bool = False, schedule: str | None = None
    ) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (np.dtype(dtype).name,)
        self._factor = Cholesky(context, dtype, lower=lower, schedule=schedule)
        self._solve = CholeskySolve(context, dtype, lower=lower, is_vector=is_vector, schedule=schedule)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the factor and of the substitutions."""
        return (*self._factor.sources(), *self._solve.sources())

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of X.

        Raises `ValueError`: a is not square, or the shapes do not fit together.
        """
        return self._solve.layout(*inputs)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the output is C-contiguous."""
        a, b = (v for v in inputs if isinstance(v, GpuArray))
        if outputs[0].size:
            self._solve.launch(outputs, (*self._factor(a), b))
