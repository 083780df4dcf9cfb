"""Normalisation: PyTorch's values, border cases, arguments; on devices and in other modes."""

import json
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph

from pytensor_cl import nn
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.rowwise import GpuRowwise
from tests.helpers import assert_close, assert_on_device, check_against_python, normal, opencl

TORCH = json.loads((Path(__file__).parent / "torch_normalization.json").read_text())
IN_PYTHON = {"mode": "FAST_COMPILE", "on_unused_input": "ignore"}


def numbers(shape, phase):
    """The inputs of tools/torch_normalization.py."""
    return np.cos(np.arange(np.prod(shape)) ** 2 + phase).reshape(shape) * 2 + phase


def build(name, x, weight, bias, running, options):
    """Return the result, then new running statistics, of a function named as PyTorch's."""
    axes = "per-activation" if x.type.ndim == 2 else "spatial"
    if name == "batch_norm":
        epsilon, factor = options["eps"], options["momentum"]
        out, _, _, *new = nn.batch_normalization_train(x, weight, bias, axes, epsilon, factor, *running)
        return [out, *new]
    if name == "given":
        return [nn.batch_normalization_test(x, weight, bias, *running, axes, options["eps"])]
    if name == "layer_norm":
        return [nn.layer_norm(x, weight=weight, bias=bias, normalized_shape=weight.type.shape, **options)]
    if name == "rms_norm":
        return [nn.rms_norm(x, weight.type.shape, weight, **options)]
    if name == "local_response_norm":
        return [nn.local_response_normalization(x, **options)]
    return [getattr(nn, name)(x, weight=weight, bias=bias, **options)]


def scalar(y):
    """Return a number that depends on each element in another way."""
    weights = pt.cos(pt.arange(y.size, dtype="float64") ** 2).astype(y.dtype).reshape(y.shape)
    return (y * weights).sum()


# Values


@pytest.mark.parametrize("key", TORCH)
def test_torch_values(key):
    (name, shape, lengths, options), wanted = TORCH[key]["case"], TORCH[key]
    x, *parameters = pytensor.shared(numbers(shape, 0.5), shape=shape), None, None
    if lengths is not None:
        extents = tuple(np.atleast_1d(lengths))
        parameters = [pytensor.shared(numbers(lengths, p).reshape(extents), shape=extents) for p in (1, 2)]
    running = [pt.constant(np.atleast_1d(numbers(lengths, p))) for p in (3, 4)] if lengths is not None else []
    y, *new = build(name, x, *parameters, running, options)
    inputs = [v for v in (x, parameters[0], None if name == "rms_norm" else parameters[1]) if v is not None]
    first = pytensor.grad((y * numbers(shape, 0.25)).sum(), inputs)
    second = pytensor.grad(sum((g**2).sum() for g in first), inputs, disconnected_inputs="ignore")
    results = pytensor.function([], [y, *new, *first, *second], **IN_PYTHON)()
    expected = [v for part in ("y", "running", "first", "second") for v in wanted[part]]
    for got, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(got.ravel(), value, rtol=1e-10, atol=1e-10)


def test_batch_normalization_of_theano():
    x, (gamma, beta, mean, std) = pt.dmatrix("x"), (pt.drow(n) for n in "gbms")
    f = pytensor.function([x, gamma, beta, mean, std], nn.batch_normalization(x, gamma, beta, mean, std), **IN_PYTHON)
    values = [np.arange(6.0).reshape(2, 3), *(np.array([[1.0, 2.0, 4.0]]) + i for i in range(4))]
    a, g, b, m, s = values
    np.testing.assert_allclose(f(*values), (a - m) * g / s + b)


def test_alexnet_form_of_local_response():
    x = pt.dmatrix("x")
    y = nn.local_response_normalization(x, 3, alpha=0.5, beta=0.75, k=2.0, divide=False)
    sums = np.array([[1 + 4, 1 + 4 + 9, 4 + 9 + 16, 9 + 16]])
    values = np.array([[1.0, 2.0, 3.0, 4.0]])
    found = pytensor.function([x], y, **IN_PYTHON)(values)
    np.testing.assert_allclose(found, values / (2 + 0.5 * sums) ** 0.75)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (1, 3), (0, 1, 2), (0, 1, 2, 3), -1, "spatial", "per-activation"])
