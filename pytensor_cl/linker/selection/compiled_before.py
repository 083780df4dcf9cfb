"""Record of the graphs that each backend has compiled, also in earlier processes: the caches on disk have them.

With filled caches NUMBA compiles a graph in a tenth of the time, and C in a thirtieth. That decides whether a trial is
worth its time.
"""

import hashlib
from functools import cache, cached_property
from pathlib import Path

import pytensor
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph
from pytensor.printing import debugprint

from pytensor_cl.codegen.checked_files import CheckedFolder
from pytensor_cl.codegen.folders import default_folder

_COMPILEDIR = str(config.compiledir)  # PyTensor finds it out at the first read, which fails in two threads at once
_LIMIT = 1 << 20
"""Bytes of all files; one takes 0.1 KB."""


def compiled_folder() -> Path:
    """Return the folder of the notes, one file for each graph and backend."""
    return default_folder() / "compiled"


@cache
def _notes(folder: Path) -> CheckedFolder:
    return CheckedFolder(folder, _LIMIT)


class CompiledBefore:
    """The backends that have compiled a graph, by name."""

    def __init__(self, graph: FunctionGraph) -> None:
        self._graph = graph

    @cached_property
    def _digest(self) -> str:
        return hashlib.blake2s(debugprint(self._graph, print_type=True, file="str").encode()).hexdigest()

    def _key(self, name: str) -> bytes:
        # A hint and no more: graphs with other constants of the same look share it.
        return "\n".join((name, self._digest, pytensor.__version__, _COMPILEDIR)).encode()

    def __contains__(self, name: str) -> bool:
        return _notes(compiled_folder()).read(self._key(name)) is not None

    def add(self, name: str) -> None:
        """Note that a backend has compiled the graph."""
        if name not in self:
            _notes(compiled_folder()).write(self._key(name), b"")
