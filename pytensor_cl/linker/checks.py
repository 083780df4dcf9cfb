"""Errors that kernels find in the data: read where a call ends, raised at the node that met them."""

from collections.abc import Mapping

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import CheckedRoutine, Routine, is_checked
from pytensor_cl.runtime.alarm import Alarm
from pytensor_cl.runtime.context import get_context

__all__ = ["Checks"]


class Checks:
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
        self._alarms = {name: Alarm(get_context(name)) for name in {n.op.context_name for n, _ in self._watched}}
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
