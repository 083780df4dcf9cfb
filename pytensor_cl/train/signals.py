"""SIGINT and SIGTERM during a training: the step that runs ends first."""

import signal
import sys
import threading
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context in which the first signal is noted, and a second one interrupts at once.

    Outside of the main thread, where Python handles no signals, nothing is noted. A signal that the process ignores is
    still ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.is_forced = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                if before not in (None, signal.SIG_IGN):  # None: set by other code than Python's, which cannot go back
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: Any) -> None:
        if self.received is not None:
            self.is_forced = True
            raise _exception(number)
        self.received = number
        name = signal.Signals(number).name
        sys.stderr.write(f"\n{name}: the training stops after this step; a second signal stops it at once\n")

    def raise_if_any(self) -> None:
        """Raise KeyboardInterrupt after SIGINT, and SystemExit(143) after SIGTERM."""
        if self.received is not None:
            raise _exception(self.received)


def _exception(number: int) -> BaseException:
    """Return what a process raises that a signal ends; 128 + 15 is the exit status that shells show for SIGTERM."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
