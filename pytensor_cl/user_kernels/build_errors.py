"""Errors of the build of a user's kernel: the driver's messages at the lines that the user wrote.

A program is made of parts. Each part that the user wrote stands behind a ``#line`` directive with a title of its own,
which the messages of drivers repeat: so each message is found again in the user's text. NVIDIA's driver counts the
lines of the whole program instead, which `located` makes lines of parts.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pytensor_cl.errors import CompilationError
from pytensor_cl.user_kernels.c_text import tokens

# Places in the messages of drivers. PoCL "error: <file>:2:9: text"; Intel, NVIDIA, Mesa and Apple
# "<file>:2:9: error: text"; AMD's old compiler '"<file>", line 2: error: text'.
_KIND = r"(?P<{}>fatal error|error|warning|note)"
_DIAGNOSTIC = re.compile(
    rf"^[ \t]*(?:{_KIND.format('before')}: )?"
    r"(?:\"(?P<quoted>[^\"\n]+)\", line (?P<row>\d+)"
    r"|(?P<file>(?:[A-Za-z]:\\)?[^:\n]*):(?P<line>\d+)(?::(?P<column>\d+))?):"
    rf"[ \t]*(?:{_KIND.format('after')}:[ \t]*)?(?P<text>.*)$",
    re.MULTILINE,
)
_PLACE_IN_MACRO = re.compile(r"^(?:\d+ )?<Spelling=[^>]*>: *")
"""The line that clang writes before a message about a name that a header of PoCL defines as a macro."""
_LANES = re.compile(r"\b(u?(?:char|short|int|long)|half|float|double)\d+\b|\s*\(vector of \d+ '\w+' values\)")
_LINE_DIRECTIVE = re.compile(r'#line 1 "(?P<title>[^"]*)"')
_PLACE_IN_PROGRAM = re.compile(r"^(?P<before>[ \t]*)<(?:kernel|program source)>:(?P<line>\d+)(?=:)", re.MULTILINE)
"""A place by the number of a line of the whole program, as NVIDIA's and Apple's drivers call it."""
_BARE = re.compile(r"^[ \t]*error: (?P<text>.*)$", re.MULTILINE)
_AROUND = 2
"""Lines that are shown before and after one that a message names."""
_MOST = 6
"""Messages that are shown: the first errors cause the others."""
_SHORT = 40
"""Lines of a text that is shown whole where no message names a line of it."""


class SourcePart(NamedTuple):
    """A part of a program that the user wrote.

    `title`: what compilers call it in messages, unique in the program, without quotes, colons and backslashes; `text`:
    as the user wrote it; `place`: how messages of this package name it, such as ``"in its operation"``; `compiled`: the
    text that the compiler got, if words of it were replaced.
    """

    title: str
    text: str
    place: str = ""
    compiled: str = ""

    def column(self, line: int, column: int) -> int:
        """Return the column of the user's text for one of the compiled text; both count from 1."""
        compiled = self.compiled.splitlines()[line - 1 : line]
        if not compiled:
            return column
        at, own = 1, 1
        for new, old in zip(tokens(compiled[0]), tokens(self.text.splitlines()[line - 1]), strict=False):
            if at + len(new.text) > column:
                return own + min(column - at, len(old.text) - 1)
            at, own = at + len(new.text), own + len(old.text)
        return own

    @property
    def marked(self) -> str:
        """The text behind its ``#line`` directive."""
        return f"{line_directive(self.title)}\n{self.text}"


def line_directive(title: str) -> str:
    """Return the line before a part of a program. Text that the user did not write has a title of its own, too."""
    return f'#line 1 "{title}"'


def located(log: str, source: str) -> str:
    """Return a build log with a part and a line of it in place of each line of the program that stands in a part.

    Drivers that follow ``#line`` directives name only lines before the first one so, and these stay.
    """
    places: list[tuple[str, int]] = [("", 0)]  # of each line of the program; the first one has number 1
    for line in source.split("\n"):
        directive = _LINE_DIRECTIVE.fullmatch(line.rstrip())
        title, number = places[-1]
        places.append((directive["title"], 0) if directive else (title, number + 1))

    def place(match: re.Match[str]) -> str:
        line = int(match["line"])
        title, number = places[min(line, len(places) - 1)]
        past = max(line - len(places) + 1, 0)  # a message about the end of the text may name the line after it
        return f"{match['before']}{title}:{max(number + past, 1)}" if title else match[0]

    return _PLACE_IN_PROGRAM.sub(place, log)


class Diagnostic(NamedTuple):
    """A message of a compiler; `file`: title of the part, or name of a header; `column`: from 1, 0 if unknown."""

    file: str
    line: int
    column: int
    kind: str
    text: str


