"""Convolutions of signals in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.signal import convolve1d, convolve2d

import pytensor_cl
from pytensor_cl import nn
from pytensor_cl.ops.conv import GpuConv, GpuConvGradInput, GpuConvGradWeight, GpuConvolve
from pytensor_cl.ops.epilogue import GpuEpilogue
from tests.helpers import assert_on_device, check_against_python, host_ops, opencl
from tests.nn.test_conv import BATCHES, batched_case, check_batches


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def check(inputs, outputs, *arguments):
    return check_against_python(inputs, outputs, (GpuConvolve,), *arguments)


def draw(rng, dtype, *shapes):
    return [(rng.normal(size=s) * (1 if dtype.startswith("float") else 9)).astype(dtype) for s in shapes]


MODES = ("full", "valid", "same")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_one_dimension(context, rng, dtype):
    x, w = pt.vector("x", dtype=dtype), pt.vector("w", dtype=dtype)
    lengths = [(9, 4), (4, 9), (1, 1), (70, 33), (33, 33)]
    arguments = [draw(rng, dtype, *pair) for pair in lengths]
    long, short = draw(rng, dtype, 80, 21)
    check([x, w], [convolve1d(x, w, mode=m) for m in MODES], *arguments, (long[::-2], short[::3]), (long[::-1], short))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_two_dimensions(context, rng, dtype):
    x, w = pt.matrix("x", dtype=dtype), pt.matrix("w", dtype=dtype)
    shapes = [((9, 8), (4, 3)), ((3, 4), (9, 40)), ((1, 1), (1, 1)), ((20, 40), (20, 5))]
    outputs = [convolve2d(x, w, mode=m, method="direct") for m in MODES]
    arguments = [draw(rng, dtype, *pair) for pair in shapes]
    large, small = draw(rng, dtype, (19, 24), (5, 6))
    check([x, w], outputs, *arguments, (large.T[::-1], small[::2, ::-1]))


def test_boundaries(context, rng):
    x, w = pt.matrix("x", dtype="float32"), pt.matrix("w", dtype="float32")
    outputs = [convolve2d(x, w, mode="same", boundary=b, method="direct") for b in ("wrap", "symm")]
    check([x, w], outputs, draw(rng, "float32", (9, 8), (4, 3)))


def test_batches(context, rng):
    x, w, v = pt.tensor4("x", dtype="float32"), pt.tensor3("w", dtype="float32"), pt.matrix("v", dtype="float32")
    row = pt.vector("row", dtype="float32")
    outputs = [convolve1d(x, row), convolve1d(row, x, mode="valid"), convolve1d(x, x[:, :, ::-1]), convolve1d(x[0], w)]
    outputs += [convolve2d(x, v, mode=m, method="direct") for m in MODES]
    outputs += [convolve2d(w[0], x, method="direct"), convolve2d(x[0], w, mode="valid", method="direct")]
    shapes = (2, 3, 9, 20), (3, 9, 20), (3, 2), 4
    check([x, w, v, row], outputs, draw(rng, "float32", *shapes))
    two = [
        pt.tensor3(n, dtype="float32", shape=s) for n, s in zip("ab", ((None, 1, None), (1, None, None)), strict=True)
    ]
    check(two, [convolve1d(*two), convolve1d(*two, mode="valid")], draw(rng, "float32", (3, 1, 20), (1, 4, 7)))


def test_mixed_dtypes(context, rng):
    x, w = pt.vector("x", dtype="float32"), pt.vector("w", dtype="int8")
    y = pt.vector("y", dtype="float64")
    values = [v for d, n in (("float32", 20), ("int8", 5), ("float64", 6)) for v in draw(rng, d, n)]
    check([x, w, y], [convolve1d(x, w), convolve1d(y, x, mode="valid"), convolve1d(w, y)], values)


def test_gradients(context, rng):
    x, w = pt.vector("x", dtype="float64"), pt.vector("w", dtype="float64")
    a, b = pt.tensor3("a", dtype="float64"), pt.matrix("b", dtype="float64")
    costs = [pt.sqr(convolve1d(x, w, mode=m)).sum() for m in MODES]
    outputs = [g for cost in costs for g in pytensor.grad(cost, [x, w])]
    check([x, w], outputs, draw(rng, "float64", 12, 5), draw(rng, "float64", 5, 5))
    costs = [pt.sqr(convolve2d(a, b, mode=m, method="direct")).sum() for m in ("full", "valid")]
    check([a, b], [g for cost in costs for g in pytensor.grad(cost, [a, b])], draw(rng, "float64", (3, 6, 7), (2, 3)))


def test_a_mode_that_is_computed(context, rng):
    x, w, n = pt.vector("x", dtype="float32"), pt.vector("w", dtype="float32"), pt.lscalar("n")
    y = pt.signal.conv.Convolve1d()(x, w, pytensor.tensor.scalar_from_tensor(pt.gt(n, 3)))
    values = draw(rng, "float32", 12, 5)
    check([x, w, n], [y], (*values, 1), (*values, 5))


def test_infinities_stay_where_they_are(context):
    x, w = pt.vector("x", dtype="float32"), pt.vector("w", dtype="float32")
    f = opencl([x, w], convolve1d(x, w))
    assert_on_device(f, GpuConvolve)
    values = np.array([1, 2, np.inf, 3] + [1] * 40, "float32"), np.array([1, np.inf, 2], "float32")
    np.testing.assert_array_equal(f(*values), np.convolve(*values))


def test_errors(context):
    x, w = pt.vector("x", dtype="float32"), pt.vector("w", dtype="float32")
    f = opencl([x, w], convolve1d(x, w))
    one, none = np.ones(3, "float32"), np.ones(0, "float32")
    for values in ((one, none), (none, one)):
        with pytest.raises(ValueError, match="empty"):
            f(*values)
    a, b = pt.matrix("a", dtype="float32"), pt.matrix("b", dtype="float32")
    g = opencl([a, b], convolve2d(a, b, mode="valid"))
    with pytest.raises(ValueError, match="valid"):
        g(np.ones((3, 4), "float32"), np.ones((4, 3), "float32"))
    h = opencl([a, b], convolve1d(a, b))
    with pytest.raises(ValueError, match="batch"):
        h(np.ones((1, 4), "float32"), np.ones((3, 2), "float32"))


def test_dtypes_that_are_computed_from_parts(context, rng):
    """Complex numbers, truth values and halves; with real numbers, and in batches."""
    z, w, half = pt.zmatrix("z"), pt.cvector("w"), pt.tensor("h", dtype="float16", shape=(None,))
    x, t = pt.fvector("x"), pt.vector("t", dtype="bool")
    ones = [convolve1d(z, w), convolve1d(w, x, mode="valid"), convolve1d(x, w), convolve1d(x, half), convolve1d(t, t)]
    twos = [convolve2d(z, z, method="direct"), convolve2d(z.real, z, mode="same", method="direct")]
    real = draw(rng, "float32", (3, 8), (3, 8), 5, 5, 20, 6)
    truth = rng.random(9) < 0.4
    values = real[0] + 1j * real[1].astype("float64"), real[2] + 1j * real[3], real[5].astype("float16"), real[4], truth
    f = check([z, w, half, x, t], [*ones, *twos], values)
    assert not any("Convolve" in str(op) for op in host_ops(f))


# Convolutions of batches with channels, and their gradients

GRADIENTS = (GpuConvGradInput, GpuConvGradWeight)
CONVS = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}
TRANSPOSED = {1: nn.conv1d_transpose, 2: nn.conv2d_transpose, 3: nn.conv3d_transpose}
# Parameters, and shapes of x and w: batches and kernels of length 0 and 1, kernels that do not fit.
LAYERS = {
    "plain": (
        {},
        [((2, 3, 7, 9), (4, 3, 3, 2)), ((1, 1, 1, 1), (1, 1, 1, 1)), ((0, 3, 5, 5), (4, 3, 2, 2)), ((2, 3, 2, 2), (4, 3, 3, 3))],
    ),
    "half": ({"border_mode": "half"}, [((2, 3, 7, 9), (4, 3, 3, 5)), ((1, 2, 6, 6), (3, 2, 2, 1)), ((1, 2, 1, 1), (3, 2, 3, 3))]),
    "full": ({"border_mode": "full", "filter_dilation": (2, 1)}, [((2, 3, 7, 9), (4, 3, 3, 5)), ((1, 2, 1, 1), (3, 2, 3, 3))]),
    "strided": (
        {"subsample": (2, 3), "filter_dilation": (1, 2), "border_mode": ((1, 0), (0, 2)), "filter_flip": False},
        [((2, 3, 8, 11), (4, 3, 3, 2)), ((1, 1, 1, 1), (1, 1, 1, 1))],
    ),
    "num_groups": ({"num_groups": 2, "border_mode": 1}, [((2, 4, 6, 7), (6, 2, 3, 3)), ((1, 2, 5, 5), (2, 1, 1, 1))]),
    "depthwise": ({"num_groups": 3, "border_mode": "half", "subsample": 2}, [((2, 3, 9, 8), (6, 1, 3, 3)), ((1, 3, 4, 4), (3, 1, 2, 2))]),
    "one dimension": ({"subsample": 2, "border_mode": ((2, 1),)}, [((3, 2, 20), (4, 2, 5)), ((1, 2, 4), (4, 2, 1))]),
    "three dimensions": ({"subsample": (1, 2, 1), "border_mode": "half"}, [((2, 2, 4, 5, 6), (3, 2, 3, 3, 2))]),
}  # fmt: skip


def weighted(y):
    """A sum in which each element has another weight."""
    return (y * (1 + pt.arange(y.size, dtype="float64").reshape(y.shape).astype(y.dtype) / 64)).sum()


@pytest.mark.parametrize("layer", LAYERS)
def test_layers(context, rng, layer):
    options, shapes = LAYERS[layer]
    ndim = len(shapes[0][0]) - 2
    x, w = (pt.tensor(n, shape=(None,) * (ndim + 2), dtype="float32") for n in "xw")
    y = CONVS[ndim](x, w, **options)
    outputs = [y, *pytensor.grad(weighted(pt.sqr(y)), [x, w])]
    check_against_python([x, w], outputs, (GpuConv, *GRADIENTS), *(draw(rng, "float32", *pair) for pair in shapes))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_dtypes_of_layers(context, rng, dtype):
    x, w = pt.tensor4("x", dtype=dtype), pt.tensor4("w", dtype=dtype)
    y = nn.conv2d(x, w, border_mode="half")
    arguments = draw(rng, dtype, (2, 3, 6, 7), (4, 3, 3, 3))
    if dtype == "int32":
        check_against_python([x, w], [y], (GpuConv,), arguments)
        return
    outputs = [y, *pytensor.grad(y.astype("float64").sum(), [x, w])]
    check_against_python([x, w], outputs, (GpuConv, *GRADIENTS), arguments)


def test_mixed_dtypes_of_layers(context, rng):
    x, w = pt.tensor3("x", dtype="float32"), pt.tensor3("w", dtype="float64")
    arguments = [draw(rng, d, s)[0] for d, s in (("float32", (2, 3, 9)), ("float64", (4, 3, 2)))]
    y = nn.conv1d(x, w)
    check_against_python([x, w], [y, *pytensor.grad(y.sum(), [x, w])], (GpuConv, *GRADIENTS), arguments)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_transposed(context, rng, ndim):
    x, w = (pt.tensor(n, shape=(None,) * (ndim + 2), dtype="float32") for n in "xw")
    z = TRANSPOSED[ndim](x, w, input_dilation=2, output_padding=1, border_mode=1, num_groups=2)
    outputs = [z, *pytensor.grad(weighted(z), [x, w])]
    shapes = [((2, 4, *(4, 5, 3)[:ndim]), (4, 3, *(3, 2, 4)[:ndim])), ((1, 2, *(1,) * ndim), (2, 1, *(3,) * ndim))]
    check_against_python([x, w], outputs, (GpuConv, *GRADIENTS), *(draw(rng, "float32", *pair) for pair in shapes))


def test_second_derivatives_of_layers(context, rng):
    x, w, v = (pt.tensor3(n, dtype="float64") for n in "xwv")
    y = nn.conv1d(x, w, subsample=2, border_mode="half", num_groups=2)
    first = pytensor.grad(weighted(y**3), x)
    outputs = [
        *pytensor.grad((first * v).sum(), [x, w]),
        pytensor.gradient.pushforward(y, [x], [v], use_op_pushforward=True),
    ]
    arguments = draw(rng, "float64", (2, 4, 9), (6, 2, 3), (2, 4, 9))
    check_against_python([x, w, v], outputs, (GpuConv, *GRADIENTS), arguments)


def test_layers_of_views(context, rng):
    x, w = pt.tensor4("x", dtype="float32"), pt.tensor4("w", dtype="float32")
    y = nn.conv2d(x.transpose(0, 3, 1, 2)[:, ::-1], w[:, :, ::-1, ::2], border_mode="full")
    arguments = draw(rng, "float32", (2, 6, 7, 3), (4, 3, 3, 5))
    check_against_python([x, w], [y, *pytensor.grad(weighted(y), [x, w])], (GpuConv, *GRADIENTS), arguments)


def test_large_kernels_go_through_fourier_transforms(context, rng):
    """Forward and both gradients, and what `explain` says of them after a call."""
    x, w = pt.tensor4("x", dtype="float32"), pt.tensor4("w", dtype="float32")
    y = nn.conv2d(x, w, border_mode="half")
    arguments = draw(rng, "float32", (2, 6, 48, 48), (8, 6, 21, 21))
    f = opencl([x, w], [y, *pytensor.grad(pt.sqr(y).sum(), [x, w])])
    assert_on_device(f, GpuConv, *GRADIENTS)
    results = [np.asarray(r) for r in f(*arguments)]
    padded = np.pad(arguments[0].astype("float64"), ((0, 0), (0, 0), (10, 10), (10, 10)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (21, 21), (2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, arguments[1][..., ::-1, ::-1], optimize=True)
    assert np.abs(results[0] - expected).max() < 1e-5 * np.abs(expected).max()
    slope = 2 * np.einsum("nchwij,nohw->ocij", windows, expected, optimize=True)[..., ::-1, ::-1]
    assert np.abs(results[2] - slope).max() < 1e-5 * np.abs(slope).max()
    explanation = pytensor_cl.explain(f)
    methods = {type(n.op): n.methods for n in explanation.device_nodes if n.methods}
    assert methods == dict.fromkeys((GpuConv, *GRADIENTS), ("fourier",))
    assert "method so far" in str(explanation)


def test_shapes_that_do_not_fit(context):
    x, w = pt.tensor3("x", dtype="float32"), pt.tensor3("w", dtype="float32")
    f = opencl([x, w], nn.conv1d(x, w, num_groups=2))
    assert_on_device(f, GpuConv)
    for shapes in (((1, 4, 5), (2, 4, 2)), ((1, 4, 5), (3, 2, 2))):
        with pytest.raises(ValueError, match="Shape mismatch"):
            f(*(np.ones(s, "float32") for s in shapes))
    g = opencl([x, w], nn.conv1d_transpose(x, w))
    with pytest.raises(ValueError, match="Shape mismatch"):
        g(np.ones((1, 4, 5), "float32"), np.ones((3, 2, 2), "float32"))


def layers(pad, groups=1):
    """Return a layer's inputs and its output, and that of a transposed one, with bias, activation and a shortcut."""
    x, w, r = (pt.tensor4(name, dtype="float32") for name in "xwr")
    b = pt.vector("b", dtype="float32")
    y = nn.conv2d(x, w, border_mode=pad, num_groups=groups) + b[None, :, None, None]
    z = nn.conv2d_transpose(x, w, border_mode=1) + b[None, :, None, None] + r
    return [x, w, b, r], [pt.maximum(y, 0), pt.tanh(z)]


