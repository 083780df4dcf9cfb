"""Sparse matrices."""

from collections.abc import Iterator

import numpy as np
import pytensor.tensor as pt
import scipy.sparse
from pytensor import sparse
from pytensor.sparse import basic, math
from pytensor.sparse import linalg as sparse_linalg

from tests.probes.probe import Probe, probe

RNG = np.random.default_rng(6)
FLOATS = ("float32", "float64")


def draw(rows, columns, dtype="float32", kind="csr"):
    """Return a sparse matrix; a quarter of it is there."""
    made = scipy.sparse.random(rows, columns, 0.25, format=kind, dtype="float64", random_state=RNG)
    made.data += 0.5
    return getattr(scipy.sparse, f"{kind}_matrix")(made.astype(dtype))


def dense(*extents, dtype="float32"):
    """Return an array."""
    return RNG.uniform(0.5, 2, extents).astype(dtype)


def _out(function):
    """Make a sparse result dense, so that it can be compared."""

    def build(*inputs):
        made = function(*inputs)
        return basic.dense_from_sparse(made) if isinstance(made.type, sparse.SparseTensorType) else made

    return build


A, B, C = draw(5, 4), draw(5, 4), draw(5, 4, kind="csc")
INDEX = np.array([0, 2, 3])

_COMPARISONS = ("equal", "not_equal", "less_than", "greater_than", "less_equal", "greater_equal")


def _structure() -> Iterator[Probe]:
    yield probe(basic.CSMProperties, lambda x: basic.csm_properties(x), A)
    yield probe(
        basic.CSM,
        lambda *v: basic.dense_from_sparse(basic.CSR(*v)),
        A.data,
        A.indices,
        A.indptr,
        np.array([5, 4], "int32"),
    )
    yield probe(basic.CSMGrad, lambda x: pt.grad(basic.csm_properties(x)[0].sum(), x), A)
    yield probe(basic.Cast, _out(lambda x: basic.Cast("float64")(x)), A)
    yield probe(basic.DenseFromSparse, basic.dense_from_sparse, A, variant="csr")
    yield probe(basic.DenseFromSparse, basic.dense_from_sparse, C, variant="csc")
    yield probe(basic.SparseFromDense, lambda x: basic.csm_data(basic.csr_from_dense(x)), dense(3, 4))
    yield probe(basic.GetItemList, _out(lambda x, i: basic.get_item_list(x, i)), A, INDEX)
    yield probe(basic.GetItemListGrad, _out(lambda x, i, g: basic.get_item_list_grad(x, i, g)), A, INDEX, draw(3, 4))
    yield probe(basic.GetItem2Lists, lambda x, i: basic.get_item_2lists(x, i, i), A, INDEX)
    yield probe(
        basic.GetItem2ListsGrad, _out(lambda x, i, g: basic.get_item_2lists_grad(x, i, i, g)), A, INDEX, dense(3)
    )
    yield probe(basic.GetItem2d, _out(lambda x: x[1:3, 1:]), A)
    yield probe(basic.GetItemScalar, lambda x: x[1, 2], A)
    yield probe(basic.Transpose, _out(basic.transpose), A)
    yield probe(basic.ColScaleCSC, _out(basic.ColScaleCSC()), C, dense(4))
    yield probe(basic.RowScaleCSC, _out(basic.RowScaleCSC()), C, dense(5))
    yield probe(basic.Diag, basic.diag, draw(4, 4, kind="csc"))
    yield probe(basic.EnsureSortedIndices, _out(basic.ensure_sorted_indices), A)
    yield probe(basic.HStack, _out(lambda x, y: basic.hstack([x, y])), A, B)
    yield probe(basic.VStack, _out(lambda x, y: basic.vstack([x, y])), A, B)
    yield probe(basic.Remove0, _out(basic.remove0), A)
    yield probe(basic.ConstructSparseFromList, _out(basic.construct_sparse_from_list), dense(5, 3), dense(3, 3), INDEX)
    yield probe(sparse_linalg.SparseBlockDiagonal, _out(lambda x, y: sparse_linalg.block_diag(x, y)), C, C)


def _arithmetic() -> Iterator[Probe]:
    for dtype in FLOATS:
        a, b, d = draw(5, 4, dtype), draw(5, 4, dtype), dense(5, 4, dtype=dtype)
        c, v, e = draw(5, 4, dtype, "csc"), dense(4, dtype=dtype), dense(4, 3, dtype=dtype)
        yield probe(math.SpSum, lambda x: math.sp_sum(x, axis=0), a, variant=dtype)
        yield probe(math.AddSparseSparse, _out(math.add_s_s), a, b, variant=dtype)
        yield probe(math.AddSparseSparseData, _out(math.add_s_s_data), a, a * 2, variant=dtype)
        yield probe(math.AddSparseDense, math.add_s_d, a, d, variant=dtype)
        yield probe(math.StructuredAddSparseDenseVector, _out(math.structured_add_s_v), a, v, variant=dtype)
        yield probe(math.MultiplySparseSparse, _out(math.mul_s_s), a, b, variant=dtype)
        yield probe(math.MultiplySparseDense, _out(math.mul_s_d), a, d, variant=dtype)
        yield probe(math.MultiplySparseDenseVector, _out(math.mul_s_v), a, v, variant=dtype)
        yield probe(math.TrueDot, _out(lambda x, y: math.true_dot(x, y)), a, e, variant=dtype)
        yield probe(math.Dot, math.dot, a, e, variant=f"csr-{dtype}")
        yield probe(math.Dot, math.dot, c, e, variant=f"csc-{dtype}")
        yield probe(math.StructuredDot, _out(math.structured_dot), a, e, variant=f"csr-{dtype}")
        yield probe(math.StructuredDot, _out(math.structured_dot), c, e, variant=f"csc-{dtype}")
        gradient = dense(5, 3, dtype=dtype)
        yield probe(math.StructuredDotGradCSR, math.sdg_csr, a.indices, a.indptr, e, gradient, variant=dtype)
        yield probe(math.StructuredDotGradCSC, math.sdg_csc, c.indices, c.indptr, e, gradient, variant=dtype)
        yield probe(
            math.SamplingDot,
            _out(math.sampling_dot),
            dense(5, 2, dtype=dtype),
            dense(4, 2, dtype=dtype),
            a,
            variant=dtype,
        )
        two = np.dtype(dtype).type(2)
        yield probe(math.Usmm, math.usmm, two, a, e, dense(5, 3, dtype=dtype), variant=dtype)


def _comparisons() -> Iterator[Probe]:
    for name in _COMPARISONS:
        both, mixed = getattr(math, f"{name}_s_s"), getattr(math, f"{name}_s_d")
        yield probe(type(both), _out(both), A, B)
        yield probe(type(mixed), _out(mixed), A, dense(5, 4))


PROBES = (*_structure(), *_arithmetic(), *_comparisons())
