"""Outline kernels for PoCL: move their bodies into functions.

PoCL's object code has three copies of each kernel: one for a single work-item and two with loops over a work-group. It
optimises each. A function that a kernel calls is there only once, if it is not inlined and calls no work-item function
such as `get_global_id`.

An outlined kernel does nothing if all its pointers are null, so that it can be compiled without being run.

A kernel can also get an entry point: a function that reads all arguments from memory. The kernel writes its address to
an additional pointer argument, which is null in normal launches. The batch kernel calls entry points
(`kernels/pocl/batch.mako`).
"""

import re
from collections.abc import Sequence

from pytensor_cl.runtime.compilation.kernel_text import Parameter, brackets, parameters_in

# Kernels with work-groups of one work-item. Other kernels may have barriers, which PoCL must see in the kernel itself.
_HEAD = re.compile(
    r"(?:__kernel\s+)?__attribute__\(\(reqd_work_group_size\(1, 1, 1\)[^\n]*\)\)\s+(?:__kernel\s+)?void\s+(\w+)(?=\()"
)
_NUMBER = re.compile(r"\bget_(global_id|global_size)\(([0-2])\)")
# Functions, unlike kernels, need the attribute to use 512-bit registers on CPUs for which LLVM prefers shorter ones.
_ATTRIBUTES = "__attribute__((noinline, min_vector_width(512)))"
_OUTLINED = re.compile(r"^static [^\n]*\bvoid (\w+)_body\(", re.MULTILINE)
_NOT_OUTLINABLE = re.compile(r"\b(__local|__constant|barrier)\b")
_ENTRY = re.compile(r"^// (\w+)_entry: ([rwv]*)$", re.MULTILINE)


def outline(text: str, has_entries: bool = False) -> str:
    """Return a program whose kernels with work-groups of one work-item only call functions with the former bodies.

    `text`: OpenCL C. Kernels that cannot be outlined, or not be parsed, stay as they are; `has_entries`: whether
    kernels get entry points: x86-64 only.
    """
    pieces, end = [], 0
    for head in _HEAD.finditer(text):
        found = brackets(text, head.end())
        parameters, body = next(found, None), next(found, None)
        if parameters is None or body is None or _NOT_OUTLINABLE.search(text[slice(*body)]):
            continue
        made = _split(head, text[slice(*parameters)], text[slice(*body)], has_entries)
        pieces += [text[end : head.start()], made]
        end = body[1]
    return "".join((*pieces, text[end:]))


def outlined_kernels(text: str) -> list[str]:
    """Return the names of the outlined kernels of a program."""
    return _OUTLINED.findall(text)


def access_modes_of(text: str) -> dict[str, str]:
    """Return the access modes of the arguments of all kernels with entry points.

    One letter per argument: ``r`` is a pointer to memory that is only read, ``w`` another pointer, ``v`` a value.
    """
    return dict(_ENTRY.findall(text))


def _split(head: re.Match[str], parameters: str, body: str, has_entry: bool) -> str:
    """Return the text of the function and of the kernel that calls it."""
    numbers = {f"{kind}_{d}": f"get_{kind}({d})" for kind, d in _NUMBER.findall(body)}
    declared = parameters_in(parameters)
    pointers = " || ".join(p.name for p in declared if p.is_pointer)
    taken = ", ".join([parameters[1:-1], *(f"const size_t {number}" for number in numbers)])
    outlined = _NUMBER.sub(r"\1_\2", body)
    call = ", ".join((*(p.name for p in declared), *numbers.values()))
    function = f"static {_ATTRIBUTES} void {head[1]}_body({taken})\n{outlined}\n"
    kernel = (f"if ({pointers}) " if pointers else "") + f"{head[1]}_body({call});"
    if has_entry and "__local" not in parameters and "__constant" not in parameters:
        function += _entry(head[1], declared, list(numbers))
        parameters = f"{parameters[:-1]}, __global ulong *{head[1]}_at)"
        kernel = f"{_REPORT_ADDRESS.replace('NAME', head[1])}\n    {kernel}"
    return f"{function}\n{head[0]}{parameters}\n{{\n    {kernel}\n}}"


# The call, which is never made, keeps the compiler from removing the function. OpenCL C forbids to take its address.
_REPORT_ADDRESS = """if (NAME_at) {
        if (NAME_at[0]) NAME_entry(NAME_at[1], NAME_at[2]);
        ulong address;
        __asm__ volatile("lea NAME_entry(%%rip), %0" : "=r"(address));
        NAME_at[0] = address;
        return;
    }"""


def _entry(name: str, declared: Sequence[Parameter], numbers: Sequence[str]) -> str:
    """Return the entry point: it reads pointers, and offsets of by-value arguments, from memory and calls the body."""
    values = [
        f"({p.type})a[{i}]" if p.is_pointer else f"*(__global {p.type} *)(arguments + a[{i}])"
        for i, p in enumerate(declared)
    ]
    places = [f"n[{3 * ('size' in number) + int(number[-1])}]" for number in numbers]
    return f"""
// {name}_entry: {"".join(p.kind for p in declared)}
static __attribute__((noinline, used)) void {name}_entry(const ulong arguments, const ulong numbers)
{{
    __global const ulong *const a = (__global const ulong *)arguments;
    const size_t *const n = (const size_t *)numbers;
    {name}_body({", ".join((*values, *places))});
}}
"""
