"""Ops of linear algebra that others make up -> those others, which have kernels.

All forms hold for batches of matrices: they use the last dimensions only.
"""

from collections.abc import Callable, Sequence
from math import comb, factorial, log2
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.constructors import BlockDiagonal
from pytensor.tensor.linalg.decomposition.eigen import Eigh, Eigvalsh
from pytensor.tensor.linalg.decomposition.lu import LU, PivotToPermutations
from pytensor.tensor.linalg.decomposition.svd import SVD
from pytensor.tensor.linalg.dtype_utils import linalg_output_dtype
from pytensor.tensor.linalg.inverse import MatrixPinv, TensorInv
from pytensor.tensor.linalg.products import Expm
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.lstsq import Lstsq, TensorSolve
from pytensor.tensor.linalg.solvers.tridiagonal import LUFactorTridiagonal, SolveLUFactorTridiagonal
from pytensor.tensor.rewriting.basic import topo_constant_folding

from pytensor_cl.codegen.dtypes import is_complex, part
from pytensor_cl.ops.linalg import PivotedLU, RepeatedSquares
from pytensor_cl.rewriting.decompose.batch import Batch

_FINITE = CheckAndRaise(ValueError, "array must not contain infs or NaNs")
_SQUARE = CheckAndRaise(np.linalg.LinAlgError, "expected square matrix")
_CONVERGED = CheckAndRaise(np.linalg.LinAlgError, "SVD did not converge")
_DEFINITE = CheckAndRaise(np.linalg.LinAlgError, "The second matrix is not positive definite")
_SINGULAR = CheckAndRaise(np.linalg.LinAlgError, "Singular matrix")

Form = Callable[[Any, Sequence[Variable], str], "list[Variable] | None"]
"""Op of one matrix, inputs with batch dimensions, dtype of the first output -> outputs; None if the node stays."""


def _apply(op: Op, *inputs: Variable, signature: str | None = None) -> list[Variable]:
    """Return the outputs of an Op of one matrix for a batch; `signature` is needed if the Op does not name its own."""
    is_batch = inputs[0].type.ndim > 2
    return list((Blockwise(op, signature=signature) if is_batch else op).make_node(*inputs).outputs)


def _are_finite(x: Variable) -> Variable:
    return pt.invert(pt.or_(pt.isnan(x), pt.isinf(x))).all()


def _finite(x: Variable) -> Variable:
    return _FINITE(x, _are_finite(x))


def _indices(rows: Variable, columns: Variable | None = None) -> tuple[Variable, Variable]:
    """Return the numbers of rows and of columns of a matrix, to be broadcast; it is square if no columns are given."""
    numbers = pt.arange(rows)
    return numbers[:, None], (numbers if columns is None else pt.arange(columns))[None, :]


def _lu(core: LU, inputs: Sequence[Variable], dtype: str) -> list[Variable]:
    """LU(A) -> L, U and the permutation from the pivots."""
    (a,) = inputs
    rows, columns = a.type.shape[-2:]
    is_square = rows is not None and rows == columns
    dtype = linalg_output_dtype(a.type.dtype)
    factors, pivots = _apply(PivotedLU(), _finite(pt.cast(a, dtype)))
    row, column = _indices(a.shape[-2], None if is_square else a.shape[-1])
    zero, one = (np.asarray(v, dtype) for v in (0, 1))
    upper = pt.switch(row <= column, factors, zero)
    lower = pt.switch(row > column, factors, pt.switch(pt.eq(row, column), one, zero))
    if not is_square:
        steps = pt.minimum(a.shape[-2], a.shape[-1])
        upper, lower = upper[..., :steps, :], lower[..., :steps]
    (order,) = Blockwise(PivotToPermutations(inverse=False), signature="(x)->(x)").make_node(pivots).outputs
    if core.p_indices:
        return [pt.cast(order, "int32"), lower, upper]
    if core.permute_l:
        return [pt.take_along_axis(lower, pt.broadcast_to(order[..., None], lower.shape), axis=-2), upper]
    return [pt.cast(pt.eq(order[..., None], row[:, 0]), part(dtype)), lower, upper]


