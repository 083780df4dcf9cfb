"""Slice updates of whole arrays, reductions after new axes, and elementwise nodes that fusion left."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.indexing.slice_update import GpuIncSubtensor
from pytensor_cl.ops.reduction import GpuCAReduce
from tests.helpers import device_ops, opencl


@pytest.fixture(autouse=True)
def errors_of_rewrites():
    """Let an error of a rewrite fail the test; by default it is logged."""
    with pytensor.config.change_flags(on_opt_error="raise"):
        yield


def updates(f):
    return sum(isinstance(op, GpuIncSubtensor) for op in device_ops(f))


column = pt.tensor("column", dtype="float32", shape=(None, 1))
row = pt.tensor("row", dtype="float32", shape=(1, 1, 7))
vector = pt.fvector("vector")


@pytest.mark.parametrize(
    "make, is_whole",
    [
        (lambda x, v: pt.inc_subtensor(x[:, 0], 1.0), True),
        (lambda x, v: pt.inc_subtensor(x[:, -1], np.float32([2])), True),
        (lambda x, v: pt.inc_subtensor(x[:, 0], pt.exp(x[:, 0])), True),
        (lambda x, v: pt.set_subtensor(x[:, 0], pt.exp(x[:, 0])), True),
        (lambda x, v: pt.inc_subtensor(x[:], 2 * x), True),
        (lambda x, v: pt.inc_subtensor(x[1:, 0], 1.0), False),
        (lambda x, v: pt.inc_subtensor(x[:, 0], v), False),  # a vector of one element would be repeated
    ],
)
def test_updates(context, on_device, rng, make, is_whole):
    values = rng.normal(size=(5, 1)).astype("float32"), rng.normal(size=5).astype("float32")
    result = make(column * 2, vector) + 1
    f = opencl([column, vector], result, on_unused_input="ignore")
    wanted = pytensor.function([column, vector], result, on_unused_input="ignore", mode="FAST_COMPILE")(*values)
    got = f(*values)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert updates(f) == (not is_whole)


def test_three_dimensions(context, on_device, rng):
    value = rng.normal(size=(1, 1, 7)).astype("float32")
    f = opencl([row], [pt.inc_subtensor(row[0], pt.exp(row[0])), pt.set_subtensor(row[0, 0], row[0, -1] * 2)])
    first, second = f(value)
    np.testing.assert_allclose(first, value + np.exp(value), rtol=1e-6)
    np.testing.assert_allclose(second, 2 * value, rtol=1e-6)
    assert not updates(f)


def test_gradient_of_a_maximum_with_kept_dimensions(context, on_device, rng):
    """The update of its column stands between nodes that become one kernel."""
    x = pt.fmatrix("x")
    top = pt.max(x, axis=1, keepdims=True)
    loss = (pt.log(pt.exp(x - top).sum(axis=1)) + top[:, 0]).sum()
    value = rng.normal(size=(6, 4)).astype("float32")
    f = opencl([x], pt.grad(loss, x))
    weights = np.exp(value) / np.exp(value).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(f(value), weights, rtol=1e-5, atol=1e-6)
    assert not updates(f)


def test_sums_after_new_axes(context, on_device, rng):
    x = pt.fmatrix("x")
    y = pt.exp(x)
    f = opencl([x], [y.sum(axis=0), y[:, :, None].sum(axis=0), y[None].max(axis=(1, 2)), y[:, None].sum(axis=(0, 1))])
    value = rng.normal(size=(6, 4)).astype("float32")
    total = np.exp(value).sum(axis=0)
    for got, wanted in zip(f(value), (total, total[:, None], np.exp(value).max()[None], total), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    sums = [op for op in device_ops(f) if isinstance(op, GpuCAReduce)]
    assert len(sums) <= 2


def test_nodes_whose_other_clients_are_in_composites(context, on_device, rng):
    x, s = pt.fmatrix("x"), pt.fmatrix("s")
    scale = pt.exp(-s)
    f = opencl([x, s], [(x[:, None] * scale[None] - s[None]).sum(axis=2), scale * (x.sum(axis=0) * -1.0)])
    values = [rng.normal(size=(5, 3)).astype("float32"), rng.normal(size=(2, 3)).astype("float32")]
    wanted = np.exp(-values[1])
    first, second = f(*values)
    np.testing.assert_allclose(first, (values[0][:, None] * wanted - values[1]).sum(axis=2), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second, -wanted * values[0].sum(axis=0), rtol=1e-5, atol=1e-5)
    names = [str(op) for op in device_ops(f) if isinstance(op, GpuElemwise)]
    assert not any(name in ("GpuNeg", "GpuExp") for name in names)


def test_conditions_that_hold_together(context, on_device):
    """They are one elementwise function with what reads them, without a vector of them and its reduction."""
    x, s = pt.fvector("x"), pt.fscalar("s")
    sure, possible = pt.all([(x > 0).all(), (x < 2).all(), s > 1]), pt.any([(x > 9).any(), s > 3])
    f = opencl([x, s], [pt.switch(sure, x, -x), possible])
    assert device_ops(f) and not any("MakeVector" in str(op) for op in device_ops(f))
    for value, scale in (([1, 0.5], 2), ([1, 0.5], 0), ([1, -1], 2), ([1, 10], 4)):
        value = np.array(value, "float32")
        is_sure = ((value > 0) & (value < 2)).all() and scale > 1
        first, second = f(value, np.float32(scale))
        np.testing.assert_array_equal(first, value if is_sure else -value)
        assert second == (scale > 3 or (value > 9).any())
