"""Read the text of kernels: brackets, and the parameters of a function."""

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["COMMENT", "KERNEL_HEAD", "Parameter", "brackets", "parameters_in"]

COMMENT = r"//[^\n]*|/\*.*?\*/"
KERNEL_HEAD = re.compile(r"\b(?:__)?kernel\b(?:(?!\bvoid\b)[^;{}])*\bvoid\s+(\w+)\s*(?=\()")
"""From the word ``kernel`` to the bracket of the parameters; group 1 is the name."""
_TOKEN = re.compile(rf"{COMMENT}|[(){{}}]", re.DOTALL)
_RESTRICT = re.compile(r"\b(?:__)?restrict\b")
_READ_ONLY = re.compile(r"\bconst\b[^*]*\*")


class Parameter(NamedTuple):
    """A parameter of a kernel; its type is without ``restrict``."""

    name: str
    type: str

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer."""
        return "*" in self.type

    @property
    def kind(self) -> str:
        """``r``: a pointer to memory that is only read; ``w``: another pointer; ``v``: a value."""
        return "v" if not self.is_pointer else "r" if _READ_ONLY.search(self.type) else "w"


def brackets(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each outermost pair of brackets."""
    depth = begin = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] in ("(", "{"):
            begin = begin if depth else token.start()
            depth += 1
        elif token[0] in (")", "}"):
            depth -= 1
            if not depth:
                yield begin, token.end()


def parameters_in(text: str) -> list[Parameter]:
    """Return the parameters in a bracketed list."""
    plain = re.sub(COMMENT, "", text[1:-1], flags=re.DOTALL)
    found = (re.fullmatch(r"(.*?)(\w+)\s*", part, re.DOTALL) for part in plain.split(","))
    return [Parameter(p[2], _RESTRICT.sub("", p[1]).strip()) for p in found if p]
