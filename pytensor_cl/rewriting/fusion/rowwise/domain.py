"""The fusion domain: the rows that the nodes of a row fusion share."""

from typing import NamedTuple

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.elemwise import GpuElemwise, is_by_value
from pytensor_cl.ops.reduction import OPERATIONS, GpuCAReduce
from pytensor_cl.ops.rowwise import DROPPED, FULL, KEPT, VALUE
from pytensor_cl.ops.shape import GpuDimShuffle

_INTEGERS = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_DTYPES = frozenset(("bool", *_INTEGERS, "float32", "float64"))


def has_single_outputs(op: ps.ScalarOp) -> bool:
    """Return whether each scalar Op has one output, as the steps of a row function have; loops may have more."""
    if isinstance(op, ps.Composite):
        return all(has_single_outputs(node.op) and len(node.outputs) == 1 for node in op.fgraph.apply_nodes)
    return op.nout == 1


class FusionDomain(NamedTuple):
    """Rows of arrays, in one context."""

    context_name: str
    axes: tuple[int, ...]  # axes of a row, which the reductions reduce
    pattern: tuple[bool, ...]  # whether the length of each dimension of a full array is known to be 1

    @property
    def ndim(self) -> int:
        """Number of dimensions of a full array."""
        return len(self.pattern)

    def _insert_axes(self, flags: tuple[bool, ...]) -> tuple[bool, ...]:
        """Return flags of a variable without the axes, with True for each of them."""
        rest = iter(flags)
        return tuple(True if d in self.axes else next(rest) for d in range(self.ndim))

    def form(self, variable: Variable) -> str | None:
        """Return how a variable relates to the rows; None if it does not fit, or kernels lack its dtype."""
        if variable.type.dtype not in _DTYPES:
            return None
        if is_by_value(variable):
            return VALUE
        if context_of(variable) != self.context_name:
            return None
        flags = tuple(variable.type.broadcastable)
        form = KEPT if len(flags) == self.ndim else DROPPED
        if form is DROPPED:
            if len(flags) != self.ndim - len(self.axes):
                return None
            flags = self._insert_axes(flags)
        if any(known and not own for known, own in zip(self.pattern, flags, strict=True)):
            return None
        return form if all(flags[d] for d in self.axes) else FULL

    def output_form(self, variable: Variable) -> str | None:
        """Return the form of a result of a fused node, which has the full number of rows; None if it is broadcast."""
        form = self.form(variable)
        flags = tuple(variable.type.broadcastable)
        if form is FULL:
            return FULL if flags == self.pattern else None
        if form not in (KEPT, DROPPED):
            return None
        flags = self._insert_axes(flags) if form is DROPPED else flags
        return form if flags == tuple(known or d in self.axes for d, known in enumerate(self.pattern)) else None

    def accepts(self, node: Apply) -> bool:
        """Return whether a node could be part of a kernel over the rows."""
        if isinstance(node.op, GpuElemwise):
            return self._accepts_elemwise(node)
        if isinstance(node.op, GpuDimShuffle):
            return self._accepts_view(node)
        return isinstance(node.op, GpuCAReduce) and reduction_domain(node) == self

    def is_full(self, node: Apply) -> bool:
        """Return whether a node is elementwise and makes full arrays."""
        return isinstance(node.op, GpuElemwise) and self.output_form(node.outputs[0]) is FULL

    def _accepts_elemwise(self, node: Apply) -> bool:
        if not has_single_outputs(node.op.host.scalar_op):
            return False
        result, forms = self.output_form(node.outputs[0]), [self.form(v) for v in node.inputs]
        if result is None or None in forms or any(self.form(v) is None for v in node.outputs):
            return False
        allowed = {FULL: (FULL, KEPT, VALUE), KEPT: (KEPT, VALUE), DROPPED: (DROPPED, VALUE)}[result]
        is_number = result is DROPPED and len(self.axes) == self.ndim
        return all(form in allowed for form in forms) and (is_number or any(form is not VALUE for form in forms))

    def _accepts_view(self, node: Apply) -> bool:
        """Return whether a view only drops or restores the axes of the rows."""
        source, target = self.output_form(node.inputs[0]), self.output_form(node.outputs[0])
        kept = tuple(d for d in range(self.ndim) if d not in self.axes)
        order = tuple(node.op.host.new_order)
        if (source, target) == (KEPT, DROPPED):
            return order == kept
        restored = tuple("x" if d in self.axes else kept.index(d) for d in range(self.ndim))
        return (source, target) == (DROPPED, KEPT) and order == restored


def reduction_domain(node: Apply) -> FusionDomain | None:
    """Return the domain of a reduction; None if a node is no reduction, or row kernels have no code for it."""
    if not isinstance(node.op, GpuCAReduce):  # or a node that stands for an output of the graph
        return None
    host, source, target = node.op.host, node.inputs[0].type, node.outputs[0].type
    axes = tuple(range(source.ndim)) if host.axis is None else tuple(sorted(host.axis))
    dtypes = {source.dtype, target.dtype, host.acc_dtype or target.dtype}
    has_code = type(host.scalar_op).__name__ in OPERATIONS and dtypes <= _DTYPES
    if not axes or not has_code or any(source.broadcastable[a] for a in axes):
        return None
    if target.broadcastable != tuple(known for d, known in enumerate(source.broadcastable) if d not in axes):
        return None  # the static shape of the input became known after the node was made
    return FusionDomain(node.op.context_name, axes, tuple(source.broadcastable))
