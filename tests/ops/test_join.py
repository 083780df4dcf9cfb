"""Join, Split and MakeVector on devices."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.join import GpuJoin, GpuJoinedElemwise, GpuMakeVector, GpuSplit
from tests.helpers import assert_on_device, device_ops


def _compare(inputs, outputs, values, *ops):
    function = pytensor.function(inputs, outputs, mode="OPENCL")
    assert_on_device(function, *ops)
    expected = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*values)
    for got, want in zip(function(*values), expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_join_of_any_axis_dtype_and_strides(context, rng):
    x, y, n = pt.fmatrix("x"), pt.dmatrix("y"), pt.imatrix("n")
    outputs = [
        pt.join(0, x, x * 2),
        pt.join(1, x, y.T, n),
        pt.join(0, x[::-1], x[:, ::-1][1:1], x),
        pt.stack([x, x + 1], axis=1),
        pt.concatenate([(x > 0), (n[:4] > 0)], axis=1),
    ]
    values = (
        rng.normal(size=(4, 3)).astype("float32"),
        rng.normal(size=(5, 4)),
        rng.integers(-5, 5, (4, 2)).astype("int32"),
    )
    _compare([x, y, n], outputs, values, GpuJoin)


def test_join_of_nothing_and_of_mismatched_shapes(context):
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    function = pytensor.function([x, y], pt.join(0, pt.exp(x), y), mode="OPENCL")
    one, none = np.ones((2, 3), "float32"), np.ones((0, 3), "float32")
    np.testing.assert_allclose(function(none, one), one)
    assert function(none, none).shape == (0, 3)
    with pytest.raises(ValueError, match="must match exactly"):
        function(one, np.ones((2, 4), "float32"))
    np.testing.assert_allclose(function(one, one)[2:], one)


def test_make_vector_of_device_and_host_scalars(context, rng):
    x, s = pt.fvector("x"), pt.fscalar("s")
    _compare([x, s], [pt.stack([x.sum(), s, x.max()]) * 2], (rng.normal(size=7).astype("float32"), 3.0), GpuMakeVector)


def test_split_makes_views(context, rng):
    x, sizes = pt.fmatrix("x"), pt.lvector("sizes")
    parts = pt.split(pt.exp(x), sizes, n_splits=3, axis=1)
    value = rng.normal(size=(3, 6)).astype("float32")
    _compare([x, sizes], [p + 1 for p in parts], (value, np.array([1, 0, 5])), GpuSplit)
    function = pytensor.function([x, sizes], parts, mode="OPENCL")
    for wrong, text in (([1, 1, 1], "Split sizes sum to 3"), ([7, -2, 1], "negative"), ([3, 3], "Length of splits")):
        with pytest.raises(ValueError, match=text):
            function(value, np.array(wrong))


def test_gradient_of_join(context, rng):
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    cost = (pt.join(0, x, y) ** 2 * pt.join(0, y, x)).sum()
    values = tuple(rng.normal(size=(3, 4)).astype("float32") for _ in range(2))
    _compare([x, y], pytensor.grad(cost, [x, y]), values, GpuJoin)


def test_outputs_of_one_function_are_computed_in_their_places(context, rng):
    """No kernel copies them; outputs that are not joined, or that something else reads, are as before."""
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    a, b, c = pt.exp(x) * y, pt.exp(x) + pt.exp(y), pt.exp(x + y)
    arrays = [rng.uniform(0.5, 2, size=(5, 7)).astype("float32") for _ in range(2)]
    function = pytensor.function([x, y], [pt.join(1, c, a), b], mode="OPENCL")
    assert_on_device(function, GpuJoinedElemwise)
    assert not any(isinstance(op, GpuJoin) for op in device_ops(function))
    _compare([x, y], [pt.join(1, c, a), b], arrays, GpuJoinedElemwise)
    _compare([x, y], [pt.join(0, a, b, c)], arrays, GpuJoinedElemwise)
    _compare([x, y], [pt.join(0, a, b), a.sum(axis=0)], arrays, GpuJoin)
    _compare([x, y], [pt.join(0, a, pt.cast(b, "float64"))], arrays, GpuJoin)
    few = [v[:0] for v in arrays]
    _compare([x, y], [pt.join(1, a, b)], few, GpuJoinedElemwise)
