"""Tables as text and as HTML."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

WIDEST = 60  # characters of a cell in text

_TABLE = '<table style="border-collapse:collapse;margin-bottom:1em">'
_CELL = '<{tag} style="padding:2px 10px;text-align:{align};white-space:nowrap" title="{full}">{shown}</{tag}>'


class Table(NamedTuple):
    """Rows of text. The first column is aligned to the left, and so are others that have words in them."""

    head: Sequence[str]  # names of the columns
    rows: Sequence[Sequence[str]]  # rows of cells, one for each column


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell == "-"


def _to_the_right(table: Table) -> list[bool]:
    return [k > 0 and all(_is_number(row[k]) for row in table.rows) for k in range(len(table.head))]


def _short(cell: str, widest: int = WIDEST) -> str:
    return cell if len(cell) <= widest else cell[: widest - 3] + "..."


def lines(table: Table, widest: int = WIDEST) -> list[str]:
    """Return a table as lines of text; longer cells than `widest` characters are cut."""
    cells = [[_short(cell, widest) for cell in row] for row in (table.head, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [">" if right else "<" for right in _to_the_right(table)]
    made = ["  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, aligned, widths, strict=True)).rstrip() for row in cells]
    return [made[0], "  ".join("-" * w for w in widths), *made[1:]]


def text(tables: Iterable[Table]) -> str:
    """Return tables for a terminal."""
    return "\n\n".join("\n".join(lines(table)) for table in tables)


def _html_row(tag: str, row: Sequence[str], right: Sequence[bool]) -> str:
    cells = (
        _CELL.format(tag=tag, align="right" if r else "left", full=escape(c), shown=escape(_short(c)))
        for c, r in zip(row, right, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _html_table(table: Table) -> str:
    right = _to_the_right(table)
    body = "".join(_html_row("td", row, right) for row in table.rows)
    return f"{_TABLE}<thead>{_html_row('th', table.head, right)}</thead><tbody>{body}</tbody></table>"


def html(tables: Iterable[Table]) -> str:
    """Return tables for a notebook; what is too long for a cell is shown when the mouse is over it."""
    return "".join(map(_html_table, tables))
