"""Products of matrices in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemm import GpuBatchedDot, GpuDot, GpuDot22, GpuDot22Scalar, GpuGemm, GpuMatmul
from tests.helpers import assert_all_on_device, assert_close, assert_on_device, device_ops, opencl

RTOL = {"float32": 1e-4, "float64": 1e-11}


def check(inputs, outputs, kinds, *arguments, rtol=1e-4):
    f = opencl(inputs, outputs)
    assert_on_device(f, *kinds)
    host = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    for values in arguments:
        for got, wanted in zip(f(*values), host(*values), strict=True):
            assert_close(got, wanted, rtol)
    return f


def strided(value):
    """The same matrices, stored in other ways."""
    yield value
    yield np.asfortranarray(value)
    yield np.repeat(np.repeat(value, 2, 0), 3, 1)[::2, ::3]
    yield value[::-1, ::-1].copy()[::-1, ::-1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dot_gemm_and_scalar_factors(context, rng, dtype):
    a, b, c = (pt.matrix(n, dtype=dtype) for n in "abc")
    s = pt.scalar("s", dtype=dtype)
    products = [a @ b, a[:, ::-1] @ b[::-1], pt.exp(a @ b)]
    gemms = [0.5 * c - s * (a @ b), c.T + b.T @ a.T]
    values = [rng.normal(size=shape).astype(dtype) for shape in ((7, 5), (5, 9), (7, 9))]
    arguments = [(x, y, z, 0.25) for x, y, z in zip(*map(strided, values), strict=True)]
    assert_all_on_device(check([a, b], products, [GpuDot22], *(v[:2] for v in arguments), rtol=RTOL[dtype]))
    assert_on_device(check([a, b, c, s], gemms, [GpuGemm], *arguments, rtol=RTOL[dtype]))


def test_scaled_products(context, rng):
    a, s = pt.matrix("a", dtype="float32"), pt.scalar("s", dtype="float32")
    check([a, s], [s * pt.dot(a, a.T)], [GpuDot22Scalar], (rng.normal(size=(4, 3)).astype("float32"), 3))


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 1), (1, 1)),
        ((1, 7), (7, 1)),
        ((7, 1), (1, 7)),
        ((0, 3), (3, 4)),
        ((3, 0), (0, 4)),
        ((3, 4), (4, 0)),
        ((70, 33), (33, 129)),
    ],
)
def test_unusual_shapes(context, rng, shapes):
    a, b, c = (pt.matrix(n, dtype="float32") for n in "abc")
    f = opencl([a, b, c], [a @ b, 0.5 * (a @ b) + 2 * c, pt.exp(a @ b)])
    x, y = (rng.normal(size=s).astype("float32") for s in shapes)
    z = rng.normal(size=(x.shape[0], y.shape[1])).astype("float32")
    for got, wanted in zip(f(x, y, z), (x @ y, 0.5 * (x @ y) + 2 * z, np.exp(x @ y)), strict=True):
        assert_close(got, wanted.astype("float32"), 1e-4)


@pytest.mark.parametrize(
    "dtypes",
    [
        ("int32", "int32"),
        ("int8", "int8"),
        ("int64", "int32"),
        ("int8", "float32"),
        ("float32", "float64"),
        ("uint8", "int16"),
    ],
    ids=str,
)
def test_integers_and_mixed_dtypes(context, rng, dtypes):
    a, b = (pt.matrix(n, dtype=d) for n, d in zip("ab", dtypes, strict=True))
    values = [rng.integers(0, 5, s).astype(d) for s, d in zip(((3, 4), (4, 5)), dtypes, strict=True)]
    f = check([a, b], [pt.dot(a, b)], [], values)
    assert_on_device(f, GpuDot)


def test_products_of_bools_are_right(context, rng):
    """The product says whether any pair is true: more pairs than an int8 can count, too."""
    a, b, v = pt.matrix("a", dtype="bool"), pt.matrix("b", dtype="bool"), pt.vector("v", dtype="bool")
    c = pt.tensor3("c", dtype="bool")
    outputs = [pt.dot(a, b), pt.dot(a, v), pt.dot(v, b), pt.dot(v, v), pt.matmul(c, b)]
    values = [rng.random(s) < 0.3 for s in ((3, 4), (4, 5), 4, (2, 3, 4))]
    f = check([a, b, v, c], outputs, [], values, [np.ones(s, bool) for s in ((1, 256), (256, 2), 256, (1, 1, 256))])
    assert_all_on_device(f)


def test_the_addend_is_not_overwritten(context, rng):
    c = pytensor.shared(rng.normal(size=(3, 3)).astype("float32"))
    a = pt.matrix("a", dtype="float32")
    value, before = rng.normal(size=(3, 3)).astype("float32"), c.get_value()
    f = opencl([a], [c + a @ a, c - 2 * (a @ a)], updates={c: 0.5 * c + a @ a})
    plus, minus = f(value)
    assert_close(plus, before + value @ value, 1e-4)
    assert_close(minus, before - 2 * (value @ value), 1e-4)
    assert_close(c.get_value(), 0.5 * before + value @ value, 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_batches(context, rng, dtype):
    a, b = (pt.tensor3(n, dtype=dtype) for n in "ab")
    m, q = pt.matrix("m", dtype=dtype), pt.tensor4("q", dtype=dtype)
    outputs = [
        pt.matmul(a, b),
        pt.matmul(a, m),
        pt.matmul(m, b.transpose(0, 2, 1)),
        pt.matmul(q, m),
        pt.matmul(a[::-1], b[:, :, ::-1]),
    ]
    shapes = ((3, 4, 5), (3, 5, 6), (5, 6), (2, 3, 4, 5))
    values = [(rng.normal(size=s) * 5).astype(dtype) for s in shapes]
    f = check([a, b, m, q], outputs, [], values, [v[:0] if v.ndim > 2 else v for v in values], rtol=RTOL.get(dtype, 0))
    assert any(isinstance(op, GpuBatchedDot | GpuMatmul) for op in device_ops(f))


def test_broadcast_batches(context, rng):
    a, b = (
        pt.tensor("a", dtype="float32", shape=(1, None, None, None)),
        pt.tensor("b", dtype="float32", shape=(None, 1, None, None)),
    )
    values = [rng.normal(size=s).astype("float32") for s in ((1, 3, 4, 5), (2, 1, 5, 6))]
    f = check([a, b], [pt.matmul(a, b)], [], values)
    assert any(isinstance(op, GpuMatmul | GpuBatchedDot | GpuDot) for op in device_ops(f))


def test_gradients(context, rng):
    x, w, t = pt.matrix("x", dtype="float32"), pt.matrix("w", dtype="float32"), pt.tensor3("t", dtype="float32")
    cost = (pt.tanh(x @ w) ** 2).sum() + pt.exp(pt.matmul(t, w) * 0.1).sum()
    values = [rng.normal(size=s).astype("float32") for s in ((4, 5), (5, 3), (2, 3, 5))]
    check([x, w, t], pt.grad(cost, [x, w, t]), [GpuElemwise], values, rtol=1e-3)


def test_batches_of_nothing(context):
    x, y = pt.tensor4("x", dtype="float32"), pt.tensor3("y", dtype="float32")
    f = pytensor.function([x, y], pt.matmul(x, y[None]), mode="OPENCL")
    for a, b in (((2, 3, 4, 0), (3, 0, 5)), ((2, 0, 2, 4), (0, 4, 5))):
        first, second = np.ones(a, "float32"), np.ones(b, "float32")
        np.testing.assert_array_equal(f(first, second), first @ second[None])


def test_different_numbers_of_matrices_are_a_value_error(context):
    a, b = pt.tensor3("a", dtype="float32"), pt.tensor3("b", dtype="float32")
    f = pytensor.function([a, b], pt.matmul(a, b), mode="OPENCL")
    with pytest.raises(ValueError, match="batch dimensions"):
        f(np.ones((2, 3, 4), "float32"), np.ones((3, 4, 5), "float32"))
