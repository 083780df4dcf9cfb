"""Contexts: an open device with its queue, memory and programs."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NoReturn

import numpy as np

from pytensor_cl.codegen import dtypes
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import UnsupportedDtype, UnusableDevice
from pytensor_cl.kept_threads import keep_threads
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.cpu_name import repair_cpu_name
from pytensor_cl.runtime.deferred_errors import DeferredErrors
from pytensor_cl.runtime.device import DeviceEntry, resolve
from pytensor_cl.runtime.device_copy import Copies
from pytensor_cl.runtime.drivers import hooks_of
from pytensor_cl.runtime.exports import Exports
from pytensor_cl.runtime.features.features import Features
from pytensor_cl.runtime.features.self_check import check_usable, features_of, with_features
from pytensor_cl.runtime.fork import note_opened
from pytensor_cl.runtime.host_import import HostImports
from pytensor_cl.runtime.interfaces import ContextOptions, KernelLauncher
from pytensor_cl.runtime.launcher import EnqueueLauncher
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.device_memory import Memory
from pytensor_cl.runtime.memory.host_mapping import HostMappings, address_of, buffer_over, with_preceding_bytes
from pytensor_cl.runtime.memory.staging import Staging
from pytensor_cl.runtime.parallel_build import ParallelBuild
from pytensor_cl.runtime.program import Kernel, ProgramCache
from pytensor_cl.runtime.pyopencl_array import refuse_pyopencl_array
from pytensor_cl.runtime.queue import Queue
from pytensor_cl.runtime.tuning import load_tuning

SMALL_UPLOAD = 8192
"""Bytes of a host array below which it is copied when its buffer is created, if the device is a CPU."""

_WIDE_SPAN = 2  # memory that an array's strides span, as a multiple of its own, from which it is gathered first
_LARGE_SPAN = 1 << 20  # bytes that they span at least


_contiguous = lru_cache(1024)(Layout.contiguous)  # the shapes of repeated calls are the same


@lru_cache(1024)
def _dense(shape: tuple[int, ...]) -> tuple[Layout, int]:
    """Return the C-contiguous layout of a shape, and the number of elements."""
    layout = Layout.contiguous(shape)
    return layout, layout.size


@dataclass(frozen=True)
class Settings:
    """Settings with which a context is opened.

    Attributes
    ----------
    fast_math
        Let the compiler reorder and approximate floating point, and take subnormal numbers for zero.
    cache_dir
        Folder of the package's caches; None is the user's cache folder.
    synchronous
        Wait after each command.
    parallel_compile
        Let worker processes compile new kernels on the other cores, with drivers that keep compiled kernels on disk.
    batch_kernels
        Run all kernels of a replayed call in one launch, with drivers that have a launcher for it.
    park_workers
        Let the threads of such a launch poll for the next call for a short time.
    features
        Features of the driver; None probes them.
    quiet
        Do not write the device of a context on stderr.
    """

    fast_math: bool = False
    cache_dir: str | None = None
    synchronous: bool = False
    parallel_compile: bool = True
    batch_kernels: bool = True
    park_workers: bool = True
    features: Features | None = None
    quiet: bool = False

    def for_driver(self, features: Features) -> ContextOptions:
        """Return the settings for the driver's hooks."""
        return ContextOptions(
            self.batch_kernels,
            self.park_workers,
            self.parallel_compile,
            structs_by_value=features.struct_arguments,
            flushes_subnormals=self.fast_math,
        )

    def options(self, entry: DeviceEntry) -> list[str]:
        """Return the build options for a device."""
        options = ["-w"]
        if entry.info.correctly_rounded_divide_sqrt and entry.info.kind == "gpu":
            options.append("-cl-fp32-correctly-rounded-divide-sqrt")
        if self.fast_math:
            options += ["-cl-fast-relaxed-math", "-cl-denorms-are-zero"]
        return options


COUNTERS = 1 << 14
"""Work-groups that the counters of a context are enough for."""


