"""Rows of tables that a row kernel reads by an index, without a gathered copy."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.routines.base.routine import Checked
from pytensor_cl.routines.indexing.gather_rows import is_far
from pytensor_cl.routines.indexing.gather_scatter import Gather
from pytensor_cl.routines.rowwise.common import Variant
from pytensor_cl.routines.rowwise.program import RowFunction
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout


class GatheredRows:
    """The operands of a row function that are rows of tables; else they are gathered first.

    `routine`: owner of the error flag; `function`: its `gathers` name these operands, and the operand of the index;
    `operands`: numbers of the operands that are arrays; `struct`: struct of each table: the step from row to row, the
    number of rows, and whether rows are prefetched.
    """

    def __init__(self, routine: Checked, function: RowFunction, operands: Sequence[int]) -> None:
        self._routine = routine
        self._operands = function.operands
        self._gathered = [
            (operands.index(table), operands.index(index), table, index) for table, index in function.gathers
        ]
        count = max(1, len(self._gathered))
        self.struct = Struct(("long", f"step[{count}] length[{count}] is_far[{count}]"), name="gathers")
        self._gathers: dict[tuple[str, str], Gather] = {}

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._gathered)

    @property
    def arrays(self) -> list[tuple[int, int]]:
        """Numbers of the tables among the arrays of a kernel, each with the number of the operand that is its index."""
        return [(a, index) for a, _, _, index in self._gathered]

    def seen(self, layouts: Sequence[Layout]) -> list[Layout]:
        """Return the layouts of arrays, or operands, as if the rows had been gathered."""
        seen = list(layouts)
        for a, i, *_ in self._gathered:
            seen[a] = Layout.contiguous((*layouts[i].shape[:1], *layouts[a].shape[1:]))
        return seen

    def geometry(self, layouts: Sequence[Layout], variant: Variant) -> bytes | None:
        """Return the kernels' arguments for the tables; None where the rows must be gathered first.

        `variant`: the kernel that would read what was gathered.
        """
        if not all(variant.reads_rows(a) for a, *_ in self._gathered):
            return None
        steps, lengths, far = [], [], []
        for a, _, table, _ in self._gathered:
            (length, width), (step, inner) = layouts[a].shape, layouts[a].strides
            if not length or (inner != 1 and width > 1) or step < width:
                return None
            itemsize = np.dtype(self._operands[table].dtype).itemsize
            steps.append(step)
            lengths.append(length)
            far.append(int(is_far(length * width * itemsize, width * itemsize)))
        return self.struct.pack(step=steps, length=lengths, is_far=far) if steps else b""

    def arguments(self, geometry: bytes | None) -> tuple[Any, ...]:
        """Return the arguments of a kernel that come after those of `TableLookups`."""
        return () if geometry is None else (geometry,)

    def gathered(self, arrays: Sequence[GpuArray]) -> Iterator[tuple[int, GpuArray]]:
        """Yield the gathered rows, each with the number of its array."""
        for a, i, table, index in self._gathered:
            key = self._operands[table].dtype, self._operands[index].dtype
            if key not in self._gathers:
                routine = self._routine
                self._gathers[key] = Gather(routine.context, key[0], 2, (0,), ((key[1], 1),), schedule=routine.schedule)
            self._gathers[key].set_error_flag(self._routine.error_flag, int(self._routine.number))
            yield a, self._gathers[key](arrays[a], arrays[i])[0]
