"""How kernels tell the host that their data is wrong: words on the device that are read where the host waits anyway."""

from typing import NamedTuple

import numpy as np

from pytensor_cl.runtime.interfaces import DeviceContext

__all__ = ["DeviceErrorFlag", "ErrorRecord"]

_RECORD = np.dtype([("number", "i4"), ("detail", "i4"), ("value", "i8"), ("limit", "i8")])


class ErrorRecord(NamedTuple):
    """What a kernel found.

    Attributes
    ----------
    number
        Who found it, as numbered by whoever gave out the error flag; from 1.
    detail, value, limit
        What the kernel's routine makes of them: an axis, an index, a length.
    """

    number: int
    detail: int
    value: int
    limit: int


class DeviceErrorFlag:
    """Where kernels of a context note what is wrong; the first note stays until it is read.

    Parameters
    ----------
    context
        An open context.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._words = context.empty((_RECORD.itemsize // 4,), "int32")
        self.buffer = self._words.buffer
        context.queue.write(self.buffer, np.zeros(self._words.shape, "int32"))

    def read(self) -> ErrorRecord | None:
        """Wait for the device; return what a kernel found, and forget it."""
        words = self._look()
        if not words[0]:
            return None
        self._context.queue.write(self.buffer, np.zeros_like(words))
        return ErrorRecord(*words.view(_RECORD)[0].item())

    def _look(self) -> np.ndarray:
        """Return the words when all that was enqueued has run; where it has by now, nothing is waited for."""
        seen = self._context.views.view(self._words)
        if seen is None:
            return self._context.download(self._words)
        self._context.queue.wait()
        return seen.copy()
