"""Flat indices from the indices along each dimension, and back."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.limits import GROUP_ITEMS, INT_LIMIT
from pytensor_cl.routines.base.ndrange import Sizes, item_range, ndrange
from pytensor_cl.routines.base.routine import Checked, KernelVariants
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.routines.indexing.limits import MIN_ITEM_LOOKUPS
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

MAX_SIZE = 2**63 - 1


def _dims(values: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in values)


class _Indices(Checked):
    """Base class of both directions: one kernel over flat arrays.

    `order`: ``"C"`` or ``"F"``: whether the last or the first dimension changes fastest; `dims`: the struct of the
    dimensions that the kernel gets.
    """

    def __init__(self, context: Context, mode: str, order: str, dims: Struct, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.mode = mode
        self._dims_struct = dims
        self.order = order
        self.is_checked = mode in ("raise", "unravel")
        self._kernels = KernelVariants(self._build)

    def _types(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _source(self, word: str) -> KernelSource:
        arguments: dict[str, Any] = {"mode": self.mode, "types": self._types(), "word": word, "dims": self._dims_struct}
        return kernel_source(
            "indexing/ravel_multi_index",
            preambles=(render("runtime/error_flag"), render("common/to_long")),
            schedule=self.schedule,
            **arguments,
        )

    def _build(self, word: str) -> Kernel:
        return self.context.kernel(self._source(word))

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel for arrays of less than 2**31 elements."""
        return (self._source("uint"),)

    def _launch(self, size: int, word: str, *arguments: object) -> None:
        if self.schedule == "cpu":
            sizes: Sizes = item_range(self.context, size, MIN_ITEM_LOOKUPS)
        else:
            sizes = ndrange(self.context, self._kernels[word], size, GROUP_ITEMS)
        error_flag = self.error_flag.buffer if self.is_checked else None
        self._kernels[word].launch(self.context.queue, *sizes, *arguments, error_flag, self.number)


class RavelMultiIndex(_Indices):
    """Flat indices: ``ravel(i, j, ..., dims)``, as `numpy.ravel_multi_index`; `dims` is a sequence of the host.

    `dtypes`, `ndims`: dtypes and numbers of dimensions of the index arrays, which broadcast together; `mode`:
    ``"raise"``, ``"wrap"`` or ``"clip"``: what happens with an index that is out of range.
    """

    output_dtypes = ("int64",)

    def __init__(
        self,
        context: Context,
        dtypes: Sequence[str],
        ndims: Sequence[int],
        mode: str = "raise",
        order: str = "C",
        schedule: str | None = None,
    ) -> None:
        count = max(1, len(dtypes))
        dims = Struct(("long", f"at[{count}] dim[{count}] weight[{count}]"), name="dims")
        super().__init__(context, mode, order, dims, schedule)
        self.dtypes = tuple(dtypes)
        ndim = max(ndims, default=0)
        self._copies = [Copy(context, dtype, ndim, schedule=schedule) for dtype in dtypes]

    def _types(self) -> tuple[str, ...]:
        return tuple(map(ctype, self.dtypes))

    def _weights(self, dims: tuple[int, ...], size: int) -> tuple[int, ...]:
        """Return the stride of an index along each dimension, in elements."""
        if len(dims) != len(self.dtypes):
            raise ValueError(f"parameter multi_index must be a sequence of length {len(dims)}")
        if prod(dims) > MAX_SIZE:
            raise ValueError("invalid dims: array size defined by dims is larger than the maximum possible size.")
        if size and 0 in dims:
            raise ValueError("cannot unravel if shape has zero entries (is empty).")
        if self.order == "C":
            return Layout.contiguous(dims).strides
        return Layout.contiguous(dims[::-1]).strides[::-1]

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Compute a new array.

        Raises `ValueError`: the arrays do not broadcast together, or do not fit `dims`.
        """
        *arrays, last = inputs
        dims = _dims(last)
        shapes = [array.shape for array in arrays]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError as error:
            text = " ".join(map(str, shapes))
            raise ValueError(f"operands could not be broadcast together with shapes {text}") from error
        output = self.context.empty(shape, "int64")
        weights = self._weights(dims, output.size)
        if output.size:
            arrays = [self._spread(a, copy, shape) for a, copy in zip(arrays, self._copies, strict=True)]
            packed = self._dims_struct.pack(at=[a.layout.offset for a in arrays], dim=dims, weight=weights)
            buffers = [a.buffer for a in arrays]
            self._launch(output.size, "uint", *buffers, output.buffer, np.int64(output.size), packed)
        return (output,)

    @staticmethod
    def _spread(array: GpuArray, copy: Copy, shape: tuple[int, ...]) -> GpuArray:
        view = array.with_layout(array.layout.broadcast_to(shape))
        return view if view.layout.is_contiguous else copy(view)[0]

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's ValueError."""
        return ValueError("invalid entry in coordinates array")


class UnravelIndex(_Indices):
    """The index along each dimension: ``unravel(flat, dims)``, as `numpy.unravel_index`; `dims` is of the host.

    `count`: number of dimensions.
    """

    def __init__(
        self, context: Context, dtype: str, ndim: int, count: int, order: str = "C", schedule: str | None = None
    ) -> None:
        dims = Struct(("long", f"size dim[{max(1, count)}]"), name="dims")
        super().__init__(context, "unravel", order, dims, schedule)
        self.output_dtypes = ("int64",) * count
        self.dtype = dtype
        self._copy = Copy(context, dtype, ndim, schedule=schedule)

    def _types(self) -> tuple[str, ...]:
        return (ctype(self.dtype), *("long" for _ in self.output_dtypes))

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Compute new arrays.

        Raises `ValueError`: an array of shape `dims` would be too large.
        """
        flat, last = inputs
        dims = _dims(last)
        size = prod(dims)
        if size > MAX_SIZE:
            raise ValueError(
                "dimensions are too large; arrays and shapes with a total size greater than 'intp' are not supported."
            )
        outputs = tuple(self.context.empty(flat.shape, dtype) for dtype in self.output_dtypes)
        if flat.size and outputs:
            (flat,) = (flat,) if flat.layout.is_contiguous else self._copy(flat)
            # The kernel takes the dimension that changes fastest first.
            extents, buffers = list(dims), [output.buffer for output in outputs]
            if self.order == "C":
                extents.reverse()
                buffers.reverse()
            packed = self._dims_struct.pack(size=size, dim=[n or 1 for n in extents])
            start, count = np.int64(flat.layout.offset), np.int64(flat.size)
            self._launch(
                flat.size, "uint" if size < INT_LIMIT else "ulong", flat.buffer, start, *buffers, count, packed
            )
        return outputs

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's ValueError."""
        return ValueError(f"index {finding.value} is out of bounds for array with size {finding.limit}")
