"""Launches of element functions on arrays of any strides: few kernels serve all shapes."""

from collections.abc import Sequence
from threading import local
from typing import Any

import numpy as np

from pytensor_cl.routines.elemwise.routine import Cast, ElementFunction, collapsed_ndim
from pytensor_cl.routines.elemwise.routine import Elemwise as ElemwiseRoutine
from pytensor_cl.runtime.array import GpuArray, share_memory
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout

_KERNEL_DIMS = (2, 4, 8)
"""Dimensions of the kernels; arrays have fewer after adjacent dimensions are merged."""
_MAX_LAYOUTS = 256
"""Layouts of which the launches are remembered."""


class Launcher:
    """The kernels of an element function on a context, for one thread: a kernel holds its arguments between two calls.

    `by_value`: for each input, whether it is a NumPy scalar.
    """

    __slots__ = ("_by_value", "_context", "_function", "_places", "_plans", "_routines")

    def __init__(self, context: Context, function: ElementFunction, by_value: Sequence[bool]) -> None:
        self._context, self._function = context, function
        self._by_value = tuple(by_value)
        self._places = [k for k, value in enumerate(by_value) if not value]
        self._routines: dict[int, ElemwiseRoutine] = {}
        self._plans: dict[Any, tuple[ElemwiseRoutine, Any]] = {}

    def launch(self, output: GpuArray, inputs: Sequence[Any]) -> None:
        """Enqueue the kernel; each input broadcasts to the output, which may have any strides."""
        arrays = [inputs[k] for k in self._places]
        arrays.append(output)
        key = tuple([array.layout[:2] for array in arrays])
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= _MAX_LAYOUTS:
                self._plans.clear()
            layouts = [array.layout for array in arrays]
            routine = self._routine_for(layouts)
            found = self._plans[key] = routine, routine.plan_for(layouts)
        routine, plan = found
        routine.launch_plan(plan, arrays, inputs)

    def _routine_for(self, layouts: list[Layout]) -> ElemwiseRoutine:
        needed = collapsed_ndim(layouts)
        return self._routine(next((n for n in _KERNEL_DIMS if n >= needed), needed))

    def _routine(self, ndim: int) -> ElemwiseRoutine:
        if ndim not in self._routines:
            none_known = tuple(() if value else (None,) * ndim for value in self._by_value)
            self._routines[ndim] = ElemwiseRoutine(self._context, self._function, none_known, ndim, self._by_value)
        return self._routines[ndim]

    def sources(self) -> tuple[Any, ...]:
        """Return the kernel of contiguous arrays."""
        return self._routine(_KERNEL_DIMS[0]).sources()


_thread = local()


def thread_cache() -> dict[Any, Any]:
    """Return a dictionary of the thread's own, for objects that hold kernels."""
    try:
        return _thread.cache
    except AttributeError:
        _thread.cache = {}
        return _thread.cache


def cast_launcher(context: Context, source: np.dtype, target: np.dtype, by_value: bool) -> Launcher:
    """Return the thread's kernels of a cast, or of a fill with a number."""
    cache = thread_cache()
    key = context, "cast", source, target, by_value
    launcher = cache.get(key)
    if launcher is None:
        launcher = cache[key] = Launcher(context, Cast(str(source), str(target)), (by_value,))
    return launcher


def unaliased(source: GpuArray, target: GpuArray) -> GpuArray:
    """Return an array that can be read while `target` is written: itself, or a copy if both overlap otherwise.

    A kernel may read and write the same elements in the same places.
    """
    if source.layout == target.layout and source.dtype == target.dtype:
        return source
    return copied(source) if share_memory(source, target) else source


def copied(array: GpuArray) -> GpuArray:
    """Return a C-contiguous copy."""
    result = array.context.empty(array.shape, array.dtype)
    if result.size:
        cast_launcher(array.context, array.dtype, array.dtype, False).launch(result, (array,))
    return result


def cast_to(array: GpuArray, dtype: np.dtype) -> GpuArray:
    """Return a C-contiguous copy with another dtype."""
    result = array.context.empty(array.shape, array.context.check_dtype(dtype))
    if result.size:
        cast_launcher(array.context, array.dtype, dtype, False).launch(result, (array,))
    return result


def copy_into(target: GpuArray, source: GpuArray) -> None:
    """Enqueue the assignment of an array that broadcasts to `target`; casts as NumPy's assignment does."""
    if target.size:
        source = unaliased(source, target)
        cast_launcher(target.context, source.dtype, target.dtype, False).launch(target, (source,))


def fill(target: GpuArray, value: np.generic) -> None:
    """Enqueue the assignment of a number to every element."""
    if target.size:
        dtype = target.dtype
        cast_launcher(target.context, dtype, dtype, True).launch(target, (value,))
