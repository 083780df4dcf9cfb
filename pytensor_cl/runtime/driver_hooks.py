"""The registry of driver hooks, and the hooks of drivers that need none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation.variants import default_variants
from pytensor_cl.runtime.interfaces import (
    ContextHooks,
    ContextOptions,
    DeviceContext,
    DriverHooks,
    KernelLauncher,
)

_registered: list[DriverHooks] = []


class DefaultQueueHooks:
    """Queue hooks that do nothing."""

    def on_submit(self) -> None:
        """Do nothing."""

    def exclusive_wait(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()

    def after_wait(self) -> None:
        """Do nothing."""


class _DefaultContextHooks:
    """Context hooks of a driver without hooks of its own."""

    def __init__(self, device: "cl.Device") -> None:
        self.queue = DefaultQueueHooks()
        self.build_variants = default_variants(device)
        self.memory_flags = 0

    def check_room(self, text: str) -> None:
        """Do nothing: where a driver writes what it compiles is not known."""

    def precompile(self, text: str) -> "AbstractContextManager[Callable[[str, Sequence[str]], None]]":
        """Return a context manager that does nothing."""
        return nullcontext(_ignore)

    def launcher(self, context: DeviceContext) -> KernelLauncher | None:
        """Return None: kernels are enqueued one by one."""
        return None


def _ignore(text: str, options: Sequence[str]) -> None:
    """Do nothing with a program that was built."""


class DefaultDriverHooks:
    """Hooks of a driver that needs nothing besides the OpenCL standard."""

    name = "default"
    repaired_files = 0

    def loading(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()

    def loaded(self, platforms: Sequence[str], new_threads: frozenset[int]) -> None:
        """Do nothing."""

    def matches(self, device: "cl.Device") -> bool:
        """Return whether a device belongs to the driver: any does."""
        return True

    def open(self, device: "cl.Device", options: ContextOptions) -> ContextHooks:
        """Return context hooks that do nothing."""
        return _DefaultContextHooks(device)

    def cache_folder(self) -> tuple[Path, tuple[str, ...]] | None:
        """Return None: where a driver keeps what it compiles is not known."""
        return None

    def damaged_files(self) -> Iterator[Path]:
        """Yield nothing."""
        return iter(())


_DEFAULT = DefaultDriverHooks()


def register(hooks: DriverHooks) -> None:
    """Add the hooks of a driver; called by the module that defines them."""
    _registered.append(hooks)


def all_hooks() -> list[DriverHooks]:
    """Return the hooks of all drivers that have any."""
    return list(_registered)


def hooks_of(device: "cl.Device") -> DriverHooks:
    """Return the hooks of a device's driver."""
    return next((hooks for hooks in _registered if hooks.matches(device)), _DEFAULT)
