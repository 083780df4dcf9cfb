"""Activations: values and gradients at ordinary and at extreme arguments, dtypes, and fusion on the device."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph
from scipy import special

from pytensor_cl import nn
from pytensor_cl.ops.conv import GpuConv
from pytensor_cl.ops.epilogue import GpuEpilogue
from pytensor_cl.ops.gemm import GpuDot22
from tests.helpers import device_ops, opencl

SMALL = np.array([-40.0, -3.0, -1.5, -1e-3, 1e-3, 0.7, 2.9, 40.0])
INF = np.inf


def normal(x):
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def tanh_gate(x):
    return special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


# Function, values and derivatives by SciPy for SMALL, and (value, derivative) at -inf, 0 and inf.
CASES = {
    "relu": (nn.relu, lambda x: np.maximum(x, 0), lambda x: x > 0, (0, 0), (0, 0), (INF, 1)),
    "leaky relu": (
        nn.leaky_relu,
        lambda x: np.where(x > 0, x, 0.01 * x),
        lambda x: np.where(x > 0, 1, 0.01),
        (-INF, 0.01),
        (0, 0.01),
        (INF, 1),
    ),
    "elu": (
        lambda x: nn.elu(x, 2),
        lambda x: np.where(x > 0, x, 2 * np.expm1(x)),
        lambda x: np.where(x > 0, 1, 2 * np.exp(x)),
        (-2, 0),
        (0, 2),
        (INF, 1),
    ),
    "selu": (
        nn.selu,
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
        lambda x: 1.0507009873554805 * np.where(x > 0, 1, 1.6732632423543772 * np.exp(x)),
        (-1.7580993408473766, 0),
        (0, 1.7580993408473766),
        (INF, 1.0507009873554805),
    ),
    "softplus": (
        nn.softplus,
        lambda x: np.logaddexp(0, x),
        special.expit,
        (0, 0),
        (np.log(2), 0.5),
        (INF, 1),
    ),
    "sigmoid": (
        nn.sigmoid,
        special.expit,
        lambda x: special.expit(x) * special.expit(-x),
        (0, 0),
        (0.5, 0.25),
        (1, 0),
    ),
    "hard sigmoid": (
        nn.hard_sigmoid,
        lambda x: np.clip(0.2 * x + 0.5, 0, 1),
        lambda x: np.where(abs(x) < 2.5, 0.2, 0),
        (0, 0),
        (0.5, 0.2),
        (1, 0),
    ),
    "softsign": (
        nn.softsign,
        lambda x: x / (1 + abs(x)),
        lambda x: 1 / (1 + abs(x)) ** 2,
        (-1, 0),
        (0, 1),
        (1, 0),
    ),
    "silu": (
        nn.silu,
        lambda x: x * special.expit(x),
        lambda x: special.expit(x) * (1 + x * special.expit(-x)),
        (0, 0),
        (0, 0.5),
        (INF, 1),
    ),
    "hardswish": (
        nn.hardswish,
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
        lambda x: np.where(x > 3, 1, np.where(x < -3, 0, (2 * x + 3) / 6)),
        (0, 0),
        (0, 0.5),
        (INF, 1),
    ),
    "gelu": (
        nn.gelu,
        lambda x: x * special.ndtr(x),
        lambda x: special.ndtr(x) + x * normal(x),
        (0, 0),
        (0, 0.5),
        (INF, 1),
    ),
    "gelu tanh": (
        lambda x: nn.gelu(x, "tanh"),
        lambda x: x * tanh_gate(x),
        lambda x: (
            tanh_gate(x) + x * tanh_gate(x) * (1 - tanh_gate(x)) * 2 * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
        ),
        (0, 0),
        (0, 0.5),
        (INF, 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    function, value, slope, low, zero, high = CASES[name]
    x = pt.vector("x", dtype="float64")
    y = function(x)
    f = pytensor.function([x], [y, pytensor.grad(y.sum(), x)], mode="FAST_COMPILE")
    for got, wanted in zip(f(SMALL), (value(SMALL), slope(SMALL)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-16)
    for got, wanted in zip(f([-INF, 0, INF]), zip(low, zero, high, strict=True), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-300)
    assert np.isnan(f([np.nan])[0]).all()


@pytest.mark.parametrize("name", CASES)
def test_dtypes(name):
    """A number in the formula changes no dtype, of the value or of gradients, whatever floatX is."""
    for dtype in ("float16", "float32", "float64"):
        x = pt.matrix("x", dtype=dtype)
        with pytensor.config.change_flags(floatX="float64" if dtype == "float32" else "float32"):
            y = CASES[name][0](x)
            first = pytensor.grad(y.sum(), x)
            second = pytensor.grad(first.sum(), x, disconnected_inputs="ignore")
        assert (y.dtype, first.dtype, second.dtype) == (dtype, dtype, dtype)
        assert y.ndim == 2


@pytest.mark.parametrize("name", CASES)
def test_on_the_device(context, name):
    """One kernel computes value and gradient of float32 and float16."""
    function, value, slope = CASES[name][:3]
    x, half = pt.vector("x", dtype="float32"), pt.vector("half", dtype="float16")
    y = function(x)
    with pytensor.config.change_flags(opencl__placement="device", on_opt_error="raise"):
        f = opencl([x, half], [y, pytensor.grad(y.sum(), x), function(half)])
    assert len(device_ops(f)) <= 4
    small = SMALL.astype("float32")
    for got, wanted in zip(f(small, SMALL.astype("float16")), (value(small), slope(small), value(small)), strict=True):
        tolerance = 2e-3 if got.dtype == "float16" else 2e-6
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=1e-7 if got.dtype == "float32" else 1e-3)
    extreme = np.array([-INF, 0, INF], "float32")
    for got, wanted in zip(f(extreme, extreme.astype("float16")), zip(*CASES[name][3:], strict=True), strict=False):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_epilogues(context, rng):
    """Activations become part of the kernels of products and convolutions before them."""
    x, w, b = pt.matrix("x", dtype="float32"), pt.matrix("w", dtype="float32"), pt.vector("b", dtype="float32")
    images, filters = pt.tensor4("images", dtype="float32"), pt.tensor4("filters", dtype="float32")
    with pytensor.config.change_flags(opencl__placement="device", on_opt_error="raise"):
        product = opencl([x, w, b], nn.gelu(x @ w + b))
        features = opencl([images, filters], nn.relu(nn.conv2d(images, filters)))
    for f, kind in ((product, GpuDot22), (features, GpuConv)):
        (found,) = (op for op in device_ops(f) if isinstance(op, GpuEpilogue))
        assert isinstance(found.producer, kind)
    arrays = [rng.normal(size=s).astype("float32") for s in ((5, 7), (7, 3), (3,))]
    z = (arrays[0] @ arrays[1] + arrays[2]).astype("float64")
    np.testing.assert_allclose(product(*arrays), CASES["gelu"][1](z), rtol=1e-5, atol=1e-5)


def test_slopes_that_are_arrays(rng):
    """PReLU: a slope for each channel, with a gradient."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        verify_grad(nn.relu, [rng.normal(size=(3, 4)), rng.random(4)], rng=rng)
    x, slopes = pt.matrix("x"), pt.vector("slopes")
    f = pytensor.function([x, slopes], nn.relu(x, slopes), mode="FAST_COMPILE")
    np.testing.assert_allclose(f([[-1.0, 2], [-3, -4]], [0.5, 0.25]), [[-0.5, 2], [-1.5, -1]])


