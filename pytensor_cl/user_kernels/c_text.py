"""OpenCL C that a user writes, read word by word."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>0[xX](?:[pP][+-]|[\w.])*|\.?\d(?:[eE][+-]|[\w.])*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<space>\s+)
    |(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_PAIRS = {")": "(", "]": "[", "}": "{"}
_SUFFIX = re.compile(r"_u[0-9a-f]{8}\b")

_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile "
    "while bool half uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t event_t sampler_t image1d_t "
    "image2d_t image3d_t true false global local constant private kernel read_only write_only read_write "
    "uniform pipe complex imaginary NAN INFINITY HUGE_VAL MAXFLOAT NULL barrier printf"
)
_VECTORS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float", "double")
KEYWORDS = frozenset((*_WORDS.split(" "), *(f"{kind}{lanes}" for kind in _VECTORS for lanes in (2, 3, 4, 8, 16))))
"""Words of OpenCL C that cannot be names of parameters."""


class Token(NamedTuple):
    """A piece of C: ``comment``, ``string``, ``number``, ``word``, ``space`` or ``other``."""

    kind: str
    text: str


def tokens(text: str) -> Iterator[Token]:
    """Yield the pieces of a C text; joined they are the text."""
    for found in _TOKEN.finditer(text):
        yield Token(str(found.lastgroup), found[0])


def code(text: str) -> str:
    """Return a C text with blanks in place of comments and strings."""
    return "".join(" " if token.kind in ("comment", "string") else token.text for token in tokens(text))


def words(text: str) -> frozenset[str]:
    """Return the words of a C text, without those in comments and strings."""
    return frozenset(token.text for token in tokens(text) if token.kind == "word")


_BEFORE_EXPRESSIONS = frozenset(("return", "else", "case", "goto", "sizeof", "do"))


def is_free(name: str, text: str) -> bool:
    """Return whether a name occurs in statements where none of their own variables has it, or may be without one."""
    read = [token for token in tokens(text) if token.kind not in ("space", "comment")]
    declared_until = -1
    for place, token in enumerate(read):
        if token.kind != "word" or token.text != name or place <= declared_until:
            continue
        before = read[place - 1] if place else Token("", "")
        if before.text == ".":
            continue
        if before.kind != "word" or before.text in _BEFORE_EXPRESSIONS:
            return True
        declared_until = _end_of_scope(read, place)
    return False


def _end_of_scope(read: list[Token], place: int) -> int:
    """Return the place of the last token for which a declaration holds; of a loop without braces its first ``;``."""
    depth = {"(": 0, "{": 0}
    is_of_loop = False
    for end in range(place, len(read)):
        text = read[end].text
        opening = _PAIRS.get(text, text)
        if opening in depth:
            depth[opening] += 1 if text == opening else -1
        if depth["{"] < 0:
            return end
        if depth["("] < 0:  # the head of a loop
            is_of_loop, depth["("] = True, 0
        elif is_of_loop and not any(depth.values()) and text in ("}", ";"):
            return end
    return len(read)


def replace_words(text: str, new: Mapping[str, str]) -> str:
    """Replace words; members of structs and components of vectors, which follow a dot or an arrow, stay."""
    pieces: list[str] = []
    for token in tokens(text):
        is_member = bool(pieces) and (pieces[-1] == "." or pieces[-2:] == ["-", ">"])
        pieces.append(new.get(token.text, token.text) if token.kind == "word" and not is_member else token.text)
    return "".join(pieces)


def single_precision(text: str) -> str:
    """Return a C text whose floating-point literals have the suffix ``f``: C's own are double."""
    return "".join(_single(token.text) if token.kind == "number" else token.text for token in tokens(text))


def _single(number: str) -> str:
    return f"{number}f" if is_float_literal(number) and number[-1] not in "fFlL" else number


def is_float_literal(number: str) -> bool:
    """Return whether a number of a C text is a floating-point one."""
    lower = number.lower()
    return "p" in lower if lower.startswith("0x") else "." in lower or "e" in lower


def check_brackets(text: str, what: str) -> None:
    """Raise a `ValueError` if brackets of a C text do not match, or a comment or a string does not end."""
    opened: list[tuple[str, int]] = []
    line = 1
    for token in tokens(text):
        character = token.text
        if token.kind == "other" and character in "([{":
            opened.append((character, line))
        elif token.kind == "other" and character in _PAIRS:
            if not opened or opened.pop()[0] != _PAIRS[character]:
                raise ValueError(f"{what}, line {line}: {character!r} closes no {_PAIRS[character]!r}")
        elif token.kind == "other" and character in "\"'":
            raise ValueError(f"{what}, line {line}: a string does not end")
        line += character.count("\n")
    if "/*" in code(text):
        raise ValueError(f"{what}: a comment does not end")
    if opened:
        raise ValueError(f"{what}, line {opened[-1][1]}: {opened[-1][0]!r} is not closed")


_DEFINED = (
    re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE),
    re.compile(r"\b(?:struct|union|enum)\s+(\w+)\s*\{"),
    re.compile(r"\btypedef\b[^;{]*?(?:\{[^}]*\})?[^;]*?\b(\w+)\s*;"),
    re.compile(r"(?:\b(?:__)?constant|\bconst)\b[^;={()]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)*="),
    re.compile(r"\b(\w+)\s*\([^;{}()]*\)\s*\{"),
)


def defined_names(preamble: str) -> frozenset[str]:
    """Return the names that a preamble defines at its outermost level: macros, types, constants and functions."""
    plain = _without_bodies(code(preamble))
    return frozenset(name for pattern in _DEFINED for name in pattern.findall(plain)) - KEYWORDS


def _without_bodies(plain: str) -> str:
    """Return a C text with nothing between outermost braces."""
    pieces, depth = [], 0
    for piece in re.split(r"([{}])", plain):
        depth -= piece == "}"
        if not depth:
            pieces.append(piece)
        depth += piece == "{"
    return "".join(pieces)


def renamed(preamble: str, names: frozenset[str]) -> dict[str, str]:
    """Return new names for those that a preamble defines: kernels with other preambles may be in the same program."""
    suffix = hashlib.blake2s(preamble.encode(), digest_size=4).hexdigest()
    return {name: f"{name}_u{suffix}" for name in sorted(names)}


def original_names(log: str) -> str:
    """Return a build log with the names that the user wrote."""
    return _SUFFIX.sub("", log)


def replace_subscripts(text: str, name: str, new: Callable[[str], str]) -> str:
    """Replace every ``name[index]`` of a C text by ``new(index)``."""
    pieces, parts = [], list(tokens(text))
    at = 0
    while at < len(parts):
        end = _end_of_subscript(parts, at) if parts[at].text == name else None
        if end is None:
            pieces.append(parts[at].text)
            at += 1
            continue
        inner = "".join(token.text for token in parts[at + 1 : end]).strip()[1:-1]
        pieces.append(new(replace_subscripts(inner, name, new)))
        at = end
    return "".join(pieces)


def _end_of_subscript(parts: list[Token], at: int) -> int | None:
    """Return the place after the brackets that follow a word; None if there are none."""
    depth = 0
    for place in range(at + 1, len(parts)):
        token = parts[place]
        if token.kind in ("space", "comment") and not depth:
            continue
        depth += (token.text == "[") - (token.text == "]")
        if not depth:
            return place + 1 if token.text == "]" else None
    return None
