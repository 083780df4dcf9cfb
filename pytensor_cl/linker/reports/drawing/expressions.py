"""The scalar expressions that fused kernels compute, as lines of text."""

from collections.abc import Iterable, Sequence
from typing import Any

from pytensor import scalar as ps

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.epilogue import GpuEpilogue
from pytensor_cl.ops.gemv_pair import GpuGemvPair
from pytensor_cl.ops.grouped_rows import GpuGroupedRows
from pytensor_cl.ops.indexing.gather_fused import GpuFusedGather
from pytensor_cl.ops.join import GpuJoinedElemwise
from pytensor_cl.ops.names import short_name
from pytensor_cl.ops.rowwise import GpuRowwise
from pytensor_cl.routines.rowwise.program import Reduce, RowFunction

_SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "true_div": "/",
    "int_div": "//",
    "pow": "**",
    "lt": "<",
    "gt": ">",
    "le": "<=",
    "ge": ">=",
    "eq": "==",
    "neq": "!=",
    "and": "&",
    "or": "|",
}
_REDUCTIONS = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min", "and": "all", "or": "any"}


def _call(name: str, arguments: Sequence[str]) -> str:
    sign = _SIGNS.get(name.lower())
    if sign and len(arguments) > 1:
        return f" {sign} ".join(arguments)
    return f"{name}({', '.join(arguments)})"


class _Lines:
    """Statements, each of which assigns one value; the values are numbered in the order of computation."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def assign(self, text: str) -> str:
        """Add a statement and return the name of its value."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def scalar(self, op: ps.ScalarOp, arguments: Sequence[str]) -> list[str]:
        """Add the statements of a scalar Op and return the names of its results."""
        if not isinstance(op, ps.Composite):
            return [self.assign(_call(str(op), arguments))]
        names: dict[Any, str] = dict(zip(op.fgraph.inputs, arguments, strict=True))

        def name(variable: Any) -> str:
            return names[variable] if variable in names else _constant(variable)

        for node in op.fgraph.toposort():
            names.update(zip(node.outputs, self.scalar(node.op, list(map(name, node.inputs))), strict=True))
        return [name(v) for v in op.fgraph.outputs]

    def rows(self, function: RowFunction, arguments: Sequence[str]) -> list[str]:
        """Add the statements of a function of rows and return the names of its results."""
        names = list(arguments)
        for step in function.steps:
            if isinstance(step, Reduce):
                operation = _REDUCTIONS.get(step.operation, step.operation)
                names.append(self.assign(f"{operation} of {names[step.source]} along the row"))
                continue
            taken = [names[k] for k in step.inputs]
            op = getattr(step.function, "scalar_op", None)
            names.append(self.scalar(op, taken)[0] if op is not None else self.assign(_call(step.name, taken)))
        return [names[k] for k in function.outputs]

    def end(self, results: Iterable[str]) -> list[str]:
        """Return the statements."""
        return [*self.lines, f"results: {', '.join(results)}"]


def _constant(variable: Any) -> str:
    data = getattr(variable, "data", None)
    return str(variable) if data is None else f"{data:.6g}" if isinstance(data, float) else str(data)


def _rows(op: Any, names: Sequence[str]) -> list[str]:
    made = _Lines()
    return made.end(made.rows(op.function, names[: len(op.function.operands)]))


def _grouped(op: Any, names: Sequence[str]) -> list[str]:
    made = _Lines()
    gathered = {k for k, _ in op.gathers}
    operands = [f"rows of {name}" if k in gathered else name for k, name in enumerate(op.split(names)[0])]
    return made.end(made.rows(op.rows.function, operands))


def _pair(op: Any, names: Sequence[str]) -> list[str]:
    made = _Lines()
    operands = [f"i{k}" for k in range(len(op.pair.function.operands))]
    return made.end(made.rows(op.pair.function, operands))


def _epilogue(op: Any, names: Sequence[str]) -> list[str]:
    own, extra = op.split(names)
    made = _Lines()
    product = made.assign(f"{short_name(op.producer)}({', '.join(own)})")
    return made.end(made.scalar(op.function, [product, *extra]))


def _gather(op: Any, names: Sequence[str]) -> list[str]:
    operands, index = op.split(names)
    made = _Lines()
    taken = ", ".join(index)
    return made.end(made.scalar(op.function, [f"{name}[{taken}]" for name in operands]))


def _elemwise(op: Any, names: Sequence[str]) -> list[str]:
    scalar_op = op.host.scalar_op
    if not isinstance(scalar_op, ps.Composite):
        return []
    made = _Lines()
    return made.end(made.scalar(scalar_op, names))


_EXPRESSIONS = {
    GpuRowwise: _rows,
    GpuGroupedRows: _grouped,
    GpuGemvPair: _pair,
    GpuEpilogue: _epilogue,
    GpuFusedGather: _gather,
    GpuElemwise: _elemwise,
    GpuJoinedElemwise: lambda op, names: _elemwise(op.elemwise, names),
}


def expression(op: Any, names: Sequence[str]) -> list[str]:
    """Return what a fused kernel computes, a line for each scalar Op; nothing for other Ops.

    `names` are those of the node's inputs.
    """
    write = _EXPRESSIONS.get(type(op))
    if write is not None:
        lines: list[str] = write(op, names)  # type: ignore[no-untyped-call]
        return lines
    scalar_op = getattr(op, "scalar_op", None)
    if isinstance(scalar_op, ps.Composite):
        made = _Lines()
        return made.end(made.scalar(scalar_op, names))
    return []
