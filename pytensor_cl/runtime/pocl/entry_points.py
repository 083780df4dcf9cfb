"""Entry points of kernels: functions that another kernel, or the host, can call by their address.

`outlining` gives kernels an entry point, which reads its arguments from memory. The kernel writes the address of its
entry point into a buffer when it is launched with one more argument.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.interfaces import DeviceContext
from pytensor_cl.runtime.launch_capture import Launch
from pytensor_cl.runtime.pocl.builtin_headers import header
from pytensor_cl.runtime.program import Kernel


def supports_entry_points(version: str) -> bool:
    """Return whether kernels can get entry points: with the PoCL of the wheel (by its version), on Linux and x86-64."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and header(version) is not None


class _DlInfo(ctypes.Structure):
    """The dynamic linker's information about an address: ``Dl_info``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _LoadedLibrary:
    """Keeps the shared library loaded that contains an address. PoCL unloads libraries that it has not used for long.

    Raises `OSError`: no library contains the address.
    """

    def __init__(self, address: int) -> None:
        process, info = ctypes.CDLL(None), _DlInfo()
        if not process.dladdr(ctypes.c_void_p(address), ctypes.byref(info)):
            raise OSError("no library at this address")
        self._close, self._handle = process.dlclose, ctypes.c_void_p(ctypes.CDLL(os.fsdecode(info.file))._handle)

    def __del__(self) -> None:
        if hasattr(self, "_handle") and not sys.is_finalizing():
            self._close(self._handle)


class EntryPoint:
    """The entry point of a kernel. The kernel's code stays loaded as long as this object."""

    __slots__ = ("__weakref__", "_library", "access_modes", "address")

    def __init__(self, address: int, access_modes: str) -> None:
        self._library = _LoadedLibrary(address)
        self.address, self.access_modes = address, access_modes


class EntryPoints:
    """Finds the entry points of a context's kernels.

    `access_modes`: name of a kernel with an entry point to its arguments' access modes (`outlining.access_modes_of`).
    """

    def __init__(self, context: DeviceContext, access_modes: Mapping[str, str]) -> None:
        self._context, self._access_modes = context, access_modes
        self._found: WeakValueDictionary[str, EntryPoint] = WeakValueDictionary()  # keys: names of kernel functions
        self._missing: set[str] = set()

    def find(self, launch: Launch) -> EntryPoint | None:
        """Return the entry point of a kernel that was launched before; None if it has none."""
        name = launch.kernel.function_name
        entry = self._found.get(name)
        if entry is None and name not in self._missing:
            modes = self._access_modes.get(name, "")
            entry = self._query(launch, modes) if len(modes) == len(launch.arguments) else None
            if entry is None:
                self._missing.add(name)
            else:
                self._found[name] = entry
        return entry

    def find_all(self, launches: Sequence[Launch]) -> list[EntryPoint] | None:
        """Return the entry points of all kernels, in order; None if one has none, or has larger work-groups."""
        if not all(_has_single_items(launch) for launch in launches):
            return None
        entries = [entry for launch in launches if (entry := self.find(launch)) is not None]
        return entries if len(entries) == len(launches) else None

    def _query(self, launch: Launch, access_modes: str) -> EntryPoint | None:
        """Launch a copy of a kernel so that it writes the address of its entry point."""
        kernel, memory = Kernel.clone(launch.kernel), np.zeros(16, np.uint64)
        for index, nbytes in enumerate(value_sizes(launch.arguments)):
            if nbytes:
                kernel.set_bytes(index, bytes(nbytes))
            else:
                kernel.set_buffer(index, None)
        address = cl.Buffer(self._context.cl_context, cl.mem_flags.USE_HOST_PTR, hostbuf=memory)
        kernel.set_buffer(len(access_modes), address)
        queue = self._context.queue
        queue.mark_submitted()  # releases parked workers, for which PoCL would wait
        cl.enqueue_nd_range_kernel(queue.handle, kernel.handle, (1,), (1,))
        queue.finish_raw()
        try:
            return EntryPoint(int(memory[0]), access_modes)
        except OSError:
            return None


def _has_single_items(launch: Launch) -> bool:
    """Return whether the work-groups of a launch are single work-items."""
    return launch.local_size is not None and prod(launch.local_size) == 1


def value_sizes(arguments: Sequence[Any]) -> list[int]:
    """Return the bytes of each argument that is passed by value; 0 for pointers."""
    return [len(a) if isinstance(a, bytes) else a.nbytes if isinstance(a, np.generic) else 0 for a in arguments]
