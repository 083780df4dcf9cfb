"""PoCL's hooks: everything that makes this driver faster, or repairs its cache. It works without them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.cache_dirs import check_room, compiler_folder
from pytensor_cl.runtime.driver_hooks import DefaultQueueHooks, register
from pytensor_cl.runtime.interfaces import ContextHooks, ContextOptions, DeviceContext, KernelLauncher
from pytensor_cl.runtime.names import unversioned_name
from pytensor_cl.runtime.pocl.affinity import pin_threads, rebalance, without_python_threads
from pytensor_cl.runtime.pocl.batch import BatchLauncher
from pytensor_cl.runtime.pocl.cache import Repair, damaged_files
from pytensor_cl.runtime.pocl.compile_workers import precompile
from pytensor_cl.runtime.pocl.compiler_start import start_if_cold
from pytensor_cl.runtime.pocl.entry_points import supports_entry_points
from pytensor_cl.runtime.pocl.variants import PoclVariants

_CACHE_NAMES = ("[A-P][A-P]", "tempfile_*")
_KERNEL_ROOM, _ROOM_PER_BYTE = 1 << 20, 4
"""Bytes that PoCL may write for a kernel, and per byte of a program. A kernel takes 15 to 100 KB, a program as much as
its text, and drafts the same."""
_WIDEST_FLOATS = 16  # floats in a vector of 64 bytes


def _ignore(text: str, options: Sequence[str]) -> None:
    """Do nothing with a program that was built."""


class PoclQueueHooks(DefaultQueueHooks):
    """Queue hooks of a context without parked workers."""

    def after_wait(self) -> None:
        """Pin PoCL's threads again if necessary (`affinity.rebalance`)."""
        rebalance()


class PoclContextHooks:
    """Hooks of PoCL for one context.

    `device`: the pyopencl device.
    """

    def __init__(self, device: "cl.Device", options: ContextOptions) -> None:
        version = device.driver_version.strip()
        # Vectors wider than the CPU's are passed in memory, so a call of a short built-in costs more than its work.
        is_narrow = device.native_vector_width_float < _WIDEST_FLOATS
        has_batches = options.batch_kernels and options.structs_by_value and supports_entry_points(version)
        self._device, self._options = device, options
        self._has_batches = has_batches
        self._variants = PoclVariants(version, is_narrow, has_batches)
        self.queue = PoclQueueHooks()
        self.build_variants = self._variants
        if options.parallel_compile:
            start_if_cold(device)
        # PoCL would allocate the memory of a buffer when it is used first, and end the process where there is none.
        self.memory_flags = cl.mem_flags.ALLOC_HOST_PTR

    def check_room(self, text: str) -> None:
        """Check that there is room in PoCL's cache: where it cannot write, it ends the process."""
        check_room(_KERNEL_ROOM + _ROOM_PER_BYTE * len(text))

    def precompile(self, text: str) -> "AbstractContextManager[Callable[[str, Sequence[str]], None]]":
        """Return a context manager that starts compile workers for a program with many kernels."""
        return precompile(self._device, text) if self._options.parallel_compile else nullcontext(_ignore)

    def launcher(self, context: DeviceContext) -> KernelLauncher | None:
        """Return the launcher of kernel batches; None if kernels have no entry points."""
        if not self._has_batches:
            return None
        return BatchLauncher(context, self._variants.access_modes, self._options)


class PoclHooks:
    """Hooks of PoCL."""

    name = "PoCL"

    @property
    def repaired_files(self) -> int:
        """Damaged files that this process has removed from PoCL's cache."""
        return Repair.removed

    def loading(self) -> AbstractContextManager[None]:
        """Return a context manager that repairs PoCL's cache in a thread while drivers are loaded."""
        return Repair()

    def loaded(self, platforms: Sequence[str], new_threads: frozenset[int]) -> None:
        """Pin PoCL's threads, which it starts when it is loaded. Python's own new threads are left out."""
        if any(unversioned_name(name) == "pocl" for name in platforms):
            pin_threads(without_python_threads(new_threads))

    def matches(self, device: "cl.Device") -> bool:
        """Return whether a device is a CPU of PoCL's."""
        return bool(device.type & cl.device_type.CPU) and "Portable Computing" in device.platform.name

    def open(self, device: "cl.Device", options: ContextOptions) -> ContextHooks:
        """Return the hooks of a new context."""
        return PoclContextHooks(device, options)

    def cache_folder(self) -> tuple[Path, tuple[str, ...]]:
        """Return the folder of PoCL's cache, and patterns of the names in it."""
        return compiler_folder(), _CACHE_NAMES

    def damaged_files(self) -> Iterator[Path]:
        """Yield damaged files of that cache."""
        return damaged_files(compiler_folder())


register(PoclHooks())
