"""Recognises attention that a user has spelled out, for `recognise` and for mode OPENCL."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import EquilibriumGraphRewriter, node_rewriter
from pytensor.graph.traversal import applys_between, graph_inputs
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot, Max, Sum
from pytensor.tensor.special import Softmax
from pytensor.tensor.symbolic import TensorSymbolicOp

from pytensor_cl.nn.attention import scaled_dot_product_attention
from pytensor_cl.nn.marker import Marker
from pytensor_cl.nn.recognise import register_recognition

Clients = Callable[[Variable], int]
"""Number of nodes and outputs that read a variable."""

_MAX_USE_RATIO = 10  # applications per node of the graph before PyTensor takes a rewriter for an endless loop


class _Scores(NamedTuple):
    """Argument of a softmax: products of rows of two arrays, a factor, and a mask."""

    query: Variable
    key: Variable
    scale: Any = 1.0
    mask: Variable | None = None


def _inputs(variable: Variable, op: object) -> list[Variable]:
    """Return the inputs of the node of a variable, if it is of that Op."""
    node = variable.owner
    return list(node.inputs) if node is not None and node.op == op else []


def _scalar(variable: Variable) -> Variable | None:
    """Return a number that was given dimensions of length one, 0-d."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        if not variable.owner.op.is_expand_dims:
            return None
        variable = variable.owner.inputs[0]
    if isinstance(variable, Constant) and np.size(variable.data) == 1:
        return pt.constant(np.reshape(variable.data, ()))
    return variable if variable.type.ndim == 0 else None


def _number(variable: Variable) -> float | None:
    """Return the value of a constant that is one number."""
    found = _scalar(variable)
    return float(found.data) if isinstance(found, Constant) else None


def _turned(variable: Variable) -> Variable | None:
    """Return x of x with its last two axes swapped."""
    node = variable.owner
    if node is None or not isinstance(node.op, DimShuffle):
        return None
    ndim = variable.type.ndim
    order = (*range(ndim - 2), ndim - 1, ndim - 2)
    return node.inputs[0] if ndim > 1 and tuple(node.op.new_order) == order else None


def _swapped(variable: Variable) -> Variable:
    """Return x with its last two axes swapped; of what is swapped already, the original."""
    turned = _turned(variable)
    return variable.swapaxes(-1, -2) if turned is None else turned


def _factors(variable: Variable) -> list[Variable]:
    """Return the operands of a product of matrices; none of anything else."""
    node = variable.owner
    if node is None:
        return []
    op = node.op
    is_product = isinstance(op, Dot) or (isinstance(op, Blockwise) and isinstance(op.core_op, Dot))
    if not is_product or any(v.type.ndim < 2 for v in node.inputs):
        return []
    return list(node.inputs)


def _is_single(variable: Variable, clients: Clients, most: int = 1) -> bool:
    return clients(variable) <= most


def _product(variable: Variable, clients: Clients) -> tuple[Variable, Variable] | None:
    """Return q and k of ``q @ k.T``, also of a transposed product, if nothing else reads it."""
    if not _is_single(variable, clients):
        return None
    turned = _turned(variable)
    if turned is not None:
        found = _product(turned, clients)
        return None if found is None else found[::-1]
    factors = _factors(variable)
    return (factors[0], _swapped(factors[1])) if factors else None


def _scaled(variable: Variable, clients: Clients) -> _Scores | None:
    """Return the product that a variable is, with its factors."""
    if not _is_single(variable, clients):
        return None
    if quotient := _inputs(variable, pt.true_div):
        divisor, found = _scalar(quotient[1]), _scaled(quotient[0], clients)
        if divisor is None or found is None:
            return None
        return found._replace(scale=found.scale / divisor)
    if terms := _inputs(variable, pt.mul):
        numbers = [_scalar(v) for v in terms]
        others = [v for v, number in zip(terms, numbers, strict=True) if number is None]
        found = _scaled(others[0], clients) if len(others) == 1 else None
        if found is None:
            return None
        scale = found.scale
        for number in numbers:
            scale = scale if number is None else scale * number
        return found._replace(scale=scale)
    product = _product(variable, clients)
    return None if product is None else _Scores(*product)


def _scores(variable: Variable, clients: Clients) -> _Scores | None:
    """Return what the softmax is taken of: a product, a masked one, or one with addends."""
    if not _is_single(variable, clients):
        return None
    if chosen := _inputs(variable, pt.switch):
        return _chosen(chosen, clients)
    terms = _terms(variable, clients)
    found = [_scaled(v, clients) for v in terms]
    if not any(found):
        return _scaled(variable, clients)
    at = next(i for i, scores in enumerate(found) if scores is not None)
    scores, masks = found[at], terms[:at] + terms[at + 1 :]
    if scores is None or not all(_is_mask(m, terms[at]) for m in masks):
        return None
    return scores._replace(mask=masks[0] if len(masks) == 1 else pt.add(*masks))


def _terms(variable: Variable, clients: Clients) -> list[Variable]:
    """Return the addends of a sum, also those of sums in it that nothing else reads."""
    found = []
    for term in _inputs(variable, pt.add):
        inner = _terms(term, clients) if _is_single(term, clients) else []
        found += inner or [term]
    return found


def _chosen(inputs: list[Variable], clients: Clients) -> _Scores | None:
    """Return the scores of ``where(mask, scores, -inf)``, or of ``where(mask, -inf, scores)``.

    Another number than -inf is left alone: a row that is all masked would then attend to all keys alike.
    """
    condition, *branches = inputs
    masked = [_number(v) == -np.inf for v in branches]
    if masked.count(True) != 1 or condition.type.dtype != "bool":
        return None
    kept = branches[masked.index(False)]
    found = _scores(kept, clients)
    if found is None or not _broadcasts(condition, kept):
        return None
    mask = ~condition if masked[0] else condition
    if found.mask is None:
        return found._replace(mask=mask)
    is_bool = found.mask.type.dtype == "bool"
    both = mask & found.mask if is_bool else pt.switch(mask, found.mask, np.asarray(-np.inf, found.mask.type.dtype))
    return found._replace(mask=both)


