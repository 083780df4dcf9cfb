"""The kernels of row functions, as rendered text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import WorkGroupLimits, power_of_two
from pytensor_cl.routines.indexing.table_lookup import TableLookups
from pytensor_cl.routines.rowwise.common import Array, Value, Variant
from pytensor_cl.routines.rowwise.gathered import GatheredRows
from pytensor_cl.routines.rowwise.limits import HELD_WORDS, MAX_HELD, MIN_HELD, MIN_RECOMPUTE_COST
from pytensor_cl.routines.rowwise.plan import geometry_struct
from pytensor_cl.routines.rowwise.program import ALWAYS_RECOMPUTE, Program, RowFunction, RowPass, accumulator


class RowKernels:
    """Renders the kernels of one row function on one device.

    A function has up to three programs, which differ in what later loops read back instead of computing it again:
    `cached` where the row is in the cache then, `uncached` where it is not, and one for tiles of columns.

    `operands`: numbers of the operands that are arrays; `arrays`: these, then the outputs; `scalars`: numbers of the
    others; `dims`: dimensions across and along rows that a kernel has.
    """

    def __init__(
        self,
        function: RowFunction,
        operands: list[int],
        dims: tuple[int, int],
        takes: TableLookups,
        gathered: GatheredRows,
        limits: WorkGroupLimits,
        *,
        schedule: str,
        has_fp64: bool,
    ) -> None:
        self.function, self.operands, self.dims, self.schedule = function, operands, dims, schedule
        self._takes, self._gathered, self._limits = takes, gathered, limits
        self.scalars = [k for k, operand in enumerate(function.operands) if operand.kind == "value"]
        self.cached = Program(function, has_fp64)
        self.uncached = Program(function, has_fp64, ALWAYS_RECOMPUTE)
        if schedule == "cpu":
            self._in_tiles = Program(function, has_fp64, MIN_RECOMPUTE_COST, spill_operands=True)
        self.lanes = 8 if function.itemsize == 8 else 16
        self.arrays = self._describe_arrays()
        self.passes = self.uncached.passes(1, 1)
        self.totals = [total for loop in self.passes for total in loop.totals]
        self.most_held = self._most_held() if schedule == "simt" else 0

    def _describe_arrays(self) -> tuple[Array, ...]:
        function = self.function
        read = (Array(f"x{k}", k, *function.operands[k], False) for k in self.operands)
        written = (
            Array(f"y{k}", v, function.kinds[v], function.dtypes[v], True) for k, v in enumerate(function.outputs)
        )
        return (*read, *written)

    def _most_held(self) -> int:
        """Return how many elements of a row a work-item of schedule simt may keep in registers; 0: not enough."""
        passes, dtypes = self.cached.passes(1, 1), self.function.dtypes
        reads = [v for loop in passes for v in loop.reads]
        kept = [*(v for v in dict.fromkeys(reads) if reads.count(v) > 1), *self.cached.spills]
        # A pass that writes loads what it alone reads when it is needed.
        loads = (sum(_words(dtypes[v]) for v in loop.reads if v not in kept) for loop in passes if not loop.writes)
        once = max(loads, default=0)
        words = once + sum(_words(dtypes[v]) for v in kept)
        most = min(MAX_HELD, power_of_two(HELD_WORDS // max(words, 1)))
        return most if words <= HELD_WORDS // MIN_HELD else 0

    def program(self, variant: Variant) -> Program:
        if not variant.is_cached:
            return self.uncached
        return self._in_tiles if variant.pattern == "columns" and not variant.tile else self.cached

    def source(self, variant: Variant, stage: int | None) -> KernelSource:
        program, is_simt = self.program(variant), self.schedule == "simt"
        lanes = 1 if is_simt else self.lanes
        is_across = variant.pattern == "columns"
        arrays = self.arrays
        if variant.access:
            arrays = tuple(a._replace(access=how) for a, how in zip(arrays, variant.access, strict=True))
        dtypes = self.function.dtypes
        vector = "[k]" if is_across and variant.tile_vectors > 1 else ""
        passes = program.passes(lanes, lanes if is_across else 1, vector)
        arguments: dict[str, Any] = {
            "arrays": arrays,
            "values": tuple(Value(f"c{k}", self.function.operands[k].dtype) for k in self.scalars),
            "passes": [_streaming(loop, arrays) if variant.pattern == "rows" else loop for loop in passes],
            "stage": stage,
            "row_values": self._row_values(program),
            "spills": tuple((v, dtypes[v]) for v in program.spills),
            "totals": self.totals,
            "tables": self.function.tables,
            "tables_struct": self._takes.struct,
            "geometry": geometry_struct(
                variant.index_type, self.dims, len(arrays), len(program.spills), len(self.totals)
            ),
            "index": variant.index_type,
            "outer_dims": self.dims[0],
            "reduced_dims": self.dims[1],
        }
        preambles = self._preambles(program, (1,) if is_simt else ((lanes,) if is_across else _halves(lanes)))
        if is_simt:
            # Intel's compiler for CPUs takes what is computed between two barriers for the same in all work-items.
            qualifier = "volatile " if self._limits.info.kind == "cpu" else ""
            arguments.update(group=self.group, row_qualifier=qualifier, along=variant.pattern == "rows")
            arguments.update(held=variant.held, load_lanes=variant.load_lanes)
            kinds = dict.fromkeys(render("common/warp_shuffle", dtype=total.acc_dtype) for total in self.totals)
            return kernel_source("rowwise/simt", preambles=(*kinds, *preambles), **arguments)
        arguments.update(pattern=variant.pattern, lanes=lanes)
        arguments.update(tile_vectors=variant.tile_vectors, is_narrow=variant.is_narrow)
        gathers = self._gathered.arrays if variant.is_gathered else []
        arguments.update(tile=variant.tile, gathers=gathers, gathers_struct=self._gathered.struct)
        used = dict.fromkeys(a.dtype for a in arrays)
        access = tuple(render("common/vector_access", dtype=dtype, lanes=lanes) for dtype in used)
        more: tuple[str, ...] = ()
        if gathers:
            more = (render("runtime/error_flag"), render("common/to_long"), render("common/prefetch_row"))
        return kernel_source(
            "rowwise/cpu",
            preambles=(*access, *self._blocks(variant), *more, render("common/non_temporal"), *preambles),
            **arguments,
        )

    def _blocks(self, variant: Variant) -> tuple[str, ...]:
        """Return the functions that turn blocks of rows."""
        arrays = [a for a, how in enumerate(variant.access) if how == "tile"]
        picked = [a for a, _ in self._gathered.arrays] if variant.is_gathered else []
        dtypes = {self.arrays[a].dtype: False for a in arrays}
        dtypes.update((self.arrays[a].dtype, True) for a in picked if a in arrays)
        sizes = {"lanes": self.lanes, "tile": variant.tile}
        return tuple(
            render("rowwise/transpose_tile", dtype=dtype, is_gathered_tile=some, **sizes)
            for dtype, some in dtypes.items()
        )

    def _row_values(self, program: Program) -> tuple[tuple[int, str], ...]:
        read = (k for k in self.operands if self.function.operands[k].kind == "row")
        return tuple((v, self.function.dtypes[v]) for v in (*read, *program.row_values))

    def _preambles(self, program: Program, sizes: tuple[int, ...]) -> tuple[str, ...]:
        found = dict.fromkeys(text for f in program.element_functions() for text in f.preambles)
        for fold in (False, True) if 1 in sizes else (False,):
            found.update(dict.fromkeys(accumulator(total, n, fold) for total in self.totals for n in sizes))
        return tuple(found)

    @property
    def group(self) -> int:
        """Work-items of a work-group on schedule simt; each has 1.5 accumulators of each kind in local memory."""
        if self.schedule == "cpu":
            return 1
        kinds = {t.accumulator: np.dtype(t.acc_dtype).itemsize * (2 if t.compensation else 1) for t in self.totals}
        return self._limits.size(GROUP_ITEMS, 3 * sum(kinds.values()) // 2 + len(kinds))


def _streaming(loop: RowPass, arrays: Sequence[Array]) -> RowPass:
    """Say which array of a loop along rows decides where its stores may go past the cache."""
    written = {f"y{o}" for o, _ in loop.writes}
    streamed = (k for k, array in enumerate(arrays) if array.name in written and array.access == "unit")
    return loop._replace(streamed=next(streamed, None))


def _words(dtype: str) -> int:
    """Return the registers that an element takes."""
    return ceil_div(np.dtype(dtype).itemsize, 4)


def _halves(lanes: int) -> tuple[int, ...]:
    return tuple(1 << k for k in range(lanes.bit_length()))
