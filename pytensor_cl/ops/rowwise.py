"""Row functions: fused elementwise functions and reductions along the same axes."""

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.base import ANY, GpuOp, Routine
from pytensor_cl.ops.names import Show
from pytensor_cl.routines.rowwise.program import Reduce, RowFunction
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.runtime.context import Context

FULL = "full"
"""A variable with an element for each element of the rows."""
KEPT = "kept"
"""A variable with an element for each row, and length 1 along the axes of the reductions."""
DROPPED = "dropped"
"""The same without the axes of the reductions."""
VALUE = "value"
"""A 0-d host value."""
TABLE = "table"
"""A vector whose elements are looked up; its length is independent of the rows."""
GATHERED = "gathered"
"""A matrix whose rows are gathered by an index with an element for each row."""

_WITHOUT_SHAPE = frozenset((VALUE, TABLE))  # forms whose shape is independent of the rows

_NAMES = {"maximum": "max", "minimum": "min", "add": "sum", "mul": "prod", "and": "all", "or": "any"}


def step_names(function: RowFunction, show: Show) -> str:
    """Return the names of the steps of a row function, for the text of an Op."""
    steps = function.steps
    return show([_NAMES.get(s.operation, s.operation) if isinstance(s, Reduce) else s.name for s in steps])


class GpuRowwise(GpuOp):
    """Several device nodes over the same rows, in one kernel.

    Full variables have `ndim` dimensions, of which `axes` are reduced. `forms` has an entry for each input, tables
    last, and then for each output: FULL, KEPT, DROPPED, VALUE, GATHERED or TABLE.
    """

    __props__ = ("function", "ndim", "axes", "forms", "context_name")
    is_memory_bound = True

    def __init__(
        self, function: RowFunction, ndim: int, axes: Sequence[int], forms: Sequence[str], context_name: str
    ) -> None:
        self.function = function
        self.ndim = ndim
        self.axes = tuple(axes)
        self.forms = tuple(forms)
        self.context_name = context_name
        self.checks_data = TABLE in self.forms or GATHERED in self.forms

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuRowwise{{axes={self.axes}: {step_names(self.function, show)}}}"

    def placement_of(self, index: int) -> str:
        """Arrays must be on the device; host values are the fused nodes' host values."""
        return ANY

    def _spread(self, form: str, entries: Sequence[Any], one: Any) -> tuple[Any, ...]:
        """Insert an entry for each axis that a dropped variable lacks."""
        if form != DROPPED:
            return tuple(entries)
        rest = iter(entries)
        return tuple(one if d in self.axes else next(rest) for d in range(self.ndim))

    def _common(self, node_inputs: Sequence[Variable], entries: Sequence[Sequence[Any]], one: Any) -> tuple[Any, ...]:
        """Return, per dimension, the entry of the first input that does not broadcast along it."""
        found = [one] * self.ndim
        is_open = [True] * self.ndim
        for variable, form, own in zip(node_inputs, self.forms, entries, strict=False):
            if form in _WITHOUT_SHAPE:
                continue
            known = self._spread(form, variable.type.broadcastable, True)
            if form == GATHERED:
                known = tuple(one or d not in self.axes for d, one in enumerate(known))
            for d, entry in enumerate(self._spread(form, own, one)):
                if is_open[d] and not known[d]:
                    found[d], is_open[d] = entry, False
        return tuple(found)

    def _formed(self, form: str, full: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
        """Return the entries of an output."""
        if form == FULL:
            return full
        if form == DROPPED:
            return tuple(n for d, n in enumerate(full) if d not in self.axes)
        return tuple(one if d in self.axes else n for d, n in enumerate(full))

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; host tensors are transferred, except host values."""
        placed = [v if form == VALUE else self.on_device(v) for v, form in zip(inputs, self.forms, strict=False)]
        full = self._common(placed, [getattr(v.type, "shape", ()) for v in placed], 1)
        types = [
            TensorType(self.function.dtypes[v], self._formed(form, full, 1))
            for v, form in zip(self.function.outputs, self.forms[len(placed) :], strict=True)
        ]
        return self.apply(placed, types)

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the common shape of the inputs for full values, and its row shape for row values."""
        full = self._common(node.inputs, shapes, 1)
        return [self._formed(form, full, 1) for form in self.forms[len(node.inputs) :]]

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        operands = zip(node.inputs, self.forms[: len(self.function.operands)], strict=False)
        return Rowwise(
            context,
            self.function,
            self.ndim,
            self.axes,
            tuple(form == DROPPED for form in self.forms if form != TABLE),
            tuple(() if form == VALUE else v.type.broadcastable for v, form in operands),
        )
