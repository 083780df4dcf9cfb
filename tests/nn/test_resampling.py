"""Resizing equals PyTorch's."""

import json
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph

from pytensor_cl import nn
from pytensor_cl.nn.resampling import TransposeTable, WeightedTake, resize_table, transpose
from pytensor_cl.ops.resampling import GpuWeightedTake
from tests.helpers import assert_on_device, host_ops, on_one_driver, opencl

CASES = json.loads(Path(__file__).with_name("torch_resize.json").read_text())
"""Written by tools/torch_resize.py."""


def graph(case, is_static):
    """Return the inputs and outputs of a resizing and its gradient."""
    shape = case["shape"]
    x = pt.tensor("x", dtype="float64", shape=shape if is_static else (None,) * len(shape))
    dy = pt.tensor("dy", dtype="float64", shape=(None,) * len(shape))
    y = nn.resize(x, **{k: v for k, v in case.items() if k not in ("shape", "y", "dx")})
    return [x, dy], [y, pytensor.grad(None, x, known_grads={y: dy})]


def check(case, f):
    """Compare with the stored results."""
    want = [np.array(case[name]) for name in ("y", "dx")]
    x, dy = np.sin(np.arange(want[1].size)), np.cos(np.arange(want[0].size))
    for got, expected in zip(f(x.reshape(want[1].shape), dy.reshape(want[0].shape)), want, strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['mode']}-{c['shape']}")
@pytest.mark.parametrize("is_static", [True, False])
def test_equal_to_torch(case, is_static):
    check(case, pytensor.function(*graph(case, is_static), mode="FAST_COMPILE"))


@pytest.mark.parametrize("case", CASES[2::4], ids=lambda c: f"{c['mode']}-{c['shape']}")
def test_on_the_device(context, case):
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl(*graph(case, False))  # small arrays of static shape would stay on the host
    assert_on_device(f, GpuWeightedTake)
    assert not any(isinstance(op, WeightedTake) for op in host_ops(f))
    check(case, f)


@on_one_driver
@pytest.mark.parametrize("mode", ["OPENCL", "FAST_COMPILE"])
def test_symbolic_lengths(context, mode):
    x, n, m = pt.tensor4("x", dtype="float32"), pt.lscalar("n"), pt.iscalar("m")
    y = nn.resize(x, (n, m), mode="bilinear")
    slope = pytensor.grad(pt.sqr(y).sum(), x)
    with pytensor.config.change_flags(opencl__placement="device"):
        f = pytensor.function([x, n, m], [y, slope], mode=mode)
    value = np.arange(24, dtype="float32").reshape(1, 2, 3, 4)
    got, gradient = f(value, 6, 2)
    fixed = nn.resize(pt.constant(value), (6, 2), mode="bilinear").eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(got, fixed, rtol=1e-6)
    assert gradient.shape == value.shape
    with pytest.raises(ValueError, match="both numbers must be positive"):
        f(value, 0, 2)
    with pytest.raises(ValueError, match="both numbers must be positive"):
        f(value[:, :, :0], 6, 2)


def test_numba():
    x = pt.tensor3("x")
    y = nn.resize(x, scale_factor=1.5, mode="linear")
    value = np.arange(6.0).reshape(1, 2, 3)
    want = pytensor.function([x], y, mode="FAST_COMPILE")(value)
    np.testing.assert_allclose(pytensor.function([x], y, mode="NUMBA")(value), want)


