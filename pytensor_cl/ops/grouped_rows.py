"""Row functions of gathered columns whose results are added up by groups."""

from collections.abc import Iterator, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable

from pytensor_cl.ops.base import ANY, GpuOp, Routine
from pytensor_cl.ops.indexing.gather_scatter import index_arguments
from pytensor_cl.ops.names import Show
from pytensor_cl.ops.rowwise import DROPPED, VALUE, GpuRowwise, step_names
from pytensor_cl.routines.grouped_rows.routine import GroupedRows, Groups, TableFunction
from pytensor_cl.runtime.context import Context
from pytensor_cl.type import GpuArrayType

Pairs = tuple[tuple[int, int], ...]
Functions = tuple[tuple[int, GpuRowwise, int], ...]


class GpuGroupedRows(GpuOp):
    """A row function along the last axis of matrices, with the gathers before it and the scatter-adds after it.

    The inputs are the operands of the row function, with a table ``x`` for each operand ``x[:, index]``, then the index
    vectors, then a matrix for each output that is scattered, to which it is added. A table that is a function is given
    as one of its operands; the others of these come last. `gathers` and `scatters` pair operands and outputs with the
    number of their index. `functions` has, for each table that is one, the function, the number of the gather, and the
    operand that is given in place of the table.
    """

    __props__ = ("rows", "gathers", "scatters", "functions", "context_name")
    checks_data = True

    def __init__(
        self, rows: GpuRowwise, gathers: Pairs, scatters: Pairs, functions: Functions, context_name: str
    ) -> None:
        self.rows = rows
        self.gathers = gathers
        self.scatters = scatters
        self.functions = functions
        self.context_name = context_name

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        around = [f"{len(self.gathers)} gathered"] * bool(self.gathers)
        around += [f"{len(self.scatters)} scattered"] * bool(self.scatters)
        return f"GpuGroupedRows{{{', '.join(around)}: {step_names(self.rows.function, show)}}}"

    def placement_of(self, index: int) -> str:
        """Inputs keep the placements of the replaced nodes."""
        return ANY

    def split[T](self, inputs: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        """Return operands, indices and bases."""
        first = len(self.rows.function.operands)
        end = len(inputs) - sum(len(op.function.operands) - 1 for _, op, _ in self.functions)
        last = end - len(self.scatters)
        return inputs[:first], inputs[first:last], inputs[last:end]

    def _row_node(self, inputs: Sequence[Variable]) -> Apply:
        """Return a node of the row function, with variables in place of the gathered rows."""
        operands, indices, _ = self.split(inputs)
        seen = list(operands)
        for k, index in self.gathers:
            kind = seen[k].type
            seen[k] = GpuArrayType(kind.dtype, (kind.shape[0], *indices[index].type.shape), self.context_name)()
        return self.rows.make_node(*seen)

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; inputs keep the placements of the replaced nodes."""
        types = [v.type for v in self._row_node(inputs).outputs]
        for (k, _), base in zip(self.scatters, self.split(inputs)[2], strict=True):
            types[k] = base.type
        return self.apply(inputs, types)

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shapes that the row function infers, and the shapes of the matrices that are added to."""
        operands, indices, bases = self.split(shapes)
        seen = list(operands)
        for k, index in self.gathers:
            seen[k] = (seen[k][0], *indices[index])
        found = list(self.rows.infer_shape(self._row_node(node.inputs), seen))
        for (k, _), base in zip(self.scatters, bases, strict=True):
            found[k] = base
        return found

    def _table_functions(self, inputs: Sequence[Variable]) -> Iterator[tuple[int, TableFunction]]:
        """Yield the functions of tables, each with the number of the gather."""
        first = len(inputs) - sum(len(op.function.operands) - 1 for _, op, _ in self.functions)
        for g, op, source in self.functions:
            last = first + len(op.function.operands) - 1
            operands = list(inputs[first:last])
            operands.insert(source, inputs[self.gathers[g][0]])
            known = tuple(tuple(v.type.broadcastable) for v in operands)
            yield g, TableFunction(op.function, source, tuple(form == DROPPED for form in op.forms), known)
            first = last

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        indices = self.split(node.inputs)[1]
        kinds, bounds, is_constant = index_arguments(indices)
        dtypes = tuple(kind[0] for kind in kinds if kind is not None)
        functions = tuple(self._table_functions(node.inputs))
        groups = Groups(dtypes, tuple(bounds), is_constant, self.gathers, self.scatters, functions)
        operands = zip(self._row_node(node.inputs).inputs, self.rows.forms, strict=False)
        return GroupedRows(
            context,
            self.rows.function,
            groups,
            tuple(form == DROPPED for form in self.rows.forms),
            tuple(() if form == VALUE else v.type.broadcastable for v, form in operands),
        )