def diagnostics(log: str) -> list[Diagnostic]:
    """Return the errors in a build log, each once; the warnings if there is no error."""
    found: dict[Diagnostic, None] = {}
    for match in _DIAGNOSTIC.finditer(log):
        kind = match["before"] or match["after"] or ""
        if kind and kind != "note":
            file = (match["quoted"] or match["file"] or "").strip()
            place = int(match["row"] or match["line"]), int(match["column"] or 0)
            text = _PLACE_IN_MACRO.sub("", match["text"].strip()).replace("'_cl_", "'")
            found[Diagnostic(file, *place, kind, text)] = None
    errors = [d for d in found if d.kind.endswith("error")]
    # The same text is compiled for numbers and for vectors: a message about it is shown once.
    once: dict[Diagnostic, Diagnostic] = {}
    for d in errors or found:
        once.setdefault(d._replace(text=_LANES.sub(r"\1", d.text), column=0), d)
    return list(once.values())


def _numbered(lines: Sequence[str], messages: dict[int, list[Diagnostic]]) -> Iterator[str]:
    """Yield the named lines and those around them, each message below its line."""
    shown = sorted({i for n in messages for i in range(n - _AROUND, n + _AROUND + 1) if 1 <= i <= len(lines)})
    width, previous = len(str(max(shown, default=1))) + 2, None
    for i in shown:
        if previous is not None and i > previous + 1:
            yield f"  {'...':>{width}}"
        line, previous = lines[i - 1], i
        yield f"{'>' if i in messages else ' '} {i:{width}d} | {line}".rstrip()
        for message in messages.get(i, ()):
            blank = re.sub(r"[^\t]", " ", line[: max(message.column - 1, 0)])
            yield f"  {'':>{width}} | {blank}{'^ ' if message.column else ''}{message.kind}: {message.text}"


def _part_lines(part: SourcePart, found: Iterable[Diagnostic]) -> list[str]:
    """Return a part's lines with their messages; none if no message names a line of the part."""
    lines = part.text.splitlines()
    messages: dict[int, list[Diagnostic]] = {}
    for diagnostic in found:
        if diagnostic.file == part.title and lines:
            # A message about the end of the text may name the line after it.
            line = min(max(diagnostic.line, 1), len(lines))
            column = diagnostic.column and part.column(line, diagnostic.column)
            messages.setdefault(line, []).append(diagnostic._replace(column=column))
    return list(_numbered(lines, messages))


def _elsewhere(found: Iterable[Diagnostic], parts: Sequence[SourcePart]) -> list[str]:
    """Return the messages about headers, and about text that is not the user's."""
    titles = {part.title for part in parts}
    return [f"{d.kind}: {d.text} ({d.file}:{d.line})" for d in found if d.file not in titles]


def _without_lines(log: str, parts: Sequence[SourcePart]) -> list[str]:
    """Return what is shown where the log names no line."""
    bare = [f"error: {match['text']}" for match in _BARE.finditer(log)]
    shown = bare[:_MOST] or log.strip().splitlines()
    for part in parts:
        lines = part.text.splitlines()
        if len(lines) <= _SHORT:
            shown += [f"  {i:4d} | {line}".rstrip() for i, line in enumerate(lines, 1)]
    return shown


def build_error(
    log: str, source: str, kernel: str, parts: Sequence[SourcePart], has_fp64: bool = True
) -> CompilationError:
    """Return the error of a user's kernel that the driver did not build.

    Parameters
    ----------
    log
        The driver's build log.
    source
        The whole program.
    kernel
        The name of the kernel in the message, such as ``"kernel 'sqdiff' with T = float32"``.
    parts
        The parts that the user wrote, in their order.
    has_fp64
        Whether the device has double precision.
    """
    found = diagnostics(located(log, source))[:_MOST]
    blocks = [(part.place, lines) for part in parts if (lines := _part_lines(part, found))]
    message = [f"{kernel} could not be built{f', {blocks[0][0]}' if blocks and blocks[0][0] else ''}:"]
    for number, (place, lines) in enumerate(blocks):
        message += ([f"{place}:"] if number and place else []) + lines
    message += _elsewhere(found, parts) if found else _without_lines(log, parts)
    text = "\n".join(part.text for part in parts)
    message += [f"hint: {hint}" for hint in hints(text, [d.text for d in found] or [log], has_fp64)]
    message.append("The whole source is this error's attribute `.source`, the driver's messages are `.log`.")
    return CompilationError(log, source, "\n".join(message))


# --- hints ---

