"""Where compiled kernels are kept on disk."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytensor

from pytensor_cl.rendered import rendered_folder, user_folder

__all__ = ["CacheFolder", "cache_folders"]

_HEX_KEY = "[0-9a-f]" * 32
_POCL_KEY = "[A-P][A-P]"


class CacheFolder(NamedTuple):
    """A folder with compiled kernels.

    Attributes
    ----------
    owner
        Who writes there.
    path
        The folder; it may not exist yet.
    patterns
        Names of what the owner writes there. A setting may point at any folder: nothing else in it may be
        counted or removed.
    """

    owner: str
    path: Path
    patterns: tuple[str, ...]

    def entries(self) -> Iterator[Path]:
        """Yield the owner's files and folders."""
        for pattern in self.patterns:
            yield from self.path.glob(pattern)

    def size(self) -> int:
        """Return the bytes of all entries; what vanishes meanwhile counts nothing."""
        return sum(_file_size(file) for entry in self.entries() for file in (entry, *entry.rglob("*")))

    def is_writable(self) -> bool:
        """Tell whether entries can be added, in the folder or in the one that it would be made in."""
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


def cache_folders() -> list[CacheFolder]:
    """Return the folders that pytensor-cl, pyopencl and PoCL use, as the flags and the environment have them."""
    pocl = os.environ.get("POCL_CACHE_DIR")
    ours = pytensor.config.opencl__cache_dir
    user = user_folder()
    folders = [
        CacheFolder("pytensor-cl", rendered_folder(), (_HEX_KEY,)),
        CacheFolder("pyopencl", user / "pyopencl", (f"pyopencl-compiler-cache-*/{_HEX_KEY}",)),
        CacheFolder("PoCL", Path(pocl) if pocl else user / "pocl" / "kcache", (_POCL_KEY, "tempfile_*")),
    ]
    if ours:
        folders.insert(0, CacheFolder("opencl__cache_dir", Path(ours).expanduser(), (_HEX_KEY,)))
    return folders
