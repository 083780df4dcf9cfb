"""Plain text for terminals: tables, sizes, colours."""

import json
import os
import sys
from collections.abc import Sequence

_COLOURS = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "grey": 90}


def _wants_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    """Return `text` in a colour; unchanged if the output is no terminal or ``NO_COLOR`` is set."""
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if _wants_colour() else text


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