@pytest.mark.parametrize("is_full", [False, True])
def test_axes(axes, is_full, rng):
    values = rng.normal(size=(2, 3, 4, 2))
    normalised = {"spatial": (0, 2, 3), "per-activation": (0,), -1: (3,)}.get(axes, axes)
    extents = [1 if a in normalised else n for a, n in enumerate(values.shape)]
    forms = extents if is_full else [n for a, n in enumerate(values.shape) if a not in normalised]
    gamma, beta, running_mean, running_var = rng.uniform(0.5, 2, (4, *forms))
    x = pt.tensor4("x", dtype="float64")
    results = nn.batch_normalization_train(x, gamma, beta, axes, 0.01, 0.2, running_mean, running_var)
    out, mean, invstd, new_mean, new_var = pytensor.function([x], results, **IN_PYTHON)(values)
    found, var = (f(values, axis=normalised, keepdims=True) for f in (np.mean, np.var))
    expected = (values - found) / np.sqrt(var + 0.01) * gamma.reshape(extents) + beta.reshape(extents)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    np.testing.assert_allclose(mean, found.reshape(forms), rtol=1e-12)
    np.testing.assert_allclose(invstd, 1 / np.sqrt(var + 0.01).reshape(forms), rtol=1e-12)
    m = values.size // np.prod(extents)
    np.testing.assert_allclose(new_mean, 0.8 * running_mean + 0.2 * mean, rtol=1e-12)
    np.testing.assert_allclose(new_var, 0.8 * running_var + 0.2 * var.reshape(forms) * m / (m - 1), rtol=1e-12)


# Gradients


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: nn.batch_normalization_train(x, w, b, "spatial", 0.1)[0],
        lambda x, w, b: nn.batch_normalization_train(x, None, b, "spatial", 0.1)[0],
        lambda x, w, b: scalar(nn.batch_normalization_train(x, w, None, "spatial", 0.1)[1]),
        lambda x, w, b: scalar(nn.batch_normalization_train(x, w, b, (2,), 0.1)[2]) if x.ndim == 2 else scalar(x),
        lambda x, w, b: nn.batch_normalization_test(x, w, b, b, w**2, "spatial", 0.1),
        lambda x, w, b: nn.group_norm(x, 2, w, b, 0.1),
        lambda x, w, b: nn.instance_norm(x, weight=w, eps=0.1),
        lambda x, w, b: nn.layer_norm(x, (4, 3), bias=w[:, None] * np.ones(3), eps=0.1),
        lambda x, w, b: nn.rms_norm(x, 3, weight=b[:3], eps=0.1),
        lambda x, w, b: nn.local_response_normalization(x, 4, 0.5),
    ],
)
def test_gradients(function, rng):
    x, w, b = rng.normal(size=(2, 4, 3)), rng.uniform(0.5, 2, 4), rng.normal(size=4)
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        verify_grad(lambda *v: scalar(function(*v)) + 0 * sum(a.sum() for a in v), [x, w, b], rng=rng)


def test_gradient_of_a_statistic_and_the_result_together(rng):
    """The second gradient of everything: each output of the markers has a gradient."""

    def total(x, w):
        out, mean, invstd = nn.batch_normalization_train(x, w, None, epsilon=0.1)
        return sum((g**2).sum() for g in pytensor.grad(scalar(out) + scalar(mean * invstd), [x, w]))

    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        verify_grad(total, [rng.normal(size=(4, 3)), rng.normal(size=3)], rng=rng, abs_tol=1e-3, rel_tol=1e-3)


def test_running_statistics_have_no_gradient():
    x, mean, var = pt.dmatrix("x"), pytensor.shared(np.zeros(3)), pytensor.shared(np.ones(3))
    results = nn.batch_normalization_train(x, None, None, running_mean=mean, running_var=var)
    with pytest.raises(pytensor.gradient.DisconnectedInputError):
        pytensor.grad(results[0].sum(), mean)
    with pytest.raises(pytensor.gradient.DisconnectedInputError):
        pytensor.grad(results[3].sum(), x)


# States and prediction


