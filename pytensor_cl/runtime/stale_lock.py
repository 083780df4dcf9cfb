"""The lock of pyopencl's cache of programs, when the process that took it was killed.

pyopencl holds it for the milliseconds in which it writes a binary. One that stays makes every process wait for a minute
with each program that it builds.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pytensor_cl.rendered import user_folder

__all__ = ["drop_stale_locks"]

STALE = 5.0
"""Seconds after which nobody holds it any more."""
INTERVAL = 0.02  # seconds


def _locks(cache_dir: str | None) -> Iterator[Path]:
    if cache_dir:
        yield Path(cache_dir) / "lock"
    else:
        yield from (user_folder() / "pyopencl").glob("pyopencl-compiler-cache-*/lock")


def drop_stale_locks(cache_dir: str | None) -> None:
    """Remove what killed processes left; wait for what others hold.

    Parameters
    ----------
    cache_dir
        Folder of the cache; None is pyopencl's own.
    """
    for lock in _locks(cache_dir):
        with suppress(OSError):  # it is gone, or not ours to remove
            while time.time() - lock.stat().st_mtime < STALE:
                time.sleep(INTERVAL)
            lock.unlink()