def test_bias_and_activation_are_part_of_the_convolution(context, rng):
    inputs, outputs = layers("half")
    arguments = draw(rng, "float32", (2, 20, 17, 19), (20, 20, 3, 3), (20,), (2, 20, 17, 19))
    f = check_against_python(inputs, outputs, (GpuEpilogue,), arguments)
    names = [type(node.op).__name__ for node in f.maker.fgraph.toposort()]
    assert names.count("GpuEpilogue") == 2
    assert not {"GpuConv", "GpuConvGradInput", "GpuElemwise"} & set(names)


def test_other_functions_follow_the_convolution(context, rng):
    x, w = pt.tensor4("x", dtype="float32"), pt.tensor4("w", dtype="float32")
    row = pt.vector("row", dtype="float32")
    y = nn.conv2d(x, w)
    outputs = [y + row, nn.conv2d(x, w[::-1]) > 0, pt.sqr(nn.conv2d(x[::-1], w)).sum()]  # by column; to bool; summed up
    arguments = draw(rng, "float32", (2, 3, 9, 11), (12, 3, 3, 3), (9,))
    check_against_python([x, w, row], outputs, (), arguments)


def test_gradients_of_a_layer(context, rng):
    inputs, outputs = layers("half")
    cost = sum(pt.sqr(out).sum() for out in outputs)
    slopes = pytensor.grad(cost, inputs[:3])
    second = pytensor.grad(pt.sqr(slopes[0]).sum(), inputs[1])
    arguments = draw(rng, "float32", (1, 9, 7, 6), (9, 9, 3, 3), (9,), (1, 9, 7, 6))
    check_against_python(inputs, [*slopes, second], (), [0.1 * a for a in arguments])


