"""Permutations of rows in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.indexing.take_along_axis import GpuPermuteRowElements
from tests.helpers import assert_on_device, check_against_python, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def test_permutations_and_gradients(context, rng):
    x, p, q = pt.matrix("x", dtype="float32"), pt.lvector("p"), pt.lmatrix("q")
    one, each = (pt.permute_row_elements(x, index) for index in (p, q))
    weights = pt.arange(6, dtype="float32")
    outputs = [
        one,
        each,
        pt.permute_row_elements(x, q, inverse=True),
        pt.inverse_permutation(p),
        pt.inverse_permutation(q),
        *(pytensor.grad((pt.sqr(y) * weights).sum(), x) for y in (one, each)),
    ]
    value = rng.normal(size=(4, 6)).astype("float32")
    arguments = value, rng.permutation(6), rng.permuted(np.broadcast_to(np.arange(6), (4, 6)), axis=1)
    check_against_python([x, p, q], outputs, (GpuPermuteRowElements,), arguments)


def test_out_of_range(context):
    x, p = pt.vector("x", dtype="float32"), pt.lvector("p")
    f = opencl([x, p], pt.permute_row_elements(x, p))
    assert_on_device(f, GpuPermuteRowElements)
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        f(np.zeros(3, "float32"), [0, 3, 1])
    x, p = pt.matrix("x", dtype="float32"), pt.lmatrix("p")
    g = opencl([x, p], pt.permute_row_elements(x, p))
    with pytest.raises(ValueError, match="Dimension mismatch: 2, 3"):
        g(np.zeros((2, 3), "float32"), np.zeros((3, 3), int))
