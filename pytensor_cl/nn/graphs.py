"""Parameters of a graph, and the states that it reads, with their next values.

Nodes with a state are draws of random numbers, whose state is a generator, and markers such as batch normalisation,
whose states are running statistics.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.subtensor import IncSubtensor
from pytensor.tensor.type import float_dtypes

from pytensor_cl.nn.marker import Marker

Outputs = Any
"""One variable, or a sequence of variables."""
Step = tuple[Variable, Variable]
"""A state, and the variable that is its next value."""


def as_outputs(outputs: Any) -> list[Variable]:
    """Return the outputs of a graph as a list.

    Raises `TypeError`: one is no variable.
    """
    listed = [outputs] if isinstance(outputs, Variable) else list(outputs)
    if not all(isinstance(v, Variable) for v in listed):
        raise TypeError(f"outputs must be a variable or a sequence of variables, not {outputs!r}")
    return listed


def parameters(outputs: Outputs) -> list[SharedVariable]:
    """Return the shared variables of floating point on which a graph depends, in the order of their first use.

    Running statistics, which `state_updates` has, are not among them.

    Parameters
    ----------
    outputs
        One variable or several, such as a loss; a graph of training, not that of `inference`.

    Returns
    -------
    list of SharedVariable
        Each once.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from pytensor_cl import nn
    >>> weight = pytensor.shared(np.ones((3, 2)), name="weight")
    >>> bias = pytensor.shared(np.zeros(2), name="bias")
    >>> nn.parameters(pt.dmatrix("x") @ weight + bias)
    [weight, bias]
    """
    listed = as_outputs(outputs)
    states = {state for node in toposort(listed) for state, _ in _steps_of(node)}
    return [v for v in _leaves(listed) if _is_parameter(v) and v not in states]


def _is_parameter(variable: Variable) -> bool:
    return isinstance(variable, SharedVariable) and getattr(variable.type, "dtype", "") in float_dtypes


def _leaves(outputs: Sequence[Variable]) -> Iterator[Variable]:
    """Yield the variables that no node computes, from left to right in each expression."""
    todo, seen = list(reversed(outputs)), set()
    while todo:
        variable = todo.pop()
        if variable in seen:
            continue
        seen.add(variable)
        if variable.owner is None:
            yield variable
        else:
            todo += reversed(variable.owner.inputs)


def state_updates(outputs: Outputs) -> dict[SharedVariable, Variable]:
    """Return the next value of each shared variable that a graph reads as a state.

    These are the updates that a function of the graph needs: of random generators after all draws, and of running
    statistics after all applications. A state that two nodes read one after the other is followed through both: the
    second one takes the first one's next value. States that are no shared variables, such as inputs of a function, are
    left out.

    Parameters
    ----------
    outputs
        One variable or several, such as a loss and metrics; all that one function computes.

    Returns
    -------
    dict
        From shared variables to their next values, in the order in which the graph computes them: the argument
        ``updates`` of `pytensor.function`.

    Raises
    ------
    ValueError
        Two nodes read the same state independently of each other, so that neither next value is that after both. For
        random generators this would give both nodes the same numbers. Or a loop reads a state that it does not hand on
        to its next step, or a state is computed from a shared variable.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pytensor_cl import nn
    >>> rng = pt.random.shared_rng(seed=1, name="noise")
    >>> after_first, x = nn.dropout(pt.dmatrix("x"), 0.5, rng)
    >>> after_second, y = nn.dropout(pt.exp(x), 0.5, after_first)
    >>> nn.state_updates(y) == {rng: after_second}
    True
    """
    following = _following(as_outputs(outputs))
    computed = set(following.values())
    starts = [state for state in following if state not in computed]
    for state in starts:
        _check_start(state)
    return {state: _last(state, following) for state in starts if isinstance(state, SharedVariable)}


def _check_start(state: Variable) -> None:
    """Refuse a state that is computed from a shared variable, which the update would not reach."""
    if state.owner is not None:
        shared = next((v for v in ancestors([state]) if isinstance(v, SharedVariable)), None)
        if shared is not None:
            raise ValueError(
                f"{_what(state)} is computed from the shared variable {shared} and read as a state: give the node "
                "the shared variable itself, or the next value that another node returns"
            )


def _last(state: Variable, following: dict[Variable, Variable]) -> Variable:
    """Return the value of a state after all nodes that read it."""
    while state in following:
        state = following[state]
    return state


def _following(outputs: Sequence[Variable]) -> dict[Variable, Variable]:
    """Return the next value of each state that a graph reads, by the variable that is read."""
    following: dict[Variable, Variable] = {}
    for node in toposort(outputs):
        for state, next_value in _steps_of(node):
            if state in following:
                raise ValueError(
                    f"{node} and {following[state].owner} read the same state, {_what(state)}, independently of each "
                    "other: give the second one the next value that the first one returns"
                )
            following[state] = next_value
    return following


def _what(state: Variable) -> str:
    return f"{state} of type {state.type}"


def _steps_of(node: Apply) -> list[Step]:
    """Return the states that a node reads, and their next values."""
    op = node.op
    if isinstance(op, Marker):
        return [(node.inputs[i], node.outputs[j]) for i, j in op.states]
    if isinstance(op, RNGConsumerOp):
        return [(old, new) for old, new in op.update(node).items() if old is not new]
    if isinstance(op, Scan):
        return _steps_of_loop(node)
    if isinstance(op, OpFromGraph):
        inner = op.fgraph
        ends = _inner_ends(inner.inputs, inner.outputs, node)
        outputs = dict(zip(inner.outputs, node.outputs, strict=True))
        _check_handed_on(ends, {state: end for state, end in ends.items() if end in outputs}, node)
        outer = dict(zip(inner.inputs, node.inputs, strict=True))
        return [(outer[state], outputs[end]) for state, end in ends.items()]
    return []


def _inner_ends(inputs: Sequence[Variable], outputs: Sequence[Variable], node: Apply) -> dict[Variable, Variable]:
    """Return the value after all nodes of each input of an inner graph that is read as a state."""
    try:
        following = _following(outputs)
    except ValueError as error:
        raise ValueError(f"inside of {node}: {error}") from None
    return {v: _last(v, following) for v in inputs if v in following}


def _check_handed_on(ends: dict[Variable, Variable], returned: dict[Variable, Variable], node: Apply) -> None:
    """Refuse an inner state whose last value is not what the inner graph returns for it."""
    for state, end in ends.items():
        if returned.get(state) is not end:
            raise ValueError(
                f"{node} reads a state inside, {_what(state)}, whose last next value its inner graph does not return "
                "as the value of the next step: make the state one of outputs_info, and return what the last node "
                "that reads it returns"
            )


def _steps_of_loop(node: Apply) -> list[Step]:
    """Return the states of a loop that nodes inside read as states."""
    op: Any = node.op
    inner_inputs, inner_outputs = op.inner_inputs, op.inner_outputs
    ends = _inner_ends(inner_inputs, inner_outputs, node)
    if not ends:
        return []
    held = [*_untraced(node), *_traced(node)]
    _check_handed_on(ends, {inner: returned for inner, returned, _, _ in held}, node)
    return [(before, after) for inner, _, before, after in held if inner in ends]


Held = tuple[Variable, Variable, Variable, Variable]
"""A state of a loop: its input and output of the inner graph, and its values before and after the loop."""


def _untraced(node: Apply) -> Iterator[Held]:
    """Yield the states of which only the last value is kept, as random generators."""
    op: Any = node.op
    yield from zip(
        op.inner_untraced_sit_sot(op.inner_inputs),
        op.inner_untraced_sit_sot_outs(op.inner_outputs),
        op.outer_untraced_sit_sot(node.inputs),
        op.outer_untraced_sit_sot_outs(node.outputs),
        strict=True,
    )


def _traced(node: Apply) -> Iterator[Held]:
    """Yield the states of which every value is kept."""
    op: Any = node.op
    parts = zip(
        op.inner_sitsot(op.inner_inputs),
        op.inner_sitsot_outs(op.inner_outputs),
        op.outer_sitsot(node.inputs),
        op.outer_sitsot_outs(node.outputs),
        strict=True,
    )
    for inner, returned, buffer, trace in parts:
        yield inner, returned, _first_value(buffer), trace[-1]


def _first_value(buffer: Variable) -> Variable:
    """Return what `scan` has put at the beginning of the array of a state; the array if it is not known."""
    node = buffer.owner
    if node is None or not isinstance(node.op, IncSubtensor) or not node.op.set_instead_of_inc:
        return buffer
    first = node.inputs[1]
    order = ("x", *range(first.type.ndim - 1))
    if first.owner is not None and isinstance(first.owner.op, DimShuffle) and first.owner.op.new_order == order:
        return first.owner.inputs[0]
    return buffer
