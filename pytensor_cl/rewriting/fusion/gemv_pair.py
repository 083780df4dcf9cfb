"""Matrix times vector, a function of it, the transposed matrix times that -> one node that reads the matrix once.

A linear model and its gradient are such a pair: ``f(X @ b)`` and ``X.T @ df``.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemv import GpuGemv
from pytensor_cl.ops.gemv_pair import GpuGemvPair
from pytensor_cl.ops.rowwise import FULL, GpuRowwise
from pytensor_cl.ops.shape import GpuDimShuffle
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.rewriting.fusion.replace import replace_outputs
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain
from pytensor_cl.rewriting.fusion.rowwise.function import fused_node
from pytensor_cl.routines.gemv.pair import PairFunction, is_one_pass
from pytensor_cl.routines.rowwise.program import Operand, RowFunction
from pytensor_cl.runtime.registry import get_context

__all__ = ["fuse_gemv_pairs", "is_of_vectors", "products_with_one_matrix"]

FIXED_BYTES, ARRAY_BYTES, SUM_BYTES = 320, 24, 8
"""What the kernels' own arguments take at most, those of each array, and of each reduction."""


class _Middle(NamedTuple):
    """What is computed between the products.

    Attributes
    ----------
    function
        Of rows along the only axis.
    forms
        Of its operands and outputs.
    operands, outputs
        The variables.
    """

    function: RowFunction
    forms: tuple[str, ...]
    operands: list[Variable]
    outputs: list[Variable]


def _is_transposed(a: Variable, b: Variable) -> bool:
    """Whether a matrix is a view of another one with its dimensions swapped."""
    owner = a.owner
    is_view = owner is not None and isinstance(owner.op, GpuDimShuffle) and owner.inputs[0] is b
    return is_view and tuple(owner.op.host.new_order) == (1, 0)


def _data(variable: Variable) -> tuple[int, ...] | None:
    """Return where the data of a constant lies that is moved to the device."""
    owner = variable.owner
    if owner is None or not isinstance(owner.op, GpuFromHost) or not isinstance(owner.inputs[0], Constant):
        return None
    data = owner.inputs[0].data
    return data.ctypes.data, *data.shape, *data.strides


def _is_same_constant(a: Variable, b: Variable) -> bool:
    """Whether two matrices are constants of which one was folded into a transposed view of the other."""
    first, second = _data(a), _data(b)
    if first is None or second is None:
        return False
    at, n, k, row, col = second
    return first == (at, k, n, col, row)


def _are_transposed(a: Variable, b: Variable) -> bool:
    return _is_transposed(a, b) or _is_transposed(b, a) or _is_same_constant(a, b)


def _is_product(node: Apply | None, context_name: str) -> bool:
    """Whether a node is a product that the kernels know."""
    if node is None or not isinstance(node.op, GpuGemv) or node.op.context_name != context_name:
        return False
    dtypes = {v.type.dtype for v in (*node.inputs, *node.outputs)}
    return len(dtypes) == 1 and dtypes <= {"float32", "float64"}


def _middle(factor: Variable, context_name: str, fgraph: FunctionGraph) -> _Middle | None:
    """Return what computes the factor of the second product; None if it is not elementwise along its rows."""
    node = factor.owner
    if node is None or factor.type.broadcastable != (False,):
        return None
    if isinstance(node.op, GpuGemv):
        function = RowFunction((Operand("full", factor.type.dtype),), (), (0,))
        return _Middle(function, (FULL, FULL), [factor], [factor])
    fused, outputs = node, list(node.outputs)
    domain = FusionDomain(context_name, (0,), (False,))
    if isinstance(node.op, GpuElemwise) and domain.takes(node):
        outputs = [v for v in outputs if fgraph.clients[v]]
        fused = fused_node([node], outputs, domain)
    if not isinstance(fused.op, GpuRowwise) or (fused.op.ndim, fused.op.axes) != (1, (0,)):
        return None
    return _Middle(fused.op.function, fused.op.forms, list(fused.inputs), outputs)