def test_symbolic_parameters(context, rng):
    step, spread, pad = (pt.lscalar(n) for n in ("step", "spread", "pad"))
    x, w = pt.tensor4("x", dtype="float32"), pt.tensor4("w", dtype="float32")
    y = nn.conv2d(x, w, border_mode=((pad, 0), "half"), subsample=(step, 1), filter_dilation=(1, spread))
    z = nn.conv2d_transpose(y, w, border_mode=pad, input_dilation=step)
    outputs = [pt.tanh(y), z, *pytensor.grad(weighted(pt.sqr(y)), [x, w])]
    arrays = draw(rng, "float32", (2, 3, 7, 9), (3, 3, 3, 2))
    calls = [(*arrays, *numbers) for numbers in ((1, 1, 0), (2, 3, 1), (3, 1, 2), (1, 1, 0))]
    f = check_against_python([x, w, step, spread, pad], outputs, (GpuConv, *GRADIENTS), *calls)
    for _ in range(4):  # the graph of repeated calls, too
        for wanted, call in zip([f(*c) for c in calls[:3]], calls[:3], strict=True):
            for got, value in zip(f(*call), wanted, strict=True):
                np.testing.assert_array_equal(got, value)
    for wrong in ((0, 1, 0), (1, -1, 0), (1, 1, -1)):
        with pytest.raises(ValueError, match="must be"):
            f(*arrays, *wrong)


