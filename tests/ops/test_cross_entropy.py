"""Cross entropy on the device: one kernel for losses and gradient, in every layout, and its errors."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import nn
from pytensor_cl.nn.cross_entropy import CrossEntropy
from pytensor_cl.ops.cross_entropy import GpuCrossEntropy, row_function
from pytensor_cl.routines.rowwise.routine import Rowwise
from tests.helpers import assert_close, check_against_python, device_ops, host_ops, opencl


@pytest.fixture(autouse=True)
def on_the_device():
    with pytensor.config.change_flags(opencl__placement="device", floatX="float32", on_opt_error="raise"):
        yield


def check(loss, inputs, *arguments):
    """Compare a loss and its gradient with the host; both come from one node."""
    f = check_against_python(inputs, [loss, pytensor.grad(loss, inputs[0])], (GpuCrossEntropy,), *arguments)
    (node,) = (op.host for op in device_ops(f) if isinstance(op, GpuCrossEntropy))
    assert (node.loss, node.gradient) == (True, True)
    return f


def logits_and_labels(rng, shape, dtype="float32"):
    labels = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    labels[..., :: max(1, shape[0] // 3)] = -100
    return (3 * rng.normal(size=shape)).astype(dtype), labels


@pytest.mark.parametrize(
    "options", [{}, {"weight": 1}, {"weight": 1, "label_smoothing": 0.2}, {"reduction": "sum", "label_smoothing": 0.1}]
)
def test_labels(context, rng, options):
    x, y = pt.fmatrix("x"), pt.lvector("y")
    arguments = [logits_and_labels(rng, shape) for shape in ((64, 10), (5, 300), (3000, 10), (1, 2), (3, 40_000))]
    if "weight" in options:
        arguments, options = [a for a in arguments if a[0].shape[1] == 10], {**options, "weight": rng.random(10)}
        options["weight"] = options["weight"].astype("float32")
    check(nn.softmax_cross_entropy(x, y, **options), [x, y], *arguments)


def test_probabilities(context, rng):
    x, t = pt.fmatrix("x"), pt.fmatrix("t")
    arguments = [(rng.normal(size=s).astype("float32"), rng.random(s).astype("float32")) for s in ((70, 33), (2, 9000))]
    arguments[0][1][:, ::3] = 0
    arguments[0][0][:, ::3] = -np.inf
    for smoothing in (0.0, 0.1)[: 1 + (context.info.schedule == "cpu")]:
        rest = arguments[1:] if smoothing else arguments
        check(nn.softmax_cross_entropy(x, t, label_smoothing=smoothing), [x, t], *rest)


def test_images(context, rng):
    x, y = pt.ftensor4("x"), pt.ltensor3("y")
    arguments = [logits_and_labels(rng, shape) for shape in ((2, 21, 16, 17), (1, 3, 5, 2), (4, 150, 1, 3))]
    check(nn.softmax_cross_entropy(x, y), [x, y], *arguments)


def test_sequences(context, rng):
    x, y = pt.tensor3("x", dtype="float64"), pt.lmatrix("y")
    loss = nn.softmax_cross_entropy(x, y, axis=-1)
    values = rng.normal(size=(3, 4, 65)), rng.integers(0, 65, (3, 4))
    f = check(loss, [x, y], values)
    strided = np.asfortranarray(values[0]), values[1]
    assert_close(f(*strided)[0], f(*values)[0])


def test_loss_alone_and_gradient_that_depends_on_it(context, rng):
    x, y = pt.fmatrix("x"), pt.lvector("y")
    values = logits_and_labels(rng, (20, 12))
    loss = nn.softmax_cross_entropy(x, y)
    check_against_python([x, y], [loss], (GpuCrossEntropy,), values)
    square = pt.sqr(loss)
    f = check_against_python([x, y], [square, pytensor.grad(square, x)], (GpuCrossEntropy,), values)
    assert sum(isinstance(op, GpuCrossEntropy) for op in device_ops(f)) == 2


def test_second_gradient(context, rng):
    x, y = pt.fmatrix("x"), pt.lvector("y")
    slope = pytensor.grad(nn.softmax_cross_entropy(x, y, label_smoothing=0.1), x)
    again = pytensor.grad(pt.sqr(slope).sum(), x)
    assert again.dtype == "float32"
    check_against_python([x, y], [again], (GpuCrossEntropy,), logits_and_labels(rng, (6, 5)))


def test_everything_is_on_the_device(context, rng):
    hidden, weight = pt.fmatrix("hidden"), pytensor.shared(rng.normal(size=(8, 10)).astype("float32"))
    y = pt.lvector("y")
    loss = nn.softmax_cross_entropy(hidden @ weight, y)
    f = opencl([hidden, y], loss, updates={weight: weight - pytensor.grad(loss, weight)})
    names = {type(op).__name__ for op in host_ops(f)}
    assert names <= {"Shape_i", "Elemwise", "ScalarFromTensor"}  # the check of lengths
    first, second = (float(f(rng.normal(size=(32, 8)).astype("float32"), rng.integers(0, 10, 32))) for _ in range(2))
    assert first != second


@pytest.mark.parametrize("function", [nn.softmax_cross_entropy, nn.nll])
def test_wrong_label(context, rng, function):
    x, y = pt.fmatrix("x"), pt.lvector("y")
    loss = function(x, y)
    f = opencl([x, y], [loss, pytensor.grad(loss, x)])
    values = rng.normal(size=(4, 5)).astype("float32")
    for label in (5, -1, 1 << 33):
        f(values, np.array([0, 1, -100, 4]))
        with pytest.raises(IndexError, match=f"{function.__name__}: target has a label outside of 0 to"):
            f(values, np.array([0, 1, label, 4]))
    with pytest.raises(ValueError, match="target needs the lengths of input"):
        f(values, np.zeros(1, "int64"))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_row_counts(context, smoothing):
    x, y = pt.fmatrix("x"), pt.lvector("y")
    loss = nn.softmax_cross_entropy(x, y, label_smoothing=smoothing)
    f = opencl([x, y], [loss, pytensor.grad(loss, x)])
    for n in (3, 0):
        value, slope = f(np.full((n, 4), np.nan, "float32"), np.full(n, -100))
        assert value == 0 and slope.shape == (n, 4) and not slope.any()


def test_what_has_no_kernel(context, rng):
    """One class, and float16, which is computed as float32."""
    one, y = pt.tensor("one", shape=(None, 1), dtype="float32"), pt.lvector("y")
    f = opencl([one, y], nn.softmax_cross_entropy(one, y))
    assert not any(isinstance(op, GpuCrossEntropy) for op in device_ops(f))
    assert f(np.ones((3, 1), "float32"), np.zeros(3, "int64")) == 0
    half = pt.matrix("half", dtype="float16")
    loss = nn.softmax_cross_entropy(half, y)
    values = rng.normal(size=(7, 9)).astype("float16"), rng.integers(0, 9, 7)
    check_against_python([half, y], [loss, pytensor.grad(loss, half)], (GpuCrossEntropy,), values)


def test_auto_placement(context, rng):
    x, y = pt.fmatrix("x"), pt.lvector("y")
    loss = nn.softmax_cross_entropy(x, y)
    with pytensor.config.change_flags(opencl__placement="auto"):
        f = opencl([x, y], [loss, pytensor.grad(loss, x)])
    values = logits_and_labels(rng, (50, 7))
    host = pytensor.function([x, y], [loss, pytensor.grad(loss, x)], mode="FAST_COMPILE")
    for got, wanted in zip(f(*values), host(*values), strict=True):
        assert_close(got, wanted)


def test_kernels_for_gpus(context, rng):
    """Schedule simt, with all the operands, and devices without double precision."""
    op = CrossEntropy(axis=1, by_label=True, by_target=True, loss=True, gradient=True)
    function = row_function(op, "float32")
    x, t = rng.normal(size=(9, 70)).astype("float32"), rng.random((1, 70)).astype("float32")
    labels, classes = rng.integers(-1, 70, 9).astype("int32"), np.arange(70, dtype="int32")[None]
    factors = rng.random((2, 9)).astype("float32")
    arrays = x, classes, labels, t, *factors
    dropped = [a.ndim == 1 for a in arrays] + [True, True, False]
    known = [(False, False), (True, False), (False,), (True, False), (False,), (False,)]
    found = [
        Rowwise(context, function, 2, (1,), dropped, known, schedule, has_fp64)(*map(context.from_host, arrays))
        for schedule, has_fp64 in (("cpu", False), ("simt", True), ("simt", False))
    ]
    inputs = [
        pt.tensor(shape=tuple(1 if one else None for one in k), dtype=a.dtype)
        for a, k in zip(arrays, known, strict=True)
    ]
    host = pytensor.function(inputs, op(*inputs), mode="FAST_COMPILE")(*arrays)
    for each in found:
        for got, wanted in zip(each, host, strict=True):
            assert_close(got.to_host(), wanted)
