"""Elements of a table that only one node reads -> looked up by the kernel of that node.

The linear predictor of a hierarchical model, ``alpha[group] + beta[group] * x``, is one.
"""

from collections.abc import Sequence

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from pytensor_cl.ops.rowwise import DROPPED, FULL, VALUE
from pytensor_cl.ops.shape import GpuDimShuffle
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain, reduction_domain
from pytensor_cl.rewriting.fusion.rowwise.function import fuse
from pytensor_cl.runtime.registry import get_context

__all__ = ["FIXED_BYTES", "array_bytes", "fuse_table_lookups", "lookups_for", "move_views_to_index"]

FIXED_BYTES = 320
"""Of the arguments of a kernel of rows, besides those for each array; an estimate from above."""

TABLE_BYTES = 32
"""Of the arguments for each table."""


def array_bytes(ndim: int) -> int:
    """Return the bytes of the arguments of a kernel for each array: a pointer, an offset and its steps."""
    return 8 * (ndim + 4)


def _is_of_vector(node: Apply) -> bool:
    """Whether a node reads elements of a vector, where an array of integers says."""
    if not isinstance(node.op, GpuAdvancedSubtensor) or node.op.host.idx_list != (0,):
        return False
    table, index = node.inputs
    return table.type.ndim == 1 and index.type.ndim > 0 and index.type.dtype != "bool"


def _fits(node: Apply, domain: FusionDomain) -> bool:
    """Whether a kernel over the rows has code for what is looked up, and does so no more often than a gather."""
    (found,), (_, index) = node.outputs, node.inputs
    form = domain.made(found)
    return form not in (None, VALUE) and domain.form(index) == form


def _is_picked(node: Apply, domain: FusionDomain) -> bool:
    """Whether a node picks rows of a matrix, one for each row of the domain."""
    if not isinstance(node.op, GpuAdvancedSubtensor) or tuple(node.op.host.idx_list) != (0,):
        return False
    (found,), (table, index) = node.outputs, node.inputs
    is_index = index.type.dtype != "bool" and index.type.ndim == 1 and domain.form(index) == DROPPED
    is_plain = domain.pattern == (False, False) and domain.axes == (1,) and domain.made(found) == FULL
    is_cpu = get_context(domain.context_name).info.schedule == "cpu"
    return is_cpu and is_index and is_plain and table.type.ndim == 2 and not table.type.broadcastable[1]


def _is_read_elsewhere(variable: Variable, nodes: Sequence[Apply], fgraph: FunctionGraph) -> bool:
    return any(client not in nodes for client, _ in fgraph.clients[variable])


def lookups_for(
    nodes: Sequence[Apply], outputs: Sequence[Variable], domain: FusionDomain, fgraph: FunctionGraph
) -> list[Apply]:
    """Return the nodes that look up what only `nodes` read, as many as one kernel may have tables for.

    Parameters
    ----------
    nodes, outputs
        What becomes one kernel, and what others need of it.
    domain
        What they work on.
    fgraph
        Where they are.
    """
    made = {v for node in nodes for v in node.outputs}
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v not in made)
    owners = dict.fromkeys(v.owner for v in read if v.owner is not None)
    found = [n for n in owners if (_is_of_vector(n) and _fits(n, domain)) or _is_picked(n, domain)]
    alone = [n for n in found if not _is_read_elsewhere(n.outputs[0], nodes, fgraph)]
    arrays = len(read) + len(outputs)
    used = FIXED_BYTES + arrays * array_bytes(domain.ndim)
    room = (get_context(domain.context_name).info.max_parameter_size - used) // TABLE_BYTES
    return alone[: max(0, room)]


def move_views_to_index(fgraph: FunctionGraph) -> None:
    """View of table[i] -> table[view of i], so that the node that reads the view can look up."""
    for node in fgraph.toposort():
        source = node.inputs[0].owner if isinstance(node.op, GpuDimShuffle) else None
        if source is None or not _is_of_vector(source) or len(fgraph.clients[source.outputs[0]]) > 1:
            continue
        table, index = source.inputs
        if context_of(index) == node.op.context_name:
            found = source.op.make_node(table, node.op.make_node(index).outputs[0]).outputs[0]
            old = node.outputs[0]
            fgraph.replace_all_validate([(old, old.type.filter_variable(found))], reason="opencl_table_lookup")


def _is_single(op: ps.ScalarOp) -> bool:
    """Whether each scalar Op of a function has one result, as the steps of a row function have."""
    if isinstance(op, ps.Composite):
        return all(_is_single(node.op) and len(node.outputs) == 1 for node in op.fgraph.apply_nodes)
    return op.nout == 1


def _domain(node: Apply) -> FusionDomain | None:
    """Return what a lonely node works on: an elementwise function is one of a single row."""
    if not isinstance(node.op, GpuElemwise):
        return reduction_domain(node)
    pattern = tuple(node.outputs[0].type.broadcastable)
    domain = FusionDomain(node.op.context_name, tuple(range(len(pattern))), pattern)
    is_row_function = domain.takes(node) and domain.made(node.outputs[0]) == FULL
    return domain if is_row_function and _is_single(node.op.host.scalar_op) else None


def fuse_table_lookups(fgraph: FunctionGraph) -> None:
    """Let elementwise nodes and reductions look up what only they read.

    Parameters
    ----------
    fgraph
        A graph after lifting and `rewriting.rowwise`, which does so for the nodes that it joins; changed in place.
    """
    move_views_to_index(fgraph)
    for node in fgraph.toposort():
        domain = _domain(node)
        if domain is None:
            continue
        outputs = [v for v in node.outputs if fgraph.clients[v]]
        lookups = lookups_for([node], outputs, domain, fgraph)
        if lookups and outputs:
            fuse(fgraph, [*lookups, node], outputs, domain, "opencl_table_lookup")
