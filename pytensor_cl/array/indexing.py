"""Indexing with arrays and masks, and assignment to what an index selects; NumPy's rules."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.array.arguments import takes_arrays
from pytensor_cl.array.creation import asarray
from pytensor_cl.array.dispatch import OPERATIONS, apply, assign_result, check_writable, common_context
from pytensor_cl.array.launches import cast_to, copied, copy_into, fill, thread_cache
from pytensor_cl.array.manipulation import broadcast_to, reshape
from pytensor_cl.routines.indexing.gather_scatter import Gather, Scatter
from pytensor_cl.routines.indexing.plan import UNCHECKED_BOUNDS
from pytensor_cl.routines.nonzero import MaskAssign, Nonzero, Select, mask_mismatch
from pytensor_cl.runtime.array import GpuArray, basic_index, share_memory
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout, collapse


class _Selection(NamedTuple):
    """The part of an array that an index with arrays selects.

    `view`: the array with the indexed dimensions first; `axes`: these dimensions of the array; `indices`: one vector
    for each of them, or an array of int64; `is_checked`: for each, whether the kernel must check it; `shape`: the
    common shape of the index arrays; `place`: the dimension of the result where that shape begins.
    """

    view: GpuArray
    axes: list[int]
    indices: list[GpuArray]
    is_checked: list[bool]
    shape: tuple[int, ...]
    place: int

    @property
    def rest(self) -> tuple[int, ...]:
        """The lengths of the dimensions that are not indexed."""
        return self.view.shape[len(self.indices) :]

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of what is selected."""
        return (*self.rest[: self.place], *self.shape, *self.rest[self.place :])


def _is_bool(item: Any) -> bool:
    return isinstance(item, bool | np.bool_) or (isinstance(item, GpuArray | np.ndarray) and item.dtype.kind == "b")


def _as_index(item: Any) -> Any:
    """Return an item of an index as what it is: basic, or an array of the host or the device.

    Raises `IndexError`: it is nothing that indexes.
    """
    if item is None or item is Ellipsis or isinstance(item, slice | GpuArray | np.ndarray):
        return item
    if isinstance(item, bool | np.bool_):
        return np.asarray(item)
    if isinstance(item, int | np.integer):
        return int(item)
    if isinstance(item, list | tuple):
        array = np.asarray(item)
        return array.astype(np.int64) if not array.size else array
    if hasattr(item, "__index__"):
        return item.__index__()
    raise IndexError(
        "an index is an integer, a slice, None, ..., or an array or list of integers or bools, not "
        f"{item!r} of class {type(item).__name__}"
    )


def _check_kind(item: GpuArray | np.ndarray) -> None:
    if item.dtype.kind not in "iub":
        raise IndexError(f"arrays used as indices must be of integers or bools, not of {item.dtype}")


