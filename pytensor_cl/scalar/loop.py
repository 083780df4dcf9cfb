"""`ScalarLoop` as OpenCL C: one loop for all lanes, in which a lane that is done keeps its state."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pytensor import scalar as ps
from pytensor.scalar.basic import ScalarInnerGraphOp
from pytensor.scalar.loop import ScalarLoop

from pytensor_cl.codegen.emitter import Emitter, Mask, Value

Values = tuple[Value, ...]
EmitGraph = Callable[[Emitter, ScalarInnerGraphOp, Values], Values]


def _for_these_dtypes(loop: ScalarLoop, values: Values) -> ScalarLoop:
    """The inner graph of a loop inside `Elemwise` may still have other dtypes."""
    node = loop.make_node(*(ps.get_scalar_type(value.dtype)() for value in values))
    assert isinstance(node.op, ScalarLoop)
    return node.op


@contextmanager
def _while(emitter: Emitter, condition: Mask) -> Iterator[None]:
    """Write a loop that runs while the condition is true in a lane."""
    emitter.raw(f"while ({condition.anywhere()}) {{")
    with emitter.scope():
        yield
    emitter.raw("}")


def _snapshot(emitter: Emitter, states: Sequence[Value], update: Value) -> Value:
    """An update that is the old state of another variable must be read before that one is assigned to."""
    is_state = any(update.text == state.text for state in states)
    return emitter.variable(update) if is_state else emitter.bind(update)


def emit_loop(emitter: Emitter, loop: ScalarLoop, values: Values, emit_graph: EmitGraph) -> Values:
    """Write a loop of at most ``values[0]`` steps, each lane's own; return the last states, and `until` if there is.

    `values`: the number of steps, the initial states and the constants. After no steps, or fewer, `until` is false, as
    in PyTensor's Python and Numba backends (its C backend has true).
    """
    loop = _for_these_dtypes(loop, values)
    n_steps, *others = values
    count = loop.nout - loop.is_while
    left = emitter.variable(n_steps)
    states = [emitter.variable(value) for value in others[:count]]
    until = [emitter.variable(emitter.literal(False, "bool"))] if loop.is_while else []
    running = left > 0
    with _while(emitter, running):
        updates = emit_graph(emitter, loop, (*states, *others[count:]))
        fresh = [_snapshot(emitter, states, update) for update in updates]
        for variable, update in zip((*states, *until), fresh, strict=True):
            emitter.assign(variable, emitter.select(running, update, variable))
        step = emitter.bind(left - 1)
        stopped = [emitter.select(u.is_true(), emitter.literal(0, left.dtype), step) for u in fresh[count:]]
        emitter.assign(left, emitter.select(running, stopped[0] if stopped else step, left))
    return (*states, *until)
