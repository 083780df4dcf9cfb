"""Products of sparse and dense matrices in compiled functions."""

import numpy as np
import pytensor
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest
from scipy import sparse

from pytensor_cl.ops.sparse import GpuCsrDot, GpuCsrSampledDot
from tests.helpers import assert_close, assert_on_device, check_against_python, opencl

formats = pytest.mark.parametrize("form", ["csr", "csc"])


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def matrix(rng, form, rows=30, columns=20, dtype="float32"):
    value = sparse.random(rows, columns, 0.2, form, random_state=np.random.RandomState(rng.integers(1 << 31)))
    return value.astype(dtype).asformat(form)


def check(inputs, outputs, kinds, *arguments):
    return check_against_python(inputs, outputs, kinds, *arguments)


@formats
def test_dot(context, rng, form):
    s = ps.matrix(form, name="s", dtype="float32")
    y, x, v = pt.fmatrix("y"), pt.fmatrix("x"), pt.fvector("v")
    values = [rng.normal(size=n).astype("float32") for n in ((20, 7), (5, 30), (20,))]
    outputs = [ps.dot(s, y), ps.dot(x, s), ps.dot(s, v), ps.structured_dot(s, pt.exp(y)), ps.dot(s.T, x.T)]
    f = check([s, y, x, v], outputs, (GpuCsrDot,), (matrix(rng, form), *values))
    assert [
        op for op in (n.op for n in f.maker.fgraph.apply_nodes) if type(op).__name__ in ("Dot", "StructuredDot")
    ] == []


@formats
def test_constant_matrix_and_gradient(context, rng, form):
    s = ps.as_sparse_variable(matrix(rng, form))
    w = pt.fmatrix("w")
    cost = pt.sqr(ps.dot(s, w) - 1).sum()
    f = check([w], [cost, pytensor.grad(cost, w)], (GpuCsrDot,), (rng.normal(size=(20, 6)).astype("float32"),))
    names = {type(n.op).__name__ for n in f.maker.fgraph.apply_nodes}
    assert "RowsOfColumns" not in names and "CSMProperties" not in names  # worked out when the function was compiled


@formats
def test_trainable_entries(context, rng, form):
    pattern = matrix(rng, form)
    data, y = pt.fvector("data"), pt.fmatrix("y")
    s = {"csr": ps.CSR, "csc": ps.CSC}[form](data, pattern.indices, pattern.indptr, pattern.shape)
    cost = pt.sqr(ps.structured_dot(s, y)).sum()
    values = rng.normal(size=pattern.nnz).astype("float32"), rng.normal(size=(20, 6)).astype("float32")
    check([data, y], [cost, *pytensor.grad(cost, [data, y])], (GpuCsrDot, GpuCsrSampledDot), values)


@formats
def test_sampling_dot_and_usmm(context, rng, form):
    p = ps.matrix(form, name="p", dtype="float32")
    x, y, z = pt.fmatrix("x"), pt.fmatrix("y"), pt.fmatrix("z")
    pattern = matrix(rng, form)
    values = [rng.normal(size=n).astype("float32") for n in ((30, 9), (20, 9), (30, 9))]
    outputs = [ps.dense_from_sparse(ps.sampling_dot(x, y, p)), ps.usmm(pt.constant(np.float32(2)), p, y, z)]
    check([p, x, y, z], outputs, (GpuCsrDot, GpuCsrSampledDot), (pattern, *values))


def test_mixed_dtypes(context, rng):
    s = ps.csr_matrix(name="s", dtype="float32")
    y = pt.dmatrix("y")
    check([s, y], [ps.dot(s, y)], (GpuCsrDot,), (matrix(rng, "csr"), rng.normal(size=(20, 3))))


def test_shapes_that_do_not_fit(context, rng):
    s, y = ps.csr_matrix(name="s", dtype="float32"), pt.fmatrix("y")
    f = opencl([s, y], ps.dot(s, y))
    with pytest.raises(ValueError, match="dimension mismatch"):
        f(matrix(rng, "csr"), np.ones((3, 3), "float32"))


def test_shared_matrix(context, rng):
    value = matrix(rng, "csr")
    s, y = pytensor.shared(value, name="s"), pt.fmatrix("y")
    f = opencl([y], ps.dot(s, y))
    assert_on_device(f, GpuCsrDot)
    ones = np.ones((20, 2), "float32")
    assert_close(f(ones), value @ ones)
    s.set_value(value * np.float32(2))
    assert_close(f(ones), value @ ones * 2)


def test_what_stays_on_the_host_is_right(context, rng):
    s = ps.csr_matrix(name="s", dtype="float32")
    d = pt.fmatrix("d")
    outputs = [ps.dense_from_sparse(s * d), ps.sp_sum(s, axis=0), ps.dense_from_sparse(ps.true_dot(s, s.T))]
    value, dense = matrix(rng, "csr"), rng.normal(size=(30, 20)).astype("float32")
    got = opencl([s, d], outputs)(value, dense)
    for a, b in zip(got, pytensor.function([s, d], outputs, mode="FAST_COMPILE")(value, dense), strict=True):
        assert_close(a, b)
