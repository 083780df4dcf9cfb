"""Worker processes that build parts of a function's kernels, for the drivers of GPUs.

NVIDIA's driver compiles one program at a time in a process, whatever the number of threads, and keeps on disk what it
has built. For drivers that keep nothing, `compilation.binaries` does. So a function with many new kernels is built in
parts, each a program of its own. If the first part took long, it was not on disk, and probably the others are not: then
worker processes build the last parts while this process builds the first ones. What a worker has built, this process
builds again, in milliseconds.

That is measured: if such a build takes no less than one of this process's own, no more workers are started.
"""

import json
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from statistics import median
from time import perf_counter

from pytensor_cl import kept_threads
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime import worker_processes
from pytensor_cl.runtime.host_cpu import granted_cores

MIN_KERNELS = 8
"""New kernels of a function from which it is built in parts."""
PART_KERNELS = 4
"""Kernels of a part."""
QUICK_SECONDS = 0.05
"""Seconds that the build of a part takes at most if it is on disk."""
WORTH_SECONDS = 1.5
"""Seconds that the remaining parts must take this process, for workers to pay: they need a second until they begin."""
PARTS_PER_WORKER = 2
MAX_WORKERS = 6
"""Most workers of a function: each has a context on the device, which takes some hundred MB of its memory."""
_PATIENCE_SECONDS = 10.0  # least time to wait for a worker, before its part is built by this process
_USEFUL_SHARE = 0.5  # share of the time of an own build below which the build of a worker's part is quick


class ParallelBuild:
    """Builds the parts of functions on a device, as `build_worker` does in other processes.

    `options`: options of every build; `cache_dir`: folder of the package's caches; `structs_by_reference`: see
    `ProgramCache`.
    """

    def __init__(
        self, device: "cl.Device", options: Sequence[str], cache_dir: str | None, structs_by_reference: bool
    ) -> None:
        self._device = device
        self._settings = json.dumps([list(options), cache_dir, structs_by_reference])
        self._is_useful = worker_processes.can_start()

    def parts(self, sources: list[KernelSource]) -> list[list[KernelSource]]:
        """Divide the new kernels of a function, in the same way in every process: each part is found on disk again."""
        if len(sources) < MIN_KERNELS:
            return [sources]
        return [sources[k : k + PART_KERNELS] for k in range(0, len(sources), PART_KERNELS)]

    def build(self, texts: list[str], build: Callable[[str], "cl.Program"]) -> list["cl.Program"]:
        """Build programs; `build` builds one in this process, and raises what it raises."""
        start = perf_counter()
        programs = {0: build(texts[0])}
        seconds = perf_counter() - start
        left = deque(range(1, len(texts)))
        workers = self._start_workers(seconds, texts, left)
        own = [seconds]
        try:
            while left:
                with suppress(IndexError):  # a worker took the last one
                    k = left.popleft()
                    start = perf_counter()
                    programs[k] = build(texts[k])
                    own.append(perf_counter() - start)
        except BaseException:
            left.clear()
            raise
        if workers is not None:
            self._build_again(workers, texts, build, programs, median(own))
        return [programs[k] for k in range(len(texts))]

    def _start_workers(self, seconds: float, texts: list[str], left: "deque[int]") -> "_Workers | None":
        """Start workers where they pay; None otherwise. `seconds`: what the first part took."""
        count = min(granted_cores() - 1, len(left) // PARTS_PER_WORKER, MAX_WORKERS)
        pays = self._is_useful and seconds > QUICK_SECONDS and seconds * len(left) > WORTH_SECONDS
        return _Workers(self._device, self._settings, count, texts, left) if pays and count > 0 else None

    def _build_again(
        self,
        workers: "_Workers",
        texts: list[str],
        build: Callable[[str], "cl.Program"],
        programs: dict[int, "cl.Program"],
        own: float,
    ) -> None:
        """Build what workers have taken; `own`: seconds of a build of this process's own."""
        again = []
        for _ in range(len(texts) - len(programs)):
            try:
                k, is_built = workers.reports.get(timeout=_PATIENCE_SECONDS + 10 * own)
            except Empty:
                break
            start = perf_counter()
            programs[k] = build(texts[k])
            if is_built:
                again.append(perf_counter() - start)
        for k, text in enumerate(texts):
            if k not in programs:
                programs[k] = build(text)
        if again and median(again) > _USEFUL_SHARE * own:
            self._is_useful = False


class _Workers:
    """Worker processes that take numbers of parts from the end of `left`, each with a thread of this process.

    `reports` has the number of each part that was taken, and whether it was built.
    """

    def __init__(self, device: "cl.Device", settings: str, count: int, texts: list[str], left: "deque[int]") -> None:
        self.reports: SimpleQueue[tuple[int, bool]] = SimpleQueue()
        self._texts, self._left = texts, left
        pipe = subprocess.PIPE
        for process in worker_processes.start_for_device(device, "build_worker", count, stdout=pipe, text=True):
            with suppress(RuntimeError):  # no new threads while the interpreter shuts down
                kept_threads.start(partial(self._serve, process, settings), "pytensor-cl builds")

    def _serve(self, process: "subprocess.Popen[str]", settings: str) -> None:
        """Give parts to a process until there are no more, and wait for its end."""
        assert process.stdin is not None and process.stdout is not None
        try:
            while self._is_ready(process, settings):
                k = self._left.pop()
                is_built = False
                try:
                    is_built = self._is_ready(process, json.dumps(self._texts[k]))
                finally:
                    self.reports.put((k, is_built))
                settings = ""
        except (IndexError, OSError, ValueError):  # nothing is left, or the process has ended
            pass
        with suppress(OSError):
            process.stdin.close()
        process.wait()

    def _is_ready(self, process: "subprocess.Popen[str]", line: str) -> bool:
        """Send a line, if it is not empty, and wait for the answer."""
        assert process.stdin is not None and process.stdout is not None
        if line:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return process.stdout.readline() == "done\n"
        return True
