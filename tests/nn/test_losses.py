"""Losses per element: values by SciPy, gradients by finite differences, border cases and errors."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from scipy import special

from pytensor_cl import nn
from tests.helpers import check_against_python, device_ops, opencl


@pytest.fixture(autouse=True)
def without_numba():
    """What `verify_grad` compiles by itself would take seconds each time."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", floatX="float64"):
        yield


def value_and_slope(function, x, *rest, **options):
    """A loss and the gradient of its sum."""
    variable = pt.tensor("x", shape=(None,) * np.ndim(x), dtype=np.asarray(x).dtype)
    loss = function(variable, *rest, **options)
    return pytensor.function([variable], [loss, pytensor.grad(loss.sum(), variable)])(x)


def test_binary_crossentropy(rng):
    p, t = rng.random((3, 4)), rng.random((3, 4))
    value, slope = value_and_slope(nn.binary_crossentropy, p, t)
    np.testing.assert_allclose(value, -t * np.log(p) - (1 - t) * np.log(1 - p))
    np.testing.assert_allclose(slope, (p - t) / (p * (1 - p)))
    verify_grad(nn.binary_crossentropy, [p, t], rng=rng)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_certain_probabilities(dtype):
    """0 log 0 is 0; a wrong certainty costs 100 and has a finite gradient, as in torch."""
    p, t = np.array([0, 1, 0, 1], dtype), np.array([0, 1, 1, 0])
    value, slope = value_and_slope(nn.binary_crossentropy, p, t)
    np.testing.assert_array_equal(value, [0, 0, 100, 100])
    np.testing.assert_allclose(slope, [1, -1, -1e12, 1e12])
    assert value.dtype == slope.dtype == dtype


def test_with_logits(rng):
    x, t, weight, positive = rng.normal(size=(5, 3)) * 4, rng.random((5, 3)), rng.random((5, 1)), rng.random(3) + 1
    wanted = -positive * t * np.log(special.expit(x)) - (1 - t) * np.log(special.expit(-x))
    for reduction, value in (
        ("none", wanted * weight),
        ("mean", (wanted * weight).mean()),
        ("sum", (wanted * weight).sum()),
    ):
        options = {"weight": weight, "pos_weight": positive, "reduction": reduction}
        np.testing.assert_allclose(nn.binary_crossentropy_with_logits(x, t, **options).eval(), value)
    np.testing.assert_allclose(
        nn.sigmoid_binary_crossentropy(x, t).eval(),
        special.xlogy(-t, special.expit(x)) - special.xlogy(1 - t, special.expit(-x)),
    )
    verify_grad(lambda x, t, w: nn.binary_crossentropy_with_logits(x, t, pos_weight=w), [x, t, positive], rng=rng)

    def slope(x):
        return pytensor.grad(nn.binary_crossentropy_with_logits(x, t, pos_weight=positive), x)

    verify_grad(slope, [x], rng=rng)


def test_with_logits_at_extremes():
    """The gradient at 0 is 1/2 - t; large logits lose nothing and overflow nowhere."""
    x, t = np.array([0, 0, 80, 80, -80, -80, 1e4, np.inf, -np.inf]), np.array([0, 1, 1, 0, 1, 0, 0, 0, 1])
    value, slope = value_and_slope(nn.sigmoid_binary_crossentropy, x, t)
    tail = np.exp(-80)
    np.testing.assert_allclose(value, [np.log(2), np.log(2), tail, 80, 80, tail, 1e4, np.inf, np.inf])
    np.testing.assert_allclose(slope, [0.5, -0.5, -tail, 1, -1, tail, 1, 1, -1])


def test_huber(rng):
    x, t = np.array([-5, -1, 0, 0.5, 1, 3, np.inf, -np.inf]), np.zeros(8)
    value, slope = value_and_slope(nn.huber, x, t, delta=2, reduction="none")
    np.testing.assert_allclose(value, [8, 0.5, 0, 0.125, 0.5, 4, np.inf, np.inf])
    np.testing.assert_allclose(slope, [-2, -1, 0, 0.5, 1, 2, 2, -2])
    verify_grad(lambda x, t: nn.huber(x, t, delta=0.7), [rng.normal(size=(3, 4)), rng.normal(size=(3, 4))], rng=rng)
    np.testing.assert_allclose(nn.huber(np.array([1.0, 3]), np.array([1.0, 0])).eval(), 1.25)


def test_categorical_crossentropy(rng):
    p, labels = special.softmax(rng.normal(size=(3, 2, 4)), -1), rng.integers(0, 4, (3, 2))
    wanted = -np.log(np.take_along_axis(p, labels[..., None], -1)[..., 0])
    np.testing.assert_allclose(nn.categorical_crossentropy(p, labels).eval(), wanted)
    t = rng.random((3, 2, 4))
    np.testing.assert_allclose(nn.categorical_crossentropy(p, t).eval(), -(t * np.log(p)).sum(-1))
    certain = np.array([[0.0, 1.0], [0.0, 1.0]])
    value, slope = value_and_slope(nn.categorical_crossentropy, certain, np.array([1, 0]))
    np.testing.assert_array_equal(value, [0, 100])
    assert np.isfinite(slope).all()


