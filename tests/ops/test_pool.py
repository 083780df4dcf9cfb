"""Pooling in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import nn
from pytensor_cl.ops.pool import (
    GpuMaxPool,
    GpuMaxPoolGather,
    GpuMaxPoolIndices,
    GpuMaxPoolScatter,
    GpuSumPool,
    GpuSumPoolGrad,
)
from tests.helpers import assert_all_on_device, assert_on_device, check_against_python, host_ops, opencl
from tests.nn.test_pool import batched_case, check_batches

POOLS = {1: nn.pool_1d, 2: nn.pool_2d, 3: nn.pool_3d}
MAX, AVG = (GpuMaxPool, GpuMaxPoolScatter), (GpuSumPool, GpuSumPoolGrad)


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def slope(y, x):
    """The gradient of a sum in which each element of the output has another weight."""
    return pytensor.grad((y * (1 + pt.arange(y.size).reshape(y.shape))).sum(), x)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values_and_gradients(context, rng, dtype):
    x = pt.tensor4("x", dtype=dtype)
    options = {"stride": (2, 1), "pad": ((1, 0), (0, 1)), "ignore_border": False}
    ys = [nn.pool_2d(x, 2, mode=mode) for mode in ("max", "average_inc_pad")]
    ys += [nn.pool_2d(x, (2, 3), mode=mode, **options) for mode in ("max", "average_inc_pad", "average_exc_pad")]
    outputs = [out.astype(dtype) for y in ys for out in (y, slope(y, x))]
    small = rng.integers(-9, 9, (2, 3, 7, 12)).astype(dtype)
    views = (small, small[:, ::-1, 1::2], np.swapaxes(small, 2, 3), small[:0], small[:1, :1, :2, :2])
    check_against_python([x], outputs, (*MAX, *AVG), *((v,) for v in views))


@pytest.mark.parametrize("ndim", [1, 3])
def test_other_numbers_of_dimensions(context, rng, ndim):
    x = pt.tensor("x", shape=(None,) * (ndim + 1), dtype="float32")
    window = (2, 3, 2)[:ndim]
    ys = [POOLS[ndim](x, window, stride=2, pad=1, mode=mode) for mode in ("max", "average_inc_pad")]
    outputs = [out for y in ys for out in (y, slope(y, x), y.shape)]
    shapes = [(3, *(7, 8, 9)[:ndim]), (1, *(1, 1, 1)[:ndim]), (2, *(0, 5, 5)[:ndim])]
    values = [(rng.normal(size=s).astype("float32"),) for s in shapes]
    check_against_python([x], outputs, (*MAX, *AVG), *values)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64"])
def test_integers(context, rng, dtype):
    x = pt.tensor3("x", dtype=dtype)
    value = rng.integers(0, 2 if dtype == "bool" else 99, (2, 5, 41)).astype(dtype)
    if dtype == "int8":
        value[0] = -128
    outputs = [nn.pool_2d(x, (2, 3), stride=1, pad=((1, 1), (1, 1))), nn.pool_2d(x, (1, 2), ignore_border=False)]
    check_against_python([x], outputs, (GpuMaxPool,), (value,), (value[:, :, ::-2],))


def test_second_derivatives(context, rng):
    x, v = pt.tensor3("x", dtype="float64"), pt.tensor3("v", dtype="float64")
    outputs = []
    for y in (nn.pool_2d(x, 2, stride=1, mode=mode) for mode in ("max", "average_exc_pad")):
        gradient = pytensor.grad((y**3).sum(), x)
        outputs += [
            pytensor.grad((gradient * v).sum(), x),
            pytensor.gradient.pushforward(y, [x], [v], use_op_pushforward=True),
        ]
    values = [rng.normal(size=(2, 5, 6)) for _ in range(2)]
    check_against_python([x, v], outputs, (GpuMaxPoolGather, GpuMaxPoolScatter, *AVG), values)


def test_a_training_step_stays_on_the_device(context, rng):
    x = pt.tensor4("x", dtype="float32")
    y = nn.pool_2d(nn.pool_2d(pt.exp(x), 2), 2, mode="average_exc_pad")
    f = opencl([x], pytensor.grad(pt.sqr(y).sum(), x))
    value = rng.normal(size=(2, 3, 8, 8)).astype("float32")
    host = pytensor.function([x], pytensor.grad(pt.sqr(y).sum(), x), mode="FAST_COMPILE")
    np.testing.assert_allclose(f(value), host(value), rtol=1e-5)
    assert_all_on_device(opencl([x], y), GpuMaxPool, GpuSumPool)


def test_ties_and_nan(context):
    x = pt.tensor3("x", dtype="float32")
    y = nn.pool_1d(x, 2, pad=1)
    inf, nan = np.inf, np.nan
    rows = ([-inf, -inf, 3, 3, 3], [1, nan, 3, nan, nan], [nan, nan, -inf, 7, -0.0])
    f = opencl([x], [y, slope(y, x)])
    host = pytensor.function([x], [y, slope(y, x)], mode="FAST_COMPILE")
    assert_on_device(f, *MAX)
    value = np.array([rows], "float32")
    for got, wanted in zip(f(value), host(value), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_errors(context):
    x, dy = pt.tensor3("x", dtype="float32"), pt.tensor3("dy", dtype="float32")
    op = nn.pool_2d(x, (2, 2)).owner.op
    scatter, gather = (op._relative(k) for k in (nn.pool.MaxPoolScatter, nn.pool.MaxPoolGather))
    one = np.ones((1, 4, 4), "float32")
    for z in (scatter(x, dy), gather(x, dy)):
        with pytest.raises(ValueError, match="Shape mismatch"):
            opencl([x, dy], z)(one, np.ones((1, 2, 3), "float32"))
    spread = nn.pool.SumPoolGrad(op.windows, "sum")
    with pytest.raises(ValueError, match="Shape mismatch"):
        opencl([dy], spread(dy, 10, 9))(one)


def test_complex_stays_on_the_host(context):
    x = pt.tensor3("x", dtype="complex64")
    f = opencl([x], nn.pool_2d(x, (1, 2), mode="average_exc_pad"))
    np.testing.assert_allclose(f(np.full((1, 2, 4), 1 + 2j, "complex64")), np.full((1, 2, 2), 1 + 2j, "complex64"))


def test_dilation_indices_and_bins(context, rng):
    x = pt.tensor4("x", dtype="float32")
    options = {"stride": (2, 1), "pad": ((1, 0), (0, 2)), "dilation": (1, 2), "ignore_border": False}
    ys = [nn.pool_2d(x, 2, mode=mode, **options) for mode in ("max", "sum", "average_exc_pad")]
    ys += [nn.adaptive_pool(x, (2, 3), mode) for mode in ("max", "average_exc_pad")]
    ys += [nn.global_pool(x, mode) for mode in ("max", "sum", "average_exc_pad")]
    ys += [nn.adaptive_pool(x, (2, None))]
    places = [nn.pool_2d(x, 2, return_indices=True, **more)[1] for more in ({}, options)]
    outputs = [*places, *(out.astype("float32") for y in ys for out in (y, slope(y, x)))]
    kinds = GpuMaxPoolIndices, *MAX, *AVG
    small = rng.integers(-9, 9, (2, 3, 7, 12)).astype("float32")
    views = (small, small[:, ::-1, 1::2], np.swapaxes(small, 2, 3), small[:0], small[:1, :1, :2, :2])
    check_against_python([x], outputs, kinds, *((v,) for v in views))


def test_second_derivatives_of_bins_and_dilated_windows(context, rng):
    x, v = pt.tensor3("x", dtype="float64"), pt.tensor3("v", dtype="float64")
    outputs = []
    for mode in ("max", "average_exc_pad"):
        for y in (nn.pool_2d(x, 2, stride=1, dilation=(2, 1), mode=mode), nn.adaptive_pool(x, (2, 4), mode)):
            gradient = pytensor.grad((y**3).sum(), x)
            outputs.append(pytensor.grad((gradient * v).sum(), x))
    values = [rng.normal(size=(2, 5, 6)) for _ in range(2)]
    check_against_python([x, v], outputs, (GpuMaxPoolGather, GpuMaxPoolScatter, *AVG), values)


def test_sums_of_integers(context, rng):
    x = pt.tensor3("x", dtype="int8")
    value = rng.integers(90, 128, (2, 5, 41)).astype("int8")
    outputs = [nn.pool_2d(x, (2, 3), mode="sum"), nn.adaptive_pool(x, (2, 3), mode="sum")]
    check_against_python([x], outputs, (GpuSumPool,), (value,), (value[:, :, ::-2],))


def test_batches_stay_on_the_device(context, rng):
    *cases, slopes = batched_case("float32")
    single, *batched = (opencl(*case) for case in cases)
    for f in batched:
        assert not any("Pool" in str(op) or "Blockwise" in str(op) for op in host_ops(f))
    assert_on_device(batched[0], GpuMaxPoolIndices, GpuMaxPoolGather, *MAX, *AVG)
    check_batches(single, *batched, slopes, rng, "float32")
