"""Cross entropy: values by NumPy, gradients by finite differences, border cases and errors, in modes of the host."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph
from scipy.special import log_softmax

from pytensor_cl import nn
from pytensor_cl.nn.cross_entropy import CrossEntropy
from tests.conftest import ALL


@pytest.fixture(autouse=True)
def without_numba():
    """What `verify_grad` compiles by itself would take seconds each time."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", floatX="float64"):
        yield


def direct(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0, axis=1):
    """The loss by loops over rows, as torch defines it."""
    x = np.moveaxis(np.asarray(x, "float64"), axis, -1)
    count = x.shape[-1]
    weight = np.ones(count) if weight is None else np.asarray(weight, "float64")
    is_soft = target.dtype.kind == "f"
    target = np.moveaxis(target, axis, -1) if is_soft else target
    losses, total = np.zeros(x.shape[:-1]), 0.0
    for row in np.ndindex(*x.shape[:-1]):
        surprise = -log_softmax(x[row])
        if is_soft:
            mixed = (1 - label_smoothing) * target[row] + label_smoothing / count
            losses[row], total = (mixed * weight * surprise).sum(), total + 1
        elif target[row] != ignore_index:
            label = target[row]
            smooth = label_smoothing / count * (weight * surprise).sum()
            losses[row] = (1 - label_smoothing) * weight[label] * surprise[label] + smooth
            total += weight[label]
    if reduction == "mean":
        return losses.sum() / total if total else 0.0
    return losses if reduction == "none" else losses.sum()


def evaluate(x, target, **options):
    return nn.softmax_cross_entropy(x, target, **options).eval()


@pytest.mark.parametrize(("reduction", "smoothing"), [("mean", 0.0), ("sum", 1.0), ("none", 0.3), ("mean", 0.3)])
def test_values(rng, reduction, smoothing):
    options = {"reduction": reduction, "label_smoothing": smoothing}
    for shape, axis in (((6, 4), 1), ((4, 6), 0), ((2, 3, 4, 2), 1)):
        x, weight = rng.normal(size=shape) * 3, rng.random(shape[axis])
        rows = tuple(n for d, n in enumerate(shape) if d != axis % len(shape))
        labels = rng.integers(0, shape[axis], rows)
        some = np.where(rng.random(rows) < 0.4, 1, labels)
        soft = rng.random(shape)
        for target, more in (
            (labels, {}),
            (labels, {"weight": weight}),
            (some, {"weight": weight, "ignore_index": 1}),
            (soft, {}),
            (soft, {"weight": weight}),
        ):
            got = evaluate(x, target, axis=axis, **options, **more)
            np.testing.assert_allclose(got, direct(x, target, axis=axis, **options, **more), rtol=1e-12)


# F.cross_entropy(x, y, weight=w, ignore_index=2, label_smoothing=0.1, reduction=...) of torch 2.13 for
# x = [[1, -2, 0.5], [0, 3, -1], [2, 2, 2], [-1, 0, 4]], y = [0, 1, 2, 0], w = [0.5, 1, 2]
TORCH = {"mean": 1.6418045, "sum": 3.2836090, "none": [0.4192716, 0.3836486, 0.0, 2.4806888]}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_values_of_torch(reduction):
    x = np.array([[1, -2, 0.5], [0, 3, -1], [2, 2, 2], [-1, 0, 4]])
    options = {"weight": np.array([0.5, 1, 2]), "ignore_index": 2, "label_smoothing": 0.1, "reduction": reduction}
    np.testing.assert_allclose(evaluate(x, np.array([0, 1, 2, 0]), **options), TORCH[reduction], rtol=1e-6)


def test_nll_is_the_rest_of_it(rng):
    x, labels, weight = rng.normal(size=(5, 4, 3)), rng.integers(0, 4, (5, 3)), rng.random(4)
    labels[0, 0] = -1
    logs, soft = log_softmax(x, axis=1), rng.random((5, 4, 3))
    for reduction in ("mean", "sum", "none"):
        options = {"weight": weight, "reduction": reduction}
        got = nn.nll(logs, labels, ignore_index=-1, **options).eval()
        np.testing.assert_allclose(got, direct(x, labels, ignore_index=-1, **options))
        np.testing.assert_allclose(nn.nll(logs, soft, **options).eval(), direct(x, soft, **options))


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2}, {"ignore_index": 2}, {"reduction": "sum"}])
def test_gradients(rng, options):
    x, labels, weight = rng.normal(size=(3, 4)), np.array([1, 2, 0]), rng.random(4) + 0.1
    verify_grad(lambda x, w: nn.softmax_cross_entropy(x, labels, weight=w, **options), [x, weight], rng=rng)
    soft = rng.random((3, 4))
    if "ignore_index" not in options:
        verify_grad(lambda x, t: nn.softmax_cross_entropy(x, t, **options), [x, soft], rng=rng)

    def slope(x):
        return pt.grad(nn.softmax_cross_entropy(x, labels, weight=weight, **options), x)

    verify_grad(slope, [x], rng=rng)


