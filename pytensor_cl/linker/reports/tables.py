"""Tables as text and as HTML."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDEST = 60  # characters of a cell in text
UNLIMITED = 1 << 30  # characters of a cell, where full names were asked for


class Table(NamedTuple):
    """Rows of text. The first column is aligned to the left, and so are others that have words in them."""

    head: Sequence[str]  # names of the columns
    rows: Sequence[Sequence[str]]  # rows of cells, one for each column
    bars: Mapping[int, Sequence[float]] = {}  # column -> length of the bar in each row, between 0 and 1; HTML only


def to_scale(values: Iterable[float | None]) -> list[float]:
    """Return the lengths of bars: 1 for the largest value."""
    found = [value or 0.0 for value in values]
    largest = max(found, default=0.0)
    return [value / largest if largest else 0.0 for value in found]


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell in ("-", "?")


def _to_the_right(table: Table) -> list[bool]:
    return [k > 0 and all(_is_number(row[k]) for row in table.rows) for k in range(len(table.head))]


def _short(cell: str, widest: int) -> str:
    return cell if len(cell) <= widest else cell[: widest - 3] + "..."


def lines(table: Table, widest: int = WIDEST) -> list[str]:
    """Return a table as lines of text; longer cells than `widest` characters are cut."""
    cells = [[_short(cell, widest) for cell in row] for row in (table.head, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [">" if right else "<" for right in _to_the_right(table)]
    made = ["  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, aligned, widths, strict=True)).rstrip() for row in cells]
    return [made[0], "  ".join("-" * w for w in widths), *made[1:]]


def text(tables: Iterable[Table], widest: int = WIDEST) -> str:
    """Return tables for a terminal."""
    return "\n\n".join("\n".join(lines(table, widest)) for table in tables)


def _html_row(tag: str, row: Sequence[str], right: Sequence[bool], bars: Mapping[int, float]) -> str:
    cells = []
    for k, (cell, is_right) in enumerate(zip(row, right, strict=True)):
        kind = ' class="number"' if is_right else ""
        if k in bars:
            kind = f' class="{"number " if is_right else ""}bar" style="--length:{100 * bars[k]:.1f}%"'
        cells.append(f"<{tag}{kind}>{escape(cell)}</{tag}>")
    return f"<tr>{''.join(cells)}</tr>"


def _html_table(table: Table) -> str:
    right = _to_the_right(table)
    bars = [{k: lengths[r] for k, lengths in table.bars.items()} for r in range(len(table.rows))]
    body = "".join(_html_row("td", row, right, b) for row, b in zip(table.rows, bars, strict=True))
    head = _html_row("th", table.head, right, {})
    return f'<div class="table"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def html(parts: Iterable[Table | str]) -> str:
    """Return tables and paragraphs as the body of a page."""
    return "".join(_html_table(part) if isinstance(part, Table) else f"<p>{escape(part)}</p>" for part in parts)
