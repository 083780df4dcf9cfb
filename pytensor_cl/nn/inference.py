"""Training graphs become graphs of prediction.

Each marker says itself what takes its place (`Marker.predict`): of dropout its input, of batch normalisation that with
running statistics. Other nodes stay.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scan.op import Scan
from pytensor.scan.utils import ScanArgs
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.random.type import RandomType

from pytensor_cl._compat.inner_graphs import with_rewritten_graph
from pytensor_cl.nn.dropout import DropoutMask
from pytensor_cl.nn.folding import fold_normalization
from pytensor_cl.nn.graphs import Outputs, as_outputs
from pytensor_cl.nn.marker import Marker


def inference(outputs: Outputs, *, freeze: bool = False, fold: bool = True) -> Any:
    """Return the graph that predicts, made of one that trains.

    Dropout is removed, in loops too, and random generators that only dropout reads leave the graph. Batch normalisation
    takes the running statistics that the training graph updates. Everything else stays: other random draws, such as
    those of a variational autoencoder, a user's own masks, and the shared variables, which are the same objects. So a
    function of the graph predicts with the values that training gives them later on.

    Parameters
    ----------
    outputs
        One variable or several, such as logits, of the training graph.
    freeze
        Shared variables become constants of their present values, so that what depends on nothing else is computed
        when the function is compiled. Random generators stay.
    fold
        Batch normalisation that follows a convolution, a transposed convolution or a product is computed with it: by a
        factor and a shift for each channel, with `freeze` by other weights. The results are equal to about 1e-6.

    Returns
    -------
    Variable or list of variables
        The same number of outputs, of the same inputs.

    Raises
    ------
    ValueError
        Batch normalisation has no running statistics.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> from pytensor_cl import nn
    >>> x, rng = pt.dvector("x"), pt.random.shared_rng(seed=1)
    >>> _, y = nn.dropout(x, 0.5, rng)
    >>> predict = pytensor.function([x], nn.inference(3 * y))
    >>> predict([1.0, 2.0])
    array([3., 6.])
    """
    predicted = _predicted(as_outputs(outputs))
    if freeze:
        predicted = _frozen(predicted)
    if fold:
        predicted = fold_normalization(predicted, freeze)
    return predicted[0] if isinstance(outputs, Variable) else predicted


def _rebuilt(
    outputs: Sequence[Variable],
    replace: Callable[[Apply], Sequence[Variable] | None],
    known: dict[Variable, Variable],
) -> list[Variable]:
    """Return outputs with what replaces each node, and the variables of `known`; the same ones where nothing does.

    `replace`: called with each node after those before it are replaced; returns None for a node that stays.
    """
    new = dict(known)
    for node in toposort(outputs):
        inputs = [new.get(v, v) for v in node.inputs]
        is_same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        current = node if is_same else node.clone_with_new_inputs(inputs)
        for old, value in zip(node.outputs, replace(current) or current.outputs, strict=True):
            if value is not old and old not in known:
                new[old] = old.type.filter_variable(value)
    return [new.get(v, v) for v in outputs]


def _predicted(outputs: Sequence[Variable]) -> list[Variable]:
    """Return outputs of which each node is replaced by what it says; the same variables where none is."""
    return _without_idle_masks(_rebuilt(outputs, _replacement, {}))


def _replacement(node: Apply) -> Sequence[Variable] | None:
    """Return what replaces the outputs of a node; None if it stays."""
    op: Any = node.op
    if isinstance(op, Marker):
        found = _of_marker(node, op)
        if found is not None:
            return found
    core = getattr(op, "core_op", None)
    if isinstance(op, Blockwise) and isinstance(core, Marker) and type(core).predict is not Marker.predict:
        raise ValueError(
            f"{node} is a batch of nodes that a prediction graph replaces: vectorize the graph of `inference`"
        )
    if isinstance(op, Scan):
        return _of_loop(node)
    if isinstance(op, OpFromGraph) and not isinstance(op, RNGConsumerOp):
        return _of_inner_graph(node)
    rewritten = with_rewritten_graph(op, _predict_inside)
    return None if rewritten is op else Apply(rewritten, node.inputs, [v.type() for v in node.outputs]).outputs


def _of_marker(node: Apply, op: Marker) -> list[Variable] | None:
    """Return what a marker says, with states that keep their values."""
    found = op.predict(node)
    if found is None:
        return None
    kept = {j: node.inputs[i] for i, j in op.states}
    return [kept.get(j, node.outputs[j]) if v is None else v for j, v in enumerate(found)]


def _predict_inside(graph: FunctionGraph) -> None:
    """Replace the outputs of an inner graph."""
    predicted = _predicted(graph.outputs)
    pairs = [(a, b) for a, b in zip(graph.outputs, predicted, strict=True) if a is not b]
    graph.replace_all(pairs, reason="nn_inference", import_missing=True)


def _of_inner_graph(node: Apply) -> list[Variable] | None:
    """Return the outputs of a node whose inner graph has something to replace, as a part of the outer graph."""
    inner = node.op.fgraph.unfreeze()
    predicted = _predicted(inner.outputs)
    if all(a is b for a, b in zip(predicted, inner.outputs, strict=True)):
        return None
    return _rebuilt(predicted, lambda node: None, dict(zip(inner.inputs, node.inputs, strict=True)))


# Loops


def _of_loop(node: Apply) -> list[Variable] | None:
    """Return the outputs of a loop with replaced steps, without states and inputs that these no longer read."""
    loop = ScanArgs.from_node(node, clone=True)
    before = loop.inner_outputs
    predicted = _predicted(before)
    if all(a is b for a, b in zip(predicted, before, strict=True)):
        return None
    _set_inner_outputs(loop, predicted)
    unchanged = _drop_unchanged_states(loop)
    _drop_unread_inputs(loop)
    op: Any = node.op
    options = {name: getattr(op, name) for name in ("mode", "truncate_gradient", "name", "profile", "allow_gc")}
    new = Scan(loop.inner_inputs, loop.inner_outputs, loop.info, **options).make_node(*loop.outer_inputs)
    made = dict(zip(loop.outer_outputs, new.outputs, strict=True))
    return [unchanged.get(v, made.get(v, v)) for v in node.outputs]


def _set_inner_outputs(loop: Any, outputs: Sequence[Variable]) -> None:
    left = list(outputs)

    def take(like: Sequence[Variable]) -> list[Variable]:
        taken = left[: len(like)]
        del left[: len(like)]
        return taken

    loop.inner_out_mit_mot = tuple(take(part) for part in loop.inner_out_mit_mot)
    for field in ("mit_sot", "sit_sot", "nit_sot", "shared"):
        setattr(loop, f"inner_out_{field}", take(getattr(loop, f"inner_out_{field}")))
    loop.cond = take(loop.cond)


def _drop_unchanged_states(loop: Any) -> dict[Variable, Variable]:
    """Remove the untraced states that no step changes; return their values after the loop, those before it."""
    unchanged = {}
    for k in reversed(range(len(loop.inner_in_shared))):
        state = loop.inner_in_shared[k]
        if loop.inner_out_shared[k] is not state:
            continue
        unchanged[loop.outer_out_shared[k]] = loop.outer_in_shared[k]
        loop.inner_in_non_seqs.append(state)  # a step may still read it
        loop.outer_in_non_seqs.append(loop.outer_in_shared[k])
        for field in ("inner_in", "inner_out", "outer_in", "outer_out"):
            del getattr(loop, f"{field}_shared")[k]
    return unchanged


def _drop_unread_inputs(loop: Any) -> None:
    """Remove the inputs that are the same in each step and that no step reads."""
    read = set(ancestors(loop.inner_outputs))
    kept = [k for k, v in enumerate(loop.inner_in_non_seqs) if v in read]
    for field in ("inner_in_non_seqs", "outer_in_non_seqs"):
        values = getattr(loop, field)
        setattr(loop, field, [values[k] for k in kept])


# Masks and shared variables


def _without_idle_masks(outputs: list[Variable]) -> list[Variable]:
    """Return outputs in which masks that nothing uses no longer move the generator on for the draws after them."""
    nodes = list(toposort(outputs))
    used = {v for node in nodes for v in node.inputs} | set(outputs)
    idle: dict[Variable, Variable] = {}
    for node in nodes:
        if isinstance(node.op, DropoutMask) and node.outputs[1] not in used:
            before, after = node.inputs[0], node.outputs[0]
            idle[after] = idle.get(before, before)
    return _rebuilt(outputs, lambda node: None, idle) if idle else outputs


def _frozen(outputs: list[Variable]) -> list[Variable]:
    """Return outputs with constants in place of shared variables."""
    shared = [v for v in ancestors(outputs) if isinstance(v, SharedVariable) and not isinstance(v.type, RandomType)]
    constants: dict[Variable, Variable] = {v: v.type.make_constant(v.get_value(), name=v.name) for v in shared}
    return _rebuilt(outputs, lambda node: None, constants) if constants else outputs
