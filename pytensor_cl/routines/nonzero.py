"""Non-zero elements of arrays: their indices, selection and assignment by a mask."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import carrier, ctype, widened
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS, ITEMS_PER_UNIT, MIN_ITEM_ELEMENTS
from pytensor_cl.routines.base.ndrange import index_type
from pytensor_cl.routines.base.routine import KernelVariants, Routine
from pytensor_cl.routines.elemwise.routine import Copy, without_overlap
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel

RUN_ELEMENTS = 8  # neighbouring elements that a work-item takes, on schedule simt
MIN_GROUP_ELEMENTS = 2048  # elements that justify a work-group, on schedule simt

# By kind: the bits that distinguish zero from other values; zero has two signs. None: the value is 0 or 1.
_BITS = {
    "b": lambda bits: None,
    "i": lambda bits: f"0x{(1 << bits) - 1:x}ul",
    "u": lambda bits: f"0x{(1 << bits) - 1:x}ul",
    "f": lambda bits: f"0x{(1 << bits - 1) - 1:x}ul",
    "c": lambda bits: f"0x{((1 << 31) - 1) * 0x100000001 if bits == 64 else (1 << 63) - 1:x}ul",
}
_ADD = {"b": "({a} | {b})", "i": "({a} + {b})", "u": "({a} + {b})", "f": "({a} + {b})"}


def mask_mismatch(shape: Sequence[int], mask: Sequence[int], first: int = 0) -> IndexError | None:
    """Return NumPy's error if a mask does not fit an array's dimensions from `first` on."""
    for axis, (n, m) in enumerate(zip(shape[first:], mask, strict=False), start=first):
        if n != m:
            return IndexError(
                f"boolean index did not match indexed array along axis {axis}; size of axis is {n} but size of "
                f"corresponding boolean axis is {m}"
            )
    return None


def _flat(array: GpuArray, copy: Copy, stepped: bool = False) -> tuple[GpuArray, int]:
    """Return an array whose elements are one step apart in C order, and the step: 1 unless `stepped`."""
    _, (steps,) = collapse(array.shape, (array.layout.strides,))
    step = steps[0] if steps else 1
    if len(steps) < 2 and (stepped or step == 1):
        return array, step
    return copy(array)[0], 1


class _Masked(Routine):
    """Base class of the routines: one kernel counts in each chunk, a second one uses the counts.

    `dtype`, `ndim`: dtype and number of dimensions, at least one, of the array that is tested for zeros; `options`:
    more arguments of the template.
    """

    def __init__(
        self, context: Context, dtype: str, ndim: int, output_mode: str, schedule: str | None = None, **options: Any
    ) -> None:
        super().__init__(context, schedule)
        self.ndim = ndim
        kind = np.dtype(dtype)
        self._arguments: dict[str, Any] = {
            "unit": carrier(kind),
            "bits": _BITS[kind.kind](8 * kind.itemsize),
            "output_mode": output_mode,
            "dims": 1,
            "element": "",
            "combine": "",
            **options,
        }
        self._contiguous = Copy(context, dtype, ndim, schedule=schedule)
        self._kernels = KernelVariants(self._build)

    @property
    def _group(self) -> int:
        """Work-items of a work-group on schedule simt, with a sum, an end and a run of flags in local memory."""
        return self.limits.size(GROUP_ITEMS, 8 + 4 + RUN_ELEMENTS) if self.schedule == "simt" else 1

    def _source(self, index: str) -> KernelSource:
        if self.schedule == "simt":
            return kernel_source("nonzero/simt", index=index, run=RUN_ELEMENTS, group=self._group, **self._arguments)
        return kernel_source("nonzero/cpu", **self._arguments)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels for contiguous arrays with 32-bit indices."""
        return (self._source("int"),)

    def _kernel(self, size: int) -> tuple[Kernel, Kernel]:
        """Return the two kernels for arrays of a size."""
        index = index_type(size, GROUP_ITEMS * RUN_ELEMENTS) if self.schedule == "simt" else "int"
        return self.limits.with_fitting_groups(lambda: self._kernels[index], self._kernels.clear)

    def _build(self, index: str) -> tuple[Kernel, Kernel]:
        source, make = self._source(index), self.limits.kernel
        return make(source, f"{source.name}_count", self._group), make(source, None, self._group)

    def _range(self, size: int) -> tuple[int, int]:
        """Return the number of chunks, and the work-items of each."""
        units = self.context.info.compute_units
        if self.schedule == "simt":
            return min(ceil_div(size, MIN_GROUP_ELEMENTS), 32 * units), self._group
        return min(ceil_div(size, MIN_ITEM_ELEMENTS), ITEMS_PER_UNIT * units), 1

    def _count(self, mask: GpuArray) -> GpuArray:
        """Enqueue the first kernel; return the counts of the chunks."""
        kernel, _ = self._kernel(mask.size)
        chunks, group = self._range(mask.size)
        counts = self.context.empty((chunks,), "int64")
        where = mask.buffer, np.int64(mask.layout.offset), np.int64(mask.size)
        kernel.launch(self.context.queue, (chunks * group,), (group,), *where, counts.buffer)
        return counts

    def _compact(self, mask: GpuArray, counts: GpuArray, *arguments: object) -> None:
        """Enqueue the second kernel."""
        _, kernel = self._kernel(mask.size)
        chunks, group = self._range(mask.size)
        where = mask.buffer, np.int64(mask.layout.offset), np.int64(mask.size)
        kernel.launch(self.context.queue, (chunks * group,), (group,), *where, counts.buffer, *arguments)

    def _total(self, counts: GpuArray) -> int:
        """Wait, and return how many elements are not zero: shapes depend on it."""
        return int(self.context.download(counts).sum())