def _consumed(item: Any) -> int:
    """Return how many dimensions an item of an index takes."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if _is_bool(item) else 1


def _expanded(x: GpuArray, index: Any) -> list[Any]:
    """Return the items of an index, one or more for each dimension.

    Only a ``...`` that stands for no dimension is left: it keeps arrays apart all the same.

    Raises `IndexError`: there are too many. Raises `ValueError`: one is on another context.
    """
    items = [_as_index(item) for item in (index if isinstance(index, tuple) else (index,))]
    for item in items:
        if isinstance(item, GpuArray | np.ndarray):
            _check_kind(item)
        if isinstance(item, GpuArray) and item.context is not x.context:
            raise ValueError(
                f"index on {item.context.name!r} of an array on {x.context.name!r}: move one, "
                f"i.to_device({x.context.name!r})"
            )
    ellipses = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    taken = sum(_consumed(item) for item in items if item is not Ellipsis)
    if taken > x.ndim:
        raise IndexError(f"too many indices for array: array is {x.ndim}-dimensional, but {taken} were indexed")
    if ellipses and taken == x.ndim:
        return items
    at = ellipses[0] if ellipses else len(items)
    return [*items[:at], *[slice(None)] * (x.ndim - taken), *items[at + len(ellipses) :]]


def _of_masks(x: GpuArray, items: list[Any]) -> list[Any]:
    """Replace masks by arrays of the positions of their true elements; waits for masks of the device.

    Raises `IndexError`: a mask has another shape than the dimensions that it takes.
    """
    result: list[Any] = []
    axis = 0
    for item in items:
        if _is_bool(item) and item.ndim:
            error = mask_mismatch(x.shape, item.shape, axis)
            if error is not None:
                raise error
            result.extend(_Mask(found) for found in nonzero_of(item))
        else:
            result.append(item)
        axis += _consumed(item)
    return result


class _Mask(NamedTuple):
    """An index array made of a mask: it is in range."""

    positions: Any


def nonzero_of(mask: Any) -> tuple[Any, ...]:
    """Return the positions of true elements, an int64 vector per dimension; waits for an array of the device."""
    if isinstance(mask, np.ndarray):
        return np.nonzero(mask)
    cache, key = thread_cache(), (mask.context, "nonzero", mask.dtype, mask.ndim)
    if key not in cache:
        cache[key] = Nonzero(mask.context, str(mask.dtype), mask.ndim)
    found: tuple[GpuArray, ...] = cache[key](mask)
    return found


def _basic_part(x: GpuArray, items: list[Any]) -> tuple[GpuArray, list[tuple[int, int, Any]], int | None]:
    """Apply slices, integers and None; return the view, its indexed dimensions with their arrays, and their place.

    Each array has the numbers of its dimension in the view and in `x`. The place is the dimension of the result where
    the indexed dimensions go: NumPy's rule counts integers as arrays, and puts the dimensions first where a slice is
    between two of them.
    """
    basic: list[Any] = []
    advanced: list[tuple[int, int, Any]] = []
    numbers = []  # the items that count as arrays
    axis = origin = 0  # of the view, and of the array
    first = None
    for number, item in enumerate(items):
        if isinstance(item, GpuArray | np.ndarray | _Mask):
            numbers.append(number)
            first = axis if first is None else first
            if not isinstance(item, _Mask) and item.ndim == 0 and item.dtype.kind == "b":
                basic.append(None)  # a 0-d mask is one along a new dimension of length 1
                item = _Mask(np.zeros(int(bool(item)), np.int64))
            else:
                basic.append(slice(None))
            advanced.append((axis, origin, item))
            axis += 1
        elif isinstance(item, int):
            numbers.append(number)
            first = axis if first is None else first
            basic.append(item)
        else:
            basic.append(item)
            axis += item is not Ellipsis
        origin += _consumed(items[number])
    is_adjacent = numbers[-1] - numbers[0] + 1 == len(numbers)
    return basic_index(x, tuple(basic)), advanced, first if is_adjacent else 0


def _checked_on_host(array: np.ndarray, axis: int, length: int) -> np.ndarray:
    """Return indices of the host, none negative.

    Raises `IndexError`: one is out of bounds.
    """
    if array.size:
        low, high = int(array.min()), int(array.max())
        if high >= length or low < -length:
            wrong = high if high >= length else low
            raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {length}")
        if low < 0:
            array = np.where(array < 0, array.astype(np.int64) + length, array)
    return array.astype(np.int64, copy=False)


def _select(x: GpuArray, items: list[Any]) -> _Selection:
    """Apply the basic part of an index, and prepare its arrays: broadcast together, then flat."""
    view, advanced, place = _basic_part(x, _of_masks(x, items))
    axes = [axis for axis, _, _ in advanced]
    origins = [origin for _, origin, _ in advanced]
    arrays = [item.positions if isinstance(item, _Mask) else item for _, _, item in advanced]
    is_mask = [isinstance(item, _Mask) for _, _, item in advanced]
    try:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        shapes = " ".join(str(a.shape) for a in arrays)
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None
    indices, is_checked = [], []
    for axis, origin, array, masked in zip(axes, origins, arrays, is_mask, strict=True):
        length = view.shape[axis]
        if isinstance(array, np.ndarray):
            host = array.astype(np.int64) if masked else _checked_on_host(array, origin, length)
            indices.append(x.context.from_host(np.broadcast_to(host, shape).reshape(-1)))
        else:
            wide = array if array.dtype.itemsize == 8 else cast_to(array, np.dtype("int64"))
            indices.append(reshape(wide if wide.shape == shape else broadcast_to(wide, shape), (prod(shape),)))
        is_checked.append(not isinstance(array, np.ndarray) and not masked)
        if prod(shape) and not length and is_checked[-1]:
            raise IndexError(f"index is out of bounds for axis {origin} with size 0")
    rest = [a for a in range(view.ndim) if a not in axes]
    ordered = view.with_layout(view.layout.transpose((*axes, *rest)))
    where = sum(a not in axes for a in range(place or 0))
    return _Selection(ordered, origins, indices, is_checked, shape, where)


def _merged_rest(array: GpuArray, indexed: int) -> GpuArray:
    """Return a view in which dimensions that are not indexed are merged: kernels depend on their number."""
    layout = array.layout
    sizes, (steps,) = collapse(layout.shape[indexed:], (layout.strides[indexed:],))
    return array.with_layout(
        Layout((*layout.shape[:indexed], *sizes), (*layout.strides[:indexed], *steps), layout.offset)
    )


def _describe(x: GpuArray, selection: _Selection) -> str:
    return f"x[i] of shape {x.shape} with {len(selection.indices)} index array{'s' * (len(selection.indices) > 1)}"


def _routine(kind: Any, view: GpuArray, selection: _Selection, *more: Any, **options: Any) -> Any:
    count = len(selection.indices)
    types = tuple((str(i.dtype), 1) for i in selection.indices)
    bounds = tuple(None if checked else UNCHECKED_BOUNDS for checked in selection.is_checked)
    key = (view.context, kind, view.dtype, view.ndim, types, bounds, *more, *options.items())
    cache = thread_cache()
    if key not in cache:
        cache[key] = kind(view.context, str(view.dtype), view.ndim, tuple(range(count)), types, bounds, **options)
    return cache[key]


def _enqueue(x: GpuArray, routine: Any, selection: _Selection, launch: Callable[[], Any]) -> None:
    """Launch a routine; an index out of bounds that its kernels find is raised by a later wait."""
    if routine.is_checked:

        def error(found: ErrorRecord) -> Exception:
            failure: Exception = routine.error(found._replace(detail=selection.axes[found.detail]))
            return failure

        x.context.deferred_errors.enqueue(routine, _describe(x, selection), launch, error)
    else:
        launch()


def take_index(x: GpuArray, index: Any) -> GpuArray:
    """Return what an index selects: a view if it has no arrays, else a new array.

    Raises `IndexError`: the index does not fit, or an index of the host is out of bounds.
    """
    items = _expanded(x, index)
    if not any(isinstance(item, GpuArray | np.ndarray) for item in items):
        return basic_index(x, tuple(items))
    if _is_whole_mask(x, items):
        return _masked(x, items[0])
    selection = _select(x, items)
    view = _merged_rest(selection.view, len(selection.indices))
    result = x.context.empty((*selection.shape, *selection.rest), x.dtype)
    target = result.with_layout(Layout.contiguous((prod(selection.shape), *view.shape[len(selection.indices) :])))
    routine = _routine(Gather, view, selection)
    _enqueue(x, routine, selection, lambda: routine.launch((target,), (view, *selection.indices)))
    return _placed(result, len(selection.shape), selection.place)


def _is_whole_mask(x: GpuArray, items: list[Any]) -> bool:
    """Return whether an index is a mask of the device with the dimensions of the array."""
    if len(items) != 1 or not isinstance(items[0], GpuArray):
        return False
    return items[0].dtype.kind == "b" and items[0].ndim == x.ndim > 0


def _masked(x: GpuArray, mask: GpuArray) -> GpuArray:
    cache, key = thread_cache(), (x.context, "select", x.dtype, x.ndim)
    if key not in cache:
        cache[key] = Select(x.context, str(x.dtype), x.ndim)
    result: GpuArray = cache[key](x, mask)[0]
    return result


def _placed(x: GpuArray, count: int, place: int) -> GpuArray:
    """Return a view in which the first `count` dimensions come after the `place` next ones."""
    if not place:
        return x
    order = (*range(count, count + place), *range(count), *range(count + place, x.ndim))
    return x.with_layout(x.layout.transpose(order))


def _source(x: GpuArray, value: Any) -> GpuArray | np.generic:
    """Return the value of an assignment as a device array, or as a scalar of the array's dtype.

    Raises `TypeError`: it is complex, and the array is not.
    """
    if not isinstance(value, GpuArray):
        host = value if isinstance(value, np.ndarray | np.generic) else np.asarray(value)
        if isinstance(value, list | tuple) and host.dtype.kind == "O":
            return _source(x, asarray(value))
        if host.dtype.kind == "c" and x.dtype.kind not in "cb":
            raise TypeError(f"a complex value cannot be assigned to an array of {x.dtype}: take its real part")
        if host.ndim == 0:
            return _cast_number(value, x.dtype)
        if isinstance(value, list | tuple):
            host = np.asarray(value, x.dtype)  # which checks the range of Python's integers
        return x.context.from_host(host.astype(x.dtype, copy=False))
    if value.context is not x.context:
        return x.context.from_host(value.to_host())
    if value.dtype.kind == "c" and x.dtype.kind not in "cb":
        raise TypeError(f"complex values cannot be assigned to an array of {x.dtype}: take their real parts")
    return value


def _cast_number(value: Any, dtype: np.dtype) -> Any:
    """Return a number as a NumPy scalar.

    Raises `OverflowError`: it is a Python ``int`` that the dtype does not hold.
    """
    target = np.empty((), dtype)
    target[()] = value  # as NumPy assigns: Python's integers are checked, floats are truncated
    return target[()]


def assign(x: GpuArray, index: Any, value: Any) -> None:
    """Set what an index selects, as ``x[index] = value`` does."""
    check_writable(x)
    source = _source(x, value)
    items = _expanded(x, index)
    if not any(isinstance(item, GpuArray | np.ndarray) for item in items):
        _assign_view(basic_index(x, tuple(items)), source)
        return
    if len(items) == 1 and _is_bool(items[0]) and items[0].ndim == x.ndim and _size(source) == 1:
        _assign_masked(x, items[0], source)
        return
    if isinstance(source, GpuArray) and _is_whole_mask(x, items):
        _assign_values(x, items[0], source, accumulate=False)
        return
    _write(x, items, source, accumulate=False)


def _size(source: Any) -> int:
    return source.size if isinstance(source, GpuArray) else 1


def _assign_view(view: GpuArray, source: Any) -> None:
    if isinstance(source, GpuArray):
        copy_into(view, _fitted(source, view.shape))
    else:
        fill(view, source)


def _fitted(source: GpuArray, shape: Sequence[int]) -> GpuArray:
    """Return a value that broadcasts to a shape; leading dimensions of length one are dropped.

    Raises `ValueError`: it does not broadcast.
    """
    source = source.with_layout(source.layout.without_leading_ones(len(shape)))
    try:
        source.layout.broadcast_to(shape)
    except ValueError:
        raise ValueError(
            f"could not broadcast input array from shape {source.shape} into shape {tuple(shape)}"
        ) from None
    return source


def _assign_masked(x: GpuArray, mask: Any, source: Any) -> None:
    """Enqueue the assignment of one value where a mask of the array's shape is true; nothing waits."""
    error = mask_mismatch(x.shape, mask.shape)
    if error is not None:
        raise error
    if isinstance(mask, np.ndarray):
        mask = x.context.from_host(mask)
    if isinstance(source, GpuArray):
        source = source.with_layout(Layout((), (), source.layout.offset))
        if source.dtype != x.dtype:
            source = cast_to(source, x.dtype)
        elif share_memory(source, x):
            source = copied(source)
    apply(OPERATIONS["where"], (mask, source, x), x)


