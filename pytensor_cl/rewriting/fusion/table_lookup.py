"""A gather from a table with a single client -> a lookup in the client's kernel.

The linear predictor of a hierarchical model, ``alpha[group] + beta[group] * x``, is an example.
"""

from collections.abc import Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from pytensor_cl.ops.rowwise import DROPPED, FULL, VALUE
from pytensor_cl.ops.shape import GpuDimShuffle
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain, has_single_outputs, reduction_domain
from pytensor_cl.rewriting.fusion.rowwise.function import fuse
from pytensor_cl.routines.rowwise.limits import FIXED_BYTES, array_bytes
from pytensor_cl.runtime.registry import get_context

TABLE_BYTES = 32
"""Arguments for each table."""


def _is_vector_lookup(node: Apply) -> bool:
    """Return whether a node gathers elements of a vector by an array of integers."""
    if not isinstance(node.op, GpuAdvancedSubtensor) or node.op.host.idx_list != (0,):
        return False
    table, index = node.inputs
    return table.type.ndim == 1 and index.type.ndim > 0 and index.type.dtype != "bool"


def _fits(node: Apply, domain: FusionDomain) -> bool:
    """Return whether a row kernel has code for a lookup, and makes as many of them as the gather."""
    (found,), (_, index) = node.outputs, node.inputs
    form = domain.output_form(found)
    return form not in (None, VALUE) and domain.form(index) == form


def _is_row_gather(node: Apply, domain: FusionDomain) -> bool:
    """Return whether a node gathers a row of a matrix for each row of the domain, on a device of schedule cpu."""
    if not isinstance(node.op, GpuAdvancedSubtensor) or tuple(node.op.host.idx_list) != (0,):
        return False
    (found,), (table, index) = node.outputs, node.inputs
    is_index = index.type.dtype != "bool" and index.type.ndim == 1 and domain.form(index) == DROPPED
    is_matrix = domain.pattern == (False, False) and domain.axes == (1,) and domain.output_form(found) == FULL
    is_cpu = get_context(domain.context_name).info.schedule == "cpu"
    return is_cpu and is_index and is_matrix and table.type.ndim == 2 and not table.type.broadcastable[1]


def lookups_for(
    nodes: Sequence[Apply], outputs: Sequence[Variable], domain: FusionDomain, fgraph: FunctionGraph
) -> list[Apply]:
    """Return the gathers that have no other clients than `nodes`, as many as the arguments of a kernel have room for.

    The nodes become one kernel, which stores `outputs`.
    """
    made = {v for node in nodes for v in node.outputs}
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v not in made)
    owners = dict.fromkeys(v.owner for v in read if v.owner is not None)
    gathers = [n for n in owners if (_is_vector_lookup(n) and _fits(n, domain)) or _is_row_gather(n, domain)]
    single = [n for n in gathers if all(client in nodes for client, _ in fgraph.clients[n.outputs[0]])]
    used = FIXED_BYTES + (len(read) + len(outputs)) * array_bytes(domain.ndim)
    room = (get_context(domain.context_name).info.max_parameter_size - used) // TABLE_BYTES
    return single[: max(0, room)]


def move_views_to_index(fgraph: FunctionGraph) -> None:
    """View of table[i] -> table[view of i], so that the client of the view can look up."""
    for node in fgraph.toposort():
        source = node.inputs[0].owner if isinstance(node.op, GpuDimShuffle) else None
        if source is None or not _is_vector_lookup(source) or len(fgraph.clients[source.outputs[0]]) > 1:
            continue
        table, index = source.inputs
        if context_of(index) == node.op.context_name:
            found = source.op.make_node(table, node.op.make_node(index).outputs[0]).outputs[0]
            old = node.outputs[0]
            fgraph.replace_all_validate([(old, old.type.filter_variable(found))], reason="opencl_table_lookup")


def _domain(node: Apply) -> FusionDomain | None:
    """Return the fusion domain of a single node; an elementwise function is one of a single row."""
    if not isinstance(node.op, GpuElemwise):
        return reduction_domain(node)
    pattern = tuple(node.outputs[0].type.broadcastable)
    domain = FusionDomain(node.op.context_name, tuple(range(len(pattern))), pattern)
    is_row_function = domain.accepts(node) and domain.output_form(node.outputs[0]) == FULL
    return domain if is_row_function and has_single_outputs(node.op.host.scalar_op) else None


def fuse_table_lookups(fgraph: FunctionGraph) -> None:
    """Fuse gathers into elementwise nodes and reductions that are their only clients."""
    move_views_to_index(fgraph)
    for node in fgraph.toposort():
        domain = _domain(node)
        if domain is None:
            continue
        outputs = [v for v in node.outputs if fgraph.clients[v]]
        lookups = lookups_for([node], outputs, domain, fgraph)
        if lookups and outputs:
            fuse(fgraph, [*lookups, node], outputs, domain, "opencl_table_lookup")
