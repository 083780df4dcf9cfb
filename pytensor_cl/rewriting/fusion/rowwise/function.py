"""Nodes of a row fusion -> the row function that computes the same."""

from typing import Any, NamedTuple

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.elemwise import GpuElemwise, is_by_value
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor, index_arguments
from pytensor_cl.ops.reduction import OPERATIONS, GpuCAReduce
from pytensor_cl.ops.rowwise import FULL, GATHERED, TABLE, VALUE, GpuRowwise
from pytensor_cl.ops.shape import GpuDimShuffle
from pytensor_cl.rewriting.fusion.replace import replace_outputs
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain
from pytensor_cl.routines.indexing.table_lookup import TableLookup
from pytensor_cl.routines.rowwise.program import Map, Operand, Reduce, RowFunction
from pytensor_cl.scalar.base import element_function

# Scalar Ops of few instructions. Those that are in no list cost _HIGH_COST.
_CHEAP = (
    ps.Abs,
    ps.Add,
    ps.AND,
    ps.Cast,
    ps.EQ,
    ps.GE,
    ps.GT,
    ps.Identity,
    ps.Invert,
    ps.IsInf,
    ps.IsNan,
    ps.LE,
    ps.LT,
    ps.Maximum,
    ps.Minimum,
    ps.Mul,
    ps.Neg,
    ps.NEQ,
    ps.OR,
    ps.Second,
    ps.Sqr,
    ps.Sub,
    ps.Switch,
)
_MEDIUM = (ps.TrueDiv, ps.Reciprocal, ps.Sqrt, ps.Sign, ps.Clip, ps.Floor, ps.Ceil)
_MEDIUM_COST, _HIGH_COST = 4, 10
_LOOKUP_COST = _HIGH_COST  # the element may be anywhere in memory
_POSITIVE = (ps.Abs, ps.Exp, ps.Sqr)


def cost_of(op: ps.ScalarOp) -> int:
    """Return the approximate time of a scalar Op, in additions."""
    if isinstance(op, ps.Composite):
        return sum(cost_of(node.op) for node in op.fgraph.apply_nodes)
    if isinstance(op, _CHEAP):
        return 1
    return _MEDIUM_COST if isinstance(op, _MEDIUM) else _HIGH_COST


class _Known(NamedTuple):
    """A constant, as an input of a scalar Op."""

    constant: ps.ScalarConstant


