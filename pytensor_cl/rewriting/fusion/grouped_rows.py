"""Gathers, a row function and scatter-adds along the same rows -> GpuGroupedRows, which stores no full array.

The density and the gradient of a hierarchical model for many chains are an example: the effects of the groups are a
matrix with a row for each chain, and ``effects[:, group]`` has a column for each observation.
"""

from collections.abc import Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors

from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.grouped_rows import GpuGroupedRows
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedIncSubtensor, GpuAdvancedSubtensor
from pytensor_cl.ops.reduction import GpuCAReduce
from pytensor_cl.ops.rowwise import FULL, GATHERED, TABLE, VALUE, GpuRowwise
from pytensor_cl.rewriting.fusion.replace import replace_outputs
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain, reduction_domain
from pytensor_cl.rewriting.fusion.rowwise.function import fused_node
from pytensor_cl.rewriting.fusion.rowwise.producer_duplication import select_outputs
from pytensor_cl.runtime.registry import get_context

ALONG_ROW = slice(None), 0
"""The index ``x[:, index]``."""

FIXED_BYTES, ARRAY_BYTES, INDEX_BYTES = 192, 40, 32
"""Upper bounds of a kernel's own arguments, of each array's arguments, and of each index's arguments."""

AXES = (1,)
MATRIX = (False, False)


def _is_index(variable: Variable, context_name: str) -> bool:
    kind = variable.type
    return context_of(variable) == context_name and kind.dtype != "bool" and kind.broadcastable == (False,)


def _is_gather(node: Apply | None, context_name: str) -> bool:
    """Return whether a node is ``x[:, index]`` of a matrix."""
    if node is None or not isinstance(node.op, GpuAdvancedSubtensor) or node.op.context_name != context_name:
        return False
    table, index = node.inputs[0], node.inputs[-1]
    is_along_row = tuple(node.op.host.idx_list) == ALONG_ROW
    return is_along_row and table.type.broadcastable == MATRIX and _is_index(index, context_name)


def _is_scatter(node: Apply, value: Variable, context_name: str) -> bool:
    """Return whether a node is ``inc_subtensor(x[:, index], value)`` of a matrix."""
    op = node.op
    if not isinstance(op, GpuAdvancedIncSubtensor) or op.context_name != context_name:
        return False
    base, added, index = node.inputs[0], node.inputs[1], node.inputs[-1]
    is_sum = not op.host.set_instead_of_inc and not op.host.ignore_duplicates
    is_along_row = tuple(op.host.idx_list) == ALONG_ROW and _is_index(index, context_name)
    is_same = added is value and base is not value and base.type.dtype == value.type.dtype != "bool"
    return is_sum and is_along_row and is_same and base.type.broadcastable == MATRIX


def _domain(node: Apply) -> FusionDomain | None:
    """Return the fusion domain of a row function along rows of matrices, or of a node that could be one."""
    op = node.op
    if isinstance(op, GpuRowwise):
        is_plain = not {TABLE, GATHERED} & set(op.forms)
        return FusionDomain(op.context_name, AXES, MATRIX) if (op.ndim, op.axes) == (2, AXES) and is_plain else None
    if isinstance(op, GpuCAReduce):
        domain = reduction_domain(node)
        return domain if domain is not None and (domain.axes, domain.pattern) == (AXES, MATRIX) else None
    if not isinstance(op, GpuElemwise):
        return None
    domain = FusionDomain(op.context_name, AXES, MATRIX)
    return domain if domain.accepts(node) and domain.is_full(node) else None


