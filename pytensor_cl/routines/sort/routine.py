"""Sort the rows of a strided array, or find the order of their elements."""

from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.along_axis import AlongAxis, Operands
from pytensor_cl.routines.base.limits import GROUP_ITEMS, ITEMS_PER_UNIT, KERNEL_DIMS, UINT_LIMIT
from pytensor_cl.routines.base.ndrange import local_memory
from pytensor_cl.routines.sort import plan as planning
from pytensor_cl.routines.sort.limits import ITEM_ELEMENTS, MAX_NETWORK_BYTES, MAX_NETWORK_ROW_OF_MANY, MIN_LONG_ROW
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


class _Plan(NamedTuple):
    """Launch parameters without buffers and the arrays' offsets; no kernels where there is nothing to do."""

    kernels: tuple[Kernel, ...]
    problem: Problem
    split: Split
    geometry: bytes = b""
    group: int = 1
    digits: _Digits | None = None


_NO_TASKS = Split(0, 0, 0)


class Sort(AlongAxis[_Plan]):
    """Sort along an axis, ascending, as `numpy.sort` does; NaN comes last.

    Rows that are short are sorted by a network (Batcher's merge exchange; Knuth, The Art of Computer Programming 3,
    algorithm 5.2.2M), long ones by a radix sort from the lowest digit (algorithm 5.2.5R). Of equal values only zeros
    can be distinguished: -0.0 comes before 0.0.

    `ndim`: number of dimensions, at least one; `axis`: along which; not negative.
    """

    _noun = "a sort"
    _indexed = False

    def __init__(self, context: Context, dtype: str, ndim: int, axis: int, *, schedule: str | None = None) -> None:
        super().__init__(context, ndim, axis, schedule)
        self.output_dtypes = ("int64" if self._indexed else dtype,)
        self._code = planning.key_code(dtype, merges_zeros=self._indexed)
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

    def _radix_group(self, digits: _Digits) -> int:
        """Work-items of a work-group that counts digits, or moves elements: see `sort_radix_simt.mako`."""
        bins, counter = 1 << digits.bits, 4 if digits.counter == "uint" else 8
        gaps = self._radix_element(digits) // 2 + 1
        moving = ITEM_ELEMENTS * self._radix_element(digits) + gaps + max(8, 2 * bins)
        return self.limits.size(GROUP_ITEMS, max(bins * counter, moving), 2 * bins * counter)

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
                items_per_thread=ITEM_ELEMENTS,
                itemsize=self._radix_element(digits),
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
        clear, scan, *passes = plan.kernels
        places = self._radix_element(digits) * rows * plan.problem.length
        a, b = (allocate(places if digits.passes > n else 1) for n in (1, 2))
        counts = allocate(rows * split.chunks * (4 if digits.counter == "uint" else 8) << digits.bits)
        diff = allocate(8)
        per = plan.group
        scanned = (min(rows, split.workers) if per == 1 else rows * per,)
        clear.launch(queue, (per,), (per,), diff)
        for number, (count, scatter) in enumerate(zip(passes[::2], passes[1::2], strict=True)):
            tail = counts, diff, np.int32(number), plan.geometry
            count.launch(queue, (split.workers * per,), (per,), *operands.input, a, b, *tail)
            scan.launch(queue, scanned, (per,), counts, plan.geometry)
            scatter.launch(queue, (split.workers * per,), (per,), *operands.input, a, b, *operands.output, *tail)

    def _plan(self, layout: Layout, out_strides: tuple[int, ...]) -> _Plan:
        problem = planning.normal_form(layout, out_strides, self.axis)
        if not layout.size:
            return _Plan((), problem, _NO_TASKS)
        units = self.context.info.compute_units
        many = self._lanes * units if self.schedule == "cpu" else problem.rows + 1
        if planning.uses_network(problem, many, self._tile):
            return self._network_plan(problem, units)
        split = planning.share_out(problem, units, self.schedule)
        digits = self._digits(problem)
        geometry = planning.pack_geometry(problem, split, self._dims)
        group = 1 if self.schedule == "cpu" else self._radix_group(digits)
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

    def _digits(self, problem: Problem) -> _Digits:
        limit = 4 if self.schedule == "simt" else 11 if problem.length >= MIN_LONG_ROW else 8
        passes = ceil_div(self._bits, limit)
        return _Digits(ceil_div(self._bits, passes), passes, "uint" if problem.length < UINT_LIMIT else "ulong")

    def _radix_kernels(self, digits: _Digits, group: int) -> tuple[Kernel, ...]:
        """Return the kernels that clear and scan, and then those that count and scatter, pass by pass."""
        source = self._radix(digits)
        suffixes = ["_clear", "_scan"]
        for k in range(digits.passes):
            first, last = "_first" * (k == 0), "_last" * (k == digits.passes - 1)
            suffixes += [f"_count{first}", f"_scatter{first}{last}"]
        return tuple(self._kernel(source, suffix, 1 if suffix == "_clear" else group) for suffix in suffixes)

    def _kernel(self, source: KernelSource, suffix: str, group: int) -> Kernel:
        key = source.name, suffix
        if key not in self._kernels:
            self._kernels[key] = self.limits.kernel(source, source.name + suffix, group)
        return self._kernels[key]


class ArgSort(Sort):
    """Find the order of the elements along an axis, as ``numpy.argsort(x, axis, stable=True)`` does: int64.

    Equal values, and any two NaN, stay in their order. For parameters and algorithms see `Sort`.
    """

    _indexed = True
