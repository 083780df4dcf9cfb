"""Move the bodies of kernels into functions, for PoCL.

PoCL puts three copies of every kernel into its object code (a plain one and two that walk a work-group) and optimises
each. What a kernel calls there is only once, if it must not be inlined and asks for no work-item's number.

A kernel that was moved does nothing if all its pointers are null, so that it can be compiled without being run.
"""

import re
from collections.abc import Iterator

__all__ = ["moved", "outline"]

# Kernels of single work-items: the others may have barriers, which PoCL must see in the kernel itself.
_HEAD = re.compile(
    r"(?:__kernel\s+)?__attribute__\(\(reqd_work_group_size\(1, 1, 1\)[^\n]*\)\)\s+(?:__kernel\s+)?void\s+(\w+)(?=\()"
)
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(rf"{_COMMENT}|[(){{}},]", re.DOTALL)
_NUMBER = re.compile(r"\bget_(global_id|global_size)\(([0-2])\)")
# Kernels may use the widest registers; a function may not, on CPUs that save power without them, unless it says so.
_ATTRIBUTES = "__attribute__((noinline, min_vector_width(512)))"
_MOVED = re.compile(r"^static [^\n]*\bvoid (\w+)_body\(", re.MULTILINE)
_UNMOVABLE = re.compile(r"\b(__local|__constant|barrier)\b")


def outline(text: str) -> str:
    """Return a program in which kernels of work-groups of one work-item only call a function with what was their body.

    Parameters
    ----------
    text
        OpenCL C; kernels that cannot be moved, or not be understood, stay as they are.
    """
    pieces, end = [], 0
    for head in _HEAD.finditer(text):
        brackets = _brackets(text, head.end())
        parameters, body = next(brackets, None), next(brackets, None)
        if parameters is None or body is None or _UNMOVABLE.search(text[slice(*body)]):
            continue
        pieces += [text[end : head.start()], _split(head, text[slice(*parameters)], text[slice(*body)])]
        end = body[1]
    return "".join((*pieces, text[end:]))


def moved(text: str) -> list[str]:
    """Return the kernels of an outlined program that only call a function."""
    return _MOVED.findall(text)


def _brackets(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield where each outermost pair of brackets begins and ends."""
    depth = begin = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] in "({":
            begin = begin if depth else token.start()
            depth += 1
        elif token[0] in ")}":
            depth -= 1
            if not depth:
                yield begin, token.end()


def _split(head: re.Match[str], parameters: str, body: str) -> str:
    """Return the function, and the kernel that calls it."""
    numbers = {f"{kind}_{d}": f"get_{kind}({d})" for kind, d in _NUMBER.findall(body)}
    names = _names(parameters)
    pointers = " || ".join(name for name, is_pointer in names.items() if is_pointer)
    declared = ", ".join([parameters[1:-1], *(f"const size_t {number}" for number in numbers)])
    moved = _NUMBER.sub(r"\1_\2", body)
    call = ", ".join((*names, *numbers.values()))
    function = f"static {_ATTRIBUTES} void {head[1]}_body({declared})\n{moved}\n"
    condition = f"if ({pointers}) " if pointers else ""
    return f"{function}\n{head[0]}{parameters}\n{{\n    {condition}{head[1]}_body({call});\n}}"


def _names(parameters: str) -> dict[str, bool]:
    """Names of the parameters in a bracketed list, and whether they are pointers."""
    plain = re.sub(_COMMENT, "", parameters[1:-1], flags=re.DOTALL)
    return {re.findall(r"\w+", part)[-1]: "*" in part for part in plain.split(",")}
