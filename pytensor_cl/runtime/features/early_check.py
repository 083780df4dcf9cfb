"""The self-check of a device that a flag names, begun while the program still imports its modules.

The self-check of a driver that is not known yet takes more than a second, and the first function waits for it. So
`start` runs it in a process of its own if no results are on disk at all: the cache is empty. The process ends with
this one.
"""

import atexit
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from pytensor_cl.runtime import worker_processes
from pytensor_cl.runtime.features.features import features_folder

_started: dict[int, "subprocess.Popen[bytes]"] = {}
"""The process, by the number of the process that started it: a forked child has none."""


def start(device: str, cache_dir: str | None) -> None:
    """Begin the self-check of a device if nothing is known of any device.

    `cache_dir`: the package's cache folder; None is the user's.
    """
    if _started or not worker_processes.can_start() or _has_results(features_folder(cache_dir)):
        return
    command = worker_processes.command("features.early_check_process", device)
    null = subprocess.DEVNULL
    with suppress(OSError):
        _started[os.getpid()] = subprocess.Popen(
            [*command, *([cache_dir] if cache_dir else [])],
            stdin=null,
            stdout=null,
            stderr=null,
            env=worker_processes.environment(),
            start_new_session=True,  # the check and its probes are one group, which `_end` can kill
        )
        atexit.register(_end)


def _has_results(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:  # a path that cannot be looked at
        return False


def finish() -> bool:
    """Wait for the self-check that was begun; return whether there was one."""
    process = _started.pop(os.getpid(), None)
    if process is not None:
        process.wait()
    return process is not None


def _end() -> None:
    """End the self-check, which nothing has waited for."""
    process = _started.pop(os.getpid(), None)
    if process is None or process.poll() is not None:
        return
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
