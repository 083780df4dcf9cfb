"""Contexts: a device under a name, with its queue, memory and programs."""

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from threading import Lock
from typing import Any, NoReturn

import numpy as np

from pytensor_cl.codegen import dtypes
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import ContextNotDefined, ForkedProcessError, OpenCLError, UnsupportedDtype, UnusableDevice
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.announcement import announce
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.cpu_name import repair_cpu_name
from pytensor_cl.runtime.device import DeviceEntry, are_drivers_loaded, resolve
from pytensor_cl.runtime.device_copy import Copies
from pytensor_cl.runtime.drivers import hooks_of
from pytensor_cl.runtime.features.features import Features
from pytensor_cl.runtime.features.self_check import adapt, features_of, refuse
from pytensor_cl.runtime.interfaces import ContextOptions, KernelLauncher
from pytensor_cl.runtime.launcher import EnqueueLauncher
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.device_memory import Memory
from pytensor_cl.runtime.memory.host_mapping import HostMappings, address_of, memory_before, wrapped
from pytensor_cl.runtime.program import Kernel, ProgramCache
from pytensor_cl.runtime.queue import Queue
from pytensor_cl.runtime.tuning import load_tuning

__all__ = ["Context", "Settings", "open_context"]


_DEFAULT = "dev0"
"""The context of graphs that name none, where nothing else is said."""
SMALL_UPLOAD = 8192
"""Bytes: smaller host arrays are copied while their buffer is made, if the device is a CPU."""


_contiguous = lru_cache(1024)(Layout.contiguous)  # of the same shapes in each call


@dataclass(frozen=True)
class Settings:
    """How contexts are opened.

    Attributes
    ----------
    fast_math
        Let the compiler reorder and approximate floating point.
    cache_dir
        Folder of the package's caches; None is the user's cache folder.
    synchronous
        Wait after each launch.
    tuned
        Use what ``pytensor-cl tune`` found for the device.
    compile_ahead
        Let helper processes compile new kernels on the other cores, with drivers that keep what they compile on disk.
    one_launch
        Launch one kernel that calls all those of a repeated call, where the driver is one with which that works.
    stand_by
        Let its work-items stay for the next call for a short while.
    features
        What the driver can do; None asks it.
    quiet
        Do not write on stderr which device a context is.
    """

    fast_math: bool = False
    cache_dir: str | None = None
    synchronous: bool = False
    tuned: bool = True
    compile_ahead: bool = True
    one_launch: bool = True
    stand_by: bool = True
    features: Features | None = None
    quiet: bool = False

    def for_driver(self, features: Features) -> ContextOptions:
        """Return what the driver's hooks are told."""
        return ContextOptions(self.one_launch, self.stand_by, self.compile_ahead, features.struct_arguments)

    def options(self, entry: DeviceEntry) -> list[str]:
        """Return the build options for a device."""
        options = ["-w"]
        if entry.info.correctly_rounded_divide_sqrt and entry.info.kind == "gpu":
            options.append("-cl-fp32-correctly-rounded-divide-sqrt")
        if self.fast_math:
            options.append("-cl-fast-relaxed-math")
        return options


