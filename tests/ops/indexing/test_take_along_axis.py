"""Choices in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.ops.indexing.take_along_axis import GpuChoose, GpuChooseOf
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


@pytest.mark.parametrize("mode", ["raise", "wrap"])
def test_a_list_of_choices(context, rng, mode):
    i, v, w = pt.lmatrix("i"), pt.vector("v", dtype="float32"), pt.vector("w", dtype="float32")
    f = opencl([i, v, w], pt.choose(i, [v, v * 2, w], mode=mode))
    assert_all_on_device(f, GpuChooseOf)
    low, high = (0, 3) if mode == "raise" else (-9, 9)
    for lengths in ((5, 5), (5, 5), (5, 5), (5, 5), (5, 1), (1, 5), (0, 1)):
        index = rng.integers(low, high, (2, max(lengths) if all(lengths) else 0))
        v_value, w_value = (rng.normal(size=n).astype("float32") for n in lengths)
        wanted = np.choose(index, [v_value, v_value * 2, w_value], mode=mode)
        np.testing.assert_allclose(f(index, v_value, w_value), wanted)


def test_a_list_of_choices_that_do_not_fit(context):
    i, v, w = pt.lvector("i"), pt.dvector("v"), pt.dvector("w")
    f = opencl([i, v, w], pt.choose(i, [v, w]))
    for arguments, message in (
        (([0, 2], [1.0, 2.0], [3.0, 4.0]), "invalid entry"),
        (([0, 1], [1.0, 2.0], [3.0] * 3), "shape mismatch"),
    ):
        with pytest.raises(ValueError, match=message):
            f(*arguments)
    np.testing.assert_array_equal(f([0, 1], [1.0, 2.0], [3.0, 4.0]), [1, 4])


def test_a_list_of_choices_larger_than_the_index_runs_on_the_host(context):
    i, v = pt.lvector("i"), pt.dmatrix("v")
    f = opencl([i, v], pt.choose(i, [v, v * 2]))
    reasons = {type(n.op).__name__: n.reason for n in pytensor_cl.explain(f).host_nodes}
    assert reasons["Choose"] == "TypedListType values are on the host"