def test_categorical_crossentropy_of_a_softmax():
    """Theano's way to write it: the softmax is recognised, so that nothing is lost where it is 0."""
    x = pt.matrix("x")
    loss = nn.categorical_crossentropy(nn.softmax(x), np.array([0, 1]))
    value, slope = pytensor.function([x], [loss, pytensor.grad(loss.sum(), x)])(np.array([[0.0, 2000], [0, 1]]))
    np.testing.assert_allclose(value, [2000, np.log1p(np.exp(-1))])
    np.testing.assert_allclose(slope[0], [-1, 1])


def test_confusion_matrix():
    actual, pred = np.array([2, 0, 2, 2, 0, 1]), np.array([0, 0, 2, 2, 0, 7], "int32")
    counts, order = (v.eval() for v in nn.confusion_matrix(actual, pred))
    np.testing.assert_array_equal(order, [0, 1, 2, 7])
    np.testing.assert_array_equal(counts, [[2, 0, 0, 0], [0, 0, 0, 1], [1, 0, 2, 0], [0, 0, 0, 0]])
    assert counts.dtype == "int64"


def test_of_nothing():
    for function in (nn.binary_crossentropy_with_logits, nn.huber):
        value, slope = value_and_slope(function, np.zeros((0, 3)), np.zeros((0, 3)))
        assert value == 0 and slope.shape == (0, 3)


def test_dtypes():
    x, half, t = pt.fmatrix("x"), pt.matrix("half", dtype="float16"), pt.lmatrix("t")
    for function in (nn.binary_crossentropy, nn.binary_crossentropy_with_logits, nn.huber):
        for logits, dtype in ((x, "float32"), (half, "float16")):
            loss = function(logits, t)
            assert loss.dtype == pytensor.grad(loss.sum(), logits).dtype == dtype
    assert nn.huber(x, pt.dmatrix("y")).dtype == "float64"


def test_on_the_device(context, rng):
    x, t = pt.fmatrix("x"), pt.fmatrix("t")
    values = rng.normal(size=(7, 90)).astype("float32"), rng.random((7, 90)).astype("float32")
    with pytensor.config.change_flags(opencl__placement="device", on_opt_error="raise"):
        for function in (nn.binary_crossentropy_with_logits, nn.huber):
            loss = function(x, t)
            f = check_against_python([x, t], [loss, pytensor.grad(loss, x)], (), values)
            assert len([op for op in device_ops(f) if op.is_compute]) <= 4
        p = opencl([x, t], nn.binary_crossentropy(nn.sigmoid(x), t))
    s = special.expit(values[0].astype("float64"))
    np.testing.assert_allclose(p(*values), -(values[1] * np.log(s) + (1 - values[1]) * np.log1p(-s)), rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["binary_crossentropy", "sigmoid_binary_crossentropy", "binary_crossentropy_with_logits", "huber"]
)
def test_targets_are_not_broadcast(name):
    function = getattr(nn, name)
    with pytest.raises(ValueError, match=rf"{name}: target has shape \(3, 1\), and input \(3, 4\)"):
        function(np.ones((3, 4)), np.ones((3, 1)))
    with pytest.raises(ValueError, match="target needs shape"):
        function(pt.vector("x"), pt.matrix("t"))
    x, t = pt.matrix("x"), pt.matrix("t")
    f = pytensor.function([x, t], function(x, t))
    with pytest.raises(ValueError, match="target needs the lengths of input"):
        f(np.ones((3, 4)), np.ones((3, 1)))


def test_bad_arguments():
    x, t, labels = pt.matrix("x"), pt.matrix("t"), pt.lvector("labels")
    for call, error, message in (
        (lambda: nn.huber(x, t, delta=0), ValueError, "delta must be a positive number"),
        (lambda: nn.huber(x, t, reduction="avg"), ValueError, "reduction must be"),
        (lambda: nn.huber(labels, labels), TypeError, "input must be floats"),
        (lambda: nn.binary_crossentropy(x, pt.zmatrix("z")), TypeError, "target has dtype complex128"),
        (lambda: nn.binary_crossentropy_with_logits(x, t, weight=pt.tensor3("w")), ValueError, "weight has 3 dim"),
        (
            lambda: nn.binary_crossentropy_with_logits(np.ones((3, 1)), np.ones((3, 1)), weight=np.ones((3, 2))),
            ValueError,
            r"weight has shape \(3, 2\)",
        ),
        (lambda: nn.confusion_matrix(x, labels), TypeError, "actual must be labels"),
        (lambda: nn.confusion_matrix(labels, pt.lmatrix("p")), ValueError, "pred must be a vector"),
        (lambda: nn.confusion_matrix(np.zeros(2, int), np.zeros(3, int)), ValueError, "pred has shape"),
    ):
        with pytest.raises(error, match=message):
            call()
