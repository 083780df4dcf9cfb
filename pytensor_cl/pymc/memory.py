"""Memory that this process may still take."""

import sys
from collections.abc import Iterator
from pathlib import Path


def available_memory() -> int:
    """Return the bytes that can be allocated: the least of the machine's, the control group's and the process's limit.

    What a system does not tell counts as no limit.
    """
    return max(min([sys.maxsize, *_machine(), *_control_group(), *_process()]), 0)


def _numbers(path: str) -> dict[str, int]:
    """Return the lines of a file of names and numbers; none if it cannot be read."""
    try:
        lines = [line.replace(":", "").split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def _number(path: str) -> int | None:
    """Return the number that a file holds, if it holds one."""
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _machine() -> Iterator[int]:
    found = _numbers("/proc/meminfo").get("MemAvailable")
    if found is not None:
        yield 1024 * found


def _control_group() -> Iterator[int]:
    """Yield what is left in the control group, of either version of the interface."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in groups:
        if not controllers:
            folders, limit, usage = ["/sys/fs/cgroup" + path, "/sys/fs/cgroup"], "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root = "/sys/fs/cgroup/memory"
            folders, limit, usage = [root + path, root], "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        for folder in folders:
            most, used = _number(f"{folder}/{limit}"), _number(f"{folder}/{usage}")
            if most is not None and used is not None:
                yield most - used + _numbers(f"{folder}/memory.stat").get("inactive_file", 0)


def _process() -> Iterator[int]:
    """Yield what is left of the limit of the address space."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _numbers("/proc/self/status").get("VmSize")
    if limit != resource.RLIM_INFINITY and used is not None:
        yield limit - 1024 * used
