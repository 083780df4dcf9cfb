"""Processes that run a module of this package, in an interpreter like this one."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytensor_cl.runtime import opencl as cl


def can_start() -> bool:
    """Return whether there is a Python interpreter to start."""
    return "python" in Path(sys.executable or "").name.lower() and not getattr(sys, "frozen", False)


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this package."""
    return [sys.executable, "-P", "-m", f"pytensor_cl.runtime.{module}", *arguments]


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of this process with its module search path, and with further variables."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, **variables}


def start_for_device(
    device: "cl.Device", module: str, count: int, variables: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> list["subprocess.Popen[Any]"]:
    """Start processes whose arguments name a device; fewer if the system refuses to start more.

    `variables`: further variables of the environment; `options`: further arguments of `subprocess.Popen`.
    """
    platform = device.platform
    number = platform.get_devices().index(device)
    line = command(module, platform.name, platform.version, str(number))
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    started: list[subprocess.Popen[Any]] = []
    with suppress(OSError):
        started.extend(subprocess.Popen(line, env=environment(**variables), **streams, **options) for _ in range(count))
    return started
