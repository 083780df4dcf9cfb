"""Sort the rows of a strided array, or find the order of their elements."""

from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.along_axis import AlongAxis, Operands
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT, ITEMS_PER_UNIT, KERNEL_DIMS, UINT_LIMIT
from pytensor_cl.routines.base.ndrange import local_memory
from pytensor_cl.routines.sort import plan as planning
from pytensor_cl.routines.sort.limits import (
    DIGIT_BITS,
    DIGIT_BYTES,
    FEW_CHUNKS,
    INDEX_DIGIT_BITS,
    ITEM_BYTES,
    ITEM_ELEMENTS,
    MAX_ITEM_ELEMENTS,
    MAX_NETWORK_BYTES,
    MAX_NETWORK_ROW_OF_MANY,
    MIN_DIGIT_BITS,
    MIN_LONG_ROW,
)
from pytensor_cl.routines.sort.plan import Problem, Split
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class _Digits(NamedTuple):
    """Digits of a radix sort: bits per digit, number of digits, and the C type that counts elements."""

    bits: int
    passes: int
    counter: str

    @property
    def counter_bytes(self) -> int:
        """Bytes of a count."""
        return 4 if self.counter == "uint" else 8


class _Plan(NamedTuple):
    """Launch parameters without buffers and the arrays' offsets; no kernels where there is nothing to do."""

    kernels: tuple[Kernel, ...]
    problem: Problem
    split: Split
    geometry: bytes = b""
    group: int = 1
    digits: _Digits | None = None


_NO_TASKS = Split(0, 0, 0)
WARP = 32
"""Work-items of a warp, where the feature ``warp_votes`` is."""


