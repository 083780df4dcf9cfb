"""Exceptions of the package. Misuse raises what PyTensor's CPU backends raise; these are for the rest."""

import re

__all__ = [
    "BroadcastError",
    "CompilationError",
    "ContextNotDefined",
    "DeviceNotFound",
    "ForkedProcessError",
    "NegativeLengthError",
    "NegativeStepsError",
    "OnHostError",
    "OnHostWarning",
    "OpenCLError",
    "OutOfDeviceMemory",
    "OutOfDiskSpace",
    "RangeLengthError",
    "TemplateError",
    "UnsupportedDtype",
    "UnusableDevice",
]


class OpenCLError(Exception):
    """Base class of every error that is this package's own."""


class TemplateError(OpenCLError):
    """A kernel template is missing, or was rendered with the wrong arguments."""


# Forms in which drivers name a place of the source: Mesa "input.cl:63:15: error: ...", Intel "1:63:15: error: ...",
# NVIDIA "<kernel>:63:15: error: ...", PoCL "error: /path/tempfile.cl:63:15: ...", AMD's old compiler
# '"OCL1.cl", line 63: error: ...'.
_KIND = r"(?P<{}>fatal error|error|warning|note)"
_LOCATION = re.compile(
    rf"^[ \t]*(?:{_KIND.format('before')}: )?"
    r"(?:\"(?P<quoted>[^\"\n]+)\", line (?P<row>\d+)|(?P<file>(?:[A-Za-z]:\\)?[^:\n]*):(?P<line>\d+):\d+):"
    rf"(?: {_KIND.format('after')}\b)?",
    re.MULTILINE,
)
_CONTEXT_LINES = 3
"""Lines of the source that are shown before and after one that the log names."""
_MAX_LOCATIONS = 6
"""Places of the source that are shown: the first errors cause the others."""
_SHORT = 40
"""Lines of a source that is shown whole where the log names none of them."""


def _named_lines(log: str, count: int) -> list[int]:
    """Return the numbers of the lines that the errors in a build log name, else those that anything in it names."""
    places = []
    for found in _LOCATION.finditer(log):
        if (found["quoted"] or found["file"] or "").endswith(".h"):
            continue  # a header of the driver's
        number = int(found["row"] or found["line"])
        if 1 <= number <= count:
            kind = found["before"] or found["after"] or ""
            places.append((number, kind.endswith("error")))
    errors = [number for number, is_error in places if is_error]
    return list(dict.fromkeys(errors or [number for number, _ in places]))


def _excerpt(lines: list[str], named: list[int]) -> str:
    """Return the named lines and those around them, with numbers; named ones are marked, gaps are dots."""
    shown_numbers = {
        i for n in named for i in range(n - _CONTEXT_LINES, n + _CONTEXT_LINES + 1) if 1 <= i <= len(lines)
    }
    width, shown, previous = len(str(len(lines))), [], None
    for i in sorted(shown_numbers):
        if previous is not None and i > previous + 1:
            shown.append(f"  {'...':>{width}}")
        shown.append(f"{'>' if i in named else ' '} {i:{width}d} | {lines[i - 1]}")
        previous = i
    return "\n".join(shown)


_CACHE_ADVICE = "If it was built before, a damaged cache may be the cause: 'pytensor-cl cache clear' empties all."


class CompilationError(OpenCLError):
    """The driver rejected an OpenCL program.

    The message has the log, and the lines of the source that its errors name with those around them.

    Parameters
    ----------
    log
        The driver's build log.
    source
        The OpenCL C source, whole.
    message
        The message, if it is another one than that: for kernels of the user's own.
    """

    def __init__(self, log: str, source: str, message: str = "") -> None:
        self.log = log
        self.source = source
        self.message = message
        super().__init__(log, source, message)

    def __str__(self) -> str:
        if self.message:
            return self.message
        lines = self.source.splitlines()
        named = _named_lines(self.log, len(lines))
        if named:
            part = f"The lines that it names:\n{_excerpt(lines, named[:_MAX_LOCATIONS])}"
        elif len(lines) <= _SHORT:
            part = "The source:\n" + "\n".join(f"{i:5d} | {line}" for i, line in enumerate(lines, 1))
        else:
            part = "The log names no line of the source."
        return (
            f"the OpenCL driver could not build a program:\n{self.log.strip()}\n\n{part}\n"
            f"The source has {len(lines)} lines; it is this error's attribute `.source`.\n{_CACHE_ADVICE}"
        )


class DeviceNotFound(OpenCLError):
    """No OpenCL device matches the name; the message lists those that exist."""


class UnusableDevice(OpenCLError, RuntimeError):
    """The device failed a self-check that has no substitute; the message names the driver and the check."""


class ContextNotDefined(OpenCLError, ValueError):
    """A context name that neither the flags nor `pytensor_cl.use` defined."""


class BroadcastError(OpenCLError, ValueError, AssertionError):
    """Shapes do not fit, and the computation of a shape was the first to notice.

    PyTensor's CPU backends raise a ValueError where an elementwise node notices first, an AssertionError where the
    computation of its shape does. Which of them runs first is not the same here.
    """


class NegativeLengthError(OpenCLError, ValueError, MemoryError):
    """A length of an axis is negative. PyTensor's C backend raises a MemoryError, the others a ValueError."""


class NegativeStepsError(OpenCLError, IndexError, OverflowError):
    """A loop has a negative number of steps. PyTensor's C backend raises an OverflowError, Python an IndexError."""


class RangeLengthError(OpenCLError, OverflowError, ZeroDivisionError, ValueError):
    """A range has no length, or too great a one, such as one whose step is zero.

    PyTensor's C backend raises an OverflowError or a ValueError, NUMBA a ValueError, NumPy a ZeroDivisionError.
    """


class UnsupportedDtype(OpenCLError, TypeError):
    """The dtype cannot be stored or computed on this device."""


class OutOfDeviceMemory(OpenCLError, MemoryError):
    """The device could not allocate a buffer, even after the pool gave back what it held."""


class OutOfDiskSpace(OpenCLError, OSError):
    """The driver has no space on a disk for the kernels that it compiles; the message names the folder."""


class ForkedProcessError(OpenCLError, RuntimeError):
    """A forked child touched an OpenCL context of its parent."""


class OnHostError(OpenCLError, RuntimeError):
    """A node stays on the host although ``opencl__on_host=raise``."""


class OnHostWarning(UserWarning):
    """A node stays on the host and ``opencl__on_host=warn``."""
