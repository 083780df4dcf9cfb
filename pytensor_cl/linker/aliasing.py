"""Variables that share memory: views, and results that are computed in place."""

from collections.abc import Iterable

from pytensor.graph.basic import Apply, Variable


def mutated_inputs(nodes: Iterable[Apply]) -> set[Variable]:
    """Return the variables whose memory nodes change in place: inputs of the graph, or results of other nodes."""
    return {view_root(n.inputs[i]) for n in nodes for many in n.op.destroy_map.values() for i in many}


def view_root(variable: Variable) -> Variable:
    """Return the variable that owns the memory of a variable."""
    while variable.owner is not None:
        op, index = variable.owner.op, variable.owner.outputs.index(variable)
        sources = op.view_map.get(index) or op.destroy_map.get(index)
        if not sources:
            break
        variable = variable.owner.inputs[sources[0]]
    return variable


def views_of(variable: Variable, nodes: Iterable[Apply]) -> set[Variable]:
    """Return a variable and all results of `nodes`, in their order, that may share its memory."""
    views = {variable}
    for node in nodes:
        may_alias = getattr(node.op, "may_alias", False)
        viewed = node.inputs if may_alias else [node.inputs[i] for many in node.op.view_map.values() for i in many]
        if not views.isdisjoint(viewed):
            views.update(node.outputs)
    return views
