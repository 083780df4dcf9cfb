"""Elementwise nodes and reductions along the same axes -> GpuRowwise, which reads and writes each array once."""

from collections.abc import Iterable, Iterator

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.reduction import GpuCAReduce
from pytensor_cl.ops.rowwise import FULL
from pytensor_cl.ops.shape import GpuDimShuffle
from pytensor_cl.rewriting.fusion.gemv_pair import is_vector_elemwise, products_with_one_matrix
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain, reduction_domain
from pytensor_cl.rewriting.fusion.rowwise.function import cost_of, fuse
from pytensor_cl.rewriting.fusion.rowwise.hierarchical_reduction import split_full_reductions
from pytensor_cl.rewriting.fusion.rowwise.producer_duplication import duplicate_producers, fusion_roots
from pytensor_cl.rewriting.fusion.split_composite import split_composites
from pytensor_cl.rewriting.fusion.table_lookup import lookups_for, move_views_to_index
from pytensor_cl.routines.rowwise.limits import FIXED_BYTES, array_bytes
from pytensor_cl.runtime.registry import get_context

MAX_ARRAYS = 12
"""Arrays of a kernel. More of them hardly share their rows, and the arguments must fit into constant memory."""

ROW_VALUE_COST = 10
"""Cost from which a value per row is computed faster by a kernel of its own, with vectors across rows."""


class _Reachability:
    """Ancestors and descendants of each node, as sets of bits; a merged group counts as one node."""

    def __init__(self, order: list[Apply]) -> None:
        self.order = order
        self.number = {node: i for i, node in enumerate(order)}
        self._ancestors = [0] * len(order)
        self._descendants = [0] * len(order)
        self._required: list[int] = []  # groups that must stay mergeable
        for i, node in enumerate(order):
            for owner in {v.owner for v in node.inputs if v.owner is not None}:
                j = self.number[owner]
                self._ancestors[i] |= self._ancestors[j] | 1 << j
        for i in reversed(range(len(order))):
            for owner in {v.owner for v in order[i].inputs if v.owner is not None}:
                self._descendants[self.number[owner]] |= self._descendants[i] | 1 << i

    def merge(self, nodes: Iterable[Apply]) -> None:
        """Treat several nodes as one."""
        numbers = [self.number[node] for node in nodes]
        own = sum(1 << i for i in numbers)
        for related in (self._ancestors, self._descendants):
            union = own
            for i in numbers:
                union |= related[i]
            for i, bits in enumerate(related):
                if bits & own or own >> i & 1:
                    related[i] = bits | union

    def require_together(self, first: Apply, last: Apply) -> None:
        """Keep two nodes and all between them mergeable, if those between are elementwise on vectors."""
        ends = 1 << self.number[first] | 1 << self.number[last]
        group = self._descendants[self.number[first]] & self._ancestors[self.number[last]] | ends
        nodes = [node for i, node in enumerate(self.order) if group >> i & 1]
        if all(node in (first, last) or is_vector_elemwise(node) for node in nodes):
            self.merge(nodes)
            self._required.append(group)

    def is_convex(self, nodes: Iterable[Apply]) -> bool:
        """Return whether no path leaves and re-enters the nodes and the groups that are required to stay with them."""
        own = ancestors = descendants = 0
        for i in map(self.number.__getitem__, nodes):
            own |= 1 << i
            ancestors |= self._ancestors[i]
            descendants |= self._descendants[i]
        for group in self._required:
            own |= group if group & own else 0
        return not ancestors & descendants & ~own

    def is_required(self, node: Apply) -> bool:
        """Return whether a node belongs to a group that must stay mergeable."""
        return any(group >> self.number[node] & 1 for group in self._required)

    def completes_required(self, nodes: Iterable[Apply]) -> bool:
        """Return whether the nodes are all of a required group but its two ends."""
        own = sum(1 << self.number[node] for node in nodes)
        return any(group & own and (group & ~own).bit_count() == 2 for group in self._required)


