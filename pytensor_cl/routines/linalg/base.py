"""Base of the routines of linear algebra: batches of matrices, kernels of small blocks, products between them."""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import ctype, is_complex, part
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.blas import lanes_of
from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT, SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import Sizes, ndrange
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.routines.gemm.complex import parts
from pytensor_cl.routines.gemm.routine import BatchedGemm
from pytensor_cl.routines.linalg.limits import BLOCK_ROWS, COMPLEX_BLOCK_ROWS
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

SIZES = Struct(("long", "count rows columns whole"), name="linalg_sizes")
"""Number of matrices, rows and columns of each; `whole`: whether a kernel also writes what it does not compute."""
STRIDES = Struct(("long", "offset batch row column"), name="linalg_strides")
"""Element (i, j) of matrix b of a batch is at ``offset + b * batch + i * row + j * column``."""
PIVOTS = Struct(("long", "offset batch base"), name="linalg_pivots")
"""Pivot k of matrix b is at ``offset + b * batch + k``; `base` is the row of the whole matrix that is row 0."""


def strides_argument(array: GpuArray, is_reversed: bool = False) -> bytes:
    """Return the struct `STRIDES` of an array (count, rows, columns); rows and columns may be counted from the end."""
    batch, row, column = array.layout.strides
    offset = array.layout.offset
    if is_reversed:
        _, rows, columns = array.shape
        offset += (rows - 1) * row + (columns - 1) * column
        row, column = -row, -column
    return STRIDES.pack_values(offset, batch, row, column)


def transposed(array: GpuArray) -> GpuArray:
    """Return a view with the last two dimensions swapped."""
    *batch, rows, columns = array.shape
    *steps, row, column = array.layout.strides
    return array.with_layout(Layout((*batch, columns, rows), (*steps, column, row), array.layout.offset))


def stacked(array: GpuArray) -> GpuArray:
    """Return a view (count, rows, columns) of a C-contiguous array (..., rows, columns)."""
    *batch, rows, columns = array.shape
    return array.with_layout(Layout((prod(batch), rows, columns), (rows * columns, columns, 1), array.layout.offset))


def rows_of(array: GpuArray, begin: int, end: int, first: int = 0, last: int | None = None) -> GpuArray:
    """Return a view of rows ``begin:end`` and of columns ``first:last`` of each matrix (count, rows, columns)."""
    return array.with_layout(array.layout.subscript((slice(None), slice(begin, end), slice(first, last))))


