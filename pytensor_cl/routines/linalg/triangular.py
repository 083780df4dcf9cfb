"""Solutions of triangular systems."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.linalg.base import SIZES, BlockedRoutine, rows_of, stacked, strides_argument, transposed
from pytensor_cl.routines.linalg.limits import COMPLEX_TILE_COLUMNS, FEW_COLUMNS
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout


class TriangularSolve(BlockedRoutine):
    """X of ``A @ X = B`` for batches of triangular matrices A.

    Inputs are A (..., n, n) and B (..., n, m), or (..., n) of vectors; batch dimensions broadcast. The output has the
    shape of B with all batch dimensions. Where A has a zero on its diagonal, its X is NaN, as of LAPACK's trtrs.

    The matrix is divided in halves down to blocks, which a kernel solves by substitution; matrix products update what
    is left of B (Golub and Van Loan, Matrix Computations, 3.1).

    `lower`: whether A is lower triangular; the other triangle is not read; `unit_diagonal`: whether the diagonal is
    taken for one, and not read; `conjugated`: whether the conjugate of A, if it is complex, takes its place;
    `is_vector`: whether B is a vector, or a batch of vectors.
    """

    template = "linalg/triangular"

    def __init__(
        self,
        context: Context,
        dtype: str,
        *,
        lower: bool = True,
        unit_diagonal: bool = False,
        conjugated: bool = False,
        is_vector: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, dtype, schedule)
        self.lower = lower
        self.unit_diagonal = unit_diagonal
        self.conjugated = conjugated and self.is_complex
        self.is_vector = is_vector

    def _parameters(self) -> dict[str, Any]:
        return {"unit": self.unit_diagonal, **({"width": COMPLEX_TILE_COLUMNS} if self.is_complex else {})}

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of X.

        Raises `ValueError`: a is not square, or the shapes do not fit together.
        """
        a, b = inputs
        core = 1 if self.is_vector else 2
        if a.shape[-1] != a.shape[-2]:
            raise ValueError(f"expected square matrix; got shape {a.shape}")
        if a.shape[-1] != b.shape[-core]:
            raise ValueError(f"shapes of a {a.shape} and b {b.shape} are incompatible")
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-core])
        return (Layout.contiguous((*batch, *b.shape[-core:])),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the output is C-contiguous."""
        (output,) = outputs
        a, b = (v for v in inputs if isinstance(v, GpuArray))
        if not output.size:
            return
        if self.is_vector:
            b, output = (
                v.with_layout(Layout((*v.shape, 1), (*v.layout.strides, 1), v.layout.offset)) for v in (b, output)
            )
        batch = output.shape[:-2]
        n = output.shape[-2]
        a = self._matrices(a, batch)
        x = stacked(output)
        if n <= self.block:
            a, b, x = self._as_columns(a, self._matrices(b, batch), x)
            self.limits.with_fitting_groups(lambda: self._solve_block(a, b, x, whole=True), self._kernels.clear)
            return
        self._copy(b, output)
        a, _, x = self._as_columns(a, x, x)
        self.limits.with_fitting_groups(lambda: self.solve(a, x), self._kernels.clear)
        if not self.unit_diagonal:
            self._mark_singular(a, x)

    def solve(self, a: GpuArray, x: GpuArray, marks_singular: bool = False) -> None:
        """Enqueue the solution in place: x (count, n, m) holds B before and X after; a is (count, n, n).

        With `marks_singular` X is NaN where A has a zero on its diagonal, if A has no more rows than a block.
        """
        n = a.shape[-1]
        if n <= self.block:
            self._solve_block(a, x, x, whole=marks_singular)
            return
        half = self._half(n)
        first, second = (0, half), (half, n)
        if not self.lower:
            first, second = second, first
        conjugated = "left" if self.conjugated else ""
        self.solve(rows_of(a, *first, *first), rows_of(x, *first))
        self._subtract_product(rows_of(x, *second), rows_of(a, *second, *first), rows_of(x, *first), conjugated)
        self.solve(rows_of(a, *second, *second), rows_of(x, *second))

    @staticmethod
    def _as_columns(a: GpuArray, b: GpuArray, x: GpuArray) -> tuple[GpuArray, GpuArray, GpuArray]:
        """Return the operands of one matrix with many columns, if all vectors of a batch have the same matrix."""
        count, n, m = x.shape
        if count == 1 or m != 1 or a.layout.strides[0] != 0:
            return a, b, x

        def columns(v: GpuArray) -> GpuArray:
            batch, row, _ = v.layout.strides
            return v.with_layout(Layout((1, n, count), (0, row, batch), v.layout.offset))

        return a.with_layout(Layout((1, n, n), a.layout.strides, a.layout.offset)), columns(b), columns(x)

    def _solve_block(self, a: GpuArray, b: GpuArray, x: GpuArray, whole: bool) -> None:
        """Enqueue the kernel of matrices of at most `block` rows."""
        count, n, m = x.shape
        sizes = SIZES.pack_values(count, n, m, whole + 2 * self.conjugated)
        places = (strides_argument(a, not self.lower), *(self._rows_argument(v) for v in (b, x)))
        arguments = (sizes, *places, a.buffer, b.buffer, x.buffer)
        if self.is_complex:
            units = count * ceil_div(m, COMPLEX_TILE_COLUMNS)
            is_simt = self.schedule == "simt"
            kernel = self._kernel("columns", self.limits.size(SMALL_GROUP_ITEMS) if is_simt else 1)
            size = self._group_grid(units) if is_simt else self._grid(kernel, units)
        elif self.schedule == "simt":
            group, is_narrow = self.limits.size(SMALL_GROUP_ITEMS), count > 1 and m < FEW_COLUMNS
            kernel = self._kernel("rows" if is_narrow else "group", group)
            size = self._group_grid(count if is_narrow else count * ceil_div(m, group))
        elif count >= self.lanes and m < self.lanes:
            kernel = self._kernel("lanes")
            size = self._grid(kernel, ceil_div(count, self.lanes))
            vectors = size[0][0] * (n * (n + 1) // 2 + n)
            arguments = (*arguments, self.context.empty((vectors * self.lanes,), self.dtype).buffer)
        else:
            kernel = self._kernel("columns")
            size = self._grid(kernel, count * ceil_div(m, self.lanes))
        kernel.launch(self.context.queue, *size, *arguments)

    def _rows_argument(self, array: GpuArray) -> bytes:
        """Return the strides of B or X, whose rows are counted from the end for upper triangular matrices."""
        if not self.lower:
            _, row, _ = array.layout.strides
            begin = array.layout.offset + (array.shape[1] - 1) * row
            batch, row, column = array.layout.strides
            array = array.with_layout(Layout(array.shape, (batch, -row, column), begin))
        return strides_argument(array)

    def _mark_singular(self, a: GpuArray, x: GpuArray) -> None:
        count, n, m = x.shape
        kernel = self._kernel("finish")
        arguments = SIZES.pack_values(count, n, m, 1), strides_argument(a), strides_argument(x), a.buffer, x.buffer
        kernel.launch(self.context.queue, *self._grid(kernel, count), *arguments)


class CholeskySolve(TriangularSolve):
    """X of ``A @ X = B``, where the first input is the Cholesky factor of A; see `TriangularSolve` for the rest.

    `lower`: whether ``A = C @ C.T``; else ``A = C.T @ C``. Complex factors are conjugated where they are transposed.
    """

    def __init__(
        self, context: Context, dtype: str, *, lower: bool, is_vector: bool = False, schedule: str | None = None
    ) -> None:
        super().__init__(context, dtype, lower=lower, is_vector=is_vector, schedule=schedule)
        self._forward, self._backward = (
            TriangularSolve(
                context,
                dtype,
                lower=is_lower,
                conjugated=is_lower != lower,
                is_vector=is_vector,
                schedule=schedule,
            )
            for is_lower in (True, False)
        )

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the output is C-contiguous."""
        factor, b = (v for v in inputs if isinstance(v, GpuArray))
        other = transposed(factor)
        first, second = (factor, other) if self.lower else (other, factor)
        self._forward.launch(outputs, (first, b))
        self._backward.launch(outputs, (second, outputs[0]))
