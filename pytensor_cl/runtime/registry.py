"""Context names: which device each one means, and its context, which is opened when it is first used."""

import atexit
import copyreg
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from threading import Lock
from typing import Any

import numpy as np

from pytensor_cl.codegen.announcement import announce
from pytensor_cl.errors import ContextNotDefined, DeviceNotFound, OpenCLError, UnusableDevice
from pytensor_cl.forks import at_fork
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime import process_end
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context, Settings, open_entry
from pytensor_cl.runtime.device import DeviceEntry, discover, resolve
from pytensor_cl.runtime.fork import forked_error, is_forked, opened_contexts
from pytensor_cl.runtime.memory.device_memory import MemoryInfo

_DEFAULT = "dev0"
"""The context of graphs that name none, if no flag and no call defines one."""


@dataclass
class _Registry:
    """Context names, and the contexts that are open."""

    specs: dict[str, str] = field(default_factory=dict)  # context name to device
    by_flags: frozenset[str] = frozenset()  # names that the flags define
    contexts: dict[str, Context] = field(default_factory=dict)  # open contexts by name
    default: str | None = None  # the context of graphs that name none
    settings: Callable[[], Settings] = Settings  # called for the settings of a context when it is opened
    overrides: dict[str, Any] = field(default_factory=dict)  # settings that replace those
    unusable: dict[str, UnusableDevice] = field(default_factory=dict)  # why contexts cannot be opened, by name
    flag_error: str = ""  # error in the flags that define contexts; empty if there is none
    lock: Any = field(default_factory=Lock)  # held while a context is opened


_registry = _Registry()


def parse_contexts(text: str) -> dict[str, str]:
    """Split the flag ``contexts`` into names and devices.

    Raises
    ------
    ContextNotDefined
        It is not ``name->device[;name->device...]``.
    """
    pairs: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, arrow, device = (part.strip() for part in item.partition("->"))
        if not (arrow and name and device) or name in pairs or name == "cpu":
            raise ContextNotDefined(
                f"flag contexts={text!r}: {item!r} is not 'name->device' with a name of its own; "
                "an example: contexts=dev0->opencl0:0;dev1->opencl0:1"
            )
        pairs[name] = device
    return pairs


def define_contexts(
    specs: dict[str, str], default: str | None, settings: Callable[[], Settings] | None = None, flag_error: str = ""
) -> None:
    """Replace all context names; contexts that are open stay open.

    Parameters
    ----------
    specs
        Context name to device.
    default
        The context of graphs that name none.
    settings
        Called for the settings of each context that is opened from now on.
    flag_error
        Why there are no contexts: each use of one raises a `ContextNotDefined` with this text.
    """
    _registry.specs = {**specs}
    _registry.by_flags = frozenset(specs)
    _registry.flag_error = flag_error
    _registry.unusable.clear()
    _registry.default = default
    _registry.settings = settings or _registry.settings


def check_settings(names: Iterable[str]) -> None:
    """Raise a TypeError for a name that no field of `Settings` has."""
    known = [one.name for one in fields(Settings)]
    for name in names:
        if name not in known:
            raise TypeError(f"there is no setting {name!r} of a device; there are: {', '.join(known)}")


def change_settings(**options: Any) -> None:
    """Change fields of `Settings` for contexts that are opened from now on."""
    check_settings(options)
    _registry.overrides.update(options)


def _check_flags() -> None:
    if _registry.flag_error:
        raise ContextNotDefined(_registry.flag_error)


def undefined_context(name: Any) -> ContextNotDefined:
    """Return the error for a name that no context has; its message has the alternatives."""
    named = ", ".join(f"{n} ({spec})" for n, spec in _registry.specs.items()) or "none"
    text = f"no context is called {name!r}; defined are: {named}. "
    if str(name).lower().startswith("opencl"):
        text += (
            f"{name!r} is a device: give it a name with pytensor_cl.use({name!r}, 'dev1') or the flag "
            f"contexts=dev1->{name}, and write 'dev1'"
        )
    elif name == "cpu":
        text += "The host is none: take pytensor.shared for a shared variable, x.transfer('cpu') for a value"
    else:
        text += (
            f"Take one of them, or define it with pytensor_cl.use('opencl:gpu', '{name}') or the flag "
            f"contexts={name}->opencl:gpu; devices are listed by: pytensor-cl devices"
        )
    return ContextNotDefined(text)