def _assign_values(x: GpuArray, mask: GpuArray, values: GpuArray, accumulate: bool) -> None:
    """Set, or add to, elements where a mask of the device is true; waits for their number, to compare the shapes."""
    common_context("x[mask] = y", [x, mask])
    cache, key = thread_cache(), (x.context, MaskAssign, x.dtype, x.ndim, values.dtype, values.ndim, accumulate)
    if key not in cache:
        options: dict[str, Any] = {"value_dtype": str(values.dtype), "value_ndim": values.ndim}
        cache[key] = MaskAssign(x.context, str(x.dtype), x.ndim, accumulate=accumulate, **options)
    cache[key].update(x, values, mask)


def _write(x: GpuArray, items: list[Any], source: Any, accumulate: bool) -> None:
    """Enqueue an assignment, or an addition, to what arrays select."""
    selection = _select(x, items)
    if not isinstance(source, GpuArray):
        scalar, source = source, x.context.empty((), x.dtype)
        fill(source, scalar)
    values = _fitted(source, selection.result_shape)
    count, place = len(selection.shape), selection.place
    full = broadcast_to(values, selection.result_shape)
    # The kernel has the dimensions of the index arrays first.
    order = (*range(place, place + count), *range(place), *range(place + count, full.ndim))
    full = full.with_layout(full.layout.transpose(order))
    flat = full.layout.reshape((prod(selection.shape), *selection.rest)) if full.size else None
    if flat is None:
        full = copied(full)
        flat = Layout.contiguous((prod(selection.shape), *selection.rest))
    routine = _routine(
        Scatter,
        selection.view,
        selection,
        accumulate=accumulate,
        value_dtype=str(source.dtype),
        value_ndim=1 + len(selection.rest),
    )
    values = full.with_layout(flat)
    _enqueue(x, routine, selection, lambda: routine.update(selection.view, values, *selection.indices))


