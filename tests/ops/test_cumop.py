"""Cumulative sums and products in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.cumop import GpuCumOp
from tests.helpers import assert_on_device, check_against_python, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def check(inputs, outputs, *arguments):
    return check_against_python(inputs, outputs, (GpuCumOp,), *arguments)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint64"])
def test_axes(context, rng, dtype):
    x = pt.tensor3("x", dtype=dtype)
    value = rng.integers(0, 4, (4, 5, 6)).astype(dtype)
    outputs = [f(x, axis=a) for f in (pt.cumsum, pt.cumprod) for a in (None, 0, 1, -1)]
    check([x], outputs, (value,), (value[::-1, ::2],), (value.T,), (value[:0],), (value[:, :1, :1],))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32"])
def test_the_dtype_is_that_of_the_graph(context, rng, dtype):
    x = pt.matrix("x", dtype=dtype)
    value = rng.integers(0, 9, (7, 90)).astype(dtype)
    f = opencl([x], [pt.cumsum(x, axis=1), pt.cumprod(x, axis=0)])
    assert_on_device(f, GpuCumOp)
    for got, wanted in zip(f(value), (np.cumsum(value, 1, dtype), np.cumprod(value, 0, dtype)), strict=True):
        np.testing.assert_array_equal(got, wanted, strict=True)


def test_gradients_and_neighbours(context, rng):
    x = pt.matrix("x", dtype="float32")
    value = rng.uniform(0.5, 1.5, (6, 40)).astype("float32")
    costs = [pt.sqr(pt.cumsum(pt.exp(x), axis=1)).sum(), pt.log(pt.cumprod(x, axis=0)).sum(), pt.cumsum(x).mean()]
    check([x], [pytensor.grad(cost, x) for cost in costs] + [pt.cumsum(x * 2, axis=0)[-1] + 1], (value,), (value.T,))


def test_batched(context, rng):
    x = pt.tensor3("x", dtype="float32")
    y = pt.vectorize(lambda row: pt.cumsum(row), "(n)->(n)")(x)
    check([x], [y], (rng.normal(size=(3, 4, 9)).astype("float32"),))
