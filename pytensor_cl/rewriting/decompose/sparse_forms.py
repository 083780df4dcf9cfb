"""Ops of sparse matrices -> Ops of the vectors that make them up, which have kernels.

A matrix that a lowered Op makes is known by its vectors; Ops that follow take these. It is assembled, by CSM on the
host, only where something takes the matrix itself: a result of the function, an Op without a form here.
"""

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pytensor_cl.ops.registry import note_reason
from pytensor_cl.ops.sparse import CsrDot, CsrSampledDot
from pytensor_cl.rewriting.decompose.sparse_matrix import (
    Matrix,
    chosen,
    compressed,
    expanded,
    from_dense,
    groups_of,
    values_at,
)

_ASSERT = CheckAndRaise(AssertionError, "the shapes of the operands do not fit")
_INCONSISTENT = CheckAndRaise(ValueError, "inconsistent shapes")
_BOUNDS = CheckAndRaise(IndexError, "index out of bounds")
_LENGTHS = CheckAndRaise(ValueError, "incompatible dimensions of blocks")

Form = Callable[[Any, Sequence[Any]], "Matrix | Variable | None"]
"""An Op, and its inputs with a `Matrix` for each sparse one -> the output; None if the node stays."""


def _int64(variable: Variable) -> Variable:
    return variable if variable.type.dtype == "int64" else pt.cast(variable, "int64")


def _agrees(check: CheckAndRaise, value: Variable, x: Matrix, rows: Variable, columns: Variable) -> Variable:
    return check(value, pt.eq(x.rows, rows), pt.eq(x.columns, columns))


def _assembled(op: Any, inputs: Sequence[Variable]) -> Matrix:
    """CSM(data, indices, pointers, shape)."""
    data, indices, pointers, shape = inputs
    return Matrix(data, _int64(indices), _int64(pointers), _int64(shape[0]), _int64(shape[1]), op.format)


def _properties(op: Any, inputs: Sequence[Matrix]) -> list[Variable]:
    """CSMProperties(x)."""
    (x,) = inputs
    shape = pt.stack([x.rows, x.columns])
    return [x.data, *(pt.cast(v, "int32") for v in (x.indices, x.pointers, shape))]


def _csm_gradient(op: Any, inputs: Sequence[Variable]) -> Variable:
    """CSMGrad(x, g): the elements of g at the places of x; both are taken for compressed rows."""
    return _values_at_places(inputs, "csr", "csr")


def _values_at_places(parts: Sequence[Variable], *forms: str) -> Variable:
    """Return the elements of a matrix at the places of another one: four vectors and a format of either."""
    x, g = (_of_parts(parts[k : k + 4], form) for k, form in zip((0, 4), forms, strict=True))
    return values_at(g, x.keys())


def _of_parts(parts: Sequence[Variable], form: str) -> Matrix:
    """Return a matrix of which only the places count, so that its lengths may be too large."""
    data, indices, pointers, shape = parts
    length = _int64(pt.maximum(shape[0], shape[1]))
    return Matrix(data, _int64(indices), _int64(pointers), length, length, form)


def _to_dense(op: Any, inputs: Sequence[Matrix]) -> Variable:
    """DenseFromSparse(x)."""
    (x,) = inputs
    return _added(pt.zeros((x.rows, x.columns), dtype=x.data.type.dtype), x, x.data)


def _added(dense: Variable, x: Matrix, data: Variable) -> Variable:
    row, column = x.coordinates()
    return dense[row, column].inc(data)


def _to_sparse(op: Any, inputs: Sequence[Variable]) -> Matrix:
    """SparseFromDense(x)."""
    return from_dense(inputs[0], op.format)


