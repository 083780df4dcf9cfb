"""Filled arrays in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.alloc import GpuAlloc, GpuAllocEmpty
from pytensor_cl.ops.elemwise import GpuElemwise
from tests.helpers import assert_close, assert_on_device, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def test_alloc_broadcasts_without_a_kernel(context, rng):
    x, v, n = pt.matrix("x", dtype="float32"), pt.vector("v", dtype="float32"), pt.scalar("n", dtype="int64")
    row = pt.tensor("row", dtype="float32", shape=(1, None))
    outputs = [pt.alloc(pt.exp(v), n, v.shape[0]), pt.alloc(pt.exp(row), n, 5), pt.alloc(x.sum(), n, 2) * 2]
    outputs += [pt.alloc(pt.tanh(x), n, *x.shape).sum(0), pt.alloc(np.float32(3), n, n) + pt.alloc(pt.exp(v)[0], n, 1)]
    f = opencl([x, v, row, n], outputs)
    assert_on_device(f, GpuAlloc)
    host = pytensor.function([x, v, row, n], outputs, mode="FAST_COMPILE")
    for count in (3, 1, 0):
        values = [rng.normal(size=s).astype("float32") for s in ((3, 4), (5,), (1, 5))]
        for got, wanted in zip(f(*values, count), host(*values, count), strict=True):
            assert_close(got, wanted)
            assert got.flags.writeable


def test_filled_arrays_are_values_of_their_own(context):
    v = pt.vector("v", dtype="float32")
    f = opencl([v], pt.alloc(pt.exp(v), 3, v.shape[0]))
    filled = f(np.zeros(4, "float32"))
    filled[0] = 5
    assert_close(filled[1], np.ones(4, "float32"))
    again = opencl([v], pt.alloc(pt.exp(v), 3, v.shape[0]).transfer(context.name))(np.zeros(4, "float32"))
    assert_close(again, np.ones((3, 4), "float32"))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float32", "float64"])
def test_zeros_ones_and_full_of_every_dtype(context, dtype):
    x = pt.matrix("x", dtype="float32")
    outputs = [pt.zeros_like(x, dtype=dtype), pt.ones((x.shape[1], 2), dtype=dtype), pt.full_like(x, 1, dtype=dtype)]
    f = opencl([x], [*outputs, pt.exp(x) + pt.ones_like(x)])
    assert_on_device(f, GpuElemwise)
    zeros, ones, full, _ = f(np.zeros((3, 4), "float32"))
    assert_close(zeros, np.zeros((3, 4), dtype))
    assert_close(ones, np.ones((4, 2), dtype))
    assert_close(full, np.ones((3, 4), dtype))


def test_empty_arrays(context):
    n = pt.scalar("n", dtype="int64")
    f = opencl([n], (pt.basic.AllocEmpty("float32")(n, 3).transfer(context.name)))
    assert_on_device(f, GpuAllocEmpty)
    for count in (4, 0):
        assert f(count).shape == (count, 3)


def test_gradient_of_alloc(context, rng):
    v = pt.vector("v", dtype="float32")
    cost = (pt.alloc(pt.exp(v), 3, v.shape[0]) * np.arange(3, dtype="float32")[:, None]).sum()
    value = rng.normal(size=4).astype("float32")
    assert_close(opencl([v], pt.grad(cost, v))(value), 3 * np.exp(value))
