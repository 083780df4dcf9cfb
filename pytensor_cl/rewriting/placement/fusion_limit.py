"""Splits Composites of many arrays: a compiler's time grows with the square of their number.

PyTensor fuses elementwise nodes without a limit. The log density of a model with 40 separately named variables becomes
one node with 121 inputs and 42 outputs, which PoCL compiles for six seconds. Split into parts of at most `MAX_ARRAYS`,
the time is proportional to the number of variables, and parts that compute the same have one kernel.
"""

from collections.abc import Iterator, Sequence

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise

MAX_ARRAYS = 32
"""Inputs and outputs of an elementwise node."""


def split_large_composites(fgraph: FunctionGraph) -> None:
    """Composite of 121 inputs -> several Composites of fewer."""
    for node in fgraph.toposort():
        if isinstance(node.op, Elemwise) and len(node.inputs) + len(node.outputs) > MAX_ARRAYS:
            made = _split(node)
            if made and all(_may_replace(old, new) for old, new in zip(node.outputs, made, strict=True)):
                pairs = list(zip(node.outputs, made, strict=True))
                fgraph.replace_all_validate(pairs, reason="opencl_fusion_limit")


def _may_replace(old: Variable, new: Variable) -> bool:
    """Return whether a result has the type of another one; one that reads other inputs may be broadcast to less."""
    return old.type.is_super(new.type) and old.type.broadcastable == new.type.broadcastable


def _split(node: Apply) -> list[Variable]:
    """Return the outputs of a node, computed by several; nothing if these take longer to compile than the node."""
    inputs, outputs = _in_binary_steps(*_scalar_graph(node))
    if any(isinstance(v, Constant) for v in outputs):
        return []
    order = list(_depth_first(outputs))
    last_reader = {v: at for at, step in enumerate(order) for v in step.inputs}
    last_reader |= dict.fromkeys(outputs, len(order))
    borders = [(*part, *_border(order, *part, last_reader)) for part in _parts(order, last_reader)]
    cost = sum((len(read) + len(kept)) ** 2 for _, _, read, kept in borders)
    if cost >= (len(inputs) + len(outputs)) ** 2:  # many values are alive at a time: gradients of a long chain
        return []
    arrays = dict(zip(inputs, node.inputs, strict=True))
    for start, stop, read, kept in borders:
        made = Elemwise(_composite(order[start:stop], read, kept))(*[arrays[v] for v in read], return_list=True)
        arrays.update(zip(kept, made, strict=True))
    return [arrays[v] for v in outputs]


def _scalar_graph(node: Apply) -> tuple[Sequence[Variable], Sequence[Variable]]:
    op = node.op.scalar_op
    if isinstance(op, ps.Composite):
        return op.fgraph.inputs, op.fgraph.outputs
    inputs = [v.type.to_scalar_type()() for v in node.inputs]
    return inputs, op.make_node(*inputs).outputs


def _in_binary_steps(given: Sequence[Variable], results: Sequence[Variable]) -> tuple[list[Variable], list[Variable]]:
    """Return inputs and outputs of a copy of a graph where sums and products of many floats are steps of two operands.

    The order of the operations stays the same, and a part may end within them.
    """
    inputs = [v.type() for v in given]
    known = dict(zip(given, inputs, strict=True))
    for node in _depth_first(results):
        operands = [known.get(v, v) for v in node.inputs]
        if isinstance(node.op, ps.Add | ps.Mul) and _are_all_the_same_float(node):
            total = operands[0]
            for operand in operands[1:]:
                total = node.op(total, operand)
            known[node.outputs[0]] = total
        else:
            known.update(zip(node.outputs, node.op.make_node(*operands).outputs, strict=True))
    return inputs, [known[v] for v in results]


def _are_all_the_same_float(node: Apply) -> bool:
    dtypes = {v.type.dtype for v in (*node.inputs, *node.outputs)}
    return len(node.inputs) > 2 and len(dtypes) == 1 and dtypes <= {"float32", "float64"}


def _depth_first(outputs: Sequence[Variable]) -> Iterator[Apply]:
    """Yield the nodes of a graph, each directly after the nodes that it alone reads: few values are alive at a time."""
    seen: set[Apply] = set()
    todo = [(v.owner, False) for v in reversed(outputs) if v.owner is not None]
    while todo:
        node, is_ready = todo.pop()
        if is_ready:
            yield node
        elif node not in seen:
            seen.add(node)
            todo.append((node, True))
            todo += [(v.owner, False) for v in reversed(node.inputs) if v.owner is not None]


def _parts(order: Sequence[Apply], last_reader: dict[Variable, int]) -> Iterator[tuple[int, int]]:
    """Yield where parts of at most `MAX_ARRAYS` arrays begin and end; a part has at least one node."""
    start = 0
    for at in range(1, len(order)):
        if sum(map(len, _border(order, start, at + 1, last_reader))) > MAX_ARRAYS:
            yield start, at
            start = at
    yield start, len(order)


def _border(
    order: Sequence[Apply], start: int, stop: int, last_reader: dict[Variable, int]
) -> tuple[list[Variable], list[Variable]]:
    """Return the variables that a part reads, and those of its results that are read after it."""
    made = {v for node in order[start:stop] for v in node.outputs}
    operands = dict.fromkeys(v for node in order[start:stop] for v in node.inputs)
    read = [v for v in operands if v not in made and not isinstance(v, Constant)]
    return read, [v for node in order[start:stop] for v in node.outputs if last_reader.get(v, -1) >= stop]


def _composite(nodes: Sequence[Apply], read: Sequence[Variable], kept: Sequence[Variable]) -> ps.Composite:
    """Return a scalar Op that computes a part of a graph."""
    inputs = [v.type() for v in read]
    known = dict(zip(read, inputs, strict=True))
    for node in nodes:
        copied = node.op.make_node(*[known.get(v, v) for v in node.inputs])
        known.update(zip(node.outputs, copied.outputs, strict=True))
    return ps.Composite(inputs, [known[v] for v in kept])
