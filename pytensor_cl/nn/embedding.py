"""Affine maps, and rows of a matrix by their numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.arguments import as_floats
from pytensor_cl.nn.marker import Marker
from pytensor_cl.nn.windows import as_variable


def linear(input: Any, weight: Any, bias: Any = None) -> TensorVariable:
    """Return ``input @ weight.T + bias``.

    Parameters
    ----------
    input
        Floats of shape (..., I).
    weight
        Floats of shape (O, I), torch's order. For weights of shape (I, O) write ``x @ w + b``.
    bias
        Floats of shape (O,), or None.

    Returns
    -------
    Variable
        Shape (..., O), by one product of matrices.

    Raises
    ------
    TypeError
        An argument is no array of floats.
    ValueError
        The shapes do not fit: I or O differ, or the number of dimensions.
    """
    x, w = as_floats(input, "linear: input"), as_floats(weight, "linear: weight")
    if w.type.ndim != 2:
        raise ValueError(f"linear: weight has {w.type.ndim} dimensions: it needs shape (outputs, inputs)")
    if x.type.ndim == 0:
        raise ValueError("linear: input is a number: it needs shape (..., inputs)")
    own, inputs = x.type.shape[-1], w.type.shape[1]
    if None not in (own, inputs) and own != inputs:
        raise ValueError(f"linear: input has {own} features and weight takes {inputs}; weight is (outputs, inputs)")
    rows = x if x.type.ndim <= 2 else x.reshape((-1, x.shape[-1]))
    result = rows @ w.T
    if bias is not None:
        b = as_floats(bias, "linear: bias")
        outputs = w.type.shape[0]
        if b.type.ndim != 1 or (None not in (b.type.shape[0], outputs) and b.type.shape[0] != outputs):
            raise ValueError(f"linear: bias has shape {b.type.shape} and weight {w.type.shape}: bias is (outputs,)")
        result = result + b
    return result if x.type.ndim <= 2 else result.reshape((*x.shape[:-1], w.shape[0]), ndim=x.type.ndim)


class _KeptRows(Marker):
    """x where a condition holds, else 0; the gradient keeps the dtype of x, unlike that of `switch`."""

    def build_inner_graph(self, x: Any, condition: Variable) -> list[Variable]:
        """Return the definition in ordinary Ops."""
        return [pt.switch(condition, x, pt.zeros((), dtype=x.type.dtype))]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that the condition has no gradient."""
        return [[True], [False]]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Variable], output_grads: Sequence[Any]) -> list[Any]:
        """Return the gradient where the condition holds."""
        return [_KeptRows()(output_grads[0], inputs[1]), disconnected_type()]


class Embedding(Marker):
    """Rows of a matrix at indices; the gradient leaves out the row number `padding`."""

    __props__ = ("padding",)
    padding: int

    def build_inner_graph(self, weight: Any, indices: Any) -> list[Variable]:
        """Return the definition in ordinary Ops."""
        return [weight[indices]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that indices have no gradient."""
        return [[True], [False]]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Variable], output_grads: Sequence[Any]) -> list[Any]:
        """Return the scatter-add of all rows but those of padding: clearing its row would copy the matrix."""
        weight, indices = inputs
        signed = pt.cast(indices, "int64")
        count = weight.shape[0]
        padding = self.padding + (count if self.padding < 0 else 0)
        counts = pt.neq(pt.switch(signed < 0, signed + count, signed), padding)
        slopes = _KeptRows()(output_grads[0], pt.expand_dims(counts, -1))
        return [pt.zeros_like(weight)[indices].inc(slopes), disconnected_type()]


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> TensorVariable:
    """Return rows of a matrix by their numbers.

    Parameters
    ----------
    input
        Numbers of rows, integers of any shape; negative ones count from the end.
    weight
        Floats of shape (V, E).
    padding_idx
        A row without gradient: its vector stays what it is. Negative numbers count from the end.

    Returns
    -------
    Variable
        Shape (..., E). The gradient with respect to `weight` adds the rows of equal numbers in a fixed order.

    Raises
    ------
    TypeError
        `input` is not of integers, `weight` not of floats, or `padding_idx` no integer.
    ValueError
        `weight` is no matrix, or `padding_idx` none of its rows.
    IndexError
        In the call: there is no such row.

    Examples
    --------
    >>> import numpy as np
    >>> from pytensor_cl import nn
    >>> nn.embedding(np.array([[2, 0]]), np.arange(6.0).reshape(3, 2)).eval()
    array([[[4., 5.],
            [0., 1.]]])
    """
    indices, table = as_variable(input, "embedding: input"), as_floats(weight, "embedding: weight")
    if indices.type.numpy_dtype.kind not in "iu":
        raise TypeError(f"embedding: input must be integers, not {indices.type.dtype}")
    if table.type.ndim != 2:
        raise ValueError(f"embedding: weight has {table.type.ndim} dimensions: it needs shape (rows, features)")
    if padding_idx is None:
        return table[indices]
    if isinstance(padding_idx, bool | np.bool_) or not isinstance(padding_idx, int | np.integer):
        raise TypeError(f"embedding: padding_idx must be an integer or None, not {padding_idx!r}")
    rows = table.type.shape[0]
    if rows is not None and not -rows <= padding_idx < rows:
        raise ValueError(f"embedding: padding_idx {padding_idx} is none of the {rows} rows of weight")
    return Embedding(padding=int(padding_idx))(table, indices)
