"""Plain text for terminals: tables, sizes, colours."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_COLOURS = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "grey": 90}
_NARROWEST = 12  # characters of a column whose cells are wrapped


def _wants_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    """Return `text` in a colour; unchanged if the output is no terminal or ``NO_COLOR`` is set."""
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if _wants_colour() else text


def _rich() -> Any:
    """Return rich; None if it is not installed, or the output is no terminal."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        import rich.box
        import rich.console
        import rich.table
        import rich.text
    except ImportError:
        return None
    return rich


def _cells(rich: Any, cells: Sequence[object], colours: Mapping[str, str]) -> list[Any]:
    return [rich.text.Text(str(cell), style=colours.get(str(cell), "")) for cell in cells]


def _console(rich: Any) -> Any:
    return rich.console.Console(file=sys.stdout, highlight=False)


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Sequence[str] = (),
    *,
    colours: Mapping[str, str] | None = None,
    wrapped: Sequence[str] = (),
) -> None:
    """Print rows as a table: by rich if it is installed and the output is a terminal, else as aligned columns.

    `colours`: text of a cell -> its colour, by rich; `wrapped`: columns whose cells may be broken into lines.
    """
    rich = _rich()
    if rich is None:
        print(table(header, rows, right))
        return
    console, painted = _console(rich), [_cells(rich, row, colours or {}) for row in rows]
    widths = {
        name: max(len(str(cell)) for cell in (name, *column)) for name, *column in zip(header, *rows, strict=True)
    }
    least = sum(3 + (_NARROWEST if name in wrapped else widths[name]) for name in header)
    if least > console.width:
        _print_records(rich, console, header, painted)
        return
    made = rich.table.Table(box=rich.box.SIMPLE_HEAD, header_style="bold")
    for name in header:
        justify = "right" if name in right else "left"
        made.add_column(name, justify=justify, overflow="fold", no_wrap=name not in wrapped)
    for row in painted:
        made.add_row(*row)
    console.print(made)


def _print_records(rich: Any, console: Any, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print each row below the others, with a line for each cell: the terminal is too narrow for the columns."""
    for row in rows:
        made = rich.table.Table.grid(padding=(0, 2))
        made.add_column(style="bold", no_wrap=True)
        made.add_column(overflow="fold")
        for name, cell in zip(header, row, strict=True):
            made.add_row(name, cell)
        console.print(made)
        console.print()


def print_row(cells: Sequence[object], widths: Sequence[int], colours: Mapping[str, str]) -> bool:
    """Print one row of a table by rich, whose last column has no width and is wrapped; return False without rich."""
    rich = _rich()
    if rich is None:
        return False
    made = rich.table.Table.grid(padding=(0, 2), expand=True)
    made.add_column(width=0)
    for width in widths:
        made.add_column(width=width, overflow="fold")
    made.add_column(ratio=1, overflow="fold")
    made.add_row("", *_cells(rich, cells, colours))
    _console(rich).print(made)
    return True


def table(header: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> str:
    """Return rows as aligned columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        columns = zip(row, header, widths, strict=True)
        aligned = (f"{cell:>{w}}" if name in right else f"{cell:<{w}}" for cell, name, w in columns)
        return "  ".join(aligned).rstrip()

    return "\n".join([paint(line(header), "bold"), *map(line, cells)])


def size(count: float) -> str:
    """Return a number of bytes as text, such as ``7.6 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.{0 if unit == 'B' else 1}f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def print_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2))
