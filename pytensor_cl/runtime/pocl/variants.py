"""Build variants of PoCL: outlined kernel bodies, and declarations of built-ins in place of the compiler's header."""

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pytensor_cl.codegen.rendered import code_digest, get_or_render
from pytensor_cl.codegen.template import render
from pytensor_cl.runtime.compilation.variants import BuildVariant
from pytensor_cl.runtime.pocl.builtin_headers import SKIP_HEADER, declare, header
from pytensor_cl.runtime.pocl.outlining import access_modes_of, outline

_INLINED = ("ceil", "copysign", "fabs", "floor", "fma", "fmax", "fmin", "max", "min", "rint", "select", "trunc")
_CALL = re.compile(rf"\b({'|'.join(_INLINED)})\(")


@cache
def _stamp(file: Path) -> bytes:
    """Return a digest of the header's version and of the code that generates the texts."""
    status, digest = file.stat(), hashlib.blake2s()
    digest.update(f"{file} {status.st_size} {status.st_mtime_ns}".encode())
    digest.update(code_digest(outline.__module__, declare.__module__))
    return digest.digest()


def _with_own_builtins(text: str) -> str:
    """Return a program that defines the shortest of the built-in functions that it calls."""
    used = sorted(set(_CALL.findall(text)))
    return f"{render('common/inlined', used=used)}\n{text}" if used else text


class PoclVariants:
    """Build variants for PoCL: kernel bodies are functions and, for the wheel's compiler, built-ins are declared.

    `version`: version of the driver; `defines_builtins`: whether programs define the shortest built-in functions
    themselves; `has_entries`: whether kernels get entry points, for `KernelBatch`; `access_modes`: name of a kernel
    with an entry point to its arguments' access modes (`outlining.access_modes_of`).
    """

    def __init__(self, version: str, defines_builtins: bool = False, has_entries: bool = False) -> None:
        self._header = header(version)
        self._defines_builtins, self._has_entries = defines_builtins, has_entries
        self.access_modes: dict[str, str] = {}

    def __call__(self, text: str) -> Iterator[BuildVariant]:
        """Yield the variants of a program's text: with declarations first, then with the compiler's header."""
        if self._header is not None:
            yield self._noted(self._declared(text, self._header))
        yield self._noted(BuildVariant(outline(text, self._has_entries)))

    def _declared(self, text: str, file: Path) -> BuildVariant:
        extended = _with_own_builtins(text) if self._defines_builtins else text
        made: list[str] = []

        def make() -> str:
            made.append(declare(outline(extended, self._has_entries), file))
            return made[0]

        key = _stamp(file) + bytes([self._has_entries]) + extended.encode()
        return BuildVariant(get_or_render(key, make), (SKIP_HEADER,), bool(made))

    def _noted(self, variant: BuildVariant) -> BuildVariant:
        self.access_modes.update(access_modes_of(variant.text))
        return variant
