"""A progress bar, on terminals only, and warnings that name the line of the caller."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_FOLDER = str(Path(__file__).parent)


def warn(message: str) -> None:
    """Issue a UserWarning at the line that called this package."""
    warnings.warn(message, UserWarning, skip_file_prefixes=(_FOLDER,))


@contextmanager
def progress_bar(total: int, label: str, shown: bool) -> Iterator[Callable[[int, str], None]]:
    """Yield a function that takes the number of iterations that are done, and a text."""
    if not (shown and sys.stderr.isatty()):
        yield lambda done, text: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total, text="")
        yield lambda done, text: progress.update(task, completed=done, text=text)