def _block_diagonal(core: BlockDiagonal, inputs: Sequence[Variable], dtype: str) -> list[Variable]:
    """BlockDiagonal(A, B) -> [[A, 0], [0, B]]."""
    blocks = [pt.cast(v, dtype) for v in inputs]
    batch = [blocks[0].shape[k] for k in range(blocks[0].type.ndim - 2)]
    columns = [v.shape[-1] for v in blocks]
    rows = []
    for k, block in enumerate(blocks):
        parts = [block]
        if k:
            parts.insert(0, pt.zeros((*batch, block.shape[-2], pt.add(*columns[:k], 0)), dtype=dtype))
        if k < len(blocks) - 1:
            parts.append(pt.zeros((*batch, block.shape[-2], pt.add(*columns[k + 1 :], 0)), dtype=dtype))
        rows.append(pt.join(-1, *parts))
    return [pt.join(-2, *rows)]


def _tensor_inverse(core: TensorInv, inputs: Sequence[Variable], dtype: str) -> list[Variable] | None:
    """TensorInv(A) -> the inverse of A as a matrix."""
    (a,) = inputs
    if core.ind <= 0:
        return None
    rows, columns = a.shape[: core.ind], a.shape[core.ind :]
    matrix = a.reshape((pt.prod(rows), pt.prod(columns)))
    matrix = _SQUARE(matrix, pt.eq(matrix.shape[0], matrix.shape[1]))
    lengths = [a.shape[k] for k in (*range(core.ind, a.type.ndim), *range(core.ind))]
    return [pt.linalg.inv(matrix).reshape(lengths)]


def _tensor_solve(core: TensorSolve, inputs: Sequence[Variable], dtype: str) -> list[Variable] | None:
    """TensorSolve(A, B) -> Solve(A as a matrix, B as a vector)."""
    a, b = (pt.cast(v, dtype) for v in inputs)
    axes = [k % a.type.ndim for k in core.axes or ()]
    a = a.dimshuffle(*(k for k in range(a.type.ndim) if k not in axes), *axes)
    if a.type.ndim != b.type.ndim + 2:
        return None
    lengths = [a.shape[k] for k in range(b.type.ndim, a.type.ndim)]
    n = lengths[0] * lengths[1]
    matrix = _SQUARE(a, pt.eq(a.size, n * n)).reshape((n, n))
    vector = b.flatten()
    solution = pt.linalg.solve(matrix, vector, b_ndim=1)
    is_found = pt.or_(pt.invert(pt.isnan(solution).any()), pt.isnan(matrix).any() | pt.isnan(vector).any())
    return [_SINGULAR(solution, is_found).reshape(lengths)]


def _solve(core: Solve, inputs: Sequence[Variable], dtype: str) -> list[Variable] | None:
    """Solve(A, B) of structured matrices -> that of general ones, or of tridiagonal ones."""
    a, b = inputs
    if core.assume_a in ("gen", "pos"):
        return None
    if core.assume_a == "tridiagonal":
        if is_complex(dtype):
            return None
        diagonals = [pt.diagonal(a, offset=k, axis1=-2, axis2=-1) for k in (-1, 0, 1)]
        signature = LUFactorTridiagonal.gufunc_signature
        factors = Blockwise(LUFactorTridiagonal(), signature=signature).make_node(*diagonals).outputs
        substitution = SolveLUFactorTridiagonal(b_ndim=core.b_ndim, transposed=False)
        return list(Blockwise(substitution).make_node(*factors, b).outputs)
    if core.assume_a in ("sym", "her"):
        row, column = _indices(a.shape[-1])
        other = a.mT
        if core.assume_a == "her" and is_complex(a.type.dtype):
            other = pt.conj(other)
            a = pt.switch(pt.eq(row, column), pt.cast(pt.real(a), a.type.dtype), a)
        a = pt.switch(row >= column if core.lower else row <= column, a, other)
    return _apply(Solve(assume_a="gen", b_ndim=core.b_ndim), a, b)


def _svd(core: SVD, inputs: Sequence[Variable], dtype: str) -> list[Variable]:
    """SVD(A) -> SVD(A) with a check of the elements, which LAPACK makes."""
    return _apply(core, _CONVERGED(inputs[0], _are_finite(inputs[0])))


