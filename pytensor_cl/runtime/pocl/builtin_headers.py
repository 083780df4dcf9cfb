"""Declare only the built-in functions that a program uses, for PoCL.

PoCL's compiler reads clang's header of all built-ins, a megabyte, for each program. It also reads it to preprocess a
program whose compiled form is in the cache, which takes three quarters of such a build. The option `SKIP_HEADER`
defines the header's include guard, so that it is skipped; the declarations that the program uses are put before the
program. If one is missing, the program does not build, and is built with the full header instead.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pytensor_cl.runtime.compilation.kernel_text import COMMENT

SKIP_HEADER = "-D_OPENCL_H_"
"""Build option."""

_STATEMENT = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$|[^;#\s][^;#]*;", re.MULTILINE)
_NAME = re.compile(r"\b([a-z]\w*)\s*\(")
_WORD = re.compile(r"\b[a-z]\w*")
_ALWAYS = ("__ovld", "__conv", "__purefn", "__cnfn")  # macros in most declarations


class _Declaration(NamedTuple):
    name: str
    text: str
    conditions: tuple[tuple[str, ...], ...]  # lines of each enclosing #if before the declaration


def header(version: str) -> Path | None:
    """Return the header of built-ins of a device's compiler; None if its place is not known.

    `version`: version of the driver. Only the version of the wheel ``pocl-binary-distribution`` is known.
    """
    spec = find_spec("pocl_binary_distribution") if version.split("-")[0] == "3.0" else None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / ".libs" / "share" / "pocl" / "include" / "opencl-c.h"
    return path if path.is_file() else None


def declare(text: str, file: Path) -> str:
    """Return a program preceded by the declarations that it uses.

    `text`: OpenCL C; `file`: the header.
    """
    used = set(_WORD.findall(text))
    wanted = (d for d in _declarations(file) if d.name in used or d.name in _ALWAYS)
    return "\n".join((*_lines(wanted), text))


def _lines(wanted: Iterator[_Declaration]) -> Iterator[str]:
    """Yield the lines of declarations; consecutive ones with the same conditions share the ``#if`` lines."""
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
    """Return the functions and macros of a header, with the preprocessor conditions around each."""
    declarations: list[_Declaration] = []
    conditions: list[list[str]] = []
    text = file.read_text(encoding="utf-8").replace("#ifndef _OPENCL_H_", "#if 1")
    plain = re.sub(COMMENT, "", text, flags=re.DOTALL)
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
            declarations.append(_Declaration(name, text, tuple(map(tuple, conditions))))
    return tuple(declarations)


def _declared(text: str, directive: str) -> str:
    """Return the name of the function or macro that a statement declares; empty if it declares none."""
    if directive:
        return text.split()[1].partition("(")[0] if directive == "define" else ""
    name = _NAME.search(text)
    return name[1] if name else ""
