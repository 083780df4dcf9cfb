"""A compiled step of a training: its updates, results, parts of a batch, states, and what it refuses."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import DisconnectedInputError

from pytensor_cl import nn, optimizers, train
from pytensor_cl.errors import ContextNotDefined
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemm import GpuDot22
from pytensor_cl.runtime.array import GpuArray
from tests.helpers import assert_on_device


class Net:
    """A linear classifier with weights for its rows."""

    def __init__(self, dtype="float64", seed=0):
        values = np.random.default_rng(seed).normal(size=(5, 3))
        self.w = pytensor.shared(values.astype(dtype), name="w")
        self.b = pytensor.shared(np.zeros(3, dtype), name="b")
        self.x, self.y = pt.matrix("x", dtype=dtype), pt.lvector("y")
        logits = self.x @ self.w + self.b
        rows = pt.arange(self.y.shape[0])
        losses = pt.logsumexp(logits, axis=1) - logits[rows, pt.maximum(self.y, 0)]
        self.counts = pt.neq(self.y, -1)
        self.weight = self.counts.sum()
        self.losses, self.loss = losses, losses.mean()
        self.weighted = (losses * self.counts).sum() / pt.maximum(self.weight, 1)
        self.hits = pt.eq(logits.argmax(axis=1), self.y).mean(dtype=dtype)

    def values(self):
        return [self.w.get_value(), self.b.get_value()]


def batch(rng, rows, dtype="float64"):
    return rng.normal(size=(rows, 5)).astype(dtype), rng.integers(0, 3, rows)


@pytest.mark.parametrize("mode", ["OPENCL", "FAST_COMPILE", "NUMBA"])
def test_is_the_function_written_by_hand(context, on_device, rng, mode):
    data = [rng.normal(size=(8, 5)).astype("float32") for _ in range(4)]
    steps = []
    for by_hand in (False, True):
        net = Net("float32")
        out = net.x @ net.w + net.b
        loss, largest = pt.sqr(out).mean(), pt.abs(out).max()
        if by_hand:
            updates = optimizers.momentum(loss, [net.w, net.b], 0.01)
            with pytensor.config.change_flags(opencl__select_backend=False):
                f = pytensor.function([net.x], [loss, largest], updates=updates, mode=mode)
        else:
            step = f = train.step([net.x], loss, optimizers.Momentum(0.01), metrics={"largest": largest}, mode=mode)
            assert step.params == [net.w, net.b]
        steps.append((f, net))
    for x in data:
        results, expected = steps[0][0](x), steps[1][0](x)
        assert results == dict(zip(["loss", "largest"], expected, strict=True))
    for value, expected in zip(steps[0][1].values(), steps[1][1].values(), strict=True):
        np.testing.assert_array_equal(value, expected)
    assert step.optimizer.state["momentum/step"].get_value() == 4
    if mode == "OPENCL":
        assert_on_device(step.function, GpuDot22, GpuElemwise)


@pytest.mark.parametrize(
    ("mode", "parts", "rows"), [("OPENCL", 3, 10), ("FAST_COMPILE", 3, 10), ("FAST_COMPILE", 4, 2)]
)
def test_parts_of_a_batch_are_the_batch(context, on_device, rng, mode, parts, rows):
    x, y = batch(rng, rows)
    y[0] = y[-1] = -1  # rows without weight: the parts count differently
    whole, cut = Net(), Net()
    results = []
    for net, count in ((whole, 1), (cut, parts)):
        step = train.step(
            [net.x, net.y],
            net.weighted,
            optimizers.Adam(0.1),
            metrics={"largest": (net.losses * net.counts).sum() / pt.maximum(net.weight, 1) * 2},
            weight=net.weight,
            accumulate=count,
            max_norm=0.05,
            mode=mode,
        )
        results.append([{k: float(v) for k, v in step(x, y).items()} for _ in range(3)])
    for first, second in zip(*results, strict=True):
        assert list(first) == list(second) == ["loss", "largest", "weight"]
        np.testing.assert_allclose(list(first.values()), list(second.values()), rtol=1e-12)
    for first, second in zip(whole.values(), cut.values(), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-10)


def test_parts_without_any_weight(rng):
    net = Net()
    step = train.step(
        [net.x, net.y], net.weighted, optimizers.SGD(0.1), weight=net.weight, accumulate=2, mode="FAST_COMPILE"
    )
    before = net.values()
    results = step(batch(rng, 4)[0], np.full(4, -1))
    assert results == {"loss": 0.0, "weight": 0.0}
    for first, second in zip(before, net.values(), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("row", [0, 3, 5])
def test_an_error_in_a_part_leaves_nothing_behind(rng, row):
    net, twin = Net(), Net()
    x, y = batch(rng, 6)
    wrong = y.copy()
    wrong[row] = 7
    for it in (net, twin):
        it.step = train.step([it.x, it.y], it.loss, optimizers.SGD(0.1), accumulate=3, mode="FAST_COMPILE")
    with pytest.raises(IndexError):
        net.step(x, wrong)
    np.testing.assert_array_equal(net.values()[0], twin.values()[0])
    assert net.step(x, y) == twin.step(x, y)
    np.testing.assert_array_equal(net.values()[0], twin.values()[0])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_error_on_the_device_leaves_nothing_behind(context, on_device, rng, accumulate):
    x, y, w = pt.fmatrix("x"), pt.lvector("y"), pytensor.shared(rng.normal(size=(5, 3)).astype("float32"), name="w")
    loss = nn.softmax_cross_entropy(x @ w, y)
    step = train.step([x, y], loss, optimizers.Momentum(0.1), accumulate=accumulate, mode="OPENCL")
    images, labels = batch(rng, 8, "float32")
    wrong = labels.copy()
    wrong[-1] = 3
    for _ in range(4):  # the third call is captured, later ones are replayed
        step(images, labels)
        before = [variable.get_value() for variable in (w, *step.optimizer.state.values())]
        with pytest.raises(IndexError):
            step(images, wrong)
        for variable, value in zip((w, *step.optimizer.state.values()), before, strict=True):
            np.testing.assert_array_equal(variable.get_value(), value)
    twin = step(images, labels)
    w.set_value(before[0])
    assert step(images, labels) == twin


def test_parts_need_rows_everywhere(rng):
    net = Net()
    step = train.step([net.x, net.y], net.loss, optimizers.SGD(0.1), accumulate=2, mode="FAST_COMPILE")
    with pytest.raises(ValueError, match=r"cuts a batch along axis 0.*\[4, 5\]"):
        step(np.ones((4, 5)), np.zeros(5, "int64"))


def test_states_clipping_averages_and_further_updates(rng):
    net = Net()
    noise, seen = pt.random.shared_rng(seed=3, name="noise"), pytensor.shared(np.zeros(5), name="seen")
    _, draw = noise.normal(size=net.x.shape)
    loss = pt.sqr((net.x + draw) @ net.w + net.b).mean()
    step = train.step(
        [net.x, net.y],
        loss + 0 * net.y.sum(),
        optimizers.SGD(0.5),
        max_norm=0.125,
        ema=0.75,
        updates={seen: seen + net.x.sum(axis=0)},
        mode="FAST_COMPILE",
    )
    x, y = batch(rng, 4)
    w, b = net.values()
    step(x, y)
    shifted = x + np.random.default_rng(3).normal(size=x.shape)
    out = shifted @ w + b
    slopes = [shifted.T @ out * 2 / out.size, out.sum(axis=0) * 2 / out.size]
    norm = np.sqrt(sum((slope**2).sum() for slope in slopes))
    np.testing.assert_allclose(net.w.get_value(), w - 0.5 * slopes[0] * 0.125 / (norm + 1e-6), rtol=1e-10)
    np.testing.assert_allclose(step.averages["ema/w"].get_value(), 0.75 * w + 0.25 * net.w.get_value(), rtol=1e-12)
    np.testing.assert_allclose(seen.get_value(), x.sum(axis=0))
    assert noise.get_value().normal() == np.random.default_rng(3).normal(size=21)[-1]
    assert step.weights == [net.w, net.b, seen]
    assert step.variables == [net.w, net.b, seen, noise, step.optimizer, step.averages]


def test_evaluation_updates_nothing(rng):
    net = Net()
    step = train.step([net.x, net.y], net.loss, optimizers.SGD(0.1), metrics={"hits": net.hits}, mode="FAST_COMPILE")
    x, y = batch(rng, 4)
    before = net.values()
    first = step.evaluate(x, y)
    np.testing.assert_array_equal(net.values()[0], before[0])
    assert first == step(x, y)
    assert step.evaluate(x, y)["loss"] < first["loss"]


def test_a_function_as_optimizer(rng):
    net = Net()
    average = pytensor.shared(np.zeros((5, 3)), name="average")

    def rule(grads, params):
        return {**{p: p - 0.1 * g for p, g in zip(params, grads, strict=True)}, average: average + grads[0]}

    step = train.step([net.x, net.y], net.loss, rule, params=[net.w], mode="FAST_COMPILE")
    before = net.values()
    step(*batch(rng, 4))
    np.testing.assert_allclose(net.w.get_value(), before[0] - 0.1 * average.get_value(), rtol=1e-12)
    np.testing.assert_array_equal(net.b.get_value(), before[1])
    assert step.optimizer is None
    assert step.variables == [net.w, average, {}]


def test_results_stay_on_a_device_with_its_own_memory(context, on_device, rng, monkeypatch):
    results = []
    for is_apart in (False, True):
        monkeypatch.setattr("pytensor_cl.train.parts.has_own_memory", lambda is_apart=is_apart: is_apart)
        x, w = pt.fmatrix("x"), pytensor.shared(np.ones((5, 3), "float32"), name="w")
        loss = pt.sqr(x @ w).mean()
        step = train.step([x], loss, optimizers.SGD(0.1), mode="OPENCL")
        results.append([step(np.full((8, 5), number, "float32"))["loss"] for number in (1, 2, 3)])
    assert not any(isinstance(result, GpuArray) for result in results[0])
    assert all(isinstance(result, GpuArray) for result in results[1])
    assert list(map(float, results[0])) == list(map(float, results[1]))  # each call has arrays of its own


def test_what_is_refused():
    net = Net()
    inputs, sgd = [net.x, net.y], optimizers.SGD(0.1)
    with pytest.raises(TypeError, match=r"loss must be 0-d"):
        train.step(inputs, net.losses, sgd)
    with pytest.raises(TypeError, match=r"accuracy must be 0-d"):
        train.step(inputs, net.loss, sgd, metrics={"accuracy": net.losses})
    with pytest.raises(ValueError, match=r"cannot be named weight"):
        train.step(inputs, net.loss, sgd, metrics={"weight": net.hits})
    with pytest.raises(ValueError, match=r"positive number of parts"):
        train.step(inputs, net.loss, sgd, accumulate=0)
    with pytest.raises(TypeError, match=r"optimizer must be"):
        train.step(inputs, net.loss, "sgd")
    with pytest.raises(ValueError, match=r"there are no parameters"):
        train.step(inputs, net.x.mean(), sgd)
    with pytest.raises(ValueError, match=r"two updates for one variable.*w"):
        train.step(inputs, net.loss, sgd, updates={net.w: net.w})
    with pytest.raises(ValueError, match=r"at least one input"):
        train.step([], net.loss, sgd)
    with pytest.raises(ContextNotDefined, match=r"no context is called 'nowhere'"):
        train.step(inputs, net.loss, sgd, devices=["nowhere"])
    with pytest.raises(DisconnectedInputError, match="other"):
        train.step(inputs, net.loss, sgd, params=[net.w, pytensor.shared(1.0, name="other")])
    step = train.step(inputs, net.loss, sgd, mode="FAST_COMPILE")
    with pytest.raises(TypeError, match=r"has 2 arrays"):
        step(np.ones((2, 5)))


@pytest.mark.parametrize("mode", ["OPENCL", "FAST_COMPILE"])
def test_running_statistics_and_dropout(context, rng, mode):
    x, w = pt.dmatrix("x"), pytensor.shared(rng.normal(size=(5, 3)), name="w")
    mean, var = pytensor.shared(np.zeros(3), name="mean"), pytensor.shared(np.ones(3), name="var")
    noise = pt.random.shared_rng(seed=3, name="noise")
    normal, *_ = nn.batch_normalization_train(x @ w, None, None, running_mean=mean, running_var=var)
    _, dropped = nn.dropout(normal, 0.5, noise)
    loss = pt.sqr(dropped - 1).mean()
    step = train.step([x], loss, optimizers.SGD(0.1), metrics={"largest": pt.abs(normal).max()}, mode=mode)
    assert step.params == [w]
    assert step.weights == [w, mean, var]
    assert step.variables == [w, mean, var, noise, step.optimizer, {}]
    data = rng.normal(size=(8, 5))
    product = data @ w.get_value()
    step(data)
    np.testing.assert_allclose(mean.get_value(), 0.1 * product.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(var.get_value(), 0.9 + 0.1 * product.var(axis=0, ddof=1), rtol=1e-10)
    expected = (data @ w.get_value() - mean.get_value()) / np.sqrt(var.get_value() + 1e-4)
    results = step.evaluate(data)
    np.testing.assert_allclose(results["loss"], np.square(expected - 1).mean(), rtol=1e-10)
    np.testing.assert_allclose(results["largest"], np.abs(expected).max(), rtol=1e-10)
    assert results == step.evaluate(data)
