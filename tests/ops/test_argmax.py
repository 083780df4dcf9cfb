"""Argmax and argmin in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.argmax import GpuArgmax
from tests.helpers import check_against_python

AXES = (None, 0, (2,), (0, 2), (-1, 1))


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def check(inputs, outputs, *arguments):
    return check_against_python(inputs, outputs, (GpuArgmax,), *arguments)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool", "int8", "uint16", "int64"])
def test_axes(context, rng, dtype):
    x = pt.tensor3("x", dtype=dtype)
    value = rng.integers(0, 3, (4, 5, 6)).astype(dtype)
    outputs = [f(x, axis=a) for f in (pt.argmax, pt.argmin) for a in AXES]
    check([x], outputs, (value,), (value[::-1, ::2],), (value.T,), (value[:1, :1, :1],))


def test_fused_neighbours_keepdims_and_nan(context, rng):
    x = pt.matrix("x", dtype="float32")
    value = rng.normal(size=(40, 70)).astype("float32")
    holes = np.where(rng.random(value.shape) < 0.01, np.float32(np.nan), value)
    outputs = [pt.argmax(pt.exp(x) - x, axis=0) + 1, pt.argmin(x, axis=1, keepdims=True), pt.argmax(x) * 2]
    check([x], outputs, (value,), (holes,))


def test_of_nothing(context):
    x = pt.matrix("x", dtype="float32")
    f = check([x], [pt.argmax(x, axis=1)], (np.ones((0, 3), "float32"),))
    with pytest.raises(ValueError, match="attempt to get argmax of an empty sequence"):
        f(np.ones((3, 0), "float32"))


def test_batched(context, rng):
    x = pt.tensor3("x", dtype="float32")
    rows = pt.vectorize(lambda row: pt.argmax(row), "(n)->()")(x)
    check([x], [rows], (rng.normal(size=(3, 4, 9)).astype("float32"),))
