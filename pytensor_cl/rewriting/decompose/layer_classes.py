"""Layers of the package pytensor-ml -> functions of `pytensor_cl.nn`, which have kernels.

Nothing of the package is imported: a layer is known by the name of its class and of its module.
"""

import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.tensor.pad import Pad
from pytensor.tensor.type import float_dtypes

from pytensor_cl._compat.inner_graphs import graphs_inside, rewrite_compiled_inner_graphs
from pytensor_cl._compat.merging import merge_equal_nodes
from pytensor_cl.nn.attention import scaled_dot_product_attention
from pytensor_cl.nn.conv import Conv, ConvGradInput, ConvGradWeight
from pytensor_cl.nn.conv_host import Geometry
from pytensor_cl.nn.pool import MaxPool, MaxPoolScatter, SumPool, SumPoolGrad
from pytensor_cl.nn.pool_host import Sliding
from pytensor_cl.nn.windows import Pads, Window

_PACKAGE = "pytensor_ml"
_MAX_SPATIAL = 3  # dimensions of a convolution with a kernel


def _classes(kind: type) -> tuple[str, ...]:
    """Return the names of a class and its bases that are of the package."""
    return tuple(c.__name__ for c in kind.__mro__ if c.__module__.split(".")[0] == _PACKAGE)


def _is_layer(op: Any, *names: str) -> bool:
    return not set(names).isdisjoint(_classes(type(op)))


def _channels_first(x: Any) -> Any:
    """(N, space..., C) -> (N, C, space...)."""
    return x.dimshuffle(0, x.type.ndim - 1, *range(1, x.type.ndim - 1))


def _channels_last(x: Any) -> Any:
    """(N, C, space...) -> (N, space..., C)."""
    return x.dimshuffle(0, *range(2, x.type.ndim), 1)


def _filters_first(w: Any) -> Any:
    """(window..., C, O) -> (O, C, window...)."""
    return w.dimshuffle(w.type.ndim - 1, w.type.ndim - 2, *range(w.type.ndim - 2))


def _filters_last(w: Any) -> Any:
    """(O, C, window...) -> (window..., C, O)."""
    return w.dimshuffle(*range(2, w.type.ndim), 1, 0)


def _lengths(x: Any) -> list[Any]:
    """Return the spatial lengths of (N, space..., C): integers where they are known, so that a result's are too."""
    static = x.type.shape
    return [x.shape[d] if static[d] is None else static[d] for d in range(1, x.type.ndim - 1)]


def _without_zeros(x: Variable) -> tuple[Variable, Pads]:
    """Return the array that a node of `Pad` surrounds with zeros, and how many; else the array and none."""
    node, none = x.owner, ((0, 0),) * (x.type.ndim - 2)
    if node is None or not isinstance(node.op, Pad) or node.op.pad_mode != "constant":
        return x, none
    widths, fill = getattr(node.op, "static_pad_width", None), node.inputs[2]
    if widths is None or not isinstance(fill, Constant) or np.any(fill.data):
        return x, none
    pads = tuple((int(before), int(after)) for before, after in widths)
    is_spatial = pads[0] == pads[-1] == (0, 0) and min(map(min, pads)) >= 0
    return (node.inputs[0], pads[1:-1]) if is_spatial else (x, none)


def _geometry(op: Any, padding: Pads) -> Geometry:
    return Geometry(op.stride, op.dilation, 1, padding, flip=False)


def _convolved(op: Any, x: Variable, w: Variable, *bias: Variable) -> list[Variable]:
    """ConvLayer(Pad(x), w, b) -> Conv(x, w) + b, with dimensions in our order."""
    inner, padding = _without_zeros(x)
    y = Conv.call(_geometry(op, padding), _channels_first(inner), _filters_first(w))
    return [sum(bias, _channels_last(y))]