class Context:
    """An open device.

    Parameters
    ----------
    name
        Its name in graphs.
    entry
        The device.
    settings
        Settings for builds and launches.
    queue
        The user's pyopencl queue, which the context uses, with its OpenCL context; None makes them.
    """

    def __init__(
        self,
        name: str,
        entry: DeviceEntry,
        settings: Settings | None = None,
        queue: "cl.CommandQueue | None" = None,
    ) -> None:
        settings = settings or Settings()
        repairs = repair_cpu_name(entry.handle)  # before the driver builds anything
        features = settings.features or features_of(entry, settings.cache_dir)
        check_usable(entry, features)
        options = [*settings.options(entry), *repairs, *features.options()]
        self._hooks = hooks_of(entry.handle).open(entry.handle, settings.for_driver(features))
        self.name = name
        self.entry = entry
        self.info = with_features(entry.info, features)
        self.device = entry.handle
        self.cl_context = cl.Context([entry.handle]) if queue is None else queue.context
        self.queue = Queue(self.cl_context, entry.handle, settings.synchronous, self._hooks.queue, queue)
        self.mappings = HostMappings(self.queue, self.info)
        self.staging = Staging(self.queue, self.info)
        self.memory = Memory(
            self.queue,
            self.info,
            self._release_host_memory,
            self.mappings.advise_huge_pages,
            self._hooks.memory_flags,
        )
        by_reference = not features.struct_arguments
        # CPUs: PoCL has compile workers of its own, and others compile on all cores.
        has_workers = settings.parallel_compile and self.info.kind != "cpu"
        self.programs = ProgramCache(
            self.cl_context,
            options,
            settings.cache_dir,
            self._hooks.build_variants,
            self._hooks.precompile,
            structs_by_reference=by_reference,
            check_room=self._hooks.check_room,
            parallel=ParallelBuild(entry.handle, options, settings.cache_dir, by_reference) if has_workers else None,
        )
        self.imports = HostImports(self.cl_context, self.queue, self.info, self.mappings, self.memory)
        self.exports = Exports(entry.handle, self.mappings, self.imports.ranges)
        self.deferred_errors = DeferredErrors(self)
        self.active_replays: list[object] = []  # captures and replays under way; the first one uses the arena
        self._copies = Copies(self.queue, self.programs, self.info)
        self.tuning = load_tuning()
        merges = self.info.kind != "cpu" and self.tuning["launch.merge"] == 1
        self.launcher = EnqueueLauncher(self.programs, self.queue, entry.handle, merges)
        self.tables: dict[str, Any] = {}  # arrays that routines keep on the device as long as the context
        self._dtypes: set[np.dtype] = set()  # checked dtypes
        self._copy_flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        note_opened(self)
        if not entry.handle.type & cl.device_type.CPU:
            keep_threads()

    @cached_property
    def counters(self) -> GpuArray:
        """Zeros of int32, for one kernel at a time: each leaves them zero, and the queue is in order."""
        zeros = np.zeros(COUNTERS, "int32")
        return GpuArray(self, self._buffer_of(zeros), zeros.dtype, _contiguous(zeros.shape))

    @cached_property
    def batch_launcher(self) -> KernelLauncher | None:
        """The driver's launcher of kernel sequences; None if it has none, and `launcher` is used."""
        return self._hooks.launcher(self) if self.mappings.are_supported() else None

    def __repr__(self) -> str:
        return f"<Context {self.name!r}: {self.info.name} ({self.info.platform})>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a context cannot be pickled: pickle its name")

    def build(self, sources: Iterable[KernelSource]) -> list["cl.Program"]:
        """Build the kernels that have not been built, as one program; return all programs, which the caller keeps."""
        return self.programs.build(sources)

    def kernel(self, source: KernelSource, function: str | None = None) -> Kernel:
        """Return a new kernel object."""
        return self.programs.kernel(source, function)

    def check_dtype(self, dtype: Any) -> np.dtype:
        """Return `dtype` as a NumPy dtype, if the device supports it.

        Raises
        ------
        UnsupportedDtype
            Device arrays cannot have this dtype.
        """
        dtype = np.dtype(dtype)
        if not dtypes.is_supported(dtype):
            raise UnsupportedDtype(f"device arrays cannot hold {dtype}; they can: {', '.join(dtypes.SUPPORTED)}")
        if dtypes.needs_fp64(dtype) and not self.info.has_fp64:
            half = "complex64" if dtype.kind == "c" else "float32"
            raise UnsupportedDtype(
                f"{self.info.name} has no double precision: {dtype} cannot be used on it. Give it {half}, by "
                f"x.astype({half!r}), pt.fvector or floatX=float32"
            )
        self._dtypes.add(dtype)
        return dtype

    def empty(self, shape: tuple[int, ...], dtype: Any) -> GpuArray:
        """Return a C-contiguous array with arbitrary values."""
        dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
        layout, size = _dense(tuple(shape))
        return GpuArray(self, self.memory.allocate(size * dtype.itemsize), dtype, layout)

    def from_host(self, array: Any, *, borrow: bool = False) -> GpuArray:
        """Upload a NumPy array, without waiting.

        Parameters
        ----------
        array
            Any strides.
        borrow
            Do not copy `array` first: the caller does not change it before it next waits for the device.
        """
        if not isinstance(array, np.ndarray):
            refuse_pyopencl_array(array)
            array = np.asarray(array)
        dtype = array.dtype if array.dtype in self._dtypes else self.check_dtype(array.dtype)
        # A captured graph keeps the buffer; it cannot repeat an upload.
        if self.is_small(array.nbytes) or (0 < array.nbytes <= SMALL_UPLOAD and self.queue.is_captured()):
            return GpuArray(self, self._buffer_of(np.ascontiguousarray(array)), dtype, _contiguous(array.shape))
        result = self.empty(array.shape, dtype)
        if array.size:
            try:
                self._upload(result.buffer, array, borrow)
            except cl.Error as error:  # some drivers allocate memory at the first use
                self.memory.retry_after_freeing(lambda: self._upload(result.buffer, array, borrow), error)
        return result

    def _upload(self, buffer: "cl.Buffer", array: np.ndarray, borrow: bool) -> None:
        """Enqueue the copy of a host array, which does not change meanwhile if `borrow` is set."""
        if not self.staging.upload(buffer, array):
            packed = array if borrow and array.flags.c_contiguous else array.copy(order="C")
            self.queue.write(buffer, packed)

    def _release_host_memory(self) -> None:
        """Drop the references to buffers, and free memory of results."""
        self.mappings.clear()
        self.staging.release_results()

    def _buffer_of(self, packed: np.ndarray) -> "cl.Buffer":
        """Return a new buffer with the values of a small array."""
        try:
            return cl.Buffer(self.cl_context, self._copy_flags, hostbuf=packed)
        except cl.Error as error:
            make = partial(cl.Buffer, self.cl_context, self._copy_flags, hostbuf=packed)
            return self.memory.retry_after_freeing(make, error, packed.nbytes)

    def from_host_zero_copy(self, array: np.ndarray) -> GpuArray:
        """Return a device array that uses the memory of a host array, if the device supports it; else upload it.

        `array` must not change before the caller next waits for the device, and the result must not be used after that.
        """
        skipped = self.misalignment(array)
        if skipped is None:
            return self.from_host(array, borrow=True)
        dtype = array.dtype if array.dtype in self._dtypes else self.check_dtype(array.dtype)
        address, memory = address_of(array) - skipped, with_preceding_bytes(array, skipped) if skipped else array
        self.memory.check_size(array.nbytes)
        try:
            buffer = buffer_over(self.cl_context, memory, address)
        except cl.Error as error:
            make = partial(buffer_over, self.cl_context, memory, address)
            buffer = self.memory.retry_after_freeing(make, error, memory.nbytes)
        self.queue.keep_until_wait(buffer, array)  # the caller need not keep them after it has enqueued kernels
        layout = _contiguous(array.shape)
        return GpuArray(self, buffer, dtype, layout._replace(offset=skipped // dtype.itemsize) if skipped else layout)

    def stage(self, array: np.ndarray) -> GpuArray | None:
        """Copy a small array to host memory that kernels read without a transfer; None if it is not small.

        The caller keeps the result until the kernels that read it have run.
        """
        if not self.is_small(array.nbytes):
            return None
        dtype = array.dtype if array.dtype in self._dtypes else self.check_dtype(array.dtype)
        copied = np.array(array, order="C")
        try:
            buffer = buffer_over(self.cl_context, copied, address_of(copied))
        except cl.Error as error:
            make = partial(buffer_over, self.cl_context, copied, address_of(copied))
            buffer = self.memory.retry_after_freeing(make, error, copied.nbytes)
        return GpuArray(self, buffer, dtype, _contiguous(array.shape))

    def misalignment(self, array: np.ndarray) -> int | None:
        """Return the bytes between an aligned address and an array; None if it must be uploaded."""
        alignment = self.info.host_alignment
        if not alignment or self.is_small(array.nbytes) or not array.size or not array.flags.c_contiguous:
            return None
        skipped = address_of(array) % alignment
        is_too_large = array.nbytes <= self.info.max_allocation < array.nbytes + skipped
        return None if skipped % array.itemsize or is_too_large else skipped

    def is_small(self, nbytes: int) -> bool:
        """Return whether an array is copied when its buffer is created: on CPUs a separate command takes 10 us more."""
        return 0 < nbytes <= SMALL_UPLOAD and self.info.kind == "cpu"

    def download(self, array: GpuArray) -> np.ndarray:
        """Copy an array of this context into a new NumPy array; wait for the device."""
        layout, dtype = array.layout, array.dtype
        if not layout.size:
            self.queue.wait()  # callers rely on the wait
            return np.empty(layout.shape, dtype)
        view = self.mappings.view(array)
        if view is not None:
            self.queue.wait()
            return view.copy()
        low, high = layout.span
        if (high - low) * dtype.itemsize > _LARGE_SPAN and high - low > _WIDE_SPAN * layout.size:
            return self.download(self._gathered(array))
        dense = layout.is_contiguous
        shape = layout.shape if dense else (high - low,)
        host = self.staging.empty_result(shape, dtype, (high - low) * dtype.itemsize)
        if not self.staging.download(host, array.buffer, low * dtype.itemsize):
            self.queue.read(host, array.buffer, low * dtype.itemsize)
        if dense:
            return host
        steps = [s * dtype.itemsize for s in layout.strides]
        view = np.lib.stride_tricks.as_strided(host[layout.offset - low :], layout.shape, steps)
        return np.ascontiguousarray(view)

    def _gathered(self, array: GpuArray) -> GpuArray:
        """Return a copy, which no capture notes: a replay downloads again, and makes its own."""
        capture = self.queue.capture
        if capture is None or not capture.is_active():
            return self.copy(array)
        capture.is_on = False
        try:
            return self.copy(array)
        finally:
            capture.is_on = True

    def copy(self, array: GpuArray) -> GpuArray:
        """Copy an array on the device to a new, C-contiguous one; do not wait."""
        result = self.empty(array.shape, array.dtype)
        itemsize = array.dtype.itemsize
        if not array.layout.size:
            return result
        if array.layout.is_contiguous:
            self._copies.start(
                result.buffer, array.buffer, array.layout.offset * itemsize, array.layout.size * itemsize
            )
        else:
            self._copies.gather(result, array)
        return result


def open_context(device: str = "opencl", name: str = "dev0", settings: Settings | None = None) -> Context:
    """Open a device outside the registry.

    Parameters
    ----------
    device
        A device specification (`runtime.device.resolve`).
    name
        Name of the context.
    settings
        Settings for builds and launches.
    """
    return open_entry(name, resolve(device), settings)


def open_entry(
    name: str, entry: DeviceEntry, settings: Settings | None, queue: "cl.CommandQueue | None" = None
) -> Context:
    """Return a new context of a device (`open_context`), with the user's queue if there is one.

    Raises
    ------
    UnusableDevice
        The device failed its self-check, or the driver cannot open it.
    """
    try:
        return Context(name, entry, settings, queue)
    except cl.Error as error:
        info = entry.info
        driver = f"driver: {info.platform} {info.driver}"
        raise UnusableDevice(
            f"{entry.stable_spec} {info.name} ({driver}) cannot be opened: {error}. "
            "'python -m pytensor_cl doctor' examines it"
        ) from error
