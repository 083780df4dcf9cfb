"""Products with a matrix and with its transpose, and the elementwise function between them."""

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.base import ANY, GpuOp, Routine
from pytensor_cl.ops.names import Show
from pytensor_cl.ops.rowwise import DROPPED, FULL, VALUE, step_names
from pytensor_cl.routines.gemv.pair import GemvPair, PairFunction
from pytensor_cl.runtime.context import Context


class GpuGemvPair(GpuOp):
    """``z = beta y + alpha A @ x``, ``r, ... = f(z, ...)`` and ``beta_t y_t + alpha_t A.T @ r``, A read once.

    The inputs are ``(y, alpha, A, x, beta, *operands, y_t, alpha_t, beta_t)`` with the operands of the function except
    z. The outputs are the second product, then the stored outputs of the function. `forms` has an entry for each
    operand and then for each output of the function; see `GpuRowwise`.
    """

    __props__ = ("pair", "forms", "context_name")

    def __init__(self, pair: PairFunction, forms: Sequence[str], context_name: str) -> None:
        self.pair = pair
        self.forms = tuple(forms)
        self.context_name = context_name

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuGemvPair{{{step_names(self.pair.function, show)}}}"

    def placement_of(self, index: int) -> str:
        """Inputs keep the placements of the replaced nodes."""
        return ANY

    def _stored(self, rows: Any, one: Any) -> list[tuple[Any, ...]]:
        """Return the entries of each output of the function that is stored."""
        count = len(self.pair.function.operands)
        by_form = {FULL: (rows,), DROPPED: ()}
        stored = zip(self.forms[count:], self.pair.is_stored, strict=True)
        return [by_form.get(form, (one,)) for form, keep in stored if keep]

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; inputs keep the placements of the replaced nodes."""
        matrix = inputs[2].type
        function = self.pair.function
        dtypes = (function.dtypes[v] for v, keep in zip(function.outputs, self.pair.is_stored, strict=True) if keep)
        types = [TensorType(t, shape) for t, shape in zip(dtypes, self._stored(matrix.shape[0], 1), strict=True)]
        return self.apply(inputs, [TensorType(matrix.dtype, matrix.shape[1:]), *types])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the number of columns, and the number of rows for full values."""
        rows, columns = shapes[2]
        return [(columns,), *self._stored(rows, 1)]

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels."""
        y, alpha, matrix, _, beta = node.inputs[:5]
        operands: list[Variable] = list(node.inputs[5:-3])
        operands.insert(self.pair.product, matrix)  # the product broadcasts where the matrix's rows do
        broadcast = [
            () if form == VALUE else v.type.broadcastable for v, form in zip(operands, self.forms, strict=False)
        ]
        broadcast[self.pair.product] = (matrix.type.broadcastable[0],)
        return GemvPair(
            context,
            matrix.type.dtype,
            self.pair,
            tuple(form == DROPPED for form in self.forms),
            broadcast,
            is_repeated=(y.type.broadcastable[0], node.inputs[-3].type.broadcastable[0]),
            has_addend=not (_is_known(alpha, 1) and _is_known(beta, 0)),
        )


def _is_known(variable: Variable, value: int) -> bool:
    return isinstance(variable, Constant) and variable.data == value
