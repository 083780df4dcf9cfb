"""The numbers that decide how kernels are blocked and shared out: what they mean, and what they are on a device.

Three sources, each over the one before: the defaults below, what is shipped for drivers (``tuning.json``), and what
``pytensor-cl tune`` found for the device and wrote to the user's cache folder. Nothing is ever measured behind the
user's back.
"""

import json
import warnings
from collections.abc import Mapping
from functools import cache
from hashlib import blake2s
from pathlib import Path
from typing import Any, NamedTuple

from pytensor_cl import __version__
from pytensor_cl.codegen.folders import default_folder
from pytensor_cl.codegen.temporary import usable_folder
from pytensor_cl.runtime.device import DeviceEntry
from pytensor_cl.runtime.names import unversioned_name

__all__ = [
    "DEFAULTS",
    "PARAMETERS",
    "TUNING_VERSION",
    "Parameter",
    "Tuning",
    "checked",
    "identity_of",
    "load_tuning",
    "shipped",
    "tuning_digest",
    "tuning_file",
]

TUNING_VERSION = 1
"""Of the files of tuned parameters."""


class Parameter(NamedTuple):
    """A number that may differ from device to device; every candidate gives right results.

    Attributes
    ----------
    default
        Where nothing else is known.
    candidates
        What `pytensor-cl tune` tries.
    schedule
        Which schedule it is for.
    about
        What it is.
    """

    default: int
    candidates: tuple[int, ...]
    schedule: str
    about: str


# Names begin with the stage of `pytensor-cl tune` that they belong to.
PARAMETERS: dict[str, Parameter] = {
    "elemwise.tile": Parameter(8192, (2048, 4096, 16384, 32768), "cpu", "elements that justify a work-item"),
    "elemwise.crossing_columns": Parameter(
        16,
        (8, 32, 64),
        "cpu",
        "columns of a tile where an operand is transposed: its cache lines are there for more rows",
    ),
    "elemwise.items_per_unit": Parameter(4, (1, 2, 8, 16), "cpu", "work-items per compute unit at most"),
    "elemwise.group": Parameter(256, (64, 128, 512, 1024), "simt", "work-items of a work-group"),
    "elemwise.groups_per_unit": Parameter(32, (8, 16, 64, 128), "simt", "work-groups per compute unit at most"),
    "reduction.column_tile": Parameter(
        64, (16, 32, 128), "cpu", "vectors across a tile of columns: whole pages, sums that fit the first-level cache"
    ),
    "reduction.small": Parameter(
        1 << 15, (1 << 13, 1 << 14, 1 << 16), "cpu", "elements that one work-item reduces sooner than several start"
    ),
    "reduction.min_task": Parameter(
        1 << 14, (1 << 12, 1 << 13, 1 << 15, 1 << 16), "cpu", "elements of a chunk that justify splitting"
    ),
    "reduction.items_per_unit": Parameter(4, (1, 2, 8), "cpu", "work-items per compute unit at most"),
    "reduction.group": Parameter(256, (64, 128, 512), "simt", "work-items of a work-group"),
    "reduction.groups_per_unit": Parameter(8, (4, 16, 32), "simt", "work-groups that keep a compute unit busy"),
    "reduction.min_thread": Parameter(16, (4, 8, 32, 64), "simt", "elements that a work-item reduces at least"),
    "gemm.tile": Parameter(
        0,
        (122, 83, 82, 62, 44, 43, 42),
        "cpu",
        "of registers: 10 times its rows, and its vectors; 0: by the registers' width",
    ),
    "gemm.depth_bytes": Parameter(
        0,
        (1024, 2048, 4096, 8192),
        "cpu",
        "bytes along k of a block: each one reads and writes the output once more; 0: by the registers' width",
    ),
    "gemm.block_rows": Parameter(144, (48, 96, 192, 288), "cpu", "rows of A in a block, which stays in the cache"),
    "gemm.items_per_unit": Parameter(
        4, (1, 2, 8), "cpu", "work-items per compute unit, if there is enough to do: units that come late take fewer"
    ),
    "gemm.grain": Parameter(
        1 << 17, (1 << 15, 1 << 16, 1 << 18, 1 << 19), "cpu", "multiply-adds that are worth another work-item"
    ),
    "gemm.vector_grain": Parameter(
        1 << 15, (1 << 13, 1 << 14, 1 << 16, 1 << 17), "cpu", "the same, of a matrix times a vector"
    ),
    "gemm.vector_block": Parameter(
        8192, (2048, 4096, 16384), "cpu", "bytes of sums that a work-item keeps while it adds up columns"
    ),
    "gemm.group": Parameter(16, (8,), "simt", "width of the work-group"),
    "conv.depth_bytes": Parameter(4096, (1024, 2048, 8192), "cpu", "bytes along k that are packed at a time"),
    "conv.block_rows": Parameter(144, (48, 96, 288), "cpu", "rows that are packed at a time"),
    "conv.block_columns": Parameter(512, (128, 256, 1024), "cpu", "columns that are packed at a time"),
    "conv.part": Parameter(1024, (256, 512, 2048), "cpu", "steps along k that are worth a part of their own"),
    "conv.step": Parameter(128, (32, 64, 256), "cpu", "steps along k that are read at a time"),
    "conv.grain": Parameter(
        1 << 17, (1 << 15, 1 << 16, 1 << 18), "cpu", "multiply-adds that are worth another work-item"
    ),
    "conv.groups_per_unit": Parameter(4, (2, 8, 16), "simt", "target number of work-groups per compute unit"),
    "conv.simt_part": Parameter(16, (8, 32), "simt", "steps along k that are worth a part of their own"),
}


