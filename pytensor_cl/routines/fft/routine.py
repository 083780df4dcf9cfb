"""Fourier transforms of strided arrays: real to complex, complex to real, complex to complex."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS, KERNEL_DIMS
from pytensor_cl.routines.base.ndrange import WorkGroupLimits, local_memory
from pytensor_cl.routines.base.routine import SCHEDULES, Plans
from pytensor_cl.routines.elemwise.routine import Copy, Fill
from pytensor_cl.routines.fft.butterfly import RADICES, butterfly
from pytensor_cl.routines.fft.limits import (
    CACHED_ELEMENTS,
    MAX_GROUP_LINES,
    MAX_REGISTER_GROUP_ITEMS,
    MIN_GROUP_ELEMENTS,
    OFFSETS_BYTES,
    WORKSPACE_GROUPS_PER_UNIT,
)
from pytensor_cl.routines.fft.passes import RegisterLimits
from pytensor_cl.routines.fft.plan import (
    INPUT,
    LINE_IO,
    OUTPUT,
    Device,
    LineIO,
    Lines,
    Plan,
    Step,
    factorise,
    geometry_struct,
    pack,
    plan_lines,
)
from pytensor_cl.routines.fft.registers import RegisterKernel, pack_registers, register_kernel, register_struct
from pytensor_cl.routines.fft.tables import Table, device_table
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class _Launch(NamedTuple):
    """A step with everything but its arrays."""

    step: Step
    kernel: Kernel
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    workspace: Any  # the argument, which a kernel may not have, or the number of elements in global memory
    constants: tuple[Any, ...]


class _Launches(NamedTuple):
    """The launches for one layout, with the temporary arrays' sizes; `is_scaled`: whether the output has its factor."""

    launches: tuple[_Launch, ...]
    temporaries: tuple[int, ...]
    is_scaled: bool


def lengths_of(s: Any, shape: Sequence[int], own: int | None = None) -> tuple[int, ...]:
    """Return the lengths of the transforms along the last axes.

    `s`: one length per transformed axis; `own`: the number that means the array's own length; None if there is no such
    number.

    Raises `ValueError`: a length is not positive. Raises `numpy.exceptions.AxisError`: there are more lengths than
    axes. Raises `IndexError`: there is no length.
    """
    given = [int(n) for n in np.asarray(s)]
    if not given:
        raise IndexError("list index out of range: a Fourier transform needs at least one axis")
    if len(given) > len(shape):
        raise np.exceptions.AxisError(-len(given), len(shape))
    last = shape[len(shape) - len(given) :]
    lengths = tuple(m if n == own else n for n, m in zip(given, last, strict=True))
    for n in lengths:
        _check_length(n)
    return lengths


def _check_length(n: int) -> None:
    if n < 1:
        raise ValueError(f"Invalid number of FFT data points ({n}) specified.")


