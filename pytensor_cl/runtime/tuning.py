"""The numbers of kernels that differ between devices, and a file that replaces some of them.

Every choice gives right results. `DEFAULTS` were fitted by timing PoCL and Intel's runtime on CPUs; the environment
variable ``PYTENSOR_CL_TUNING`` names a JSON file with other numbers, such as ``{"gemm.block_rows": 96}``. Numbers that
are the same for all devices stand in the ``limits.py`` of each family of routines.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FILE_VARIABLE = "PYTENSOR_CL_TUNING"


class Parameter(NamedTuple):
    """A number that may differ from device to device: its default, other values, and which schedule reads it."""

    default: int
    choices: tuple[int, ...]
    schedule: str
    about: str


# Names begin with the family whose routines read them.
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
    "elemwise.groups_per_unit": Parameter(128, (16, 32, 64, 256), "simt", "work-groups per compute unit at most"),
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
    "reduction.one_launch": Parameter(
        1, (0,), "simt", "1: both passes in one launch, where the driver has the feature last_group"
    ),
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
    "gemm.form": Parameter(
        0,
        (1, 2, 3, 4, 5, 6, 7),
        "simt",
        "another form of the largest tile of float32: its number in SIMT_FORMS of routines/gemm; 0: none",
    ),
    "launch.merge": Parameter(
        1, (0,), "simt", "1: small kernels of a captured graph that do not depend on each other run in one launch"
    ),
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
    """The values of all parameters, and for people where they come from."""

    def __init__(self, values: Mapping[str, int], origin: str = "the defaults") -> None:
        super().__init__(values)
        self.origin = origin


DEFAULTS = Tuning({name: parameter.default for name, parameter in PARAMETERS.items()})


def _problem(name: str, value: object) -> str | None:
    """Return why a parameter cannot have a value."""
    if name not in PARAMETERS:
        return f"there is no parameter {name!r}"
    allowed = sorted({PARAMETERS[name].default, *PARAMETERS[name].choices})
    is_allowed = isinstance(value, int) and not isinstance(value, bool) and value in allowed
    return None if is_allowed else f"{name} is one of {', '.join(map(str, allowed))}, not {value!r}"


def load_tuning() -> Tuning:
    """Return the defaults with what the user's file replaces.

    Raises `ValueError`: the file that the environment names cannot be read, or has something else than known
    parameters.
    """
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return Tuning(DEFAULTS)
    try:
        values = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{FILE_VARIABLE}: {path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{FILE_VARIABLE}: {path} is no JSON object of names and numbers")
    for name, value in values.items():
        if problem := _problem(name, value):
            raise ValueError(f"{FILE_VARIABLE}: {path}: {problem}")
    return Tuning({**DEFAULTS, **values}, path)
