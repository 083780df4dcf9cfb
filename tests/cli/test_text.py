"""Tables, sizes and colours."""

import io
import re
import sys

import pytest

from pytensor_cl.cli import text


def test_table_aligns_columns_and_leaves_no_trailing_blanks():
    lines = text.table(("name", "n"), [("a", 1), ("bcdef", 100)], right=("n",)).splitlines()
    assert lines == ["name     n", "a        1", "bcdef  100"]


def test_table_without_rows():
    assert text.table(("a", "b"), []) == "a  b"


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (64 << 20, "64.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 41, "2.0 TiB"),
    ],
)
def test_size(count, expected):
    assert text.size(count) == expected


class Terminal:
    """A stream that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("", True), ("1", False)])
def test_colours_only_where_wanted(monkeypatch, no_color, coloured):
    monkeypatch.setattr(text.sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    if no_color is None:
        monkeypatch.delenv("NO_COLOR", raising=False)
    else:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert (text.paint("word", "red") != "word") is coloured


def test_no_colours_in_a_file(capsys):
    assert text.paint("word", "red") == "word"


class RecordingTerminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def begin():
        made = RecordingTerminal()
        monkeypatch.setattr(text.sys, "stdout", made)
        return made

    return begin


HEADER, ROWS = ("name", "n", "state"), [("a", 1, "ok"), ("word " * 20, 100, "[bad]")]


def test_terminals_get_tables_of_rich(terminal):
    output = terminal()
    text.print_table(HEADER, ROWS, ("n",), colours={"ok": "green"}, wrapped=("name",))
    shown = output.getvalue()
    assert "─" in shown and "\x1b[32mok" in shown and "[bad]" in shown  # the cell is no markup
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in shown.splitlines()) <= 60


def test_narrow_terminals_get_a_line_for_each_cell(terminal):
    output = terminal()
    text.print_table(HEADER, ROWS)  # no column may be wrapped
    assert len(re.findall("state", output.getvalue())) == 2


def test_rows_are_printed_one_by_one(terminal):
    output = terminal()
    assert text.print_row(("ok", "subject", "text " * 30), (4, 20), {"ok": "green"})
    assert len(output.getvalue().splitlines()) > 2


@pytest.mark.parametrize("obstacle", ["file", "dumb", "not installed"])
def test_elsewhere_tables_are_plain_text(monkeypatch, capsys, obstacle):
    if obstacle != "file":
        monkeypatch.setattr(text.sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "dumb" if obstacle == "dumb" else "xterm")
    if obstacle == "not installed":
        monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setenv("NO_COLOR", "1")
    text.print_table(HEADER, ROWS[:1], ("n",))
    assert not text.print_row(("ok",), (), {})
    assert capsys.readouterr().out.splitlines() == ["name  n  state", "a     1  ok"]