def _cast(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    """Cast(x); SciPy adds up entries of one place before they become whole numbers."""
    (x,) = inputs
    if x.data.type.dtype.startswith("float") and not op.out_type.startswith("float"):
        x = _without_duplicates(x)
    return x.with_data(pt.cast(x.data, op.out_type))


def _without_duplicates(x: Matrix) -> Matrix:
    """Return a matrix with one entry for each place that has any."""
    groups = groups_of(x.keys())
    is_place = pt.lt(pt.arange(x.data.shape[0]), groups.count)
    return chosen(groups.keys, groups.sums(x.data), is_place, x, x.form)


def _transpose(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    return inputs[0].transposed()


def _sum(op: Any, inputs: Sequence[Matrix]) -> Variable:
    """SpSum(x): of all elements, or of each column or row."""
    (x,) = inputs
    if op.axis is None:
        return pt.cast(x.data.sum(), x.data.type.dtype)
    row, column = x.coordinates()
    length, place = (x.columns, column) if op.axis == 0 else (x.rows, row)
    return pt.zeros((length,), dtype=x.data.type.dtype)[place].inc(x.data)


def _diagonal(op: Any, inputs: Sequence[Matrix]) -> Variable:
    """Diag(x)."""
    (x,) = inputs
    row, column = x.coordinates()
    is_on = pt.eq(row, column)
    data = pt.switch(is_on, x.data, np.zeros((), x.data.type.dtype))
    return pt.zeros((pt.minimum(x.rows, x.columns),), dtype=x.data.type.dtype)[pt.switch(is_on, row, 0)].inc(data)


def _by_column(op: Any, inputs: Sequence[Any]) -> Matrix:
    """ColScaleCSC(x, s), MultiplySparseDenseVector(x, s): entries times the element of their column."""
    x, scale = inputs
    scale = _ASSERT(scale, pt.eq(scale.shape[0], x.columns))
    return x.with_data(x.data * scale[x.coordinates()[1]])


def _by_row(op: Any, inputs: Sequence[Any]) -> Matrix:
    """RowScaleCSC(x, s)."""
    x, scale = inputs
    scale = _ASSERT(scale, pt.eq(scale.shape[0], x.rows))
    return x.with_data(x.data * scale[x.coordinates()[0]])


def _plus_vector(op: Any, inputs: Sequence[Any]) -> Matrix:
    """StructuredAddSparseDenseVector(x, v): only to elements that are not zero."""
    x, added = inputs
    added = _ASSERT(added, pt.eq(added.shape[0], x.columns))
    x = _without_duplicates(x)
    zero = np.zeros((), x.data.type.dtype)
    return x.with_data(x.data + pt.switch(pt.neq(x.data, 0), added[x.coordinates()[1]], zero))


def _times_dense(op: Any, inputs: Sequence[Any]) -> Matrix:
    """MultiplySparseDense(x, y)."""
    x, y = inputs
    if not y.type.ndim:
        return x.with_data(x.data * y)
    return x.with_data(x.data * _agrees(_ASSERT, y, x, *y.shape)[x.coordinates()])


def _plus_dense(op: Any, inputs: Sequence[Any]) -> Variable:
    """AddSparseDense(x, y)."""
    x, y = inputs
    dtype = np.result_type(x.data.type.dtype, y.type.dtype).name
    return _added(pt.cast(_agrees(_INCONSISTENT, y, x, *y.shape), dtype), x, pt.cast(x.data, dtype))


def _plus_data(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    """AddSparseSparseData(x, y), which have the same places."""
    x, y = inputs
    same = pt.eq(x.data.shape[0], y.data.shape[0])
    return x.with_data(x.data + _ASSERT(y.data, same, pt.eq(x.rows, y.rows), pt.eq(x.columns, y.columns)))


def _union(x: Matrix, y: Matrix) -> tuple[Variable, Variable, Variable]:
    """Return the places of two matrices, and the elements of each there."""
    dtype = np.result_type(x.data.type.dtype, y.data.type.dtype).name
    groups = groups_of(pt.join(0, x.keys(), _agrees(_INCONSISTENT, y.keys(), x, y.rows, y.columns)))
    first, second = (pt.cast(v.data, dtype) for v in (x, y))
    left = groups.sums(pt.join(0, first, pt.zeros_like(second)))
    right = groups.sums(pt.join(0, pt.zeros_like(first), second))
    return groups.keys, left, right


def _like(x: Matrix, form: str) -> Matrix:
    """Return a matrix in another form."""
    if x.form == form:
        return x
    return compressed(x.coordinates(), x.data, (x.rows, x.columns), form)


def _plus(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    """AddSparseSparse(x, y)."""
    x, y = inputs
    keys, left, right = _union(x, y)
    return chosen(keys, left + right, pt.neq(left + right, 0), x, x.form)


def _times(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    """MultiplySparseSparse(x, y)."""
    x, y = inputs
    keys, left, right = _union(x, y)
    return chosen(keys, left * right, pt.neq(left * right, 0), x, x.form)


_COMPARISONS = {
    "Equal": pt.eq,
    "NotEqual": pt.neq,
    "LessThan": pt.lt,
    "GreaterThan": pt.gt,
    "LessEqual": pt.le,
    "GreaterEqual": pt.ge,
}


def _comparison_of(op: Any) -> Callable[[Variable, Variable], Variable]:
    return _COMPARISONS[type(op).__name__.partition("Sparse")[0]]


def _compare(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    """EqualSparseSparse(x, y) and so on; where two zeros compare as true, the result is made from dense matrices."""
    x, y = inputs
    compare = _comparison_of(op)
    if compare in (pt.eq, pt.le, pt.ge):
        dense = [_to_dense(None, [v]) for v in (x, y)]
        first = _agrees(_INCONSISTENT, dense[0], x, y.rows, y.columns)
        return from_dense(pt.cast(compare(first, dense[1]), "uint8"), x.form)
    keys, left, right = _union(x, y)
    found = compare(left, right)
    return chosen(keys, pt.cast(found, "uint8"), found, x, x.form)


def _compare_dense(op: Any, inputs: Sequence[Any]) -> Variable:
    """EqualSparseDense(x, y) and so on."""
    x, y = inputs
    return pt.cast(_comparison_of(op)(_to_dense(None, [x]), _agrees(_INCONSISTENT, y, x, *y.shape)), "uint8")


def _entries_of_rows(x: Matrix, rows: Variable) -> tuple[Variable, Variable]:
    """Return the numbers of the entries of some rows of a CSR matrix, and for each which of the rows it is."""
    begin = x.pointers[rows]
    ends = pt.cumsum(x.pointers[rows + 1] - begin)
    starts = pt.join(0, np.zeros(1, "int64"), ends)
    total = starts[-1]
    which = expanded(starts, total)
    return begin[which] + pt.arange(total) - starts[which], which


def _csr_dot(x: Matrix, y: Variable) -> Variable:
    """Return the product of a matrix and a dense one, or a vector."""
    dtype = np.result_type(x.data.type.dtype, y.type.dtype).name
    x = _like(x, "csr")
    places = (pt.cast(v, "int32") for v in (x.indices, x.pointers))
    return CsrDot()(pt.cast(x.data, dtype), *places, pt.cast(y, dtype), x.columns)


def _product(op: Any, inputs: Sequence[Any]) -> Matrix | Variable | None:
    """Dot(x, y) and StructuredDot(x, y), of which one may be dense.

    Compressed rows and constants times dense matrices are left to `decompose_sparse_products`.
    """
    x, y = inputs
    if isinstance(x, Matrix) and isinstance(y, Matrix):
        product = _sparse_product(x, y)
        return _to_dense(op, [product]) if type(op).__name__ == "Dot" else product
    matrix = x if isinstance(x, Matrix) else y.transposed()
    if matrix.form == "csr" or isinstance(matrix.indices, Constant) or not matrix.data.type.dtype.startswith("float"):
        return None
    return _csr_dot(x, y) if isinstance(x, Matrix) else _csr_dot(matrix, x.T).T


def _true_dot(op: Any, inputs: Sequence[Any]) -> Matrix:
    """TrueDot(x, y): the result is sparse, whatever y is."""
    x, y = inputs
    return _sparse_product(x, y) if isinstance(y, Matrix) else from_dense(_csr_dot(x, y), x.form)


def _sampling_dot(op: Any, inputs: Sequence[Any]) -> Matrix | None:
    """SamplingDot(x, y, p): the elements of ``x @ y.T`` at the places of p, times p."""
    x, y, pattern = inputs
    dtype = pattern.data.type.dtype
    if np.result_type(x.type.dtype, y.type.dtype, dtype) != dtype:
        return None
    factors = (x, y) if pattern.form == "csr" else (y, x)
    places = (pt.cast(v, "int32") for v in (pattern.indices, pattern.pointers))
    return pattern.with_data(pattern.data * CsrSampledDot()(*places, *(pt.cast(f, dtype) for f in factors)))


def _sparse_product(x: Matrix, y: Matrix) -> Matrix:
    """Return the product of two sparse matrices: each entry of the first one, times a row of the second one."""
    form = x.form
    y = _like(y, "csr")
    row, column = _inner_coordinates(x, y)
    entries, which = _entries_of_rows(y, column)
    data = x.data[which] * y.data[entries]
    place = row[which], y.indices[entries]
    product = Matrix(data, place[1], place[0], x.rows, y.columns, "csr")
    groups = groups_of(place[0] * y.columns + place[1])
    return chosen(groups.keys, groups.sums(data), pt.lt(pt.arange(data.shape[0]), groups.count), product, form)


def _inner_coordinates(x: Matrix, y: Matrix) -> tuple[Variable, Variable]:
    """Return row and column of the entries of x, which has as many columns as y has rows."""
    row, column = x.coordinates()
    return row, CheckAndRaise(ValueError, "dimension mismatch")(column, pt.eq(x.columns, y.rows))


def _wrapped(index: Variable, length: Variable) -> Variable:
    """Return an index that is not negative."""
    index = _int64(index)
    inside = pt.and_(index >= -length, index < length)
    return _BOUNDS(pt.switch(index < 0, index + length, index), inside.all() if index.type.ndim else inside)


def _element(op: Any, inputs: Sequence[Any]) -> Variable:
    """GetItemScalar(x, i, j)."""
    x, i, j = inputs
    row, column = x.coordinates()
    is_there = pt.eq(row, _wrapped(i, x.rows)) & pt.eq(column, _wrapped(j, x.columns))
    return pt.cast(pt.switch(is_there, x.data, np.zeros((), x.data.type.dtype)).sum(), x.data.type.dtype)


def _elements(op: Any, inputs: Sequence[Any]) -> Variable:
    """GetItem2Lists(x, i, j)."""
    x, i, j = inputs
    return values_at(x, _wrapped(i, x.rows) * x.columns + _wrapped(j, x.columns))


def _rows_of(op: Any, inputs: Sequence[Any]) -> Matrix:
    """GetItemList(x, i)."""
    x, rows = inputs
    return _taken(x, _wrapped(rows, x.rows))


def _taken(x: Matrix, rows: Variable) -> Matrix:
    by_rows = _like(x, "csr")
    entries, which = _entries_of_rows(by_rows, rows)
    lengths = pt.cast(rows.shape[0], "int64"), x.columns
    place = which, by_rows.indices[entries]
    return compressed(place, by_rows.data[entries], lengths, x.form, is_sorted=x.form == "csr")


def _rows_gradient(op: Any, inputs: Sequence[Any]) -> Matrix:
    """GetItemListGrad(x, i, g): row k of g becomes row i[k]; of several the last counts."""
    x, rows, gradient = inputs
    rows = _wrapped(rows, x.rows)
    last = pt.zeros((x.rows,), dtype="int64")[rows].set(pt.arange(rows.shape[0]))
    row, column = gradient.coordinates()
    (kept,) = pt.nonzero(pt.eq(last[rows[row]], row))
    data = pt.cast(gradient.data[kept], x.data.type.dtype)
    return compressed((rows[row[kept]], column[kept]), data, (x.rows, x.columns), x.form)


def _elements_gradient(op: Any, inputs: Sequence[Any]) -> Matrix:
    """GetItem2ListsGrad(x, i, j, g): g[k] is put at (i[k], j[k]); of several the last counts."""
    x, i, j, gradient = inputs
    groups = groups_of(_wrapped(i, x.rows) * x.columns + _wrapped(j, x.columns))
    data = pt.zeros_like(gradient)[groups.group].set(gradient)
    is_place = pt.lt(pt.arange(data.shape[0]), groups.count)
    return chosen(groups.keys, pt.cast(data, x.data.type.dtype), is_place, x, x.form)


def _slices(op: Any, inputs: Sequence[Any]) -> Matrix | None:
    """GetItem2d(x, slices): rows are taken, and then columns, which are renumbered."""
    x, *limits = inputs
    bounds = [None if isinstance(v.type, NoneTypeT) or not isinstance(v.type, TensorType) else v for v in limits]
    rows, columns = slice(*bounds[:3]), slice(*bounds[3:])
    if rows != slice(None):
        x = _taken(x, pt.arange(x.rows)[rows])
    if columns != slice(None):
        numbers = pt.arange(x.columns)[columns]
        new = pt.alloc(np.int64(-1), x.columns)[numbers].set(pt.arange(numbers.shape[0]))
        row, column = x.coordinates()
        (kept,) = pt.nonzero(new[column] >= 0)
        lengths = x.rows, pt.cast(numbers.shape[0], "int64")
        x = compressed((row[kept], new[column[kept]]), x.data[kept], lengths, x.form)
    return x


def _sorted(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    """EnsureSortedIndices(x)."""
    (x,) = inputs
    return compressed(x.coordinates(), x.data, (x.rows, x.columns), x.form)


def _without_zeros(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    """Remove0(x)."""
    (x,) = inputs
    (kept,) = pt.nonzero(pt.neq(x.data, 0))
    row, column = x.coordinates()
    return compressed((row[kept], column[kept]), x.data[kept], (x.rows, x.columns), x.form, is_sorted=True)


def _placed(
    blocks: Sequence[Matrix], lengths: tuple[Variable, Variable], offsets: Any, form: str, dtype: str
) -> Matrix:
    """Return the matrix of blocks, of which each begins at a row and a column."""
    places = [block.coordinates() for block in blocks]
    row, column = (pt.join(0, *(p[k] + o[k] for p, o in zip(places, offsets, strict=True))) for k in (0, 1))
    return compressed((row, column), pt.join(0, *(pt.cast(b.data, dtype) for b in blocks)), lengths, form)


def _begins(lengths: Sequence[Variable]) -> tuple[list[Variable], Variable]:
    """Return where parts begin that follow one another, and where the last one ends."""
    begins, end = [], pt.constant(np.int64(0))
    for length in lengths:
        begins.append(end)
        end = end + length
    return begins, end


def _side_by_side(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    """HStack(x, y)."""
    begins, end = _begins([x.columns for x in inputs])
    rows = (
        _LENGTHS(inputs[0].rows, *(pt.eq(x.rows, inputs[0].rows) for x in inputs[1:])) if inputs[1:] else inputs[0].rows
    )
    return _placed(inputs, (rows, end), [(0, b) for b in begins], op.format, op.dtype)


def _on_top(op: Any, inputs: Sequence[Matrix]) -> Matrix:
    """VStack(x, y)."""
    begins, end = _begins([x.rows for x in inputs])
    first = inputs[0].columns
    columns = _LENGTHS(first, *(pt.eq(x.columns, first) for x in inputs[1:])) if inputs[1:] else first
    return _placed(inputs, (end, columns), [(b, 0) for b in begins], op.format, op.dtype)


def _diagonal_blocks(op: Any, inputs: Sequence[Any]) -> Matrix:
    """SparseBlockDiagonal(x, y); blocks may be dense."""
    blocks = [x if isinstance(x, Matrix) else from_dense(x, "csr") for x in inputs]
    dtype = np.result_type(*(b.data.type.dtype for b in blocks)).name
    rows, end = _begins([b.rows for b in blocks])
    columns, width = _begins([b.columns for b in blocks])
    return _placed(blocks, (end, width), list(zip(rows, columns, strict=True)), op.format, dtype)


def _from_rows(op: Any, inputs: Sequence[Variable]) -> Matrix:
    """ConstructSparseFromList(shape, values, i): row k of the values is at row i[k] of compressed columns."""
    shape, values, rows = inputs
    count, width = values.shape
    rows = _ASSERT(_int64(rows), pt.eq(rows.shape[0], count))
    indices = pt.broadcast_to(rows[None, :], (width, count)).flatten()
    pointers = pt.arange(width + 1) * count
    return Matrix(values.T.flatten(), indices, pointers, _int64(shape[0]), _int64(shape[1]), "csc")


_FORMS: dict[str, Callable[[Any, Sequence[Any]], Any]] = {
    "basic.CSM": _assembled,
    "basic.CSMProperties": _properties,
    "basic.CSMGrad": _csm_gradient,
    "basic.Cast": _cast,
    "basic.DenseFromSparse": _to_dense,
    "basic.SparseFromDense": _to_sparse,
    "basic.GetItemList": _rows_of,
    "basic.GetItemListGrad": _rows_gradient,
    "basic.GetItem2Lists": _elements,
    "basic.GetItem2ListsGrad": _elements_gradient,
    "basic.GetItem2d": _slices,
    "basic.GetItemScalar": _element,
    "basic.Transpose": _transpose,
    "basic.ColScaleCSC": _by_column,
    "basic.RowScaleCSC": _by_row,
    "basic.Diag": _diagonal,
    "basic.EnsureSortedIndices": _sorted,
    "basic.HStack": _side_by_side,
    "basic.VStack": _on_top,
    "basic.Remove0": _without_zeros,
    "basic.ConstructSparseFromList": _from_rows,
    "linalg.SparseBlockDiagonal": _diagonal_blocks,
    "math.SpSum": _sum,
    "math.AddSparseSparse": _plus,
    "math.AddSparseSparseData": _plus_data,
    "math.AddSparseDense": _plus_dense,
    "math.StructuredAddSparseDenseVector": _plus_vector,
    "math.MultiplySparseSparse": _times,
    "math.MultiplySparseDense": _times_dense,
    "math.MultiplySparseDenseVector": _by_column,
    "math.Dot": _product,
    "math.TrueDot": _true_dot,
    "math.SamplingDot": _sampling_dot,
    "math.StructuredDot": _product,
    **{f"math.{name}SparseSparse": _compare for name in _COMPARISONS},
    **{f"math.{name}SparseDense": _compare_dense for name in _COMPARISONS},
}


_SORTING = frozenset(
    (
        *(_csm_gradient, _rows_of, _rows_gradient, _elements, _elements_gradient, _slices, _sorted, _without_zeros),
        *(_side_by_side, _on_top, _diagonal_blocks, _plus, _times, _compare, _true_dot, _to_sparse),
    )
)
"""Forms that sort or count entries: SciPy is faster at them, and the device takes them if it is told to."""

SCIPY = "SciPy is faster at sorting the entries of sparse matrices"


class _Decomposition:
    """Replaces the sparse nodes of a graph, and keeps the vectors of the matrices that it has seen."""

    def __init__(self, fgraph: FunctionGraph, package: ModuleType) -> None:
        self._fgraph = fgraph
        self._package: Any = package
        self._matrices: dict[Variable, Matrix] = {}

    def _is_sparse(self, variable: Variable) -> bool:
        return isinstance(variable.type, self._package.SparseTensorType)

    def _is_real(self, node: Apply) -> bool:
        kinds = [getattr(v.type, "dtype", "bool") for v in (*node.inputs, *node.outputs)]
        forms = [v.type.format for v in (*node.inputs, *node.outputs) if self._is_sparse(v)]
        return all(np.dtype(kind).kind in "iufb" for kind in kinds) and all(f in ("csr", "csc") for f in forms)

    def _matrix(self, variable: Variable) -> Matrix:
        """Return the vectors of a sparse matrix. Those of an input are its properties."""
        if variable not in self._matrices:
            node = self._package.csm_properties.make_node(variable)
            parts: list[Any] = list(node.outputs)
            if isinstance(variable, Constant):
                storage: list[list[Any]] = [[None] for _ in parts]
                node.op.perform(node, [variable.data], storage)
                parts = [pt.constant(s[0]) for s in storage]
            data, indices, pointers, shape = parts
            rows, columns = (_int64(shape[k]) for k in (0, 1))
            places = _int64(indices), _int64(pointers)
            self._matrices[variable] = Matrix(data, *places, rows, columns, variable.type.format)
        return self._matrices[variable]

    def _replacement(self, node: Apply, result: Any) -> list[Variable]:
        """Return variables for what a form has returned; matrices are assembled."""
        if not isinstance(result, Matrix):
            results = result if isinstance(result, list) else [result]
            return [pt.cast(v, old.type.dtype) for v, old in zip(results, node.outputs, strict=True)]
        indices, pointers = (pt.cast(v, "int32") for v in (result.indices, result.pointers))
        shape = pt.cast(pt.stack([result.rows, result.columns]), "int32")
        data = pt.cast(result.data, node.outputs[0].type.dtype)
        return [self._package.CSM(result.form)(data, indices, pointers, shape)]

    def _sorts(self, form: Any, node: Apply) -> bool:
        """Return whether a form sorts entries."""
        return form in _SORTING or (form is _product and all(map(self._is_sparse, node.inputs)))

    def replace(self, node: Apply) -> bool:
        """Replace a node if there is a form for it."""
        module, _, name = type(node.op).__module__.rpartition(".")
        form = _FORMS.get(f"{name}.{type(node.op).__name__}") if module == "pytensor.sparse" else None
        if form is None or not self._is_real(node):
            return False
        if form is _properties and node.inputs[0] not in self._matrices:
            return False
        if config.opencl__placement != "device" and self._sorts(form, node):
            note_reason(node, SCIPY)
            return False
        inputs = [self._matrix(v) if self._is_sparse(v) else v for v in node.inputs]
        result = form(node.op, inputs)
        if result is None:
            return False
        if form is _assembled:
            self._matrices[node.outputs[0]] = result
            return False
        return self._put(node, result)

    def _put(self, node: Apply, result: Any) -> bool:
        new = self._replacement(node, result)
        try:
            typed = [old.type.filter_variable(v) for old, v in zip(node.outputs, new, strict=True)]
        except TypeError:  # lengths that the form does not know
            return False
        if isinstance(result, Matrix):
            self._matrices[typed[0]] = result
        pairs = list(zip(node.outputs, typed, strict=True))
        self._fgraph.replace_all(pairs, reason="opencl_sparse", import_missing=True)
        return True


def mend_sparse_gradients(fgraph: FunctionGraph) -> None:
    """CSMGrad(x, g) of a matrix and a gradient of two formats -> the elements of g at the places of x.

    The node has vectors only, and PyTensor takes them for two matrices of one format, so that its backends give wrong
    numbers. The pointers tell the format: they come from a matrix, or make one up.
    """
    package: Any = sys.modules.get("pytensor.sparse")
    if package is None:
        return
    form_of: dict[Variable, str] = {}
    for node in fgraph.apply_nodes:
        if isinstance(node.op, package.CSM):
            form_of[node.inputs[2]] = node.op.format
        elif isinstance(node.op, package.CSMProperties):
            form_of[node.outputs[2]] = node.inputs[0].type.format
    for node in [n for n in fgraph.toposort() if isinstance(n.op, package.CSMGrad)]:
        forms = [form_of.get(node.inputs[k]) for k in (2, 6)]
        if None not in forms and forms[0] != forms[1]:
            new = pt.cast(_values_at_places(node.inputs, *map(str, forms)), node.outputs[0].type.dtype)
            pairs = [(node.outputs[0], node.outputs[0].type.filter_variable(new))]
            fgraph.replace_all(pairs, reason="opencl_mend_sparse_gradients", import_missing=True)


def decompose_sparse_matrices(fgraph: FunctionGraph) -> None:
    """Replace Ops of sparse matrices by Ops of their vectors."""
    package = sys.modules.get("pytensor.sparse")
    if package is None:
        return
    decomposition = _Decomposition(fgraph, package)
    for node in fgraph.toposort():
        if node in fgraph.apply_nodes:
            decomposition.replace(node)