class BlockedRoutine(Routine):
    """A routine that divides matrices into blocks: small ones have a kernel, products of matrices join them.

    `dtype`: dtype of the outputs: float32, float64, complex64 or complex128. Inputs of other dtypes are cast.
    """

    template = ""
    """The template of kernels for small matrices; for complex ones ``complex_`` is put before the name."""

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.dtype = np.dtype(dtype)
        self.output_dtypes = (self.dtype.name,)
        self.is_complex = is_complex(self.dtype)
        self.real = np.dtype(part(self.dtype))
        self.block = (COMPLEX_BLOCK_ROWS if self.is_complex else BLOCK_ROWS)[self.schedule]
        self.lanes = lanes_of(context, self.real) if self.schedule == "cpu" else 1
        self._kernels: dict[str, Kernel] = {}
        self._copies: dict[tuple[str, int], Copy] = {}
        self._one = self.real.type(1)

    def _parameters(self) -> dict[str, Any]:
        """Return the arguments of the template that only this routine has."""
        return {}

    def _preambles(self) -> tuple[str, ...]:
        """Return helper functions of the template that only this routine has."""
        return ()

    def _source(self) -> KernelSource:
        types = {"ctype": ctype(self.real), "lanes": self.lanes}
        typedefs = tuple(s.c_typedef() for s in (SIZES, STRIDES, PIVOTS))
        common = render("linalg/common", typedefs=typedefs, schedule=self.schedule, **types)
        group = self.limits.size(SMALL_GROUP_ITEMS)
        blocks = {"block": self.block, "group": group, "schedule": self.schedule}
        preambles = (common, *self._preambles())
        template = self.template
        if self.is_complex:
            template = template.replace("/", "/complex_")
            preambles = (*preambles, render("linalg/complex", schedule=self.schedule, **types))
        return kernel_source(template, preambles=preambles, **types, **blocks, **self._parameters())

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of small matrices."""
        return (self._source(),)

    def _kernel(self, function: str, work_items: int = 1) -> Kernel:
        """Return a kernel of the template, with `work_items` as its compiled work-group size."""
        if function not in self._kernels:
            source = self._source()
            self._kernels[function] = self.limits.kernel(source, f"{source.name}_{function}", work_items)
        return self._kernels[function]

    def _grid(self, kernel: Kernel, units: int) -> Sizes:
        """Return the NDRange of a kernel whose work-items share `units` evenly, or loop over them."""
        if self.schedule == "cpu":
            return (max(1, min(units, ITEMS_PER_UNIT * self.context.info.compute_units)),), (1,)
        return ndrange(self.context, kernel, units, SMALL_GROUP_ITEMS)

    def _group_grid(self, units: int) -> Sizes:
        """Return the NDRange of a kernel whose work-groups loop over `units`."""
        group = self.limits.size(SMALL_GROUP_ITEMS)
        groups = max(1, min(units, 32 * self.context.info.compute_units))
        return (groups * group,), (group,)

    def _shared(self, function: str, units: int) -> tuple[Kernel, Sizes]:
        """Return a kernel whose work-items, or work-groups on schedule simt, share `units`, and its NDRange."""
        if self.schedule == "simt":
            return self._kernel(function, self.limits.size(SMALL_GROUP_ITEMS)), self._group_grid(units)
        kernel = self._kernel(function)
        return kernel, self._grid(kernel, units)

    def _copy(self, source: GpuArray, target: GpuArray) -> None:
        """Cast and copy; dimensions of length one are repeated to the shape of the target."""
        ndim = target.ndim
        key = source.dtype.name, ndim
        if key not in self._copies:
            self._copies[key] = Copy(self.context, *key, self.dtype.name, self.schedule)
        layout = source.layout
        padded = Layout(
            (1,) * (ndim - source.ndim) + layout.shape, (0,) * (ndim - source.ndim) + layout.strides, layout.offset
        )
        self._copies[key].launch((target,), (source.with_layout(padded),))

    def _matrices(self, array: GpuArray, batch: tuple[int, ...]) -> GpuArray:
        """Return an array, broadcast to batch dimensions, as one of shape (count, rows, columns) in this dtype."""
        shape = (*batch, *array.shape[-2:])
        if array.dtype == self.dtype:
            layout = array.layout.broadcast_to(shape).reshape((prod(batch), *shape[-2:]))
            if layout is not None:
                return array.with_layout(layout)
        target = self.context.empty(shape, self.dtype)
        self._copy(array, target)
        return target.with_layout(Layout.contiguous((prod(batch), *shape[-2:])))

    @cached_property
    def _gemm(self) -> BatchedGemm:
        return BatchedGemm(self.context, self.real, has_c=True, schedule=self.schedule)

    def _subtract_product(
        self,
        target: GpuArray,
        left: GpuArray,
        right: GpuArray,
        conjugated: str = "",
        gemm: BatchedGemm | None = None,
    ) -> None:
        """Enqueue ``target -= left @ right`` of arrays (count, rows, columns).

        `conjugated`: which factors are conjugated if they are complex: ``"left"``, ``"right"`` or none.
        """
        if target.size and left.shape[-1]:
            self._add_product(gemm or self._gemm, target, -self._one, left, right, self._one, conjugated)

    def _add_product(
        self,
        gemm: BatchedGemm,
        target: GpuArray,
        alpha: Any,
        left: GpuArray,
        right: GpuArray,
        beta: Any,
        conjugated: str = "",
    ) -> None:
        """Enqueue ``target = alpha * left @ right + beta * target``; complex numbers take four real products."""
        if not self.is_complex:
            gemm.launch((target,), (target, alpha, left, right, beta))
            return
        (real, imag), (left_real, left_imag), (right_real, right_imag) = map(parts, (target, left, right))
        of_left = -alpha if conjugated == "left" else alpha
        of_right = -alpha if conjugated == "right" else alpha
        of_both = of_left * of_right * -alpha  # alpha is one or minus one
        one = self._one
        gemm.launch((real,), (real, alpha, left_real, right_real, beta))
        gemm.launch((real,), (real, of_both, left_imag, right_imag, one))
        gemm.launch((imag,), (imag, of_right, left_real, right_imag, beta))
        gemm.launch((imag,), (imag, of_left, left_imag, right_real, one))

    @cached_property
    def _product(self) -> BatchedGemm:
        return BatchedGemm(self.context, self.real, schedule=self.schedule)

    def _new_product(self, left: GpuArray, right: GpuArray, is_transposed: bool = True) -> GpuArray:
        """Enqueue the product of the (conjugate) transpose of `left`, or of itself, with `right`, and return it."""
        if is_transposed:
            left = transposed(left)
        if not self.is_complex:
            return self._product(left, right)[0]
        target = self.context.empty((left.shape[0], left.shape[1], right.shape[2]), self.dtype)
        if target.size:
            zero, conjugated = self.real.type(0), "left" if is_transposed else ""
            self._add_product(self._gemm, target, self._one, left, right, zero, conjugated)
        return target

    def _half(self, n: int) -> int:
        """Return where a matrix of `n` rows is divided: whole blocks in the first part."""
        return ceil_div(n, 2 * self.block) * self.block


class MatrixFunction(BlockedRoutine):
    """A routine of one array of matrices, whose kernels fit the work-groups that the device allows."""

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the outputs are C-contiguous."""
        (a,) = (v for v in inputs if isinstance(v, GpuArray))
        if a.size:
            self.limits.with_fitting_groups(
                lambda: self._run(outputs, self._matrices(a, a.shape[:-2])), self._kernels.clear
            )

    def _run(self, outputs: Sequence[GpuArray], a: GpuArray) -> None:
        """Enqueue the kernels for matrices (count, rows, columns)."""
        raise NotImplementedError
