"""Interfaces of the runtime.

Two kinds are here. `DeviceContext` is what arrays, error flags and kernel launchers need of a context, which is built
on top of them. `DriverHooks`, `ContextHooks`, `QueueHooks` and `KernelLauncher` are what a driver may replace: see
`pytensor_cl.runtime.drivers` for the drivers that do.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation.variants import BuildVariants
from pytensor_cl.runtime.launch_capture import Launch


class QueueHooks(Protocol):
    """Hooks of a driver for the use of a queue."""

    def on_submit(self) -> None:
        """A command is about to be enqueued, or has been."""

    def exclusive_wait(self) -> AbstractContextManager[None]:
        """Return a context manager around a wait for everything that runs on the device."""

    def after_wait(self) -> None:
        """A wait is over."""


class DeviceQueue(Protocol):
    """The queue of a context, as arrays and kernel launchers see it."""

    handle: "cl.CommandQueue"
    hooks: QueueHooks

    @property
    def has_pending(self) -> bool:
        """Whether a command may have been enqueued for which no thread has waited."""

    @property
    def last_submission(self) -> object:
        """An object that another one replaces with each command."""

    def mark_submitted(self) -> None:
        """Note that a command is about to be enqueued, or has been."""

    def expose_handle(self) -> "cl.CommandQueue":
        """Return the OpenCL queue for code that does not call `mark_submitted`."""

    def is_same(self, queue: "cl.CommandQueue") -> bool:
        """Return whether a pyopencl queue is this one."""

    def wait_for_queue(self, other: "cl.CommandQueue | None", events: "Sequence[cl.Event]" = ()) -> None:
        """Let later commands run after those of another queue, and after events."""

    def order_before(self, other: "cl.CommandQueue") -> None:
        """Let later commands of another queue run after those of this one."""

    def read(self, array: np.ndarray, buffer: "cl.Buffer", offset: int = 0) -> None:
        """Copy bytes of a buffer into a host array; wait for it."""

    def flush(self) -> None:
        """Hand enqueued commands to the device."""

    def keep_for(self, user: Any, owner: Any) -> None:
        """Keep the owner of memory as long as its user, and until the commands enqueued before its end have run."""

    def write(self, buffer: "cl.Buffer", array: np.ndarray, offset: int = 0) -> None:
        """Enqueue a copy of a host array into a buffer."""

    def keep_until_wait(self, user: Any, owner: Any) -> None:
        """Keep the owner of memory until its user is gone and the kernels that read it have run."""

    def keep_until_event(self, event: "cl.Event", what: Any) -> None:
        """Keep an object until the command of an event has run."""

    def expect_long_wait(self) -> None:
        """Note that the next wait may take long."""

    def finish(self) -> None:
        """Wait until every command has run."""

    def wait(self) -> None:
        """Wait until every command has run, if one may be pending."""

    def finish_raw(self) -> None:
        """Wait until every command has run; release nothing."""

    def end_wait(self) -> None:
        """Release what commands have used that have run."""


class HostAddresses(Protocol):
    """Host addresses of the buffers of a device that computes in the host's memory."""

    def address(self, buffer: Any) -> int:
        """Return the address of a buffer."""

    def memory_of(self, buffer: Any) -> np.ndarray:
        """Return the bytes of a buffer; the caller keeps the buffer."""

    def retain(self, buffer: Any) -> Any:
        """Return an object that keeps the memory of a buffer from reuse."""

    def view(self, array: Any) -> np.ndarray | None:
        """Return a NumPy array over a device array; None if the host cannot access its memory."""


class ArrayExports(Protocol):
    """The exports of the arrays of a context: methods of arrays that give memory to other code call these."""

    def to_pyopencl(self, array: Any, queue: "cl.CommandQueue | None") -> Any:
        """Return a ``pyopencl.array.Array`` over the memory."""

    def to_buffer(self, array: Any, queue: "cl.CommandQueue | None") -> tuple[Any, int]:
        """Return the buffer, and the offset of the first element in bytes."""

    def host_view(self, array: Any, writeable: bool) -> np.ndarray:
        """Return a NumPy array over the memory."""

    def map(self, array: Any, mode: str) -> "AbstractContextManager[np.ndarray]":
        """Return a context manager that maps the memory."""

    def to_numpy(self, array: Any, dtype: Any, copy: bool | None) -> np.ndarray:
        """Return a NumPy array, as ``__array__``."""

    def dlpack(self, array: Any, **options: Any) -> Any:
        """Return a capsule, as ``__dlpack__``."""

    def dlpack_device(self) -> tuple[int, int]:
        """Return the device, as ``__dlpack_device__``."""


class FoundErrors(Protocol):
    """The errors that the kernels of array operations find in data."""

    def check(self) -> None:
        """Wait and raise the first one; do nothing if there were none."""


class DeviceContext(Protocol):
    """An open device, as arrays, error flags and kernel launchers see it."""

    name: str

    def __hash__(self) -> int: ...

    @property
    def cl_context(self) -> "cl.Context":
        """The pyopencl context."""

    @property
    def queue(self) -> DeviceQueue:
        """The in-order queue."""

    @property
    def mappings(self) -> HostAddresses:
        """Host addresses of buffers."""

    @property
    def exports(self) -> ArrayExports:
        """The exports of the context's arrays."""

    @property
    def deferred_errors(self) -> FoundErrors:
        """The errors of array operations that no wait has raised yet."""

    def kernel(self, source: KernelSource, function: str | None = None) -> Any:
        """Return a new kernel object of a source."""

    def check_dtype(self, dtype: Any) -> np.dtype:
        """Return `dtype` as a NumPy dtype, if the device supports it."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a C-contiguous device array with arbitrary values."""

    def download(self, array: Any) -> np.ndarray:
        """Copy a device array into a new NumPy array; wait for it."""

    def copy(self, array: Any) -> Any:
        """Copy a device array on the device."""


