"""Progress of a training: a bar on a terminal, a line for each epoch elsewhere."""

import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from pytensor_cl.train.run import Run

CHOICES = ("auto", "always", "never")
READ_SECONDS = 0.1
"""Seconds between two readings of results, for which a device must finish what it has been given."""


def _numbers(results: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in results.items())


def _write(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class Progress:
    """Shows the results of a run when they are read.

    Parameters
    ----------
    choice
        "auto": a bar if stderr is a terminal, else a line for each epoch. "always": a bar. "never": nothing.
    log
        A function that takes the line of each epoch. None: it is written to stderr where there is no bar.
    """

    def __init__(self, choice: str, log: Callable[[str], Any] | None) -> None:
        if choice not in CHOICES:
            raise ValueError(f"progress is {', '.join(CHOICES)}; got {choice!r}")
        self._has_bar = choice == "always" or (choice == "auto" and _is_terminal())
        self._log = _write if log is None and choice == "auto" and not self._has_bar else log
        self._bar: Any = None
        self._begun, self._rows_before = perf_counter(), 0

    def begin(self, run: Run, count: int | None) -> None:
        """An epoch begins, of so many batches."""
        self._begun, self._rows_before = perf_counter(), run.rows
        if self._has_bar:
            self._bar = _tqdm()(
                total=count,
                initial=run.batch,
                desc=f"epoch {run.epoch + 1}/{run.epochs}",
                unit="batch",
                bar_format="{desc} {percentage:3.0f}%|{bar:12}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
            )

    def _rate(self, run: Run) -> str:
        seconds = perf_counter() - self._begun
        return f"{(run.rows - self._rows_before) / seconds:,.0f} samples/s" if seconds else ""

    def update(self, run: Run) -> None:
        """Results were read."""
        if self._bar is not None:
            self._bar.n = run.batch
            self._bar.set_postfix_str(f"{_numbers(run.means.values())}, {self._rate(run)}", refresh=False)
            self._bar.update(0)

    def end(self, run: Run, speed: str) -> None:
        """An epoch ended; `speed` is what `speed` returned when its last step was done."""
        line = f"{_numbers(run.results)}, {speed}"
        if self._bar is not None:
            self._bar.n = run.batch
            self._bar.set_postfix_str(line, refresh=False)
        self.close()
        if self._log is not None:
            self._log(f"epoch {run.epoch + 1}/{run.epochs}: {line}")

    def speed(self, run: Run) -> str:
        """Return the samples per second of the epoch so far."""
        return self._rate(run)

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _tqdm() -> Any:
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError("a progress bar needs tqdm: pip install 'pytensor-cl[train]', or progress='never'") from error
    return tqdm
