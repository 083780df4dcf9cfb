"""Pairs of brackets in OpenCL C."""

import re
from collections.abc import Iterator

COMMENT = r"//[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(rf"{COMMENT}|[(){{}}]", re.DOTALL)


def outermost_brackets(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each outermost pair of round or curly brackets, which may be mixed."""
    depth = begin = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] in ("(", "{"):
            begin = begin if depth else token.start()
            depth += 1
        elif token[0] in (")", "}"):
            depth -= 1
            if not depth:
                yield begin, token.end()
