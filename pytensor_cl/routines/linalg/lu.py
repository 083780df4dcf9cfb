"""LU factors with partial pivoting, and their uses: solutions, determinants, inverses."""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from pytensor_cl.codegen.template import render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.routine import Checked
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.routines.linalg.base import PIVOTS, SIZES, BlockedRoutine, rows_of, stacked, strides_argument
from pytensor_cl.routines.linalg.limits import COMPLEX_PANEL_COLUMNS, MAX_LANE_ROWS, PANEL_COLUMNS
from pytensor_cl.routines.linalg.triangular import TriangularSolve
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout


class _LURoutine(BlockedRoutine):
    """A routine that factors its first input, an array (..., n, n), into an array of its own."""

    template = "linalg/lu"

    @cached_property
    def _lower(self) -> TriangularSolve:
        return TriangularSolve(self.context, self.dtype.name, unit_diagonal=True, schedule=self.schedule)

    @cached_property
    def _upper(self) -> TriangularSolve:
        return TriangularSolve(self.context, self.dtype.name, lower=False, schedule=self.schedule)

    @property
    def _panel_columns(self) -> int:
        return (COMPLEX_PANEL_COLUMNS if self.is_complex else PANEL_COLUMNS)[self.schedule]

    def _preambles(self) -> tuple[str, ...]:
        return (render("runtime/error_flag"),)

    @staticmethod
    def _check_square(a: Layout) -> None:
        if a.shape[-1] != a.shape[-2]:
            raise np.linalg.LinAlgError(f"Last 2 dimensions of the array must be square; its shape is {a.shape}")

    def _factored(self, a: GpuArray, batch: tuple[int, ...]) -> tuple[GpuArray, GpuArray]:
        """Return the factors (count, n, n) of A with these batch dimensions, and their pivots (count, n)."""
        n, count = a.shape[-1], prod(batch)
        lu = stacked(self.context.empty((*batch, n, n), self.dtype))
        pivots = self.context.empty((count, n), np.dtype("int32"))
        self._factor_copy(a, lu, pivots, batch)
        return lu, pivots

    def _factor_copy(self, a: GpuArray, lu: GpuArray, pivots: GpuArray, batch: tuple[int, ...]) -> None:
        """Enqueue the factors (count, m, n) of A with these batch dimensions, and their pivots.

        Of the pivots (count, m or min(m, n)) the first min(m, n) are written.
        """
        count, m, n = lu.shape
        in_lanes = self.schedule == "cpu" and not self.is_complex and count >= self.lanes
        if not in_lanes or n > MAX_LANE_ROWS or m != n:
            self._copy(a, lu.with_layout(Layout.contiguous((*batch, m, n))._replace(offset=lu.layout.offset)))
            self._factor_rectangle(lu, pivots)
            return
        a = self._matrices(a, batch)
        kernel = self._kernel("lanes")
        size = self._grid(kernel, ceil_div(count, self.lanes))
        workspace = self.context.empty((size[0][0] * n * (n + 1) * self.lanes,), self.dtype)
        places = strides_argument(a), strides_argument(lu), self._pivots_argument(pivots, 0)
        buffers = a.buffer, lu.buffer, pivots.buffer, workspace.buffer
        kernel.launch(self.context.queue, *size, SIZES.pack_values(count, n, n, 0), *places, *buffers)

    def _factor_rectangle(self, lu: GpuArray, pivots: GpuArray) -> None:
        """Enqueue the factors (count, m, n) in place: of the first m columns, and then the others of U."""
        m, n = lu.shape[1:]
        steps = min(m, n)
        left = rows_of(lu, 0, m, 0, steps)
        self._factor(left, pivots, 0)
        if n > steps:
            right = rows_of(lu, 0, m, steps, n)
            self._swap(right, pivots, 0, steps)
            self._lower.solve(left, right)

    def _pivots_argument(self, pivots: GpuArray, first: int) -> bytes:
        return PIVOTS.pack_values(pivots.layout.offset + first, pivots.shape[-1], first)

    def _factor(self, lu: GpuArray, pivots: GpuArray, first: int) -> None:
        """Enqueue the factors of columns (count, m, n) in place; their row 0 is row `first` of the whole matrix.

        There are no more columns than rows.
        """
        m, n = lu.shape[1:]
        width = self.block if m <= self.block else self._panel_columns
        if n <= width:
            self._factor_panel(lu, pivots, first)
            return
        half = ceil_div(n, 2 * width) * width
        left, right = rows_of(lu, 0, m, 0, half), rows_of(lu, 0, m, half, n)
        self._factor(left, pivots, first)
        self._swap(right, pivots, first, half)
        self._lower.solve(rows_of(left, 0, half), rows_of(right, 0, half))
        self._subtract_product(rows_of(right, half, m), rows_of(left, half, m), rows_of(right, 0, half))
        self._factor(rows_of(right, half, m), pivots, first + half)
        self._swap(rows_of(left, half, m), pivots, first + half, n - half)

    def _factor_panel(self, lu: GpuArray, pivots: GpuArray, first: int) -> None:
        count, m, n = lu.shape
        arguments = SIZES.pack_values(count, m, n, 0), strides_argument(lu), self._pivots_argument(pivots, first)
        workspace: tuple[Any, ...] = ()
        if self.schedule == "simt":
            kernel = self._kernel("panel", self.limits.size(SMALL_GROUP_ITEMS))
            size = self._group_grid(count)
        else:
            kernel = self._kernel("panel")
            size = self._grid(kernel, count)
        if self.schedule == "cpu" and not self.is_complex:
            vectors = size[0][0] * n * (ceil_div(m, self.lanes) | 1)
            workspace = (self.context.empty((vectors * self.lanes,), self.dtype).buffer,)
        kernel.launch(self.context.queue, *size, *arguments, lu.buffer, pivots.buffer, *workspace)

    def _swap(self, target: GpuArray, pivots: GpuArray, first: int, steps: int) -> None:
        """Enqueue the interchanges of `steps` pivots in an array (count, rows, columns) whose row 0 is row `first`."""
        count, rows, columns = target.shape
        kernel = self._kernel("swap")
        sizes = SIZES.pack_values(count, rows, columns, steps)
        arguments = sizes, strides_argument(target), self._pivots_argument(pivots, first)
        size = self._grid(kernel, columns)
        kernel.launch(self.context.queue, *size, *arguments, target.buffer, pivots.buffer)

    def _substitute(self, lu: GpuArray, pivots: GpuArray, x: GpuArray, marks_singular: bool = False) -> None:
        """Enqueue the solution in place: x (count, n, m) holds B before and X after; see `TriangularSolve.solve`."""
        self._swap(x, pivots, 0, x.shape[1])
        self._lower.solve(lu, x)
        self._upper.solve(lu, x, marks_singular)

    def _mark_singular(self, lu: GpuArray, x: GpuArray, error_flag: Any = None, number: int = 0) -> None:
        """Enqueue NaN for the arrays of x whose factors have a zero pivot; report them if there is a number."""
        count, n, m = x.shape
        kernel = self._kernel("singular")
        arguments = (
            SIZES.pack_values(count, n, m, min(lu.shape[1:])),
            strides_argument(lu),
            strides_argument(x),
            lu.buffer,
            x.buffer,
        )
        size = self._grid(kernel, count)
        kernel.launch(self.context.queue, *size, *arguments, error_flag, np.int32(number))


