"""Composites of 0-d values whose outputs depend on different kernels -> one node for each output.

PyTensor may fuse the mean of a loss and the factor ``1 / n`` of its gradient. The factor would then wait for the mean.
"""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.rewriting.fusion.rowwise.producer_duplication import select_outputs


def _dependencies(node: Apply) -> set[frozenset[int]]:
    """Return the sets of inputs, computed by kernels, on which the outputs of a Composite depend."""
    computed = {
        i
        for i, v in enumerate(node.inputs)
        if v.owner is not None and isinstance(v.owner.op, GpuOp) and not isinstance(v.owner.op, GpuFromHost)
    }
    graph = node.op.host.scalar_op.fgraph
    read = (set(explicit_graph_inputs([output])) for output in graph.outputs)
    return {frozenset(i for i, v in enumerate(graph.inputs) if v in inputs and i in computed) for inputs in read}


def _is_composite_of_scalars(node: Apply) -> bool:
    """Return whether a node is a Composite with several outputs of one element each."""
    return (
        isinstance(node.op, GpuElemwise)
        and isinstance(node.op.host.scalar_op, ps.Composite)
        and len(node.outputs) > 1
        and all(node.outputs[0].type.broadcastable)
    )


def split_composites(fgraph: FunctionGraph) -> None:
    """Split Composites of single elements where one output depends on a kernel that another does not need."""
    for node in fgraph.toposort():
        if not _is_composite_of_scalars(node) or len(_dependencies(node)) == 1:
            continue
        made = [select_outputs(node, [i], list(node.inputs))[i] for i in range(len(node.outputs))]
        pairs = [(old, old.type.filter_variable(new)) for old, new in zip(node.outputs, made, strict=True)]
        fgraph.replace_all_validate(pairs, reason="opencl_rowwise")
