"""A repair of PoCL: a valid CPU name where PoCL's compiler has none for the CPU.

PoCL does not work without it on such a machine. So it is no part of `runtime.pocl`, which only makes PoCL faster.

LLVM 14, inside the PoCL 3.0 wheel, calls CPUs that are newer than itself ``generic`` (AMD Zen 5, for instance). Clang
then refuses to build: "unknown target CPU 'generic'" (PoCL issue 1049). It takes Zen 4 for ``znver3``, which has no
AVX-512. PoCL finds AVX-512 nevertheless and links its AVX-512 library, and the compiler hangs or crashes.

PoCL keeps the name in its device structure. It is replaced there, before the first build, by the name of an older CPU
with the same vector instructions: the one for which PoCL's own kernel library of that instruction set was compiled.
"""

import ctypes
import os
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path

from pytensor_cl.runtime import opencl as cl

# The first match counts: instruction sets of the CPU, and the LLVM name of an older CPU that has only those.
_CPUS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}), "skylake-avx512"),
    (frozenset({"avx2", "fma", "bmi2"}), "haswell"),
    (frozenset({"avx"}), "sandybridge"),
    (frozenset(), "x86-64"),
)
_AVX512_NAMES = (
    "avx512",
    "icelake",
    "cascadelake",
    "cooperlake",
    "cannonlake",
    "tigerlake",
    "rocketlake",
    "sapphire",
    "knl",
    "knm",
)
_STRUCTURE_BYTES = 1024  # size of the structure in PoCL 3.0; the next device's structure follows
_keep: list[ctypes.Array[ctypes.c_char]] = []  # the driver keeps the pointer until the process ends
_named: dict[int, str] = {}  # keys: addresses of devices


@cache
def instruction_sets() -> frozenset[str]:
    """Return the flags of the first CPU in /proc/cpuinfo; empty where there are none."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):  # x86, ARM
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def _read(memory: int, count: int, address: int) -> bytes:
    """Read this process's memory; empty where nothing is mapped."""
    try:
        return os.pread(memory, count, address)
    except (OSError, OverflowError):
        return b""


def _pointers_to(word: bytes, base: int) -> list[int]:
    """Addresses in the structure at `base` that hold a pointer to the C string `word`; none if it cannot be read."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:  # systems without /proc
        return []
    try:
        raw = _read(memory, _STRUCTURE_BYTES, base)
        pointers = ((i, struct.unpack_from("P", raw, i)[0]) for i in range(0, len(raw) - 7, 8))
        wanted = word + b"\0"
        return [base + i for i, p in pointers if p > _STRUCTURE_BYTES and _read(memory, len(wanted), p) == wanted]
    finally:
        os.close(memory)


def repair_cpu_name(device: "cl.Device") -> list[str]:
    """Give a device a CPU name that its compiler accepts.

    `device`: a pyopencl device.

    Returns options for the builds of all programs; empty if the driver needs no repair. An option holds the name that
    was set, now or before, because PoCL's cache does not distinguish binaries for different names.
    """
    if device.int_ptr not in _named:
        name = _set_name(device)
        if name is None:
            return []
        _named[device.int_ptr] = name
    return [f"-DCPU_{_named[device.int_ptr].replace('-', '_')}"]


def _set_name(device: "cl.Device") -> str | None:
    """Replace a wrong name in the device's structure; return the new one, None if nothing was replaced."""
    named = _name_in(device.version)
    have = instruction_sets()
    if named is None or _is_right(named, have):
        return None
    found = _pointers_to(named.encode(), device.int_ptr)
    if len(found) != 1:  # an unknown structure is left as it is
        return None
    name = next(cpu for needs, cpu in _CPUS if needs <= have)
    _keep.append(ctypes.create_string_buffer(name.encode()))
    ctypes.c_void_p.from_address(found[0]).value = ctypes.addressof(_keep[-1])
    return name


def _name_in(version: str) -> str | None:
    """Return the CPU that a device's version ends with; None if it is not PoCL on x86-64."""
    is_ours = "PoCL" in version and "x86_64" in version
    return version.split()[-1].rpartition("-gnu-")[2] if is_ours else None


def _is_right(named: str, have: frozenset[str]) -> bool:
    """Return whether the compiler has a CPU of that name with the vector instructions of this one."""
    has_avx512 = _CPUS[0][0] <= have
    return named != "generic" and (not has_avx512 or any(part in named for part in _AVX512_NAMES))
