"""Diagonals in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph

from pytensor_cl.ops.indexing.diagonal import GpuExtractDiag, GpuFillDiagonal, GpuFillDiagonalOffset
from tests.helpers import assert_close, assert_on_device, host_ops, opencl


def check(inputs, outputs, kinds, *arguments):
    f = opencl(inputs, outputs)
    assert_on_device(f, *kinds)
    host = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    for values in arguments:
        for got, wanted in zip(f(*values), host(*values), strict=True):
            assert_close(got, wanted)
    return f


@pytest.fixture
def value(rng):
    return rng.normal(size=(4, 6)).astype("float32")


def test_extract(context, rng):
    x = pt.tensor3("x", dtype="float32")
    e = pt.exp(x)
    outputs = [pt.diagonal(e, offset, a, b) * 2 for offset in (0, 1, -2, 9) for a, b in ((0, 1), (2, 0), (1, 2))]
    outputs += [pt.trace(e), pt.diagonal(e.T[::-1]).sum(0)]
    value = rng.normal(size=(3, 5, 4)).astype("float32")
    check([x], outputs, [GpuExtractDiag], (value,), (value[:1, :1],), (value[:0],), (value[:, ::-2].T,))


def test_gradient_of_extract(context, value):
    x = pt.matrix("x", dtype="float32")
    costs = [pt.sqr(pt.diagonal(pt.exp(x), k)).sum() for k in (0, 2, -1)]
    check([x], [pytensor.grad(cost, x) for cost in costs], [GpuExtractDiag], (value,), (value.T,))


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "float64"])
def test_fill(context, rng, dtype):
    x, k = pt.matrix("x", dtype=dtype), pt.lscalar("k")
    y = pt.eq(x, 1) if dtype == "bool" else x * x
    outputs = [
        pt.fill_diagonal(y, np.dtype(dtype).type(1)),
        pt.fill_diagonal(y, y.max()),
        pt.fill_diagonal_offset(y, y.min(), k),
    ]
    value = rng.integers(0, 3, (5, 8)).astype(dtype)
    arguments = [(value, 0), (value, 2), (value.T, -3), (value[::2, ::-1], -1), (value[:1, :1], 0)]
    check([x, k], outputs, [GpuFillDiagonal, GpuFillDiagonalOffset], *arguments)


def test_fill_leaves_its_input_alone(context, value):
    x = pt.matrix("x", dtype="float32")
    e = pt.exp(x)
    check([x], [e, pt.fill_diagonal(e, 0), e + 1], [GpuFillDiagonal], (value,))


def test_fill_more_dimensions(context, rng):
    x = pt.tensor3("x", dtype="float32")
    f = check([x], [pt.fill_diagonal(pt.exp(x), 3)], [GpuFillDiagonal], (rng.normal(size=(4, 4, 4)).astype("float32"),))
    with pytest.raises(ValueError, match="must be of equal length"):
        f(np.ones((2, 2, 3), "float32"))


def test_gradient_of_fill(context, value):
    x, v = pt.matrix("x", dtype="float32"), pt.scalar("v", dtype="float32")
    cost = pt.sqr(pt.fill_diagonal(pt.exp(x), v)).sum()
    check([x, v], pytensor.grad(cost, [x, v]), [GpuFillDiagonal, GpuExtractDiag], (value, 2))


def test_a_matrix_with_a_given_diagonal(context, rng):
    v = pt.vector("v", dtype="float32")
    outputs = [pt.diag(pt.exp(v), k) + 1 for k in (0, 1, -2)]
    f = opencl([v], outputs)
    value = rng.normal(size=5).astype("float32")
    for got, k in zip(f(value), (0, 1, -2), strict=True):
        assert_close(got, np.diag(np.exp(value), k) + np.float32(1))


def test_diagonal_matrices_of_batches_and_of_gradients(context, rng):
    """PyTensor wraps these in a Blockwise, whose inner graph no rewrite would change."""
    x, v = pt.tensor3("x", dtype="float32"), pt.fvector("v")
    rows = pt.fmatrix("rows")
    logs = pt.log(pt.diagonal(pt.linalg.cholesky(x), axis1=-2, axis2=-1)).sum()
    outputs = [vectorize_graph(pt.diag(v), {v: rows}), pytensor.grad(logs, x)]
    a = rng.normal(size=(3, 5, 5)).astype("float32")
    values = a @ a.transpose(0, 2, 1) + 5 * np.eye(5, dtype="float32"), a[0]
    f = opencl([x, rows], outputs)
    assert not any("AllocDiag" in str(op) for op in host_ops(f))
    wanted = pytensor.function([x, rows], outputs, mode="FAST_COMPILE")(*values)
    for got, want in zip(f(*values), wanted, strict=True):
        assert_close(got, want)