class LUFactor(_LURoutine):
    """LU and pivots of ``P @ A = L @ U``, as of LAPACK's getrf, for batches of matrices.

    The input is A (..., m, n). The outputs are (..., m, n), with U in the upper triangle and L, whose diagonal is one,
    below it, and (..., min(m, n)) of int32: row k was interchanged with that row.

    The columns are divided in halves down to panels (S. Toledo, Locality of reference in LU decomposition with partial
    pivoting, 1997).

    `marks_singular`: whether the factors are NaN where a pivot is zero; `pivots_of_rows`: whether there are m pivots;
    row k stays where it is if k is not less than n.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        schedule: str | None = None,
        *,
        marks_singular: bool = True,
        pivots_of_rows: bool = False,
    ) -> None:
        super().__init__(context, dtype, schedule)
        self.output_dtypes = (self.dtype.name, "int32")
        self.marks_singular = marks_singular
        self.pivots_of_rows = pivots_of_rows

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the factors and of the pivots."""
        (a,) = inputs
        *batch, m, n = a.shape
        return Layout.contiguous(a.shape), Layout.contiguous((*batch, m if self.pivots_of_rows else min(m, n)))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the outputs are C-contiguous."""
        target, pivots = outputs
        (a,) = (v for v in inputs if isinstance(v, GpuArray))
        lu = stacked(target)
        count, _, n = lu.shape
        length = pivots.shape[-1]
        rows = pivots.with_layout(Layout((count, length), (length, 1), pivots.layout.offset))

        def run() -> None:
            if lu.size:
                self._factor_copy(a, lu, rows, target.shape[:-2])
            if lu.size and self.marks_singular:
                self._mark_singular(lu, lu)
            if rows.size and length > n:
                self._keep_rows(rows, n)

        if lu.size or rows.size:
            self.limits.with_fitting_groups(run, self._kernels.clear)

    def _keep_rows(self, pivots: GpuArray, first: int) -> None:
        """Enqueue the pivots of rows from `first` on, which stay where they are."""
        count, length = pivots.shape
        kernel = self._kernel("keep")
        sizes = SIZES.pack_values(count, length, first, 0)
        arguments = sizes, np.int64(pivots.layout.offset), pivots.buffer
        kernel.launch(self.context.queue, *self._grid(kernel, count), *arguments)


class Solve(_LURoutine):
    """X of ``A @ X = B`` for batches of matrices A.

    Inputs are A (..., n, n) and B (..., n, m), or (..., n) of vectors; batch dimensions broadcast. The output has the
    shape of B with all batch dimensions. Where A is singular, its X is NaN.

    `is_vector`: whether B is a vector, or a batch of vectors.
    """

    def __init__(self, context: Context, dtype: str, *, is_vector: bool = False, schedule: str | None = None) -> None:
        super().__init__(context, dtype, schedule)
        self._shapes = TriangularSolve(context, dtype, is_vector=is_vector, schedule=schedule)
        self.is_vector = is_vector

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of X.

        Raises `ValueError`: a is not square, or the shapes do not fit together.
        """
        return self._shapes.layout(*inputs)

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

        def run() -> None:
            lu, pivots = self._factored(a, output.shape[:-2])
            self._copy(b, output)
            x = stacked(output)
            is_block = lu.shape[-1] <= self.block  # then the substitution marks them
            self._substitute(lu, pivots, x, marks_singular=is_block)
            if not is_block:
                self._mark_singular(lu, x)

        self.limits.with_fitting_groups(run, self._kernels.clear)


