"""Recurrent layers against PyTorch's values (tools/torch_recurrent.py) and loops of NumPy."""

import json

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph
from scipy.special import expit

from pytensor_cl import nn
from pytensor_cl.ops.gemm import GpuGemm
from pytensor_cl.ops.scan import GpuScan
from tests.helpers import CHECKOUT, assert_on_device, device_ops, on_one_driver, opencl

TORCH = json.loads((CHECKOUT / "tests" / "nn" / "torch_recurrent.json").read_text())
LENGTHS = np.array([4, 2, 1])
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
LAYERS = {"rnn": nn.rnn, "gru": nn.gru, "lstm": nn.lstm}
CASES = {
    "rnn": ("rnn", {}),
    "rnn_relu": ("rnn", {"nonlinearity": "relu"}),
    "gru": ("gru", {}),
    "lstm": ("lstm", {}),
    "gru_before": ("gru", {"reset_after": False}),
}
every_case = pytest.mark.parametrize("name", CASES)


@pytest.fixture(autouse=True)
def quick_default():
    """What `verify_grad` compiles by itself would take seconds each time; loops of small arrays run on the device."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", opencl__placement="device"):
        yield


# Values


def values(number, *shape):
    """The same as in tools/torch_recurrent.py."""
    k = np.arange(np.prod(shape), dtype="float64")
    return (0.8 * np.cos(1.3 * k * (1 + 0.1 * number) + number)).reshape(shape)


def arguments(kind, steps=4, rows=3, width=3):
    """The input, the parameters of both directions, and the states, of each the one forwards and the one backwards."""
    gates = GATES[kind] * width
    shapes = [(gates, 2), (gates, width), (gates,), (gates,)] * 2
    states = [values(k, 2, rows, width) for k in range(20, 22 if kind == "lstm" else 21)]
    return [values(0, steps, rows, 2), *(values(k, *s) for k, s in enumerate(shapes, 1)), *states]


def one_row(name, x, states, parameters):
    """Return outputs and last states of a row of steps, computed with NumPy."""
    w, u, b, d = parameters
    h, *c = states
    outputs = []
    for row in x:
        a, p = np.split(w @ row + b, GATES[CASES[name][0]]), np.split(u @ h + d, GATES[CASES[name][0]])
        if name == "lstm":
            i, f, g, o = (m + n for m, n in zip(a, p, strict=True))
            c = [expit(f) * c[0] + expit(i) * np.tanh(g)]
            h = expit(o) * np.tanh(c[0])
        elif name.startswith("gru"):
            r, z = expit(a[0] + p[0]), expit(a[1] + p[1])
            k = 2 * len(h)
            n = np.tanh(a[2] + (r * p[2] if name == "gru" else u[k:] @ (r * h) + d[k:]))
            h = (1 - z) * n + z * h
        else:
            total = a[0] + p[0]
            h = np.maximum(total, 0) if name == "rnn_relu" else np.tanh(total)
        outputs.append(h)
    return outputs, [h, *c]


def expected(name, x, *rest, lengths):
    """Return outputs and last states of both directions, row by row."""
    parameters, states = (rest[:4], rest[4:8]), rest[8:]
    width = states[0].shape[2]
    outputs, last = np.zeros((*x.shape[:2], 2 * width)), [v.copy() for v in states]
    for n, length in enumerate(lengths):
        for d, order in enumerate((slice(None), slice(None, None, -1))):
            found, ends = one_row(name, x[:length, n][order], [v[d, n] for v in states], parameters[d])
            if length:
                outputs[:length, n, d * width : (d + 1) * width] = np.array(found)[order]
            for v, end in zip(last, ends, strict=True):
                v[d, n] = end
    return [outputs, *last]


def graph(name, dtype="float64"):
    """Return inputs, outputs, and gradients, of both directions with rows of different lengths."""
    kind, options = CASES[name]
    inputs = [pt.tensor(shape=(None,) * v.ndim, dtype=dtype) for v in arguments(kind)]
    x, parameters, states, lengths = inputs[0], inputs[1:9], inputs[9:], pt.lvector("lengths")
    pair = [tuple(v[d] for v in states) if kind == "lstm" else states[0][d] for d in (0, 1)]
    layer = LAYERS[kind]
    out, last = nn.bidirectional(layer, x, pair, parameters[:4], parameters[4:], lengths=lengths, **options)
    ends = [pt.stack(both) for both in zip(*last, strict=True)] if kind == "lstm" else [pt.stack(last)]
    results = [out, *ends]
    shapes = (4, 3, 6), (2, 3, 3), (2, 3, 3)
    factors = [pt.constant(values(30 + k, *shape).astype(dtype)) for k, shape in enumerate(shapes)]
    steps, rows = x.shape[0], x.shape[1]
    loss = (out * factors[0][:steps, :rows]).sum()
    loss += sum((v * f[:, :rows]).sum() for v, f in zip(ends, factors[1:], strict=False))
    return [*inputs, lengths], results, pytensor.grad(loss, inputs)


def compare(name, f, dtype="float64"):
    """The function agrees with PyTorch, and in border cases with loops of NumPy."""
    kind, _ = CASES[name]
    rtol = 1e-10 if dtype == "float64" else 1e-4

    def call(arrays, lengths):
        return f(*(v.astype(dtype) for v in arrays), np.array(lengths))

    arrays = arguments(kind)
    found = call(arrays, LENGTHS)
    count = 3 if kind == "lstm" else 2
    assert all(v.dtype == dtype for v in found)
    for got, want in zip(found, expected(name, *arrays, lengths=LENGTHS), strict=False):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    if name in TORCH:
        reference = [*TORCH[name]["results"], *TORCH[name]["gradients"]]
        assert len(reference) == len(found)
        for got, want in zip(found, reference, strict=True):
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    padded = [arrays[0].copy(), *arrays[1:]]
    padded[0][2:, 1], padded[0][1:, 2] = np.nan, np.inf  # behind the ends of rows
    for got, want in zip(call(padded, LENGTHS), found, strict=True):
        np.testing.assert_array_equal(got, want)
    for steps, rows, lengths in ((3, 2, (0, 3)), (0, 2, (0, 0)), (1, 1, (1,)), (2, 0, ())):
        arrays = arguments(kind, steps, rows)
        found = call(arrays, np.array(lengths, "int64"))
        for got, want in zip(found[:count], expected(name, *arrays, lengths=lengths), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
        for got, argument in zip(found[count:], arrays, strict=True):
            assert got.shape == argument.shape
            assert np.isfinite(got).all()
    with pytest.raises(ValueError, match="lengths must be from 0"):
        call(arguments(kind), [5, 2, 1])
    wrong = arguments(kind)
    wrong[1] = wrong[1][:-1]
    with pytest.raises(ValueError, match=r"weight_ih does not fit weight_hh|broadcast"):
        call(wrong, LENGTHS)


@every_case
def test_python(name):
    inputs, results, gradients = graph(name)
    compare(name, pytensor.function(inputs, [*results, *gradients]))


@every_case
def test_device(context, name):
    inputs, results, gradients = graph(name, "float32")
    f = opencl(inputs, [*results, *gradients])
    assert sum(isinstance(op, GpuScan) for op in device_ops(f)) >= 2
    compare(name, f, "float32")


@on_one_driver
def test_chosen_backend(context):
    """With `opencl__placement=auto` the function may run on the device or not."""
    inputs, results, gradients = graph("rnn")
    with pytensor.config.change_flags(opencl__placement="auto"):
        compare("rnn", opencl(inputs, [*results, *gradients]))


@on_one_driver
def test_numba(context):
    """One small loop: NUMBA compiles for seconds."""
    x, w, u = pt.dtensor3("x"), pt.dmatrix("w"), pt.dmatrix("u")
    outputs = nn.rnn(x, None, w, u, lengths=pt.as_tensor(LENGTHS[1:]))
    arrays = arguments("rnn", 2, 2)[:3]
    f, g = (pytensor.function([x, w, u], outputs, mode=mode) for mode in ("NUMBA", "FAST_COMPILE"))
    for got, want in zip(f(*arrays), g(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@on_one_driver
@pytest.mark.usefixtures("context")
def test_jax():
    """JAX compiles shapes that are known."""
    pytest.importorskip("jax")
    with pytensor.config.change_flags(floatX="float32"):
        arrays = [v.astype("float32") for v in arguments("lstm")]
        inputs = [pt.tensor(shape=v.shape, dtype="float32") for v in arrays[:5]]
        out, last = nn.lstm(inputs[0], None, *inputs[1:])
        f = pytensor.function(inputs, [out, *pytensor.grad((out**2).sum() + last[1].sum(), inputs)], mode="JAX")
    found = f(*arrays[:5])
    wanted = one_row("lstm", arrays[0][:, 1], [np.zeros(3)] * 2, arrays[1:5])[0]
    np.testing.assert_allclose(found[0][:, 1], wanted, rtol=1e-4, atol=1e-5)
    assert all(np.abs(v).max() > 0 for v in found[1:])


# Options


def test_one_direction_and_no_options(context):
    """Without states, biases and lengths; forwards and backwards."""
    x, w, u = pt.ftensor3("x"), pt.fmatrix("w"), pt.fmatrix("u")
    outputs = [*nn.gru(x, None, w, u), *nn.gru(x, None, w, u, go_backwards=True)]
    arrays = arguments("gru")
    zeros = [np.zeros_like(v) for v in arrays]
    f = opencl([x, w, u], outputs)
    found = f(*(arrays[k].astype("float32") for k in (0, 1, 2)))
    both = [*arrays[1:3], *zeros[3:5]] * 2
    out, last = expected("gru", arrays[0], *both, zeros[9], lengths=[4] * 3)
    wanted = out[:, :, :3], last[0], out[:, :, 3:], last[1]
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
def test_lengths_of_one_that_are_known(kind):
    """Static shapes: one step, one row and one unit, given by some of the arrays only."""
    arrays = [values(0, 1, 1, 2), values(1, GATES[kind], 2), values(2, GATES[kind], 1), values(3, 1, 1)]
    for known in range(4):
        shapes = [v.shape if k == known else (None,) * v.ndim for k, v in enumerate(arrays)]
        inputs = [pt.tensor(shape=shape, dtype="float64") for shape in shapes]
        x, w, u, h = inputs
        out, last = LAYERS[kind](x, (h, h) if kind == "lstm" else h, w, u)
        assert out.type.ndim == 3
        gradient = pytensor.grad(out.sum() + (last[1] if kind == "lstm" else last).sum(), h)
        assert gradient.type.ndim == 2
    f = pytensor.function(inputs, [out, gradient])
    wanted = one_row(kind, arrays[0][:, 0], [arrays[3][0]] * 2, (arrays[1], arrays[2], *[np.zeros(GATES[kind])] * 2))
    np.testing.assert_allclose(f(*arrays)[0][0], wanted[0], rtol=1e-12)


def test_dtypes():
    x, w, u, h = pt.ftensor3(), pt.fmatrix(), pt.dmatrix(), pt.fmatrix()
    out, last = nn.rnn(x, h, w, u)
    assert (out.dtype, last.dtype) == ("float64", "float64")
    out, (last, _) = nn.lstm(x, None, w, w)
    assert (out.dtype, last.dtype) == ("float32", "float32")
    half = pt.tensor3(dtype="float16")
    out, _ = nn.gru(half, None, *(pt.matrix(dtype="float16") for _ in range(2)))
    assert out.dtype == "float16"


# Gradients


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_second_gradients(name, rng):
    """The gradient of a gradient, which reads what the steps have saved too."""
    kind, options = CASES[name]

    def gradient(x, w, u):
        out, last = LAYERS[kind](x, None, w, u, lengths=np.array([2, 1]), **options)
        total = (out**3).sum() + (last[1] if kind == "lstm" else last).sum()
        return pt.concatenate([v.ravel() for v in pytensor.grad(total, [x, w, u])])

    gates = GATES[kind] * 2
    verify_grad(gradient, [rng.normal(size=s) for s in ((2, 2, 1), (gates, 1), (gates, 2))], rng=rng, eps=1e-6)


def test_states_and_lengths_without_gradient():
    lengths = pt.lvector("lengths")
    x, w, u = pt.dtensor3("x"), pt.dmatrix("w"), pt.dmatrix("u")
    out, _ = nn.rnn(x, None, w, u, lengths=lengths)
    with pytest.raises(pytensor.gradient.DisconnectedInputError):
        pytensor.grad(out.sum(), lengths)


# Graphs


def test_products_of_all_steps_are_one(context):
    """The input's products of both directions are one, and so is the gradient of each matrix."""
    inputs, results, gradients = graph("lstm", "float32")
    products = [op for op in device_ops(opencl(inputs, results)) if "Dot22" in str(op) or isinstance(op, GpuGemm)]
    steps = [op for op in products if "GpuScan" not in str(op)]
    assert len(steps) == 1
    f = opencl(inputs, gradients)
    backward = [op for op in device_ops(f) if isinstance(op, GpuScan) and "Gradient" in op.host.name]
    assert 1 <= len(backward) <= 2  # PyTensor may make one loop of two
    assert all(op.last_first for op in backward)
    assert sum(op.step_kernels for op in backward) == 4  # in each direction the gates and their product
    outside = [node for node in f.maker.fgraph.apply_nodes if "Dot22" in str(node.op) or isinstance(node.op, GpuGemm)]
    outside = [node for node in outside if not isinstance(node.op, GpuScan)]
    assert (
        len(outside) == 5
    )  # products of the input; gradients of both weights_hh, of the joined weight_ih, of the input