@takes_arrays
def add_at(x: GpuArray, index: Any, value: Any) -> None:
    """Add to elements in place, as ``numpy.add.at`` does: repeated indices add up, in a fixed order.

    Parameters
    ----------
    x
        An array, which is changed.
    index
        An index as in ``x[index]``: integers, slices, masks, arrays of the device or the host, or a tuple of these.
    value
        A number, or an array that broadcasts to ``x[index]``; it is cast to the dtype of `x`.

    Raises
    ------
    IndexError
        An index of the host is out of bounds. One in a device array is found by the next wait.
    ValueError
        The array is read-only, or `value` does not broadcast.
    """
    check_writable(x)
    items = _expanded(x, index)
    source = _source(x, value)
    if not any(isinstance(item, GpuArray | np.ndarray) for item in items):
        view = basic_index(x, tuple(items))
        view += source
        return
    if isinstance(source, GpuArray) and _is_whole_mask(x, items) and MaskAssign.takes(str(x.dtype), True):
        _assign_values(x, items[0], source, accumulate=True)
        return
    _write(x, items, source, accumulate=True)


@takes_arrays
def take(
    x: GpuArray, indices: Any, /, axis: int | None = None, out: GpuArray | None = None, mode: str = "raise"
) -> GpuArray:
    """Return elements, or slices along a dimension, by number.

    Parameters
    ----------
    x
        An array.
    indices
        Integers: an array of the device or the host, or a list; negative ones count from the end.
    axis
        The dimension; None takes from the flattened array.
    out
        An array that the result is written into.
    mode
        The treatment of indices out of bounds: ``"raise"``; ``"wrap"``, where counting goes on at the other end;
        ``"clip"``, where they become the first and the last one, negative ones too.

    Raises
    ------
    TypeError
        The indices are no integers.
    IndexError
        An index of the host is out of bounds. One in a device array is found by the next wait.
    """
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    place = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    if not isinstance(indices, GpuArray):
        indices = np.asarray(indices)
        indices = indices if indices.size else indices.astype(np.int64)
    if indices.dtype.kind not in "iu":
        raise TypeError(f"take: indices are integers, not {indices.dtype}; a mask is taken by x[mask]")
    if mode != "raise":
        indices = _within(indices, x.shape[place], mode)
    result = take_index(x, (*(slice(None),) * place, indices))
    return result if out is None else assign_result("take", out, result)


