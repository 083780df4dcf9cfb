"""Rendered templates on disk: to read one takes 50 us, while to import Mako alone takes a tenth of a second.

Files of caches begin with a line that holds the version of the format, a digest of the key and a digest of the content.
A file that was cut, emptied or changed is made again.
"""

import hashlib
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from pytensor_cl.codegen.folders import default_folder, make_private
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.temporary import usable_folder

__all__ = ["CheckedFolder", "code_digest", "is_intact", "kept", "load_or_render", "rendered_folder"]

_log = logging.getLogger("pytensor_cl.cache")
_PLAIN = (str, int, float, bool, type(None), np.dtype, Struct)
_VERSION = b"pytensor-cl cache 1"
_UNUSED = 86_400.0
"""Seconds after which the reading of a file is noted in its time stamp: files that are in use are removed last."""
_NAME = "rendered"
_STALE_SECONDS = 3_600.0
"""Seconds after which a draft belongs to a process that ended."""
_MODULE = re.compile(r"(pytensor_cl(?:\.\w+)*)(?:[ \t]+import[ \t]+(?:\(([^)]*)\)|([^#\n]*)))?")


def rendered_folder() -> Path:
    """Return the folder of rendered templates; each file is named by the digest of all that its text comes from."""
    return default_folder() / _NAME


# --- files that are checked when they are read ---


def _digest(content: bytes) -> bytes:
    return hashlib.blake2s(content, digest_size=16).hexdigest().encode()


def _content(data: bytes, name: str) -> bytes | None:
    """Return what a file holds below its first line; None if that does not fit to the rest or to the file's name."""
    head, newline, content = data.partition(b"\n")
    expected = b" ".join((_VERSION, name.encode(), _digest(content)))
    return content if newline and head == expected else None


def is_intact(file: Path) -> bool:
    """Return whether a file of a `CheckedFolder` is as it was written.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    return _content(file.read_bytes(), file.name) is not None


class CheckedFolder:
    """A cache: a folder of files that are checked when they are read.

    Processes may read and write it at the same time. Where nothing can be written, nothing is kept.

    Parameters
    ----------
    path
        The folder, which need not exist.
    limit
        Bytes of all files; from there on the oldest are removed.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._limit = limit
        self._is_pruned = False

    def read(self, key: bytes) -> bytes | None:
        """Return what was kept under a key; None if there is nothing, or the file was damaged."""
        path = self._file(key)
        try:
            data = path.read_bytes()
            content = _content(data, path.name)
            if content is None:
                _log.debug("%s is damaged or of another version; it is made again", path)
            elif time.time() - path.stat().st_mtime > _UNUSED:
                os.utime(path)
        except OSError:
            return None
        return content

    def write(self, key: bytes, content: bytes) -> bool:
        """Keep something under a key, all of it or nothing; return whether it could be kept."""
        path = self._file(key)
        draft = None
        try:
            make_private(self.path)
            handle, draft = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=self.path)
            with os.fdopen(handle, "wb") as file:
                file.write(b" ".join((_VERSION, path.name.encode(), _digest(content))) + b"\n" + content)
            Path(draft).replace(path)
        except OSError as error:
            _log.debug("%s cannot be kept: %s", path, error)
            if draft is not None:
                with suppress(OSError):
                    Path(draft).unlink(missing_ok=True)
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


@cache
def _texts(folder: Path) -> CheckedFolder:
    return CheckedFolder(folder, 64 << 20)


# --- rendered templates ---


def _imported(text: str) -> Iterator[str]:
    """Yield the names of the package's modules that a template or a module imports, and names that are no modules."""
    for module, inside, names in _MODULE.findall(text):
        yield module
        yield from (f"{module}.{name.split()[0]}" for name in (inside or names).split(",") if name.strip())


def _module_files(texts: Iterable[str]) -> dict[str, Path]:
    """Return the files of the package's modules that texts import, and that those import in turn, by module name."""
    root, found, seen = Path(__file__).parents[2], {}, {"pytensor_cl"}
    wanted = {name for text in texts for name in _imported(text)} - seen
    while wanted:
        name = wanted.pop()
        seen.add(name)
        path = root / name.replace(".", "/")
        file = next((f for f in (path.with_suffix(".py"), path / "__init__.py") if f.is_file()), None)
        if file is not None:
            found[name] = file
            wanted.update(set(_imported(file.read_text(encoding="utf-8"))) - seen)
    return found


def code_digest(*modules: str) -> bytes:
    """Return a digest of modules of the package and of all that they import from it."""
    files = _module_files(modules)
    return _digest_of({name: file.read_bytes() for name, file in files.items()})


def _digest_of(texts: Mapping[str, bytes]) -> bytes:
    digest = hashlib.blake2s(repr(sys.version_info[:2]).encode())
    for name, text in sorted(texts.items()):
        digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.digest()


@cache
def _stamp(directory: Path) -> bytes:
    """Digest of all templates and the modules they import: which of them a template includes is known to Mako only."""
    skip = len(str(directory))
    texts = {str(file)[skip:]: file.read_bytes() for file in directory.rglob("*.mako")}
    modules = _module_files(text.decode() for text in texts.values())
    texts.update((name, file.read_bytes()) for name, file in modules.items())
    return _digest_of(texts)


def _is_plain(value: object) -> bool:
    """Whether ``repr`` determines the value."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(x) for item in value.items() for x in item)
    return type(value) in _PLAIN or isinstance(value, np.dtype)


def load_or_render(directory: Path, template: str, args: dict[str, object], render: Callable[[], str]) -> str:
    """Return the text of a template, from disk if it is there.

    Parameters
    ----------
    directory
        Where the templates are.
    template, args
        Name of the template, and its arguments.
    render
        Makes the text.
    """
    if not all(map(_is_plain, args.values())):
        return render()
    return kept(_stamp(directory) + repr((template, sorted(args.items()))).encode(), render)


def kept(key: bytes, make: Callable[[], str]) -> str:
    """Return a text, from disk if it is there and undamaged.

    Parameters
    ----------
    key
        All that the text comes from.
    make
        Makes the text.
    """
    folder = _texts(usable_folder(default_folder()) / _NAME)
    content = folder.read(key)
    if content is None:
        text = make()
        folder.write(key, text.encode())
        return text
    return content.decode()