def running(x, **options):
    mean = pytensor.shared(np.zeros(3, "float32"), name="mean")
    var = pytensor.shared(np.ones(3, "float32"), name="var")
    return mean, var, nn.batch_normalization_train(x, None, None, running_mean=mean, running_var=var, **options)


def test_states_are_pairs_of_inputs_and_outputs():
    mean, var, (*_, new_mean, new_var) = running(pt.fmatrix("x"))
    node = new_mean.owner
    assert [node.inputs[i] for i, _ in node.op.states] == [mean, var]
    assert [node.outputs[j] for _, j in node.op.states] == [new_mean, new_var]


def test_running_statistics_with_the_dimensions_of_the_input():
    x = pt.fmatrix("x")
    mean, var = (pytensor.shared(np.full((1, 3), v, "float32")) for v in (0, 1))
    out, found, _, new_mean, _ = nn.batch_normalization_train(x, None, None, running_mean=mean, running_var=var)
    assert new_mean.owner.inputs[:2] == [mean, var]
    f = pytensor.function([x], [out, found], updates={mean: new_mean}, **IN_PYTHON)
    assert f(np.array([[1, 2, 3], [3, 2, 1]], "float32"))[1].shape == (1, 3)
    np.testing.assert_allclose(mean.get_value(), [[0.2, 0.2, 0.2]], rtol=1e-6)
    mean.set_value(np.zeros((2, 3), "float32"))
    with pytest.raises(ValueError, match="length one"):
        f(np.array([[1, 2, 3], [3, 2, 1]], "float32"))


def test_updates_and_prediction(rng):
    x = pt.fmatrix("x")
    mean, var, (out, *_, new_mean, new_var) = running(x, running_average_factor=pt.constant(0.25), epsilon=0.01)
    step = pytensor.function([x], out, updates={mean: new_mean, var: new_var}, **IN_PYTHON)
    expected_mean, expected_var = np.zeros(3), np.ones(3)
    for _ in range(3):
        batch = normal(rng, 5, 3)
        step(batch)
        expected_mean = 0.75 * expected_mean + 0.25 * batch.mean(0)
        expected_var = 0.75 * expected_var + 0.25 * batch.var(0, ddof=1)
    np.testing.assert_allclose(mean.get_value(), expected_mean, rtol=1e-5)
    np.testing.assert_allclose(var.get_value(), expected_var, rtol=1e-5)
    predicted, *others = out.owner.op.predict(out.owner)
    assert others == [None] * 4
    wanted = (batch - expected_mean) / np.sqrt(expected_var + 0.01)
    assert_close(pytensor.function([x], predicted, **IN_PYTHON)(batch), wanted.astype("float32"))


def test_prediction_without_running_statistics():
    out = nn.batch_normalization_train(pt.fmatrix("x"), None, None)[0]
    with pytest.raises(ValueError, match="batch_normalization_train"):
        out.owner.op.predict(out.owner)


# Border cases


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows(rows):
    x, gamma = pt.fmatrix("x"), np.array([1, 2, 3], "float32")
    _, _, results = running(x)
    scaled = nn.batch_normalization_train(x, gamma, gamma)[0]
    slope = pytensor.grad(scalar(scaled), x)
    f = pytensor.function([x], [scaled, slope, *results[1:]], **IN_PYTHON)
    values = np.array([[1, 2, 3], [3, 2, 1]], "float32")[:rows]
    out, dx, found, invstd, new_mean, new_var = f(values)
    assert out.shape == dx.shape == values.shape
    assert np.isfinite(out).all()
    assert np.isfinite(invstd).all()
    np.testing.assert_allclose(found, values.sum(0) / max(rows, 1))
    np.testing.assert_allclose(new_mean, [[0, 0, 0], [0.1, 0.2, 0.3], [0.2, 0.2, 0.2]][rows], rtol=1e-6)
    np.testing.assert_allclose(new_var, [[1, 1, 1], [1, 1, 1], [1.1, 0.9, 1.1]][rows], rtol=1e-6)
    if rows == 1:
        np.testing.assert_array_equal(out, gamma[None])
        np.testing.assert_array_equal(dx, [[0, 0, 0]])


