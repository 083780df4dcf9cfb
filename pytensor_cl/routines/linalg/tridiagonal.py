"""Tridiagonal matrices: LU factors, and solutions of linear systems."""

from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT, SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import Sizes, ndrange
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.routines.elemwise.routine import Copy, contiguous
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class _Tridiagonal(Routine):
    """Base class of the factorisation and the solver of tridiagonal systems."""

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.dtype = np.dtype(dtype)
        self._copies: dict[tuple[str, int, str], Copy] = {}

    @cached_property
    def _source(self) -> KernelSource:
        return kernel_source("linalg/tridiagonal", ctype=ctype(self.dtype), schedule=self.schedule)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels."""
        return (self._source,)

    def _kernel(self, function: str) -> Kernel:
        return self.context.kernel(self._source, f"{self._source.name}_{function}")

    def _range(self, kernel: Kernel, units: int) -> Sizes:
        if self.schedule == "cpu":
            return (max(1, min(units, ITEMS_PER_UNIT * self.context.info.compute_units)),), (1,)
        return ndrange(self.context, kernel, units, SMALL_GROUP_ITEMS)

    def _copy(self, source: GpuArray, target: GpuArray) -> None:
        """Cast and copy an array, repeated to the shape of the target."""
        key = source.dtype.name, target.ndim, target.dtype.name
        if key not in self._copies:
            self._copies[key] = Copy(self.context, *key, self.schedule)
        self._copies[key].launch((target,), (source.with_layout(source.layout.broadcast_to(target.shape)),))

    @staticmethod
    def _check_diagonals(*diagonals: Layout) -> None:
        beside = max(0, diagonals[1].shape[-1] - 1)
        lengths = tuple(d.shape[-1] for d in diagonals)
        if lengths[0] != beside or lengths[2] != beside:
            raise ValueError(f"the diagonals of a tridiagonal matrix have lengths {lengths}")


class TridiagonalFactor(_Tridiagonal):
    """LU factors of batches of tridiagonal matrices, as of LAPACK's gttrf.

    Inputs are the diagonals below (..., n - 1), at (..., n) and above (..., n - 1) the main one. Outputs are L below
    its diagonal (..., n - 1), the three diagonals of U (..., n), (..., n - 1), (..., n - 2), and the interchanges
    (..., n) of int32, counted from one. Batch dimensions broadcast.
    """

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        super().__init__(context, dtype, schedule)
        self.output_dtypes = (*(self.dtype.name,) * 4, "int32")

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the factors.

        Raises `ValueError`: the lengths of the diagonals do not fit.
        """
        self._check_diagonals(*inputs)
        batch = np.broadcast_shapes(*(v.shape[:-1] for v in inputs))
        n = inputs[1].shape[-1]
        lengths = max(0, n - 1), n, max(0, n - 1), max(0, n - 2), n
        return tuple(Layout.contiguous((*batch, length)) for length in lengths)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel; the outputs are C-contiguous."""
        for target, source in zip(outputs, inputs, strict=False):
            if target.size and isinstance(source, GpuArray):
                self._copy(source, target)
        *batch, n = outputs[1].shape
        if not outputs[1].size:
            return
        kernel = self._kernel("factor")
        numbers = (np.int64(prod(batch)), np.int64(n), *(np.int64(v.layout.offset) for v in outputs))
        kernel.launch(self.context.queue, *self._range(kernel, prod(batch)), *numbers, *(v.buffer for v in outputs))


class TridiagonalSolve(_Tridiagonal):
    """X of ``A @ X = B`` from the factors of tridiagonal matrices, as of LAPACK's gttrs.

    Inputs are the outputs of `TridiagonalFactor`, and B (..., n, m), or (..., n) of vectors; batch dimensions
    broadcast. The output has the shape of B with all batch dimensions.

    `transposed`: whether the system is that of the transposed matrix; `is_vector`: whether B is a vector, or a batch of
    vectors.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        *,
        transposed: bool = False,
        is_vector: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, dtype, schedule)
        self.output_dtypes = (self.dtype.name,)
        self.transposed = transposed
        self.is_vector = is_vector

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of X.

        Raises `ValueError`: the lengths of the diagonals and of B do not fit.
        """
        *factors, b = inputs
        core = 1 if self.is_vector else 2
        self._check_diagonals(*factors)
        n = factors[1].shape[-1]
        if b.shape[-core] != n:
            raise ValueError(f"a right side of shape {b.shape} does not fit matrices of {n} rows")
        batch = np.broadcast_shapes(*(v.shape[:-1] for v in factors), b.shape[:-core])
        return (Layout.contiguous((*batch, *b.shape[-core:])),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel; the output is C-contiguous."""
        (output,) = outputs
        *factors, b = (v for v in inputs if isinstance(v, GpuArray))
        if not output.size:
            return
        self._copy(b, output)
        core = 1 if self.is_vector else 2
        batch = output.shape[:-core]
        count, n, m = prod(batch), output.shape[-core], 1 if self.is_vector else output.shape[-1]
        is_batch = any(prod(v.shape[:-1]) > 1 for v in factors)
        if is_batch:
            factors = [self._repeated(v, batch) for v in factors]
        factors = [contiguous(v) for v in factors]
        kernel = self._kernel("transposed" if self.transposed else "solve")
        offsets = (np.int64(v.layout.offset) for v in (*factors, output))
        numbers = (np.int64(count), np.int64(n), np.int64(m), np.int64(is_batch), *offsets)
        buffers = (v.buffer for v in (*factors, output))
        kernel.launch(self.context.queue, *self._range(kernel, count * m), *numbers, *buffers)

    def _repeated(self, factor: GpuArray, batch: tuple[int, ...]) -> GpuArray:
        if factor.shape[:-1] == batch:
            return factor
        target = self.context.empty((*batch, factor.shape[-1]), factor.dtype)
        if target.size:
            self._copy(factor, target)
        return target
