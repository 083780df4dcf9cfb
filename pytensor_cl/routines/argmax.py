"""Position of the greatest or the least element along axes of a strided array."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pytensor_cl.codegen.dtypes import computed, is_complex
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import COLUMN_TILE_VECTORS, GROUP_ITEMS, ITEMS_PER_UNIT, KERNEL_DIMS
from pytensor_cl.routines.base.routine import Plans, Routine
from pytensor_cl.routines.base.two_pass import KernelLaunch, PartialResults, TwoPass
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.routines.reduction import plan as planning
from pytensor_cl.routines.reduction.limits import SIMT_LOAD_BYTES
from pytensor_cl.routines.reduction.plan import Problem, SimtVariant, Split
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel

MIN_ROW_ELEMENTS = 64  # shorter contiguous rows are searched with vectors across rows
RESULT = np.dtype("int64")


def _ordered_form(layout: Layout, out_strides: Sequence[int], axes: Sequence[int]) -> Problem:
    """Put the outer dimensions in normal form. The reduced ones stay in C order, which determines the first element."""
    pairs = list(zip(layout.shape, layout.strides, strict=True))
    outer = [pair for axis, pair in enumerate(pairs) if axis not in axes]
    shape, strides = zip(*outer, strict=True) if outer else ((), ())
    gone = [pairs[axis] for axis in axes]
    sizes, (steps,) = collapse([n for n, _ in gone], ([step for _, step in gone],))
    reduced = tuple(zip(sizes, steps, strict=True))[::-1] or ((1, 1),)
    return planning.normal_form(shape, strides, out_strides, ())._replace(reduced=reduced)


def _pattern_of(problem: Problem, lanes: int) -> str:
    """Return the kernel of schedule cpu: finding a position costs a row more than an element of a column."""
    columns, step = problem.columns
    if columns < lanes:
        return "rows"
    if step != 1 and problem.total <= MIN_ROW_ELEMENTS:
        return "short"
    return "columns" if problem.run[0] < MIN_ROW_ELEMENTS else planning.select_variant(problem).pattern


class Argmax(Routine):
    """Return where the greatest element is: its number in C order of the reduced axes.

    The first of equal ones counts, and NaN counts as greater than any number, as in NumPy. float16 is cast to float32.

    `dtype`: dtype of the input; the output is int64; `ndim`: number of dimensions of the input; `axes`: the axes to
    reduce; None for all; `group`: work-items of a work-group on schedule simt, a power of two; None takes what suits
    the device.
    """

    name = "argmax"

    def __init__(
        self,
        context: Context,
        dtype: str,
        ndim: int,
        axes: Sequence[int] | None = None,
        *,
        schedule: str | None = None,
        group: int | None = None,
    ) -> None:
        super().__init__(context, schedule)
        if is_complex(dtype):
            raise UnsupportedDtype(f"there is no {self.name} kernel of {dtype}")
        self.ndim = ndim
        self.axes = tuple(sorted(range(ndim) if axes is None else normalize_axis_tuple(axes, ndim, "axis")))
        self.output_dtypes = (str(RESULT),)
        self._widen = None if computed(dtype) == dtype else Copy(context, dtype, ndim, computed(dtype), self.schedule)
        self._dtype = dtype = computed(dtype)
        self._lanes = 8 if np.dtype(dtype).itemsize == 8 else 16
        self._most_items = group or GROUP_ITEMS
        self._load_lanes = planning.simt_lanes(dtype) if self.schedule == "simt" else 1
        self._dims = max(KERNEL_DIMS, ndim - len(self.axes)), max(1, len(self.axes))
        self._kernels: dict[tuple[str | SimtVariant, str, str], Kernel] = {}
        self._plans: Plans[TwoPass] = Plans()

    @property
    def _group(self) -> int:
        """Work-items of a work-group on schedule simt; each has values and places in local memory."""
        return self.limits.size(self._most_items, 3 * RESULT.itemsize)

    def _source(self, pattern: str | SimtVariant, index: str) -> KernelSource:
        arguments: dict[str, Any] = {"dtype": self._dtype, "is_least": self.name == "argmin", "index": index}
        arguments["geometry"] = planning.geometry_struct(index, *self._dims)
        arguments |= {"outer_dims": self._dims[0], "reduced_dims": self._dims[1]}
        if isinstance(pattern, SimtVariant):
            kinds = self._dtype, "int32" if index == "int" else "int64"
            shuffles = tuple(dict.fromkeys(render("common/warp_shuffle", dtype=kind) for kind in kinds))
            arguments |= {"group": self._group, "load_alignment": SIMT_LOAD_BYTES, **pattern._asdict()}
            return kernel_source("argmax/simt", preambles=shuffles, **arguments)
        access = {t: render("common/vector_access", dtype=t, lanes=self._lanes) for t in (self._dtype, str(RESULT))}
        vectors: dict[str, Any] = {"lanes": self._lanes, "tile_vectors": COLUMN_TILE_VECTORS}
        return kernel_source("argmax/cpu", preambles=tuple(access.values()), pattern=pattern, **vectors, **arguments)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel for contiguous inputs."""
        is_along = self.ndim == 0 or self.ndim - 1 in self.axes
        pattern: str | SimtVariant = "rows" if is_along else "columns"
        if self.schedule == "simt":
            pattern = SimtVariant(is_along, True, self._load_lanes if is_along else 1)
        widen = () if self._widen is None else self._widen.sources()
        return (self._source(pattern, "int" if self.schedule == "simt" else "long"), *widen)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output: the outer dimensions.

        Raises `ValueError`: the input has another number of dimensions, or no element along the axes.
        """
        (source,) = inputs
        if source.ndim != self.ndim:
            raise ValueError(f"{self.name} takes {self.ndim} dimensions, not shape {source.shape}")
        if any(source.shape[axis] == 0 for axis in self.axes):
            raise ValueError(f"attempt to get {self.name} of an empty sequence")
        return (Layout.contiguous([n for axis, n in enumerate(source.shape) if axis not in self.axes]),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue one pass or two; the output may have any strides."""
        (output,), (source,) = outputs, inputs
        if not isinstance(source, GpuArray):
            source = self.context.from_host(source)
        if self._widen is not None:
            (source,) = self._widen(source)
        layout, (_, out_strides, out_offset) = source.layout, output.layout
        is_aligned = layout.offset % self._load_lanes == 0
        key = layout.shape, layout.strides, out_strides, is_aligned
        plan = self._plans.get(key)
        if plan is None:
            make = partial(self._plan, layout, out_strides, self._load_lanes if is_aligned else 1)
            plan = self._plans.store(key, self.limits.with_fitting_groups(make, self._kernels.clear))
        queue, found = self.context.queue, plan.allocate(self.context)
        target, target_at = (output.buffer, out_offset) if plan.final is None else (found, 0)
        for launch in plan.first:
            starts = np.int64(layout.offset + launch.in_shift), np.int64(target_at + launch.out_shift)
            launch.enqueue(queue, source.buffer, starts[0], target, starts[1], launch.geometry)
        if plan.final is not None:
            starts = np.int64(layout.offset + plan.final.in_shift), np.int64(out_offset + plan.final.out_shift)
            arrays = source.buffer, starts[0], found, output.buffer, starts[1]
            plan.final.enqueue(queue, *arrays, plan.final.geometry)

    def _plan(self, layout: Layout, out_strides: tuple[int, ...], lanes: int) -> TwoPass:
        problem = _ordered_form(layout, out_strides, self.axes)
        if not problem.outputs:
            return TwoPass()
        pattern: str | SimtVariant = _pattern_of(problem, self._lanes)
        if self.schedule == "simt":
            pattern = SimtVariant.of(problem, lanes)
        split = self._split(problem, pattern)
        if split.chunks == 1:
            return TwoPass((self._kernel_launch(problem, split, pattern, ""),))
        partial_problem, _ = planning.in_two_passes(problem, split.chunks)
        first = self._kernel_launch(partial_problem, split, pattern, "")
        final = self._kernel_launch(problem, self._finish_range(split, problem.outputs), pattern, "_finish")
        return TwoPass((first,), final, PartialResults.of(problem.outputs * split.chunks, [(RESULT, False)]).nbytes)

    def _finish_range(self, split: Split, outputs: int) -> Split:
        units, local = self.context.info.compute_units, 1 if self.schedule == "cpu" else self._group
        groups = min(ceil_div(outputs, local), ITEMS_PER_UNIT * units if self.schedule == "cpu" else 32 * units)
        return split._replace(global_size=(groups * local,), local_size=(local,))

    def _split(self, problem: Problem, pattern: str | SimtVariant) -> Split:
        units = self.context.info.compute_units
        if isinstance(pattern, SimtVariant):
            return planning.split_simt(problem, units, self._group, may_split=True, lanes=pattern.lanes)
        return planning.split_cpu(problem, units, self._lanes, may_split=True, is_rounded=False, pattern=pattern)

    def _kernel_launch(self, problem: Problem, split: Split, pattern: str | SimtVariant, suffix: str) -> KernelLaunch:
        index = "int" if self.schedule == "simt" and planning.fits_int(problem) else "long"
        key = pattern, index, suffix
        if key not in self._kernels:
            source = self._source(pattern, index)
            self._kernels[key] = self.limits.kernel(source, source.name + suffix, split.local_size[0])
        lanes = pattern.lanes if isinstance(pattern, SimtVariant) else 1
        geometry = planning.pack_geometry(problem, split, 0, self._dims, index, lanes)
        shifts = problem.in_shift, problem.out_shift
        return KernelLaunch(self._kernels[key], split.global_size, split.local_size, geometry, *shifts)


class Argmin(Argmax):
    """Return where the least element is; NaN counts as less than any number, and all else is as in `Argmax`."""

    name = "argmin"
