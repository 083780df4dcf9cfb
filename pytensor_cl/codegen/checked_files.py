"""Files that are written whole, and caches of files that are checked when they are read.

A file of a cache begins with a line that holds the version of the format, a digest of the key and a digest of the
content. A file that was cut, emptied or changed is made again.
"""

import hashlib
import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from pytensor_cl.codegen.folders import make_private, remove_stale

_log = logging.getLogger("pytensor_cl.cache")
_VERSION = b"pytensor-cl cache 1"
_TOUCH_SECONDS = 86_400.0  # after which the reading of a file is noted in its time stamp: files in use are removed last
_STALE_SECONDS = 3_600.0  # after which a draft belongs to a process that ended


@contextmanager
def replacing(path: Path, *, is_durable: bool = False) -> Iterator[Path]:
    """Yield the path of a draft, which takes the place of a file if the block, which writes it, ends without an error.

    Other processes see all of the new file, or the old one. With `is_durable` the same holds after a power failure, and
    drafts that an ended process has left are removed. There is no draft left after an error.
    """
    path = path.resolve() if path.is_symlink() else path  # a link stays one
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        yield draft
        if is_durable:
            _flush(draft)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    if is_durable:
        remove_stale(path.parent, f"{escape(path.name)}.*.tmp")
        with suppress(PermissionError):  # Windows opens no folders
            _flush(path.parent)


def _flush(path: Path) -> None:
    """Write a file, or the names in a folder, from the memory of the operating system to the disk."""
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows flushes what can be written
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once, with `replacing`.

    Raises `OSError`: it cannot be written.
    """
    make_private(path.parent)
    with replacing(path) as draft:
        draft.write_bytes(content)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2s(content, digest_size=16).hexdigest().encode()


def _content(data: bytes, name: str) -> bytes | None:
    """Return the content below the first line; None if that line does not match it or the file's name."""
    head, newline, content = data.partition(b"\n")
    expected = b" ".join((_VERSION, name.encode(), _digest(content)))
    return content if newline and head == expected else None


def is_intact(file: Path) -> bool:
    """Return whether a file of a `CheckedFolder` is as it was written.

    Raises `OSError`: the file cannot be read.
    """
    return _content(file.read_bytes(), file.name) is not None


class CheckedFolder:
    """A cache: a folder of files that are checked when they are read.

    Processes may read and write it at the same time. Where nothing can be written, nothing is kept.

    `path`: the folder, which need not exist; `limit`: bytes of all files; from there on the oldest are removed.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._limit = limit
        self._is_pruned = False

    def read(self, key: bytes) -> bytes | None:
        """Return the content of a key; None if there is none, or the file was damaged."""
        path = self._file(key)
        try:
            data = path.read_bytes()
            content = _content(data, path.name)
            if content is None:
                _log.debug("%s is damaged or of another version; it is made again", path)
            elif time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(path)
        except OSError:
            return None
        return content

    def write(self, key: bytes, content: bytes) -> bool:
        """Keep something under a key, all of it or nothing; return whether it could be kept."""
        path = self._file(key)
        try:
            write_whole(path, b" ".join((_VERSION, path.name.encode(), _digest(content))) + b"\n" + content)
        except OSError as error:
            _log.debug("%s cannot be kept: %s", path, error)
            return False
        if not self._is_pruned:
            self._is_pruned = True
            self.prune()
        return True

    def prune(self) -> None:
        """Remove the oldest files down to three quarters of the limit if all together exceed it; and old drafts."""
        files = sorted(self._files(), key=lambda found: found[0], reverse=True)
        total = sum(size for _, size, _ in files)
        allowed = self._limit if total <= self._limit else self._limit * 3 // 4
        now = time.time()
        for seconds, size, file in reversed(files):
            is_draft = file.suffix == ".tmp" and now - seconds > _STALE_SECONDS
            if total > allowed or is_draft:
                total -= size
                with suppress(OSError):
                    file.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Yield the time stamp, the size and the path of each file."""
        with suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(OSError):  # another process removed it
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield status.st_mtime, status.st_size, Path(entry.path)

    def _file(self, key: bytes) -> Path:
        return self.path / hashlib.blake2s(key, digest_size=16).hexdigest()
