"""Types for probes: the probe, the device that it runs on, and its result."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation.kernel_objects import new_kernel

ITEMS = 256


class WrongResult(Exception):
    """A probe computed wrong values; the message names them."""


class ProbeResult(NamedTuple):
    """The result of a probe on a device.

    `value`: value of the feature; the probe's fallback if it failed; `why`: why it failed; empty if it did not.
    """

    value: Any
    why: str = ""


class Device:
    """An open device for the probes.

    `handle`: the pyopencl device.
    """

    def __init__(self, handle: "cl.Device") -> None:
        self.handle = handle
        self.context = cl.Context([handle])
        self.queue = cl.CommandQueue(self.context, handle)
        self._program: Any = None

    def build(self, text: str) -> "cl.Program":
        """Build a text."""
        return cl.Program(self.context, text).build(options=["-w"], cache_dir=False)

    def share(self, text: str) -> None:
        """Build one program for all probes."""
        self._program = self.build(text)

    def kernel(self, text: str, name: str) -> "cl.Kernel":
        """Return a kernel of a probe's text, which is in the shared program if there is one."""
        return new_kernel(self._program or self.build(text), name)

    def buffer(self, array: np.ndarray) -> "cl.Buffer":
        """Return a buffer with a copy of an array."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=array)

    def read(self, buffer: "cl.Buffer", like: np.ndarray) -> np.ndarray:
        """Copy a buffer to the host."""
        result = np.empty_like(like)
        cl.enqueue_copy(self.queue, result, buffer, is_blocking=True)
        return result

    def run(self, kernel: "cl.Kernel", items: int, group: int | None, *args: Any) -> None:
        """Run a kernel with some arguments, and wait."""
        for index, arg in enumerate(args):
            kernel.set_arg(index, arg)
        cl.enqueue_nd_range_kernel(self.queue, kernel, (items,), None if group is None else (group,))
        self.queue.finish()


def check_equal(what: str, got: np.ndarray, wanted: Any) -> None:
    """Raise `WrongResult` if values differ."""
    wanted = np.asarray(wanted)
    if not np.array_equal(got, wanted):
        at = np.flatnonzero(got != wanted)[0] if got.shape == wanted.shape else 0
        raise WrongResult(f"{what}: {got.flat[at]} instead of {wanted.flat[at]} at {at}")


class Probe(NamedTuple):
    """A probe of a feature.

    `name`: name of the field of `Features`; ``plain`` is what all kernels need; `fallback`: the value of the feature if
    the probe fails; `text`: OpenCL C; the kernels are called ``probe_<name>...``; `check`: runs the kernels; returns
    the value; `is_risky`: some drivers end the process; `extension`: an extension without which the feature is missing;
    `of_cpus`: other devices are not probed, as the feature is used on CPUs only.
    """

    name: str
    fallback: Any
    text: str
    check: Callable[[Device, str], Any]
    is_risky: bool = False
    extension: str = ""
    of_cpus: bool = False
