"""Elementwise nodes and reductions along the same axes -> GpuRowwise: fewer walks through memory."""

from collections.abc import Iterable, Iterator

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.reduction import GpuCAReduce
from pytensor_cl.ops.rowwise import FULL
from pytensor_cl.ops.shape import GpuDimShuffle
from pytensor_cl.rewriting.fusion.gemv_pair import is_of_vectors, products_with_one_matrix
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain, reduction_domain
from pytensor_cl.rewriting.fusion.rowwise.function import cost_of, fuse
from pytensor_cl.rewriting.fusion.rowwise.hierarchical_reduction import split_full_reductions
from pytensor_cl.rewriting.fusion.rowwise.producer_duplication import duplicate_producers, fusion_roots
from pytensor_cl.rewriting.fusion.split_composite import split_composites
from pytensor_cl.rewriting.fusion.table_lookup import FIXED_BYTES, array_bytes, lookups_for, move_views_to_index
from pytensor_cl.runtime.registry import get_context

__all__ = ["fuse_rows"]

MOST = 12
"""Arrays of a kernel: more of them hardly share their rows, and its arguments must fit where the device keeps them."""

DEAR_ROW = 10
"""Cost of a row value from which it is better computed with vectors across rows, by a kernel of its own."""


class _Order:
    """Which nodes come before which, and after which, as sets of bits; a group counts as one node."""

    def __init__(self, order: list[Apply]) -> None:
        self.order = order
        self.number = {node: i for i, node in enumerate(order)}
        self._before = [0] * len(order)
        self._after = [0] * len(order)
        self._kept: list[int] = []
        for i, node in enumerate(order):
            for owner in {v.owner for v in node.inputs if v.owner is not None}:
                j = self.number[owner]
                self._before[i] |= self._before[j] | 1 << j
        for i in reversed(range(len(order))):
            for owner in {v.owner for v in order[i].inputs if v.owner is not None}:
                self._after[self.number[owner]] |= self._after[i] | 1 << i

    def join(self, nodes: Iterable[Apply]) -> None:
        """Make one node of several."""
        numbers = [self.number[node] for node in nodes]
        own = sum(1 << i for i in numbers)
        for reached in (self._before, self._after):
            whole = own
            for i in numbers:
                whole |= reached[i]
            for i, bits in enumerate(reached):
                if bits & own or own >> i & 1:
                    reached[i] = bits | whole

    def keep_together(self, first: Apply, last: Apply) -> None:
        """Let two nodes and all between them become one later, if these are elementwise on vectors."""
        ends = 1 << self.number[first] | 1 << self.number[last]
        whole = self._after[self.number[first]] & self._before[self.number[last]] | ends
        nodes = [node for i, node in enumerate(self.order) if whole >> i & 1]
        if all(node in (first, last) or is_of_vectors(node) for node in nodes):
            self.join(nodes)
            self._kept.append(whole)

    def is_convex(self, nodes: Iterable[Apply]) -> bool:
        """Whether no path leaves the nodes, and those that are kept together with them, and comes back."""
        own = before = after = 0
        for i in map(self.number.__getitem__, nodes):
            own |= 1 << i
            before |= self._before[i]
            after |= self._after[i]
        for whole in self._kept:
            own |= whole if whole & own else 0
        return not before & after & ~own

    def is_kept(self, node: Apply) -> bool:
        """Whether a node is kept together with others."""
        return any(whole >> self.number[node] & 1 for whole in self._kept)

    def has_all_between(self, nodes: Iterable[Apply]) -> bool:
        """Whether all is among the nodes that lies between two that are kept together."""
        own = sum(1 << self.number[node] for node in nodes)
        return any(whole & own and (whole & ~own).bit_count() == 2 for whole in self._kept)


