"""OpenCL devices, their properties, and the search of a device by name."""

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from pytensor_cl.codegen.announcement import announce
from pytensor_cl.errors import DeviceNotFound
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.cache_dirs import configure_caches
from pytensor_cl.runtime.drivers import all_hooks
from pytensor_cl.runtime.features.features import Features
from pytensor_cl.runtime.host_cpu import thread_ids
from pytensor_cl.runtime.icd import icd_folder
from pytensor_cl.runtime.names import (
    PLATFORM_NAMES,
    first_device_numbers,
    platform_name,
    report_change_of_device,
    sort_key,
    unversioned_name,
)
from pytensor_cl.runtime.unlisted_drivers import UnlistedDriver, nvidia_problem, use_unlisted_drivers

INSTALL_HINT = (
    "OpenCL drivers: for any x86-64 CPU on Linux 'pip install pocl-binary-distribution' (comes with pytensor-cl) or "
    "'pip install pytensor-cl[intel]'; for GPUs the vendor's driver (NVIDIA: display driver, AMD: ROCm, or Mesa "
    "rusticl with RUSTICL_ENABLE=radeonsi, Intel: intel-opencl-icd). 'python -m pytensor_cl doctor' shows what was "
    "found and why a driver does not load."
)

_KINDS = ("gpu", "cpu", "accelerator")
_ALL = Features()


@dataclass(frozen=True)
class DeviceInfo:
    """Facts of a device that decide how kernels are written and launched.

    Attributes
    ----------
    name, platform, vendor, version, driver
        Texts of the driver.
    kind
        ``"cpu"``, ``"gpu"`` or ``"accelerator"``.
    compute_units
        Number of compute units (cores of a CPU).
    global_memory, local_memory, max_allocation
        Bytes.
    max_work_group_size, max_parameter_size
        Limits of the device; a kernel's own may be lower.
    has_fp64, has_fp16
        Whether double and half can be computed with.
    shares_host_memory
        Whether buffers are in the host's memory.
    host_alignment
        Bytes at whose multiples host memory must begin to be used where it is; 0 if it cannot be, or is not known.
    features
        Features of the driver; all of them until the driver was asked (`self_check`).
    """

    name: str
    platform: str
    vendor: str
    version: str
    driver: str
    kind: str
    compute_units: int
    global_memory: int
    local_memory: int
    max_allocation: int
    max_work_group_size: int
    max_parameter_size: int
    has_fp64: bool
    has_fp16: bool
    shares_host_memory: bool
    correctly_rounded_divide_sqrt: bool
    host_alignment: int = 0
    features: Features = _ALL

    @property
    def schedule(self) -> str:
        """Schedule of kernels for the device: ``"cpu"`` or ``"simt"``."""
        return "cpu" if self.kind == "cpu" and self.features.has_cpu_schedule else "simt"

    @property
    def has_large_tiles(self) -> bool:
        """Whether tiles that fill a GPU's registers make sense: compilers that emulate one on a CPU take minutes."""
        return self.kind != "cpu" or self.schedule == "cpu"

    @property
    def has_own_memory(self) -> bool:
        """Whether arrays have to be copied between the host's memory and the device's."""
        return self.kind != "cpu" and not self.shares_host_memory

    def as_dict(self) -> dict[str, object]:
        """Return the facts as plain values, for JSON."""
        return {**asdict(self), "schedule": self.schedule, "features": self.features.as_dict()}


@dataclass(frozen=True)
class DeviceEntry:
    """A device and the strings that name it.

    Attributes
    ----------
    spec
        ``opencl<platform>:<device>``. Installing another driver renumbers platforms.
    stable_spec
        ``opencl:<platform name>:<device>``: the same device after a driver was added (`names`).
    info
        Its facts.
    handle
        The pyopencl device.
    """

    spec: str
    stable_spec: str
    info: DeviceInfo
    handle: "cl.Device"


def _query(fact: Callable[[], Any], fallback: Any) -> Any:
    """Return a property of a device; the fallback if the driver raises an error."""
    try:
        return fact()
    except cl.Error:
        return fallback


