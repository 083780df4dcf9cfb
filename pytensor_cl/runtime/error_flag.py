"""Error flags: kernels record invalid data in a buffer, which the host reads when it waits for the device."""

from typing import NamedTuple

import numpy as np

from pytensor_cl.runtime.interfaces import DeviceContext

_RECORD = np.dtype([("number", "i4"), ("detail", "i4"), ("value", "i8"), ("limit", "i8")])


class ErrorRecord(NamedTuple):
    """The error record of a kernel.

    `number`: number of the routine (`Checked.set_error_flag`); from 1; `detail`, `value`, `limit`: their meaning
    depends on the routine: an axis, an index, a length.
    """

    number: int
    detail: int
    value: int
    limit: int


class DeviceErrorFlag:
    """An error record in the memory of a context's device. The first error stays until it is read.

    `nbytes`: its size.
    """

    nbytes = _RECORD.itemsize

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._noted: tuple[object, np.ndarray] | None = None
        self._words = context.empty((_RECORD.itemsize // 4,), "int32")
        self.buffer = self._words.buffer
        context.queue.write(self.buffer, np.zeros(self._words.shape, "int32"))

    def read(self) -> ErrorRecord | None:
        """Wait for the device; return the error record and clear it. None if there was no error."""
        words = self._download()
        if not words[0]:
            return None
        self._context.queue.write(self.buffer, np.zeros_like(words))
        return ErrorRecord(*words.view(_RECORD)[0].item())

    def note(self, words: np.ndarray) -> None:
        """Note the words of the record, which the caller has read after all commands."""
        self._noted = self._context.queue.last_submission, words

    def _download(self) -> np.ndarray:
        """Return the record when all commands have run; without a wait if none is pending."""
        noted, self._noted = self._noted, None
        if noted is not None and noted[0] is self._context.queue.last_submission:
            return noted[1]  # there was no command since
        seen = self._context.mappings.view(self._words)
        if seen is None:
            return self._context.download(self._words)
        self._context.queue.wait()
        return seen.copy()