class Context:
    """An open device.

    Parameters
    ----------
    name
        What graphs call it.
    entry
        The device.
    settings
        How to build and launch.
    """

    def __init__(self, name: str, entry: DeviceEntry, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        repairs = repair_cpu_name(entry.handle)  # before the driver builds anything
        features = settings.features or features_of(entry, settings.cache_dir)
        refuse(entry, features)
        options = [*settings.options(entry), *repairs, *features.options()]
        self._hooks = hooks_of(entry.handle).open(entry.handle, settings.for_driver(features))
        self.name = name
        self.entry = entry
        self.info = adapt(entry.info, features)
        self.device = entry.handle
        self.cl_context = cl.Context([entry.handle])
        self.queue = Queue(self.cl_context, entry.handle, settings.synchronous, self._hooks.queue)
        self.views = HostMappings(self.queue, self.info)
        self.memory = Memory(self.queue, self.info, self.views.forget, self.views.enlarge)
        self.programs = ProgramCache(
            self.cl_context,
            options,
            settings.cache_dir,
            self._hooks.build_variants,
            self._hooks.precompile,
            structs_by_reference=not features.struct_arguments,
        )
        self.launcher = EnqueueLauncher(self.programs, self.queue)
        self.replays: list[object] = []  # the first enqueues recorded commands: their memory is everybody's
        self._copies = Copies(self.queue, self.programs, self.info)
        self.tuning = load_tuning(entry, settings.cache_dir, settings.tuned)
        self.tables: dict[str, Any] = {}  # arrays that routines keep on the device; they go with the context
        self._dtypes: set[np.dtype] = set()  # that were checked already
        self._copy_flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        _opened.append(self)

    @cached_property
    def batch_launcher(self) -> KernelLauncher | None:
        """The driver's own launcher of kernel sequences; None if it has none: `launcher` works with every driver."""
        return self._hooks.launcher(self) if self.views.works() else None

    def __repr__(self) -> str:
        return f"<Context {self.name!r}: {self.info.name} ({self.info.platform})>"

    @staticmethod
    def restore(name: str, host: np.ndarray) -> GpuArray:
        """Unpickle an array: upload it again, to the context of the same name."""
        return get_context(name).from_host(host)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a context cannot be pickled: pickle its name")

    def build(self, sources: Iterable[KernelSource]) -> list["cl.Program"]:
        """Build, as one program, the kernels that are not there yet; return the programs, which the caller keeps."""
        return self.programs.build(sources)

    def kernel(self, source: KernelSource, function: str | None = None) -> Kernel:
        """Return a new kernel object."""
        return self.programs.kernel(source, function)

    def check_dtype(self, dtype: Any) -> np.dtype:
        """Return `dtype` as NumPy's, if arrays of it can live on the device.

        Raises
        ------
        UnsupportedDtype
            They cannot.
        """
        dtype = np.dtype(dtype)
        if not dtypes.is_supported(dtype):
            raise UnsupportedDtype(f"device arrays cannot hold {dtype}; they can: {', '.join(dtypes.SUPPORTED)}")
        if dtypes.needs_fp64(dtype) and not self.info.has_fp64:
            raise UnsupportedDtype(f"{self.info.name} has no double precision: {dtype} cannot be used on it")
        self._dtypes.add(dtype)
        return dtype

    def empty(self, shape: tuple[int, ...], dtype: Any) -> GpuArray:
        """Return a C-contiguous array with arbitrary values."""
        dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
        layout = Layout.contiguous(shape)
        return GpuArray(self, self.memory.allocate(layout.size * dtype.itemsize), dtype, layout)

    def from_host(self, array: Any, *, borrow: bool = False) -> GpuArray:
        """Upload a NumPy array, without waiting.

        Parameters
        ----------
        array
            Any strides.
        borrow
            The caller promises not to change `array` before it waits for the device next; else it is copied first.
        """
        array = np.asarray(array)
        dtype = array.dtype if array.dtype in self._dtypes else self.check_dtype(array.dtype)
        if self.is_small(array.nbytes):
            return GpuArray(self, self._buffer_of(np.ascontiguousarray(array)), dtype, _contiguous(array.shape))
        result = self.empty(array.shape, dtype)
        if array.size:
            packed = array if borrow and array.flags.c_contiguous else array.copy(order="C")
            try:
                self.queue.write(result.buffer, packed)
            except cl.Error as error:  # some drivers allocate memory when it is used
                self.memory.insist(lambda: self.queue.write(result.buffer, packed), error)
        return result

    def _buffer_of(self, packed: np.ndarray) -> "cl.Buffer":
        """Return a new buffer with the values of a small array."""
        try:
            return cl.Buffer(self.cl_context, self._copy_flags, hostbuf=packed)
        except cl.Error as error:
            make = partial(cl.Buffer, self.cl_context, self._copy_flags, hostbuf=packed)
            return self.memory.insist(make, error, packed.nbytes)

    def wrap(self, array: np.ndarray) -> GpuArray:
        """Return an array that reads the host's memory where it is, if the device can; else upload it.

        `array` must not change, nor `wrap`'s result be handed to anybody, until the device has been waited for.
        """
        slack = self.slack(array)
        if slack is None:
            return self.from_host(array, borrow=True)
        dtype = array.dtype if array.dtype in self._dtypes else self.check_dtype(array.dtype)
        address, memory = address_of(array) - slack, memory_before(array, slack) if slack else array
        self.memory.refuse(array.nbytes)
        try:
            buffer = wrapped(self.cl_context, memory, address)
        except cl.Error as error:
            make = partial(wrapped, self.cl_context, memory, address)
            buffer = self.memory.insist(make, error, memory.nbytes)
        self.queue.keep(buffer, array)  # the caller may let go of both as soon as kernels are enqueued
        layout = _contiguous(array.shape)
        return GpuArray(self, buffer, dtype, layout._replace(offset=slack // dtype.itemsize) if slack else layout)

    def lend(self, array: np.ndarray) -> GpuArray | None:
        """Return an array that is a copy of a small one, in memory of the host; None if it is not small.

        Whoever enqueues kernels that read it keeps it until they have run.
        """
        if not self.is_small(array.nbytes):
            return None
        dtype = array.dtype if array.dtype in self._dtypes else self.check_dtype(array.dtype)
        copied = np.array(array, order="C")
        try:
            buffer = wrapped(self.cl_context, copied, address_of(copied))
        except cl.Error as error:
            make = partial(wrapped, self.cl_context, copied, address_of(copied))
            buffer = self.memory.insist(make, error, copied.nbytes)
        return GpuArray(self, buffer, dtype, _contiguous(array.shape))

    def slack(self, array: np.ndarray) -> int | None:
        """Return how many bytes before an array the next address is that the device can use; None to upload it."""
        alignment = self.info.host_alignment
        if not alignment or self.is_small(array.nbytes) or not array.size or not array.flags.c_contiguous:
            return None
        slack = address_of(array) % alignment
        is_too_large = array.nbytes <= self.info.max_allocation < array.nbytes + slack
        return None if slack % array.itemsize or is_too_large else slack

    def is_small(self, nbytes: int) -> bool:
        """Whether the upload is best made part of the allocation: on CPUs a command of its own costs 10 us more."""
        return 0 < nbytes <= SMALL_UPLOAD and self.info.kind == "cpu"

    def download(self, array: GpuArray) -> np.ndarray:
        """Copy an array of this context into a new NumPy array; waits for it."""
        layout, dtype = array.layout, array.dtype
        if not layout.size:
            self.queue.wait()  # callers rely on the wait
            return np.empty(layout.shape, dtype)
        view = self.views.view(array)
        if view is not None:
            self.queue.wait()
            return view.copy()
        low, high = layout.span
        dense = layout.is_contiguous
        host = np.empty(layout.shape if dense else high - low, dtype)
        self.queue.read(host, array.buffer, low * dtype.itemsize)
        if dense:
            return host
        steps = [s * dtype.itemsize for s in layout.strides]
        view = np.lib.stride_tricks.as_strided(host[layout.offset - low :], layout.shape, steps)
        return np.ascontiguousarray(view)

    def duplicate(self, array: GpuArray) -> GpuArray:
        """Copy an array on the device, with the span of its strides; does not wait."""
        low, high = array.layout.span
        count = (high - low) * array.dtype.itemsize
        buffer = self.memory.allocate(count)
        if count:
            self._copies.start(buffer, array.buffer, low * array.dtype.itemsize, count)
        layout = array.layout._replace(offset=array.layout.offset - low)
        return GpuArray(self, buffer, array.dtype, layout)


def open_context(device: str = "opencl", name: str = "dev0", settings: Settings | None = None) -> Context:
    """Open a device outside the registry.

    Parameters
    ----------
    device
        What `runtime.device.resolve` understands.
    name
        Name of the context.
    settings
        How to build and launch.
    """
    return _context(name, resolve(device), settings)


def _context(name: str, entry: DeviceEntry, settings: Settings | None) -> Context:
    """Return a new context.

    Raises
    ------
    UnusableDevice
        The device failed its self-check, or the driver does not open it.
    """
    try:
        return Context(name, entry, settings)
    except cl.Error as error:
        info = entry.info
        driver = f"driver: {info.platform} {info.driver}"
        raise UnusableDevice(
            f"{entry.stable_spec} {info.name} ({driver}) cannot be opened: {error}. "
            "'python -m pytensor_cl doctor' examines it"
        ) from error


@dataclass
class _Registry:
    """Which device each context name means; contexts open when they are first used."""

    specs: dict[str, str] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)
    default: str | None = None
    settings: Callable[[], Settings] = Settings  # asked when a context opens
    unusable: dict[str, UnusableDevice] = field(default_factory=dict)  # why contexts cannot be opened
    changes: dict[str, Any] = field(default_factory=dict)  # to the settings
    trouble: str = ""  # what is wrong with the flags that define contexts
    opening: Any = field(default_factory=Lock)  # held while a context is opened


_registry = _Registry()
_opened: list[Context] = []
_abandoned: list[object] = []


def parse_contexts(text: str) -> dict[str, str]:
    """Split the flag ``contexts`` into names and devices.

    Raises
    ------
    ContextNotDefined
        It is not ``name->device[;name->device...]``.
    """
    pairs: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, arrow, device = (part.strip() for part in item.partition("->"))
        if not (arrow and name and device) or name in pairs or name == "cpu":
            raise ContextNotDefined(
                f"flag contexts={text!r}: {item!r} is not 'name->device' with a name of its own; "
                "an example: contexts=dev0->opencl0:0;dev1->opencl0:1"
            )
        pairs[name] = device
    return pairs


def define_contexts(
    specs: dict[str, str], default: str | None, settings: Callable[[], Settings] | None = None, trouble: str = ""
) -> None:
    """Replace the names of contexts; those that are open already stay as they are.

    Parameters
    ----------
    specs
        Context name to device.
    default
        The context of graphs that name none.
    settings
        Asked for the settings of each context that is opened from now on.
    trouble
        Why there are no contexts: what each use of one raises, as a `ContextNotDefined`.
    """
    _registry.specs = {**specs}
    _registry.trouble = trouble
    _registry.unusable.clear()
    _registry.default = default
    _registry.settings = settings or _registry.settings


def change_settings(**options: Any) -> None:
    """Change some settings, for contexts that are opened from now on; `options` are fields of `Settings`."""
    replace(Settings(), **options)  # refuses what is no setting
    _registry.changes.update(options)


def _check_flags() -> None:
    if _registry.trouble:
        raise ContextNotDefined(_registry.trouble)


def undefined(name: Any) -> ContextNotDefined:
    """Return the error for a name that no context has; its message says what to write instead."""
    named = ", ".join(f"{n} ({spec})" for n, spec in _registry.specs.items()) or "none"
    text = f"no context is called {name!r}; defined are: {named}. "
    if str(name).lower().startswith("opencl"):
        text += (
            f"{name!r} is a device: give it a name with pytensor_cl.use({name!r}, 'dev1') or the flag "
            f"contexts=dev1->{name}, and write 'dev1'"
        )
    elif name == "cpu":
        text += "The host is none: take pytensor.shared for a shared variable, x.transfer('cpu') for a value"
    else:
        text += (
            f"Take one of them, or define it with pytensor_cl.use('opencl:gpu', '{name}') or the flag "
            f"contexts={name}->opencl:gpu; devices are listed by: pytensor-cl devices"
        )
    return ContextNotDefined(text)


def add_context(name: str, device: str) -> None:
    """Define one more context name (or the same again).

    Raises
    ------
    ValueError
        The name means another device already.
    """
    _check_flags()
    if _registry.specs.get(name, device) != device:
        raise ValueError(
            f"context {name!r} is {_registry.specs[name]!r} already, it cannot become {device!r}: choose the device "
            f"before anything uses the context, or another name, pytensor_cl.use({device!r}, '{name}_2')"
        )
    _registry.specs[name] = device
    _registry.default = _registry.default or name


def defined_contexts() -> tuple[str, ...]:
    """Return the names of all contexts."""
    _check_flags()
    return tuple(_registry.specs)


def default_context_name() -> str:
    """Return the name of the context of graphs that name none; ``dev0`` on the default device if there is none."""
    _check_flags()
    if _registry.default is None:
        add_context(_DEFAULT, "opencl")
    assert _registry.default is not None
    return _registry.default


def is_open(name: str) -> bool:
    """Tell whether the context of a name has been opened."""
    return name in _registry.contexts


def is_forked() -> bool:
    """Tell whether this process is a fork of one that had loaded the drivers, so that it cannot use any."""
    return bool(_abandoned)


def get_context(name: str | None = None) -> Context:
    """Return the context of a name, opened if it is not yet.

    Raises
    ------
    ContextNotDefined
        No flag and no call defined the name.
    DeviceNotFound
        There is no such device.
    ForkedProcessError
        This process is a fork of one that used OpenCL.
    UnusableDevice
        The device failed its self-check.
    """
    name = name or default_context_name()
    if _abandoned:
        raise _forked()
    context = _registry.contexts.get(name)
    return _opened_by_now(name) if context is None else context


def is_unusable(name: str) -> bool:
    """Tell whether the device of a context was found to be unusable; opens nothing."""
    return name in _registry.unusable


def why_unusable(name: str | None = None) -> str:
    """Return why the device of a context cannot be used, opening it; empty if it can, or for any other reason."""
    try:
        get_context(name)
    except UnusableDevice as error:
        return str(error)
    except OpenCLError:  # raised again where the context is needed
        pass
    return ""


def _opened_by_now(name: str) -> Context:
    """Return a context that this thread opens, or another one that was faster."""
    with _registry.opening:
        context = _registry.contexts.get(name)
        if name in _registry.unusable:
            raise _registry.unusable[name]
        if context is None:
            context = _registry.contexts[name] = _open(name)
        return context


def _open(name: str) -> Context:
    if name == _DEFAULT and not _registry.specs:
        default_context_name()  # a process that loads what another one pickled may name it first
    if name not in _registry.specs:
        raise undefined(name)
    settings = replace(_registry.settings(), **_registry.changes)
    entry, label = resolve(_registry.specs[name]), None if tuple(_registry.specs) == (name,) else name
    try:
        context = _context(name, entry, settings)
    except UnusableDevice as error:
        _registry.unusable[name] = error
        sys.stderr.write(f"Mapped name {label} to no device: {error}. With opencl__placement=auto the host computes\n")
        raise
    if not settings.quiet:
        announce(f"Mapped name {label} to device {entry.spec}: {context.info.name} ({context.info.platform})")
        if context.info.features.warning:
            announce(f"{entry.spec}: {context.info.features.warning}")
    return context


def sync() -> None:
    """Wait until every queue of every context has finished."""
    for context in _opened:
        context.queue.wait()


def _forked() -> ForkedProcessError:
    return ForkedProcessError(
        "this process was forked from one that had loaded the OpenCL drivers, and these do not survive a fork "
        "(PoCL hangs). Start workers with the 'spawn' or 'forkserver' method: "
        "multiprocessing.set_start_method('spawn'), or in PyMC pm.sample(..., mp_ctx='forkserver') or cores=1"
    )


class _Inherited:
    """Stands where a forked child inherited a queue or a pool."""

    def __getattr__(self, name: str) -> NoReturn:
        raise _forked()


def _after_fork() -> None:
    _registry.opening = Lock()  # another thread of the parent may have held it
    if are_drivers_loaded():  # their threads are the parent's
        _abandoned.append("drivers")
    for context in _opened:
        # Keep the parent's objects: releasing them in the child can hang as well.
        _abandoned.extend((context.queue, context.memory, context.programs, context.views))
        context.queue = context.memory = context.programs = context.views = _Inherited()  # type: ignore[assignment]


os.register_at_fork(after_in_child=_after_fork)