def _is_mask(mask: Variable, scores: Variable) -> bool:
    return mask.type.dtype.startswith("float") and _broadcasts(mask, scores)


def _broadcasts(mask: Variable, scores: Variable) -> bool:
    """Return whether a mask leaves the static shape of the scores as it is."""
    pairs = zip(mask.type.shape, scores.type.shape, strict=True)
    return all(m == 1 or s != 1 for m, s in pairs)


def _softmax_input(variable: Variable, clients: Clients) -> tuple[Variable, Clients] | None:
    """Return x of a softmax of x along the last axis, and how often parts of it may be read."""
    node, last = variable.owner, variable.type.ndim - 1
    if node is None or not _is_single(variable, clients):
        return None
    if isinstance(node.op, Softmax):
        return (node.inputs[0], clients) if tuple(np.atleast_1d(node.op.axis)) in ((last,), (-1,)) else None
    if not (quotient := _inputs(variable, pt.true_div)):
        return None
    parts, total = quotient
    if _reduced(total, Sum, last) is not parts or clients(parts) > 2 or not (exponent := _inputs(parts, pt.exp)):
        return None
    x = exponent[0]
    difference = _inputs(x, pt.sub)
    if difference and _is_single(x, clients) and _reduced(difference[1], Max, last) is difference[0]:
        shifted = difference[0]
        return shifted, lambda v: clients(v) - (v is shifted)  # its maximum reads it too
    return x, clients


def _reduced(variable: Variable, kind: type, axis: int) -> Variable | None:
    """Return x of its sum or maximum along an axis that stays with length one."""
    node = variable.owner
    if node is None or not isinstance(node.op, DimShuffle) or not node.op.is_expand_dims:
        return None
    reduced = node.inputs[0].owner
    is_kind = reduced is not None and isinstance(reduced.op, kind)
    added = tuple(i for i, d in enumerate(node.op.new_order) if d == "x")
    if not is_kind or reduced is None or added != (axis,):
        return None
    axes = reduced.op.axis
    return reduced.inputs[0] if axes is not None and tuple(axes) == (axis,) else None


def find_attention(out: Variable, clients: Clients) -> Variable | None:
    """Return ``softmax(scores) @ value`` as a marker; None of anything else, or if other nodes read the parts of it."""
    factors = _factors(out)
    if not factors:
        return None
    for probabilities, value, is_turned in (
        (factors[0], factors[1], False),
        (_turned(factors[1]), factors[0], True),  # value.T @ probabilities.T
    ):
        if probabilities is None or (is_turned and not _is_single(factors[1], clients)):
            continue
        softmax = _softmax_input(probabilities, clients)
        scores = None if softmax is None else _scores(*softmax)
        if scores is None:
            continue
        found = _marker(scores, _swapped(value) if is_turned else value, out, is_turned)
        if found is not None:
            return found
    return None


def _marker(scores: _Scores, value: Variable, out: Variable, is_turned: bool) -> Variable | None:
    arrays = (scores.query, scores.key, value)
    if any(not v.type.dtype.startswith("float") for v in arrays):
        return None
    number = scores.scale if isinstance(scores.scale, float) else _folded_number(scores.scale)
    scale = scores.scale if number is None else number
    if number is not None and not np.isfinite(number):
        return None
    found = scaled_dot_product_attention(*arrays, scores.mask, scale=scale)
    found = found.swapaxes(-1, -2) if is_turned else found
    fits = found.type.dtype == out.type.dtype and found.type.ndim == out.type.ndim
    return out.type.filter_variable(found) if fits else None


def _folded_number(scale: Variable) -> float | None:
    """Return the value of a factor that depends on constants only."""
    if all(isinstance(v, Constant) for v in graph_inputs([scale])):
        return float(scale.eval())
    return None


def _clients_in(fgraph: FunctionGraph) -> Clients:
    return lambda v: len(fgraph.clients.get(v, ()))


def _clients_between(inputs: list[Variable], out: Variable) -> Clients:
    """Return the number of clients in a graph that is no `FunctionGraph`."""
    counts = Counter(v for node in applys_between(inputs, [out]) for v in node.inputs)
    counts[out] += 1
    return lambda v: counts[v]


@register_recognition
@node_rewriter([Dot, Blockwise])
def recognise_attention(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """softmax(q @ k.T * s [+ mask]) @ v -> Attention(q, k, v, [mask])."""
    found = find_attention(node.outputs[0], _clients_in(fgraph))
    return None if found is None else [found]


@register_recognition
@node_rewriter([OpFromGraph])
def recognise_attention_inside(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """OpFromGraph whose inner graph is attention, as pytensor-ml's function of that name -> Attention."""
    if isinstance(node.op, Marker | TensorSymbolicOp) or len(node.outputs) != 1:
        return None
    (out,) = inline_ofg_node(node)
    found = find_attention(out, _clients_between(list(node.inputs), out))
    return None if found is None else [node.outputs[0].type.filter_variable(found)]


def recognise_all_attention(fgraph: FunctionGraph) -> None:
    """Attention that is spelled out -> its marker, where the gradient does not read the probabilities."""
    rewriters = [recognise_attention, recognise_attention_inside]
    EquilibriumGraphRewriter(rewriters, max_use_ratio=_MAX_USE_RATIO).rewrite(fgraph)
