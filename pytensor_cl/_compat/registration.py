"""Registration of the mode and its linker, and of checks before JIT linkers."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from pytensor.compile.mode import fast_run_linkers_to_mode, predefined_linkers, predefined_modes
from pytensor.graph.fg import FunctionGraph
from pytensor.link.basic import JITLinker
from pytensor.tensor.basic import transfer


def has_other_transfers() -> bool:
    """Return whether other packages have registered targets of ``x.transfer``."""
    return len(transfer._others) > 1


def check_before_jit(check: Callable[[Any, FunctionGraph], None]) -> None:
    """Call a function before a JIT linker, such as NUMBA's or JAX's, compiles a graph.

    `check`: takes the linker and the graph; raises an error if the linker cannot compile it.
    """
    original = JITLinker.make_all

    @wraps(original)
    def make_all(self: JITLinker, *args: Any, **kwargs: Any) -> Any:
        check(self, self.fgraph)
        return original(self, *args, **kwargs)

    JITLinker.make_all = make_all


def register(name: str, mode: Any) -> None:
    """Register a mode and its linker by name."""
    predefined_modes[name] = mode
    predefined_linkers[name.lower()] = mode.linker
    fast_run_linkers_to_mode[name.lower()] = mode