class _Fusion:
    """Finds what becomes one kernel with a row function."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self._fgraph = fgraph
        found = ((node, _domain(node)) for node in fgraph.toposort())
        self.domains = {
            node: domain
            for node, domain in found
            if domain is not None and get_context(domain.context_name).info.schedule == "cpu"
        }

    def gathers(self, node: Apply) -> dict[Variable, Apply]:
        """Return the gathers that only row functions read, by the gathered variable."""
        domain = self.domains[node]
        found = {v: v.owner for v in node.inputs if _is_gather(v.owner, domain.context_name)}
        return {v: gather for v, gather in found.items() if domain.form(v) == FULL and self._is_read_by_rows(v)}

    def _is_read_by_rows(self, variable: Variable) -> bool:
        return all(client in self.domains for client, _ in self._fgraph.clients[variable])

    def scatters(self, node: Apply) -> dict[Apply, Variable]:
        """Return the scatter-adds of full outputs, whose other inputs do not depend on the node."""
        domain = self.domains[node]
        return {
            client: v
            for v in node.outputs
            if domain.output_form(v) == FULL
            for client, _ in self._fgraph.clients[v]
            if _is_scatter(client, v, domain.context_name)
            and node not in {a.owner for a in ancestors([client.inputs[0], client.inputs[-1]])}
        }

    def fuse(self, node: Apply) -> None:
        """Replace a row function, its gathers and its scatter-adds by one node, if there are any."""
        gathers, scatters = self.gathers(node), self.scatters(node)
        if not gathers and not scatters:
            return
        kept = [v for v in node.outputs if any(client not in scatters for client, _ in self._fgraph.clients[v])]
        rows = _row_node(node, self.domains[node], kept, list(scatters.values()))
        indices = list(dict.fromkeys(n.inputs[-1] for n in (*gathers.values(), *scatters)))
        bases = [scatter.inputs[0] for scatter in scatters]
        operands = [gathers[v].inputs[0] if v in gathers else v for v in rows.inputs]
        arrays = len(operands) + len(bases) + len(rows.outputs)
        if not self._fits(node, arrays, len(indices)):
            return
        functions: list[tuple[int, GpuRowwise, int]] = []
        others: list[Variable] = []
        for g, k in enumerate(k for k, v in enumerate(rows.inputs) if v in gathers):
            made = self._table_function(operands[k], self.domains[node])
            if made is not None and self._fits(node, arrays + len(others) + len(made[0].inputs) - 1, len(indices)):
                table, source = made
                operands[k] = table.inputs[source]
                functions.append((g, table.op, source))
                others += [v for i, v in enumerate(table.inputs) if i != source]
        op = GpuGroupedRows(
            rows.op,
            tuple((k, indices.index(gathers[v].inputs[-1])) for k, v in enumerate(rows.inputs) if v in gathers),
            tuple((k, indices.index(scatter.inputs[-1])) for k, scatter in enumerate(scatters, len(kept))),
            tuple(functions),
            self.domains[node].context_name,
        )
        new = op.make_node(*operands, *indices, *bases, *others).outputs
        old = [*kept, *(scatter.outputs[0] for scatter in scatters)]
        replace_outputs(self._fgraph, old, new, "opencl_grouped_rows")

    def _table_function(self, table: Variable, domain: FusionDomain) -> tuple[Apply, int] | None:
        """Return a node of an elementwise function that makes a table for a single gather; None if there is none.

        With the number of an operand that is a matrix of the dtype of the table.
        """
        node = table.owner
        if node is None or not isinstance(node.op, GpuElemwise) or not self._is_gathered(node, domain):
            return None
        if len(node.outputs) > 1:
            (table,) = select_outputs(node, [node.outputs.index(table)], node.inputs).values()
        if not (domain.accepts(table.owner) and domain.is_full(table.owner)):
            return None
        made = fused_node([table.owner], [table], domain)
        forms = made.op.forms[: len(made.inputs)]
        full = [k for k, form in enumerate(forms) if form == FULL]
        sources = [k for k in full if made.inputs[k].type.dtype == table.type.dtype]
        is_plain = VALUE not in forms and all(made.inputs[k].type.broadcastable == MATRIX for k in full)
        return (made, sources[0]) if is_plain and sources else None

    def _is_gathered(self, node: Apply, domain: FusionDomain) -> bool:
        """Return whether no output has another client than one gather that only row functions read."""
        clients = [self._fgraph.clients[v] for v in node.outputs]
        return all(
            _is_gather(client, domain.context_name) and len(of) == 1 and self._is_read_by_rows(client.outputs[0])
            for of in clients
            for client, _ in of
        )

    def _fits(self, node: Apply, arrays: int, indices: int) -> bool:
        """Return whether there is room for the arguments of the kernel."""
        used = FIXED_BYTES + arrays * ARRAY_BYTES + indices * INDEX_BYTES
        return used <= get_context(self.domains[node].context_name).info.max_parameter_size


def _row_node(node: Apply, domain: FusionDomain, kept: Sequence[Variable], scattered: Sequence[Variable]) -> Apply:
    """Return a row function that computes outputs of a node: those that are kept, then those to be scattered."""
    outputs = [*kept, *scattered]
    if not isinstance(node.op, GpuRowwise):
        return fused_node([node], outputs, domain)
    op, function = node.op, node.op.function
    picked = [node.outputs.index(v) for v in outputs]
    first = len(function.operands)
    forms = *op.forms[:first], *(op.forms[first + k] for k in picked)
    chosen = type(function)(function.operands, function.steps, tuple(function.outputs[k] for k in picked))
    return GpuRowwise(chosen, op.ndim, op.axes, forms, op.context_name).make_node(*node.inputs)


def fuse_grouped_rows(fgraph: FunctionGraph) -> None:
    """Fuse row functions with the gathers before them and the scatter-adds after them."""
    kinds = GpuAdvancedSubtensor, GpuAdvancedIncSubtensor
    if not any(isinstance(node.op, kinds) and tuple(node.op.host.idx_list) == ALONG_ROW for node in fgraph.apply_nodes):
        return
    fusion = _Fusion(fgraph)
    for node in list(fusion.domains):
        fusion.fuse(node)
