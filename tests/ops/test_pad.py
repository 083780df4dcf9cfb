"""Padding in compiled functions: a graph of several Ops, all of which run on the device."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.ops.indexing.slice_update import GpuMergedIncSubtensor
from pytensor_cl.rewriting.placement.placement import SCALAR
from tests.helpers import opencl, skip_without_double

MODES = (
    "constant",
    "edge",
    "linear_ramp",
    "maximum",
    "minimum",
    "mean",
    "wrap",
    "symmetric",
    "reflect",
)


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device", floatX="float32"):
        yield


def pad(x, width, mode, given, **options):
    """Compile and call; nothing but arithmetic on shapes may be left to the host."""
    inputs = [x, width] if isinstance(width, pt.TensorVariable) else [x]
    f = opencl(inputs, pt.pad(x, width, mode=mode, **options))
    if mode == "linear_ramp":  # the only one that divides integers
        skip_without_double(f)
    assert {node.reason for node in pytensor_cl.explain(f).host_nodes} <= {SCALAR}
    return f(*given)


@pytest.mark.parametrize("mode", MODES)
def test_static_widths(context, rng, mode):
    value = rng.normal(size=(5, 6)).astype("float32")
    got = pad(pt.matrix("x", dtype="float32"), ((1, 2), (0, 3)), mode, (value,))
    np.testing.assert_allclose(got, np.pad(value, ((1, 2), (0, 3)), mode=mode), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_symbolic_widths(context, rng, mode):
    value = rng.normal(size=(5, 6)).astype("float32")
    width = pt.tensor("width", shape=(2, 2), dtype="int64")
    got = pad(pt.matrix("x", dtype="float32"), width, mode, (value, [[2, 1], [3, 0]]))
    np.testing.assert_allclose(got, np.pad(value, ((2, 1), (3, 0)), mode=mode), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["wrap", "symmetric", "reflect"])
def test_wider_than_the_array(context, rng, mode):
    value = rng.normal(size=3).astype("float32")
    np.testing.assert_array_equal(
        pad(pt.vector("x", dtype="float32"), 11, mode, (value,)), np.pad(value, 11, mode=mode)
    )


def test_options(context, rng):
    value = rng.normal(size=(5, 6)).astype("float32")
    for mode, options in (
        ("constant", {"constant_values": 3}),
        ("constant", {"constant_values": ((1, 2), (3, 4))}),
        ("linear_ramp", {"end_values": ((1, 2), (3, 4))}),
        ("maximum", {"stat_length": 2}),
        ("mean", {"stat_length": ((1, 2), (3, 4))}),
    ):
        got = pad(pt.matrix("x", dtype="float32"), 2, mode, (value,), **options)
        np.testing.assert_allclose(got, np.pad(value, 2, mode=mode, **options), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_gradient(context, rng, mode):
    x = pt.matrix("x", dtype="float32")
    padded = pt.pad(x, ((1, 2), (0, 3)), mode=mode)
    gradient = pytensor.grad(pt.sqr(padded).sum(), x)
    value = rng.normal(size=(5, 6)).astype("float32")
    places = np.pad(np.arange(30).reshape(5, 6), ((1, 2), (0, 3)), mode=mode)
    wanted = 2 * value * np.bincount(places.ravel(), minlength=30).reshape(5, 6)
    np.testing.assert_allclose(opencl([x], gradient)(value), wanted, rtol=1e-5)


@pytest.mark.parametrize("mode", ["linear_ramp", "mean", "maximum"])
def test_gradient_of_computed_padding(context, rng, mode):
    x = pt.matrix("x", dtype="float32")
    gradient = pytensor.grad(pt.sqr(pt.pad(x, 2, mode=mode)).sum(), x)
    value = rng.normal(size=(3, 4)).astype("float32")
    with pytensor.config.change_flags(opencl__placement="host"):
        wanted = pytensor.function([x], gradient, mode="FAST_COMPILE")(value)
    f = opencl([x], gradient)
    if mode == "linear_ramp":
        skip_without_double(f)
    assert {node.reason for node in pytensor_cl.explain(f).host_nodes} <= {SCALAR}
    np.testing.assert_allclose(f(value), wanted, rtol=1e-4, atol=1e-5)


def test_constant_padding_is_one_node_and_reads_no_values(context, rng):
    value = rng.normal(size=(5, 6)).astype("float32")
    x = pt.matrix("x", dtype="float32")
    f = opencl([x], pt.pad(x, ((1, 2), (0, 3))))
    np.testing.assert_array_equal(f(value), np.pad(value, ((1, 2), (0, 3))))
    report = pytensor_cl.explain(f)
    assert sum(t.direction == "to host" for t in report.transfers) == 1
    assert [type(n.op) for n in report.device_nodes if n.op.is_compute] == [GpuMergedIncSubtensor]
