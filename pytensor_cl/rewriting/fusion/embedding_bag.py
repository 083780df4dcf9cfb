"""Reductions of gathered rows -> GpuEmbeddingBag: the rows are read in place and not stored.

A mean of word vectors, ``table[words].mean(axis=1)``, is an example.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.indexing.embedding_bag import GpuEmbeddingBag
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from pytensor_cl.ops.reduction import OPERATIONS, GpuCAReduce


def _is_row_gather(node: Apply, fgraph: FunctionGraph) -> bool:
    """Return whether a node gathers rows of a table by an array of integers, for a single client."""
    if not isinstance(node.op, GpuAdvancedSubtensor) or tuple(node.op.host.idx_list) != (0,):
        return False
    table, index = node.inputs
    is_index = index.type.dtype != "bool" and index.type.ndim > 0 and context_of(index) == node.op.context_name
    return is_index and table.type.ndim > 1 and len(fgraph.clients[node.outputs[0]]) == 1


def _is_bag(node: Apply, fgraph: FunctionGraph) -> bool:
    """Return whether a node reduces gathered rows along axes of their index."""
    if not isinstance(node.op, GpuCAReduce):
        return False
    (rows,), host = node.inputs, node.op.host
    gather = rows.owner
    if gather is None or not _is_row_gather(gather, fgraph) or gather.op.context_name != node.op.context_name:
        return False
    dtypes = {rows.type.dtype, node.outputs[0].type.dtype, host.acc_dtype or rows.type.dtype}
    has_code = type(host.scalar_op).__name__ in OPERATIONS and all(
        np.dtype(d).kind in "fiub" and d != "float16" for d in dtypes
    )
    ndim = gather.inputs[1].type.ndim
    return has_code and bool(host.axis) and all(0 <= axis < ndim for axis in host.axis)


def fuse_embedding_bags(fgraph: FunctionGraph) -> None:
    """Fuse reductions with the gathers that compute their input."""
    for node in fgraph.toposort():
        if _is_bag(node, fgraph):
            (rows,), (old,) = node.inputs, node.outputs
            op = GpuEmbeddingBag(node.op.host, rows.owner.op.host, node.op.context_name)
            new = op.make_node(*rows.owner.inputs).outputs[0]
            fgraph.replace_all_validate([(old, old.type.filter_variable(new))], reason="opencl_embedding_bag")
