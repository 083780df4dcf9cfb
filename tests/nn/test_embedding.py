"""Affine maps and embeddings, on the host and on the device."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad

from pytensor_cl import nn
from pytensor_cl.ops.epilogue import GpuEpilogue
from pytensor_cl.ops.gemm import GpuDot22
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedIncSubtensor, GpuAdvancedSubtensor
from tests.helpers import check_against_python, device_ops, opencl


@pytest.fixture(autouse=True)
def without_numba():
    """What `verify_grad` compiles by itself would take seconds each time."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", opencl__placement="device", on_opt_error="raise"):
        yield


def test_linear(rng):
    w, b = rng.normal(size=(3, 4)), rng.normal(size=3)
    for shape in ((4,), (5, 4), (2, 5, 4), (2, 0, 4), (2, 3, 2, 4)):
        x = rng.normal(size=shape)
        np.testing.assert_allclose(nn.linear(x, w, b).eval(), x @ w.T + b)
        np.testing.assert_allclose(nn.linear(x, w).eval(), x @ w.T)
    verify_grad(nn.linear, [rng.normal(size=(2, 3, 4)), w, b], rng=rng)


def test_linear_is_one_kernel(context, rng):
    """The bias and the activation are part of the product's kernel, with any number of leading dimensions."""
    w, b = pt.fmatrix("w"), pt.fvector("b")
    arrays = [rng.normal(size=s).astype("float32") for s in ((3, 4), (3,))]
    for x, shape in ((pt.ftensor3("x"), (2, 5, 4)), (pt.fmatrix("x"), (6, 4))):
        for bias in (b, None):
            outputs = nn.gelu(nn.linear(x, w, bias))
            f = check_against_python(
                [x, w, b], [outputs, b], (GpuEpilogue,), (rng.normal(size=shape).astype("float32"), *arrays)
            )
            (found,) = (op for op in device_ops(f) if op.is_compute)
            assert isinstance(found, GpuEpilogue) and isinstance(found.producer, GpuDot22)


def test_bad_linear():
    x, w = pt.tensor("x", shape=(None, 4), dtype="float64"), pt.tensor("w", shape=(4, 3), dtype="float64")
    for call, error, message in (
        (lambda: nn.linear(x, w), ValueError, "input has 4 features and weight takes 3"),
        (lambda: nn.linear(x, w.T, np.ones(4)), ValueError, r"bias is \(outputs,\)"),
        (lambda: nn.linear(x, pt.vector("v")), ValueError, "weight has 1 dimensions"),
        (lambda: nn.linear(pt.lmatrix("i"), w), TypeError, "input must be floats"),
        (lambda: nn.linear(pt.dscalar("s"), w), ValueError, "input is a number"),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("padding", [None, 0, -2])
def test_embedding(context, rng, padding):
    tokens, table = pt.lmatrix("tokens"), pt.fmatrix("table")
    rows = nn.embedding(tokens, table, padding)
    factors = pt.ftensor3("factors")
    slope = pytensor.grad((rows * factors).sum(), table)
    values = (
        rng.integers(-5, 5, (30, 7)),
        rng.normal(size=(5, 6)).astype("float32"),
        rng.normal(size=(30, 7, 6)).astype("float32"),
    )
    kinds = GpuAdvancedSubtensor, GpuAdvancedIncSubtensor
    f = check_against_python([tokens, table, factors], [rows, slope], kinds, values)
    found, gradient = f(*values)
    np.testing.assert_array_equal(found, values[1][values[0]])
    wanted = np.zeros((5, 6))
    np.add.at(wanted, values[0], values[2])
    if padding is not None:
        wanted[padding] = 0
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)
    again = f(*values)[1]
    np.testing.assert_array_equal(gradient, again)  # the order of the sum is fixed
    if padding is not None:
        values[2][values[0] % 5 == padding % 5] = np.nan
        np.testing.assert_allclose(f(*values)[1], wanted, rtol=1e-4, atol=1e-5)


def test_gradients_of_an_embedding(rng):
    table, tokens = rng.normal(size=(4, 3)), np.array([[1, 3, 1], [0, 2, -1]])
    verify_grad(lambda t: nn.embedding(tokens, t), [table], rng=rng)
    verify_grad(lambda t: pytensor.grad(pt.sqr(nn.embedding(tokens, t, 1)).sum(), t), [table], rng=rng)


@pytest.mark.parametrize("padding", [None, 1])
def test_no_such_row(context, padding):
    tokens, table = pt.lvector("tokens"), pt.fmatrix("table")
    outputs = nn.embedding(tokens, table, padding)
    for f in (opencl([tokens, table], outputs), pytensor.function([tokens, table], outputs)):
        for index in (3, -4):
            with pytest.raises(IndexError):
                f(np.array([0, index]), np.ones((3, 2), "float32"))


def test_bad_embedding():
    tokens, table = pt.lvector("tokens"), pt.tensor("table", shape=(3, 2), dtype="float32")
    for call, error, message in (
        (lambda: nn.embedding(table, table), TypeError, "input must be integers, not float32"),
        (lambda: nn.embedding(tokens, pt.vector("v")), ValueError, "weight has 1 dimensions"),
        (lambda: nn.embedding(tokens, table, 3), ValueError, "padding_idx 3 is none of the 3 rows"),
        (lambda: nn.embedding(tokens, table, 1.0), TypeError, "padding_idx must be an integer or None"),
    ):
        with pytest.raises(error, match=message):
            call()
