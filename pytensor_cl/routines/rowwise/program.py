"""The loops of a row kernel and their OpenCL C: text without a device.

A row function has values of two kinds, full ones (an element for each position of a row) and row ones (an
element for each row). A reduction makes a row value of a full one, and ends a loop over the row: full values
that need its result belong to the next loop.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import literal, vector_type
from pytensor_cl.codegen.emitter import unroll_of
from pytensor_cl.codegen.template import render
from pytensor_cl.routines.elemwise.routine import ElementFunction
from pytensor_cl.routines.indexing.table_lookup import TableLookup
from pytensor_cl.routines.reduction.routine import OPERATIONS
from pytensor_cl.routines.rowwise.limits import MIN_RECOMPUTE_COST

ALWAYS_RECOMPUTE = 1 << 30
"""A cost that no value has."""


class Operand(NamedTuple):
    """An input.

    `kind`: ``"full"``, ``"row"``, or ``"value"`` for a NumPy scalar.
    """

    kind: str
    dtype: str


class Map(NamedTuple):
    """An element function of earlier values, of one output.

    `inputs`: numbers of the values: operands first, then steps; `name`: for the user; `is_full`: whether the value is a
    full one even where the inputs are not; `is_positive`: whether no element is negative, so that a sum cancels
    nothing.
    """

    function: ElementFunction
    inputs: tuple[int, ...]
    cost: int = 1
    name: str = ""
    is_full: bool = False
    is_positive: bool = False


class Reduce(NamedTuple):
    """A reduction of a full value to a row value.

    `operation`: a key of `routines.reduction.OPERATIONS`; `source`: number of the value; `acc_dtype`, `dtype`: dtypes
    of the accumulator and of the result; `initial`: whether the reduction of nothing is the identity, not an error.
    """

    operation: str
    source: int
    acc_dtype: str
    dtype: str
    initial: bool = False


@dataclass(frozen=True)
class RowFunction:
    """A function of the rows of some arrays."""

    operands: tuple[Operand, ...]  # the inputs
    steps: tuple[Map | Reduce, ...]
    outputs: tuple[int, ...]  # numbers of the values that are written, of either kind
    # dtypes of the one-dimensional arrays in which steps look things up; see `routines.take`
    tables: tuple[str, ...] = ()
    # full operands that are rows of tables, each with the operand that has the row indices; see `gathered`
    gathers: tuple[tuple[int, int], ...] = ()

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each value."""
        kinds = [operand.kind for operand in self.operands]
        for step in self.steps:
            is_full = isinstance(step, Map) and (step.is_full or any(kinds[i] == "full" for i in step.inputs))
            kinds.append("full" if is_full else "row")
        return tuple(kinds)

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """Dtype of each value."""
        made = (s.dtype if isinstance(s, Reduce) else s.function.output_dtypes[0] for s in self.steps)
        return (*(operand.dtype for operand in self.operands), *made)

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """Number of the loop in which each value can first be had: how many reductions it waits for in turn."""
        stages = [0] * len(self.operands)
        for step in self.steps:
            if isinstance(step, Reduce):
                stages.append(stages[step.source] + 1)
            else:
                stages.append(max((stages[i] for i in step.inputs), default=0))
        return tuple(stages)

    @property
    def takes(self) -> list[tuple[int, TableLookup]]:
        """The lookups, each with the number of the value that is the index."""
        maps = (step for step in self.steps if isinstance(step, Map))
        return [(step.inputs[0], step.function) for step in maps if isinstance(step.function, TableLookup)]

    @property
    def itemsize(self) -> int:
        """Bytes of the widest full value that is not only an index of a lookup."""
        places = {place for place, _ in self.takes}
        full = (dtype for k, dtype in enumerate(self.dtypes) if self.kinds[k] == "full" and k not in places)
        return max((np.dtype(dtype).itemsize for dtype in full), default=4)

    @property
    def row_cost(self) -> int:
        """Cost of all row values, without reductions."""
        kinds = self.kinds[len(self.operands) :]
        return sum(s.cost for s, kind in zip(self.steps, kinds, strict=True) if kind == "row" and isinstance(s, Map))

    def step(self, value: int) -> Map | Reduce | None:
        """Return the step that computes a value; None for an operand."""
        return self.steps[value - len(self.operands)] if value >= len(self.operands) else None


