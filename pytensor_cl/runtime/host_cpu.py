"""The cores of the host that this process may use, and its threads."""

import os
from math import ceil
from pathlib import Path


def granted_cores(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many cores this process may keep busy.

    This is the size of its CPU set, or the CPU quota of its control group where that is smaller. Threads that wait for
    each other in a loop use up such a quota.

    `group`: folder of the control group (version 2), as it appears in a container.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return max(1, min(cores, ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # the file is missing, or the quota is "max"
        return cores


def thread_ids() -> frozenset[int]:
    """Return the operating-system numbers of this process's threads; empty where the system is not Linux."""
    folder = Path("/proc/self/task")
    return frozenset(int(path.name) for path in folder.iterdir()) if folder.is_dir() else frozenset()