def test_one_row_of_infinity_leaves_the_running_variance():
    x = pt.fmatrix("x")
    _, _, results = running(x)
    new_var = pytensor.function([x], results[4], **IN_PYTHON)(np.full((1, 3), np.inf, "float32"))
    np.testing.assert_array_equal(new_var, [1, 1, 1])


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: nn.layer_norm(x, bias=np.array([2], "float32")), (3, 1)),
        (lambda x: nn.layer_norm(x), (3, 0)),
        (lambda x: nn.layer_norm(x), (0, 3)),
        (lambda x: nn.rms_norm(x), (3, 0)),
        (lambda x: nn.group_norm(x[:, :, None], 1), (0, 3)),
        (lambda x: nn.group_norm(x[:, :, None], 1), (3, 0)),
        (lambda x: nn.instance_norm(x[:, :, None], bias=np.full(3, 2, "float32")), (2, 3)),
        (lambda x: nn.local_response_normalization(x, 3), (3, 0)),
        (lambda x: nn.local_response_normalization(x, 3), (0, 3)),
    ],
)
def test_rows_of_one_element_or_none(function, shape):
    x = pt.fmatrix("x")
    y = function(x)
    out, slope = pytensor.function([x], [y, pytensor.grad(scalar(y), x)], **IN_PYTHON)(np.ones(shape, "float32"))
    assert slope.shape == shape
    assert out.size == np.prod(shape)
    np.testing.assert_array_equal(out, np.full(out.shape, 2, "float32"))
    np.testing.assert_array_equal(slope, np.zeros(shape, "float32"))


def test_variance_of_numbers_far_from_zero(rng):
    """The mean square minus the square of the mean would be negative or zero here."""
    x = pt.fmatrix("x")
    values = (30_000 + rng.choice([-0.5, 0.5], size=(64, 3))).astype("float32")
    out, _, invstd = pytensor.function([x], nn.batch_normalization_train(x, None, None, epsilon=1e-12), **IN_PYTHON)(
        values
    )
    wide = values.astype("float64")
    np.testing.assert_allclose(invstd, 1 / wide.std(0), rtol=1e-2)
    np.testing.assert_allclose(out, (wide - wide.mean(0)) / wide.std(0), atol=1e-2)


def test_float16_is_computed_as_float32():
    """Squares of 400 are more than a float16 holds."""
    x = pt.matrix("x", dtype="float16")
    results = [nn.layer_norm(x), nn.rms_norm(x), *nn.batch_normalization_train(x, None, None)]
    slope = pytensor.grad(scalar(results[0].astype("float32")), x)
    values = np.array([[400, -400, 200, 100], [0.5, 1, 2, 4]], "float16")
    found = pytensor.function([x], [*results, slope], **IN_PYTHON)(values)
    assert {v.dtype.name for v in found} == {"float16"}
    wide = values.astype("float64")
    layer = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found[0], layer, rtol=2e-3)
    np.testing.assert_allclose(found[1], wide / np.sqrt((wide**2).mean(1, keepdims=True)), rtol=2e-3)
    np.testing.assert_allclose(found[2], [[1, -1, 1, 1], [-1, 1, -1, -1]], rtol=2e-3)
    assert np.isfinite(found[-1]).all()


def test_dtypes():
    x, w = pt.fmatrix("x"), pt.dvector("w")
    out, mean, invstd = nn.batch_normalization_train(x, w, None)
    assert [v.type.dtype for v in (out, mean, invstd)] == ["float64"] * 3
    assert pytensor.grad(out.sum(), x).type.dtype == "float32"
    assert nn.layer_norm(x, eps=0.1).type.dtype == "float32"
    assert nn.local_response_normalization(x, 3).type.dtype == "float32"


# Arguments


