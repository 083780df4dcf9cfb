"""Reductions in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.math import ProdWithoutZeros

from pytensor_cl.ops.names import full_name
from pytensor_cl.ops.reduction import GpuCAReduce
from tests.helpers import assert_close, assert_on_device, device_ops, opencl

AXES = (None, 0, (2,), (0, 2), (-1, 1), ())


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def check(x, outputs, *values, rtol=2e-5):
    f = opencl([x], outputs)
    assert_on_device(f, GpuCAReduce)
    host = pytensor.function([x], outputs, mode="FAST_COMPILE")
    for value in values:
        for got, wanted in zip(f(value), host(value), strict=True):
            assert_close(got, wanted, rtol)
    return f


def cube(dtype):
    return pt.tensor3("x", dtype=dtype)


@pytest.mark.parametrize("reduce", [pt.sum, pt.max, pt.prod], ids=lambda f: f.__name__)
def test_floats_along_all_axes(context, rng, reduce):
    x = cube("float32")
    value = rng.normal(size=(4, 5, 6)).astype("float32")
    check(x, [reduce(x, axis=a) for a in AXES], value, value[::-1, ::2], value.T, np.asfortranarray(value))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float64"])
def test_other_dtypes(context, rng, dtype):
    x = cube(dtype)
    value = (rng.normal(size=(4, 5, 6)) * 40).astype(dtype)
    reductions = [pt.sum, pt.min, pt.any, pt.all] if dtype != "float64" else [pt.sum, pt.min, pt.mean, pt.var]
    check(x, [r(x, axis=a) for r in reductions for a in (None, (0, 2))], value, value[:, ::-1])


def test_keepdims_and_composed_reductions(context, rng):
    x = pt.matrix("x", dtype="float32")
    outputs = [x.mean(1, keepdims=True), x.var(0), x.std(), x.max(1) - x.min(1), x.norm(2)]
    outputs += [pt.logsumexp(x, axis=1), (x > 0).sum(), (x - x.mean(0, keepdims=True)) / x.std(0, keepdims=True)]
    check(x, outputs, rng.normal(size=(9, 5)).astype("float32"))


def test_explicit_dtypes(context, rng):
    x = pt.matrix("x", dtype="int8")
    outputs = [
        x.sum(0, dtype="int32"),
        x.sum(dtype="float64"),
        x.prod(1, dtype="int64"),
        x.sum(1, acc_dtype="int32", dtype="int8"),
    ]
    outputs += [pt.cast(x, "float32").sum(0, acc_dtype="float32"), pt.cast(x, "float32").sum(dtype="float64")]
    check(x, outputs, rng.integers(-5, 5, (7, 3)).astype("int8"))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1), (1, 70_000), (70_000, 1), (3, 4099)])
def test_unusual_shapes(context, rng, shape):
    x = pt.matrix("x", dtype="float32")
    outputs = [
        x.sum(),
        x.sum(0),
        x.sum(1),
        pt.exp(x).prod(0) if 70_000 not in shape else x.mean(0),
        pt.all(x > 9, axis=1),
    ]
    with np.errstate(all="ignore"):
        check(x, outputs, rng.normal(size=shape).astype("float32") * np.float32(0.01), rtol=1e-4)


def test_sums_are_accurate(context, rng):
    x = pt.vector("x", dtype="float32")
    value = np.full(3_000_001, 0.1, "float32")
    total, mean = opencl([x], [x.sum(), x.mean()])(value)
    np.testing.assert_allclose(total, value.sum(dtype="float64"), rtol=1e-7)
    np.testing.assert_allclose(mean, value.mean(dtype="float64"), rtol=1e-7)


def test_nan_wins(context):
    x = pt.matrix("x", dtype="float32")
    value = np.array([[1, np.nan, 3], [4, 5, -np.inf]], "float32")
    maximum, minimum, total = opencl([x], [x.max(1), x.min(1), x.sum(1)])(value)
    np.testing.assert_array_equal(maximum, [np.nan, 5])
    np.testing.assert_array_equal(minimum, [np.nan, -np.inf])
    np.testing.assert_array_equal(total, [np.nan, -np.inf])


def test_gradients(context, rng):
    x = pt.matrix("x", dtype="float32")
    cost = x.sum(0).prod() + x.max(1).sum() + (x.mean(1) ** 2).sum()
    check(x, [pt.grad(cost, x)], rng.normal(size=(3, 4)).astype("float32"), rtol=1e-4)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float32"])
def test_product_without_zeros(context, rng, dtype):
    x = pt.matrix("x", dtype=dtype)
    values = [rng.integers(0, 3, shape).astype(dtype) for shape in ((3, 40), (0, 4), (3, 0), (1, 1))]
    check(x, [ProdWithoutZeros(axis=axis)(x) for axis in (None, 0, 1)], *values, np.zeros((2, 20), dtype))


def test_gradient_of_product_of_zeros(context, rng):
    x = pt.matrix("x", dtype="float32")
    value = rng.integers(0, 3, (6, 5)).astype("float32")
    f = check(x, [pytensor.grad(pt.prod(x, axis=1).sum(), x)], value, np.zeros_like(value))
    assert any("without" in full_name(op).lower() for op in device_ops(f))  # alone or fused
