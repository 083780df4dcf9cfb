"""Types that the layers of the linker share: storage cells, thunks, and the program of a virtual machine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from pytensor.graph.basic import Apply, Variable

from pytensor_cl.ops.base import Routine

__all__ = ["Cell", "GuardFailure", "HostImporter", "NodeRangeRunner", "StepProgram", "StepRunner", "Thunk"]

Cell = Any  # a one-element list, or what reads like one
Thunk = Callable[[], None]
Hook = Callable[[int], None] | None


class GuardFailure(Exception):
    """A value of the call differs from the one that was captured."""


class StepRunner(Protocol):
    """Runs nodes step by step."""

    def run(self, before: Hook = None, after: Hook = None) -> None:
        """Run the nodes; `before` and `after` are called with the index of each."""

    def raise_at_node(self, at: int) -> NoReturn:
        """Re-raise the current exception with a note that names node number `at`."""


class NodeRangeRunner(StepRunner, Protocol):
    """Runs any range of its nodes step by step."""

    def run(self, before: Hook = None, after: Hook = None, start: int = 0, stop: int | None = None) -> None:
        """Run the nodes from `start` up to `stop`."""

    def free(self, start: int, stop: int) -> None:
        """Empty the cells that are read for the last time by nodes from `start` up to `stop`."""


class HostImporter(Protocol):
    """Makes device arrays of host arrays, without a copy where the device can read host memory."""

    def misalignment(self, array: Any) -> int | None:
        """Return the distance in bytes from the last address at which a buffer may begin; None to copy the array."""


class StepProgram(NamedTuple):
    """The steps of a virtual machine, with the facts that capturing a call needs.

    Attributes
    ----------
    nodes, thunks
        In the order of execution.
    storage
        Variable to storage cell.
    routines
        The routine of each device node.
    contexts
        Names of the contexts.
    inputs, updates
        Inputs of the graph. Those of them that a call replaces, with the index of the new value among the results.
    results
        Cells of what a call returns.
    exclusive_downloads
        Downloads after which nothing reads the device array: its memory may become the host's.
    checks_at_end
        Whether kernels report errors in the data that are read at the end of a call.
    importers
        For arguments that the device may read in place, what imports them.
    """

    nodes: Sequence[Apply]
    thunks: Sequence[Thunk]
    storage: Mapping[Variable, Cell]
    routines: Mapping[Apply, Routine]
    contexts: Sequence[str]
    inputs: Sequence[Variable]
    updates: Mapping[Variable, int]
    results: Sequence[Cell]
    exclusive_downloads: Collection[Apply]
    checks_at_end: bool
    importers: Mapping[Variable, HostImporter]