def test_second_gradients(rng):
    x = np.array([-1.3, 0.4, 2.2])
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        for function in (nn.elu, nn.gelu, nn.silu, nn.softsign, nn.softplus):
            verify_grad(lambda x, function=function: pytensor.grad(function(x).sum(), x), [x], rng=rng)


def test_softmax(rng):
    values = rng.normal(size=(2, 3, 4)) * 10
    x = pt.tensor3("x", dtype="float64")
    outputs = [nn.softmax(x), nn.softmax(x, 1), nn.log_softmax(x, axis=0)]
    found = pytensor.function([x], outputs, mode="FAST_COMPILE")(values)
    wanted = special.softmax(values, -1), special.softmax(values, 1), special.log_softmax(values, 0)
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    half = pt.matrix("half", dtype="float16")
    assert pytensor.grad(nn.log_softmax(half).sum(), half).dtype == nn.softmax(half).dtype == "float16"


def test_a_batch(rng):
    row, x = pt.vector("row"), pt.matrix("x")
    outputs = vectorize_graph([nn.gelu(row), pytensor.grad(nn.relu(row, 0.1).sum(), row)], {row: x})
    values = rng.normal(size=(2, 3))
    value, slope = pytensor.function([x], outputs, mode="FAST_COMPILE")(values)
    np.testing.assert_allclose(value, values * special.ndtr(values))
    np.testing.assert_allclose(slope, np.where(values > 0, 1, 0.1))


def test_bad_arguments():
    x, integers = pt.matrix("x"), pt.lvector("integers")
    for call, error, message in (
        (lambda: nn.relu(integers), TypeError, "relu: x must be floats, not int64: cast it first"),
        (lambda: nn.gelu(pt.zvector("z")), TypeError, "gelu: input must be floats"),
        (lambda: nn.gelu(x, "erf"), ValueError, "approximate must be 'none' or 'tanh', not 'erf'"),
        (lambda: nn.softmax(x, 2), ValueError, "axis 2 is none of the 2 axes"),
        (lambda: nn.log_softmax(x, (0, 1)), TypeError, "axis must be an integer"),
        (lambda: nn.elu("x"), TypeError, "elu: x must be a tensor or an array"),
    ):
        with pytest.raises(error, match=message):
            call()