def _first(middle: _Middle, last: Apply) -> int | None:
    """Return which of the operands is a product with the transposed matrix."""
    name, dtype = last.op.context_name, last.outputs[0].type.dtype
    for k, (variable, form) in enumerate(zip(middle.operands, middle.forms, strict=False)):
        fits = form == FULL and variable.type.dtype == dtype and variable.type.broadcastable == (False,)
        if fits and _is_product(variable.owner, name) and _are_transposed(variable.owner.inputs[2], last.inputs[2]):
            return k
    return None


def _needed_by_others(variable: Variable, nodes: tuple[Apply | None, ...], fgraph: FunctionGraph) -> bool:
    return any(client not in nodes for client, _ in fgraph.clients[variable])


def _has_room(pair: PairFunction, context_name: str) -> bool:
    """Whether the kernels may have so many arguments."""
    function = pair.function
    arrays = len(function.operands) + sum(pair.is_stored)
    used = FIXED_BYTES + arrays * ARRAY_BYTES + len(function.steps) * SUM_BYTES
    return used <= get_context(context_name).info.max_parameter_size


def _fused(last: Apply, fgraph: FunctionGraph) -> tuple[list[Variable], list[Variable]] | None:
    """Return what a product and the nodes before it compute, and the outputs of one node that does the same."""
    name = last.op.context_name
    yt, alpha_t, _, factor, beta_t = last.inputs
    middle = _middle(factor, name, fgraph)
    number = None if middle is None else _first(middle, last)
    if middle is None or number is None:
        return None
    product = middle.operands[number]
    first = product.owner
    nodes = (first, factor.owner, last)
    value = middle.function.outputs[middle.outputs.index(factor)]
    stored = [_needed_by_others(v, nodes, fgraph) for v in middle.outputs]
    function, forms, outputs = middle.function, middle.forms, list(middle.outputs)
    if product is not factor and _needed_by_others(product, nodes, fgraph):
        function = replace(function, outputs=(*function.outputs, number))
        forms, outputs, stored = (*forms, FULL), [*outputs, product], [*stored, True]
    pair = PairFunction(function, number, value, tuple(stored))
    if not is_one_pass(function, value) or not _has_room(pair, name):
        return None
    operands = [v for k, v in enumerate(middle.operands) if k != number]
    inputs = [*first.inputs, *operands, yt, alpha_t, beta_t]
    if any(v.owner in nodes for v in ancestors(inputs)):  # something else leads from the first product to the last
        return None
    made = GpuGemvPair(pair, forms, name).make_node(*inputs).outputs
    old = [last.outputs[0], *(v for v, keep in zip(outputs, stored, strict=True) if keep)]
    return old, list(made)


def _has_kernel(node: Apply) -> bool:
    """Whether a node is a product, on a device with kernels for pairs of them."""
    is_product = isinstance(node.op, GpuGemv) and _is_product(node, node.op.context_name)
    return is_product and get_context(node.op.context_name).info.schedule == "cpu"


def is_of_vectors(node: Apply) -> bool:
    """Whether a node is elementwise, with a vector as result."""
    return isinstance(node.op, GpuElemwise) and node.outputs[0].type.ndim == 1


def _products_before(last: Apply) -> Iterator[Apply]:
    """Yield the products from which only elementwise nodes of vectors lead to the vector of another one."""
    pending, seen = [last.inputs[3]], set()
    while pending:
        node = pending.pop().owner
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node.op, GpuGemv):
            yield node
        elif is_of_vectors(node):
            pending.extend(node.inputs)


def products_with_one_matrix(fgraph: FunctionGraph) -> Iterator[tuple[Apply, Apply]]:
    """Yield products with a matrix and with its transpose, the second of which takes a function of the first."""
    for last in filter(_has_kernel, fgraph.toposort()):
        for first in filter(_has_kernel, _products_before(last)):
            if _are_transposed(first.inputs[2], last.inputs[2]):
                yield first, last


def fuse_gemv_pairs(fgraph: FunctionGraph) -> None:
    """Read a matrix once for two products, where the device has a kernel for it.

    Parameters
    ----------
    fgraph
        A graph after lifting, in which what shares rows is one node; changed in place.
    """
    for node in fgraph.toposort():
        found = _fused(node, fgraph) if _has_kernel(node) else None
        if found is None:
            continue
        replace_outputs(fgraph, *found, "opencl_gemv_pair")
