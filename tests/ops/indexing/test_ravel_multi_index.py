"""Flat indices and indices along each dimension in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.indexing.ravel_multi_index import GpuRavelMultiIndex, GpuUnravelIndex
from tests.helpers import assert_all_on_device, check_against_python, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.mark.parametrize("order", ["C", "F"])
def test_there_and_back(context, rng, order):
    flat, dims = pt.lmatrix("flat"), pt.tensor("dims", shape=(3,), dtype="int64")
    places = pt.unravel_index(flat, dims, order=order)
    outputs = [*places, pt.ravel_multi_index(places, dims, order=order)]
    outputs += [pt.ravel_multi_index([p - 3 for p in places], dims, mode, order) for mode in ("wrap", "clip")]
    kinds = GpuRavelMultiIndex, GpuUnravelIndex
    value = rng.integers(0, 60, (4, 5))
    f = check_against_python(
        [flat, dims], outputs, kinds, (value, [3, 4, 5]), (value.T, [60, 1, 1]), (value[:0], [1, 0, 2])
    )
    assert_all_on_device(f)


def test_constant_extents_and_dtypes(context, rng):
    i, j = pt.vector("i", dtype="int32"), pt.vector("j", dtype="int8")
    outputs = [pt.ravel_multi_index((i, j), (7, 9)), *pt.unravel_index(i, (7, 9))]
    value = rng.integers(0, 7, 20)
    check_against_python([i, j], outputs, (GpuRavelMultiIndex,), (value.astype("int32"), value.astype("int8")))


def test_out_of_range(context):
    i = pt.lvector("i")
    ravel = opencl([i], pt.ravel_multi_index((i, i), (4, 4)))
    unravel = opencl([i], pt.unravel_index(i, (4, 4)))
    assert_all_on_device(ravel, GpuRavelMultiIndex)
    with pytest.raises(ValueError, match="invalid entry in coordinates array"):
        ravel([0, 4])
    with pytest.raises(ValueError, match="index 16 is out of bounds for array with size 16"):
        unravel([0, 16])
    assert ravel([0, 3]).tolist() == [0, 15]
    np.testing.assert_array_equal(unravel([6, 15]), [[1, 3], [2, 3]])