class Tuning(dict[str, int]):
    """The parameters of a device.

    Parameters
    ----------
    values
        Of all parameters.
    origin
        Where they come from, for people.
    """

    def __init__(self, values: Mapping[str, int], origin: str = "the defaults") -> None:
        super().__init__(values)
        self.origin = origin


DEFAULTS = Tuning({name: parameter.default for name, parameter in PARAMETERS.items()})


def checked(values: Mapping[str, Any]) -> dict[str, int]:
    """Return parameters as they were read from JSON.

    Raises
    ------
    ValueError
        There is no such parameter, or the value is none of its candidates.
    """
    for name, value in values.items():
        if name not in PARAMETERS:
            raise ValueError(f"there is no parameter {name!r}")
        if value not in (PARAMETERS[name].default, *PARAMETERS[name].candidates):
            raise ValueError(f"{name} cannot be {value!r}")
    return dict(values)


# --- shipped ---


@cache
def _shipped() -> dict[str, dict[str, int]]:
    text = (Path(__file__).parent / "tuning.json").read_text()
    return {driver: checked(values) for driver, values in json.loads(text).items()}


def driver_of(entry: DeviceEntry) -> str:
    """Return the driver and the kind of a device as ``tuning.json`` names them, such as ``pocl:cpu``."""
    return f"{unversioned_name(entry.stable_spec.split(':')[1])}:{entry.info.kind}"


def shipped(entry: DeviceEntry) -> Tuning:
    """Return what comes with the package for the driver of a device."""
    driver = driver_of(entry)
    known = _shipped().get(driver)
    origin = "the defaults" if known is None else f"shipped for {driver}"
    return Tuning({**DEFAULTS, **(known or {})}, origin)


# --- the user's ---


def identity_of(entry: DeviceEntry) -> dict[str, Any]:
    """Return what tuned parameters hold for: this device, driver and version of the package."""
    info = entry.info
    return {
        "device": info.name,
        "platform": info.platform,
        "driver": info.driver,
        "compute_units": info.compute_units,
        "pytensor_cl": __version__,
    }


def tuning_file(entry: DeviceEntry, cache_dir: str | None) -> Path:
    """Return where the tuned parameters of a device are kept.

    Parameters
    ----------
    entry
        The device.
    cache_dir
        Folder of the package's caches; None is the user's cache folder.
    """
    folder = default_folder(cache_dir)
    digest = blake2s(json.dumps(identity_of(entry)).encode(), digest_size=8).hexdigest()
    return folder / "tuning" / f"{driver_of(entry).replace(':', '-')}-{digest}.json"


def tuning_digest(parameters: Mapping[str, int]) -> str:
    """Return a digest of the parameters for their file, so that damage is noticed."""
    return blake2s(json.dumps(parameters, sort_keys=True).encode(), digest_size=8).hexdigest()


def _read(path: Path) -> dict[str, int]:
    """Return the parameters of a file; one that a user has written needs no version and no digest.

    Raises
    ------
    OSError, ValueError, KeyError, TypeError, AttributeError
        It cannot be read, is of another version, or is damaged.
    """
    content = json.loads(path.read_text())
    values = checked(content["parameters"])
    if content.get("version", TUNING_VERSION) != TUNING_VERSION:
        raise ValueError(f"it is of version {content['version']!r}, not {TUNING_VERSION}")
    if content.get("digest", tuning_digest(values)) != tuning_digest(values):
        raise ValueError("it was changed or damaged: its digest is another one")
    return values


def load_tuning(entry: DeviceEntry, cache_dir: str | None = None, tuned: bool = True) -> Tuning:
    """Return the parameters of a device. A file that cannot be used is warned of.

    Parameters
    ----------
    entry, cache_dir
        See `tuning_file`.
    tuned
        Whether to look for the user's own.
    """
    base, folder = shipped(entry), default_folder(cache_dir)
    if not tuned or usable_folder(folder) != folder:
        return base
    path = tuning_file(entry, cache_dir)
    if not path.is_file():
        return base
    try:
        values = _read(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(f"{path} is ignored: {error}. 'pytensor-cl tune --restart' makes a new one", stacklevel=2)
        return base
    return Tuning({**base, **values}, str(path))