class _RowFunctionBuilder:
    """Collects the operands and steps of a row function."""

    def __init__(self, domain: FusionDomain) -> None:
        self._domain = domain
        self._kinds: list[str] = []
        self.operands: dict[Variable, Operand] = {}
        self.tables: dict[Variable, int] = {}
        self.gathered: dict[Variable, Apply] = {}
        self.steps: list[Map | Reduce] = []
        self.values: dict[Any, int | _Known] = {}

    def read(self, variable: Variable, kind: str) -> None:
        """Add an operand; operands are numbered before the steps."""
        if variable not in self.operands:
            self.values[variable] = len(self.operands)
            self.operands[variable] = Operand(kind, variable.type.dtype)
            self._kinds.append(kind)

    def _add(self, step: Map | Reduce) -> int:
        is_full = isinstance(step, Map) and (step.is_full or any(self._kinds[i] == "full" for i in step.inputs))
        self.steps.append(step)
        self._kinds.append("full" if is_full else "row")
        return len(self._kinds) - 1

    def elemwise(self, node: Apply) -> None:
        """Add the steps of an elementwise node, one for each scalar Op in it."""
        inputs = [self.values[v] for v in node.inputs]
        dtypes = [v.type.dtype for v in node.inputs]
        results = self._scalar(node.op.host.scalar_op, inputs, dtypes, [v.type.dtype for v in node.outputs])
        is_full = self._domain.output_form(node.outputs[0]) == FULL
        for variable, result in zip(node.outputs, results, strict=True):
            self.values[variable] = self._as_array(result, variable.type.dtype, is_full=is_full)

    def _as_array(self, value: int | _Known, dtype: str, *, is_full: bool) -> int:
        """Return a result of an elementwise node as a full or a row value.

        A result of a Composite may depend on row values only.
        """
        kind = None if isinstance(value, _Known) else self._kinds[value]
        if isinstance(value, int) and kind == ("full" if is_full else "row"):
            return value
        same = self._map(ps.identity, [value], [dtype], [dtype])
        step = self.steps[-1]
        if is_full and isinstance(step, Map):
            self.steps[-1] = step._replace(is_full=True)
            self._kinds[-1] = "full"
        return same

    def _scalar(
        self, op: ps.ScalarOp, inputs: list[int | _Known], dtypes: list[str], out_dtypes: list[str]
    ) -> list[int | _Known]:
        if not isinstance(op, ps.Composite):
            return [self._map(op, inputs, dtypes, out_dtypes)]
        inner: dict[Any, int | _Known] = dict(zip(op.fgraph.inputs, inputs, strict=True))

        def value_of(variable: Any) -> int | _Known:
            return inner[variable] if variable in inner else _Known(variable)

        for node in op.fgraph.toposort():
            found = self._scalar(
                node.op,
                [value_of(v) for v in node.inputs],
                [v.type.dtype for v in node.inputs],
                [v.type.dtype for v in node.outputs],
            )
            inner.update(zip(node.outputs, found, strict=True))
        return [value_of(v) for v in op.fgraph.outputs]

    def _map(self, op: ps.ScalarOp, inputs: list[int | _Known], dtypes: list[str], out_dtypes: list[str]) -> int:
        free = [(v, t) for v, t in zip(inputs, dtypes, strict=True) if not isinstance(v, _Known)]
        partial = op
        if len(free) < len(inputs):  # a constant inside a Composite is known where the code is written
            arguments = [
                v.constant if isinstance(v, _Known) else ps.get_scalar_type(t)()
                for v, t in zip(inputs, dtypes, strict=True)
            ]
            open_inputs = [a for a, v in zip(arguments, inputs, strict=True) if not isinstance(v, _Known)]
            partial = ps.Composite(open_inputs, op.make_node(*arguments).outputs)
        function = element_function(partial, [t for _, t in free], out_dtypes)
        is_positive = isinstance(op, _POSITIVE)
        return self._add(Map(function, tuple(v for v, _ in free), cost_of(op), str(op), is_positive=is_positive))

    def reduction(self, node: Apply) -> None:
        """Add the step of a reduction."""
        host, dtype = node.op.host, node.outputs[0].type.dtype
        source = self.values[node.inputs[0]]
        assert isinstance(source, int)
        operation = OPERATIONS[type(host.scalar_op).__name__]
        initial = bool(getattr(host, "initial", False))
        shift = self._shift_of_maximum(operation, source)
        if shift is not None:
            self.values[node.outputs[0]] = self._map(ps.sub, [shift, shift], [dtype, dtype], [dtype])
            return
        self.values[node.outputs[0]] = self._add(Reduce(operation, source, host.acc_dtype or dtype, dtype, initial))

    def lookup(self, node: Apply) -> None:
        """Add a table lookup; gathered rows are an operand already."""
        if node.outputs[0] in self.gathered:
            return
        table, index = node.inputs
        ((bounds,), at) = index_arguments([index])[1], self.values[index]
        assert isinstance(at, int)
        number = self.tables.setdefault(table, len(self.tables))
        function = TableLookup(number, table.type.dtype, index.type.dtype, bounds)
        self.values[node.outputs[0]] = self._add(Map(function, (at,), _LOOKUP_COST, "take"))

    def _shift_of_maximum(self, operation: str, source: int) -> int | None:
        """Return ``m`` for the maximum of ``x - m`` where ``m`` is the maximum of ``x``: the result is ``m - m``.

        PyTensor's softmax subtracts the maximum; a graph that does so too has such a reduction. Infinities and NaN give
        the same result.
        """
        first = len(self.operands)
        step = self.steps[source - first] if source >= first else None
        if operation != "maximum" or not isinstance(step, Map) or step.name != str(ps.sub) or len(step.inputs) != 2:
            return None
        of, by = step.inputs
        other = self.steps[by - first] if by >= first else None
        is_shift = isinstance(other, Reduce) and (other.operation, other.source) == (operation, of)
        return by if is_shift and set(step.function.input_dtypes) <= {"float32", "float64"} else None

    def function(self, outputs: list[Variable]) -> RowFunction:
        """Return the function of all steps."""
        numbers = (self.values[v] for v in outputs)
        operands = tuple(self.operands.values())
        tables = tuple(v.type.dtype for v in self.tables)
        order = list(self.operands)
        gathers = tuple((order.index(v), order.index(node.inputs[1])) for v, node in self.gathered.items())
        return RowFunction(
            operands, tuple(self.steps), tuple(n for n in numbers if isinstance(n, int)), tables, gathers
        )

    def view(self, node: Apply) -> None:
        """Use the source's value: a view of a row value has the same elements."""
        self.values[node.outputs[0]] = self.values[node.inputs[0]]


_ADD = {
    GpuAdvancedSubtensor: _RowFunctionBuilder.lookup,
    GpuCAReduce: _RowFunctionBuilder.reduction,
    GpuDimShuffle: _RowFunctionBuilder.view,
    GpuElemwise: _RowFunctionBuilder.elemwise,
}


def _operands_of(node: Apply) -> list[Variable]:
    """Return the inputs of a node that are operands; the first input of a gather is a table."""
    return node.inputs[1:] if isinstance(node.op, GpuAdvancedSubtensor) else node.inputs


def fused_node(nodes: list[Apply], outputs: list[Variable], domain: FusionDomain) -> Apply:
    """Return one node that computes `outputs` of several nodes, which are in topological order."""
    builder, made = _RowFunctionBuilder(domain), {v for node in nodes for v in node.outputs}
    for node in nodes:
        if isinstance(node.op, GpuAdvancedSubtensor) and node.inputs[0].type.ndim > 1:
            builder.gathered[node.outputs[0]] = node
            builder.read(node.outputs[0], FULL)
        for variable in _operands_of(node):
            if isinstance(variable, Constant) and is_by_value(variable):
                builder.values[variable] = _Known(
                    ps.ScalarConstant(ps.get_scalar_type(variable.type.dtype), variable.data[()])
                )
            elif variable not in made:
                form = domain.form(variable)
                builder.read(variable, form if form in (FULL, VALUE) else "row")
    for node in nodes:
        _ADD[type(node.op)](builder, node)
    gathered = builder.gathered
    operands = [GATHERED if v in gathered else str(domain.form(v)) for v in builder.operands]
    forms = (*operands, *(TABLE for _ in builder.tables), *(str(domain.form(v)) for v in outputs))
    op = GpuRowwise(builder.function(outputs), domain.ndim, domain.axes, forms, domain.context_name)
    return op.make_node(*(gathered[v].inputs[0] if v in gathered else v for v in builder.operands), *builder.tables)


def fuse(fgraph: FunctionGraph, nodes: list[Apply], outputs: list[Variable], domain: FusionDomain, reason: str) -> None:
    """Replace several nodes, which are in topological order, by one that computes `outputs`."""
    replace_outputs(fgraph, outputs, fused_node(nodes, outputs, domain).outputs, reason)
