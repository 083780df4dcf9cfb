"""Find slices whose offset differs from call to call, such as minibatches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.aliasing import views_of
from pytensor_cl.ops.indexing.slice_update import GpuSubtensor

__all__ = ["DynamicSlices", "find_dynamic_slices"]


@dataclass
class DynamicSlices:
    """What of a graph depends on indices such as that of a minibatch.

    Attributes
    ----------
    indices
        Inputs of the graph.
    nodes
        Host nodes that compute with them.
    variables
        The indices, and the results of these nodes.
    slices
        Nodes whose results may be slices at another offset in each call.
    """

    indices: list[Variable] = field(default_factory=list)
    nodes: list[Apply] = field(default_factory=list)
    variables: set[Variable] = field(default_factory=set)
    slices: set[Apply] = field(default_factory=set)


def find_dynamic_slices(
    nodes: Sequence[Apply], indices: Iterable[Variable], constants: set[Variable], kept: set[Variable]
) -> DynamicSlices:
    """Find slices whose offset differs from call to call.

    Parameters
    ----------
    nodes
        In the order of execution.
    indices
        Inputs from which values are computed that launches depend on.
    constants
        Host values that are the same in all calls with the same indices.
    kept
        Variables that are used after the call.
    """
    found = DynamicSlices(list(indices))
    found.variables.update(found.indices)
    for node in nodes:
        if isinstance(node.op, GpuSubtensor):
            bounds = node.inputs[1:]
            known = all(v in constants or isinstance(v, Constant) for v in bounds)
            if known and not found.variables.isdisjoint(bounds) and kept.isdisjoint(views_of(node.outputs[0], nodes)):
                found.slices.add(node)
        elif not found.variables.isdisjoint(node.inputs) and constants.issuperset(node.outputs):
            found.nodes.append(node)
            found.variables.update(node.outputs)
    return found
