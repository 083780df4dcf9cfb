"""Moves normalisation by given statistics into the convolution or product before it."""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot

from pytensor_cl.nn.batch_normalization import GivenNormalization
from pytensor_cl.nn.conv import Conv, ConvGradInput


def fold_normalization(outputs: Variable | Sequence[Variable], freeze: bool = False) -> Any:
    """Return the same results with normalisation folded into the convolutions and products before it.

    `GivenNormalization` of the channels of a convolution or transposed convolution, or of the columns of a product,
    with or without a bias between them, becomes a product with a factor and a sum with a shift for each channel, which
    the kernel before it applies. With `freeze` the factor goes into the weights, if these, the statistics, the scale
    and the shift depend on constants and shared variables only.

    Nothing is folded where anything else reads the values before normalisation, where types differ, or in float16.
    Normalisation before a convolution stays: padding is not normalised.

    `outputs`: a variable or a sequence of them. Returns the same kind: a variable or a list. The graph that is given
    does not change; its inputs are those of the new graph. If nothing is folded, they are the same variables.
    """
    given = [outputs] if isinstance(outputs, Variable) else list(outputs)
    fgraph = FunctionGraph(outputs=given, copy_inputs=False)
    found = [_fold(fgraph, node, freeze) for node in fgraph.toposort() if isinstance(node.op, GivenNormalization)]
    folded = fgraph.outputs if any(found) else given
    return folded[0] if isinstance(outputs, Variable) else folded


def _fold(fgraph: FunctionGraph, node: Apply, freeze: bool) -> bool:
    """Replace a normalisation, if it can be folded; return whether it was."""
    new, old = _folded(fgraph, node, freeze), node.outputs[0]
    if new is None:
        return False
    fgraph.replace(old, old.type.filter_variable(new), reason="fold_normalization", import_missing=True)
    return True


def _folded(fgraph: FunctionGraph, node: Apply, freeze: bool) -> Variable | None:
    """Return the result of a normalisation as that of the convolution or product before it; None if there is none."""
    x, center, factor, shift = node.op.parts(node.inputs)
    producer, bias = _producer(fgraph, x)
    if producer is None or node.op.axes != _other_axes(producer, x.type.ndim):
        return None
    parameters = [center, factor, *(v for v in (shift, bias) if v is not None)]
    if factor.type.dtype != x.type.dtype or any(v.type.dtype != x.type.dtype for v in producer.inputs[:2]):
        return None
    offset = -center if bias is None else bias - center
    total = offset * factor if shift is None else offset * factor + pt.cast(shift, factor.type.dtype)
    if freeze and _is_frozen([*parameters, _weight(producer)]):
        scaled = _with_scaled_weight(producer, factor)
        if scaled is not None:
            return scaled + total
    return producer.outputs[0] * factor + total


def _producer(fgraph: FunctionGraph, x: Variable) -> tuple[Apply | None, Variable | None]:
    """Return the node that computes x alone, and the bias that is added to its output, if there is one."""
    node, bias = _only(fgraph, x), None
    if node is not None and isinstance(node.op, Elemwise) and node.op == pt.add and len(node.inputs) == 2:
        found = [(a, b) for a, b in (node.inputs, node.inputs[::-1]) if _is_producer(_only(fgraph, a))]
        if len(found) != 1 or not _varies_along(found[0][1], _other_axes(found[0][0].owner, x.type.ndim)):
            return None, None
        (before, bias) = found[0]
        node = before.owner
    return (node, bias) if _is_producer(node) else (None, None)


def _only(fgraph: FunctionGraph, x: Variable) -> Apply | None:
    """Return the node of a variable that has one client."""
    return x.owner if len(fgraph.clients[x]) == 1 else None


def _is_producer(node: Apply | None) -> bool:
    if node is None:
        return False
    op: Any = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if isinstance(op, Dot):
        result: bool = node.inputs[1].type.ndim >= 2 and node.outputs[0].type.ndim >= 2
        return result
    return isinstance(node.op, Conv | ConvGradInput)


def _other_axes(node: Apply, ndim: int) -> tuple[int, ...]:
    """Return all axes but that of the channels."""
    channels = 1 if isinstance(node.op, Conv | ConvGradInput) else ndim - 1
    return tuple(a for a in range(ndim) if a != channels)


def _varies_along(bias: Variable, others: Sequence[int]) -> bool:
    """Return whether a bias is one number for each channel."""
    return all(bias.type.broadcastable[a] for a in others)


def _is_frozen(variables: Sequence[Variable]) -> bool:
    """Return whether variables depend on constants and shared variables only."""
    return all(isinstance(v, Constant | SharedVariable) for v in graph_inputs(variables))


def _weight(node: Apply) -> Variable:
    """Return the weights of a convolution or product."""
    return node.inputs[0] if isinstance(node.op, ConvGradInput) else node.inputs[1]


def _with_scaled_weight(node: Apply, factor: Variable) -> Variable | None:
    """Return the output of a convolution or product whose weights are multiplied by a factor for each channel."""
    op: Any = node.op
    channels, inputs = factor.flatten(), list(node.inputs)
    if isinstance(op, Conv):
        inputs[1] = inputs[1] * _trailing_ones(channels, inputs[1].type.ndim - 1)
    elif isinstance(op, ConvGradInput):
        w, groups = inputs[0], op.groups
        if groups is None:  # a variable
            return None
        # w (in, out / groups, ...): the channels of group g come from the g-th part of the first axis
        parts = w.reshape((groups, w.shape[0] // groups, *(w.shape[i] for i in range(1, w.type.ndim))))
        scale = _trailing_ones(channels.reshape((groups, 1, w.shape[1])), w.type.ndim - 2)
        inputs[0] = (parts * scale).reshape(w.shape)
    else:
        inputs[1] = inputs[1] * channels
    inputs = [old.type.filter_variable(new) for old, new in zip(node.inputs, inputs, strict=True)]
    return node.clone_with_new_inputs(inputs).outputs[0]


def _trailing_ones(x: Variable, count: int) -> Variable:
    """Return x with more dimensions of length one at its end."""
    return x.dimshuffle(*range(x.type.ndim), *["x"] * count)