def _found(spec: str) -> DeviceEntry | None:
    """Return the device that a string means; None if there is none."""
    try:
        return resolve(spec)
    except DeviceNotFound:
        return None


def _described(entry: DeviceEntry | None) -> str:
    return "no device" if entry is None else f"{entry.spec}, {entry.info.name}"


def _check_taken(name: str, device: str) -> None:
    """Refuse a device for a context that another device has; two strings may name one device."""
    before = _registry.specs[name]
    old, new = _found(before), _found(device)
    if old is not None and old is new:
        return
    by_flags = ", by the flags" if name in _registry.by_flags else ""
    free = next(n for n in (f"dev{i}" for i in range(1, len(_registry.specs) + 2)) if n not in _registry.specs)
    raise ValueError(
        f"context {name!r} is {before!r} already ({_described(old)}{by_flags}), it cannot become {device!r} "
        f"({_described(new)}): take another name, pytensor_cl.use({device!r}, {free!r}), or choose this device first, "
        f"by the flag device={device} or by this call before anything else names the context"
    )


def add_context(name: str, device: str) -> None:
    """Define one more context name (or the same device again).

    Raises
    ------
    TypeError
        The name is no string.
    ValueError
        The name means another device already, or is that of the host.
    """
    _check_flags()
    if not isinstance(name, str):
        raise TypeError(f"the name of a context is a string such as 'dev0', not {name!r}")
    if name == "cpu":
        raise ValueError("'cpu' is the host's name: give the context another one, such as 'dev1'")
    if _registry.specs.get(name, device) != device:
        _check_taken(name, device)
        return
    _registry.specs[name] = device
    _registry.default = _registry.default or name


def adopt_queue(queue: "cl.CommandQueue", name: str) -> None:
    """Define a context that uses a user's pyopencl queue and its OpenCL context, and open it.

    Raises
    ------
    ValueError
        The queue is out of order, its OpenCL context has several devices or is in use under another name, its device is
        a part of one, or the name is that of another context.
    """
    _check_flags()
    if is_forked():
        raise forked_error()
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        raise ValueError("the queue runs commands out of order, and arrays rely on their order: make one without that")
    devices = queue.context.devices
    if len(devices) > 1:
        raise ValueError(
            f"the OpenCL context of the queue has {len(devices)} devices, and a buffer would move between them: make a "
            "context of one device, pyopencl.Context([device])"
        )
    entry = next((entry for entry in discover() if entry.handle == queue.device), None)
    if entry is None:
        raise ValueError("the device of the queue is a part of a device: use a queue of the whole device")
    with _registry.lock:
        same = next((c for c in opened_contexts() if c.cl_context == queue.context), None)
        if same is not None:
            raise ValueError(f"the OpenCL context of the queue is in use as {same.name!r} already")
        if name in _registry.contexts or name in _registry.specs:
            raise ValueError(f"context {name!r} is another one already: choose another name, use(queue, '{name}_2')")
        settings = replace(_registry.settings(), **_registry.overrides)
        _registry.contexts[name] = open_entry(name, entry, settings, queue)
        add_context(name, entry.stable_spec)


def defined_contexts() -> tuple[str, ...]:
    """Return the names of all contexts."""
    _check_flags()
    return tuple(_registry.specs)


def default_context_name() -> str:
    """Return the name of the context of graphs that name none; ``dev0`` on the default device if there is none."""
    _check_flags()
    if _registry.default is None:
        add_context(_DEFAULT, "opencl")
    assert _registry.default is not None
    return _registry.default


@contextmanager
def default_context(name: str) -> Iterator[None]:
    """Give graphs that name no context another one, while functions are compiled.

    Parameters
    ----------
    name
        One of the names that are defined.
    """
    before = default_context_name()
    _registry.default = name
    try:
        yield
    finally:
        _registry.default = before


