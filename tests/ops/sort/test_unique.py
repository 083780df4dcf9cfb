"""Unique values in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.extra_ops import unique

from pytensor_cl.ops.sort import GpuUnique
from tests.helpers import assert_on_device, check_against_python, host_ops, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def check(inputs, outputs, *arguments):
    return check_against_python(inputs, outputs, (GpuUnique,), *arguments)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64"])
def test_outputs(context, rng, dtype):
    x = pt.matrix("x", dtype=dtype)
    value = rng.integers(0, 3, (20, 2)).astype(dtype)
    outputs = [a for axis in (None, 0, 1) for a in unique(x, True, True, True, axis)] + [unique(x)]
    check([x], outputs, (value,), (value.T,), (value[:0],), (value[::-3, ::-1],))


def test_nan_is_one_value(context):
    x = pt.vector("x", dtype="float32")
    f = opencl([x], [*unique(x, return_counts=True), unique(x)])
    assert_on_device(f, GpuUnique)
    values, counts, same = f(np.array([np.nan, 1, -np.nan, 1, np.inf], "float32"))
    np.testing.assert_array_equal(values, [1, np.inf, np.nan])
    np.testing.assert_array_equal(counts, [2, 1, 2])
    np.testing.assert_array_equal(same, values)


def test_neighbours_and_length(context, rng):
    x = pt.vector("x", dtype="int32")
    values, inverse = unique(x * 2, return_inverse=True)
    outputs = [pt.sqr(values), values.shape[0], values[inverse] - 2 * x, unique(x, axis=0).sum()]
    check([x], outputs, (rng.integers(0, 9, 50).astype("int32"),), (np.arange(3, dtype="int32"),))


def test_complex_stays_on_the_host(context):
    x = pt.vector("x", dtype="complex64")
    f = opencl([x], unique(x))
    assert any("Unique" in str(op) for op in host_ops(f))


def test_length_changes_between_calls(context):
    x = pt.vector("x", dtype="float32")
    f = opencl([x], unique(x) + 1)
    assert_on_device(f, GpuUnique)
    for value in ([1, 1, 1], [3, 1, 2, 2], []):
        np.testing.assert_array_equal(f(np.array(value, "float32")), np.unique(value) + 1)
