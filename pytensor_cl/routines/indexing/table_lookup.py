"""Elements of tables, picked by an index that a kernel reads as it reads any operand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import render
from pytensor_cl.routines.base.routine import Checked
from pytensor_cl.routines.indexing.gather_scatter import Gather
from pytensor_cl.routines.indexing.plan import Bounds, check_bounds
from pytensor_cl.runtime.array import GpuArray


@dataclass(frozen=True)
class TableLookup:
    """The element function ``table[i0]``; negative indices count from the end.

    Its kernel has the pointers ``table0``..., the struct ``tables``, ``error_flag`` and ``error_code``; see
    `TableLookups`.

    `table`: number of the table; `dtype`, `index_dtype`: dtypes of the table and of the index; `bounds`: the least and
    the greatest index, if they are known: then no kernel need check them.
    """

    table: int
    dtype: str
    index_dtype: str
    bounds: Bounds | None = None

    operations = 4
    """Statements for one element."""

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """The dtype of the index."""
        return (self.index_dtype,)

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        """The dtype of the table."""
        return (self.dtype,)

    @property
    def preambles(self) -> tuple[str, ...]:
        """The exception for an index out of range."""
        return (render("common/to_long"), *((render("runtime/error_flag"),) if self.bounds is None else ()))

    @property
    def itemsize(self) -> int:
        """Bytes of the wider dtype."""
        return max(np.dtype(self.dtype).itemsize, np.dtype(self.index_dtype).itemsize)

    def statements(self, lanes: int) -> str:
        """Return the statements that assign ``o0``."""
        arguments = {"dtype": self.dtype, "index_dtype": self.index_dtype, "is_checked": self.bounds is None}
        return render("indexing/table_lookup", number=self.table, lanes=lanes, **arguments)


class TableLookups:
    """The arguments of kernels with tables, and their checks.

    `routine`: whose error flag the kernels use; `takes`: each with the number of the operand that is its index;
    `count`: number of tables; `struct`: the offset, the stride and the length of each table.
    """

    def __init__(self, routine: Checked, takes: Sequence[tuple[int, TableLookup]], count: int) -> None:
        self._routine = routine
        self._takes = tuple(takes)
        self.struct = Struct(("long", f"at[{count}] step[{count}] length[{count}]"), name="tables")
        self._gathers: dict[tuple[str, str, int], Gather] = {}
        self.is_checked = any(take.bounds is None for _, take in takes)

    def arguments(self, tables: Sequence[GpuArray]) -> tuple[Any, ...]:
        """Return the arguments of a kernel that come after its arrays and its geometry."""
        layouts = [table.layout for table in tables]
        starts, steps, lengths = zip(*((s.offset, s.strides[0], s.shape[0]) for s in layouts), strict=True)
        packed = self.struct.pack_values(*starts, *steps, *lengths)
        return *(table.buffer for table in tables), packed

    def check(self, operands: Sequence[Any], tables: Sequence[GpuArray], *, is_idle: bool) -> None:
        """Check what the kernels cannot.

        `is_idle`: whether it computes nothing: an index must be valid too.

        Raises `IndexError`: the bounds of an index are known and too wide, or a table is empty.
        """
        for operand, take in self._takes:
            index, table = operands[operand], tables[take.table]
            if index.size and take.bounds is not None:
                check_bounds(take.bounds, 0, table.layout.shape[0])
            elif index.size and (is_idle or not table.size):
                self._gather(take, index.ndim)(table, index)

    def _gather(self, take: TableLookup, ndim: int) -> Gather:
        """Return a gather that checks an index."""
        key, routine = (take.dtype, take.index_dtype, ndim), self._routine
        if key not in self._gathers:
            index = ((take.index_dtype, ndim),)
            self._gathers[key] = Gather(routine.context, take.dtype, 1, (0,), index, schedule=routine.schedule)
        self._gathers[key].set_error_flag(routine.error_flag, int(routine.number))
        return self._gathers[key]
