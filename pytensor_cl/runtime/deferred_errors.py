"""Errors that the device finds in data of array operations, such as an index out of bounds, raised by a later wait."""

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from pytensor_cl.runtime.error_flag import DeviceErrorFlag, ErrorRecord
from pytensor_cl.runtime.interfaces import DeviceContext

_CAPACITY = 1024
"""Operations that are remembered between two waits."""
_PACKAGE = str(Path(__file__).parents[1])


class CheckedOperation(NamedTuple):
    """An operation whose kernels check their data.

    `error`: makes the exception of an error record; `description`: the operation, with shapes; `place`: file and line
    of the caller.
    """

    error: Callable[[ErrorRecord], Exception]
    description: str
    place: str


def _caller() -> str:
    """Return the file and the line of the first frame outside of this package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


class DeferredErrors:
    """The checked operations of a context for which no thread has waited, and the error flag that they share."""

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._flag: DeviceErrorFlag | None = None
        self._operations: list[CheckedOperation] = []
        self._lock = Lock()

    @property
    def flag(self) -> DeviceErrorFlag:
        """The error flag that the kernels write."""
        if self._flag is None:
            self._flag = DeviceErrorFlag(self._context)
        return self._flag

    def note(self, error: Callable[[ErrorRecord], Exception], description: str) -> int:
        """Note an operation that is enqueued next; return its number for the error record.

        Every 1,024 operations without a wait, it waits and raises what has been found.
        """
        if len(self._operations) >= _CAPACITY:
            self.check()
        with self._lock:
            self._operations.append(CheckedOperation(error, description, _caller()))
            return len(self._operations)

    def check(self) -> None:
        """Wait and raise the first error that checked operations have found; do nothing if there were none."""
        if not self._operations:
            return
        with self._lock:
            operations, self._operations = self._operations, []
            found = self.flag.read() if operations else None
        if found is None:
            return
        operation = operations[found.number - 1]
        later = len(operations) - found.number
        after = f", found {later} checked operation{'s' * (later > 1)} later" if later else ""
        error = operation.error(found)
        text = f"{error.args[0] if error.args else error}, in {operation.description}, at {operation.place}{after}"
        raise type(error)(text) from None
