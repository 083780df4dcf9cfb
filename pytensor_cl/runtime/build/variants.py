"""What a program's text goes through before it is built."""

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pytensor_cl.codegen.rendered import code_digest, kept
from pytensor_cl.codegen.template import render
from pytensor_cl.runtime.pocl.builtin_headers import SKIP, declare, header
from pytensor_cl.runtime.pocl.outlining import outline

__all__ = ["BuildVariant", "Ways", "as_it_is", "for_nvidia", "for_pocl"]


_INLINED = ("ceil", "copysign", "fabs", "floor", "fma", "fmax", "fmin", "max", "min", "rint", "select", "trunc")
_CALL = re.compile(rf"\b({'|'.join(_INLINED)})\(")
_REGISTERS = re.compile(r"at most (\d+) registers")


class BuildVariant(NamedTuple):
    """One way to build a program.

    Attributes
    ----------
    text
        OpenCL C.
    options
        Build options besides those of every build.
    is_new
        Nobody of this user has built the text this way since caches were emptied, as far as we know.
    """

    text: str
    options: tuple[str, ...] = ()
    is_new: bool = False


Ways = Callable[[str], Iterator[BuildVariant]]
"""From a program's text to the ways of building it: the first that builds is taken, the last one's errors are shown."""


def as_it_is(text: str) -> Iterator[BuildVariant]:
    """Yield the text."""
    yield BuildVariant(text)


def for_nvidia(text: str) -> Iterator[BuildVariant]:
    """Yield the text; first for as few registers as a comment in it asks for ("at most N registers").

    A work-group of 256 has room beside another one of them on a multiprocessor if no work-item has more than 128. Left
    alone, the compiler takes more, to have more loads under way; OpenCL C has no words for it.
    """
    asked = _REGISTERS.findall(text)
    if asked:
        yield BuildVariant(text, (f"-cl-nv-maxrregcount={min(map(int, asked))}",))
    yield BuildVariant(text)


@cache
def _stamp(file: Path) -> bytes:
    """Tell versions of the header, and of the code that makes texts, from each other."""
    status, digest = file.stat(), hashlib.blake2s()
    digest.update(f"{file} {status.st_size} {status.st_mtime_ns}".encode())
    digest.update(code_digest(outline.__module__, declare.__module__))
    return digest.digest()


def _inlined(text: str) -> str:
    """Return a program that has the shortest of the built-ins it calls as functions of its own."""
    used = sorted(set(_CALL.findall(text)))
    return f"{render('inlined', used=used)}\n{text}" if used else text


def for_pocl(version: str, inlines: bool = False, has_entries: bool = False) -> Ways:
    """Return the ways of PoCL: bodies of kernels as functions, and, where it is known, without the header of built-ins.

    Parameters
    ----------
    version
        Of the driver.
    inlines
        Whether programs have the shortest built-ins as functions of their own.
    has_entries
        Whether kernels have entries, for `dispatch`.
    """
    file = header(version)
    extend = _inlined if inlines else str

    def whole(text: str) -> Iterator[BuildVariant]:
        yield BuildVariant(outline(text, has_entries))

    def short(text: str) -> Iterator[BuildVariant]:
        assert file is not None
        extended = extend(text)
        made: list[str] = []

        def make() -> str:
            made.append(declare(outline(extended, has_entries), file))
            return made[0]

        yield BuildVariant(kept(_stamp(file) + bytes([has_entries]) + extended.encode(), make), (SKIP,), bool(made))
        yield from whole(text)

    return short if file else whole