class Total(NamedTuple):
    """A reduction as the kernels see it.

    `value`: number of the row value that it makes; `operation`: a key of `routines.reduction.OPERATIONS`; `source`:
    name of the full value; `source_dtype`, `acc_dtype`, `dtype`: dtypes of that value, of the accumulator and of the
    result; `accumulator`: prefix of its C functions; `compensation`: method that carries the rounding error along, or
    None; `identity`: literal of `source_dtype` that changes nothing; `is_blocked`: whether a few elements may be added
    in float32 before they are in the accumulator, which takes a third of a softmax: positive numbers lose nothing that
    the result, in float32, would show.
    """

    value: int
    operation: str
    source: str
    source_dtype: str
    acc_dtype: str
    dtype: str
    accumulator: str
    compensation: str | None
    identity: str
    is_blocked: bool = False


class RowPass(NamedTuple):
    """One pass over a row, and the row values that are computed before it.

    `results`: reductions of the loop before, whose results are needed first; `row_code`: statements that compute row
    values; `reads`: numbers of the operands that it loads; `code`: statements that compute full values; `writes`:
    numbers of the outputs that it stores, with the names of their values; `reloads`, `spills`: full values that it
    reads back, or puts aside for a later loop; `streamed`: number of the array, among those of the kernel, whose stores
    may go past the cache; others follow it; `unroll`: number of elements that a work-item of schedule simt loads before
    it computes.
    """

    results: tuple[Total, ...]
    row_code: str
    reads: tuple[int, ...]
    code: str
    totals: tuple[Total, ...]
    writes: tuple[tuple[int, str], ...]
    reloads: tuple[int, ...]
    spills: tuple[int, ...]
    streamed: int | None = None
    unroll: int = 1

    @property
    def is_empty(self) -> bool:
        """Whether the loop does nothing for the elements of a row."""
        return not self.totals and not self.writes


@dataclass
class _LoopNeeds:
    """Needs of a loop: values to read, compute, reload and spill, collected before its text is written."""

    reads: dict[int, None] = field(default_factory=dict)
    computes: set[int] = field(default_factory=set)
    reloads: dict[int, None] = field(default_factory=dict)
    spills: dict[int, None] = field(default_factory=dict)