class Determinant(_LURoutine):
    """Determinants of batches of square matrices, or their signs and the logarithms of their absolute values.

    The input is A (..., n, n); each output is (...).

    `in_parts`: whether sign and logarithm are the outputs, in place of the determinant.
    """

    def __init__(self, context: Context, dtype: str, *, in_parts: bool = False, schedule: str | None = None) -> None:
        super().__init__(context, dtype, schedule)
        self.in_parts = in_parts
        self.output_dtypes = (self.dtype.name, self.real.name)[: 2 if in_parts else 1]

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the outputs.

        Raises `numpy.linalg.LinAlgError`: the matrix is not square.
        """
        (a,) = inputs
        self._check_square(a)
        return (Layout.contiguous(a.shape[:-2]),) * len(self.output_dtypes)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the outputs are C-contiguous."""
        (a,) = (v for v in inputs if isinstance(v, GpuArray))
        if not outputs[0].size:
            return

        def run() -> None:
            lu, pivots = self._factored(a, a.shape[:-2])
            count, n, _ = lu.shape
            kernel = self._kernel("determinant")
            arguments = SIZES.pack_values(count, n, n, not self.in_parts), strides_argument(lu)
            places = [v.with_layout(Layout((count,), (1,), v.layout.offset)) for v in outputs]
            buffers = [v.buffer for v in places]
            kernel.launch(
                self.context.queue,
                *self._grid(kernel, count),
                *arguments,
                self._pivots_argument(pivots, 0),
                lu.buffer,
                pivots.buffer,
                buffers[0],
                buffers[-1],
                *(np.int64(v.layout.offset) for v in (places[0], places[-1])),
            )

        self.limits.with_fitting_groups(run, self._kernels.clear)


class Inverse(_LURoutine, Checked):
    """Inverses of batches of square matrices; the input and the output are (..., n, n).

    A singular matrix is an error, as of `numpy.linalg.inv`.
    """

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the inverses.

        Raises `numpy.linalg.LinAlgError`: the matrix is not square.
        """
        (a,) = inputs
        self._check_square(a)
        return (Layout.contiguous(a.shape),)

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's error."""
        return np.linalg.LinAlgError("Singular matrix")

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the output is C-contiguous."""
        (output,) = outputs
        (a,) = (v for v in inputs if isinstance(v, GpuArray))
        if not output.size:
            return

        def run() -> None:
            lu, pivots = self._factored(a, output.shape[:-2])
            x = stacked(output)
            kernel = self._kernel("identity")
            sizes = SIZES.pack_values(*x.shape, 0)
            kernel.launch(self.context.queue, *self._grid(kernel, x.size), sizes, strides_argument(x), x.buffer)
            self._substitute(lu, pivots, x)
            self._mark_singular(lu, x, self.error_flag.buffer, int(self.number))

        self.limits.with_fitting_groups(run, self._kernels.clear)


class Permutation(_LURoutine, Checked):
    """Permutations of rows from the interchanges of LU factors.

    The input is (..., n) of int32, as `LUFactor` returns it; the output (..., n) of int64.

    `inverse`: whether ``P @ A`` is ``A[p]`` for the output p; else the output is the inverse of that permutation.
    """

    def __init__(self, context: Context, *, inverse: bool = True, schedule: str | None = None) -> None:
        super().__init__(context, "float32", schedule)
        self.inverse = inverse
        self.output_dtypes = ("int64",)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the permutations."""
        (pivots,) = inputs
        return (Layout.contiguous(pivots.shape),)

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's error for an index."""
        return IndexError(f"index {finding.value} is out of bounds for axis 0 with size {finding.limit}")

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel; the output is C-contiguous."""
        (output,) = outputs
        (pivots,) = (contiguous(v) for v in inputs if isinstance(v, GpuArray))
        if not output.size:
            return
        n = pivots.shape[-1]
        count = output.size // n
        kernel = self._kernel("permutation")
        sizes = SIZES.pack_values(count, n, 1, self.inverse)
        place = strides_argument(pivots.with_layout(Layout((count, n, 1), (n, 1, 1), pivots.layout.offset)))
        order = self.context.empty((count, n), np.dtype("int64"))
        buffers = pivots.buffer, output.buffer, order.buffer, self.error_flag.buffer
        offset = np.int64(output.layout.offset)
        kernel.launch(self.context.queue, *self._grid(kernel, count), sizes, place, offset, *buffers, self.number)
