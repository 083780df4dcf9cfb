"""Structs as kernel arguments, for drivers that take none: kernels read them from a buffer.

A parameter ``const plan p`` becomes ``__global const plan *p_at``, and the body begins with ``const plan p = *p_at``.
"""

import re
from collections.abc import Callable
from threading import Lock
from typing import Any

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation.kernel_text import COMMENT, KERNEL_HEAD, brackets

_QUALIFIER = re.compile(r"\b(?:const|volatile|private|__private)\b")
_NUMBER = re.compile(
    r"(?:bool|half|float|double|size_t|ptrdiff_t|intptr_t|uintptr_t"
    r"|(?:(?:un)?signed\s+)?(?:char|short|int|long)|unsigned|signed|u(?:char|short|int|long)"
    r"|(?:u?(?:char|short|int|long)|half|float|double)(?:2|3|4|8|16))"
)
_MOST = 1024
"""Buffers that are kept: calls with the same extents pass the same structs."""


def by_reference(text: str) -> tuple[str, dict[str, frozenset[int]]]:
    """Return a program whose kernels read structs from buffers, and which of their arguments these are.

    `text`: OpenCL C. A parameter that is neither a pointer nor of a built-in numeric type counts as a struct.
    """
    pieces, end, places = [], 0, {}
    for head in KERNEL_HEAD.finditer(text):
        pairs = brackets(text, head.end())
        parameters, body = next(pairs, None), next(pairs, None)
        if parameters is None or body is None or text[parameters[1] : body[0]].strip():
            continue  # a declaration
        declared, copies, found = _changed(text[parameters[0] + 1 : parameters[1] - 1])
        if not found:
            continue
        places[head[1]] = frozenset(found)
        pieces += [text[end : parameters[0]], f"({declared})", text[parameters[1] : body[0]], "{\n", *copies]
        end = body[0] + 1
    return "".join((*pieces, text[end:])), places


def _changed(parameters: str) -> tuple[str, list[str], list[int]]:
    """Return parameters with pointers for structs, the statements that read them, and their places."""
    plain = re.sub(COMMENT, " ", parameters, flags=re.DOTALL)
    declared, copies, places = [], [], []
    for index, part in enumerate(plain.split(",")):
        match = re.fullmatch(r"\s*(.*?)\s*(\w+)\s*", part, re.DOTALL)
        if match is None or "*" in part or _NUMBER.fullmatch(_QUALIFIER.sub("", match[1]).strip()):
            declared.append(part.strip())
            continue
        kind, name = match[1], match[2]
        places.append(index)
        declared.append(f"__global const {_QUALIFIER.sub('', kind).strip()} *{name}_at_")
        copies.append(f"    {kind} {name} = *{name}_at_;\n")
    return ", ".join(declared), copies, places


class StructBuffers:
    """Buffers with the structs that kernels read; equal structs share one."""

    def __init__(self, context: "cl.Context") -> None:
        self._context = context
        self._known: dict[bytes, cl.Buffer] = {}
        self._lock = Lock()

    def of(self, value: Any) -> "cl.Buffer":
        """Return a buffer with the bytes of a value."""
        data = value if isinstance(value, bytes) else value.tobytes()
        with self._lock:
            found = self._known.pop(data, None) or self._made(data)
            self._known[data] = found  # the latest comes last
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return found

    def _made(self, data: bytes) -> "cl.Buffer":
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self._context, flags, hostbuf=data)


def setter(
    handle: "cl.Kernel", set_bytes: Callable[[int, Any], None], places: frozenset[int], buffers: StructBuffers
) -> Callable[[int, Any], None]:
    """Return the setter of by-value arguments, for a kernel that reads structs from buffers.

    `handle`: the kernel; `set_bytes`: sets the other arguments; `buffers`: buffers that hold structs. The kernel does
    not keep a buffer that was set: the result does, until it sets another one. What is enqueued keeps its arguments.
    """
    kept: dict[int, cl.Buffer] = {}

    def set_value(index: int, value: Any) -> None:
        if index in places:
            kept[index] = buffers.of(value)
            handle.set_arg(index, kept[index])
        else:
            set_bytes(index, value)

    return set_value