@pytest.mark.parametrize("mode", ["OPENCL", "FAST_COMPILE"])
def test_batches(context, rng, mode):
    """Batches of inputs are more rows; batches of weights are more loops, which PyTensor runs one by one."""
    x, w, u = pt.ftensor3("x"), pt.fmatrix("w"), pt.fmatrix("u")
    xs, us = pt.ftensor4("xs"), pt.ftensor3("us")
    out, (_, c) = nn.lstm(x, None, w, u, lengths=np.array([3, 1]))
    arrays = [rng.normal(size=s).astype("float32") for s in ((2, 3, 2, 2), (8, 2), (2, 8, 2))]
    one = pytensor.function([x, w, u], [out, c])
    cases = [({x: xs}, lambda k: (arrays[0][k], arrays[1], arrays[2][0])), ({x: xs, u: us}, None)]
    for batch, pick in cases if mode == "OPENCL" else cases[:1]:
        inputs = [xs, w, us] if pick is None else [xs, w, u]
        given = arrays if pick is None else [arrays[0], arrays[1], arrays[2][0]]
        f = pytensor.function(inputs, vectorize_graph([out, c], batch), mode=mode)
        if mode == "OPENCL":
            assert_on_device(f, GpuScan)
        found = f(*given)
        for k in range(2):
            row = pick(k) if pick else (arrays[0][k], arrays[1], arrays[2][k])
            for got, want in zip(found, one(*row), strict=True):
                np.testing.assert_allclose(got[k], want, rtol=1e-4, atol=1e-6)


