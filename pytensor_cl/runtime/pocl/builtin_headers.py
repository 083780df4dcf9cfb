"""Declare only the built-in functions that a program uses, for PoCL.

PoCL's compiler reads clang's header of all built-ins, a megabyte, for each program; and reads it again, to tell what
the text says after preprocessing, when the compiled program is in its cache: three quarters of a warm build. The option
`SKIP` makes the header look as if it had been read; what the program uses of it is then put before the program. A
program that misses something does not build: build it as it was, without the option.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

__all__ = ["SKIP", "declare", "header"]

SKIP = "-D_OPENCL_H_"
"""Build option."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATEMENT = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$|[^;#\s][^;#]*;", re.MULTILINE)
_NAME = re.compile(r"\b([a-z]\w*)\s*\(")
_WORD = re.compile(r"\b[a-z]\w*")
_ALWAYS = ("__ovld", "__conv", "__purefn", "__cnfn")  # macros in most declarations


class _Declaration(NamedTuple):
    name: str
    text: str
    conditions: tuple[tuple[str, ...], ...]  # of each enclosing #if, the lines up to where the declaration is


def header(version: str) -> Path | None:
    """Return the file of built-ins that a device's compiler reads; None if we do not know it.

    Parameters
    ----------
    version
        What the device says of itself: only the PoCL that comes as a wheel is known.
    """
    spec = find_spec("pocl_binary_distribution") if version.split("-")[0] == "3.0" else None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / ".libs" / "share" / "pocl" / "include" / "opencl-c.h"
    return path if path.is_file() else None


def declare(text: str, file: Path) -> str:
    """Return a program with the declarations of what it uses before it.

    Parameters
    ----------
    text
        OpenCL C.
    file
        The header.
    """
    used = set(_WORD.findall(text))
    wanted = (d for d in _declarations(file) if d.name in used or d.name in _ALWAYS)
    return "\n".join((*_lines(wanted), text))


def _lines(wanted: Iterator[_Declaration]) -> Iterator[str]:
    """Yield the declarations; those under the same conditions share them."""
    inside: tuple[tuple[str, ...], ...] = ()
    for declaration in wanted:
        if declaration.conditions != inside:
            yield from ("#endif" for _ in inside)
            inside = declaration.conditions
            yield from (line for lines in inside for line in lines)
        yield declaration.text
    yield from ("#endif" for _ in inside)


@cache
def _declarations(file: Path) -> tuple[_Declaration, ...]:
    """Functions and macros of a header, with the conditions under which they stand."""
    found: list[_Declaration] = []
    conditions: list[list[str]] = []
    plain = _COMMENT.sub("", file.read_text(encoding="utf-8")).replace("#ifndef _OPENCL_H_", "#if 1")
    for match in _STATEMENT.finditer(plain):
        text = match[0].strip()
        kind = re.match(r"#\s*(\w*)", text)
        word = kind[1] if kind else ""
        if word.startswith("if"):
            conditions.append([text])
        elif word in ("else", "elif"):
            conditions[-1].append(text)
        elif word == "endif":
            conditions.pop()
        elif name := _declared(text, word):
            found.append(_Declaration(name, text, tuple(map(tuple, conditions))))
    return tuple(found)


def _declared(text: str, directive: str) -> str:
    """Name of the function or macro that a statement declares; empty if it declares none."""
    if directive:
        return text.split()[1].partition("(")[0] if directive == "define" else ""
    name = _NAME.search(text)
    return name[1] if name else ""
