"""Products with a matrix of compressed rows (CSR)."""

from collections.abc import Sequence

import numpy as np

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT, SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import Sizes, ndrange
from pytensor_cl.routines.base.routine import Checked, KernelVariants
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

PLAN = Struct(("long", "rows columns inner entries indices indptr left right output"), name="plan")

MIN_ITEM_PRODUCTS = 1 << 12  # multiplications that are worth a work-item on schedule cpu
VECTOR_BYTES = 64
MAX_LANES = 16
FEW_LANES = 4


class _Compressed(Checked):
    """Base class of both products: the kernels, and the split of the rows."""

    function = ""

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (dtype,)
        kind = np.dtype(dtype)
        self._stored = f"uint{8 * kind.itemsize}" if kind.kind == "i" else dtype  # signed overflow is undefined in C
        self._max_lanes = 1 if self.schedule == "simt" else min(MAX_LANES, VECTOR_BYTES // np.dtype(dtype).itemsize)
        self._kernels = KernelVariants(self._build)

    def _source(self, lanes: int) -> KernelSource:
        preambles = (render("runtime/error_flag"),)
        return kernel_source(
            "sparse/csr", preambles=preambles, plan=PLAN, dtype=self._stored, lanes=lanes, schedule=self.schedule
        )

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel with the widest vectors."""
        return (self._source(self._max_lanes),)

    def error(self, finding: ErrorRecord) -> Exception:
        """Return the error for a row pointer past the end, or a column out of range."""
        if finding.detail:
            return IndexError(f"column index {finding.value} is out of bounds for size {finding.limit}")
        return ValueError(f"a row ends at entry {finding.value} of {finding.limit}")

    def _kernel(self, columns: int) -> Kernel:
        """Return the kernel with vectors no wider than a row of the dense matrix."""
        lanes = next(n for n in (self._max_lanes, FEW_LANES, 1) if n <= max(1, columns))
        return self._kernels[lanes]

    def _build(self, lanes: int) -> Kernel:
        source = self._source(lanes)
        return self.context.kernel(source, f"{source.name}_{self.function}")

    def _range(self, kernel: Kernel, work: int, items: int) -> Sizes:
        units = self.context.info.compute_units
        if self.schedule == "cpu":
            return (max(1, min(ITEMS_PER_UNIT * units, work // MIN_ITEM_PRODUCTS)),), (1,)
        return ndrange(self.context, kernel, items, SMALL_GROUP_ITEMS, 64)

    def _enqueue(self, output: GpuArray, arrays: Sequence[GpuArray], inner: int, items: int) -> None:
        indices, indptr, left, right = map(contiguous, arrays)
        rows, columns = indptr.size - 1, right.shape[-1] if right.ndim == 2 else 1
        numbers = (
            rows,
            columns,
            inner,
            indices.size,
            *(a.layout.offset for a in (indices, indptr, left, right, output)),
        )
        kernel = self._kernel(columns)
        global_size, local_size = self._range(kernel, (indices.size + rows) * columns, items)
        buffers = [a.buffer for a in (indices, indptr, left, right, output)]
        plan = PLAN.pack_values(*numbers)
        queue, error_flag = self.context.queue, self.error_flag.buffer
        kernel.launch(queue, global_size, local_size, *buffers, plan, error_flag, self.number)


class CsrDot(_Compressed):
    """Sparse matrix times dense matrix or vector.

    Inputs are the entries (n), their columns (n) and where each row begins and ends (rows + 1), both int32, the dense
    factor (inner, columns) or (inner,), and the number of columns of the sparse matrix, a number of the host. The
    output is (rows, columns) or (rows,).

    `dtype`: dtype of the entries, the dense factor and the output: an integer or real one.
    """

    function = "dot"

    def layout(self, *inputs: Layout | int) -> tuple[Layout, ...]:
        """Return the layout of the product.

        Raises `ValueError`: the factors do not fit together, or the parts of the sparse one do not.
        """
        data, indices, indptr, dense, inner = inputs
        assert isinstance(data, Layout) and isinstance(indices, Layout) and isinstance(indptr, Layout)
        assert isinstance(dense, Layout)
        if data.size != indices.size or not indptr.size:
            raise ValueError(f"{data.size} entries, {indices.size} column indices, {indptr.size} row pointers")
        if dense.shape[0] != inner:
            raise ValueError(f"dimension mismatch: ({indptr.size - 1}, {inner}) times {dense.shape}")
        return (Layout.contiguous((indptr.size - 1, *dense.shape[1:])),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel; the output is C-contiguous."""
        data, indices, indptr, dense = (a for a in inputs if isinstance(a, GpuArray))
        (output,) = outputs
        if output.size:
            self._enqueue(output, (indices, indptr, data, dense), dense.shape[0], output.size)

    def __call__(self, *inputs: GpuArray | np.generic) -> tuple[GpuArray, ...]:
        """Compute a new, C-contiguous product."""
        *arrays, inner = inputs
        (layout,) = self.layout(*(a.layout for a in arrays if isinstance(a, GpuArray)), int(inner))
        output = self.context.empty(layout.shape, self.output_dtypes[0])
        self.launch((output,), inputs)
        return (output,)


class CsrSampledDot(_Compressed):
    """The entries of ``X @ Y.T`` at the places that a sparse matrix has.

    Inputs are the columns (n) and where each row begins and ends (rows + 1), both int32, ``X`` (rows, k) and ``Y``
    (columns, k). The output is (n,).

    `dtype`: dtype of ``X``, ``Y`` and the output: an integer or real one.
    """

    function = "sampled"

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the entries.

        Raises `ValueError`: the factors do not fit together, or there are not as many rows as row pointers say.
        """
        indices, indptr, left, right = inputs
        if left.shape[1] != right.shape[1] or left.shape[0] != indptr.size - 1:
            raise ValueError(f"{indptr.size - 1} rows of the product of {left.shape} and {right.shape} transposed")
        return (Layout.contiguous(indices.shape),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel; the output is C-contiguous."""
        (output,) = outputs
        indices, indptr, left, right = (a for a in inputs if isinstance(a, GpuArray))
        if output.size:
            self._enqueue(output, (indices, indptr, left, right), right.shape[0], output.size)