class _RowFusion:
    """Finds the groups of a graph that become one kernel each."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self._fgraph = fgraph
        self._graph = _Reachability(fgraph.toposort())
        for first, last in products_with_one_matrix(fgraph):
            self._graph.require_together(first, last)
        self._grouped: set[Apply] = set()
        self._only_elsewhere: dict[tuple[Apply, FusionDomain], bool] = {}
        self._leading: dict[tuple[Apply, FusionDomain], bool] = {}

    def groups(self) -> Iterator[tuple[list[Apply], list[Variable], FusionDomain]]:
        """Yield the nodes of each group in topological order, their outputs that others need, and the domain."""
        for root, domain in fusion_roots(self._graph.order):
            if root in self._grouped:
                continue
            group = self._grow_group(root, domain)
            self._prune(group, domain)
            if _is_profitable(group, domain) and self._graph.is_convex(group):
                self._grouped.update(group)
                self._graph.merge(group)
                yield self._sorted(group), self._outputs(group), domain

    def is_for_gemv_pair(self, nodes: list[Apply]) -> bool:
        """Return whether a group becomes one node with two products later."""
        return self._graph.completes_required(nodes)

    def _sorted(self, group: Iterable[Apply]) -> list[Apply]:
        return sorted(group, key=self._graph.number.__getitem__)

    def _clients(self, node: Apply) -> Iterator[Apply]:
        for variable in node.outputs:
            for client, _ in self._fgraph.clients[variable]:
                if client in self._graph.number:
                    yield client

    def _grow_group(self, root: Apply, domain: FusionDomain) -> dict[Apply, None]:
        """Return the group of a root: neighbours join one by one until none fits."""
        group, rejected = {root: None}, set(self._grouped)
        while True:
            candidates = dict.fromkeys(self._neighbours(group, domain))
            rejected.update(n for n in candidates if n not in rejected and not domain.accepts(n))
            found = next((n for n in candidates if n not in rejected and self._can_join(n, group, domain)), None)
            if found is None:
                return group
            group[found] = None

    def _neighbours(self, group: dict[Apply, None], domain: FusionDomain) -> Iterator[Apply]:
        """Yield the producers of the group's inputs, their other consumers, and the group's consumers."""
        read = {v: None for node in group for v in node.inputs}
        for variable in read:
            owner = variable.owner
            if owner in self._graph.number and (
                domain.is_full(owner) or _restores_axes(owner, domain) or _makes_number(owner, domain)
            ):
                yield owner
        for variable in read:
            yield from (c for c, _ in self._fgraph.clients[variable] if self._leads_to_reduction(c, domain))
        for node in group:
            yield from self._clients(node)

    def _leads_to_reduction(self, node: Apply, domain: FusionDomain) -> bool:
        """Return whether a node is a reduction of the domain, or elementwise with such a consumer."""
        if node not in self._graph.number or not isinstance(node.op, GpuElemwise):
            return reduction_domain(node) == domain
        if (node, domain) not in self._leading:
            self._leading[node, domain] = any(self._leads_to_reduction(c, domain) for c in self._clients(node))
        return self._leading[node, domain]

    def _can_join(self, node: Apply, group: dict[Apply, None], domain: FusionDomain) -> bool:
        if node in group or not self._has_equal_shape(node, group, domain) or self._is_only_elsewhere(node, domain):
            return False
        larger = {**group, node: None}
        room = get_context(domain.context_name).info.max_parameter_size - FIXED_BYTES
        fits = len(self._group_io(larger)) <= min(MAX_ARRAYS, room // array_bytes(domain.ndim))
        return fits and self._graph.is_convex(larger) and self._is_one_pass(larger, domain)

    def _is_one_pass(self, group: dict[Apply, None], domain: FusionDomain) -> bool:
        """Return whether no full value depends on a reduction, in a group that becomes part of a gemv pair."""
        if not any(map(self._graph.is_required, group)):
            return True
        dependent: set[Variable] = set()
        for node in self._sorted(group):
            depends = not dependent.isdisjoint(node.inputs)
            if depends and domain.is_full(node):
                return False
            if depends or reduction_domain(node) is not None:
                dependent.update(node.outputs)
        return True

    def _is_only_elsewhere(self, node: Apply, domain: FusionDomain) -> bool:
        """Return whether only reductions of other domains depend on a node: it belongs to their kernels."""
        if not isinstance(node.op, GpuElemwise):
            return reduction_domain(node) not in (None, domain)
        if (node, domain) not in self._only_elsewhere:
            clients = {client for v in node.outputs for client, _ in self._fgraph.clients[v]}
            self._only_elsewhere[node, domain] = all(self._is_only_elsewhere(client, domain) for client in clients)
        return self._only_elsewhere[node, domain]

    def _has_equal_shape(self, node: Apply, group: dict[Apply, None], domain: FusionDomain) -> bool:
        """Return whether the arrays of a node have the shape of the group's for all data: they share one.

        A scalar that both read says nothing about their shapes.
        """
        is_full = domain.is_full(node)
        forms = {v: domain.output_form(v) for n in group for v in (*n.inputs, *n.outputs)}
        shared = (forms.get(v) for v in (*node.inputs, *node.outputs))
        return any(form == FULL if is_full else form is not None for form in shared)

    def _group_io(self, group: dict[Apply, None]) -> set[Variable]:
        """Return the arrays that a kernel of the group reads and writes."""
        made = {v for node in group for v in node.outputs}
        read = {v for node in group for v in node.inputs if v not in made and v.type.ndim}
        return read | set(self._outputs(group))

    def _outputs(self, group: dict[Apply, None]) -> list[Variable]:
        """Return the outputs of the group that other nodes need."""
        return [
            v
            for node in self._sorted(group)
            for v in node.outputs
            if any(client not in group for client, _ in self._fgraph.clients[v])
        ]

    def _prune(self, group: dict[Apply, None], domain: FusionDomain) -> None:
        """Remove final row values that a kernel with vectors across rows computes faster (schedule cpu)."""
        is_single_row = len(domain.axes) == domain.ndim
        if is_single_row or get_context(domain.context_name).info.schedule != "cpu":
            return
        for node in reversed(self._sorted(group)):
            is_last = all(client not in group for client in self._clients(node))
            is_costly = isinstance(node.op, GpuElemwise) and cost_of(node.op.host.scalar_op) >= ROW_VALUE_COST
            is_row_value = isinstance(node.op, GpuDimShuffle) or (is_costly and not domain.is_full(node))
            if is_last and is_row_value:
                del group[node]


def _restores_axes(node: Apply, domain: FusionDomain) -> bool:
    """Return whether a node gives the result of a reduction of the domain its reduced axes back, with length 1."""
    source = node.inputs[0].owner if isinstance(node.op, GpuDimShuffle) else None
    return source is not None and reduction_domain(source) == domain


def _makes_number(node: Apply, domain: FusionDomain) -> bool:
    """Return whether a node computes one number for the only row, or its view: every work-item of a GPU computes it."""
    if len(domain.axes) != domain.ndim or get_context(domain.context_name).info.schedule != "simt":
        return False
    made = node.inputs[0].owner if isinstance(node.op, GpuDimShuffle) else node
    return made is not None and isinstance(made.op, GpuElemwise) and made.outputs[0].type.ndim == 0


def _is_profitable(group: dict[Apply, None], domain: FusionDomain) -> bool:
    """Return whether fusing saves a pass over memory: another reduction, or a full array, shares it.

    On a GPU a launch is worth as much where the reduction is short: of what another reduction has left.
    """
    reductions = [node for node in group if isinstance(node.op, GpuCAReduce)]
    if len(reductions) == 1 and len(group) > 1 and get_context(domain.context_name).info.schedule == "simt":
        source = reductions[0].inputs[0].owner
        is_short = source is not None and isinstance(source.op, GpuCAReduce)
        if is_short and any(isinstance(node.op, GpuElemwise) for node in group):
            return True
    return len(reductions) > 1 or (len(reductions) > 0 and any(domain.is_full(node) for node in group))


def fuse_rows(fgraph: FunctionGraph) -> None:
    """Fuse device nodes over the same rows."""
    if not any(isinstance(node.op, GpuCAReduce) for node in fgraph.apply_nodes):
        return
    move_views_to_index(fgraph)
    split_composites(fgraph)
    split_full_reductions(fgraph)
    duplicate_producers(fgraph)
    fusion = _RowFusion(fgraph)
    for nodes, outputs, domain in list(fusion.groups()):
        # A kernel that reads a matrix once for two products saves more than one that looks up elements.
        lookups = [] if fusion.is_for_gemv_pair(nodes) else lookups_for(nodes, outputs, domain, fgraph)
        fuse(fgraph, [*lookups, *nodes], outputs, domain, "opencl_rowwise")
