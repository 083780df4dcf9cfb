"""Merge kernels that do not depend on each other into one kernel, whose work-groups each run one of them.

Each kernel becomes a function, to which the numbers of its work-groups are passed, and its local memory a member of a
union. So small kernels take one launch together, and run side by side.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.integers import round_up
from pytensor_cl.runtime.compilation.kernel_text import KERNEL_HEAD, Parameter, brackets, parameters_in
from pytensor_cl.runtime.launch_capture import Launch

__all__ = ["MOST_PARTS", "Part", "access_modes", "merged_source", "ndrange", "part_of"]

_KERNEL_ATTRIBUTE = re.compile(r"__attribute__\(\(\s*(?:reqd_work_group_size|vec_type_hint)\([^()]*\)\s*\)\)")
_NUMBER = re.compile(r"\bget_(group_id|num_groups|global_id|global_size)\(([0-2])\)")
_OTHER_NUMBER = re.compile(r"\bget_(?:group_id|num_groups|global_\w+|work_dim|enqueued_\w+)\b")
_LOCAL = re.compile(r"__local\s+(\w+)\s+([^;*()]+?)\s*(__attribute__\(\(aligned\(\d+\)\)\))?\s*;")
_DECLARATOR = re.compile(r"(\w+)((?:\[[^\[\]]*\])*)")
# The comment about registers is read by runtime/compilation/variants.py.
_WITHOUT_FUNCTION = re.compile(r"\b__constant\b|\bat most \d+ registers\b")
_OTHER_LOCAL = re.compile(r"\b__local\b[^;*()]*;")
_ALIGNMENT = 8  # bytes of an argument are rounded up to it
MOST_PARTS = 32
"""Launches in one: the compiler has the text of each kernel once for each launch."""


class _Function(NamedTuple):
    """A kernel as a function: what precedes its call, its parameters, and whether it has local memory."""

    texts: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    has_local: bool


class Part(NamedTuple):
    """A launch that may be a part of a merged one.

    `function`: name of the kernel; `source`: the text that has it; `local_size`: the work-group; `groups`: work-groups
    along both dimensions; `modes`: see `BoundKernel.access_modes`; `nbytes`: size of the arguments.
    """

    function: str
    source: KernelSource
    local_size: tuple[int, int, int]
    groups: tuple[int, int]
    modes: str
    nbytes: int

    @property
    def grid(self) -> bytes:
        """The last argument, a ``uint2``."""
        return np.array(self.groups, "uint32").tobytes()


def part_of(launch: Launch, source: KernelSource, function: str) -> Part | None:
    """Return a launch as a part of a merged one; None if its kernel cannot be a function.

    `source`: the text that has the kernel; `function`: its name.
    """
    found = _functions(source).get(function)
    if found is None or launch.local_size is None or len(found.parameters) != len(launch.arguments):
        return None
    local = tuple(map(int, (*launch.local_size, 1, 1)))[:3]
    sizes = tuple(map(int, (*launch.global_size, 1, 1)))[:3]
    groups = [n // k for n, k in zip(sizes, local, strict=True)]
    if groups[2] != 1 or any(n % k for n, k in zip(sizes, local, strict=True)):
        return None
    nbytes = sum(round_up(_size(argument), _ALIGNMENT) for argument in launch.arguments)
    modes = "".join(parameter.kind for parameter in found.parameters)
    return Part(function, source, local, (groups[0], groups[1]), modes, nbytes + 8)  # type: ignore[arg-type]


def access_modes(source: KernelSource, function: str) -> str | None:
    """Return the access modes of a kernel's arguments; None if the text has no such kernel."""
    text = source.source
    found = (parameters_in(text[slice(*k.parameters)]) for k in _kernels(text) if k.name == function)
    parameters = next(found, None)
    return None if parameters is None else "".join(parameter.kind for parameter in parameters)


def _size(argument: Any) -> int:
    return len(argument) if isinstance(argument, bytes) else argument.nbytes if isinstance(argument, np.generic) else 8


@cache
def _functions(source: KernelSource) -> dict[str, _Function]:
    """Return the kernels of a text as functions; none if a function outside the kernels asks for a work-group."""
    kernels = list(_kernels(source.source))
    outside = _outside(source.source, kernels)
    if any(_OTHER_NUMBER.search(text) for text in (outside, *source.preambles)) or source.options is not None:
        return {}
    found = {}
    for kernel in kernels:
        made = _function(kernel, source.source)
        if made is not None:
            function, parameters, has_local = made
            found[kernel.name] = _Function((*source.preambles, outside, function), parameters, has_local)
    return found


class _Kernel(NamedTuple):
    """The place of a kernel in a text."""

    name: str
    begin: int
    parameters: tuple[int, int]
    body: tuple[int, int]


def _kernels(text: str) -> Iterator[_Kernel]:
    """Yield the kernels of a text, in order."""
    for head in KERNEL_HEAD.finditer(text):
        pairs = brackets(text, head.end())
        parameters, body = next(pairs, None), next(pairs, None)
        if parameters is not None and body is not None:
            yield _Kernel(head[1], head.start(), parameters, body)