class Program:
    """The passes of a row function.

    `has_fp64`: whether sums in float64 are; else float32 carries the rounding error along. `spill_operands`: whether
    full operands are put aside too, one element after the other.
    """

    def __init__(
        self,
        function: RowFunction,
        has_fp64: bool,
        cost_limit: int = MIN_RECOMPUTE_COST,
        *,
        spill_operands: bool = False,
    ) -> None:
        self.function = function
        self._has_fp64 = has_fp64
        self._cost_limit = cost_limit
        self._spill_operands = spill_operands
        self._loops = [_LoopNeeds() for _ in range(1 + max(function.stages[v] for v in self._live()))]
        self._computed_in: dict[int, int] = {}
        for number, loop in enumerate(self._loops):
            for root in self._roots(number):
                self._require(root, number, loop)
        self.spills = tuple(v for loop in self._loops for v in loop.spills)

    def _live(self) -> set[int]:
        """Return the values that outputs depend on."""
        function, live = self.function, set(self.function.outputs)
        for value in sorted(range(len(function.dtypes)), reverse=True):  # steps read earlier values only
            step = function.step(value)
            if value in live and step is not None:
                live.update((step.source,) if isinstance(step, Reduce) else step.inputs)
        return live

    def _reductions(self, number: int) -> list[int]:
        """Return the row values that loop `number` makes."""
        first, live = len(self.function.operands), self._live()
        return [
            first + k
            for k, step in enumerate(self.function.steps)
            if isinstance(step, Reduce) and first + k in live and self.function.stages[step.source] == number
        ]

    def _full_outputs(self, number: int) -> list[int]:
        function = self.function
        return [
            k for k, v in enumerate(function.outputs) if function.kinds[v] == "full" and function.stages[v] == number
        ]

    def _roots(self, number: int) -> Iterable[int]:
        for value in self._reductions(number):
            step = self.function.step(value)
            assert isinstance(step, Reduce)
            yield step.source
        yield from (self.function.outputs[k] for k in self._full_outputs(number))

    @cached_property
    def _costs(self) -> list[int]:
        """Cost of each full value from the operands."""
        function = self.function
        costs = [0] * len(function.operands)
        for step in function.steps:
            is_full = isinstance(step, Map) and function.kinds[len(costs)] == "full"
            inputs = {i: costs[i] for i in step.inputs} if isinstance(step, Map) else {}
            costs.append(step.cost + sum(inputs.values()) if isinstance(step, Map) and is_full else 0)
        return costs

    def _require(self, value: int, number: int, loop: _LoopNeeds) -> None:
        """Note what loop `number` must do to have a full value."""
        function, step = self.function, self.function.step(value)
        if function.kinds[value] != "full" or value in loop.computes or value in loop.reloads:
            return
        before = self._computed_in.setdefault(value, number)
        is_expensive = self._spill_operands if step is None else self._costs[value] >= self._cost_limit
        # An earlier loop has the value. Reading it back from the cache takes less time than an expensive computation.
        if before < number and is_expensive:
            self._loops[before].spills[value] = None
            loop.reloads[value] = None
            return
        if step is None:
            loop.reads[value] = None
            return
        loop.computes.add(value)
        assert isinstance(step, Map)
        for i in step.inputs:
            self._require(i, number, loop)

    # Writing

    def total(self, value: int) -> Total:
        """Return the reduction that makes a row value."""
        step = self.function.step(value)
        assert isinstance(step, Reduce)
        source_dtype, acc = self.function.dtypes[step.source], np.dtype(step.acc_dtype)
        is_narrowed = acc == "float64" and not self._has_fp64
        operation = OPERATIONS[step.operation]
        if acc.kind == "b":
            operation = OPERATIONS[operation.boolean]
        compensation = operation.compensation if is_narrowed else None
        acc_dtype = "float32" if is_narrowed else str(acc)
        name = f"rows_{step.operation}_{acc_dtype}{'_pair' if compensation else ''}"
        identity = operation.identity(np.dtype(source_dtype))
        return Total(
            value,
            step.operation,
            f"v{step.source}",
            source_dtype,
            acc_dtype,
            step.dtype,
            name,
            compensation,
            literal(identity, source_dtype),
            self._is_blocked(step) and acc_dtype == "float64",
        )

    def _is_blocked(self, reduce: Reduce) -> bool:
        source = self.function.step(reduce.source)
        is_positive = isinstance(source, Map) and source.is_positive
        is_narrow = self.function.dtypes[reduce.source] == reduce.dtype == "float32"
        return is_positive and is_narrow and reduce.operation == "add"

    def passes(self, lanes: int, row_lanes: int, row_index: str = "") -> list[RowPass]:
        """Return the passes as text.

        `lanes`: lanes of a full value; `row_lanes`: lanes of a row value: the same, or 1; `row_index`: subscript of the
        variables that hold row values.
        """
        writer = _Writer(self.function, lanes, row_lanes, row_index)
        passes: list[RowPass] = []
        for number, loop in enumerate(self._loops):
            rows = [v for v in sorted(self._live()) if self._is_row_map(v, number)]
            passes.append(
                RowPass(
                    passes[-1].totals if passes else (),
                    "\n".join(writer.row(v) for v in rows),
                    tuple(loop.reads),
                    "\n".join(writer.full(v) for v in sorted(loop.computes)),
                    tuple(map(self.total, self._reductions(number))),
                    tuple((k, f"v{self.function.outputs[k]}") for k in self._full_outputs(number)),
                    tuple(loop.reloads),
                    tuple(loop.spills),
                    unroll=unroll_of(sum(map(self._operations, loop.computes))),
                )
            )
        return passes

    def _operations(self, value: int) -> int:
        """Statements that compute a full value: it, those of its function, and one for each input."""
        step = self.function.step(value)
        assert isinstance(step, Map)
        return 3 + len(step.inputs) + step.function.operations

    def _is_row_map(self, value: int, number: int) -> bool:
        function = self.function
        is_map = isinstance(function.step(value), Map)
        return is_map and function.kinds[value] == "row" and function.stages[value] == number

    @property
    def row_values(self) -> list[int]:
        """Row values that are computed, each of which needs a variable."""
        first = len(self.function.operands)
        return [v for v in sorted(self._live()) if v >= first and self.function.kinds[v] == "row"]

    def element_functions(self) -> Iterable[ElementFunction]:
        """Yield the functions of all steps."""
        return (step.function for step in self.function.steps if isinstance(step, Map))