X, X4, W = pt.fmatrix("x"), pt.tensor("x", shape=(2, 6, 3, 3), dtype="float32"), pt.fvector("w")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.layer_norm(pt.imatrix("x")), TypeError, "cast it first"),
        (lambda: nn.layer_norm(pt.zmatrix("x")), TypeError, "cast it first"),
        (lambda: nn.layer_norm("x"), TypeError, "input"),
        (lambda: nn.layer_norm(X, eps=0.0), ValueError, "eps"),
        (lambda: nn.layer_norm(X, eps=np.nan), ValueError, "eps"),
        (lambda: nn.layer_norm(X, eps=pt.fscalar("e")), TypeError, "when the graph is built"),
        (lambda: nn.layer_norm(X4, (3, 4)), ValueError, "normalized_shape"),
        (lambda: nn.layer_norm(X, (1, 2, 3)), ValueError, "normalized_shape"),
        (lambda: nn.layer_norm(X, weight=X), TypeError, "weight"),
        (lambda: nn.layer_norm(X4, weight=np.ones(4)), ValueError, "weight"),
        (lambda: nn.layer_norm(X4, bias=np.ones(1)), ValueError, "bias"),
        (lambda: nn.rms_norm(X, eps=-1.0), ValueError, "eps"),
        (lambda: nn.group_norm(X4, 4), ValueError, "num_groups"),
        (lambda: nn.group_norm(X4, 0), ValueError, "num_groups"),
        (lambda: nn.group_norm(W, 1), TypeError, "input"),
        (lambda: nn.group_norm(X4, 2, weight=np.ones(3)), ValueError, "weight"),
        (lambda: nn.instance_norm(X), TypeError, "input"),
        (lambda: nn.instance_norm(X4, bias=np.ones(5)), ValueError, "bias"),
        (lambda: nn.local_response_normalization(X4, 0), ValueError, "size"),
        (lambda: nn.local_response_normalization(X4, 3, k=-1), ValueError, "k must"),
        (lambda: nn.local_response_normalization(X4, 3, divide="no"), TypeError, "divide"),
        (lambda: nn.batch_normalization_train(X, W, X4), TypeError, "beta"),
        (lambda: nn.batch_normalization_train(X, W, W, epsilon=0), ValueError, "epsilon"),
        (lambda: nn.batch_normalization_train(X, W, W, "channels"), ValueError, "axes"),
        (lambda: nn.batch_normalization_train(X, W, W, (0, 2)), ValueError, "axes"),
        (lambda: nn.batch_normalization_train(X, W, W, (0.5,)), TypeError, "axes"),
        (lambda: nn.batch_normalization_train(X, W, W, ()), ValueError, "axes"),
        (lambda: nn.batch_normalization_train(X, W, W, running_mean=W), ValueError, "running_var"),
        (lambda: nn.batch_normalization_train(X, W, W, running_average_factor=2), ValueError, "factor"),
        (lambda: nn.batch_normalization_train(X4, np.ones(5), None, "spatial"), ValueError, "gamma"),
        (lambda: nn.batch_normalization_train(X4, np.ones((1, 6, 2, 1)), None, "spatial"), ValueError, "gamma"),
        (lambda: nn.batch_normalization_train(pt.frow("x"), None, None), ValueError, "one element"),
        (lambda: nn.batch_normalization_test(X, W, W, None, W), TypeError, "mean"),
        (lambda: nn.batch_normalization_test(X, W, W, W, pt.lvector("v")), TypeError, "var"),
    ],
)
def test_refused_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x, w: nn.layer_norm(x, weight=w), (2, 3)),
        (lambda x, w: nn.layer_norm(x, 4), (2, 3)),
        (lambda x, w: nn.layer_norm(x, weight=np.ones(1, "float32")), (2, 3)),
        (lambda x, w: nn.group_norm(x, 2), (2, 3)),
        (lambda x, w: nn.group_norm(x, 2), (0, 3)),
        (lambda x, w: nn.batch_normalization_train(x, w, None)[0], (2, 3)),
        (lambda x, w: nn.batch_normalization_test(x, None, np.ones(1, "float32"), w, w), (2, 3)),
    ],
)
def test_lengths_that_differ_in_the_call(function, shape):
    x, w = pt.fmatrix("x"), pt.fvector("w")
    f = pytensor.function([x, w], function(x, w), **IN_PYTHON)
    with pytest.raises(ValueError):
        f(np.ones(shape, "float32"), np.ones(4, "float32"))


# Devices and modes