class _Fusion:
    """Finds the groups of a graph."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self._fgraph = fgraph
        self._order = _Order(fgraph.toposort())
        for first, last in products_with_one_matrix(fgraph):
            self._order.keep_together(first, last)
        self._taken: set[Apply] = set()
        self._for_others: dict[tuple[Apply, FusionDomain], bool] = {}
        self._leading: dict[tuple[Apply, FusionDomain], bool] = {}

    def _clients(self, node: Apply) -> Iterator[Apply]:
        for variable in node.outputs:
            for client, _ in self._fgraph.clients[variable]:
                if client in self._order.number:
                    yield client

    def _neighbours(self, group: dict[Apply, None], domain: FusionDomain) -> Iterator[Apply]:
        """Yield nodes that read or make what the group does: those before it, those beside it, those after it."""
        read = {v: None for node in group for v in node.inputs}
        for variable in read:
            owner = variable.owner
            if owner in self._order.number and (domain.is_full(owner) or _restores(owner, domain)):
                yield owner
        for variable in read:
            yield from (c for c, _ in self._fgraph.clients[variable] if self._leads_to_a_row(c, domain))
        for node in group:
            yield from self._clients(node)

    def _leads_to_a_row(self, node: Apply, domain: FusionDomain) -> bool:
        """Whether a node is a reduction over the rows, or elementwise and on the way to one."""
        if node not in self._order.number or not isinstance(node.op, GpuElemwise):
            return reduction_domain(node) == domain
        if (node, domain) not in self._leading:
            self._leading[node, domain] = any(self._leads_to_a_row(c, domain) for c in self._clients(node))
        return self._leading[node, domain]

    def _grow(self, seed: Apply, domain: FusionDomain) -> dict[Apply, None]:
        group, unfit = {seed: None}, set(self._taken)
        while True:
            candidates = dict.fromkeys(self._neighbours(group, domain))
            unfit.update(n for n in candidates if n not in unfit and not domain.takes(n))
            found = next((n for n in candidates if n not in unfit and self._joins(n, group, domain)), None)
            if found is None:
                return group
            group[found] = None

    def _joins(self, node: Apply, group: dict[Apply, None], domain: FusionDomain) -> bool:
        if node in group or not self._has_the_shape(node, group, domain) or self._is_for_others(node, domain):
            return False
        larger = {**group, node: None}
        has_room = len(self._border(larger)) <= _most_arrays(domain)
        return has_room and self._order.is_convex(larger) and self._is_one_pass(larger, domain)

    def _is_one_pass(self, group: dict[Apply, None], domain: FusionDomain) -> bool:
        """Whether no full value of a group waits for a reduction in it, if it shall become one with two products."""
        if not any(map(self._order.is_kept, group)):
            return True
        waiting: set[Variable] = set()
        for node in sorted(group, key=self._order.number.__getitem__):
            waits = not waiting.isdisjoint(node.inputs)
            if waits and domain.is_full(node):
                return False
            if waits or reduction_domain(node) is not None:
                waiting.update(node.outputs)
        return True

    def _is_for_others(self, node: Apply, domain: FusionDomain) -> bool:
        """Whether a node only computes what reductions along other axes read: a kernel of theirs takes it in."""
        if not isinstance(node.op, GpuElemwise):
            return reduction_domain(node) not in (None, domain)
        if (node, domain) not in self._for_others:
            clients = {client for v in node.outputs for client, _ in self._fgraph.clients[v]}
            self._for_others[node, domain] = all(self._is_for_others(client, domain) for client in clients)
        return self._for_others[node, domain]

    def _has_the_shape(self, node: Apply, group: dict[Apply, None], domain: FusionDomain) -> bool:
        """Whether the full values of a node must have the shape of those of the group, whatever the data."""
        if not domain.is_full(node):
            return True
        full = {v for n in group for v in (*n.inputs, *n.outputs) if domain.made(v) == FULL}
        return any(v in full for v in (*node.inputs, *node.outputs))

    def _border(self, group: dict[Apply, None]) -> set[Variable]:
        """Return the arrays that a kernel of the group would read and write."""
        made = {v for node in group for v in node.outputs}
        read = {v for node in group for v in node.inputs if v not in made and v.type.ndim}
        return read | set(self._outputs(group))

    def _outputs(self, group: dict[Apply, None]) -> list[Variable]:
        """Return what others need of the group."""
        return [
            v
            for node in sorted(group, key=self._order.number.__getitem__)
            for v in node.outputs
            if any(client not in group for client, _ in self._fgraph.clients[v])
        ]

    def _prune(self, group: dict[Apply, None], domain: FusionDomain) -> None:
        """Leave out row values at the end that a kernel with vectors across rows computes faster."""
        is_single = len(domain.axes) == domain.ndim
        if is_single or get_context(domain.context_name).info.schedule != "cpu":
            return
        for node in sorted(group, key=self._order.number.__getitem__, reverse=True):
            is_end = all(client not in group for client in self._clients(node))
            is_dear = isinstance(node.op, GpuElemwise) and cost_of(node.op.host.scalar_op) >= DEAR_ROW
            is_row = isinstance(node.op, GpuDimShuffle) or (is_dear and not domain.is_full(node))
            if is_end and is_row:
                del group[node]

    def is_for_products(self, nodes: list[Apply]) -> bool:
        """Whether the nodes become one with two products later."""
        return self._order.has_all_between(nodes)

    def groups(self) -> Iterator[tuple[list[Apply], list[Variable], FusionDomain]]:
        """Yield the nodes of each group in order, what others need of it, and its rows."""
        seeds = fusion_roots(self._order.order)
        for seed, domain in seeds:
            if seed in self._taken:
                continue
            group = self._grow(seed, domain)
            self._prune(group, domain)
            if _is_worthwhile(group, domain) and self._order.is_convex(group):
                self._taken.update(group)
                self._order.join(group)
                yield sorted(group, key=self._order.number.__getitem__), self._outputs(group), domain


def _restores(node: Apply, domain: FusionDomain) -> bool:
    """Whether a node gives the result of a reduction over the rows its dimensions back."""
    source = node.inputs[0].owner if isinstance(node.op, GpuDimShuffle) else None
    return source is not None and reduction_domain(source) == domain


def _most_arrays(domain: FusionDomain) -> int:
    """Return how many arrays a kernel may have."""
    room = get_context(domain.context_name).info.max_parameter_size - FIXED_BYTES
    return min(MOST, room // array_bytes(domain.ndim))


def _is_worthwhile(group: dict[Apply, None], domain: FusionDomain) -> bool:
    """Whether fusing saves a walk through memory."""
    reductions = sum(isinstance(node.op, GpuCAReduce) for node in group)
    return reductions > 0 and (reductions > 1 or any(domain.is_full(node) for node in group))


def fuse_rows(fgraph: FunctionGraph) -> None:
    """Fuse device nodes over the same rows.

    Parameters
    ----------
    fgraph
        A graph after lifting; changed in place.
    """
    if not any(isinstance(node.op, GpuCAReduce) for node in fgraph.apply_nodes):
        return
    move_views_to_index(fgraph)
    split_composites(fgraph)
    split_full_reductions(fgraph)
    duplicate_producers(fgraph)
    fusion = _Fusion(fgraph)
    for nodes, outputs, domain in list(fusion.groups()):
        # The kernel that reads a matrix once saves more than one that looks things up.
        lookups = [] if fusion.is_for_products(nodes) else lookups_for(nodes, outputs, domain, fgraph)
        fuse(fgraph, [*lookups, *nodes], outputs, domain, "opencl_rowwise")
