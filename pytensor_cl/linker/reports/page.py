"""The style and the frame of HTML reports, which need no network."""

from functools import cache
from html import escape
from os import PathLike
from pathlib import Path

# Tints for the filling of shapes, and lines: the hues of Okabe and Ito, which colour-blind people can tell apart.
COLOURS = {
    "device": ("#d5e8f6", "#0072b2"),
    "host": ("#fdebc8", "#b36b00"),
    "transfer": ("#f3dcea", "#a34a7f"),
    "input": ("#dff2ec", "#00795a"),
    "shared": ("#dff2ec", "#00795a"),
    "constant": ("#eeeeee", "#666666"),
    "output": ("#ffffff", "#222222"),
}
"""Kind of node -> colours of its filling and of its line, on a light background."""
DARK_COLOURS = {
    "device": ("#123a55", "#56b4e9"),
    "host": ("#4a3510", "#e69f00"),
    "transfer": ("#48243a", "#dd8fbd"),
    "input": ("#10392f", "#3fc79f"),
    "shared": ("#10392f", "#3fc79f"),
    "constant": ("#333333", "#aaaaaa"),
    "output": ("#1b1b1b", "#dddddd"),
}
OP_COLOURS = {"Gpu": "#8ec5e8", "GpuFromHost": "#e3a8cc", "HostFromGpu": "#e3a8cc", "GpuToGpu": "#e3a8cc"}
"""Part of the names of Op classes -> colour in PyTensor's own pictures: device Ops, and transfers."""


@cache
def asset(name: str) -> str:
    """Return the text of a file of this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _variables(colours: dict[str, tuple[str, str]]) -> str:
    return "".join(f"--{kind}-fill:{fill};--{kind}-line:{line};" for kind, (fill, line) in colours.items())


@cache
def stylesheet() -> str:
    """Return the style sheet of all reports, light and dark."""
    light, dark = _variables(COLOURS), _variables(DARK_COLOURS)
    return asset("report.css").replace("/*light*/", light).replace("/*dark*/", dark)


def fragment(body: str) -> str:
    """Return a report for the output of a notebook's cell."""
    return f'<style>{stylesheet()}</style><div class="pytensor-cl">{body}</div>'


def page(title: str, body: str) -> str:
    """Return a report as a page of its own."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{stylesheet()}\nbody{{margin:0}}</style></head>"
        f'<body class="pytensor-cl-page"><div class="pytensor-cl">{body}</div></body></html>\n'
    )


def save(path: str | PathLike[str], text: str) -> None:
    """Write a report to a file."""
    Path(path).write_text(text, encoding="utf-8")