# Errors


X, H0 = pt.tensor("x", shape=(4, 3, 2), dtype="float32"), pt.tensor("h", shape=(3, 5), dtype="float32")
W, U, B = (pt.tensor(shape=shape, dtype="float32") for shape in ((20, 2), (20, 5), (20,)))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.lstm(X, None, W, U[:, :4]), ValueError, r"weight_hh does not fit|weight_ih does not fit weight_hh"),
        (lambda: nn.lstm(X, (H0[:, :4], H0), W, U), ValueError, r"h0 does not fit weight_hh"),
        (lambda: nn.lstm(X, (H0, H0[:2]), W, U), ValueError, r"c0 does not fit input.*\(2, 5\) and \(4, 3, 2\)"),
        (lambda: nn.lstm(X, None, W[:, :1], U), ValueError, r"weight_ih does not fit input"),
        (lambda: nn.lstm(X, None, W[:16], U), ValueError, r"weight_ih does not fit weight_hh.*\(4 \* H, I\)"),
        (lambda: nn.lstm(X, None, W, U, B[:5]), ValueError, "bias_ih does not fit"),
        (lambda: nn.lstm(X, None, W, U, B, lengths=np.array([1, 2])), ValueError, "lengths does not fit input"),
        (lambda: nn.lstm(X, None, W, U, B, lengths=np.array([1, 2, 5])), ValueError, r"4, not \[1, 2, 5\]"),
        (lambda: nn.lstm(X, None, W, U, B, lengths=np.array([1, 2, 3.0])), TypeError, "lengths must be integers"),
        (lambda: nn.lstm(X, H0, W, U), TypeError, r"pair \(h0, c0\)"),
        (lambda: nn.gru(X[0], None, W[:15], U[:15]), TypeError, r"input must have 3 dimensions, \(T, N, I\), not 2"),
        (lambda: nn.gru(pt.cast(X, "int32"), None, W, U), TypeError, "not int32: cast it first"),
        (lambda: nn.gru(pt.cast(X, "complex64"), None, W, U), TypeError, "not complex64: cast it first"),
        (lambda: nn.gru(X, None, "w", U), TypeError, "weight_ih"),
        (lambda: nn.gru(X, None, W[:15], U[:15], reset_after="yes"), TypeError, "reset_after must be True or False"),
        (lambda: nn.rnn(X, None, W[:5], U[:5], go_backwards=2), TypeError, "go_backwards must be True or False"),
        (lambda: nn.rnn(X, None, W[:5], U[:5], nonlinearity="sigmoid"), ValueError, "'tanh', 'relu', not 'sigmoid'"),
        (lambda: nn.bidirectional("lstm", X, None, (W, U), (W, U)), TypeError, "nn.rnn, nn.gru or nn.lstm"),
        (lambda: nn.bidirectional(nn.lstm, X, H0, (W, U), (W, U)), TypeError, "states must be a pair"),
        (lambda: nn.bidirectional(nn.lstm, X, None, (W, U), W), ValueError, "backward must be"),
        (lambda: nn.bidirectional(nn.lstm, X, None, (W, U), (W[:, :1], U)), ValueError, "weight_ih does not fit input"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_weight_is_needed():
    with pytest.raises(TypeError, match="weight_hh"):
        nn.rnn(X, None, W[:5], None)
