"""Repetition and tiling in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.repeat import GpuRepeat
from tests.helpers import assert_all_on_device, check_against_python, host_ops, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int64", "complex64"])
def test_numbers_of_each_element(context, rng, dtype):
    x, i = pt.matrix("x", dtype=dtype), pt.lvector("i")
    value, numbers = rng.integers(0, 2, (6, 6)).astype(dtype), rng.integers(0, 4, 6)
    f = check_against_python(
        [x, i],
        [pt.repeat(x, i, axis=0), pt.repeat(x, i, axis=-1)],
        (GpuRepeat,),
        (value, numbers),
        (value.T, numbers * 0),
        (value[:0, :0], numbers[:0]),
    )
    assert_all_on_device(f)


def test_flat_and_symbolic_and_one_number(context, rng):
    x, n, i = pt.matrix("x", dtype="float32"), pt.lscalar("n"), pt.lvector("i")
    value = rng.normal(size=(3, 4)).astype("float32")
    outputs = [pt.repeat(x, i), pt.repeat(x, n), pt.repeat(x, n, axis=1), pt.repeat(x, 2, axis=0)]
    check_against_python([x, n, i], outputs, (GpuRepeat,), (value, 3, np.arange(12)), (value.T, 0, np.arange(12) % 2))


def test_numbers_of_other_dtypes_and_of_the_device(context, rng):
    x, i = pt.vector("x", dtype="float32"), pt.vector("i", dtype="int32")
    outputs = [pt.repeat(pt.exp(x), i * 2), pt.repeat(x, pt.switch(x > 0, 1, 3).astype("int32"))]
    value = rng.normal(size=9).astype("float32")
    check_against_python([x, i], outputs, (GpuRepeat,), (value, np.arange(9, dtype="int32")))


def test_gradient(context, rng):
    x, i = pt.matrix("x", dtype="float32"), pt.lvector("i")
    cost = pt.sqr(pt.repeat(x, i, axis=1)).sum()
    value = rng.normal(size=(3, 5)).astype("float32")
    check_against_python([x, i], [pytensor.grad(cost, x)], (GpuRepeat,), (value, np.array([0, 3, 1, 2, 0])))


def test_what_numpy_refuses(context):
    x, i = pt.vector("x", dtype="float32"), pt.lvector("i")
    f = opencl([x, i], pt.repeat(x, i))
    value = np.zeros(3, "float32")
    with pytest.raises(ValueError, match="repeats may not contain negative values"):
        f(value, [1, -1, 1])
    with pytest.raises(ValueError, match="could not be broadcast together"):
        f(value, [1, 1])
    assert f(value, [1, 0, 1]).shape == (2,)


def test_tile(context, rng):
    x, n = pt.matrix("x", dtype="float32"), pt.lscalar("n")
    value = rng.normal(size=(3, 4)).astype("float32")
    f = opencl([x, n], [pt.tile(x, (2, 3)), pt.tile(x, (n, 1, 2)), pt.tile(x, n)])
    assert not [op for op in host_ops(f) if type(op).__name__ in ("Alloc", "Reshape")]
    for got, reps in zip(f(value, 2), ((2, 3), (2, 1, 2), 2), strict=True):
        np.testing.assert_array_equal(got, np.tile(value, reps))
