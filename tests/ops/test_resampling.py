"""Sums of weighted elements along an axis in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.nn.resampling import WeightedTake
from pytensor_cl.ops.resampling import GpuWeightedTake
from tests.helpers import assert_all_on_device, check_against_python, host_ops, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_tables_of_the_call(context, rng, dtype):
    x, index = pt.tensor3("x", dtype=dtype), pt.imatrix("index")
    weight = pt.matrix("weight", dtype="float32" if dtype == "float16" else dtype)
    outputs = [WeightedTake(axis=axis, has_gaps=True)(x, index, weight) for axis in (-1, -2)]
    value = rng.integers(-3, 3, (2, 4, 5)).astype(dtype)
    tables = rng.integers(-1, 4, (3, 6)).astype("int32"), rng.integers(-3, 3, (3, 6)).astype(weight.type.dtype)
    f = check_against_python([x, index, weight], outputs, (GpuWeightedTake,), (value, *tables))
    assert_all_on_device(f, GpuWeightedTake)


@pytest.mark.parametrize("dtype", ["bool", "complex64"])
def test_dtypes_that_are_only_moved(context, rng, dtype):
    x, index = pt.matrix("x", dtype=dtype), pt.constant(np.array([[2, -1, 0]], "int32"))
    value = rng.integers(0, 2, (2, 3)).astype(dtype)
    f = check_against_python(
        [x], [WeightedTake(axis=-1, has_gaps=True)(x, index)], (GpuWeightedTake,), (value,), (value[:0],)
    )
    assert_all_on_device(f, GpuWeightedTake)


def test_sums_without_a_kernel(context):
    x, index = pt.zmatrix("x"), pt.constant(np.array([[2, -1], [0, 1]], "int32"))
    f = opencl([x], WeightedTake(axis=-1, has_gaps=True)(x, index))
    value = np.arange(6).reshape(2, 3) * (1 + 1j)
    np.testing.assert_allclose(f(value), [value[0, [2, 1]] + [value[0, 0], 0], value[1, [2, 1]] + [value[1, 0], 0]])
    assert not any(isinstance(op, WeightedTake) for op in host_ops(f))
