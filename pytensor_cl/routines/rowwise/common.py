"""Shared parts of the routines for functions of rows: kernel arguments, launches, variants."""

from typing import NamedTuple

from pytensor_cl.routines.base.two_pass import KernelLaunch
from pytensor_cl.routines.rowwise.plan import PreTransposed


class Value(NamedTuple):
    """A NumPy scalar among the arguments of a kernel."""

    name: str
    dtype: str


class Array(NamedTuple):
    """An array among the arguments of a kernel; `value` is its number in the program."""

    name: str
    value: int
    kind: str
    dtype: str
    is_output: bool
    access: str = "gather"


class Plan(NamedTuple):
    """Launches for one set of layouts, with the bytes of scratch memory and of partial results.

    `shifts`: 1 if stores bypass the cache, else 0, then the shift of each array in elements; `pre_transposed`: arrays
    that are copied to another layout first.
    """

    steps: tuple[KernelLaunch, ...]
    scratch: int = 0
    partials: int = 0
    shifts: tuple[int, ...] = ()
    is_idle: bool = False  # no array has elements
    gathers: bytes | None = None  # the struct for tables whose rows are gathered in the kernel
    pre_transposed: tuple[PreTransposed, ...] = ()


class Variant(NamedTuple):
    """Direction of the vectors, how they are loaded, and whether a later loop finds them in the cache.

    `held`, `load_lanes`: on schedule simt, elements of a row that a work-item keeps in registers, and elements of a
    load.
    """

    pattern: str
    tile_vectors: int
    access: tuple[str, ...]
    is_cached: bool
    index_type: str
    is_narrow: bool = False
    tile: int = 0
    is_gathered: bool = False
    held: int = 0
    load_lanes: int = 1

    def reads_rows(self, array: int) -> bool:
        """Return whether a row of an array is read from where it begins, one element after the other; not on GPUs."""
        return bool(self.access) and (self.pattern, self.access[array]) in (("rows", "unit"), ("columns", "tile"))
