"""Errors that the device finds in data of array operations, such as an index out of bounds, raised by a later wait."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from pytensor_cl.runtime.error_flag import DeviceErrorFlag, ErrorRecord
from pytensor_cl.runtime.interfaces import DeviceContext

_CAPACITY = 1024
"""Operations that are remembered between two waits."""
_PACKAGE = str(Path(__file__).parents[1]) + os.sep


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
        self._lock = RLock()  # a launch may free memory, and wait

    def enqueue(
        self,
        routine: Any,
        description: str,
        launch: Callable[[], Any],
        error: Callable[[ErrorRecord], Exception] | None = None,
    ) -> Any:
        """Launch a routine whose kernels check their data, as an operation that `check` knows; return what it returns.

        `error` makes the exception; None is the method of the routine. Every 1,024 operations without a wait, it waits
        and raises what has been found. Until the kernels are enqueued, no other thread reads the flag, which would
        forget the operation before it has run.
        """
        with self._lock:
            if len(self._operations) >= _CAPACITY:
                self.check()
            if self._flag is None:
                self._flag = DeviceErrorFlag(self._context)
            self._operations.append(CheckedOperation(error or routine.error, description, _caller()))
            routine.set_error_flag(self._flag, len(self._operations))
            return launch()

    def check(self) -> None:
        """Wait and raise the first error that checked operations have found; do nothing if there were none."""
        if not self._operations:
            return
        with self._lock:
            if self._flag is None or not self._operations:
                return
            found = self._flag.read()
            operations, self._operations = self._operations, []
        if found is None:
            return
        operation = operations[found.number - 1]
        later = len(operations) - found.number
        after = f", found {later} checked operation{'s' * (later > 1)} later" if later else ""
        error = operation.error(found)
        text = f"{error.args[0] if error.args else error}, in {operation.description}, at {operation.place}{after}"
        raise type(error)(text) from None