def test_jax():
    pytest.importorskip("jax")
    x = pt.tensor("x", dtype="float32", shape=(1, 1, 4, 3))
    y = nn.resize(x, scale_factor=2, mode="bicubic")
    outputs = [y, pytensor.grad(pt.sqr(y).sum(), x)]
    value = np.arange(12, dtype="float32").reshape(1, 1, 4, 3)
    want = pytensor.function([x], outputs, mode="FAST_COMPILE")(value)
    for got, expected in zip(pytensor.function([x], outputs, mode="JAX")(value), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("mode, shape", [("bicubic", (1, 1, 3, 2)), ("linear", (2, 1, 3))])
def test_gradients_of_any_order(rng, mode, shape):
    value = rng.normal(size=shape)

    def function(x):
        return nn.resize(x, scale_factor=1.5, mode=mode) ** 2

    verify_grad(function, [value], rng=rng, mode="FAST_COMPILE")
    verify_grad(lambda x: pytensor.grad(function(x).sum(), x), [value], rng=rng, mode="FAST_COMPILE")


def test_batches(rng):
    x, many = pt.tensor3("x"), pt.tensor4("many")
    y = nn.resize(x, scale_factor=2, mode="linear")
    f = pytensor.function([many], vectorize_graph(y, {x: many}), mode="FAST_COMPILE")
    values = rng.normal(size=(3, 2, 1, 4))
    each = pytensor.function([x], y, mode="FAST_COMPILE")
    np.testing.assert_allclose(f(values), [each(v) for v in values])


def test_nearest_elements_of_any_dtype():
    x = pt.tensor4("x", dtype="uint8")
    value = np.arange(6, dtype="uint8").reshape(1, 1, 2, 3)
    y = nn.resize(x, (4, 3)).eval({x: value}, mode="FAST_COMPILE")
    np.testing.assert_array_equal(y, value.repeat(2, axis=2), strict=True)


def test_float16_is_computed_in_float32():
    x = np.linspace(0, 1, 7, dtype="float16")[None, None]
    y = nn.resize(pt.constant(x), 20, mode="linear").eval(mode="FAST_COMPILE")
    wide = nn.resize(pt.constant(x.astype("float32")), 20, mode="linear").eval(mode="FAST_COMPILE")
    np.testing.assert_array_equal(y, wide.astype("float16"), strict=True)


def test_weights_add_up_to_one():
    for kind in ("linear", "cubic"):
        for n, m in ((1, 5), (5, 1), (7, 3), (3, 7), (4, 4)):
            for factor in (None, (m + 0.3) / n):
                index, weight = resize_table(kind, False, factor, n, m)
                np.testing.assert_allclose(weight.sum(axis=0), 1)
                assert index.min() >= 0 and index.max() < n


def test_nearest_is_exact_where_rounding_is_not():
    index, _ = resize_table("nearest", False, None, 2, 82)
    np.testing.assert_array_equal(index[0], np.arange(82) * 2 // 82)


def test_transposed_tables(rng):
    index = rng.integers(-1, 4, (3, 5)).astype("int32")
    weight = rng.normal(size=(3, 5))
    dense = np.zeros((5, 6))
    np.add.at(dense, (np.broadcast_to(np.arange(5), index.shape)[index >= 0], index[index >= 0]), weight[index >= 0])
    made, moved = transpose(index, 6, weight)
    found = np.zeros((6, 5))
    columns = np.broadcast_to(np.arange(6), made.shape)
    np.add.at(found, (columns[made >= 0], made[made >= 0]), moved[made >= 0])
    np.testing.assert_allclose(found, dense.T)
    variables = [pt.imatrix(), pt.lscalar(), pt.dmatrix()]
    f = pytensor.function(variables, TransposeTable().make_node(*variables).outputs, mode="FAST_COMPILE")
    for got, want in zip(f(index, 6, weight), (made, moved), strict=True):
        np.testing.assert_array_equal(got, want)
    assert transpose(np.full((2, 3), -1, "int32"), 0)[0].shape == (1, 0)


IMAGE = pt.tensor4("x")


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({}, ValueError, "neither of them"),
        ({"size": 3, "scale_factor": 2}, ValueError, "both of them"),
        ({"size": 3, "mode": "cubic"}, ValueError, "mode must be one of"),
        ({"size": 3, "mode": "linear"}, TypeError, "3 dimensions"),
        ({"size": 3, "mode": "nearest", "align_corners": True}, ValueError, "no meaning with mode 'nearest'"),
        ({"size": (3, 4, 5)}, ValueError, "entry for each of the 2 axes"),
        ({"size": 0}, ValueError, "must be positive"),
        ({"size": 2.5}, TypeError, "size must be integers"),
        ({"size": True}, TypeError, "size must be integers"),
        ({"scale_factor": 0}, ValueError, "positive and finite"),
        ({"scale_factor": "2"}, TypeError, "must be numbers"),
        ({"input": pt.tensor("x", shape=(1, 1, 3, 3)), "scale_factor": 0.2}, ValueError, "leaves nothing"),
        ({"input": pt.itensor4(), "size": 3, "mode": "bilinear"}, TypeError, "cast it first"),
        ({"input": pt.matrix(), "size": 3}, TypeError, "3 to 5 dimensions"),
    ],
)
def test_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        nn.resize(**{"input": IMAGE, **arguments})