# Kernel launches that are repeated


class BoundKernel(Protocol):
    """A kernel of a launch sequence, with arguments of its own."""

    @property
    def access_modes(self) -> str:
        """One letter per argument: ``r`` (only read), ``w`` (written) or ``v`` (passed by value)."""

    def bind(self, index: int, buffer: Any) -> None:
        """Set a pointer argument that stays the same in all runs."""

    @property
    def set_buffer(self) -> Callable[[int, Any], None]:
        """Sets a pointer argument."""

    @property
    def set_bytes(self) -> Callable[[int, Any], None]:
        """Sets an argument that is passed by value."""

    def argument_word(self, index: int) -> tuple[np.ndarray, int] | None:
        """Return the array and the index of the word that holds the address of an argument; None if none does."""


class LaunchSequence(Protocol):
    """Kernels with bound arguments that run one after the other."""

    launches: int  # number of OpenCL launches in which they run

    def __len__(self) -> int:
        """Return the number of kernels."""

    def submit(self, keep: Sequence[Any], buffers: Sequence[Any]) -> None:
        """Enqueue the kernels with the arguments that are set now.

        `keep`: objects that must stay until the kernels have run. `buffers`: buffers whose memory must stay, although
        the pool may hand it to commands that are enqueued later.
        """

    def run_and_wait(self) -> None:
        """Run the kernels, and whatever was enqueued before them, to the end."""


class SequenceBuilder(Protocol):
    """Makes launch sequences of kernels that were launched before."""

    # Whether arguments are addresses in a table of the host. The driver then has no references to the buffers, and
    # kernels wait for those in `depends_on` of `finish`; elsewhere the queue runs them in order.
    uses_addresses: bool

    def add(self, launch: Launch) -> BoundKernel:
        """Return a new kernel for a launch, with the launch's by-value arguments and no buffers."""

    def finish(
        self, kernels: Sequence[Any], depends_on: Sequence[int], groups: Sequence[Sequence[int]] | None = None
    ) -> LaunchSequence:
        """Return a sequence.

        `kernels`: results of `add`, in order; `groups`: their indices in the order in which they may run; those of a
        group do not depend on each other, and may be one launch. None: one after the other, as they are.
        """


class KernelLauncher(Protocol):
    """Runs launch sequences."""

    def begin(self, launches: Sequence[Launch], is_waited_for: bool) -> SequenceBuilder | None:
        """Return a builder for sequences of these launches.

        None if one of them is not supported, or if single launches are faster. `is_waited_for`: whether calls wait for
        the sequences.
        """


# Methods that a driver may replace


class ContextOptions(NamedTuple):
    """The settings of a context that concern drivers."""

    batch_kernels: bool = True  # let one launch run all kernels of a replayed call
    park_workers: bool = True  # let the threads of that launch wait for the next call
    parallel_compile: bool = True  # let other processes compile kernels of new programs
    structs_by_value: bool = True  # whether kernels can take structs as arguments
    flushes_subnormals: bool = False  # whether kernels take subnormal numbers for zero


class ContextHooks(Protocol):
    """Hooks of a driver for one context."""

    @property
    def queue(self) -> QueueHooks:
        """Hooks for the use of the context's queue."""

    @property
    def build_variants(self) -> BuildVariants:
        """Function from a program's text to its build variants; the first that builds is used."""

    @property
    def memory_flags(self) -> int:
        """``CL_MEM_...`` of all buffers besides ``READ_WRITE``."""

    def check_room(self, text: str) -> None:
        """Check that there is room for what the driver writes when it compiles a program, or a kernel (no text).

        Raises `OutOfDiskSpace`: there is none.
        """

    def precompile(self, text: str) -> "AbstractContextManager[Callable[[str, Sequence[str]], None]]":
        """Return a context manager around the build of a new program.

        Its value is called with the program and the build options when the build has succeeded.
        """

    def launcher(self, context: DeviceContext) -> KernelLauncher | None:
        """Return a launcher that replaces the one which enqueues each kernel; None if there is none."""


class DriverHooks(Protocol):
    """Hooks of one driver, for its deviations from the OpenCL standard."""

    name: str  # name of the driver

    @property
    def repaired_files(self) -> int:
        """Number of damaged files that this process has removed from the driver's cache."""

    def loading(self) -> AbstractContextManager[None]:
        """Return a context manager around the call that loads all drivers of the process."""

    def loaded(self, platforms: Sequence[str], new_threads: frozenset[int]) -> None:
        """Drivers were loaded."""

    def matches(self, device: "cl.Device") -> bool:
        """Return whether a device belongs to the driver."""

    def open(self, device: "cl.Device", options: ContextOptions) -> ContextHooks:
        """Return the hooks of a new context."""

    def cache_folder(self) -> tuple[Path, tuple[str, ...]] | None:
        """Return the folder of the driver's cache on disk, and patterns of the names in it."""

    def damaged_files(self) -> Iterator[Path]:
        """Yield damaged files of that cache."""
