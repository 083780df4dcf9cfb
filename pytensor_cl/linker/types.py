"""Types that the layers of the linker share: storage cells, thunks, and the program of a virtual machine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.ops.base import Routine
from pytensor_cl.sharedvar import DeviceCell

__all__ = [
    "Cell",
    "CopyOnReadCell",
    "GuardFailure",
    "HostImporter",
    "NodeRangeRunner",
    "PeekCell",
    "ShapeOnlyCell",
    "StepProgram",
    "StepRunner",
    "Thunk",
    "peeking",
]

Cell = Any  # a one-element list, or what reads like one
Thunk = Callable[[], None]
Hook = Callable[[int], None] | None


class PeekCell:
    """Reads the host value of a shared variable; device copies stay valid.

    Parameters
    ----------
    shared
        The shared variable's storage.
    """

    __slots__ = ("shared",)

    def __init__(self, shared: DeviceCell) -> None:
        self.shared = shared

    def __getitem__(self, index: int) -> Any:
        return self.shared.peek()


class CopyOnReadCell(PeekCell):
    """Returns a copy of a shared variable's value to a node that changes it: a failed call must change nothing."""

    __slots__ = ()

    def __getitem__(self, index: int) -> Any:
        return np.array(self.shared.peek())


class ShapeOnlyCell(PeekCell):
    """Returns the value of a shared variable on the host or on a device, for nodes that read its shape only."""

    __slots__ = ()

    def __getitem__(self, index: int) -> Any:
        return self.shared.anywhere()


def peeking(cell: Cell) -> Cell:
    """Return a cell that reads a cell; of a shared variable the host value, and device copies stay valid."""
    return PeekCell(cell) if isinstance(cell, DeviceCell) else cell


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