def test_gradients_of_nll(rng):
    labels = np.array([[1, -100], [2, 0]])
    verify_grad(lambda x: nn.nll(x, labels), [rng.normal(size=(2, 4, 2))], rng=rng)
    verify_grad(lambda x, t: nn.nll(x, t), [rng.normal(size=(2, 3)), rng.random((2, 3))], rng=rng)


@pytest.mark.parametrize("function", [nn.softmax_cross_entropy, nn.nll])
def test_no_row_counts(function):
    """All labels are ignored, or there are no rows, or no class weighs anything: 0 and zero gradients, not NaN."""
    for x, labels, options in (
        (np.ones((3, 4)), np.full(3, -100), {}),
        (np.ones((0, 4)), np.zeros(0, "int64"), {}),
        (np.ones((3, 4)), np.zeros(3, "int64"), {"weight": np.zeros(4)}),
    ):
        logits = pt.matrix("logits")
        loss = function(logits, labels, **options)
        value, slope = pytensor.function([logits], [loss, pt.grad(loss, logits)])(x)
        assert value == 0 and slope.shape == x.shape and not slope.any()


def test_ignored_rows_have_no_influence(rng):
    x, labels = rng.normal(size=(3, 4)), np.array([1, -100, 3])
    x[1] = np.nan
    logits = pt.matrix("logits")
    for smoothing in (0.0, 0.1):
        loss = nn.softmax_cross_entropy(logits, labels, label_smoothing=smoothing)
        value, slope = pytensor.function([logits], [loss, pt.grad(loss, logits)])(x)
        np.testing.assert_allclose(value, direct(x[::2], labels[::2], label_smoothing=smoothing))
        assert np.isfinite(slope).all() and not slope[1].any()


def test_impossible_classes():
    """A logit of minus infinity is a probability 0: no NaN but where the label has it."""
    x = np.array([[0.0, -np.inf, 1.0], [0.0, -np.inf, 1.0]])
    logits = pt.matrix("logits")
    losses = nn.softmax_cross_entropy(logits, np.array([0, 1]), reduction="none")
    value, slope = pytensor.function([logits], [losses, pt.grad(losses.sum(), logits)])(x)
    assert np.isfinite(value[0]) and value[1] == np.inf and np.isfinite(slope).all()
    soft = evaluate(x, np.array([[0.5, 0, 0.5], [1, 0, 0]]), reduction="none")
    assert np.isfinite(soft).all()