class _Transform:
    """Base class of the transforms: holds the kernels and the plans of their launches.

    `dtype`: dtype of real and imaginary parts, ``"float32"`` or ``"float64"``; `ndim`: number of dimensions of the
    input.
    """

    def __init__(self, context: Context, dtype: str, ndim: int, schedule: str | None = None) -> None:
        self.context = context
        self.schedule = context.info.schedule if schedule is None else schedule
        if self.schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule {schedule!r}; choose from {SCHEDULES}")
        self.ndim = ndim
        self.dtype = np.dtype(dtype)
        self._lanes = 64 // self.dtype.itemsize
        self._kept_dims = max(KERNEL_DIMS, ndim)
        self.limits = WorkGroupLimits(context)
        self._kernels: dict[str | RegisterKernel, Kernel] = {}
        self._plans: Plans[_Launches] = Plans()
        self._zero: Fill | None = None

    @property
    def _device(self) -> Device:
        is_simt, size = self.schedule == "simt", self.dtype.itemsize
        registers = RegisterLimits(self.limits.size(MAX_REGISTER_GROUP_ITEMS), local_memory(self.limits.info), size)
        capacity = (
            (local_memory(self.limits.info) - OFFSETS_BYTES) // (4 * size) - 1
            if is_simt
            else CACHED_ELEMENTS * 4 // size
        )
        return Device(self._lanes, self.context.info.compute_units, capacity, is_simt, registers if is_simt else None)

    @property
    def _group(self) -> int:
        return self.limits.size(GROUP_ITEMS) if self.schedule == "simt" else 1

    def _source(self, space: str) -> KernelSource:
        dtype, is_simt = str(self.dtype), self.schedule == "simt"
        vector = "float" if dtype == "float32" else "double"
        vector += "" if is_simt else str(self._lanes)
        shared: dict[str, Any] = {
            "dtype": dtype,
            "lanes": self._lanes,
            "kept_dims": self._kept_dims,
            "io": LINE_IO,
            "geometry": geometry_struct(self._kept_dims),
            "butterflies": {radix: butterfly(radix, dtype, vector) for radix in RADICES},
        }
        if is_simt:
            return kernel_source("fft/simt", space=space, group=self._group, widest=MAX_GROUP_LINES, **shared)
        access = render("fft/vector", dtype=dtype, lanes=self._lanes)
        return kernel_source("fft/cpu", preambles=(access,), **shared)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel; that for lines which do not fit into local memory is built when it is needed."""
        return (self._source("local"),)

    def _kernel(self, space: str) -> Kernel:
        if space not in self._kernels:
            self._kernels[space] = self.limits.kernel(self._source(space), None, self._group)
        return self._kernels[space]

    def _register_kernel(self, kernel: RegisterKernel) -> Kernel:
        if kernel not in self._kernels:
            dtype = str(self.dtype)
            source = kernel_source(
                "fft/registers",
                dtype=dtype,
                lanes=self._lanes,
                kernel=kernel,
                butterflies={radix: butterfly(radix, dtype, ctype(dtype)) for radix in sorted(set(kernel.radices))},
                geometry=register_struct(kernel.dims),
            )
            self._kernels[kernel] = self.limits.kernel(source, None, kernel.group)
        return self._kernels[kernel]

    # Plans

    def _make_launches(self, plan: Plan, aligned: tuple[bool, bool], scale: float) -> _Launches:
        """Return the launches.

        `aligned`: whether input and output begin at an even number of real numbers; `scale`: factor of the results,
        which a last launch multiplies by if it has elements in registers.
        """
        general = self._simt_launch if self.schedule == "simt" else self._cpu_launch
        device, last = self._device, len(plan.steps) - 1
        launches, is_scaled = [], scale == 1
        for number, step in enumerate(plan.steps):
            pair = step.source > OUTPUT or aligned[step.source], step.target > OUTPUT or aligned[step.target]
            kernel = register_kernel(step, device, pair)
            factor = scale if number == last else 1.0
            is_scaled = is_scaled or (kernel is not None and number == last)
            launches.append(general(step) if kernel is None else self._register_launch(step, kernel, factor))
        return _Launches(tuple(launches), plan.temporaries, is_scaled)

    def _tables(self, step: Step, factors: Table | None) -> tuple[Any, ...]:
        """Return the tables; one that is not needed is a null pointer."""
        table = partial(device_table, self.context, str(self.dtype))
        count = step.length + step.real_post
        halves = Table("half_turns", (step.length,)) if step.real_pre or step.real_post else None
        block = Table("block_twiddles", (step.twiddle, step.inner, count, self._lanes)) if step.twiddle else None
        lane = Table("lane_twiddles", (step.twiddle, count, self._lanes)) if step.twiddle else None
        tables = (factors, halves, step.pre, step.mid, step.post, block, lane)
        return tuple(None if t is None else table(t).buffer for t in tables)

    def _cpu_launch(self, step: Step) -> _Launch:
        blocks = prod(n for n, *_ in step.dims) // step.inner * ceil_div(step.inner, self._lanes)
        workers = min(blocks, self.context.info.compute_units)  # more would need more workspace than caches hold
        workspace = workers * 4 * (step.size + 1) * self._lanes
        geometry = pack(step, self._lanes, self._kept_dims)
        return _Launch(step, self._kernel("local"), (workers,), (1,), workspace, (*self._values(step), geometry))

    def _simt_launch(self, step: Step) -> _Launch:
        room, units = self._device.capacity // (step.size + 1), self.context.info.compute_units
        space = "local" if room else "global"
        width = 1
        while (
            2 * width <= min(room or MAX_GROUP_LINES, MAX_GROUP_LINES)
            and width < step.inner
            and width * step.size < MIN_GROUP_ELEMENTS
        ):
            width *= 2
        blocks = prod(n for n, *_ in step.dims) // step.inner * ceil_div(step.inner, width)
        groups = blocks if room else min(blocks, WORKSPACE_GROUPS_PER_UNIT * units)
        count = 4 * (step.size + 1) * width
        workspace = (cl.LocalMemory(count * self.dtype.itemsize),) if room else groups * count
        values = (*self._values(step), np.int32(width), pack(step, width, self._kept_dims))
        return _Launch(step, self._kernel(space), (groups * self._group,), (self._group,), workspace, values)

    def _register_launch(self, step: Step, kernel: RegisterKernel, scale: float) -> _Launch:
        groups = ceil_div(prod(n for n, *_ in step.dims), kernel.lines)
        factors, halves, _, _, _, block, lane = self._tables(step, Table("register_factors", kernel.radices))
        signs = map(self.dtype.type, (step.signs[0], step.signs[1] * scale, scale))
        built = self._register_kernel(kernel)
        values = (factors, halves, block, lane, *signs, pack_registers(step, kernel))
        return _Launch(step, built, (groups * kernel.group,), (kernel.group,), (), values)

    def _values(self, step: Step) -> tuple[Any, ...]:
        tables = self._tables(step, Table("factors", step.radices) if step.radices else None)
        return (*tables, *map(self.dtype.type, step.signs))

    # Launch

    def _run(self, key: Any, plan: Callable[[], Plan], source: GpuArray, output: GpuArray, scale: float = 1.0) -> bool:
        """Enqueue the launches that make `output`; their offsets and buffers are the arrays'.

        Returns whether the output has been multiplied by `scale`.
        """
        at, to = _real_offset(source), _real_offset(output)
        aligned = at % 2 == 0, to % 2 == 0
        key = key, aligned, scale
        ready = self._plans.get(key)
        if ready is None:
            make = lambda: self._make_launches(plan(), aligned, scale)  # noqa: E731
            ready = self.limits.with_fitting_groups(make, self._kernels.clear)
            self._plans.store(key, ready)
        empty, queue = self.context.empty, self.context.queue
        slots = [(source.buffer, np.int64(at)), (output.buffer, np.int64(to))]
        slots += [(empty((size,), self.dtype).buffer, np.int64(0)) for size in ready.temporaries]
        for step, kernel, global_size, local_size, workspace, constants in ready.launches:
            memory = (empty((workspace,), self.dtype).buffer,) if isinstance(workspace, int) else workspace
            arrays = *slots[step.source], *slots[step.target]
            kernel.launch(queue, global_size, local_size, *arrays, *memory, *constants)
        return ready.is_scaled


def _real_offset(array: GpuArray) -> int:
    return array.layout.offset * (2 if array.dtype.kind == "c" else 1)


def _line_dims(shape: Sequence[int], reads: Sequence[int], writes: Sequence[int], axis: int) -> tuple[Any, ...]:
    return tuple((n, r, w) for k, (n, r, w) in enumerate(zip(shape, reads, writes, strict=True)) if k != axis)


def _needs(array: GpuArray | np.generic, routine: _Transform) -> Layout:
    """Return the layout of an input that must be an array of the routine's number of dimensions."""
    if not isinstance(array, GpuArray):
        raise TypeError("Fourier transforms need an array on the device")
    if array.ndim != routine.ndim:
        raise ValueError(f"Fourier transform on {routine.ndim} dimensions, not on shape {array.shape}")
    return array.layout


