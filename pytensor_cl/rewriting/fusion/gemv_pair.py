"""``A @ x``, an elementwise function of it, and ``A.T @ r`` with a result ``r`` -> GpuGemvPair, which reads A once.

A linear model and its gradient are an example: ``f(X @ b)`` and ``X.T @ df``.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemv import GpuGemv
from pytensor_cl.ops.gemv_pair import GpuGemvPair
from pytensor_cl.ops.rowwise import FULL, GpuRowwise
from pytensor_cl.ops.shape import GpuDimShuffle
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.rewriting.fusion.replace import replace_outputs
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain
from pytensor_cl.rewriting.fusion.rowwise.function import fused_node
from pytensor_cl.routines.gemv.limits import PAIR_ROW_ITEMS
from pytensor_cl.routines.gemv.pair import PairFunction, is_one_pass
from pytensor_cl.routines.rowwise.program import Operand, RowFunction
from pytensor_cl.runtime.registry import get_context

FIXED_BYTES, ARRAY_BYTES, SUM_BYTES = 320, 24, 8
"""Upper bounds of the kernels' own arguments, those of each array, and those of each reduction."""


class _Intermediate(NamedTuple):
    """The function between the two products, of rows along the only axis, and the variables that it takes and gives."""

    function: RowFunction
    forms: tuple[str, ...]
    operands: list[Variable]
    outputs: list[Variable]


def _constant_layout(variable: Variable) -> tuple[int, ...] | None:
    """Return address, shape and strides of a constant that is uploaded; None for other variables."""
    owner = variable.owner
    if owner is None or not isinstance(owner.op, GpuFromHost) or not isinstance(owner.inputs[0], Constant):
        return None
    data = owner.inputs[0].data
    return data.ctypes.data, *data.shape, *data.strides


def _are_transposed(a: Variable, b: Variable) -> bool:
    """Return whether one matrix is the transpose of the other.

    It is a view of it, or both are constants with the same data: PyTensor folds the transpose of a constant.
    """
    for view, source in ((a, b), (b, a)):
        owner = view.owner
        is_view = owner is not None and isinstance(owner.op, GpuDimShuffle) and owner.inputs[0] is source
        if is_view and tuple(owner.op.host.new_order) == (1, 0):
            return True
    first, second = _constant_layout(a), _constant_layout(b)
    if first is None or second is None:
        return False
    address, n, k, row_stride, column_stride = second
    return first == (address, k, n, column_stride, row_stride)


def _is_supported_product(node: Apply | None, context_name: str) -> bool:
    """Return whether a node is a GEMV in the context, with all operands of float32 or all of float64."""
    if node is None or not isinstance(node.op, GpuGemv) or node.op.context_name != context_name:
        return False
    dtypes = {v.type.dtype for v in (*node.inputs, *node.outputs)}
    return len(dtypes) == 1 and dtypes <= {"float32", "float64"}


def _has_kernel(node: Apply) -> bool:
    """Return whether a node is a supported product of a matrix that is not known to be too large for a pair."""
    if not (isinstance(node.op, GpuGemv) and _is_supported_product(node, node.op.context_name)):
        return False
    return may_be_pair(node.inputs[2].type, get_context(node.op.context_name).info.schedule)


def may_be_pair(matrix: TensorType, schedule: str) -> bool:
    """Return whether a matrix, or its transpose, may have a kernel for pairs."""
    if schedule == "cpu" or None in matrix.shape:
        return True
    return min(matrix.shape) * matrix.numpy_dtype.itemsize <= PAIR_ROW_ITEMS * 16


def _intermediate(factor: Variable, context_name: str, fgraph: FunctionGraph) -> _Intermediate | None:
    """Return the function that computes the factor of the second product; None if it is not elementwise along rows."""
    node = factor.owner
    if node is None or factor.type.broadcastable != (False,):
        return None
    if isinstance(node.op, GpuGemv):
        identity = RowFunction((Operand("full", factor.type.dtype),), (), (0,))
        return _Intermediate(identity, (FULL, FULL), [factor], [factor])
    fused, outputs = node, list(node.outputs)
    domain = FusionDomain(context_name, (0,), (False,))
    if isinstance(node.op, GpuElemwise) and domain.accepts(node):
        outputs = [v for v in outputs if fgraph.clients[v]]
        fused = fused_node([node], outputs, domain)
    if not isinstance(fused.op, GpuRowwise) or (fused.op.ndim, fused.op.axes) != (1, (0,)):
        return None
    return _Intermediate(fused.op.function, fused.op.forms, list(fused.inputs), outputs)


