"""Errors that kernels find in the data: read where a call ends, raised at the node that met them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytensor.graph.basic import Apply, Variable

from pytensor_cl.linker.steps.host import Cell, Thunk
from pytensor_cl.ops.base import CheckedRoutine, Routine, is_checked
from pytensor_cl.runtime.error_flag import DeviceErrorFlag
from pytensor_cl.runtime.registry import get_context

__all__ = ["Dropped", "ErrorMonitor", "Noting"]


class Dropped(NamedTuple):
    """What is left of a value that a call has dropped.

    Attributes
    ----------
    shape
        What it was, None for a value without one.
    """

    shape: tuple[int, ...] | None


class Noting:
    """The step of a node whose kernel may find something wrong: notes what the node read.

    Parameters
    ----------
    thunk
        The step.
    cells
        Of the intermediate results that the node reads.

    Attributes
    ----------
    shapes
        Of these, in the last call that ran step by step; None for a value without one.
    """

    __slots__ = ("_cells", "_thunk", "shapes")

    def __init__(self, thunk: Thunk, cells: Sequence[Cell]) -> None:
        self._thunk, self._cells = thunk, cells
        self.shapes: list[tuple[int, ...] | None] = []

    def __call__(self) -> None:
        """Run the step."""
        self._thunk()
        self.shapes = [getattr(c[0], "shape", None) for c in self._cells]


class ErrorMonitor:
    """The alarms of one function, one for each context that needs one.

    Parameters
    ----------
    routines
        What computes each device node.
    """

    def __init__(self, routines: Mapping[Apply, Routine]) -> None:
        self._watched: list[tuple[Apply, CheckedRoutine]] = [
            (node, routine) for node, routine in routines.items() if is_checked(routine, node.op)
        ]
        self._alarms = {
            name: DeviceErrorFlag(get_context(name)) for name in {n.op.context_name for n, _ in self._watched}
        }
        self._notes: dict[Apply, Noting] = {}
        for number, (node, routine) in enumerate(self._watched, start=1):
            routine.watch(self._alarms[node.op.context_name], number)

    def __bool__(self) -> bool:
        return bool(self._watched)

    def failure(self) -> tuple[Apply, Exception] | None:
        """Wait for the devices; return what a kernel found and the node of that kernel, and forget it."""
        findings = [alarm.read() for alarm in self._alarms.values()]
        first = next(filter(None, findings), None)
        if first is None:
            return None
        node, routine = self._watched[first.number - 1]
        return node, routine.error(first)

    def noting(self, node: Apply, thunk: Thunk, storage: Mapping[Variable, Cell]) -> Thunk:
        """Return the step of a node that notes, if its kernel may find something, what it read.

        The intermediate results are gone when the alarm is read; `dropped` tells what they were.
        """
        if not any(node is watched for watched, _ in self._watched):
            return thunk
        noting = self._notes[node] = Noting(thunk, [storage[v] for v in _computed(node)])
        return noting

    def dropped(self, node: Apply) -> dict[Variable, Dropped]:
        """Return what is known of the intermediate results that a node read when it last ran."""
        noted = self._notes.get(node)
        return {} if noted is None else dict(zip(_computed(node), map(Dropped, noted.shapes), strict=False))


def _computed(node: Apply) -> list[Variable]:
    return [v for v in node.inputs if v.owner is not None]
