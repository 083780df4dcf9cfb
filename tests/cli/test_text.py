"""Tables, sizes and colours."""

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
