"""What device nodes that share their rows have in common, and whether a node is one of them."""

from typing import NamedTuple

from pytensor.graph.basic import Apply, Variable

from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.elemwise import GpuElemwise, is_by_value
from pytensor_cl.ops.reduction import OPERATIONS, GpuCAReduce
from pytensor_cl.ops.rowwise import DROPPED, FULL, KEPT, VALUE
from pytensor_cl.ops.shape import GpuDimShuffle

__all__ = ["FusionDomain", "reduction_domain"]

_INTEGERS = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_TABLE = frozenset(("bool", *_INTEGERS, "float32", "float64"))


class FusionDomain(NamedTuple):
    """Rows of arrays.

    Attributes
    ----------
    context_name
        Where the arrays are.
    axes
        Along which rows lie.
    pattern
        Per dimension of a full array, whether its length is known to be 1.
    """

    context_name: str
    axes: tuple[int, ...]
    pattern: tuple[bool, ...]

    @property
    def ndim(self) -> int:
        """Dimensions of a full array."""
        return len(self.pattern)

    def _spread(self, flags: tuple[bool, ...]) -> tuple[bool, ...]:
        rest = iter(flags)
        return tuple(True if d in self.axes else next(rest) for d in range(self.ndim))

    def form(self, variable: Variable) -> str | None:
        """Return how a variable relates to the rows; None if it does not fit, or is of a dtype that has no code."""
        if variable.type.dtype not in _TABLE:
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
            flags = self._spread(flags)
        if any(known and not own for known, own in zip(self.pattern, flags, strict=True)):
            return None
        return form if all(flags[d] for d in self.axes) else FULL

    def made(self, variable: Variable) -> str | None:
        """Return the form of a variable that a node of the rows makes: it has as many of them as there are."""
        form = self.form(variable)
        flags = tuple(variable.type.broadcastable)
        full = flags if form is FULL else None
        if form is FULL:
            return FULL if full == self.pattern else None
        flags = self._spread(flags) if form is DROPPED else flags
        rows = tuple(known or d in self.axes for d, known in enumerate(self.pattern))
        return form if form in (KEPT, DROPPED) and flags == rows else None

    def takes(self, node: Apply) -> bool:
        """Whether a node could be part of a kernel over the rows."""
        return any(isinstance(node.op, kind) and fits(self, node) for kind, fits in _FITS)

    def is_full(self, node: Apply) -> bool:
        """Whether a node that fits makes full values."""
        return isinstance(node.op, GpuElemwise) and self.made(node.outputs[0]) is FULL


def _elemwise_fits(domain: FusionDomain, node: Apply) -> bool:
    made, forms = domain.made(node.outputs[0]), [domain.form(v) for v in node.inputs]
    if made is None or None in forms or any(domain.form(v) is None for v in node.outputs):
        return False
    allowed = {FULL: (FULL, KEPT, VALUE), KEPT: (KEPT, VALUE), DROPPED: (DROPPED, VALUE)}[made]
    return all(form in allowed for form in forms) and any(form is not VALUE for form in forms)


def _reduction_fits(domain: FusionDomain, node: Apply) -> bool:
    return reduction_domain(node) == domain


def _view_fits(domain: FusionDomain, node: Apply) -> bool:
    """Whether a view only drops or restores the axes of the rows."""
    source, target = domain.made(node.inputs[0]), domain.made(node.outputs[0])
    kept = tuple(d for d in range(domain.ndim) if d not in domain.axes)
    order = tuple(node.op.host.new_order)
    if (source, target) == (KEPT, DROPPED):
        return order == kept
    restored = tuple("x" if d in domain.axes else kept.index(d) for d in range(domain.ndim))
    return (source, target) == (DROPPED, KEPT) and order == restored


_FITS = ((GpuElemwise, _elemwise_fits), (GpuCAReduce, _reduction_fits), (GpuDimShuffle, _view_fits))


def reduction_domain(node: Apply) -> FusionDomain | None:
    """Return the rows that a reduction works on; None if it is no reduction, or one that has no code here."""
    if not isinstance(node.op, GpuCAReduce):  # nor is an output of the graph
        return None
    host, source, target = node.op.host, node.inputs[0].type, node.outputs[0].type
    axes = tuple(range(source.ndim)) if host.axis is None else tuple(sorted(host.axis))
    dtypes = {source.dtype, target.dtype, host.acc_dtype or target.dtype}
    has_code = type(host.scalar_op).__name__ in OPERATIONS and dtypes <= _TABLE
    kept = tuple(known for d, known in enumerate(source.broadcastable) if d not in axes)
    if not axes or not has_code or any(source.broadcastable[a] for a in axes):
        return None
    if target.broadcastable != kept:  # the input's type was learnt after the node had been made
        return None
    return FusionDomain(node.op.context_name, axes, tuple(source.broadcastable))