DEVICE = {
    "batch": lambda x, w, b: nn.batch_normalization_train(x, w, b, "spatial", running_mean=b, running_var=w),
    "last": lambda x, w, b: [nn.layer_norm(x, weight=w[:5], bias=b[:5]), nn.rms_norm(x, weight=w[:5])],
    "groups": lambda x, w, b: [nn.group_norm(x, 3, w, b), nn.instance_norm(x, weight=w, bias=b)],
    "response": lambda x, w, b: [nn.local_response_normalization(x, 4, 0.5)],
}


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("kind", DEVICE)
def test_device(kind, context, rng):
    x, w, b = pt.tensor3("x", dtype="float32"), pt.fvector("w"), pt.fvector("b")
    results = list(DEVICE[kind](x, w, b))
    cost = sum(scalar(v) for v in results[: 1 if kind == "batch" else None])
    slopes = pytensor.grad(cost, [x] if kind == "response" else [x, w, b])
    kinds = [GpuElemwise] if kind == "response" else [GpuRowwise]
    shapes = [(4, 6, 5), (2, 6, 5), (70, 6, 5)]
    arguments = [(normal(rng, *s), np.abs(normal(rng, 6)), normal(rng, 6)) for s in shapes]
    with pytensor.config.change_flags(on_unused_input="ignore"):
        f = check_against_python([x, w, b], [*results, *slopes], kinds, *arguments)
    assert not any(f(normal(rng, 0, 6, 5), *arguments[0][1:])[0].shape[:1])


@pytest.mark.usefixtures("on_device")
def test_lengths_that_differ_on_the_device(context):
    x, w = pt.fmatrix("x"), pt.fvector("w")
    f = opencl([x, w], nn.layer_norm(x, weight=w))
    assert_on_device(f, GpuRowwise)
    with pytest.raises(ValueError):
        f(np.ones((2, 3), "float32"), np.ones(4, "float32"))


def test_small_functions_where_they_are_fast():
    """Without forced placement the same values come from wherever the function runs."""
    x = pt.fmatrix("x")
    values = np.arange(12, dtype="float32").reshape(3, 4) ** 2
    wanted = (values - values.mean(1, keepdims=True)) / np.sqrt(values.var(1, keepdims=True) + 1e-5)
    assert_close(opencl([x], nn.layer_norm(x))(values), wanted.astype("float32"))


def test_numba():
    x = pt.fmatrix("x")
    values = np.arange(12, dtype="float32").reshape(3, 4) ** 2
    wanted = values / np.sqrt((values**2).mean(1, keepdims=True) + 0.5)
    assert_close(pytensor.function([x], nn.rms_norm(x, eps=0.5), mode="NUMBA")(values), wanted)


def test_jax():
    pytest.importorskip("jax")
    x = pt.dmatrix("x")
    mean, var = pt.dvector("mean"), pt.dvector("var")
    out, *_, new_mean, new_var = nn.batch_normalization_train(x, None, mean, running_mean=mean, running_var=var)
    outputs = [out, new_mean, new_var, pytensor.grad((out * pt.cos(x)).sum(), x)]
    values = [np.arange(12.0).reshape(4, 3) ** 2, np.arange(3.0), np.arange(3.0) + 1]
    found = pytensor.function([x, mean, var], outputs, mode="JAX")(*values)
    wanted = pytensor.function([x, mean, var], outputs, **IN_PYTHON)(*values)
    for got, value in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["layer_norm", "batch_normalization_train", "local_response_normalization"])
def test_batch_of_graphs(name, rng):
    """`vectorize_graph` normalises each of the arrays."""
    x, many = pt.dmatrix("x"), pt.dtensor3("many")
    options = {"layer_norm": {}, "batch_normalization_train": {"gamma": None, "beta": None}}.get(name, {"size": 3})
    y = getattr(nn, name)(x, **options)
    y = y[0] if isinstance(y, tuple) else y
    outputs = [y, pytensor.grad(pt.sin(y).sum(), x)]
    values = rng.normal(size=(3, 4, 5))
    together = pytensor.function([many], vectorize_graph(outputs, {x: many}), **IN_PYTHON)(values)
    alone = pytensor.function([x], outputs, **IN_PYTHON)
    for got, wanted in zip(together, zip(*map(alone, values), strict=True), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)