def is_open(name: str) -> bool:
    """Return whether the context of a name has been opened."""
    return name in _registry.contexts


def get_context(name: str | None = None) -> Context:
    """Return the context of a name, opened if it is not yet.

    Raises
    ------
    ContextNotDefined
        No flag and no call defined the name.
    DeviceNotFound
        There is no such device.
    ForkedProcessError
        This process is a fork of one that used OpenCL.
    UnusableDevice
        The device failed its self-check.
    """
    name = name or default_context_name()
    if is_forked():
        raise forked_error()
    context = _registry.contexts.get(name)
    return _open_locked(name) if context is None else context


def is_unusable(name: str) -> bool:
    """Return whether the device of a context was found to be unusable; opens nothing."""
    return name in _registry.unusable


def unusable_reason(name: str | None = None) -> str:
    """Open the context of a name; return why its device cannot be used, "" if it can or if something else is wrong."""
    try:
        get_context(name)
    except UnusableDevice as error:
        return str(error)
    except OpenCLError:  # raised again where the context is needed
        pass
    return ""


def _open_locked(name: str) -> Context:
    """Return a context that this thread opens, or that another thread has opened meanwhile."""
    with _registry.lock:
        context = _registry.contexts.get(name)
        if name in _registry.unusable:
            raise _registry.unusable[name]
        if context is None:
            context = _registry.contexts[name] = _open(name)
        return context


def _open(name: str) -> Context:
    if name == _DEFAULT and not _registry.specs:
        default_context_name()  # a process that loads what another one pickled may name it first
    if name not in _registry.specs:
        raise undefined_context(name)
    settings = replace(_registry.settings(), **_registry.overrides)
    entry, label = resolve(_registry.specs[name]), None if tuple(_registry.specs) == (name,) else name
    try:
        context = open_entry(name, entry, settings)
    except UnusableDevice as error:
        _registry.unusable[name] = error
        sys.stderr.write(f"Mapped name {label} to no device: {error}. With opencl__placement=auto the host computes\n")
        raise
    if not settings.quiet:
        announce(f"Mapped name {label} to device {entry.spec}: {context.info.name} ({context.info.platform})")
        if context.info.features.warning:
            announce(f"{entry.spec}: {context.info.features.warning}")
    return context


def sync() -> None:
    """Wait until every queue of every context has finished, and raise an error that array operations have found."""
    contexts = opened_contexts()
    for context in contexts:
        context.queue.wait()
    for context in contexts:
        context.deferred_errors.check()


def memory_info(context: str | None = None) -> MemoryInfo:
    """Return how much memory a device has, and how much of it this process uses.

    Other processes that use the device are not counted: OpenCL has no query for them.

    Parameters
    ----------
    context
        Name of the context; None is the default one. Its device is opened if it is not yet.

    Returns
    -------
    MemoryInfo
        The numbers at this moment, in bytes.

    Raises
    ------
    ContextNotDefined
        There is no such context.

    Examples
    --------
    >>> info = pytensor_cl.memory_info()
    >>> info.array_bytes <= info.device_bytes
    True
    """
    return get_context(context).memory.info()


def free_memory(context: str | None = None) -> None:
    """Release the memory that no array uses to the driver, after all enqueued work is done.

    The next calls allocate again, and functions capture their graphs again. So this is for moments after which another
    process, or something else in this one, needs the memory. Arrays that exist are not touched. No other thread may run
    a function of the context meanwhile.

    Parameters
    ----------
    context
        Name of the context; None is the default one.

    Raises
    ------
    ContextNotDefined
        There is no such context.
    """
    get_context(context).memory.trim()


def _restore(name: str, host: np.ndarray) -> GpuArray:
    """Unpickle an array: upload it again, to the context of the same name."""
    return get_context(name).from_host(host)


def _reduce(array: GpuArray) -> tuple[Any, ...]:
    """Pickle an array by its values and the name of its context."""
    return _restore, (array.context.name, array.to_host())


copyreg.pickle(GpuArray, _reduce)


def _after_fork() -> None:
    _registry.lock = Lock()  # another thread of the parent may have held it


at_fork(after_in_child=_after_fork)
atexit.register(process_end.end_calls)
