"""Reductions of whole arrays that are made row by row -> a reduction of each row, then one of what that gives.

The first joins the kernel that makes the array, which then need not be stored: the loss of a softmax is one.
"""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.shape import GpuDimShuffle
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain, reduction_domain
from pytensor_cl.runtime.registry import get_context

__all__ = ["split_full_reductions"]

MOST_READ = 4
"""Arrays that are read in full to compute what is reduced; with more the kernel might have no room for them."""

DIVISIBLE = ("Add", "Maximum", "Minimum", "AND", "OR")
"""Operations whose result can be put together of the rows'; products of rows may overflow where the whole does not."""


def _rows_behind(variable: Variable, whole: FusionDomain) -> list[FusionDomain]:
    """Return the rows of the reductions that elementwise nodes read to compute a variable; none, if they read much."""
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
        elif all(not known or one for known, one in zip(current.type.broadcastable, whole.pattern, strict=False)):
            read.add(current)
    return [d for d in found if _is_part(d, whole)] if len(read) <= MOST_READ else []


def _is_part(rows: FusionDomain, whole: FusionDomain) -> bool:
    """Whether a reduction of the rows is a part of one of the whole; down columns it would cost as much as it saves."""
    if rows.ndim - 1 not in rows.axes:
        return False
    same = (rows.context_name, rows.pattern) == (whole.context_name, whole.pattern)
    return same and set(rows.axes) < set(whole.axes)


def _split(node: Apply, rows: FusionDomain) -> Variable:
    """Return what a reduction gives, by way of one along rows that keeps the digits of its accumulator."""
    host, op = node.op.host, type(node.op)
    dtype = node.outputs[0].type.dtype
    acc = host.acc_dtype or dtype
    axes = range(node.inputs[0].type.ndim) if host.axis is None else host.axis
    left = [d for d in range(node.inputs[0].type.ndim) if d not in rows.axes]
    options = {"dtype": acc, "acc_dtype": acc} if host.dtype is not None or host.acc_dtype is not None else {}
    first = op(host.clone(axis=rows.axes, **options), node.op.context_name)(node.inputs[0])
    rest = tuple(left.index(d) for d in axes if d not in rows.axes)
    return op(host.clone(axis=rest), node.op.context_name)(first)


def _keeps_digits(node: Apply) -> bool:
    """Whether the device has the accumulator's dtype."""
    has_fp64 = get_context(node.op.context_name).info.has_fp64
    return has_fp64 or (node.op.host.acc_dtype or node.outputs[0].type.dtype) != "float64"


def split_full_reductions(fgraph: FunctionGraph) -> None:
    """Let reductions of whole arrays join the rows that these are made of.

    Parameters
    ----------
    fgraph
        A graph after lifting; changed in place.
    """
    for node in fgraph.toposort():
        whole = reduction_domain(node)
        source = node.inputs[0] if whole is not None else None
        if whole is None or source is None or not isinstance(getattr(source.owner, "op", None), GpuElemwise):
            continue
        if type(node.op.host.scalar_op).__name__ not in DIVISIBLE or not _keeps_digits(node):
            continue
        rows = _rows_behind(source, whole)
        if len(rows) == 1:
            (old,) = node.outputs
            new = old.type.filter_variable(_split(node, rows[0]))
            fgraph.replace_all_validate([(old, new)], reason="opencl_rowwise")