def test_large_logits():
    x = np.array([[1e30, 0], [0, 1e30], [-1e30, 0]], "float32")
    got = evaluate(x, np.array([0, 0, 1]), reduction="none")
    assert got.dtype == "float32"
    np.testing.assert_allclose(got, [0, 1e30, 0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("label", ["uint8", "int32"])
def test_dtypes(rng, dtype, label):
    logits, labels = pt.matrix("logits", dtype=dtype), pt.vector("labels", dtype=label)
    loss = nn.softmax_cross_entropy(logits, labels, label_smoothing=0.1)
    slope = pt.grad(loss, logits)
    assert (loss.dtype, slope.dtype) == (dtype, dtype)
    x, y = (rng.normal(size=(6, 5)) * 20).astype(dtype), rng.integers(0, 5, 6).astype(label)
    value, _ = pytensor.function([logits, labels], [loss, slope])(x, y)
    np.testing.assert_allclose(value, direct(x, y, label_smoothing=0.1), rtol=2e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
@pytest.mark.parametrize("label", [4, -1, -101])
def test_label_out_of_range(mode, label):
    logits, labels = pt.matrix("logits"), pt.lvector("labels")
    if mode == "NUMBA" and (label != 4 or not ALL):
        pytest.skip("NUMBA compiles for 15 seconds; PYTENSOR_CL_SWEEPS=all does")
    for function in (nn.softmax_cross_entropy, nn.nll)[: 1 if mode == "NUMBA" else 2]:
        f = pytensor.function([logits, labels], function(logits, labels), mode=mode)
        assert np.isfinite(f(np.ones((2, 4)), np.array([0, 3])))
        with pytest.raises(IndexError, match=f"{function.__name__}: target has a label outside of 0 to"):
            f(np.ones((2, 4)), np.array([0, label]))


def test_mode_jax(rng):
    pytest.importorskip("jax")
    x, labels = rng.normal(size=(3, 4)), np.array([0, -100, 2])
    logits = pt.matrix("logits")
    loss = nn.softmax_cross_entropy(logits, pt.constant(labels), label_smoothing=0.1)
    with pytest.warns(UserWarning, match="CheckAndRaise|LabelCheck"):
        value, slope = pytensor.function([logits], [loss, pt.grad(loss, logits)], mode="JAX")(x)
    np.testing.assert_allclose(value, direct(x, labels, label_smoothing=0.1), rtol=1e-6)
    assert not np.asarray(slope)[1].any()


@pytest.mark.parametrize(
    ("shapes", "options", "error", "message"),
    [
        (((3, 4), (3, 1)), {}, ValueError, r"target has shape \(3, 1\), and input \(3, 4\): target needs shape \(3,\)"),
        (((3, 4), (4,)), {}, ValueError, "for classes along the last axis pass axis=-1"),
        (((3, 4), (3,)), {"axis": 2}, ValueError, "axis 2 is none of the 2 axes"),
        (((3, 4), (3,)), {"axis": 1.0}, TypeError, "axis must be an integer"),
        (((3, 4), (3,)), {"reduction": "average"}, ValueError, "reduction must be"),
        (((3, 4), (3,)), {"label_smoothing": 1.5}, ValueError, "from 0 to 1"),
        (((3, 4), (3,)), {"label_smoothing": np.nan}, ValueError, "from 0 to 1"),
        (((3, 4), (3,)), {"ignore_index": 1.0}, TypeError, "must be an integer"),
        (((3, 4), (3,)), {"weight": np.ones(3)}, ValueError, r"weight has shape \(3,\)"),
        (((3, 4), (3,)), {"weight": np.ones((1, 4))}, ValueError, "one number for each class"),
        (((3, 4), (3,)), {"weight": np.ones(4, "int64")}, TypeError, "weight must be floats"),
        (((4,), (4,)), {}, ValueError, "axis 1 is none of the 1 axes"),
    ],
)
def test_bad_arguments(shapes, options, error, message):
    logits, labels = (
        pt.tensor("logits", shape=shapes[0], dtype="float64"),
        pt.tensor("y", shape=shapes[1], dtype="int64"),
    )
    with pytest.raises(error, match=message):
        nn.softmax_cross_entropy(logits, labels, **options)


def test_bad_dtypes():
    floats, integers = pt.matrix("floats"), pt.lmatrix("integers")
    for arguments, options, error, message in (
        ((integers, floats), {}, TypeError, "input must be floats, not int64: cast it first"),
        ((floats, pt.bvector("y").astype("bool")), {}, TypeError, "target has dtype bool"),
        ((pt.zmatrix("z"), integers), {}, TypeError, "input must be floats"),
        ((floats, floats), {"ignore_index": 0}, ValueError, "ignore_index is for labels"),
        ((floats, pt.vector("y", dtype="uint64")), {}, TypeError, "cast it to int64"),
    ):
        with pytest.raises(error, match=message):
            nn.softmax_cross_entropy(*arguments, **options)


def test_targets_are_not_broadcast():
    logits, labels, soft = pt.matrix("logits"), pt.lvector("labels"), pt.matrix("soft")
    f = pytensor.function([logits, labels], nn.softmax_cross_entropy(logits, labels))
    with pytest.raises(ValueError, match="target needs the lengths of input"):
        f(np.ones((3, 4)), np.zeros(1, "int64"))
    g = pytensor.function([logits, soft], nn.softmax_cross_entropy(logits, soft))
    with pytest.raises(ValueError, match="target needs the lengths of input"):
        g(np.ones((3, 4)), np.ones((1, 4)))


def test_labels_have_no_gradient():
    logits, labels = pt.matrix("logits"), pt.lvector("labels")
    loss = nn.softmax_cross_entropy(logits, labels)
    with pytest.raises(pytensor.gradient.DisconnectedInputError):
        pt.grad(loss, labels)


def test_a_batch_of_losses(rng):
    logits, labels = pt.matrix("logits"), pt.lvector("labels")
    losses = nn.softmax_cross_entropy(logits, labels, reduction="none", label_smoothing=0.1)
    slope = pt.grad((losses * np.arange(1.0, 4.0)).sum(), logits)
    x, y = rng.normal(size=(2, 3, 4)), rng.integers(0, 4, (2, 3))
    batch, many = pt.tensor3("batch"), pt.lmatrix("many")
    for replaced, values in (({logits: batch, labels: many}, (x, y)), ({logits: batch}, (x, y[0]))):
        plain = pytensor.function([logits, labels], [losses, slope])
        f = pytensor.function([batch, replaced.get(labels, labels)], vectorize_graph([losses, slope], replaced))
        each = [plain(x[i], values[1][i] if values[1].ndim == 2 else values[1]) for i in range(2)]
        for got, wanted in zip(f(*values), zip(*each, strict=True), strict=True):
            np.testing.assert_allclose(got, np.stack(wanted))


def test_every_output_of_the_marker_is_its_definition(rng):
    """The losses and the gradient of one node are those of two."""
    x, labels = pt.matrix("x"), pt.ivector("labels")
    classes = pt.arange(4, dtype="int32")[None]
    target, by_label, by_target = pt.matrix("target"), pt.vector("by_label"), pt.vector("by_target")
    both = CrossEntropy(axis=1, by_label=True, by_target=True, loss=True, gradient=True)
    one = both.variant(loss=True, gradient=False)(x, classes, labels, target)
    wanted = [*one, pt.grad((one[0] * by_label + one[1] * by_target).sum(), x)]
    got = both(x, classes, labels, target, by_label, by_target)
    f = pytensor.function([x, labels, target, by_label, by_target], [*got, *wanted])
    values = rng.normal(size=(5, 4)), np.array([0, 3, -1, 2, 1], "int32"), rng.random((5, 4)), *rng.random((2, 5))
    results = f(*values)
    for first, second in zip(results[:3], results[3:], strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-12)