def _convolution_gradients(op: Any, x: Variable, w: Variable, dy: Variable) -> list[Variable]:
    """ConvLayerGrad(Pad(x), w, dy) -> ConvGradInput(w, dy) and ConvGradWeight(x, dy)."""
    inner, padding = _without_zeros(x)
    whole, gradients = _geometry(op, ((0, 0),) * len(padding)), []
    if op.compute_dX:
        of_input = ConvGradInput.call(whole, _filters_first(w), _channels_first(dy), *_lengths(x))
        gradients.append(_channels_last(of_input))
    if op.compute_dW:
        arrays = _channels_first(inner), _channels_first(dy)
        gradients.append(_filters_last(ConvGradWeight.call(_geometry(op, padding), *arrays, *op.kernel_size)))
    return gradients


def _windows(op: Any) -> Sliding:
    return Sliding(tuple(map(Window, op.kernel_size, op.stride, op.dilation)))


def _pooled(op: Any, x: Variable) -> list[Variable]:
    """PoolLayer(x) -> MaxPool(x) or SumPool(x)."""
    pool = MaxPool(_windows(op)) if op.reduction == "max" else SumPool(_windows(op), "average_inc_pad")
    return [_channels_last(pool(_channels_first(x)))]


def _pooling_gradient(op: Any, x: Variable, dy: Variable) -> list[Variable]:
    """PoolLayerGrad(x, dy) -> MaxPoolScatter(x, dy) or SumPoolGrad(dy)."""
    if op.reduction == "max":
        dx = MaxPoolScatter(_windows(op))(_channels_first(x), _channels_first(dy))
    else:
        dx = SumPoolGrad(_windows(op), "average_inc_pad")(_channels_first(dy), *_lengths(x))
    return [_channels_last(dx)]


def _attended(op: Any, q: Variable, k: Variable, v: Variable, mask: Variable | None = None) -> list[Variable]:
    """AttentionLayer(q, k, v, mask) -> scaled_dot_product_attention(q, k, v, mask)."""
    causal = "lower_right" if op.is_causal else False
    is_grouped = q.type.shape[-3] != k.type.shape[-3]
    return [scaled_dot_product_attention(q, k, v, mask, 0.0, causal, op.scale, is_grouped)]


_FUNCTIONS: dict[str, Callable[..., list[Variable]]] = {
    "AttentionLayer": _attended,
    "ConvLayer": _convolved,
    "ConvLayerGrad": _convolution_gradients,
    "PoolLayer": _pooled,
    "PoolLayerGrad": _pooling_gradient,
}


def _function(node: Apply) -> Callable[..., list[Variable]] | None:
    """Return what computes a node of a layer from its Op and inputs; None if there is nothing better than its graph."""
    found = [_FUNCTIONS[name] for name in _classes(type(node.op)) if name in _FUNCTIONS]
    if not found or any(v.type.dtype not in float_dtypes for v in node.inputs):
        return None
    has_kernel = len(getattr(node.op, "kernel_size", ())) <= _MAX_SPATIAL
    return found[0] if has_kernel else None


def _attention_of_gradient(node: Apply) -> Apply | None:
    """Return the node of attention of which a node is the gradient that PyTensor has made of its inner graph."""
    if type(node.op) is not OpFromGraph:
        return None
    for v in node.inputs:
        layer = v.owner
        if layer is None or not _is_layer(layer.op, "AttentionLayer") or _function(layer) is None:
            continue
        forward = [*layer.inputs, *layer.outputs]
        is_gradient = node.op.name == f"{layer.op.name}_LOp" and node.inputs[:-1] == forward
        if is_gradient and len(node.outputs) == len(layer.inputs):
            return layer
    return None


def _gradients(layer: Apply, cotangent: Variable) -> list[Variable]:
    """Return the gradients of what computes a layer for its inputs."""
    inputs = [v.type() for v in layer.inputs]  # not the inputs themselves: one may be computed from another
    (output,) = _FUNCTIONS["AttentionLayer"](layer.op, *inputs)
    slope = cotangent.type()
    gradients = pytensor.grad(None, inputs, known_grads={output: slope}, disconnected_inputs="ignore")
    pairs = zip([*inputs, slope], [*layer.inputs, cotangent], strict=True)
    return list(clone_replace(gradients, dict(pairs)))


