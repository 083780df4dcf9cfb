"""Ops whose operands and results are sparse matrices: the vectors of the matrices are on the device."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor import sparse
from pytensor.compile.ops import DeepCopyOp
from pytensor.sparse import basic, math
from pytensor.sparse import linalg as sparse_linalg
from pytensor.sparse.basic import CSM, CSMProperties
from pytensor.tensor.basic import ScalarFromTensor

import pytensor_cl
from pytensor_cl.rewriting.placement.placement import SCALAR
from tests.helpers import opencl

FREE = CSM, CSMProperties, DeepCopyOp, ScalarFromTensor
"""Host nodes that compute nothing: a matrix is taken apart or put together, a number is read."""
formats = pytest.mark.parametrize("form", ["csr", "csc"])


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def matrix(rng, rows, columns, form, dtype="float64", density=0.3, integers=False):
    """A matrix with some empty rows, negative entries, and an explicit zero."""
    made = scipy.sparse.random(rows, columns, density, format="coo", random_state=rng)
    made.data = np.round(made.data * 6) - 3 if integers else made.data - 0.5
    made.data[:1] = 0
    return getattr(scipy.sparse, f"{form}_matrix")(made.astype(dtype))


def repeated(matrix):
    """The same matrix with each entry in two halves, in descending order: neither sorted nor without duplicates."""
    parts = matrix.tocoo()
    order = np.argsort(-(parts.col if matrix.format == "csr" else parts.row), kind="stable")
    outer = parts.row if matrix.format == "csr" else parts.col
    order = order[np.argsort(outer[order], kind="stable")]
    inner = (parts.col if matrix.format == "csr" else parts.row)[order]
    pointers = np.concatenate([[0], np.cumsum(np.bincount(outer, minlength=len(matrix.indptr) - 1))]) * 2
    data = np.repeat(parts.data[order] / 2, 2)
    return type(matrix)((data, np.repeat(inner, 2), pointers), shape=matrix.shape)


def dense_of(value):
    return value.toarray() if scipy.sparse.issparse(value) else np.asarray(value)


def check(inputs, outputs, *arguments, tolerance=1e-10):
    """Compare with PyTensor's Python Ops; nothing is computed on the host."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    f = opencl(inputs, outputs, on_unused_input="ignore")
    with pytensor.config.change_flags(cxx=""):
        reference = pytensor.function(inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore")
    report = pytensor_cl.explain(f)
    assert any(node.op.is_compute for node in report.device_nodes)
    computed = [n for n in report.host_nodes if not isinstance(n.op, FREE) and n.reason != SCALAR]
    assert not computed, [(str(n.op), n.reason) for n in computed]
    for values in arguments:
        for got, expected, output in zip(f(*values), reference(*values), outputs, strict=True):
            if scipy.sparse.issparse(expected):
                assert got.format == expected.format
                got.check_format()
            assert scipy.sparse.issparse(got) == scipy.sparse.issparse(expected)
            got, expected = dense_of(got), dense_of(expected)
            assert (got.shape, got.dtype) == (expected.shape, output.type.dtype)
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    return f


def variables(form, count=2, dtype="float64"):
    make = sparse.csr_matrix if form == "csr" else sparse.csc_matrix
    return [make(name=f"x{k}", dtype=dtype) for k in range(count)]


@formats
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_of_one_matrix(context, rng, form, dtype):
    (x,) = variables(form, 1, dtype)
    outputs = [
        basic.dense_from_sparse(x),
        basic.dense_from_sparse(x.T),
        basic.Cast("float64")(x),
        *(math.sp_sum(x, axis=axis) for axis in (None, 0, 1)),
        basic.remove0(x),
        basic.ensure_sorted_indices(x),
        math.neg(math.sqr(x)),
        x.T,
    ]
    values = [(matrix(rng, *shape, form, dtype),) for shape in ((7, 5), (5, 9), (1, 1), (4, 3))]
    values += [(type(values[0][0])((4, 3), dtype=dtype),), (repeated(values[0][0]),)]
    check([x], outputs, *values, tolerance=1e-5 if dtype == "float32" else 1e-12)


@formats
def test_of_two_matrices(context, rng, form):
    x, y = variables(form)
    outputs = [
        math.add_s_s(x, y),
        math.mul_s_s(x, y),
        math.true_dot(x, y.T),
        math.dot(x.T, y),
        math.structured_dot(x.T, y),
        *(basic.hstack([x, y], format=f) for f in ("csr", "csc")),
        *(basic.vstack([x, y], format=f) for f in ("csr", "csc")),
        sparse_linalg.block_diag(x, y, format=form),
    ]
    outputs += [getattr(math, f"{c}_s_s")(x, y) for c in ("equal", "not_equal", "less_than", "greater_than")]
    outputs += [getattr(math, f"{c}_s_s")(x, y) for c in ("less_equal", "greater_equal")]
    pairs = [[matrix(rng, *s, form, integers=True) for _ in range(2)] for s in ((7, 5), (1, 1), (3, 8))]
    pairs.append([type(pairs[0][0])((4, 3)) for _ in range(2)])
    f = check([x, y], outputs, *pairs, [repeated(v) for v in pairs[0]])
    with pytest.raises(ValueError, match=r"inconsistent|incompatible|mismatch"):
        f(pairs[0][0], pairs[2][0])


@formats
def test_with_dense_operands(context, rng, form):
    (x,) = variables(form, 1)
    d, v, w, e = pt.dmatrix("d"), pt.dvector("v"), pt.dvector("w"), pt.dmatrix("e")
    outputs = [
        math.add_s_d(x, d),
        math.mul_s_d(x, d),
        math.mul_s_v(x, v),
        math.structured_add_s_v(x, v),
        basic.col_scale(x, v),
        basic.row_scale(x, w),
        math.dot(x, e),
        math.dot(e.T, x.T),
        math.structured_dot(x, e),
        math.true_dot(x, e),
        math.sampling_dot(d, d.T @ d, x),
    ]
    outputs += [getattr(math, f"{c}_s_d")(x, d) for c in ("equal", "less_than", "greater_equal")]

    def values(rows, columns):
        shapes = (rows, columns), columns, rows, (columns, 2)
        return [matrix(rng, rows, columns, form), *(np.round(rng.normal(size=s), 1) for s in shapes)]

    f = check([x, d, v, w, e], outputs, values(6, 4), values(3, 8))
    bad = values(6, 4)
    bad[2] = bad[2][1:]
    with pytest.raises(AssertionError):
        opencl([x, v], math.mul_s_v(x, v))(bad[0], bad[2])
    assert f is not None


@formats
def test_indices_and_slices(context, rng, form):
    (x,) = variables(form, 1)
    i, j, k, n = pt.lvector("i"), pt.lvector("j"), pt.lscalar("k"), pt.lscalar("n")
    outputs = [
        basic.get_item_list(x, i),
        basic.get_item_2lists(x, i, j),
        basic.get_item_scalar(x, [k, pt.constant(-1)]),
        x[1, 2],
        x[1:n, ::2],
        x[::-1, 1:],
        x[:n],
        basic.diag(x[:4, :4]) if form == "csc" else x[:4, :4],
    ]
    arguments = [
        (matrix(rng, 6, 5, form), np.array([0, 3, 3, -1]), np.array([1, 0, 4, 2]), *pair) for pair in ((2, 4), (-1, 5))
    ]
    f = check([x, i, j, k, n], outputs, *arguments)
    with pytest.raises(IndexError):
        f(arguments[0][0], np.array([0, 9, 1, 1]), *arguments[0][2:])


@formats
def test_gradients(context, rng, form):
    x, y = variables(form)
    d, v, i = pt.dmatrix("d"), pt.dvector("v"), pt.lvector("i")
    costs = [
        pt.sqr(math.dot(x, d)).sum(),
        math.sp_sum(math.sqr(math.mul_s_v(x, v))),
        math.sp_sum(math.mul_s_s(x, y)),
        pt.sqr(math.add_s_d(x, d.T)).sum(),
        pt.sqr(basic.csm_data(x)).sum(),
        pt.sqr(basic.get_item_2lists(x, i, i)).sum(),
        math.sp_sum(math.sqr(basic.get_item_list(x, i))) if form == "csr" else math.sp_sum(x),
    ]
    outputs = [pytensor.grad(cost, x) for cost in costs]
    outputs += [pytensor.grad(costs[0], d), pytensor.grad(costs[1], v)]
    values = matrix(rng, 6, 4, form), matrix(rng, 6, 4, form), rng.normal(size=(4, 6)), rng.normal(size=4)
    check([x, y, d, v, i], outputs, (*values, np.array([0, 3, 1])))


def test_matrices_from_dense_arrays(context, rng):
    d, i = pt.dmatrix("d"), pt.lvector("i")
    value = np.round(rng.normal(size=(6, 4)))
    outputs = [basic.csr_from_dense(d), basic.csc_from_dense(d), basic.construct_sparse_from_list(d, d[:3], i)]
    check([d, i], outputs, (value, np.array([5, 0, 2])))


def test_a_chain_makes_no_matrix_on_the_host(context, rng):
    x, v = sparse.csr_matrix(name="x", dtype="float64"), pt.dvector("v")
    y = math.sp_sum(math.sqr(math.mul_s_v(x, v)).T, axis=0)
    f = check([x, v], y, (matrix(rng, 6, 4, "csr"), rng.normal(size=4)))
    assert not any(isinstance(node.op, CSM) for node in f.maker.fgraph.apply_nodes)


def test_scipy_sorts_entries_unless_placement_is_device(context, rng):
    x, y = variables("csr")
    with pytensor.config.change_flags(opencl__placement="auto"):
        f = opencl([x, y], [math.add_s_s(x, y), math.mul_s_s(x, y), math.dot(x, y)])
    reasons = [node.reason for node in pytensor_cl.explain(f).host_nodes]
    assert sum("SciPy is faster" in reason for reason in reasons) == 3
    first, second = (matrix(rng, 5, 5, "csr") for _ in range(2))
    np.testing.assert_allclose(f(first, second)[2], (first @ second).toarray())
