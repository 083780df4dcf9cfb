"""Types that the layers of the linker share: storage cells, thunks, and the steps of a virtual machine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.ops.base import Routine, context_of
from pytensor_cl.runtime.error_flag import DeviceErrorFlag
from pytensor_cl.sharedvar import DeviceCell

Cell = Any  # a one-element list, or what reads like one
Thunk = Callable[[], None]
Hook = Callable[[int], None] | None  # called with the index of a node


class PeekCell:
    """Reads the host value of a shared variable; device copies stay valid."""

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
    """Runs the nodes of a function step by step."""

    def run(self, before: Hook = None, after: Hook = None, start: int = 0, stop: int | None = None) -> None:
        """Run the nodes from `start` up to `stop`; `before` and `after` are called with the index of each."""

    def free(self, start: int, stop: int) -> None:
        """Empty the cells that are read for the last time by nodes from `start` up to `stop`."""

    def raise_at_node(self, at: int) -> NoReturn:
        """Re-raise the current exception with a note that names node number `at`."""


class HostImporter(Protocol):
    """Makes device arrays of host arrays, without a copy where the device can read host memory."""

    def misalignment(self, array: Any) -> int | None:
        """Return the distance in bytes from the last address at which a buffer may begin; None to copy the array."""


class StepProgram(NamedTuple):
    """The nodes of a function, or a range of them, with the facts that capturing a call needs."""

    nodes: Sequence[Apply]  # in the order of execution
    thunks: Sequence[Thunk]
    storage: dict[Variable, Cell]
    routines: Mapping[Apply, Routine]  # routine of each device node
    contexts: Sequence[str]
    inputs: Sequence[Variable]
    updates: Mapping[Variable, int]  # inputs that a call replaces, and indices of the new values among the results
    results: Sequence[Cell]  # cells of the values that a call returns
    exclusive_downloads: Collection[Apply]  # last readers of a device array: the host may get its memory
    checks_at_end: bool  # whether kernels report errors in the data, which are read at the end of a call
    importers: Mapping[Variable, HostImporter]  # importers of arguments that the device may read in place
    error_flags: Sequence[DeviceErrorFlag] = ()  # the error records that are read at the end of a call
    first: int = 0  # index of the first node among all nodes of the function

    def run(self, vm: StepRunner, before: Callable[[int], None], after: Callable[[int], None]) -> None:
        """Run the nodes step by step; the hooks are called with indices that begin at 0."""
        first = self.first
        vm.run(lambda at: before(at - first), lambda at: after(at - first), first, first + len(self.nodes))

    def device_results(self) -> list[tuple[Cell, Variable]]:
        """Return the cells of results that are device arrays, and their variables."""
        variables = {id(cell): v for v, cell in self.storage.items() if context_of(v)}
        return [(cell, variables[id(cell)]) for cell in self.results if id(cell) in variables]
