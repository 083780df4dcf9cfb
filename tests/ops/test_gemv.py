"""Products of a matrix and a vector in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.gemv import GpuGemv
from pytensor_cl.ops.gemv_pair import GpuGemvPair
from tests.helpers import assert_close, assert_on_device, opencl


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_forms(context, rng, dtype):
    a, x, y = pt.matrix("a", dtype=dtype), pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype)
    s = pt.scalar("s", dtype=dtype)
    outputs = [
        a @ x,
        y + a @ x,
        0.5 * y - s * (a @ x),
        y @ a,
        x - 2 * (y @ a),
        a[::-1, ::2] @ x[::2],
        x @ x,
        pt.outer(x, y),
        pt.dot(a.T, y),
    ]
    f = opencl([a, x, y, s], outputs)
    assert_on_device(f, GpuGemv)
    host = pytensor.function([a, x, y, s], outputs, mode="FAST_COMPILE")
    for shape in ((7, 5), (1, 1), (1, 600), (600, 1), (0, 4), (4, 0), (65, 257)):
        value, right, left = (rng.normal(size=n).astype(dtype) for n in (shape, shape[1], shape[0]))
        for matrix in (value, np.asfortranarray(value), value[::-1]):
            results = f(matrix, right[::-1], left, 0.25)
            for got, wanted in zip(results, host(matrix, right[::-1], left, 0.25), strict=True):
                assert_close(got, wanted, 1e-4 if dtype == "float32" else 1e-11)


def test_vectors_that_are_not_read_where_beta_is_zero(context):
    a, x = pt.matrix("a", dtype="float32"), pt.vector("x", dtype="float32")
    f = opencl([a, x], a @ x)
    for _ in range(3):  # memory of the pool that held NaN
        context.from_host(np.full(3, np.nan, "float32"))
        assert_close(f(np.ones((3, 4), "float32"), np.ones(4, "float32")), np.full(3, 4, "float32"))


def test_integers_and_batches_of_vectors(context, rng):
    a, x = pt.matrix("a", dtype="int32"), pt.vector("x", dtype="int32")
    t, v = pt.tensor3("t", dtype="float32"), pt.matrix("v", dtype="float32")
    outputs = [a @ x, x @ a.T, pt.matmul(t, v[0]), pt.vecdot(v, v), pt.matvec(t, v)]
    values = [rng.integers(-9, 9, (3, 4)).astype("int32"), rng.integers(-9, 9, 4).astype("int32")]
    values += [rng.normal(size=s).astype("float32") for s in ((2, 5, 3), (2, 3))]
    f = opencl([a, x, t, v], outputs)
    expected = pytensor.function([a, x, t, v], outputs, mode="FAST_COMPILE")(*values)
    for got, wanted in zip(f(*values), expected, strict=True):
        assert_close(got, wanted, 1e-4)


def test_gradients_and_updates(context, rng):
    w = pytensor.shared(rng.normal(size=5).astype("float32"))
    x, y = pt.matrix("x", dtype="float32"), pt.vector("y", dtype="float32")
    cost = ((x @ w - y) ** 2).mean()
    f = opencl([x, y], cost, updates={w: w - np.float32(0.1) * pt.grad(cost, w)})
    assert_on_device(f, GpuGemvPair)
    data, target = rng.normal(size=(20, 5)).astype("float32"), rng.normal(size=20).astype("float32")
    before = w.get_value()
    residual = data @ before - target
    assert_close(f(data, target), (residual**2).mean(), 1e-4)
    assert_close(w.get_value(), before - np.float32(0.1) * 2 / 20 * (data.T @ residual), 1e-4)