def _outside(text: str, kernels: Sequence[_Kernel]) -> str:
    """Return what is not in the kernels, without attributes of kernels."""
    ends = [0, *(kernel.body[1] for kernel in kernels)]
    begins = [*(kernel.begin for kernel in kernels), len(text)]
    return _KERNEL_ATTRIBUTE.sub("", "\n".join(text[end:begin] for end, begin in zip(ends, begins, strict=True)))


def _function(kernel: _Kernel, text: str) -> tuple[str, tuple[Parameter, ...], bool] | None:
    """Return the function, its parameters, and whether it has local memory; None if it cannot be one."""
    head, body = text[kernel.begin : kernel.parameters[1]], text[slice(*kernel.body)]
    parameters = tuple(parameters_in(text[slice(*kernel.parameters)]))
    numbered = _NUMBER.sub(_own_number, body)
    if _WITHOUT_FUNCTION.search(text) or "__local" in head or _OTHER_NUMBER.search(numbered):
        return None
    inner, members = _without_local(numbered, kernel.name)
    if _OTHER_LOCAL.search(inner):
        return None
    declared = [text[kernel.parameters[0] + 1 : kernel.parameters[1] - 1], *_NUMBERS]
    struct = ""
    if members:
        struct = f"typedef struct {{\n    {' '.join(members)}\n}} {kernel.name}_local;\n"
        declared.append(f"__local {kernel.name}_local *const part_local")
    function = f"static inline __attribute__((always_inline)) void {kernel.name}_part({', '.join(declared)})\n{inner}\n"
    return struct + function, parameters, bool(members)


_NUMBERS = tuple(f"const size_t part_{what}_{d}" for what in ("group", "groups") for d in range(2))


def _own_number(match: re.Match[str]) -> str:
    """Return what a function has in place of a number of the NDRange."""
    what, dimension = match[1], int(match[2])
    group = f"part_group_{dimension}" if dimension < 2 else "(size_t)0"
    groups = f"part_groups_{dimension}" if dimension < 2 else "(size_t)1"
    if what in ("group_id", "num_groups"):
        return group if what == "group_id" else groups
    size = f"get_local_size({dimension})"
    return f"({group} * {size} + get_local_id({dimension}))" if what == "global_id" else f"({groups} * {size})"


def _without_local(body: str, name: str) -> tuple[str, list[str]]:
    """Return a body whose local memory is that of `part_local`, and the members of that struct."""
    members, names = [], []
    for kind, declarators, alignment in _LOCAL.findall(body):
        for declarator in declarators.split(","):
            found = _DECLARATOR.fullmatch(declarator.strip())
            if found is None:
                return body, []
            names.append(found[1])
            members.append(f"{kind} {found[0]} {alignment};")
    inner = _LOCAL.sub("", body)
    for word in names:
        inner = re.sub(rf"(?<![\w.>]){word}\b", f"(part_local->{word})", inner)
    return inner, members


def merged_source(parts: Sequence[Part]) -> KernelSource:
    """Return the kernel that runs several launches with the same work-group.

    Its arguments are those of the parts, each followed by the part's `grid`.
    """
    functions = [_functions(part.source)[part.function] for part in parts]
    texts = tuple(dict.fromkeys(text for function in functions for text in function.texts))
    kinds = dict.fromkeys(part.function for part, function in zip(parts, functions, strict=True) if function.has_local)
    declared, ends, branches = [], [], []
    for k, (part, function) in enumerate(zip(parts, functions, strict=True)):
        names = [f"a{k}_{i}" for i in range(len(function.parameters))]
        declared += [f"{p.type} {name}" for p, name in zip(function.parameters, names, strict=True)]
        declared.append(f"const uint2 grid_{k}")
        before = f" + end_{k - 1}" if k else ""
        ends.append(f"const uint end_{k} = grid_{k}.x * grid_{k}.y{before};")
        group = f"(group{f' - end_{k - 1}' if k else ''})"
        numbers = (f"{group} % grid_{k}.x", f"{group} / grid_{k}.x", f"grid_{k}.x", f"grid_{k}.y")
        local = (f"&space.of_{part.function}",) if function.has_local else ()
        branches.append(f"if (group < end_{k})\n        {part.function}_part({', '.join((*names, *numbers, *local))});")
    union = " ".join(f"{kind}_local of_{kind};" for kind in kinds)
    space = f"__local union {{ {union} }} space;\n    " if kinds else ""
    body = (
        f"{space}const uint group = get_group_id(0);\n    "
        + "\n    ".join(ends)
        + "\n    "
        + "\n    else ".join(branches)
    )
    size = ", ".join(map(str, parts[0].local_size))
    head = f"__kernel __attribute__((reqd_work_group_size({size})))\nvoid NAME({', '.join(declared)})"
    text = f"{head}\n{{\n    {body}\n}}\n"
    name = f"merged_{hashlib.sha256(''.join((*texts, text)).encode()).hexdigest()[:12]}"
    return KernelSource(name, text.replace("void NAME(", f"void {name}(", 1), texts)


def ndrange(parts: Sequence[Part]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the global and the local size of a merged launch."""
    local = parts[0].local_size
    return (local[0] * sum(prod(part.groups) for part in parts), *local[1:]), local