def _within(indices: Any, length: int, mode: str) -> Any:
    """Return indices that are in bounds.

    Raises `ValueError`: there is no such mode. Raises `IndexError`: there is nothing to take.
    """
    if mode not in ("wrap", "clip"):
        raise ValueError(f"take: mode must be 'raise', 'wrap' or 'clip', not {mode!r}")
    if not length and indices.size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    if not indices.size:
        return indices
    if isinstance(indices, np.ndarray):
        return indices % length if mode == "wrap" else indices.clip(0, length - 1)
    wide = cast_to(indices, np.dtype("int64"))
    if mode == "wrap":
        return apply(OPERATIONS["remainder"], (wide, length))
    return apply(OPERATIONS["clip"], (wide, 0, length - 1))


@takes_arrays
def nonzero(x: GpuArray, /) -> tuple[GpuArray, ...]:
    """Return the indices of elements that are not zero, in C order; waits for the device.

    Parameters
    ----------
    x
        An array of one dimension or more.

    Returns
    -------
    tuple of GpuArray
        A vector of int64 for each dimension.

    Raises
    ------
    ValueError
        The array is 0-d.
    """
    if not x.ndim:
        raise ValueError("nonzero of a 0-d array is not defined: take reshape(x, (1,))")
    found: tuple[GpuArray, ...] = nonzero_of(x)
    return found
