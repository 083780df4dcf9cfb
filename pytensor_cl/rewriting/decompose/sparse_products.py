"""Products of sparse and dense matrices -> products of the vectors of a CSR matrix, which devices can hold."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor import cast, constant, stack
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.sparse import CsrDot, CsrSampledDot, RowsOfColumns

_REAL = "iuf"


class _Parts(NamedTuple):
    """A matrix of compressed rows: entries, columns, row pointers, and the length of each dimension."""

    data: Variable
    indices: Variable
    indptr: Variable
    rows: Variable
    columns: Variable


def _sparse() -> ModuleType | None:
    """Return PyTensor's sparse package if it is loaded: else the graph has no sparse matrices."""
    return sys.modules.get("pytensor.sparse")


def _is_dense(variable: Variable) -> bool:
    return type(variable.type) is TensorType


def _folded(node: Apply) -> list[Variable]:
    """Return the outputs of a node, as constants if all its inputs are constants."""
    if not all(isinstance(v, Constant) for v in node.inputs):
        return list(node.outputs)
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    node.op.perform(node, [v.data for v in node.inputs], storage)
    return [constant(s[0]) for s in storage]


def _lengths(shape: Variable) -> tuple[Variable, Variable]:
    if isinstance(shape, Constant):
        return constant(shape.data[0]), constant(shape.data[1])
    return shape[0], shape[1]


def _properties(matrix: Variable, package: ModuleType) -> tuple[_Parts, str]:
    """Return the parts of a sparse matrix, and its format; a Transpose or CSM is not computed.

    The parts of compressed columns have the rows of the entries and the pointers to the columns.
    """
    owner = matrix.owner
    if owner is not None and isinstance(owner.op, package.Transpose):
        parts, form = _properties(owner.inputs[0], package)
        return parts._replace(rows=parts.columns, columns=parts.rows), {"csr": "csc", "csc": "csr"}[form]
    is_assembled = owner is not None and isinstance(owner.op, package.CSM)
    found = owner.inputs if is_assembled else _folded(package.csm_properties.make_node(matrix))
    data, indices, indptr, shape = found
    return _Parts(data, _int32(indices), _int32(indptr), *_lengths(shape)), matrix.type.format


def _int32(variable: Variable) -> Variable:
    return variable if variable.type.dtype == "int32" else cast(variable, "int32")


def _rows(matrix: Variable, package: ModuleType, transposed: bool = False) -> _Parts:
    """Return a sparse matrix, or its transpose, as compressed rows."""
    parts, form = _properties(matrix, package)
    if transposed:
        parts = parts._replace(rows=parts.columns, columns=parts.rows)
    if (form == "csr") is not transposed:
        return parts
    order, indices, indptr = _folded(RowsOfColumns().make_node(parts.indices, parts.indptr, parts.rows))
    return parts._replace(data=parts.data[order], indices=indices, indptr=indptr)


def _times(parts: _Parts, dense: Variable, dtype: str) -> Variable:
    data, dense = cast(parts.data, dtype), cast(dense, dtype)
    return CsrDot()(data, parts.indices, parts.indptr, dense, parts.columns)


def _dot(node: Apply, package: ModuleType) -> Variable | None:
    """Dot(S, Y) -> CsrDot(parts of S, Y); Dot(X, S) -> CsrDot(parts of S.T, X.T).T."""
    left, right = node.inputs[:2]
    dtype = node.outputs[0].type.dtype
    if _is_dense(right):
        return _times(_rows(left, package), right, dtype)
    if _is_dense(left):
        return _times(_rows(right, package, transposed=True), left.T, dtype).T
    return None


def _usmm(node: Apply, package: ModuleType) -> Variable | None:
    """Usmm(a, S, Y, Z) -> a * CsrDot(parts of S, Y) + Z."""
    alpha, left, right, added = node.inputs
    product = _dot(package.math.Dot().make_node(left, right), package)
    return None if product is None else cast(product * alpha.squeeze() + added, node.outputs[0].type.dtype)


def _grad_csr(node: Apply, package: ModuleType) -> Variable | None:
    """StructuredDotGradCSR(indices, pointers, Y, G) -> CsrSampledDot(indices, pointers, G, Y)."""
    indices, indptr, dense, gradient = node.inputs
    return _sampled(node, indices, indptr, gradient, dense)


def _grad_csc(node: Apply, package: ModuleType) -> Variable | None:
    """StructuredDotGradCSC(indices, pointers, Y, G) -> CsrSampledDot(indices, pointers, Y, G)."""
    return _sampled(node, *node.inputs)


def _sampled(node: Apply, indices: Variable, indptr: Variable, left: Variable, right: Variable) -> Variable | None:
    if not (_is_dense(left) and _is_dense(right)):
        return None
    dtype = node.outputs[0].type.dtype
    return CsrSampledDot()(_int32(indices), _int32(indptr), cast(left, dtype), cast(right, dtype))


def _sampling_dot(node: Apply, package: ModuleType) -> Variable | None:
    """SamplingDot(X, Y, P) -> CSM(entries of P * CsrSampledDot(pattern of P, X, Y), pattern of P)."""
    left, right, pattern = node.inputs
    dtype = pattern.type.dtype
    parts, form = _properties(pattern, package)
    if np.result_type(left.type.dtype, right.type.dtype, dtype) != dtype:
        return None
    factors = (left, right) if form == "csr" else (right, left)
    entries = CsrSampledDot()(parts.indices, parts.indptr, *(cast(f, dtype) for f in factors))
    shape = stack([parts.rows, parts.columns])
    return package.CSM(form)(parts.data * entries, parts.indices, parts.indptr, shape)


Form = Callable[[Apply, ModuleType], Variable | None]

# Class of `pytensor.sparse.math` -> what replaces a node of it.
_FORMS: dict[str, Form] = {
    "Dot": _dot,
    "StructuredDot": _dot,
    "Usmm": _usmm,
    "StructuredDotGradCSR": _grad_csr,
    "StructuredDotGradCSC": _grad_csc,
    "SamplingDot": _sampling_dot,
}


def _is_real(node: Apply) -> bool:
    return all(np.dtype(v.type.dtype).kind in _REAL for v in (*node.inputs, *node.outputs))


def _replacement(node: Apply, package: ModuleType) -> Variable | None:
    """Return the replacement of a node; None if it stays."""
    kind = type(node.op)
    form = _FORMS.get(kind.__name__) if kind.__module__ == "pytensor.sparse.math" else None
    return form(node, package) if form is not None and _is_real(node) else None


def decompose_sparse_products(fgraph: FunctionGraph) -> None:
    """Dot(S, Y) -> CsrDot(entries, columns and row pointers of S, Y), and likewise for its relatives.

    The sparse matrix itself stays on the host; what is computed from its parts can move to a device.
    """
    package = _sparse()
    if package is None:
        return
    found = ((node, _replacement(node, package)) for node in fgraph.toposort())
    pairs = [(node.outputs[0], new) for node, new in found if new is not None]
    typed = [(old, old.type.filter_variable(new)) for old, new in pairs]
    fgraph.replace_all_validate(typed, reason="opencl_sparse")
