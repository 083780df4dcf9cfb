"""Full reductions of arrays that are computed row by row -> a reduction of each row, then a reduction of the results.

The first reduction joins the row kernel, so the array is not stored. The loss of a softmax is an example.
"""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.shape import GpuDimShuffle
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain, reduction_domain
from pytensor_cl.runtime.registry import get_context

MAX_ARRAYS = 4
"""Full arrays from which the reduced value may be computed; the arguments of the row kernel must have room for them."""

ASSOCIATIVE = ("Add", "Maximum", "Minimum", "AND", "OR")
"""Operations that may be split. Products are not: products of rows may overflow where the full product does not."""


def _row_domains(variable: Variable, full: FusionDomain) -> list[FusionDomain]:
    """Return the domains of row reductions from which elementwise nodes compute a variable; none for many arrays."""
    found: dict[FusionDomain, None] = {}
    read: set[Variable] = set()
    seen: set[Variable] = {variable}
    pending = [variable]
    while pending:
        current = pending.pop()
        node = current.owner
        source = node.inputs[0].owner if node is not None and isinstance(node.op, GpuDimShuffle) else node
        domain = None if source is None else reduction_domain(source)
        if domain is not None:
            found[domain] = None
        elif node is not None and isinstance(node.op, GpuElemwise):
            pending.extend(v for v in node.inputs if v not in seen)
            seen.update(node.inputs)
        elif all(not known or one for known, one in zip(current.type.broadcastable, full.pattern, strict=False)):
            read.add(current)
    return [d for d in found if _is_subset(d, full)] if len(read) <= MAX_ARRAYS else []


def _is_subset(rows: FusionDomain, full: FusionDomain) -> bool:
    """Return whether a row reduction reduces some of the axes, the last one among them: columns would gain nothing."""
    if rows.ndim - 1 not in rows.axes:
        return False
    same = (rows.context_name, rows.pattern) == (full.context_name, full.pattern)
    return same and set(rows.axes) < set(full.axes)


def _split(node: Apply, rows: FusionDomain) -> Variable:
    """Return the result of a reduction, computed from row results of the accumulator's dtype."""
    host, op = node.op.host, type(node.op)
    acc = host.acc_dtype or node.outputs[0].type.dtype
    ndim = node.inputs[0].type.ndim
    axes = range(ndim) if host.axis is None else host.axis
    left = [d for d in range(ndim) if d not in rows.axes]
    options = {"dtype": acc, "acc_dtype": acc} if host.dtype is not None or host.acc_dtype is not None else {}
    first = op(host.clone(axis=rows.axes, **options), node.op.context_name)(node.inputs[0])
    rest = tuple(left.index(d) for d in axes if d not in rows.axes)
    return op(host.clone(axis=rest), node.op.context_name)(first)


def _can_store_accumulator(node: Apply) -> bool:
    """Return whether device arrays can have the accumulator's dtype."""
    has_fp64 = get_context(node.op.context_name).info.has_fp64
    return has_fp64 or (node.op.host.acc_dtype or node.outputs[0].type.dtype) != "float64"


def split_full_reductions(fgraph: FunctionGraph) -> None:
    """Split full reductions, so that a part of them joins the row kernel that computes their input."""
    for node in fgraph.toposort():
        full = reduction_domain(node)
        if full is None or not isinstance(getattr(node.inputs[0].owner, "op", None), GpuElemwise):
            continue
        if type(node.op.host.scalar_op).__name__ not in ASSOCIATIVE or not _can_store_accumulator(node):
            continue
        rows = _row_domains(node.inputs[0], full)
        if len(rows) == 1:
            (old,) = node.outputs
            new = old.type.filter_variable(_split(node, rows[0]))
            fgraph.replace_all_validate([(old, new)], reason="opencl_rowwise")
