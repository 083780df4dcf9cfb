"""Repair of PoCL's cache on disk: truncated and overwritten files are removed before the driver reads them.

Once a day it is cut to a limit as well, which PoCL does not do: the programs that were used longest ago are removed,
and what killed processes have left, drafts and empty folders.

PoCL does not check its files. A damaged program has no kernels ("INVALID_KERNEL_NAME"), or an assertion ends the
process; a damaged kernel also ends it. PoCL compiles again what is missing. The files have no digest, but both kinds
contain their length: a linked kernel in its section headers, a program in the blocks of LLVM bitcode. The check of
1,000 files takes 20 ms of CPU time, in a thread while the driver is loaded.
"""

import logging
import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from math import inf
from pathlib import Path
from random import shuffle
from threading import Thread
from time import thread_time, time
from typing import NamedTuple

from pytensor_cl.codegen.folders import default_folder, remove_stale
from pytensor_cl.codegen.temporary import usable_folder
from pytensor_cl.runtime.cache_dirs import compiler_folder

_log = logging.getLogger("pytensor_cl.cache")
_BITCODE = b"BC\xc0\xde"
_MAX_BLOCKS = 64  # blocks read of a bitcode file, which has four
_LIMIT = 2 << 30
"""Bytes of the cache. A program takes 50 to 500 KB."""
_DAY, _HOUR = 86_400.0, 3_600.0
_STAMP = "pruned"
"""Name of the file whose time stamp is the last time the cache was cut."""
_BUDGET = 0.2
"""Seconds of CPU time for the check. Of a larger cache a part is checked, a different one each time."""


def _read(file: FileIO, count: int, position: int) -> bytes:
    file.seek(position)
    return file.read(count)


def _is_whole_library(file: FileIO, size: int) -> bool:
    """Return whether a file is an ELF library with all its section headers, which are at its end."""
    head = _read(file, 64, 0)
    if len(head) < 64 or head[:4] != b"\x7fELF" or head[4] not in (1, 2):
        return False
    order = "<" if head[5] == 1 else ">"
    if head[4] == 2:
        (start,), (each, count) = (
            struct.unpack_from(f"{order}Q", head, 0x28),
            struct.unpack_from(f"{order}HH", head, 0x3A),
        )
    else:
        (start,), (each, count) = (
            struct.unpack_from(f"{order}I", head, 0x20),
            struct.unpack_from(f"{order}HH", head, 0x2E),
        )
    return 0 < start <= size - each * count


def _is_whole_bitcode(file: FileIO, size: int) -> bool:
    """Return whether a file is LLVM bitcode whose blocks end where the file does."""
    if _read(file, 4, 0) != _BITCODE:
        return False
    at = 4
    for _ in range(_MAX_BLOCKS):
        if at == size:
            return at > 4
        head = _read(file, 8, at)
        if len(head) < 8 or head[0] & 3 != 1:  # 1 begins a block
            return False
        at += 8 + 4 * int.from_bytes(head[4:], "little")
    return at <= size  # more blocks than a valid file has


_CHECKS = {".so": _is_whole_library, ".bc": _is_whole_bitcode}


def _is_damaged(path: str) -> bool:
    check = _CHECKS[path[-3:]]
    with FileIO(path) as file:
        return not check(file, os.fstat(file.fileno()).st_size)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # removed by another process, or not a folder
        return []


def _is_pocls(name: str) -> bool:
    """Return whether a folder's name is one of PoCL's: two letters of a digest. A setting may name any folder."""
    return len(name) == 2 and all("A" <= letter <= "P" for letter in name)


def damaged_files(folder: Path, budget: float = inf) -> Iterator[Path]:
    """Yield the files of programs and kernels in PoCL's cache that are truncated, empty or of another format.

    `folder`: folder of the cache; `budget`: seconds of CPU time after which no further subfolder is checked. Their
    order is random.
    """
    parts = [entry.path for entry in _entries(str(folder)) if _is_pocls(entry.name)]
    shuffle(parts)
    end = thread_time() + budget
    for part in parts:
        if thread_time() > end:
            return
        yield from _damaged_in(part)


def _damaged_in(part: str) -> Iterator[Path]:
    left = [part]
    while left:
        for entry in _entries(left.pop()):
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif entry.name[-3:] in _CHECKS and _is_damaged(entry.path):
                    yield Path(entry.path)


def repair(folder: Path, budget: float = inf) -> int:
    """Remove the damaged files from PoCL's cache (`damaged_files`), and return their number."""
    count = 0
    for path in damaged_files(folder, budget):
        _log.debug("%s is damaged; PoCL compiles it again", path)
        with suppress(OSError):
            path.unlink()
            count += 1
    return count


class _Program(NamedTuple):
    """A folder of a program in PoCL's cache: when it was used last, and the bytes in it."""

    used: float
    size: int
    path: str


def _program(entry: os.DirEntry[str]) -> _Program:
    """Return the facts of a program's folder; PoCL writes a file in it when it is used."""
    used, size, left = entry.stat(follow_symlinks=False).st_mtime, 0, [entry.path]
    while left:
        for found in _entries(left.pop()):
            if found.is_dir(follow_symlinks=False):
                left.append(found.path)
            else:
                status = found.stat(follow_symlinks=False)
                used, size = max(used, status.st_mtime), size + status.st_size
    return _Program(used, size, entry.path)


def _programs(folder: Path) -> Iterator[_Program]:
    for part in _entries(str(folder)):
        if _is_pocls(part.name):
            for entry in _entries(part.path):
                with suppress(OSError):  # another process removed it
                    yield _program(entry)


def prune(folder: Path, limit: int = _LIMIT) -> int:
    """Remove the programs that were used longest ago down to three quarters of a limit, if all exceed it.

    Drafts and empty folders of killed processes are removed too. What was used within the last hour is kept.

    `folder`: folder of the cache; `limit`: bytes.

    Returns the bytes that are left.
    """
    remove_stale(folder, "tempfile_*")
    old = time() - _HOUR
    programs = sorted(_programs(folder))
    total = sum(program.size for program in programs)
    allowed = total if total <= limit else limit * 3 // 4
    for program in programs:
        if program.used < old and (total > allowed or not program.size):
            shutil.rmtree(program.path, ignore_errors=True)
            total -= program.size
            with suppress(OSError):  # there are other programs
                Path(program.path).parent.rmdir()
    return total


def _prune_daily() -> None:
    stamp = usable_folder(default_folder()) / _STAMP
    with suppress(OSError):
        if not stamp.exists() or time() - stamp.stat().st_mtime > _DAY:
            stamp.touch(mode=0o600)
            prune(compiler_folder())


class Repair:
    """A context manager that repairs PoCL's cache in a thread, and waits for it at its end.

    `removed`: files that this process has removed.
    """

    removed = 0

    def __enter__(self) -> None:
        self._thread: Thread | None = None
        if not os.path.isdir(compiler_folder()):  # noqa: PTH112 - Path.is_dir raises an error where it may not look
            return
        thread = Thread(target=self._run, name="pytensor-cl check of PoCL's cache", daemon=True)
        with suppress(RuntimeError):  # no new threads while the interpreter shuts down
            thread.start()
            self._thread = thread

    @staticmethod
    def _run() -> None:
        Repair.removed += repair(compiler_folder(), _BUDGET)
        _prune_daily()

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.join()