class Sort(AlongAxis[_Plan]):
    """Sort along an axis, ascending, as `numpy.sort` does; NaN comes last. Or descending; then NaN comes first.

    Rows that are short are sorted by a network (Batcher's merge exchange; Knuth, The Art of Computer Programming 3,
    algorithm 5.2.2M), long ones by a radix sort from the lowest digit (algorithm 5.2.5R). Of equal values only zeros
    can be distinguished: -0.0 comes before 0.0.

    `ndim`: number of dimensions, at least one; `axis`: along which; not negative; `is_descending`: whether the greatest
    comes first.
    """

    _noun = "a sort"
    _indexed = False
    _pairs = False

    def __init__(
        self,
        context: Context,
        dtype: str,
        ndim: int,
        axis: int,
        *,
        is_descending: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, ndim, axis, schedule)
        self.output_dtypes = ("int64" if self._indexed else dtype,)
        self._code = planning.key_code(dtype, self._indexed, is_descending)
        self._bits = 8 * np.dtype(dtype).itemsize
        self._dims = max(KERNEL_DIMS, ndim - 1)

    def _arguments(self, is_128_bit: bool) -> dict[str, Any]:
        key, to_key, from_key = self._code
        code = {"key": ctype(key), "to_key": to_key, "from_key": from_key}
        element, _ = planning.element_type(self._code.dtype, self._indexed, is_128_bit)
        return {
            **code,
            "element": element,
            "indexed": self._indexed,
            "is_128_bit": is_128_bit,
            "dims": self._dims,
            "geometry": planning.geometry_struct(self._dims),
        }

    @property
    def _element(self) -> int:
        """Bytes of what a network moves."""
        return planning.element_type(self._code.dtype, self._indexed, self._bits == 64)[1]

    @property
    def _lanes(self) -> int:
        return 8 if self._indexed or self._bits == 64 else 16

    @property
    def _tile(self) -> int:
        """Elements of the longest row that a network takes."""
        if self.schedule == "cpu":
            return MAX_NETWORK_ROW_OF_MANY
        return min(MAX_NETWORK_BYTES, local_memory(self.limits.info)) // self._element // 32 * 32

    def _radix_element(self, digits: _Digits) -> int:
        """Bytes of an element."""
        return planning.element_type(self._code.dtype, self._indexed, self._is_wide(digits.counter))[1]

    def _item_elements(self, digits: _Digits) -> int:
        """Elements that a work-item moves at once, schedule simt."""
        most = MAX_ITEM_ELEMENTS if self._by_warps else ITEM_ELEMENTS
        return min(most, ITEM_BYTES // self._radix_element(digits))

    @property
    def _by_warps(self) -> bool:
        """Whether the work-items of a warp find equal digits by votes."""
        return self.context.info.features.warp_votes and self.limits.info.max_work_group_size >= WARP

    def _radix_group(self, digits: _Digits) -> int:
        """Work-items of a work-group that counts digits, or moves elements: see `kernels/sort/radix_simt.mako`."""
        bins, counter, element = 1 << digits.bits, digits.counter_bytes, self._radix_element(digits)
        histogram = ceil_div(4 * bins, WARP) if self._by_warps else 0
        counts = 0 if self._by_warps else max(8 * max(1, (1 << b) // 4) for _, b in planning.split_digit(digits.bits))
        gaps = 0 if self._by_warps else self._item_elements(digits) * element // 16 + element
        moving = self._item_elements(digits) * element + gaps + histogram + counts + counter + 4
        most = self.limits.size(GROUP_ITEMS, moving, bins * (2 * counter + 4))
        return max(most, WARP) if self._by_warps else most

    def _network(self) -> KernelSource:
        arguments = self._arguments(self._bits == 64)
        if self.schedule == "simt":
            sizes: dict[str, Any] = {
                "group": self.limits.size(GROUP_ITEMS),
                "tile": self._tile,
                "itemsize": self._element,
            }
            return kernel_source("sort/network_simt", **sizes, **arguments)
        return kernel_source("sort/network_cpu", lanes=self._lanes, **arguments)

    def _radix(self, digits: _Digits) -> KernelSource:
        steps = sorted({(k == 0, k == digits.passes - 1) for k in range(digits.passes)})
        cut = {"bits": digits.bits, "passes": digits.passes, "steps": steps, "index": digits.counter}
        arguments = self._arguments(self._is_wide(digits.counter)) | cut
        if self.schedule == "simt":
            return kernel_source(
                "sort/radix_simt",
                group=self._radix_group(digits),
                items_per_thread=self._item_elements(digits),
                itemsize=self._radix_element(digits),
                by_warps=self._by_warps,
                few_chunks=FEW_CHUNKS,
                pairs=self._pairs,
                **arguments,
            )
        return kernel_source("sort/radix_cpu", **arguments)

    def _is_wide(self, counter: str) -> bool:
        return self._indexed and (self._bits == 64 or counter == "ulong")

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel for short rows; those for long rows are built when they are needed."""
        return (self._network(),)

    def _enqueue(self, plan: _Plan, source: GpuArray, operands: Operands) -> None:
        if plan.digits is not None:
            self._launch_radix(plan, plan.digits, operands)
        elif plan.kernels:
            self._launch_network(plan, operands)

    def _launch_network(self, plan: _Plan, operands: Operands) -> None:
        (kernel,), problem, split = plan.kernels, plan.problem, plan.split
        allocate = self.context.memory.allocate
        if self.schedule == "simt":
            size, local, scratch = (split.workers * plan.group,), (plan.group,), []
        else:
            size, local = (split.workers,), (1,)
            scratch = [allocate(split.workers * problem.length * self._lanes * self._element)]
        kernel.launch(self.context.queue, size, local, *operands.input, *operands.output, *scratch, plan.geometry)

    def _launch_radix(self, plan: _Plan, digits: _Digits, operands: Operands) -> None:
        queue, allocate, split, rows = self.context.queue, self.context.memory.allocate, plan.split, plan.problem.rows
        places = self._radix_element(digits) * rows * plan.problem.length
        a, b = (allocate(places if digits.passes > n else 1) for n in (1, 2))
        counts = allocate(rows * split.chunks * digits.counter_bytes << digits.bits)
        diff = allocate(8)
        if self.schedule == "simt":
            self._launch_groups(plan, digits, operands, (a, b, counts, diff))
            return
        clear, scan, *passes = plan.kernels
        clear.launch(queue, (1,), (1,), diff)
        for number, (count, scatter) in enumerate(zip(passes[::2], passes[1::2], strict=True)):
            tail = counts, diff, np.int32(number), plan.geometry
            count.launch(queue, (split.workers,), (1,), *operands.input, a, b, *tail)
            scan.launch(queue, (min(rows, split.workers),), (1,), counts, plan.geometry)
            scatter.launch(queue, (split.workers,), (1,), *operands.input, a, b, *operands.output, *tail)

    def _launch_groups(self, plan: _Plan, digits: _Digits, operands: Operands, buffers: tuple[Any, ...]) -> None:
        queue, allocate, split, rows = self.context.queue, self.context.memory.allocate, plan.split, plan.problem.rows
        a, b, counts, diff = buffers
        totals, differences = allocate(rows * digits.counter_bytes << digits.bits), allocate(8 * rows * split.chunks)
        group, bins = plan.group, rows << digits.bits
        most = GROUPS_PER_UNIT * self.context.info.compute_units
        scanned = (group * (min(most, ceil_div(bins, group)) if split.chunks <= FEW_CHUNKS else bins),)
        size, local = (split.workers * group,), (group,)
        kernels = zip(plan.kernels[::3], plan.kernels[1::3], plan.kernels[2::3], strict=True)
        for number, (count, scan, scatter) in enumerate(kernels):
            tail = np.int32(number), plan.geometry
            found = diff if number else differences
            count.launch(queue, size, local, *operands.input, a, b, counts, found, *tail)
            scan.launch(queue, scanned, local, counts, totals, differences, diff, *tail)
            scatter.launch(queue, size, local, *operands.input, a, b, *operands.output, counts, totals, diff, *tail)

    def _plan(self, layout: Layout, out_strides: tuple[int, ...]) -> _Plan:
        problem = planning.normal_form(layout, out_strides, self.axis)
        if not layout.size:
            return _Plan((), problem, _NO_TASKS)
        units = self.context.info.compute_units
        many = self._lanes * units if self.schedule == "cpu" else problem.rows + 1
        if planning.uses_network(problem, many, self._tile):
            return self._network_plan(problem, units)
        return self._radix_plan(problem, units)

    def _radix_plan(self, problem: Problem, units: int) -> _Plan:
        digits = self._digits(problem)
        group = 1 if self.schedule == "cpu" else self._radix_group(digits)
        tile = 0 if self.schedule == "cpu" else group * self._item_elements(digits)
        split = planning.share_out(problem, units, tile)
        geometry = planning.pack_geometry(problem, split, self._dims)
        return _Plan(self._radix_kernels(digits, group), problem, split, geometry, group, digits)

    def _network_plan(self, problem: Problem, units: int) -> _Plan:
        if self.schedule == "simt":
            group = self.limits.size(GROUP_ITEMS)
            split = planning.share_group(problem, units, group, self._tile)
        else:
            group = 1
            split = Split(problem.length, 1, min(ceil_div(problem.rows, self._lanes), ITEMS_PER_UNIT * units))
        geometry = planning.pack_geometry(problem, split, self._dims)
        return _Plan((self._kernel(self._network(), "", group),), problem, split, geometry, group)

    def _most_bits(self, wanted: int) -> int:
        """Bits of a digit, as many as wanted, whose counts leave most of the local memory to elements."""
        room = local_memory(self.limits.info) // (4 * DIGIT_BYTES)
        return max(MIN_DIGIT_BITS, min(wanted, room.bit_length() - 1))

    def _digits(self, problem: Problem) -> _Digits:
        limit = self._most_bits(DIGIT_BITS) if self.schedule == "simt" else 11 if problem.length >= MIN_LONG_ROW else 8
        passes = ceil_div(self._bits, limit)
        return _Digits(ceil_div(self._bits, passes), passes, "uint" if problem.length < UINT_LIMIT else "ulong")

    def _radix_kernels(self, digits: _Digits, group: int) -> tuple[Kernel, ...]:
        """Return the kernels pass by pass: count, scan and scatter; on schedule cpu the first two clear and scan."""
        source, is_simt = self._radix(digits), self.schedule == "simt"
        suffixes = [] if is_simt else ["_clear", "_scan"]
        for k in range(digits.passes):
            first, last = "_first" * (k == 0), "_last" * (k == digits.passes - 1)
            suffixes += [f"_count{first}", *([f"_scan{first}"] if is_simt else []), f"_scatter{first}{last}"]
        return tuple(self._kernel(source, suffix, group) for suffix in suffixes)

    def _kernel(self, source: KernelSource, suffix: str, group: int) -> Kernel:
        key = source.name, suffix
        if key not in self._kernels:
            self._kernels[key] = self.limits.kernel(source, source.name + suffix, group)
        return self._kernels[key]


class ArgSort(Sort):
    """Find the order of the elements along an axis, as ``numpy.argsort(x, axis, stable=True)`` does: int64.

    Equal values, and any two NaN, stay in their order, also in a descending one. For parameters and algorithms see
    `Sort`.
    """

    _indexed = True


class SortIndices(ArgSort):
    """Sort numbers from 0 to a limit: returns them, and their order, a stable one. Schedule simt.

    `dtype`: of the numbers, uint32 or uint64; the order has the same; `limit`: number above them all.
    """

    _pairs = True

    def __init__(self, context: Context, dtype: str, limit: int) -> None:
        super().__init__(context, dtype, 1, 0, schedule="simt")
        self._bits = max(1, (limit - 1).bit_length())

    def _is_wide(self, counter: str) -> bool:
        return self._code.dtype == "uint64" or counter == "ulong"

    def _digits(self, problem: Problem) -> _Digits:
        passes = ceil_div(self._bits, self._most_bits(INDEX_DIGIT_BITS))
        counter = "uint" if self._code.dtype == "uint32" and problem.length < UINT_LIMIT else "ulong"
        return _Digits(ceil_div(self._bits, passes), passes, counter)

    def sort(self, numbers: GpuArray) -> tuple[GpuArray, GpuArray]:
        """Return the sorted numbers, and the places where they were, of a vector that is not empty."""
        keys, order = (self.context.empty(numbers.shape, numbers.dtype) for _ in range(2))
        layout = numbers.layout
        problem = planning.normal_form(layout, (1,), 0)
        units = self.context.info.compute_units

        def make() -> _Plan:
            return self._radix_plan(problem, units)

        key = layout.shape, layout.strides
        plan = self._plans.lookup(key, lambda: self.limits.with_fitting_groups(make, self._kernels.clear))
        assert plan.digits is not None
        read = numbers.buffer, np.int64(layout.offset + problem.in_shift)
        self._launch_radix(plan, plan.digits, Operands(read, (keys.buffer, order.buffer)))
        return keys, order
