"""Scalars that PyTensor's fusion computes together, though they wait for different things -> each by itself.

The mean of a loss and the factor ``1 / n`` of a gradient are two results of one Composite: it would wait for the mean.
"""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.rewriting.fusion.rowwise.producer_duplication import select_outputs

__all__ = ["split_composites"]


def _awaited(node: Apply) -> list[frozenset[int]]:
    """Return, for each output of a Composite, which of the inputs it needs are results of other kernels."""
    graph = node.op.host.scalar_op.fgraph
    found = []
    for output in graph.outputs:
        read = set(explicit_graph_inputs([output]))
        found.append(frozenset(i for i, v in enumerate(graph.inputs) if v in read and _is_made(node, i)))
    return found


def _is_made(node: Apply, number: int) -> bool:
    owner = node.inputs[number].owner
    return owner is not None and isinstance(owner.op, GpuOp) and not isinstance(owner.op, GpuFromHost)


def _is_of_scalars(node: Apply) -> bool:
    """Whether a node computes several single numbers."""
    return (
        isinstance(node.op, GpuElemwise)
        and isinstance(node.op.host.scalar_op, ps.Composite)
        and len(node.outputs) > 1
        and all(node.outputs[0].type.broadcastable)
    )


def split_composites(fgraph: FunctionGraph) -> None:
    """Compute single numbers apart where one waits for a kernel that the other does not need.

    Parameters
    ----------
    fgraph
        A graph after lifting; changed in place.
    """
    for node in fgraph.toposort():
        if not _is_of_scalars(node) or len(set(_awaited(node))) == 1:
            continue
        made = [select_outputs(node, [i], list(node.inputs))[i] for i in range(len(node.outputs))]
        pairs = [(old, old.type.filter_variable(new)) for old, new in zip(node.outputs, made, strict=True)]
        fgraph.replace_all_validate(pairs, reason="opencl_rowwise")
