"""Optional features of a device's driver, and the file that stores them.

`self_check` probes a device with small kernels. The results are kept in the user's cache folder, in one file for each
device, driver and version of the probes, so that each device is probed once.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Self

from pytensor_cl.codegen.checked_files import CheckedFolder
from pytensor_cl.codegen.folders import default_folder
from pytensor_cl.codegen.temporary import usable_folder

_NAME = "features"
_LIMIT_BYTES = 1 << 20  # size of the folder in bytes: results of a few hundred drivers
WIDTHS = (2, 4, 8, 16)
"""Lanes of the vectors in kernels of schedule ``cpu``."""


@dataclass(frozen=True)
class Features:
    """Optional features of a driver. The defaults describe a driver that has all but those of one vendor."""

    struct_arguments: bool = True  # structs may be kernel arguments; else they are read from a buffer
    # ``__builtin_prefetch`` compiles, or is unknown to the compiler. Otherwise kernels do not prefetch.
    prefetch: bool = True
    # ``__builtin_nontemporal_store`` compiles, or is unknown to the compiler. Else kernels store through the cache.
    nontemporal_stores: bool = True
    vectors: tuple[int, ...] = WIDTHS  # numbers of lanes with which explicit vectors give right values
    # Pointers to private memory may be cast to pointers to global memory. Kernels of schedule ``cpu`` need it, and all
    # numbers of lanes; devices without them run those of schedule ``simt``.
    private_as_global: bool = True
    local_memory: bool = True  # local memory and barriers work
    atomics: bool = True  # 32-bit atomic functions work, on global and on local memory
    # An int that becomes a long compares right with a constant. Else the long is made of two halves.
    long_comparisons: bool = True
    # fp64, fp16: double and half are computed right
    fp64: bool = True
    fp16: bool = True
    # A map of a buffer that does not block returns the address at which the host reads it, always the same one. Else
    # buffers are copied to the host.
    maps: bool = True
    # bytes at whose multiples host memory must begin to be used in place as a buffer; 0 if it is always copied
    host_alignment: int = 0
    long_loops: bool = True  # A work-item may run a loop more than 65,535 times. There is no substitute: see `warning`.
    # Work-items 32k to 32k + 31 of a work-group exchange values by the instruction shfl.sync of PTX. Else they use
    # local memory.
    warp_shuffles: bool = False
    half_conversions: bool = False  # the instruction cvt of PTX converts the bits of a half to float, and back
    # k of the largest of NVIDIA's instructions for matrices of float64, m16n8k8 or m8n8k4, that computes right; 0: none
    matrix_f64: int = 0
    # events have time stamps; otherwise profiles wait for each command and read the host's clock
    profiling: bool = True
    # Instructions of NVIDIA's GPUs: the work-items of a warp vote, and wait for each other.
    warp_votes: bool = False
    # The same: the hardware adds to float32 and float64 numbers in global memory.
    float_atomics: bool = False
    # The work-group that finishes last sees what the others have written to global memory, by an instruction of
    # NVIDIA's GPUs.
    last_group: bool = False
    problem: str = ""  # why kernels cannot be run at all; empty if they can
    # Why a failed probe is not the driver's answer, such as a disk that is full; empty if all are. The results are not
    # kept then.
    passing: str = ""
    reasons: tuple[tuple[str, str], ...] = ()  # pairs of a missing feature and the result of its probe

    @property
    def has_cpu_schedule(self) -> bool:
        """Whether kernels of schedule ``cpu`` run."""
        return self.private_as_global and self.vectors == WIDTHS

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the features whose probes failed and that have a substitute."""
        return tuple(name for name, _ in self.reasons)

    @property
    def warning(self) -> str:
        """A message for the user about a defect of the driver that has no substitute; empty if there is none."""
        if self.long_loops:
            return ""
        return "the driver ends loops early: what takes a work-item more than 65,535 steps is wrong (docs/drivers.md)"

    def options(self) -> list[str]:
        """Return the build options that switch off what the compiler cannot do, and on what few can."""
        switches = {
            "-DWITHOUT_PREFETCH": self.prefetch,
            "-DWITHOUT_NONTEMPORAL_STORES": self.nontemporal_stores,
            "-DPRIVATE_MEMORY_APART": self.private_as_global,
            "-DWITHOUT_LONG_COMPARISONS": self.long_comparisons,
        }
        added = {"-DWARP_SHUFFLES": self.warp_shuffles, "-DHALF_CONVERSIONS": self.half_conversions}
        return [
            *(option for option, works in switches.items() if not works),
            *(option for option, works in added.items() if works),
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return all as plain values, for JSON."""
        return {**asdict(self), "vectors": list(self.vectors), "reasons": dict(self.reasons)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the features that `as_dict` wrote.

        Raises `ValueError`: a name is missing or unknown, or a value of another type.
        """
        kinds = {f.name: f.type for f in fields(cls)}
        if kinds.keys() != values.keys():
            raise ValueError(f"names differ: {sorted(kinds.keys() ^ values.keys())}")
        plain = {"vectors": list, "reasons": dict}
        wrong = [n for n, kind in kinds.items() if type(values[n]) is not plain.get(n, kind)]
        if wrong or not all(type(n) is int for n in values["vectors"]):
            raise ValueError(f"values of another type: {wrong or ['vectors']}")
        reasons = tuple((str(name), str(text)) for name, text in values["reasons"].items())
        return cls(**{**values, "vectors": tuple(values["vectors"]), "reasons": reasons})


def features_folder(cache_dir: str | Path | None) -> Path:
    """Return where results are stored: in the package's cache folder; None is the user's."""
    return default_folder(cache_dir) / _NAME


@cache
def probes_digest() -> str:
    """Return a digest of the probes' code: if it changes, the device is probed again."""
    code = (
        Path(__file__).with_name(name).read_bytes()
        for name in ("features.py", "probe.py", "probe_process.py", "probes.py")
    )
    return hashlib.blake2s(b"".join(code), digest_size=8).hexdigest()


class FeatureFile:
    """File that stores the features of a device.

    `identity`: texts that identify the device, its driver and their versions; `folder`: the package's cache folder;
    None is the user's.
    """

    def __init__(self, identity: tuple[str, ...], folder: str | Path | None = None) -> None:
        self._identity = list(identity)
        self._folder = CheckedFolder(usable_folder(default_folder(folder)) / _NAME, _LIMIT_BYTES)

    def _key(self) -> bytes:
        return json.dumps([*self._identity, probes_digest()]).encode()  # two versions of the package may take turns

    def read(self) -> Features | None:
        """Return the results; None if there are none, or none that can be used."""
        content = self._folder.read(self._key())
        try:
            return None if content is None else Features.from_dict(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # it is not what `write` writes: it is made again

    def write(self, features: Features) -> bool:
        """Write the results, whole or not at all; return whether they could be."""
        return self._folder.write(self._key(), json.dumps(features.as_dict(), indent=1).encode())
