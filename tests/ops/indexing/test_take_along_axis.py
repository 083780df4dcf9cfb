"""Choices in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.ops.indexing.take_along_axis import GpuChoose
from tests.helpers import assert_all_on_device, check_against_python, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_modes(context, rng, mode, dtype):
    i, c = pt.lvector("i"), pt.matrix("c", dtype=dtype)
    low, high = (0, 4) if mode == "raise" else (-9, 9)
    index, choices = rng.integers(low, high, 6), rng.integers(0, 9, (4, 6)).astype(dtype)
    f = check_against_python(
        [i, c], [pt.choose(i, c, mode=mode)], (GpuChoose,), (index, choices), (index[::-1], choices)
    )
    assert_all_on_device(f)


def test_out_of_range(context):
    i, c = pt.lvector("i"), pt.matrix("c", dtype="float32")
    f = opencl([i, c], pt.choose(i, c) + 1)
    assert_all_on_device(f, GpuChoose)
    with pytest.raises(ValueError, match="invalid entry in choice array"):
        f([0, 4, 1], np.zeros((4, 3), "float32"))
    np.testing.assert_array_equal(f([0, 3, 1], np.zeros((4, 3), "float32")), [1, 1, 1])


def test_a_list_of_choices_runs_on_the_host(context, rng):
    i, v = pt.lvector("i"), pt.vector("v", dtype="float32")
    f = opencl([i, v], pt.choose(i, [v, v * 2, v * 3]))
    index, value = rng.integers(0, 3, 5), rng.normal(size=5).astype("float32")
    np.testing.assert_allclose(f(index, value), np.choose(index, [value, value * 2, value * 3]))
    reasons = {type(n.op).__name__: n.reason for n in pytensor_cl.explain(f).host_nodes}
    assert reasons["Choose"] == "TypedListType values are on the host"