class RFFT(_Transform):
    """Transform real arrays along their last axes; not normalised.

    Called with an array of shape ``(..., n)`` and one length per transformed axis (numbers of the host), to which
    the array is cropped or padded with zeros, it returns ``(..., n // 2 + 1, 2)``: the last axis holds real and
    imaginary part. See `_Transform` for the parameters.
    """

    def __call__(self, array: Any, s: Any) -> tuple[GpuArray, ...]:
        """Transform; raises what `lengths_of` raises."""
        layout = _needs(array, self)
        lengths = lengths_of(s, layout.shape, own=-1)
        lead = layout.shape[: self.ndim - len(lengths)]
        output = self.context.empty((*lead, *lengths[:-1], lengths[-1] // 2 + 1, 2), self.dtype)
        self.transform(array, output, lengths)
        if factorise(lengths[-1]) is None and len(lengths) == 1 and output.size:
            self._clear(output, lengths[0])
        return (output,)

    def transform(self, array: GpuArray, output: GpuArray, lengths: tuple[int, ...]) -> None:
        """Enqueue the transforms into an array of any strides, whose last axis holds real and imaginary part."""
        source, target = array.layout, output.layout
        key = source[:2], target[:2], lengths
        self._run(key, partial(self._plan, source, target, lengths), array, output)

    def _clear(self, output: GpuArray, n: int) -> None:
        """Set to zero the imaginary parts that are: a transform by way of a convolution leaves rounding there."""
        if self._zero is None:
            self._zero = Fill(self.context, str(self.dtype), output.ndim, self.schedule)
        one, imaginary = (slice(None),) * (output.ndim - 2), slice(1, 2)
        for k in {0, n // 2} if n % 2 == 0 else {0}:
            self._zero.launch((output[(*one, slice(k, k + 1), imaginary)],), (self.dtype.type(0),))

    def _plan(self, source: Layout, output: Layout, lengths: tuple[int, ...]) -> Plan:
        """Along the last axis into the output, then in place along the others: of rows that exist."""
        ndim, n = self.ndim, lengths[-1]
        lead = ndim - len(lengths)
        shape = [*source.shape[:lead], *map(min, source.shape[lead:], lengths)]
        (*writes, im), half = output.strides, n // 2 + 1
        dims = _line_dims(shape, source.strides, writes, ndim - 1)
        read = LineIO(0, source.strides[-1], 0, shape[-1], 0)
        axes = [Lines("rfft", n, 0, 1, dims, read, LineIO(0, writes[-1], im, half, half), (1, 1))]
        shape[-1] = half
        for axis in range(ndim - 2, lead - 1, -1):
            axes.append(_in_place(1, shape, output.strides, axis, lengths[axis - lead], (1, 1)))
            shape[axis] = lengths[axis - lead]
        return plan_lines(self._device, axes)


def _in_place(slot: int, shape: Sequence[int], strides: Sequence[int], axis: int, n: int, signs: Any) -> Lines:
    """Return complex transforms along an axis of an array, of which `shape` holds data.

    `strides`: those of the array; the last one leads from real to imaginary parts.
    """
    *strides, im = strides
    side = LineIO(0, strides[axis], im, min(shape[axis], n), min(shape[axis], n))
    dims = _line_dims(shape, strides, strides, axis)
    return Lines("fft", n, slot, slot, dims, side, side._replace(re_count=n, im_count=n), signs)


class IRFFT(_Transform):
    """Transform half spectra of real arrays back along their last axes; not normalised.

    Called with an array of shape ``(..., m, 2)``, whose last axis holds real and imaginary part, and one length per
    transformed axis (numbers of the host), it returns ``(..., n)``; of the last transformed axis ``n // 2 + 1``
    elements are read, and zeros where there are fewer. See `_Transform` for the parameters.
    """

    def __call__(self, array: Any, s: Any) -> tuple[GpuArray, ...]:
        """Transform; raises what `lengths_of` raises."""
        return (self.scaled(array, s, 1.0)[0],)

    def scaled(self, array: Any, s: Any, scale: float) -> tuple[GpuArray, bool]:
        """Transform; returns the array, and whether it has been multiplied by `scale`."""
        layout = _needs(array, self)
        lengths = lengths_of(s, layout.shape[:-1])
        lead = layout.shape[: self.ndim - 1 - len(lengths)]
        output = self.context.empty((*lead, *lengths), self.dtype)
        return output, self.transform(array, output, lengths, scale=scale)

    def transform(
        self,
        array: GpuArray,
        output: GpuArray,
        lengths: tuple[int, ...],
        first: tuple[int, ...] | None = None,
        overwrite: bool = False,
        scale: float = 1.0,
    ) -> bool:
        """Enqueue the transforms into an array of any strides.

        `first`: along each transformed axis but the last one, the first element that is wanted; as many are as the
        output has; `overwrite`: the input may serve as temporary array.

        Returns whether the output has been multiplied by `scale`.
        """
        source, target = array.layout, output.layout
        first = first or (0,) * (len(lengths) - 1)
        key = source[:2], target[:2], lengths, first, overwrite
        return self._run(key, partial(self._plan, source, target, lengths, first, overwrite), array, output, scale)

    def _plan(
        self, source: Layout, output: Layout, lengths: tuple[int, ...], first: tuple[int, ...], overwrite: bool
    ) -> Plan:
        """Along the other axes into a temporary array, and at last along the last one into the output."""
        ndim, n = self.ndim - 1, lengths[-1]
        lead = ndim - len(lengths)
        valid = min(source.shape[-2], n // 2 + 1)
        shape = [*source.shape[:lead], *map(min, source.shape[lead : ndim - 1], lengths), valid]
        between = Layout.contiguous((*source.shape[:lead], *lengths[:-1], valid, 2))
        slot, temporaries, axes = INPUT, [], []
        if overwrite and source.shape == between.shape:
            between = source
        for axis in range(lead, ndim - 1):
            if between is source:
                axes.append(_in_place(INPUT, shape, source.strides, axis, lengths[axis - lead], (-1, -1)))
            else:
                lines = _in_place(2, shape, between.strides, axis, lengths[axis - lead], (-1, -1))
                if slot == INPUT:
                    temporaries.append(between.size)
                    *reads, im = source.strides
                    dims = _line_dims(shape, reads, between.strides[:-1], axis)
                    lines = lines._replace(source=0, dims=dims, read=lines.read._replace(step=reads[axis], im=im))
                axes.append(lines)
                slot = 2
            shape[axis] = lengths[axis - lead]
        *reads, im = source.strides if slot == INPUT else between.strides
        at = sum(n * step for n, step in zip(first, reads[lead:], strict=False))
        dims = _line_dims(output.shape, reads, output.strides, ndim - 1)
        read = LineIO(at, reads[-1], im, valid, valid)
        axes.append(Lines("irfft", n, slot, 1, dims, read, LineIO(0, output.strides[-1], 0, n, 0), (-1, 1)))
        return plan_lines(self._device, axes, temporaries)


class FFT(_Transform):
    """Transform real or complex arrays along one axis; not normalised.

    Called with an array, the length to which its axis is cropped or padded with zeros, and the axis, it returns a
    complex array of twice the width of `dtype`.

    `context`, `dtype`, `ndim`, `schedule`: see `_Transform`; `ndim` is that of the input without an axis for real and
    imaginary parts; `source`: dtype of the input, real or complex; cast to `dtype` if it is another; `inverse`: whether
    the exponents are positive.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        ndim: int,
        source: str | None = None,
        schedule: str | None = None,
        *,
        inverse: bool = False,
    ) -> None:
        super().__init__(context, dtype, ndim, schedule)
        self._signs = (-1, -1) if inverse else (1, 1)
        kind = np.dtype(source or dtype)
        self._is_complex = kind.kind == "c"
        part = f"float{4 * kind.itemsize}" if self._is_complex else str(kind)
        self._part = np.dtype(part)
        self._cast = None if part == dtype else Copy(context, part, ndim + self._is_complex, dtype, schedule)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the transform, and of the cast."""
        return (*super().sources(), *(self._cast.sources() if self._cast else ()))

    def _parts(self, array: GpuArray) -> GpuArray:
        """Return the real numbers of an array; those of a complex one have one more axis."""
        layout = array.layout
        if self._is_complex:
            strides = (*(2 * s for s in layout.strides), 1)
            array = GpuArray(
                self.context, array.buffer, self._part, Layout((*layout.shape, 2), strides, 2 * layout.offset)
            )
        return array if self._cast is None else self._cast(array)[0]

    def __call__(self, array: Any, n: Any, axis: Any) -> tuple[GpuArray, ...]:
        """Transform; raises what `scaled` raises."""
        return (self.scaled(array, n, axis, 1.0)[0],)

    def scaled(self, array: Any, n: Any, axis: Any, scale: float) -> tuple[GpuArray, bool]:
        """Transform; returns the array, and whether it has been multiplied by `scale`.

        Raises `ValueError`: the length is not positive. Raises `numpy.exceptions.AxisError`: there is no such axis.
        """
        shape = _needs(array, self).shape
        length, along = int(n), int(axis)
        _check_length(length)
        if not -self.ndim <= along < self.ndim:
            raise np.exceptions.AxisError(along, self.ndim)
        along %= self.ndim
        parts = self._parts(array)
        output = self.context.empty((*shape[:along], length, *shape[along + 1 :]), f"complex{16 * self.dtype.itemsize}")
        key = parts.layout.shape, parts.layout.strides, length, along
        plan = partial(self._plan, parts.layout, output.layout, length, along)
        return output, self._run(key, plan, parts, output, scale)

    def _plan(self, source: Layout, output: Layout, n: int, axis: int) -> Plan:
        reads, writes = source.strides[: self.ndim], tuple(2 * s for s in output.strides)
        valid = min(n, source.shape[axis])
        dims = _line_dims(source.shape[: self.ndim], reads, writes, axis)
        read = LineIO(0, reads[axis], 1, valid, valid if self._is_complex else 0)
        if self._is_complex:
            read = read._replace(im=source.strides[-1])
        lines = Lines("fft", n, 0, 1, dims, read, LineIO(0, writes[axis], 1, n, n), self._signs)
        return plan_lines(self._device, [lines])