class Nonzero(_Masked):
    """The indices of the elements that are not zero, in C order: an int64 vector per dimension."""

    def __init__(self, context: Context, dtype: str, ndim: int, schedule: str | None = None) -> None:
        super().__init__(context, dtype, ndim, "coords", schedule, dims=ndim)
        self.output_dtypes = ("int64",) * ndim

    def _extents(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Wait for the count, and enqueue the kernel."""
        (array,) = inputs
        empty = self.context.empty
        if not array.size:
            return tuple(empty((0,), dtype) for dtype in self.output_dtypes)
        extents = map(np.int64, self._extents(array.shape))
        mask, _ = _flat(array, self._contiguous)
        counts = self._count(mask)
        total = self._total(counts)
        outputs = tuple(empty((total,), dtype) for dtype in self.output_dtypes)
        if total:
            self._compact(mask, counts, *(output.buffer for output in outputs), *extents)
        return outputs


class Flatnonzero(Nonzero):
    """The indices of the elements that are not zero, in the flat array: one int64 vector."""

    def __init__(self, context: Context, dtype: str, ndim: int, schedule: str | None = None) -> None:
        _Masked.__init__(self, context, dtype, ndim, "flat", schedule)
        self.output_dtypes = ("int64",)

    def _extents(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (prod(shape),)


class Select(_Masked):
    """Elements of an array where a mask of its shape is true: ``select(x, mask)`` is ``x[mask]``."""

    def __init__(self, context: Context, dtype: str, ndim: int, schedule: str | None = None) -> None:
        super().__init__(context, "bool", ndim, "select", schedule, element=carrier(dtype))
        self.output_dtypes = (dtype,)
        self._copy = Copy(context, dtype, ndim, schedule=schedule)

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Wait for the count, and enqueue the kernel.

        Raises `IndexError`: the mask has another shape.
        """
        array, mask = inputs
        error = mask_mismatch(array.shape, mask.shape)
        if error is not None:
            raise error
        if not mask.size:
            return (self.context.empty((0,), self.output_dtypes[0]),)
        mask, _ = _flat(mask, self._contiguous)
        counts = self._count(mask)
        output = self.context.empty((self._total(counts),), self.output_dtypes[0])
        if output.size:
            array, step = _flat(array, self._copy, stepped=True)
            self._compact(mask, counts, array.buffer, np.int64(array.layout.offset), np.int64(step), output.buffer)
        return (output,)


class Expand(_Masked):
    """Copy an array with other elements where a mask of its shape is true: ``expand(x, y, mask)``.

    `accumulate`: add the values instead of setting them.
    """

    _output_mode = "expand"

    def __init__(
        self,
        context: Context,
        dtype: str,
        ndim: int,
        *,
        accumulate: bool,
        value_dtype: str,
        value_ndim: int,
        schedule: str | None = None,
    ) -> None:
        kind = np.dtype(dtype)
        # Integers wrap, which in C only unsigned ones do.
        element = ctype(dtype) if accumulate and kind.kind == "f" else carrier(dtype)
        combine = _ADD[kind.kind] if accumulate else "{b}"
        options: dict[str, Any] = {"element": element, "combine": combine}
        if (schedule or context.info.schedule) == "cpu" and self._output_mode == "expand":
            lanes = 64 // max(4, kind.itemsize)
            options.update(lanes=lanes, elements=widened(element, lanes))
        super().__init__(context, "bool", ndim, self._output_mode, schedule, **options)
        self.output_dtypes = (dtype,)
        self._accumulate = accumulate
        self._copy = Copy(context, dtype, ndim, schedule=schedule)
        self._cast = None if value_dtype == dtype else Copy(context, value_dtype, value_ndim, dtype, schedule)

    @staticmethod
    def takes(dtype: str, accumulate: bool) -> bool:
        """Return whether there is a kernel for a dtype."""
        return not accumulate or dtype == "bool" or np.dtype(dtype).kind in "iu" or dtype in ("float32", "float64")

    def _fitted(self, value: GpuArray) -> GpuArray:
        """Return a value of at most one dimension; an assignment drops leading dimensions of length one."""
        shape, strides, offset = value.layout
        extra = max(0, len(shape) - 1)
        if not self._accumulate and set(shape[:extra]) <= {1}:
            return value.with_layout(Layout(shape[extra:], strides[extra:], offset))
        return value

    def _steps(self, value: GpuArray, counts: GpuArray) -> int:
        """Return the step from one value to the next; waits where that depends on the count."""
        if value.layout.size == 1 and value.ndim < 2:
            return 0
        total = self._total(counts)
        if value.shape != (total,):
            raise ValueError(
                f"shape mismatch: value array of shape {value.shape} could not be broadcast to indexing result of "
                f"shape ({total},)"
            )
        return value.layout.strides[0]

    def _prepared(self, array: GpuArray, value: Any, mask: GpuArray) -> tuple[GpuArray, GpuArray, GpuArray, int]:
        """Return the values, the mask with elements one step apart, the counts, and the step of the values."""
        if not isinstance(value, GpuArray):
            value = self.context.from_host(np.asarray(value))
        error = mask_mismatch(array.shape, mask.shape)
        if error is not None:
            raise error
        value = self._fitted(value if self._cast is None else self._cast(value)[0])
        mask, _ = _flat(mask, self._contiguous)
        counts = self._count(mask) if mask.size else self.context.from_host(np.zeros(1, "int64"))
        return value, mask, counts, self._steps(value, counts)

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Wait for the count if there are several values, and enqueue the kernel.

        Raises `IndexError`: the mask has another shape. Raises `ValueError`: there are more or fewer values than the
        mask has true elements.
        """
        array, value, mask = inputs
        value, mask, counts, step = self._prepared(array, value, mask)
        output = self.context.empty(array.shape, self.output_dtypes[0])
        if not output.size:
            return (output,)
        array, x_step = _flat(array, self._copy, stepped=True)
        x = array.buffer, np.int64(array.layout.offset), np.int64(x_step)
        y = value.buffer, np.int64(value.layout.offset), np.int64(step)
        self._compact(mask, counts, *x, *y, output.buffer)
        return (output,)


class MaskAssign(Expand):
    """Set elements of an array itself where a mask of its shape is true: ``update(x, y, mask)`` is ``x[mask] = y``."""

    _output_mode = "assign"

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Raise: there is no new array."""
        raise NotImplementedError("a mask assignment changes its target: call `update`")

    def update(self, target: GpuArray, value: Any, mask: GpuArray) -> None:
        """Wait for the count if there are several values, and enqueue the kernel.

        The target may have any strides that mean each element once. Values and masks in its memory are copied first.

        Raises `IndexError`: the mask has another shape. Raises `ValueError`: there are more or fewer values than the
        mask has true elements.
        """
        if isinstance(value, GpuArray):
            value = without_overlap(value, target)
        value, mask, counts, step = self._prepared(target, value, without_overlap(mask, target))
        if not target.size:
            return
        _, (steps,) = collapse(target.shape, (target.layout.strides,))
        is_even = len(steps) < 2
        changed = target if is_even else self._copy(target)[0]
        x = changed.buffer, np.int64(changed.layout.offset), np.int64(steps[0] if steps and is_even else 1)
        self._compact(mask, counts, *x, value.buffer, np.int64(value.layout.offset), np.int64(step))
        if not is_even:
            self._copy.launch((target,), (changed,))
