"""Selection and assignment by masks of any number of dimensions, also of none, as NumPy's."""

from typing import Any

from pytensor_cl.routines.indexing.gather_scatter import Gather, Scatter
from pytensor_cl.routines.indexing.plan import UNCHECKED_BOUNDS
from pytensor_cl.routines.nonzero import MaskAssign, Nonzero, Select, mask_mismatch
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout


class _ByMask:
    """Base class: where a mask has no dimensions, the array and the mask get one of length one.

    `dtype`, `ndim`: of the array; `mask_ndim`: dimensions of the mask, at most those of the array.
    """

    def __init__(self, context: Context, dtype: str, ndim: int, mask_ndim: int, schedule: str | None = None) -> None:
        if mask_ndim > ndim:
            raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {mask_ndim} were indexed")
        self.context = context
        self.is_scalar = mask_ndim == 0
        self.ndim, self.mask_ndim = (ndim + 1, 1) if self.is_scalar else (ndim, mask_ndim)
        self.is_whole = self.ndim == self.mask_ndim
        self._nonzero = None if self.is_whole else Nonzero(context, "bool", self.mask_ndim, schedule)

    @property
    def index(self) -> dict[str, Any]:
        """Arguments of the routines that index with the places of the true elements."""
        number = self.mask_ndim
        bounds = [UNCHECKED_BOUNDS] * number
        return {"entries": tuple(range(number)), "index_types": [("int64", 1)] * number, "bounds": bounds}

    def _given(self, array: GpuArray, mask: GpuArray) -> tuple[GpuArray, GpuArray]:
        if self.is_scalar:
            array, mask = map(_with_axis, (array, mask))
        error = mask_mismatch(array.shape, mask.shape)
        if error is not None:
            raise error
        return array, mask

    def _places(self, mask: GpuArray) -> tuple[GpuArray, ...]:
        """Return where the mask is true; waits for their number."""
        assert self._nonzero is not None
        return self._nonzero(mask)


def _with_axis(array: GpuArray) -> GpuArray:
    shape, strides, offset = array.layout
    return array.with_layout(Layout((1, *shape), (0, *strides), offset))


class SelectByMask(_ByMask):
    """Elements, or slices along the other axes, where a mask is true: ``select(x, mask)`` is ``x[mask]``."""

    def __init__(self, context: Context, dtype: str, ndim: int, mask_ndim: int, schedule: str | None = None) -> None:
        super().__init__(context, dtype, ndim, mask_ndim, schedule)
        self._select = Select(context, dtype, self.ndim, schedule) if self.is_whole else None
        self._gather = None if self.is_whole else Gather(context, dtype, self.ndim, **self.index, schedule=schedule)

    def __call__(self, array: GpuArray, mask: GpuArray) -> GpuArray:
        """Wait for the number of true elements, and enqueue the kernel.

        Raises `IndexError`: the mask does not fit the first dimensions of the array.
        """
        array, mask = self._given(array, mask)
        if self._gather is not None:
            return self._gather(array, *self._places(mask))[0]
        assert self._select is not None
        return self._select(array, mask)[0]


class AssignByMask(_ByMask):
    """Set elements of an array itself where a mask is true: ``update(x, y, mask)`` is ``x[mask] = y``.

    `accumulate`: add the values instead; `value_dtype`, `value_ndim`: of the values.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        ndim: int,
        mask_ndim: int,
        *,
        value_dtype: str,
        value_ndim: int,
        accumulate: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, dtype, ndim, mask_ndim, schedule)
        values: dict[str, Any] = {"value_dtype": value_dtype, "value_ndim": value_ndim, "accumulate": accumulate}
        self._assign = MaskAssign(context, dtype, self.ndim, schedule=schedule, **values) if self.is_whole else None
        self._scatter = None
        if not self.is_whole:
            self._scatter = Scatter(context, dtype, self.ndim, **self.index, schedule=schedule, **values)

    def update(self, target: GpuArray, value: GpuArray, mask: GpuArray) -> None:
        """Enqueue the kernel, and wait for the number of true elements where the shapes depend on it.

        The target may have any strides that mean each element once. Values and masks in its memory are copied first.

        Raises `IndexError`: the mask does not fit. Raises `ValueError`: the values do not broadcast to what it selects.
        """
        target, mask = self._given(target, mask)
        if self._scatter is not None:
            self._scatter.update(target, value, *self._places(mask))
            return
        assert self._assign is not None
        self._assign.update(target, value, mask)
