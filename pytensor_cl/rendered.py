"""Rendered templates on disk: to read one takes 50 us, while to import Mako alone takes a tenth of a second."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

__all__ = ["kept", "recall", "rendered_folder", "user_folder"]

_PLAIN = (str, int, float, bool, type(None), np.dtype)
# What templates import:
_CODE = ("dtypes.py", "routines/minimax.py", "routines/register_tables.py", "routines/series.py")


def user_folder() -> Path:
    """Return where the programs of this user keep what they can make again."""
    if sys.platform == "darwin" and "XDG_CACHE_HOME" not in os.environ:
        return Path.home() / "Library" / "Caches"
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a name and a home, as containers may have
        return Path(os.devnull) / "cache"  # where nothing can be kept


def rendered_folder() -> Path:
    """Return the folder of rendered templates; each file is named by the digest of all that its text comes from."""
    return user_folder() / "pytensor_cl" / "rendered"


@cache
def _stamp(directory: Path) -> bytes:
    """Digest of all templates and the code that they use: which of them a template includes only Mako can tell."""
    digest = hashlib.blake2s()
    for file in (*sorted(directory.rglob("*.mako")), *(Path(__file__).parent / code for code in _CODE)):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode() + file.read_bytes())
    return digest.digest()


def _is_plain(value: object) -> bool:
    """Whether ``repr`` tells all there is to the value."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(x) for item in value.items() for x in item)
    return type(value) in _PLAIN or isinstance(value, np.dtype)


def recall(directory: Path, template: str, args: dict[str, object], render: Callable[[], str]) -> str:
    """Return the text of a template, from disk if it is there.

    Parameters
    ----------
    directory
        Where the templates are.
    template, args
        Name of the template, and its arguments.
    render
        Makes the text.
    """
    if not all(map(_is_plain, args.values())):
        return render()
    return kept(_stamp(directory) + repr((template, sorted(args.items()))).encode(), render)


def kept(key: bytes, make: Callable[[], str]) -> str:
    """Return a text, from disk if it is there.

    Parameters
    ----------
    key
        All that the text comes from.
    make
        Makes the text.
    """
    path = rendered_folder() / hashlib.blake2s(key, digest_size=16).hexdigest()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = make()
        _keep(path, text)
        return text


def _keep(path: Path, text: str) -> None:
    """Write a file whole or not at all; where nothing can be written, that is all right."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        pass
