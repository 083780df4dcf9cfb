"""The folders of compiled kernels on disk."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytensor

from pytensor_cl.codegen.folders import user_folder
from pytensor_cl.codegen.rendered import is_intact, rendered_folder
from pytensor_cl.runtime.build.binaries import programs_folder
from pytensor_cl.runtime.build.kernel_objects import INVOKER_FILES, invoker_folder
from pytensor_cl.runtime.drivers import all_hooks
from pytensor_cl.runtime.features.features import features_folder

__all__ = ["CacheFolder", "cache_folders"]

_HEX_KEY = "[0-9a-f]" * 32
_FEATURES = "[0-9a-f]" * 16 + ".json"
_DRAFT = f"{_HEX_KEY}.*.tmp"


class CacheFolder(NamedTuple):
    """A folder with compiled kernels.

    Attributes
    ----------
    owner
        The program that writes there.
    path
        The folder; it may not exist yet.
    patterns
        Names of what the owner writes there. A setting may point at any folder: nothing else in it may be
        counted or removed.
    damaged
        Yields what is damaged there, among the owner's files.
    """

    owner: str
    path: Path
    patterns: tuple[str, ...]
    damaged: Callable[[], Iterable[Path]] = tuple

    def entries(self) -> Iterator[Path]:
        """Yield the owner's files and folders."""
        for pattern in self.patterns:
            yield from self.path.glob(pattern)

    def size(self) -> int:
        """Return the bytes of all entries; entries that another process removes count as zero."""
        return sum(_file_size(file) for entry in self.entries() for file in (entry, *entry.rglob("*")))

    def is_writable(self) -> bool:
        """Return whether entries can be added; a folder that does not exist counts as its nearest parent."""
        folder = next(p for p in (self.path, *self.path.parents) if p.exists())
        return folder.is_dir() and os.access(folder, os.W_OK)

    def clear(self) -> int:
        """Remove all entries and return their number."""
        entries = list(self.entries())
        for entry in entries:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        return len(entries)


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _not_intact(folder: Path) -> Iterator[Path]:
    for file in folder.glob(_HEX_KEY):
        with suppress(OSError):  # another process removed it, or it is a folder
            if not is_intact(file):
                yield file


def _checked(owner: str, folder: Path) -> CacheFolder:
    return CacheFolder(owner, folder, (_HEX_KEY, _DRAFT), partial(_not_intact, folder))


def cache_folders() -> list[CacheFolder]:
    """Return the folders of pytensor-cl, pyopencl and PoCL by the flags and the environment."""
    ours = pytensor.config.opencl__cache_dir
    folders = [
        _checked("pytensor-cl, texts", rendered_folder()),
        _checked("pytensor-cl, programs", programs_folder(None)),
        CacheFolder("pyopencl", user_folder() / "pyopencl", (f"pyopencl-compiler-cache-*/{_HEX_KEY}",)),
        CacheFolder("pyopencl, invokers", invoker_folder(), (INVOKER_FILES,)),
        CacheFolder("pytensor-cl, features", features_folder(ours or None), (_FEATURES,)),
    ]
    for hooks in all_hooks():
        folder = hooks.cache_folder()
        if folder is not None:
            folders.append(CacheFolder(hooks.name, *folder, hooks.damaged_files))
    if ours:
        folders.insert(0, _checked("opencl__cache_dir", programs_folder(ours)))
        folders.insert(1, CacheFolder("opencl__cache_dir, old", Path(ours).expanduser(), (_HEX_KEY,)))
    return folders