class _Writer:
    """Writes single values."""

    def __init__(self, function: RowFunction, lanes: int, row_lanes: int, row_index: str) -> None:
        self._function = function
        self._lanes = lanes
        self._row_lanes = row_lanes
        self._row_index = row_index

    def _name(self, value: int, lanes: int) -> str:
        kind = self._function.kinds[value]
        if kind == "full":
            return f"v{value}"
        name = f"c{value}" if kind == "value" else f"r{value}{self._row_index}"
        have = 1 if kind == "value" else self._row_lanes
        return name if have == lanes else f"({vector_type(self._function.dtypes[value], lanes)})({name})"

    def _assign(self, target: str, value: int, lanes: int) -> str:
        step = self._function.step(value)
        assert isinstance(step, Map)
        dtypes = self._function.dtypes
        inputs = (
            f"const {vector_type(dtypes[v], lanes)} i{k} = {self._name(v, lanes)};" for k, v in enumerate(step.inputs)
        )
        result = f"{vector_type(dtypes[value], lanes)} o0;"
        return "\n".join(("{", *inputs, result, step.function.statements(lanes), f"{target} = o0;", "}"))

    def full(self, value: int) -> str:
        return f"{vector_type(self._function.dtypes[value], self._lanes)} v{value};\n" + self._assign(
            f"v{value}", value, self._lanes
        )

    def row(self, value: int) -> str:
        """Write a row value; one that takes long is computed in all lanes on PoCL, which has no fast code for one."""
        step, target = self._function.step(value), f"r{value}{self._row_index}"
        assert isinstance(step, Map)
        plain = self._assign(target, value, self._row_lanes)
        if step.cost < MIN_RECOMPUTE_COST or isinstance(step.function, TableLookup) or self._row_lanes == self._lanes:
            return plain
        vector = vector_type(self._function.dtypes[value], self._lanes)
        lines = "{", f"{vector} all;", self._assign("all", value, self._lanes), f"{target} = all.s0;", "}"
        return "\n".join(("#ifdef POCL_DEVICE_ADDRESS_BITS", *lines, "#else", plain, "#endif"))


def accumulator(total: Total, lanes: int, fold: bool) -> str:
    """Return the C functions on accumulators of one kind, or (fold) what puts their lanes together.

    It is a text of its own, since a program holds each text once.
    """
    dtype = np.dtype(total.acc_dtype)
    operation = OPERATIONS[total.operation]
    if dtype.kind == "b":
        operation = OPERATIONS[operation.boolean]
    return render(
        "rowwise/accumulator",
        name=total.accumulator,
        acc_dtype=total.acc_dtype,
        in_dtype=total.acc_dtype,
        out_dtype=total.acc_dtype,
        combine=operation.real if dtype.kind == "f" else operation.combine,
        identity=literal(operation.identity(dtype), dtype),
        compensation=total.compensation,
        pair_in=bool(total.compensation),
        pair_out=bool(total.compensation),
        unit=True,
        index="long",
        lanes=lanes,
        fold=fold,
    )