def _kind(device: "cl.Device") -> str:
    kinds = ((cl.device_type.GPU, "gpu"), (cl.device_type.CPU, "cpu"))
    return next((name for bit, name in kinds if device.type & bit), "accelerator")


def _describe(device: "cl.Device") -> DeviceInfo:
    """Return the properties of a device. Old and broken drivers lack some, which must not hide other devices."""
    extensions = _query(lambda: device.extensions.split(), [])
    rounding = cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    memory = _query(lambda: device.global_mem_size, 0)
    return DeviceInfo(
        name=_query(lambda: device.name.strip(), "a device without a name"),
        platform=_query(lambda: device.platform.name.strip(), ""),
        vendor=_query(lambda: device.vendor.strip(), ""),
        version=_query(lambda: device.version.strip(), ""),
        driver=_query(lambda: device.driver_version.strip(), ""),
        kind=_query(lambda: _kind(device), "accelerator"),
        compute_units=_query(lambda: device.max_compute_units, 1),
        global_memory=memory,
        local_memory=_query(lambda: device.local_mem_size, 0),
        max_allocation=_query(lambda: device.max_mem_alloc_size, memory // 4),
        max_work_group_size=_query(lambda: device.max_work_group_size, 1),
        max_parameter_size=_query(lambda: device.max_parameter_size, 256),
        has_fp64="cl_khr_fp64" in extensions or bool(_query(lambda: device.double_fp_config, 0)),
        has_fp16="cl_khr_fp16" in extensions,
        shares_host_memory=bool(_query(lambda: device.host_unified_memory, False)),
        correctly_rounded_divide_sqrt=bool(_query(lambda: device.single_fp_config & rounding, False)),
    )


_loaded: list[bool] = []  # not empty once drivers have been loaded


def are_drivers_loaded() -> bool:
    """Return whether this process, or one of which it is a fork, has loaded the OpenCL drivers to look for devices."""
    return bool(_loaded)


def _platforms() -> list["cl.Platform"]:
    _loaded.append(True)
    try:
        configure_caches()  # before hooks look at them
        use_unlisted_drivers()
        with ExitStack() as stack:
            for hooks in all_hooks():
                stack.enter_context(hooks.loading())
            get_platforms = cl.get_platforms
            before = thread_ids()  # after pyopencl's import, which loads libraries with threads of their own
            platforms = get_platforms()
            after = thread_ids()
    except ImportError as error:
        _no_pyopencl.append(f"pyopencl cannot be imported ({error}): pip install pyopencl")
        return []
    except cl.Error:  # the ICD loader reports "no platform" as an error
        return []
    names = [platform_name(platform).name for platform in platforms]
    for hooks in all_hooks():
        hooks.loaded(names, after - before)
    return platforms


def _devices(platform: "cl.Platform") -> list["cl.Device"]:
    try:
        return platform.get_devices()
    except cl.Error:  # a platform without devices raises
        return []


_empty: list[str] = []
"""Notes about platforms without devices, which are made when devices are looked for."""
_no_pyopencl: list[str] = []


def empty_platforms() -> tuple[str, ...]:
    """Return a text for each platform that has no device."""
    discover()
    return tuple(_empty)


def unlisted_drivers() -> tuple[UnlistedDriver, ...]:
    """Return the drivers that are used although no ``.icd`` file names them."""
    discover()
    return use_unlisted_drivers()


@cache
def unused_gpu() -> str:
    """Return why an NVIDIA GPU of this machine is no device; empty if there is none, or it is one."""
    has_platform = any(unversioned_name(_name(entry)) == "nvidia" for entry in discover())
    return "" if has_platform else nvidia_problem()


def why_no_device() -> str:
    """Return why there is no device, and what to install."""
    discover()
    if _no_pyopencl:
        return _no_pyopencl[0]
    return ". ".join((*_empty, *filter(None, [_missing_folder(), unused_gpu()]), INSTALL_HINT))


def _missing_folder() -> str:
    """Return a text if the environment variable for drivers names what does not exist."""
    named = os.environ.get("OCL_ICD_VENDORS", "")
    if not named or icd_folder().exists():
        return ""
    return f"the environment variable OCL_ICD_VENDORS names {named}, which does not exist, so no driver was found"


def _note_empty(platform: str) -> None:
    text = f"the platform {platform} has no device"
    if "rusticl" in platform.lower():
        text += (
            ": it has the devices of the drivers that the environment variable RUSTICL_ENABLE names, such as "
            "RUSTICL_ENABLE=radeonsi, iris, nouveau or llvmpipe (the CPU)"
        )
    _empty.append(text)


@cache
def discover() -> tuple[DeviceEntry, ...]:
    """Return every device of every platform, in the driver loader's order."""
    platforms = _platforms()
    names, devices = [platform_name(p) for p in platforms], [_devices(p) for p in platforms]
    for platform, found in zip(platforms, devices, strict=True):
        if not found:
            _note_empty(platform.name.strip())
    entries: list[DeviceEntry] = []
    for p, first in enumerate(first_device_numbers(names, [len(found) for found in devices])):
        for d, device in enumerate(devices[p]):
            stable = f"opencl:{names[p].name}:{first + d}"
            entries.append(DeviceEntry(f"opencl{p}:{d}", stable, _describe(device), device))
    return tuple(entries)


def _missing(spec: str) -> DeviceNotFound:
    entries = discover()
    if not entries:
        return DeviceNotFound(f"no OpenCL device at all, so no {spec!r}: {why_no_device()}")
    lines = [f"  {e.spec}  or  {e.stable_spec}  {e.info.name} ({e.info.platform})" for e in entries]
    hint = _hint(spec, entries)
    hint = f": {hint}" if hint else ""
    notes = filter(None, [unused_gpu(), _why_absent(spec, entries)])
    return DeviceNotFound(f"no OpenCL device matches {spec!r}{hint}. There are:\n" + "\n".join([*lines, *notes]))


def _hint(spec: str, entries: tuple[DeviceEntry, ...]) -> str:
    """Return what the user may have meant; empty if that is unknown."""
    text = spec.strip().lower()
    if re.search(r"[\s,;=]", text):
        return "flags are separated by commas, as in PYTENSOR_FLAGS=device=opencl:gpu,floatX=float32"
    meant = _with_prefix(spec)
    if meant:
        return f"names of devices begin with opencl, write {meant!r}"
    numbers = re.fullmatch(r"opencl:(\d+(:\d+)?)", text)
    if numbers:
        return f"numbers follow without a colon, write 'opencl{numbers[1]}'"
    word = text.removeprefix("opencl").lstrip(":").partition(":")[0]
    near = get_close_matches(word, {*_KINDS, *PLATFORM_NAMES, *map(_name, entries)}, 1)
    return f"perhaps 'opencl:{near[0]}' is meant" if near and near[0] != word else ""


def _why_absent(spec: str, entries: tuple[DeviceEntry, ...]) -> str:
    """Return a text for a kind of device, or a vendor, none of whose devices has a driver here."""
    word = spec.strip().lower().removeprefix("opencl:").partition(":")[0]
    if word in _KINDS and not any(e.info.kind == word for e in entries):
        return (
            f"No {word.upper() if len(word) == 3 else word} has an OpenCL driver here. A driver comes from the vendor "
            "of the device; 'pytensor-cl doctor' shows where drivers were searched"
        )
    if word in PLATFORM_NAMES and not any(unversioned_name(_name(e)) == word for e in entries):
        return f"There is no OpenCL driver of {word!r} here; 'pytensor-cl doctor' shows where drivers were searched"
    return ""


def _with_prefix(spec: str) -> str | None:
    """Return the name here for a device's name in another framework; None for names that begin with ``opencl``."""
    text = spec.strip().lower()
    if text.startswith("opencl"):
        return None
    if re.fullmatch(r"\d+(:\d+)?", text):
        return f"opencl{text}"
    word, _, number = re.fullmatch(r"(.*?)(:?)(\d*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    word = {"cuda": "nvidia", "rocm": "amd", "hip": "amd"}.get(word, word)
    return ":".join(filter(None, ("opencl", word, number)))


def check_spec(spec: str) -> None:
    """Refuse a string that can name no device; loads no driver where it can.

    Raises
    ------
    TypeError
        It is no string.
    DeviceNotFound
        It does not begin with ``opencl``, or has another form than `resolve` understands.
    """
    if not isinstance(spec, str):
        raise TypeError(f"a device is a string such as 'opencl:gpu' or 'opencl0:0', not {spec!r}")
    if not re.fullmatch(r"opencl(\d+(:\d+)?|:.+)?", spec.strip().lower()):
        raise _missing(spec)


def _name(entry: DeviceEntry) -> str:
    """Return the name of a device's platform."""
    return entry.stable_spec.split(":")[1]


def _stably(entry: DeviceEntry) -> tuple[object, ...]:
    """Sorts devices in an order that is not the loader's."""
    return (*sort_key(_name(entry)), int(entry.stable_spec.rpartition(":")[2]))


def _matching(word: str) -> list[DeviceEntry]:
    """Return the devices that a word means, in an order that does not depend on the loader's."""
    entries = sorted(discover(), key=_stably)
    exact = [e for e in entries if _name(e) == word]
    if exact or word in PLATFORM_NAMES:
        return exact or [e for e in entries if unversioned_name(_name(e)) == word]
    if word in _KINDS:
        return [e for e in entries if e.info.kind == word]
    return [e for e in entries if word in f"{e.info.platform} {e.info.vendor} {e.info.name}".lower()]


def _default() -> DeviceEntry:
    """The device that ``PYOPENCL_CTX`` names, else the first GPU, else PoCL, else the first device."""
    entries = discover()
    if not entries:
        raise _missing("opencl")
    chosen = re.fullmatch(r"(\d+)(?::(\d+))?", os.environ.get("PYOPENCL_CTX", ""))
    if chosen:
        return resolve(f"opencl{chosen[1]}:{chosen[2] or 0}")
    ranked = sorted(entries, key=lambda e: (e.info.kind != "gpu", unversioned_name(_name(e)) != "pocl", *_stably(e)))
    if ranked[0].info.kind != "gpu" and unused_gpu():
        announce(f"pytensor-cl: the CPU computes ({ranked[0].info.name}): {unused_gpu()}")
    return _noted("opencl", ranked[0])


def _noted(spec: str, entry: DeviceEntry) -> DeviceEntry:
    if entry.handle is not None:
        info = entry.info
        report_change_of_device(spec, f"{info.name} ({info.platform} {info.driver})")
    return entry


def resolve(spec: str) -> DeviceEntry:
    """Find the device that a string means.

    Parameters
    ----------
    spec
        ``opencl``, ``opencl<P>``, ``opencl<P>:<D>``, or ``opencl:<word>[:<D>]`` where the word is a kind (``gpu``,
        ``cpu``), a platform (``pocl``, ``pocl-3.1``, ``intel``, ``nvidia``, ``amd``) or a part of a device's name.
        If such a name stands for another device or driver than in the user's last run, a line on stderr reports it.

    Raises
    ------
    DeviceNotFound
        No device matches; the message lists what there is, or what to install.
    """
    text = spec.strip().lower()
    if text == "opencl":
        return _default()
    numbered = re.fullmatch(r"opencl(\d+)(?::(\d+))?", text)
    if numbered:
        wanted = f"opencl{int(numbered[1])}:{int(numbered[2] or 0)}"
        found = [e for e in discover() if e.spec == wanted]
    else:
        named = re.fullmatch(r"opencl:(.+?)(?::(\d+))?", text)
        if not named:
            raise _missing(spec)
        found = _matching(named[1])[int(named[2] or 0) :]
    if not found:
        raise _missing(spec)
    return found[0] if numbered else _noted(text, found[0])
