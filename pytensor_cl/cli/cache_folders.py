"""The folders of what can be made again, on disk."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytensor

from pytensor_cl.codegen.announcement import abandoned_trees
from pytensor_cl.codegen.checked_files import is_intact
from pytensor_cl.codegen.folders import default_folder, expected_problem, user_folder
from pytensor_cl.codegen.rendered import rendered_folder
from pytensor_cl.codegen.temporary import abandoned_folders
from pytensor_cl.linker.selection.compiled_before import compiled_folder
from pytensor_cl.runtime.compilation.binaries import programs_folder
from pytensor_cl.runtime.compilation.kernel_objects import INVOKER_FILES, invoker_folder
from pytensor_cl.runtime.drivers import all_hooks
from pytensor_cl.runtime.features.features import features_folder
from pytensor_cl.runtime.unlisted_drivers import loader_folders

_HEX_KEY = "[0-9a-f]" * 32
_DRAFT = f"{_HEX_KEY}.*.tmp"


class CacheFolder(NamedTuple):
    """A folder with compiled kernels, or other files that can be made again."""

    owner: str  # the program that writes there
    path: Path  # the folder; it may not exist yet
    # Names of what the owner writes there. A setting may point at any folder: nothing else in it may be counted or
    # removed.
    patterns: tuple[str, ...]
    damaged: Callable[[], Iterable[Path]] = tuple  # yields what is damaged there, among the owner's files
    # whether nothing but the owner's entries is in the folder, so that it can be removed when it is empty
    is_private: bool = True

    def entries(self) -> Iterator[Path]:
        """Yield the owner's files and folders that may be seen."""
        for pattern in self.patterns:
            with suppress(OSError):
                yield from self.path.glob(pattern)

    def size(self) -> int:
        """Return the bytes of all entries; entries that another process removes count as zero."""
        return sum(_file_size(file) for entry in self.entries() for file in (entry, *entry.rglob("*")))

    def problem(self) -> str:
        """Return why entries cannot be added; a folder that does not exist counts as its nearest parent."""
        return expected_problem(self.path)

    def clear(self) -> int:
        """Remove all entries and return their number."""
        entries = list(self.entries())
        for entry in entries:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                with suppress(OSError):
                    entry.unlink(missing_ok=True)
        if self.is_private:
            for folder in {*(entry.parent for entry in entries if entry.parent != self.path), self.path}:
                _remove_empty(folder)
        return len(entries)


def _remove_empty(folder: Path) -> None:
    """Remove a folder, and those above it in the user's cache folder, as far as they are empty."""
    root = user_folder()
    with suppress(OSError):  # it is not empty, or there is none
        while root in folder.parents:
            folder.rmdir()
            folder = folder.parent


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
        _checked("pytensor-cl, graphs that were compiled", compiled_folder()),
        CacheFolder("pyopencl", user_folder() / "pyopencl", (f"pyopencl-compiler-cache-*/{_HEX_KEY}",)),
        CacheFolder("pyopencl, invokers", invoker_folder(), (INVOKER_FILES,)),
        _checked("pytensor-cl, features", features_folder(ours or None)),
        CacheFolder("pytensor-cl, drivers", loader_folders(), (_HEX_KEY, "new-*")),
        CacheFolder("pytensor-cl, names", default_folder(), ("names.json*", "pruned")),
    ]
    for hooks in all_hooks():
        folder = hooks.cache_folder()
        if folder is not None:
            folders.append(CacheFolder(hooks.name, *folder, hooks.damaged_files))
    if ours:
        folders.insert(0, _checked("opencl__cache_dir", programs_folder(ours)))
        folders.insert(1, CacheFolder("opencl__cache_dir, old", Path(ours).expanduser(), (_HEX_KEY,)))
    return [*folders, *_abandoned()]


def _abandoned() -> Iterator[CacheFolder]:
    """Yield the temporary folders of processes that were killed, by where they are."""
    paths = [*abandoned_folders(), *abandoned_trees()]
    for parent in sorted({path.parent for path in paths}):
        names = tuple(path.name for path in paths if path.parent == parent)
        yield CacheFolder("of killed processes", parent, names, is_private=False)