def _positions(op: Any, lengths: Sequence[Any]) -> Variable:
    """Return, for each window and each element of it, the position in the flattened spatial dimensions."""
    rank, flat = len(op.kernel_size), pt.constant(0, dtype="int64")
    for d, (n, k, s, spacing) in enumerate(zip(lengths, op.kernel_size, op.stride, op.dilation, strict=True)):
        starts = pt.arange(0, n - spacing * (k - 1), s).dimshuffle(*(0 if i == d else "x" for i in range(2 * rank)))
        taps = np.arange(k).reshape([k if i == rank + d else 1 for i in range(2 * rank)]) * spacing
        flat = flat * n + starts + taps
    return flat


def _gathered(op: Any, x: Any) -> list[Variable]:
    """Im2Col(x) -> elements of x at computed positions."""
    lengths = _lengths(x)
    flat = x.reshape((x.shape[0], prod(lengths), x.shape[-1]))
    return [flat[:, _positions(op, lengths)]]


def _scattered(op: Any, patches: Any, *lengths: Any) -> list[Variable]:
    """Col2Im(patches, lengths...) -> zeros with elements added at computed positions."""
    zeros = pt.zeros((patches.shape[0], prod(lengths), patches.shape[-1]), dtype=patches.dtype)
    flat = pt.inc_subtensor(zeros[:, _positions(op, lengths)], patches)
    return [flat.reshape((patches.shape[0], *lengths, patches.shape[-1]))]


def _is_inlined(op: Any) -> bool:
    """Return whether an Op is a layer, or may be made of layers, and its inner graph is as good.

    A dropout that keeps all elements or none divides by zero there; a rewrite of the package removes it.
    """
    if _is_layer(op, "DropoutLayer"):
        return 0 < op.p < 1
    return type(op) is OpFromGraph or _is_layer(op, "LayerOp")


def _replacement(node: Apply) -> Sequence[Variable] | None:
    """Return what replaces the outputs of a node; None if it stays."""
    layer = _attention_of_gradient(node)
    if layer is not None:
        return _gradients(layer, node.inputs[-1])
    function = _function(node)
    if function is not None:
        return function(node.op, *node.inputs)
    if _is_layer(node.op, "Im2Col"):
        return _gathered(node.op, *node.inputs)
    if _is_layer(node.op, "Col2Im"):
        return _scattered(node.op, *node.inputs)
    return inline_ofg_node(node) if _is_inlined(node.op) else None


def _has_layers(graph: Any) -> bool:
    """Return whether a graph has layers of the package, also in inner graphs."""
    return any(_classes(type(n.op)) or any(map(_has_layers, graphs_inside(n.op))) for n in graph.apply_nodes)


def replace_layers(fgraph: FunctionGraph) -> None:
    """Layers of pytensor-ml -> functions of `pytensor_cl.nn`, or their inner graphs.

    It comes before all other rewrites, so that these and the recognition of formulas see what the layers compute.
    """
    if _PACKAGE not in sys.modules or not _has_layers(fgraph):
        return
    while True:
        # from the outputs on, so that a gradient of attention is replaced before the layer by which it is known
        pairs = [(node, _replacement(node)) for node in reversed(fgraph.toposort())]
        found = [(node, new) for node, new in pairs if new is not None]
        if not found:
            break
        for node, outputs in found:
            same = zip(node.outputs, outputs, strict=True)
            typed = [(old, old.type.filter_variable(new)) for old, new in same if not _is_disconnected(new)]
            fgraph.replace_all(typed, reason="opencl_replace_layers", import_missing=True)
    rewrite_compiled_inner_graphs(fgraph, replace_layers)
    merge_equal_nodes(fgraph)  # gradients compute the forward direction again


def _is_disconnected(variable: Variable) -> bool:
    return isinstance(variable.type, DisconnectedType)
