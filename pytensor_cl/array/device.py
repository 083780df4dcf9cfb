"""Devices of arrays."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.registry import default_context_name, get_context

_default: ContextVar[str | None] = ContextVar("default_device", default=None)


class Device:
    """The device of an array. It is equal to another one, and to a string, of its name.

    Parameters
    ----------
    name
        The name of a context, such as ``"dev0"``.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def info(self) -> DeviceInfo:
        """The properties of the OpenCL device."""
        return get_context(self.name).info

    @property
    def kind(self) -> str:
        """``"cpu"``, ``"gpu"`` or ``"accelerator"``."""
        return self.info.kind

    def __eq__(self, other: object) -> bool:
        return self.name == (other.name if isinstance(other, Device) else other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    def __str__(self) -> str:
        return self.name


def context_of(device: Any = None) -> Context:
    """Return the context that an argument ``device`` means: a `Device`, the name of a context, None for the default.

    Raises
    ------
    ValueError
        It is ``"cpu"``: the host is no device of arrays.
    ContextNotDefined
        There is no such context.
    """
    if device is None:
        return get_context(_default.get())
    if device == "cpu":
        raise ValueError("the host is no device of arrays: a copy on the host is np.asarray(r)")
    if not isinstance(device, Device | str):
        raise TypeError(f"a device is a Device or the name of a context, not {device!r}")
    return get_context(str(device))


def default_device() -> Device:
    """Return the device on which functions such as `zeros` make arrays where no device is named."""
    return Device(_default.get() or default_context_name())


@contextmanager
def device(name: "Device | str") -> Iterator[Device]:
    """Make another device the default of array functions, in this thread, within a ``with`` statement.

    Raises
    ------
    ContextNotDefined
        There is no such context.
    """
    context = context_of(name)
    token = _default.set(context.name)
    try:
        yield Device(context.name)
    finally:
        _default.reset(token)


def to_device(x: GpuArray, device: Any, /, *, stream: None = None) -> GpuArray:
    """Return the array on a device: itself if it is there, else a copy, which goes through the host.

    Raises
    ------
    ValueError
        `device` is ``"cpu"``, or `stream` is not None: each context has one queue.
    """
    if stream is not None:
        raise ValueError(f"to_device: stream must be None, not {stream!r}: each context has one queue")
    context = context_of(device)
    return x if x.context is context else context.from_host(x.to_host())
