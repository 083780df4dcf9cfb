"""Helper processes that compile kernels ahead, for PoCL.

PoCL compiles a kernel when it is launched for the first time, 50 to 600 ms each, one after the other: its compiler has
one lock in a process. It keeps the result on disk, where another process can have put it before. So while a program of
many kernels is built, a process for each other core starts; then each gets the program, and launches its share of the
kernels from the last one backwards, while this process calls them in their order and meets the helpers in the middle.

Nobody waits for a helper, nor hears of its troubles: what is not there when it is needed is compiled in this process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.host_cpu import granted_cores
from pytensor_cl.runtime.pocl.outlining import moved

__all__ = ["CompileWorkers", "precompile"]

MIN_KERNELS = 8
"""Kernels of a program for which helpers are started: fewer are compiled before they are ready."""
KERNELS_PER_WORKER = 4
"""Kernels for one helper at least."""
MAX_WORKERS = 7
"""Helpers at once."""


def _can_help() -> bool:
    """Return whether there is a Python to start, and a cache through which it can hand over what it made."""
    is_python = "python" in Path(sys.executable or "").name.lower() and not getattr(sys, "frozen", False)
    return is_python and os.environ.get("POCL_KERNEL_CACHE") != "0"


class CompileWorkers:
    """Helpers that wait for a program, or none.

    Parameters
    ----------
    device
        The pyopencl device.
    text
        The program.
    """

    def __init__(self, device: "cl.Device", text: str) -> None:
        self._kernels = moved(text)
        count = len(self._kernels)
        wanted = (
            min(granted_cores() - 1, count // KERNELS_PER_WORKER, MAX_WORKERS)
            if count >= MIN_KERNELS and _can_help()
            else 0
        )
        self._helpers = _start(device, wanted)

    def send(self, text: str, options: Sequence[str]) -> None:
        """Let them compile a program that has been built."""
        count = len(self._helpers)
        for k in range(count):
            share = self._kernels[::-1][k::count]
            self._part(json.dumps({"text": text, "options": list(options), "kernels": share}))

    def dismiss(self) -> None:
        """Let those who have got nothing end."""
        while self._helpers:
            self._part("")

    def _part(self, job: str) -> None:
        """Give a helper its job; a thread writes it, and waits for the end so that no zombie is left."""
        helper = self._helpers.pop()
        with suppress(RuntimeError):  # no new threads while the interpreter shuts down
            Thread(target=helper.communicate, args=(job.encode(),), daemon=True).start()


@contextmanager
def precompile(device: "cl.Device", text: str) -> Iterator[Callable[[str, Sequence[str]], None]]:
    """Start workers for a program while it is built; they compile its kernels when the value is called.

    Parameters
    ----------
    device
        The pyopencl device.
    text
        The program.
    """
    workers = CompileWorkers(device, text)
    try:
        yield workers.send
    finally:
        workers.dismiss()


def _start(device: "cl.Device", count: int) -> list[subprocess.Popen[bytes]]:
    """Start helpers for a device; as many as the system lets us."""
    if count < 1:
        return []
    platform = device.platform
    place = platform.name, platform.version, str(platform.get_devices().index(device))
    command = [sys.executable, "-P", "-m", "pytensor_cl.runtime.pocl.compile_worker", *place]
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    environment = {**os.environ, "PYTHONPATH": paths, "POCL_MAX_PTHREAD_COUNT": "1"}
    pipe, silence = subprocess.PIPE, subprocess.DEVNULL
    started: list[subprocess.Popen[bytes]] = []
    with suppress(OSError):
        started.extend(
            subprocess.Popen(command, env=environment, stdin=pipe, stdout=silence, stderr=silence) for _ in range(count)
        )
    return started
