"""Run a program without what Python lacks on Windows: modules, functions, signals, ``/proc``.

usage: python tests/without_posix.py

It shows that the package itself uses nothing of that; drivers, the linker and the file system stay those of this
system.
"""

import ctypes
import fcntl
import mmap
import os
import shutil
import signal
import sys
from types import ModuleType, SimpleNamespace

import numba  # noqa: F401, these use what is taken away
import numpy as np
import pyopencl  # noqa: F401
import pytensor.configdefaults  # noqa: F401
import scipy.linalg  # noqa: F401

MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
FUNCTIONS = (
    *("chown", "fchmod", "fork", "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg", "nice"),
    *("pread", "pwrite", "register_at_fork", "sched_getaffinity", "sched_setaffinity", "setsid", "statvfs", "sysconf"),
)
SIGNALS = ("SIGALRM", "SIGBUS", "SIGCHLD", "SIGHUP", "SIGSYS", "SIGTRAP", "SIGUSR1", "pthread_kill", "setitimer")


POSIX = SimpleNamespace(O_RDONLY=os.O_RDONLY, **{name: getattr(os, name) for name in ("open", "close", "pread")})
"""What the repair of PoCL's wheel for Linux needs, where that does not know the CPU."""


def take_away():
    """Remove from this process what Windows does not have, and add what only Windows has."""
    usage = shutil.disk_usage(".")
    windows, lock = ModuleType("msvcrt"), fcntl.flock
    windows.LK_NBLCK = fcntl.LOCK_EX | fcntl.LOCK_NB
    windows.locking = lambda file, kind, _: lock(file, kind)
    sys.modules["msvcrt"] = windows
    sys.modules.update(dict.fromkeys(MODULES))
    for owner, names in ((os, FUNCTIONS), (signal, SIGNALS), (mmap, [n for n in dir(mmap) if n.startswith("MADV")])):
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)
    shutil.disk_usage = lambda _: usage  # it uses `statvfs` here
    os.open = _without_proc(os.open)
    ctypes.CDLL = _Library
    sys.platform = "win32"


def _without_proc(original):
    def open_file(path, *arguments, **options):
        if str(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(path)
        return original(path, *arguments, **options)

    return open_file


class _Library(ctypes.CDLL):
    def __init__(self, name, *arguments, **options):
        if name is None:
            raise TypeError("the process itself cannot be opened")
        super().__init__(name, *arguments, **options)


def main():
    """Replay a function, compute with arrays, and run the command that shows the devices."""
    take_away()
    import pytensor
    import pytensor.tensor as pt

    import pytensor_cl
    import pytensor_cl.array as xp
    from pytensor_cl.cli import main as command
    from pytensor_cl.runtime import cpu_name

    cpu_name.os = POSIX

    pytensor.config.opencl__select_backend = False
    x, w = pt.fmatrix("x"), pytensor.shared(np.full((50, 40), 0.01, "float32"))
    f = pytensor.function([x], pt.tanh(pt.tanh(x @ w).sum(0) / 100), mode="OPENCL")
    value = np.ones((300, 50), "float32")
    for _ in range(8):
        np.testing.assert_allclose(f(value), np.tanh(3 * np.tanh(np.full(40, 0.5))), 1e-4)
    assert f.vm.executor.replay_count > 0
    square = pytensor_cl.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    np.testing.assert_array_equal(square(xp.arange(4, dtype="float32")).to_host(), [0, 1, 4, 9])
    assert command(["devices"]) in (0, None)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
