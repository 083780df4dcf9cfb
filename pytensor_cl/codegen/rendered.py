"""Rendered templates on disk: to read one takes 50 us, while to import Mako alone takes a tenth of a second."""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from pytensor_cl.codegen.checked_files import CheckedFolder
from pytensor_cl.codegen.folders import default_folder
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.temporary import usable_folder

_PLAIN = (str, int, float, bool, type(None), np.dtype, Struct)
_NAME = "rendered"
_MODULE = re.compile(r"(pytensor_cl(?:\.\w+)*)(?:[ \t]+import[ \t]+(?:\(([^)]*)\)|([^#\n]*)))?")


def rendered_folder() -> Path:
    """Return the folder of rendered templates; each file is named by the digest of all that its text comes from."""
    return default_folder() / _NAME


@cache
def _texts(folder: Path) -> CheckedFolder:
    return CheckedFolder(folder, 64 << 20)


def _imported(text: str) -> Iterator[str]:
    """Yield the names of the package's modules that a template or a module imports, and names that are no modules."""
    for module, inside, names in _MODULE.findall(text):
        yield module
        yield from (f"{module}.{name.split()[0]}" for name in (inside or names).split(",") if name.strip())


def _module_files(texts: Iterable[str]) -> dict[str, Path]:
    """Return the files of the package's modules that texts import, and that those import in turn, by module name."""
    root, found, seen = Path(__file__).parents[2], {}, {"pytensor_cl"}
    wanted = {name for text in texts for name in _imported(text)} - seen
    while wanted:
        name = wanted.pop()
        seen.add(name)
        path = root / name.replace(".", "/")
        file = next((f for f in (path.with_suffix(".py"), path / "__init__.py") if f.is_file()), None)
        if file is not None:
            found[name] = file
            wanted.update(set(_imported(file.read_text(encoding="utf-8"))) - seen)
    return found


def code_digest(*modules: str) -> bytes:
    """Return a digest of modules of the package and of all that they import from it."""
    files = _module_files(modules)
    return _digest_of({name: file.read_bytes() for name, file in files.items()})


def _digest_of(texts: Mapping[str, bytes]) -> bytes:
    digest = hashlib.blake2s(repr(sys.version_info[:2]).encode())
    for name, text in sorted(texts.items()):
        digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.digest()


@cache
def _stamp(directory: Path) -> bytes:
    """Digest of all templates and the modules they import: which of them a template includes is known to Mako only."""
    skip = len(str(directory))
    texts = {str(file)[skip:]: file.read_bytes() for file in directory.rglob("*.mako")}
    modules = _module_files(text.decode() for text in texts.values())
    texts.update((name, file.read_bytes()) for name, file in modules.items())
    return _digest_of(texts)


def _is_plain(value: object) -> bool:
    """Return whether ``repr`` determines the value."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(x) for item in value.items() for x in item)
    return type(value) in _PLAIN or isinstance(value, np.dtype)


def load_or_render(directory: Path, template: str, args: dict[str, object], render: Callable[[], str]) -> str:
    """Return the text of a template, from disk if it is there.

    `template`, `args`: name of the template, and its arguments; `render`: makes the text.
    """
    if not all(map(_is_plain, args.values())):
        return render()
    return get_or_render(_stamp(directory) + repr((template, sorted(args.items()))).encode(), render)


def get_or_render(key: bytes, make: Callable[[], str]) -> str:
    """Return a text, from disk if it is there and undamaged.

    `key`: all that the text comes from; `make`: makes the text.
    """
    folder = _texts(usable_folder(default_folder()) / _NAME)
    content = folder.read(key)
    if content is None:
        text = make()
        folder.write(key, text.encode())
        return text
    return content.decode()
