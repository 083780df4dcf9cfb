"""What PoCL needs from us: the name of the CPU where it does not know it, and the cores for each of its threads.

LLVM 14, inside the PoCL 3.0 wheel, calls CPUs that are newer than itself (AMD Zen 5 among them) ``generic``, and clang
then refuses to build: "unknown target CPU 'generic'" (pocl issue 1049). Zen 4 it takes for ``znver3``, which has no
AVX-512; PoCL sees the instructions and links its AVX-512 library all the same, and the compiler hangs or crashes on the
mixture. PoCL keeps the name in its device structure, so it can be replaced, before the first build, by that of a CPU
with the same vector instructions: the one for which PoCL's own kernel library of that instruction set was compiled.

PoCL wakes all its threads for each kernel, from one core. On virtual machines Linux does not see that other cores are
idle (a halted virtual CPU counts as preempted), and leaves several of them on one core for milliseconds: products of
matrices took 1.7 times as long. So each thread may use two cores only, its own and the next one. With one core each,
which is what POCL_AFFINITY=1 means, kernels are faster on an idle machine, but take twice as long on a busy one.
"""

import ctypes
import os
import struct
from pathlib import Path

from pytensor_cl.runtime import opencl as cl

__all__ = ["name_the_cpu", "spread_threads", "thread_ids"]

# First match wins: the instruction sets that a CPU must have, and the LLVM name of an older CPU that has just those.
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
_STRUCTURE_BYTES = 1024  # of PoCL 3.0; the next device's structure follows at once
_CORES_OF_A_THREAD = 2
_keep: list[ctypes.Array[ctypes.c_char]] = []  # the driver keeps our pointer as long as the process lives
_named: dict[int, str] = {}  # by the device's address


def _instruction_sets() -> frozenset[str]:
    """Flags of the first CPU in /proc/cpuinfo."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _read(memory: int, count: int, address: int) -> bytes:
    """Read this process's memory; empty where nothing is mapped."""
    try:
        return os.pread(memory, count, address)
    except (OSError, OverflowError):
        return b""


def _pointers_to(word: bytes, base: int) -> list[int]:
    """Addresses in the structure at `base` that hold a pointer to the C string `word`."""
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        raw = _read(memory, _STRUCTURE_BYTES, base)
        pointers = ((i, struct.unpack_from("P", raw, i)[0]) for i in range(0, len(raw) - 7, 8))
        wanted = word + b"\0"
        return [base + i for i, p in pointers if p > _STRUCTURE_BYTES and _read(memory, len(wanted), p) == wanted]
    finally:
        os.close(memory)


def name_the_cpu(device: "cl.Device") -> str | None:
    """Give `device` a CPU name that its compiler accepts.

    Parameters
    ----------
    device
        A pyopencl device.

    Returns
    -------
    str or None
        The name that was set, now or before; None if the driver needs no repair. Programs should be built with an
        option that has it: PoCL's cache does not tell binaries of one name from those of another.
    """
    if device.int_ptr in _named:
        return _named[device.int_ptr]
    named = _name_in(device.version)
    have = _instruction_sets()
    if named is None or _is_right(named, have):
        return None
    found = _pointers_to(named.encode(), device.int_ptr)
    if len(found) != 1:  # a structure that we do not know: leave it alone
        return None
    name = next(cpu for needs, cpu in _CPUS if needs <= have)
    _keep.append(ctypes.create_string_buffer(name.encode()))
    ctypes.c_void_p.from_address(found[0]).value = ctypes.addressof(_keep[-1])
    _named[device.int_ptr] = name
    return name


def _name_in(version: str) -> str | None:
    """Return the CPU that a device's version ends with; None if it is not PoCL on x86-64."""
    is_ours = "PoCL" in version and "x86_64" in version
    return version.split()[-1].rpartition("-gnu-")[2] if is_ours else None


def _is_right(named: str, have: frozenset[str]) -> bool:
    """Whether the compiler knows a CPU by that name that has this one's vector instructions."""
    has_avx512 = _CPUS[0][0] <= have
    return named != "generic" and (not has_avx512 or any(part in named for part in _AVX512_NAMES))


def thread_ids() -> frozenset[int]:
    """Return the threads of this process, as the system numbers them; none where the system is not Linux."""
    folder = Path("/proc/self/task")
    return frozenset(int(path.name) for path in folder.iterdir()) if folder.is_dir() else frozenset()


def spread_threads(threads: frozenset[int]) -> bool:
    """Let each of PoCL's threads use few cores, so that they cannot all meet on one.

    Parameters
    ----------
    threads
        Those that came when the driver was loaded. Where they are fewer or more than the cores of this process (as
        with POCL_MAX_PTHREAD_COUNT), or the user set POCL_AFFINITY, nothing is done.

    Returns
    -------
    bool
        Whether it was done.
    """
    if not threads or "POCL_AFFINITY" in os.environ:
        return False
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) != len(threads):
        return False
    for i, thread in enumerate(sorted(threads)):
        os.sched_setaffinity(thread, {cores[(i + k) % len(cores)] for k in range(_CORES_OF_A_THREAD)})
    return True