@pytest.mark.parametrize("batch", BATCHES)
def test_batches_of_convolutions_stay_on_the_device(context, rng, batch):
    inputs, outputs, values, wide, batched = batched_case(rng, 2, BATCHES[batch], "float32")
    f = opencl(wide, batched)
    assert_on_device(f, GpuConv, *GRADIENTS)
    assert not any("Conv" in str(op) or "Blockwise" in str(op) for op in host_ops(f))
    check_batches(f, pytensor.function(inputs, outputs, mode="FAST_COMPILE"), values, BATCHES[batch])


def test_a_loop_over_convolutions_stays_on_the_device(context, rng):
    x, h, w = pt.tensor5("x", dtype="float32"), pt.tensor4("h", dtype="float32"), pt.tensor4("w", dtype="float32")

    def step(image, state, filters):
        return pt.tanh(nn.conv2d(image, filters, border_mode="half") + state)

    states = pytensor.scan(step, sequences=[x], outputs_info=[h], non_sequences=[w], return_updates=False)
    outputs = [states, *pytensor.grad(pt.sqr(states).sum(), [h, w])]
    arguments = draw(rng, "float32", (4, 2, 3, 6, 5), (2, 4, 6, 5), (4, 3, 3, 3))
    f = check_against_python([x, h, w], outputs, (), arguments)
    assert not any("Conv" in str(op) or "Scan" in str(op) for op in host_ops(f))
