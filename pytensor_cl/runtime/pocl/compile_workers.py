"""Worker processes that compile kernels ahead of their first launch, for PoCL.

PoCL compiles a kernel at its first launch, which takes 50 to 600 ms. A process compiles one kernel at a time, because
the compiler has one lock. PoCL writes the result to a cache on disk, which all processes share. So while a program with
many kernels is built, one process for each further core starts. When the program has been built, each process launches
its share of the kernels, in reverse order; this process calls them in their order.

No process waits for a worker. Errors of a worker are ignored: a kernel that is not in the cache is compiled here.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime import worker_processes
from pytensor_cl.runtime.host_cpu import granted_cores
from pytensor_cl.runtime.pocl.outlining import outlined_kernels

MIN_KERNELS = 8
"""Kernels of a program from which workers are started: fewer are compiled before the workers are ready."""
KERNELS_PER_WORKER = 4
"""Least number of kernels for each worker."""
MAX_WORKERS = 7
"""Most workers of a program."""


def _is_supported() -> bool:
    """Return whether there is a Python interpreter to start, and PoCL's cache on disk is in use."""
    return worker_processes.can_start() and os.environ.get("POCL_KERNEL_CACHE") != "0"


def _start(device: "cl.Device", count: int) -> list["subprocess.Popen[bytes]"]:
    """Start worker processes for a device; fewer if the system refuses to start more."""
    module, variables = "pocl.compile_worker", {"POCL_MAX_PTHREAD_COUNT": "1"}
    return worker_processes.start_for_device(device, module, count, variables, stdout=subprocess.DEVNULL)


class CompileWorkers:
    """The worker processes for one program; none if it has few kernels.

    `device`: the pyopencl device; `text`: the program.
    """

    def __init__(self, device: "cl.Device", text: str) -> None:
        self._kernels = outlined_kernels(text)
        count = len(self._kernels)
        wanted = (
            min(granted_cores() - 1, count // KERNELS_PER_WORKER, MAX_WORKERS)
            if count >= MIN_KERNELS and _is_supported()
            else 0
        )
        self._processes = _start(device, wanted) if wanted > 0 else []

    def send(self, text: str, options: Sequence[str]) -> None:
        """Send a program that has been built to the workers, which compile its kernels."""
        count = len(self._processes)
        for k in range(count):
            share = self._kernels[::-1][k::count]
            self._send_job(json.dumps({"text": text, "options": list(options), "kernels": share}))

    def end_idle(self) -> None:
        """End the workers that have no job."""
        while self._processes:
            self._send_job("")

    def _send_job(self, job: str) -> None:
        """Send a job to a worker. A thread writes it and waits for the process to end, so that no zombie remains."""
        process = self._processes.pop()
        with suppress(RuntimeError):  # no new threads while the interpreter shuts down
            Thread(target=process.communicate, args=(job.encode(),), daemon=True).start()


@contextmanager
def precompile(device: "cl.Device", text: str) -> Iterator[Callable[[str, Sequence[str]], None]]:
    """Start workers for a program while it is built; they compile its kernels when the value is called.

    `device`: the pyopencl device; `text`: the program.
    """
    workers = CompileWorkers(device, text)
    try:
        yield workers.send
    finally:
        workers.end_idle()