def _index_of_first_product(function: _Intermediate, last: Apply) -> int | None:
    """Return which operand of the function is a product with the transposed matrix of the last product."""
    name, dtype = last.op.context_name, last.outputs[0].type.dtype
    for k, (variable, form) in enumerate(zip(function.operands, function.forms, strict=False)):
        fits = form == FULL and variable.type.dtype == dtype and variable.type.broadcastable == (False,)
        if not fits or not _is_supported_product(variable.owner, name):
            continue
        if _are_transposed(variable.owner.inputs[2], last.inputs[2]):
            return k
    return None


def _has_room(pair: PairFunction, context_name: str) -> bool:
    """Return whether the arguments of the kernels fit."""
    function = pair.function
    arrays = len(function.operands) + sum(pair.is_stored)
    used = FIXED_BYTES + arrays * ARRAY_BYTES + len(function.steps) * SUM_BYTES
    return used <= get_context(context_name).info.max_parameter_size


def _match(last: Apply, fgraph: FunctionGraph) -> tuple[list[Variable], list[Variable]] | None:
    """Return the outputs of a second product and of the nodes before it, and those of the fused node; None if there is
    no pair."""
    name = last.op.context_name
    yt, alpha_t, _, factor, beta_t = last.inputs
    found = _intermediate(factor, name, fgraph)
    number = None if found is None else _index_of_first_product(found, last)
    if found is None or number is None:
        return None
    product = found.operands[number]
    first = product.owner
    nodes = (first, factor.owner, last)

    def is_needed_elsewhere(variable: Variable) -> bool:
        return any(client not in nodes for client, _ in fgraph.clients[variable])

    function, forms, outputs = found.function, found.forms, list(found.outputs)
    value = function.outputs[outputs.index(factor)]
    stored = [is_needed_elsewhere(v) for v in outputs]
    if product is not factor and is_needed_elsewhere(product):
        function = replace(function, outputs=(*function.outputs, number))
        forms, outputs, stored = (*forms, FULL), [*outputs, product], [*stored, True]
    pair = PairFunction(function, number, value, tuple(stored))
    if not is_one_pass(function, value) or not _has_room(pair, name):
        return None
    operands = [v for k, v in enumerate(found.operands) if k != number]
    inputs = [*first.inputs, *operands, yt, alpha_t, beta_t]
    if any(v.owner in nodes for v in ancestors(inputs)):  # another path leads from the first product to the last
        return None
    new = GpuGemvPair(pair, forms, name).make_node(*inputs).outputs
    old = [last.outputs[0], *(v for v, is_stored in zip(outputs, stored, strict=True) if is_stored)]
    return old, list(new)


def is_vector_elemwise(node: Apply) -> bool:
    """Return whether a node is elementwise, with a vector as result."""
    return isinstance(node.op, GpuElemwise) and node.outputs[0].type.ndim == 1


def _products_before(last: Apply) -> Iterator[Apply]:
    """Yield the products from which only elementwise nodes of vectors lead to the vector of another product."""
    pending, seen = [last.inputs[3]], set()
    while pending:
        node = pending.pop().owner
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node.op, GpuGemv):
            yield node
        elif is_vector_elemwise(node):
            pending.extend(node.inputs)


def products_with_one_matrix(fgraph: FunctionGraph) -> Iterator[tuple[Apply, Apply]]:
    """Yield products with a matrix and with its transpose, the second of which takes a function of the first."""
    for last in filter(_has_kernel, fgraph.toposort()):
        for first in filter(_has_kernel, _products_before(last)):
            if _are_transposed(first.inputs[2], last.inputs[2]):
                yield first, last


def fuse_gemv_pairs(fgraph: FunctionGraph) -> None:
    """Read a matrix once for two products, where the device has a kernel for it."""
    for node in fgraph.toposort():
        found = _match(node, fgraph) if _has_kernel(node) else None
        if found is not None:
            replace_outputs(fgraph, *found, "opencl_gemv_pair")