def _largest(values: Variable) -> Variable:
    """Return the largest of each vector of values that are not negative; zero if it is empty."""
    return pt.join(-1, values, pt.zeros_like(values.sum(axis=-1, keepdims=True))).max(axis=-1)


def _eigen(core: Any, inputs: Sequence[Variable], dtype: str) -> list[Variable] | None:
    """Eigh(A, B) -> Eigh(inv(L) A inv(L).T) for ``B = L L.T``; Eigh(A) -> Eigh(A) with a check of the elements."""
    if is_complex(inputs[0].type.dtype):
        if len(inputs) > 1 or isinstance(core, Eigh):
            return None
        dtype = inputs[0].type.dtype
    inputs = [_finite(pt.cast(v, dtype)) for v in inputs]
    signature = "(m,m)->(m),(m,m)" if isinstance(core, Eigh) else "(m,m)->(m)"
    if len(inputs) == 1:
        return _apply(core, inputs[0], signature=signature)
    a, b = inputs
    row, column = _indices(a.shape[-1])
    a = pt.switch(row >= column if core.lower else row <= column, a, a.mT)
    factor = pt.linalg.cholesky(b if core.lower else b.mT, lower=True, on_error="nan")
    factor = _DEFINITE(factor, pt.invert(pt.isnan(factor)).all())
    half = pt.linalg.solve_triangular(factor, a, lower=True, b_ndim=2)
    whole = pt.linalg.solve_triangular(factor, half.mT, lower=True, b_ndim=2)
    values, *vectors = _apply(type(core)(lower=True), whole, signature=signature)
    return [values, *(pt.linalg.solve_triangular(factor, v, lower=True, trans="T", b_ndim=2) for v in vectors)]


def _pseudoinverse(core: MatrixPinv, inputs: Sequence[Variable], dtype: str) -> list[Variable]:
    """MatrixPinv(A) -> V diag(1 / s) U.T, or U.H, from SVD(A); values below 1e-15 of the largest are dropped."""
    u, values, vt = _svd(SVD(full_matrices=False), [pt.cast(inputs[0], dtype)], dtype)
    is_kept = values > np.asarray(1e-15, part(dtype)) * _largest(values)[..., None]
    inverse = pt.switch(is_kept, 1 / values, np.asarray(0, part(dtype)))
    if is_complex(dtype):
        u, vt = pt.conj(u), pt.conj(vt)
    return [vt.mT @ (inverse[..., None] * u.mT)]


def _least_squares(core: Lstsq, inputs: Sequence[Variable], dtype: str) -> list[Variable] | None:
    """Lstsq(A, B, c) -> V diag(1 / s) U.T B from SVD(A), in double precision as NumPy computes it."""
    a, b, cutoff = (pt.cast(v, "float64") for v in inputs)
    if b.type.ndim != 2 or cutoff.type.ndim:
        return None
    u, values, vt = _svd(SVD(full_matrices=False), [a], "float64")
    is_default = (cutoff <= 0) | (cutoff >= 1)  # as in LAPACK's gelsd
    is_kept = values > pt.switch(is_default, np.finfo("float64").eps, cutoff) * _largest(values)
    inverse = pt.switch(is_kept, 1 / values, 0.0)
    solution = vt.T @ (inverse[:, None] * (u.T @ b))
    rank = pt.cast(is_kept.sum(), "int32")
    rows, columns = a.shape
    has_residuals = pt.eq(rank, columns) & (rows > columns)
    residuals = pt.sqr(b - a @ solution).sum(axis=0)
    return [solution, residuals[: pt.switch(has_residuals, b.shape[1], 0)], rank, values]


_DEGREES = {"float32": (7, 3.925724783138660), "float64": (13, 5.371920351148152)}
"""Degree of the Pade approximant of each dtype, and the largest 1-norm for which it is exact to rounding."""


def _pade_coefficients(degree: int) -> list[float]:
    """Return the coefficients of the numerator of the diagonal Pade approximant of the exponential."""
    return [comb(degree, k) * factorial(2 * degree - k) / factorial(2 * degree) for k in range(degree + 1)]


