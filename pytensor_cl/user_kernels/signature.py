"""The parameters of a raw kernel: from the driver, which has read the program, else from the text."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pytensor_cl.codegen.rendered import get_or_render
from pytensor_cl.runtime import opencl as cl

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"\b(?:__)?kernel\b(?:(?!\bvoid\b)[^;{}])*\bvoid\s+(\w+)\s*(?=\()")
_WORDS = re.compile(
    r"\b(?:__)?(?:global|constant|local|private)\b|\b(?:const|restrict|__restrict|volatile|struct|union|enum)\b"
)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)", re.DOTALL)
_PARAMETER = re.compile(r"\s*(.*?)(\*?)\s*(?:(?:__)?restrict\b|const\b|\s)*\b(\w+)\s*(\[\s*\w*\s*\])?\s*", re.DOTALL)
_SPACE = re.compile(r"\b(?:__)?(global|constant|local)\b")
_TYPEDEF = re.compile(r"\btypedef\s+([\w\s]+?)\s+(\w+)\s*;")
_SPELLINGS = {
    "unsigned": "uint",
    "signed": "int",
    "char": "char",
    "signed char": "char",
    "short int": "short",
    "signed int": "int",
    "long int": "long",
    "signed short": "short",
    "signed long": "long",
    "unsigned char": "uchar",
    "unsigned short": "ushort",
    "unsigned int": "uint",
    "unsigned long": "ulong",
    "cl_mem_fence_flags": "uint",
}


class Parameter(NamedTuple):
    """A parameter of a kernel.

    `type`: OpenCL C type of the value, or of what the pointer points to, with typedefs of the text resolved; empty if
    it is unknown; `space`: address space of a pointer, "" for a value, None if it is unknown; `is_const`: whether the
    kernel only reads through the pointer.
    """

    name: str
    type: str
    space: str | None
    is_const: bool

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer."""
        return bool(self.space)

    @property
    def declaration(self) -> str:
        """The declaration in OpenCL C."""
        if self.space is None:
            return self.name
        qualifiers = [self.space] * bool(self.space) + ["const"] * (self.is_const and self.space == "__global")
        return " ".join((*qualifiers, self.type, f"*{self.name}" if self.space else self.name))


def kernels_in(code: str) -> list[str]:
    """Return the names of the kernels that a text defines, as far as they stand there without macros."""
    return [match[1] for match in _KERNEL.finditer(_COMMENT.sub(" ", code))]


def read_parameters(
    kernel: "cl.Kernel",
    name: str,
    code: str,
    options: Sequence[str],
    key: bytes,
    compile_again: Callable[[], "cl.Kernel"],
) -> list[Parameter]:
    """Return the parameters of a kernel.

    Drivers know them of programs that they have compiled, not of compiled programs that were kept on disk: so they are
    kept, too. `code`: OpenCL C, "" if there is none; `key`: identifies program and device; `compile_again`: returns the
    kernel of a program that is compiled now.
    """
    described = _from_driver(kernel)
    if described is not None:
        get_or_render(key, lambda: json.dumps(described))
    elif code:
        kept = get_or_render(key, lambda: json.dumps(_from_driver(compile_again()) or _from_text(code, name)))
        found = json.loads(kept)
        described = [tuple(p) for p in found] if len(found) == kernel.num_args else None
    if described is None:
        return [Parameter(f"argument {i}", "", None, False) for i in range(kernel.num_args)]
    aliases = dict(_aliases(code, options))
    return [Parameter(n, resolve(kind, aliases), space, is_const) for n, kind, space, is_const in described]


def parsed_parameters(code: str, name: str, options: Sequence[str]) -> list[Parameter]:
    """Return the parameters of a kernel from its text; an empty list if they cannot be read."""
    aliases = dict(_aliases(code, options))
    return [
        Parameter(n, resolve(kind, aliases), space, is_const) for n, kind, space, is_const in _from_text(code, name)
    ]


_Described = list[tuple[str, str, str, bool]]


def _from_driver(kernel: "cl.Kernel") -> _Described | None:
    """Return name, type, address space and constness of each parameter as the driver has them; None without them."""
    info, place, qualifier = cl.kernel_arg_info, cl.kernel_arg_address_qualifier, cl.kernel_arg_type_qualifier
    spaces = {place.GLOBAL: "__global", place.CONSTANT: "__constant", place.LOCAL: "__local"}
    found = []
    try:
        for i in range(kernel.num_args):
            kind = kernel.get_arg_info(i, info.TYPE_NAME).strip("\0 ")
            space = spaces.get(kernel.get_arg_info(i, info.ADDRESS_QUALIFIER), "")
            is_const = bool(kernel.get_arg_info(i, info.TYPE_QUALIFIER) & qualifier.CONST)
            name = kernel.get_arg_info(i, info.NAME).strip("\0 ")
            pointee = kind[:-1].strip() if space and kind.endswith("*") else kind
            found.append((name, pointee, space, bool(space) and (is_const or space == "__constant")))
    except cl.Error:
        return None
    return found if all(name and kind for name, kind, _, _ in found) else None


def _from_text(code: str, name: str) -> _Described:
    """Return the same from the text; an empty list if the kernel is not found in it."""
    plain = _COMMENT.sub(" ", code)
    head = next((match for match in _KERNEL.finditer(plain) if match[1] == name), None)
    if head is None:
        return []
    found = []
    for part in _split(plain, head.end()):
        match = _PARAMETER.fullmatch(_ATTRIBUTE.sub(" ", part))
        if match is None:
            return []
        declared, star, own = match[1], match[2] or match[4], match[3]
        place = _SPACE.search(declared) if star else None
        space = f"__{place[1]}" if place else ""
        kind = " ".join(_WORDS.sub(" ", declared).split())
        is_const = bool(space) and (space == "__constant" or re.search(r"\bconst\b", declared) is not None)
        found.append((own, kind, space, is_const))
    return found


def _split(text: str, start: int) -> Iterator[str]:
    """Yield the parts between the commas of the brackets that open at a position."""
    depth, begin = 0, start + 1
    for i in range(start, len(text)):
        if text[i] in "([":
            depth += 1
        elif text[i] in ")]":
            depth -= 1
        if (text[i] == "," and depth == 1) or not depth:
            if text[begin:i].strip() not in ("", "void"):
                yield text[begin:i]
            begin = i + 1
        if not depth:
            return


def _aliases(code: str, options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names of types that typedefs and ``-D`` options give, each with its type."""
    for option in options:
        match = re.fullmatch(r"-D\s*(\w+)=([A-Za-z_][\w\s]*)", option)
        if match:
            yield match[1], match[2]
    for match in _TYPEDEF.finditer(_COMMENT.sub(" ", code)):
        yield match[2], match[1]


def resolve(kind: str, aliases: dict[str, str]) -> str:
    """Return a type by its usual name, typedefs resolved: ``uint`` for ``unsigned int``."""
    for _ in range(len(aliases) + 1):
        kind = " ".join(_WORDS.sub(" ", kind).split())
        kind = _SPELLINGS.get(kind, kind)
        if kind not in aliases or aliases[kind] == kind:
            break
        kind = aliases[kind]
    return kind
