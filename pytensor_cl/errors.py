"""Exceptions of the package. Misuse raises what PyTensor's CPU backends raise; these are for the rest."""

__all__ = [
    "BroadcastError",
    "CompilationError",
    "ContextNotDefined",
    "DeviceNotFound",
    "ForkedProcessError",
    "OnHostError",
    "OnHostWarning",
    "OpenCLError",
    "OutOfDeviceMemory",
    "TemplateError",
    "UnsupportedDtype",
]


class OpenCLError(Exception):
    """Base class of every error that is this package's own."""


class TemplateError(OpenCLError):
    """A kernel template is missing, or was rendered with the wrong arguments."""


class CompilationError(OpenCLError):
    """The driver rejected an OpenCL program.

    Parameters
    ----------
    log
        The driver's build log.
    source
        The OpenCL C source; the message shows it with line numbers.
    """

    def __init__(self, log: str, source: str) -> None:
        self.log = log
        self.source = source
        super().__init__(log, source)

    def __str__(self) -> str:
        numbered = "\n".join(f"{i:5d} | {line}" for i, line in enumerate(self.source.splitlines(), 1))
        return f"the OpenCL driver could not build a program:\n{self.log.strip()}\n\nThe source was:\n{numbered}"


class DeviceNotFound(OpenCLError):
    """No OpenCL device answers to the name; the message lists those that exist."""


class ContextNotDefined(OpenCLError, ValueError):
    """A context name that neither the flags nor `pytensor_cl.use` defined."""


class BroadcastError(OpenCLError, ValueError, AssertionError):
    """Shapes do not fit, and the computation of a shape was the first to notice.

    PyTensor's CPU backends raise a ValueError where an elementwise node notices first, an AssertionError where the
    computation of its shape does. Which of them runs first is not the same here.
    """


class UnsupportedDtype(OpenCLError, TypeError):
    """The dtype cannot be stored or computed on this device."""


class OutOfDeviceMemory(OpenCLError, MemoryError):
    """The device could not allocate a buffer, even after the pool gave back what it held."""


class ForkedProcessError(OpenCLError, RuntimeError):
    """A forked child touched an OpenCL context of its parent."""


class OnHostError(OpenCLError, RuntimeError):
    """A node stays on the host although ``opencl__on_host=raise``."""


class OnHostWarning(UserWarning):
    """A node stays on the host and ``opencl__on_host=warn``."""