def _exponential(core: Expm, inputs: Sequence[Variable], dtype: str) -> list[Variable]:
    """Expm(A) -> a Pade approximant of the scaled matrix, squared again and again.

    N. Higham, The scaling and squaring method for the matrix exponential revisited, 2005.
    """
    a, real = pt.cast(inputs[0], dtype), part(dtype)
    a = _SQUARE(a, pt.eq(a.shape[-1], a.shape[-2]))
    degree, largest = _DEGREES[real]
    norm = _largest(abs(a).sum(axis=-2))
    known = pt.switch(pt.or_(pt.isnan(norm), pt.isinf(norm)), np.asarray(0, real), norm)
    squarings = pt.cast(pt.maximum(pt.ceil(pt.log2(pt.maximum(known, 1e-30)) - log2(largest)), 0), "int32")
    a = a * pt.cast(pt.exp2(-pt.cast(squarings, real)), real)[..., None, None]
    row, column = _indices(a.shape[-1])
    identity = pt.cast(pt.eq(row, column), dtype)
    c = [np.asarray(v, dtype) for v in _pade_coefficients(degree)]
    second = a @ a
    fourth = second @ second
    sixth = fourth @ second
    powers = (second, fourth, sixth)
    odd = _combination(c[3:8:2], powers) + c[1] * identity
    even = _combination(c[2:7:2], powers) + c[0] * identity
    if degree == 13:
        odd = odd + sixth @ _combination(c[9::2], powers)
        even = even + sixth @ _combination(c[8::2], powers)
    odd = a @ odd
    approximant = pt.linalg.solve(even - odd, even + odd, b_ndim=2)
    return [RepeatedSquares().make_node(approximant, squarings).outputs[0]]


def _combination(weights: Sequence[np.ndarray], matrices: Sequence[Variable]) -> Variable:
    first, *others = (w * m for w, m in zip(weights, matrices, strict=True))
    return sum(others, start=first)


_FORMS: dict[type[Op], Form] = {
    BlockDiagonal: _block_diagonal,
    Expm: _exponential,
    Eigh: _eigen,
    Eigvalsh: _eigen,
    LU: _lu,
    Lstsq: _least_squares,
    MatrixPinv: _pseudoinverse,
    SVD: _svd,
    Solve: _solve,
    TensorInv: _tensor_inverse,
    TensorSolve: _tensor_solve,
}

_COMPLEX_FORMS = (Eigh, Eigvalsh, Expm, LU, MatrixPinv, SVD, Solve, TensorInv, TensorSolve)
"""Ops whose forms hold for complex matrices too."""


def _is_known_rectangle(a: Variable) -> bool:
    rows, columns = a.type.shape[-2:]
    return rows is not None and columns is not None and rows != columns


def _lowered(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Return the replacements of a node's outputs; None if it stays."""
    is_batched = isinstance(node.op, Blockwise)
    core = node.op.core_op if is_batched else node.op
    form = _FORMS.get(type(core))
    dtypes = [v.type.dtype for v in (*node.inputs, *node.outputs)] if form is not None else []
    kinds = "iufbc" if type(core) in _COMPLEX_FORMS else "iufb"
    if form is None or not all(np.dtype(kind).kind in kinds for kind in dtypes):
        return None
    if not any(part(v.type.dtype) in ("float32", "float64") for v in node.outputs):
        return None
    if isinstance(core, LU) and _is_known_rectangle(node.inputs[0]):
        return None  # the types of its outputs are wrong
    inputs = [Batch(fgraph, node).broadcast(v) for v in node.inputs] if is_batched else node.inputs
    return form(core, inputs, node.outputs[0].type.dtype)


def decompose_linalg(fgraph: FunctionGraph) -> None:
    """Replace Ops of linear algebra by those that make them up."""
    found = False
    for node in fgraph.toposort():
        new = _lowered(fgraph, node)
        if new is None:
            continue
        found = True
        typed = [(old, old.type.filter_variable(v)) for old, v in zip(node.outputs, new, strict=True)]
        fgraph.replace_all(typed, reason="opencl_decompose", import_missing=True)
    if found:
        topo_constant_folding.rewrite(fgraph)
