"""Modules: several raw kernels of one text, or of one file."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from pytensor_cl.runtime.registry import get_context
from pytensor_cl.user_kernels.programs import split_options, user_program
from pytensor_cl.user_kernels.raw import RawKernel

_MAGIC = (b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")
"""First bytes of SPIR-V, in both byte orders."""


class RawModule:
    """Several kernels of one program, from a text or a file.

    Parameters
    ----------
    code
        OpenCL C.
    path
        A file in place of `code`: ``.cl`` is OpenCL C, ``.spv`` is SPIR-V, which not every driver takes. It is read
        now.
    options
        Build options, as those of `RawKernel`. A folder of `path` is no folder of headers: name it with ``-I``.

    Raises
    ------
    TypeError
        Neither `code` nor `path` is given, or both are.
    ValueError
        The file is neither OpenCL C nor SPIR-V by its name.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> module = pytensor_cl.RawModule(code=code, options=("-DTILE=16",))
    >>> transpose = module.get_function("transpose")
    """

    def __init__(
        self,
        code: str | None = None,
        *,
        path: str | PathLike[str] | None = None,
        options: str | Sequence[str] = (),
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("RawModule takes code=... or path=..., one of them")
        if code is not None and not isinstance(code, str):
            raise TypeError(f"the code of a module is a text, not {type(code).__name__}: path=... reads files")
        self.code: str | bytes = code if code is not None else _read(Path(path or ""))
        self.options = split_options(options)
        self._title = f"module {Path(path).name!r}" if path is not None else "the code of a RawModule"

    def __repr__(self) -> str:
        return f"<RawModule: {self._title}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.code, self.options, self._title)

    def get_function(self, name: str, *, strided: str | Sequence[str] = ()) -> RawKernel:
        """Return a kernel of the module.

        Parameters
        ----------
        name
            Name of the kernel. A name that the program does not have is an error of the first call, or of `compile`.
        strided
            Names of parameters that take any strides, a parameter of `RawKernel`.
        """
        return RawKernel.of_module(self.code, name, self.options, strided, f"{self._title} with kernel {name!r}")

    def compile(self, device: str | None = None) -> None:
        """Build the program for a device now; None is the default device.

        Raises
        ------
        CompilationError
            The driver rejects it.
        OpenCLError
            It is SPIR-V, which the driver does not take.
        """
        user_program(get_context(device), self.code, self.options, self._title)


def _restore(code: str | bytes, options: tuple[str, ...], title: str) -> RawModule:
    """Unpickle a module, whose file may be gone."""
    module = RawModule.__new__(RawModule)
    module.code, module.options, module._title = code, options, title
    return module


def _read(path: Path) -> str | bytes:
    """Return the program in a file."""
    if path.suffix == ".spv":
        content = path.read_bytes()
        if content[:4] not in _MAGIC:
            raise ValueError(f"{path} is no SPIR-V: it does not begin with its magic number")
        return content
    if path.suffix not in (".cl", ".h", ".clh"):
        raise ValueError(f"{path.name!r} is neither OpenCL C (.cl) nor SPIR-V (.spv)")
    return path.read_text(encoding="utf-8")
