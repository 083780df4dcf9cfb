"""Reduction of any axes of a strided array."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pytensor_cl.codegen.dtypes import computed, is_complex, literal, needs_fp64, part
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.base.limits import KERNEL_DIMS
from pytensor_cl.routines.base.routine import Plans, Routine
from pytensor_cl.routines.base.two_pass import KernelLaunch, PartialResults, TwoPass
from pytensor_cl.routines.reduction import plan as planning
from pytensor_cl.routines.reduction.limits import SIMT_LOAD_BYTES
from pytensor_cl.routines.reduction.plan import Problem, RowPacking, SimtVariant, Split, Variant
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

_NARROWER = {"f": "float32", "c": "complex64"}  # accumulators of devices without double precision


@dataclass(frozen=True)
class Operation:
    """An associative, commutative operation.

    `combine`: OpenCL C expression of the values `a` and `b`, scalars or vectors, of an integer dtype; `identity`: value
    that changes nothing, for a dtype; `real`: the expression for floating point; None where the operation is for
    integers only; `pairs`: the expression for complex numbers, or the name of one of
    kernels/reduction/accumulator.mako; None where there is none; `boolean`: the operation that does the same on truth
    values; `compensation`: method to carry the rounding error along, if there is one; `has_identity`: whether the
    reduction of nothing is a value.
    """

    combine: str
    identity: Callable[[np.dtype], object]
    real: str | None
    boolean: str
    compensation: str | None = None
    has_identity: bool = True
    pairs: str | None = None


def _lowest(dtype: np.dtype) -> object:
    return -inf if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: np.dtype) -> object:
    return inf if dtype.kind == "f" else np.iinfo(dtype).max


def _all_bits(dtype: np.dtype) -> object:
    return True if dtype.kind == "b" else ~dtype.type(0)


_WITHOUT_ZEROS = "a == 0 ? b : (b == 0 ? a : a * b)"

OPERATIONS: dict[str, Operation] = {
    "add": Operation("a + b", lambda _: 0, "a + b", "or", "add", pairs="a + b"),
    "mul": Operation("a * b", lambda _: 1, "a * b", "and", "mul", pairs="product"),
    # NaN wins, as in NumPy: it is taken from b, and in a it loses no comparison.
    "maximum": Operation("max(a, b)", _lowest, "(b > a) | (b != b) ? b : a", "or", has_identity=False),
    "minimum": Operation("min(a, b)", _highest, "(b < a) | (b != b) ? b : a", "and", has_identity=False),
    "and": Operation("a & b", _all_bits, None, "and"),
    "or": Operation("a | b", lambda _: 0, None, "or"),
    "xor": Operation("a ^ b", lambda _: 0, None, "xor"),
    # The product of what is not zero; zero if nothing is.
    "mul_without_zeros": Operation(_WITHOUT_ZEROS, lambda _: 0, _WITHOUT_ZEROS, "or", pairs="product_without_zeros"),
}


@dataclass(frozen=True)
class _Pass:
    """A pass of a reduction.

    `pair_in`, `pair_out`: whether values come, or go, with their rounding errors; `kernels`: kernels that were
    launched, by variant and index type.
    """

    in_dtype: str
    out_dtype: str
    pair_in: bool = False
    pair_out: bool = False
    kernels: dict[object, Kernel] = field(default_factory=dict)


class Reduction(Routine):
    """Reduce axes of an array of any strides.

    The result is the same each time for the same layout on the same device: nothing depends on the order in
    which work-items run.

    Parameters
    ----------
    context
        The context of the arrays and kernels.
    operation
        A key of `OPERATIONS`. ``maximum`` and ``minimum`` propagate NaN; ``and``, ``or`` and ``xor`` are for
        bool and integers; complex numbers have sums and products only. On bool accumulators ``add`` is ``or`` and
        ``mul`` is ``and``, as in NumPy.
    in_dtype, acc_dtype, out_dtype
        Dtypes that are read, computed with, and written. Where the device has no double precision,
        accumulators of float64 become pairs of float32, a value and its rounding error (sums and products), and so
        do those of complex128 for sums. Accumulators of float16 are float32.
    ndim
        Number of dimensions of the input.
    axes
        The axes to reduce; None for all, an empty tuple for none (a copy with another dtype).
    schedule
        ``"cpu"`` or ``"simt"``; None takes what suits the device.
    has_fp64
        Whether to use double precision; None uses it if the device supports it.
    group
        Work-items of a work-group on schedule simt, a power of two; None takes what suits the device.
    initial
        ``maximum`` and ``minimum`` of nothing are the lowest and the highest value of the dtype, not an error.

    Raises
    ------
    UnsupportedDtype
        The device lacks a dtype, or the operation does not take it.
    """

    def __init__(
        self,
        context: Context,
        operation: str,
        in_dtype: str,
        acc_dtype: str,
        out_dtype: str,
        ndim: int,
        axes: Sequence[int] | None = None,
        *,
        schedule: str | None = None,
        has_fp64: bool | None = None,
        group: int | None = None,
        initial: bool = False,
    ) -> None:
        super().__init__(context, schedule)
        self.operation = operation
        self.initial = initial
        self.ndim = ndim
        self.axes = frozenset(range(ndim) if axes is None else normalize_axis_tuple(axes, ndim, "axis"))
        self.output_dtypes = (out_dtype,)
        self._has_fp64 = context.info.has_fp64 if has_fp64 is None else has_fp64
        self._check_storage(in_dtype, out_dtype)
        is_narrowed = needs_fp64(acc_dtype) and not self._has_fp64
        self.acc_dtype = _NARROWER[np.dtype(acc_dtype).kind] if is_narrowed else computed(acc_dtype)
        self._compensation = OPERATIONS[operation].compensation if is_narrowed else None
        if is_complex(self.acc_dtype) and self._compensation != "add":
            self._compensation = None
        self._lanes = 8 if np.dtype(in_dtype).itemsize >= 8 else 16
        self._load_lanes = planning.simt_lanes(in_dtype) if self.schedule == "simt" else 1
        self._most_items = group or context.tuning["reduction.group"]
        self._fixed = self._fixed_arguments()
        pairs = bool(self._compensation)
        self._single_pass = _Pass(in_dtype, out_dtype)
        self._partial_pass = _Pass(in_dtype, self.acc_dtype, pair_out=pairs)
        self._final_pass = _Pass(self.acc_dtype, out_dtype, pair_in=pairs)
        self._joined_passes = _Pass(in_dtype, out_dtype)
        is_plain = np.dtype(self.acc_dtype).kind in "fiuc" and not pairs
        has_counters = self.schedule == "simt" and context.info.features.last_group and is_plain
        # Made here: kernels that are repeated later find them zero.
        self._counters = context.counters if has_counters and context.tuning["reduction.one_launch"] else None
        self._plans: Plans[TwoPass] = Plans()

    def _check_storage(self, *stored: str) -> None:
        if not self._has_fp64 and any(map(needs_fp64, stored)):
            name = self.context.info.name
            raise UnsupportedDtype(f"{name} has no double precision: float64 cannot be used on it")

    def _fixed_arguments(self) -> dict[str, Any]:
        """Arguments that all kernels of the reduction share."""
        dtype = np.dtype(self.acc_dtype)
        operation = OPERATIONS[self.operation]
        if dtype.kind == "b":
            operation = OPERATIONS[operation.boolean]
        combine = {"f": operation.real, "c": operation.pairs}.get(dtype.kind, operation.combine)
        if combine is None:
            device_updates = "real numbers" if dtype.kind == "c" else "bool and integers"
            raise UnsupportedDtype(f"reduction {self.operation!r} is for {device_updates}, not {dtype}")
        return {
            "combine": combine,
            "identity": literal(operation.identity(dtype), dtype),
            "acc_dtype": self.acc_dtype,
            "compensation": self._compensation,
            "outer_dims": max(KERNEL_DIMS, self.ndim - len(self.axes)),
            "reduced_dims": max(1, len(self.axes)),
        }

    @property
    def _group(self) -> int:
        """Work-items of a work-group on schedule simt; each has 1.5 accumulators in local memory."""
        nbytes = np.dtype(self.acc_dtype).itemsize * (2 if self._compensation else 1)
        return self.limits.size(self._most_items, nbytes + nbytes // 2 + 1)

    def _forget_kernels(self) -> None:
        for each in (self._single_pass, self._partial_pass, self._final_pass, self._joined_passes):
            each.kernels.clear()

    @property
    def is_compensated(self) -> bool:
        """Whether sums carry their rounding errors along."""
        return bool(self._compensation)

    @property
    def accumulator(self) -> dict[str, Any]:
        """Arguments for templates that use this reduction's accumulators, without the dtypes of inputs."""
        return {key: self._fixed[key] for key in ("combine", "identity", "acc_dtype", "compensation")}

    def _source(self, reduction_pass: _Pass, variant: Variant | SimtVariant, index: str) -> KernelSource:
        arguments: dict[str, Any] = {
            **self._fixed,
            "in_dtype": reduction_pass.in_dtype,
            "out_dtype": reduction_pass.out_dtype,
            "pair_in": reduction_pass.pair_in,
            "pair_out": reduction_pass.pair_out,
            "index": index,
            "geometry": planning.geometry_struct(index, self._fixed["outer_dims"], self._fixed["reduced_dims"]),
        }
        is_half = "float16" in (reduction_pass.in_dtype, reduction_pass.out_dtype)
        arguments["preambles"] = (render("common/half"),) if is_half else ()
        if isinstance(variant, SimtVariant):
            joins = reduction_pass is self._joined_passes
            arguments["preambles"] += (render("common/warp_shuffle", dtype=self.acc_dtype),)
            arguments["preambles"] += (render("common/device_fence"),) if joins else ()
            arguments |= {"unit": True, "group": self._group, "load_alignment": SIMT_LOAD_BYTES, "joins": joins}
            return kernel_source("reduction/simt", **variant._asdict(), **arguments)
        vectors: dict[str, Any] = {"lanes": self._lanes, "tile_vectors": self.context.tuning["reduction.column_tile"]}
        return kernel_source("reduction/cpu", **variant._asdict(), **vectors, **arguments)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels for contiguous inputs: in one pass, and in two, which may be one launch."""
        index = "int" if self.schedule == "simt" else "long"
        is_inner_reduced = self.ndim == 0 or self.ndim - 1 in self.axes
        main = self._usual_variant(is_inner_reduced, self._load_lanes)
        last = self._usual_variant(len(self.axes) == self.ndim, 1)
        whole = self._source(self._single_pass, main, index)
        if not self.axes:
            return (whole,)
        if self._counters is not None:
            return whole, self._source(self._joined_passes, main, index)
        return whole, self._source(self._partial_pass, main, index), self._source(self._final_pass, last, index)

    def _usual_variant(self, is_along: bool, lanes: int) -> Variant | SimtVariant:
        if self.schedule == "simt":
            return SimtVariant(is_along, True, lanes if is_along else 1)
        return Variant("rows" if is_along else "columns", unit=True)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output: the outer dimensions.

        Raises `ValueError`: the input has another number of dimensions, or it is ``maximum`` or ``minimum`` of no
        elements.
        """
        (source,) = inputs
        if source.ndim != self.ndim:
            raise ValueError(f"the reduction takes {self.ndim} dimensions, not shape {source.shape}")
        is_empty = any(source.shape[axis] == 0 for axis in self.axes)
        if is_empty and not (self.initial or OPERATIONS[self.operation].has_identity):
            raise ValueError(f"zero-size array to reduction operation {self.operation} which has no identity")
        return (Layout.contiguous([n for axis, n in enumerate(source.shape) if axis not in self.axes]),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue one pass or two, or both in one launch; the output may have any strides."""
        (output,), (source,) = outputs, inputs
        if not isinstance(source, GpuArray):
            source = self.context.from_host(source)
        shape, strides, offset = source.layout
        _, out_strides, out_offset = output.layout
        is_aligned = offset % self._load_lanes == 0
        key = shape, strides, out_strides, is_aligned
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans.store(
                key, self.limits.with_fitting_groups(partial(self._plan, *key), self._forget_kernels)
            )

        queue, partials = self.context.queue, plan.allocate(self.context)
        if plan.joins:
            (launch,) = plan.first
            starts = np.int64(offset + launch.in_shift), np.int64(out_offset + launch.out_shift)
            results = output.buffer, starts[1], partials, self.context.counters.buffer
            launch.enqueue(queue, source.buffer, starts[0], *results, launch.geometry)
            return
        target, target_at = (output.buffer, out_offset) if plan.final is None else (partials, 0)
        for launch in plan.first:
            starts = np.int64(offset + launch.in_shift), np.int64(target_at + launch.out_shift)
            launch.enqueue(queue, source.buffer, starts[0], target, starts[1], launch.geometry)
        if plan.final is not None:
            starts = np.int64(plan.final.in_shift), np.int64(out_offset + plan.final.out_shift)
            plan.final.enqueue(queue, partials, starts[0], output.buffer, starts[1], plan.final.geometry)

    def _plan(
        self, shape: tuple[int, ...], strides: tuple[int, ...], out_strides: tuple[int, ...], is_aligned: bool
    ) -> TwoPass:
        """Plan the launches; `is_aligned`: the input begins at a multiple of the vectors of schedule simt."""
        problem = planning.normal_form(shape, strides, out_strides, self.axes)
        if not problem.outputs:
            return TwoPass()
        packing = planning.packed_rows(problem, self._lanes) if self.schedule == "cpu" else None
        if packing:
            return self._plan_packed_rows(problem, packing)
        first = planning.outermost_stage(problem) if self.schedule == "cpu" else None
        if first:
            split = self._split(first, may_split=True)
            last = planning.after_outermost_stage(problem, first, split.chunks)
            return self._plan_passes([(first, split)], last, first.outputs * split.chunks)
        lanes = self._load_lanes if is_aligned else 1
        split = self._split(problem, may_split=True, lanes=lanes)
        if split.chunks == 1:
            return TwoPass((self._kernel_launch(self._single_pass, problem, split, 0, lanes),))
        if self._counters is not None and planning.joins_quickly(split, self._counters.size):
            joined = self._kernel_launch(self._joined_passes, problem, split, 0, lanes)
            partials = PartialResults.of(problem.outputs * split.chunks, [(self.acc_dtype, False)])
            return TwoPass((joined,), None, partials.nbytes)
        first, second = planning.in_two_passes(problem, split.chunks)
        error_stride = problem.outputs * split.chunks  # the rounding errors, if there are any, follow the values
        return self._plan_passes([(first, split)], second, error_stride, lanes)

    def _plan_packed_rows(self, problem: Problem, packing: RowPacking) -> TwoPass:
        split = self._split(packing.first, may_split=True)
        whole = packing.first.outputs * split.chunks
        passes = [(packing.first, split)]
        if packing.rest.outputs:
            passes.append((packing.rest._replace(out_shift=whole), self._split(packing.rest, may_split=False)))
        second = planning.after_packed_rows(problem, packing, split.chunks)
        return self._plan_passes(passes, second, whole + packing.rest.outputs)

    def _plan_passes(
        self, passes: Sequence[tuple[Problem, Split]], last: Problem, error_stride: int, lanes: int = 1
    ) -> TwoPass:
        """Plan passes that leave `error_stride` partial results, and the one that reduces these."""
        first = tuple(self._kernel_launch(self._partial_pass, *each, error_stride, lanes) for each in passes)
        final = self._kernel_launch(self._final_pass, last, self._split(last, may_split=False), error_stride)
        partials = PartialResults.of(error_stride, [(self.acc_dtype, self.is_compensated)])
        return TwoPass(first, final, partials.nbytes)

    def _split(self, problem: Problem, may_split: bool, lanes: int = 1) -> Split:
        units, tuning = self.context.info.compute_units, self.context.tuning
        if self.schedule == "simt":
            lanes = SimtVariant.of(problem, lanes).lanes
            return planning.split_simt(problem, units, self._group, may_split=may_split, lanes=lanes, tuning=tuning)
        is_rounded = part(self.acc_dtype) == "float32" and not self._compensation
        return planning.split_cpu(
            problem,
            units,
            self._lanes,
            may_split=may_split,
            is_rounded=is_rounded,
            pattern=planning.select_variant(problem, self._lanes).pattern,
            may_be_wide=True,
            tuning=tuning,
        )

    def _kernel_launch(
        self, reduction_pass: _Pass, problem: Problem, split: Split, error_stride: int, lanes: int = 1
    ) -> KernelLaunch:
        variant: Variant | SimtVariant = planning.select_variant(problem, self._lanes)
        index = "long"
        if self.schedule == "simt":
            index = "int" if planning.fits_int(problem) else "long"
            variant = SimtVariant.of(problem, lanes)
            lanes = variant.lanes
        key = variant, index
        if key not in reduction_pass.kernels:
            reduction_pass.kernels[key] = self.limits.kernel(
                self._source(reduction_pass, variant, index), None, split.local_size[0]
            )
        dims = self._fixed["outer_dims"], self._fixed["reduced_dims"]
        geometry = planning.pack_geometry(problem, split, error_stride, dims, index, lanes)
        sizes = split.global_size, split.local_size
        return KernelLaunch(reduction_pass.kernels[key], *sizes, geometry, problem.in_shift, problem.out_shift)