_CUDA = (
    (r"__global__", "__kernel"),
    (r"__device__|__host__|__forceinline__", "nothing: functions need no qualifier"),
    (r"__shared__", "__local"),
    (r"__syncthreads\b", "barrier(CLK_LOCAL_MEM_FENCE)"),
    (r"threadIdx\.x", "get_local_id(0)"),
    (r"threadIdx", "get_local_id(d)"),
    (r"blockIdx\.x", "get_group_id(0)"),
    (r"blockIdx", "get_group_id(d)"),
    (r"blockDim\.x", "get_local_size(0)"),
    (r"blockDim", "get_local_size(d)"),
    (r"gridDim\.x", "get_num_groups(0)"),
    (r"gridDim", "get_num_groups(d)"),
    (r"__restrict__", "restrict"),
    (r"warpSize|__shfl\w*|__ballot\w*|__syncwarp", "no equivalent on every device: use local memory"),
    (r"atomic(?:Add|Sub|Min|Max|And|Or|Xor|Inc|Dec|CAS|Exch)\b", "atomic_add, atomic_cmpxchg and so on, for integers"),
    (r"__threadfence\w*", "mem_fence(CLK_GLOBAL_MEM_FENCE)"),
    (r"__ldg", "an ordinary read"),
    (r'extern\s+"C"', "nothing: kernels are found by their names"),
    (r"__(?:exp|log|sin|cos|pow)f\b", "native_exp, native_log and so on"),
    (r"\b(?:exp|log|sin|cos|tan|sqrt|pow|fabs|floor|tanh|rsqrt|fmax|fmin)f\b", "the name without f: exp, sqrt, fabs"),
    (r"\bmake_(?:float|int|double)[234]\b", "(float2)(x, y)"),
)
_NAMES = {
    "int8_t": "char",
    "uint8_t": "uchar",
    "int16_t": "short",
    "uint16_t": "ushort",
    "int32_t": "int",
    "uint32_t": "uint",
    "int64_t": "long",
    "uint64_t": "ulong",
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "long",
    "float16": "half",
    "complex64": "float2",
}
_PYTHON = (
    (r"\*\*", "pow(x, y), or x * x"),
    (r"\bnp\s*\.|\bnumpy\s*\.|\bmath\s*\.", "the name alone: sin(x)"),
    (r"\band\b", "&&"),
    (r"\bor\b", "||"),
    (r"\bnot\b", "!"),
    (r"\w[ \t]+if\b[^;{}]*\belse\b", "condition ? x : y"),
    (r"\binf\b", "INFINITY"),
    (r"\bnan\b", "NAN"),
    (r"\bTrue\b", "true"),
    (r"\bFalse\b", "false"),
)
_CPP = re.compile(r"\btemplate\s*<|\bstd::|\bnullptr\b|\bstatic_cast\s*<|\bauto\s+\w+\s*=|\bconstexpr\b|\bnamespace\b")
_TYPE_NAME = re.compile(r"(?:unknown type name|undeclared identifier) '(\w+)'")
_BY_MESSAGE = (
    (
        r"call to 'abs' is ambiguous",
        "abs is for integers: fabs is for floating-point numbers",
    ),
    (
        r"invalid operands to binary expression \('[^']*(?:float|double)\d*' and|and '[^']*(?:float|double)\d*'\)",
        "% ^ & | << >> are for integers; for others there are fmod(x, y) and pow(x, y), and && and || for conditions",
    ),
    (
        r"ambiguous",
        "give all arguments of the function one floating type: sqrt(2.0f), not sqrt(2)",
    ),
    (
        r"(?:address space|pointer arguments|must point to|kernel parameter cannot be declared as a pointer)",
        "a pointer parameter of a kernel needs its address space: __global, __constant or __local",
    ),
    (
        r"(?:size_t|ptrdiff_t|intptr_t)' .*cannot be used as the type of a kernel parameter",
        "the size of size_t depends on the device: declare the parameter as ulong or long",
    ),
    (
        r"bool' .*cannot be used as the type of a kernel parameter",
        "OpenCL C gives bool no size: declare the parameter as uchar or int, a pointer to bools as uchar *",
    ),
    (r"kernel must have void return type", "a kernel returns nothing: write __kernel void"),
)


def hints(code: str, messages: Sequence[str], has_fp64: bool = True) -> list[str]:
    """Return what may help with errors: words of CUDA and C++, types of other languages, slips with types.

    Parameters
    ----------
    code
        The text that the user wrote.
    messages
        The driver's messages.
    has_fp64
        Whether the device has double precision.
    """
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.DOTALL)
    result = [*_of_other_language(plain, _CUDA, "CUDA"), *_of_other_language(plain, _PYTHON, "Python")]
    if _CPP.search(plain):
        result.append("OpenCL C is a C: it has no templates, namespaces or casts of C++")
    text = "\n".join(messages)
    names = dict.fromkeys(name for name in _TYPE_NAME.findall(text) if name in _NAMES)
    result += [f"the type {name} is called {_NAMES[name]} in OpenCL C" for name in names]
    result += [hint for pattern, hint in _BY_MESSAGE if re.search(pattern, text)]
    if not has_fp64 and re.search(r"\bdouble\d*\b", plain):
        result.append("the device has no double precision: use float")
    return result


def _of_other_language(code: str, known: Iterable[tuple[str, str]], language: str) -> Iterator[str]:
    """Yield what OpenCL C has for the words of another language that are in a text."""
    found: dict[str, str] = {}
    for word, instead in known:
        match = re.search(word, code)
        if match and not any(match[0] in earlier for earlier in found):
            found[match[0].strip()] = instead
    if found:
        words = "; ".join(f"{word}: {instead}" for word, instead in found.items())
        yield f"there are words of {language} in it. OpenCL C has for {words}"
