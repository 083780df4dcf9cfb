"""Schedules beyond PyTorch's, clipping, accumulation, averages, L-BFGS."""

from itertools import pairwise

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import optimizers
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemv_pair import GpuGemvPair
from tests.helpers import assert_on_device
from tests.optimizers.reference import params_of

BOTH = pytest.mark.parametrize("mode", ["FAST_COMPILE", "OPENCL"])


def compiled(inputs, outputs, updates, mode, kind=GpuElemwise):
    f = pytensor.function(inputs, outputs, updates=updates, mode=mode)
    if mode == "OPENCL":
        assert_on_device(f, kind)
    return f


def rates(schedule, *counts):
    return schedule(np.array(counts)).eval().tolist()


def test_schedules_are_constant_after_their_end():
    assert rates(optimizers.cosine(0.5, 10, final=0.125), 0, 5, 10, 11, 1000) == [0.5, 0.3125, 0.125, 0.125, 0.125]
    first, *rest = rates(optimizers.one_cycle(1.0, 10), 9, 10, 500)
    assert rest == [first, first]
    assert first == pytest.approx(1 / 25 / 1e4)


def test_schedules_by_hand():
    assert rates(optimizers.piecewise([2, 4], [3.0, 2.0, 1.0]), 0, 1, 2, 3, 4, 9) == [3, 3, 2, 2, 1, 1]
    assert rates(optimizers.constant(0.25), 0, 7) == [0.25, 0.25]
    assert rates(optimizers.warm_up(0.5, 4), 0, 1, 2, 4, 9) == [0, 0.125, 0.25, 0.5, 0.5]
    late = optimizers.warm_up(optimizers.step_decay(0.5, 2, 0.5), 4, start=0.1)
    np.testing.assert_allclose(rates(late, 0, 2, 4, 5, 6, 8), [0.1, 0.3, 0.5, 0.5, 0.25, 0.125])
    assert rates(optimizers.warm_up(0.5, 0), 0, 1) == [0.5, 0.5]
    assert rates(optimizers.one_cycle(1.0, 1), 0, 1)[0] == pytest.approx(1.0)
    assert optimizers.cosine(1.0, 4)(2).type.ndim == 0


@pytest.mark.parametrize("floatx", ["float32", "float64"])
def test_schedules_of_large_counts_keep_their_digits(floatx):
    """float32 has no odd number above 2^24."""
    with pytensor.config.change_flags(floatX=floatx):
        assert rates(optimizers.piecewise([2**24 + 1], [1.0, 0.5]), 2**24, 2**24 + 1) == [1.0, 0.5]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: optimizers.cosine(0.1, 0), "total_steps must be a whole number of at least 1"),
        (lambda: optimizers.step_decay(0.1, 2.5), "step_size must be a whole number"),
        (lambda: optimizers.exponential(-1.0, 0.5), "rate must not be negative"),
        (lambda: optimizers.piecewise([3, 2], [1, 2, 3]), "rising boundaries"),
        (lambda: optimizers.piecewise([3], [1.0]), "one rate more"),
        (lambda: optimizers.one_cycle(1.0, 10, pct_start=1.5), "pct_start must be between 0 and 1"),
        (lambda: optimizers.one_cycle(1.0, 10, div_factor=0.0), "must be positive"),
    ],
)
def test_errors_of_schedules(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.usefixtures("on_device")
@BOTH
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_clipping(context, mode, dtype):
    a, b = pt.tensor("a", dtype=dtype, shape=(None,)), pt.tensor("b", dtype=dtype, shape=(None, None))
    scaled, norm = optimizers.clip_by_global_norm([a, b], 2.0)
    bounded = optimizers.clip_by_value([a, b], 0.5)
    f = compiled([a, b], [*scaled, norm, *bounded], None, mode)
    x, y = np.linspace(-3, 3, 5).astype(dtype), np.linspace(-1, 2, 6).reshape(2, 3).astype(dtype)
    for factor in (1.0, 0.25, 0.0):
        values = [(v * np.asarray(factor, dtype)) for v in (x, y)]
        wide = [value.astype("float64") for value in values]
        wanted = np.sqrt(sum((v**2).sum() for v in wide))
        got = f(*values)
        tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3}[dtype]
        assert got[2].dtype == ("float64" if dtype == "float64" else "float32")
        np.testing.assert_allclose(got[2], wanted, rtol=tolerance)
        for k, value in enumerate(wide):
            assert got[k].dtype == got[3 + k].dtype == dtype
            np.testing.assert_allclose(got[k], value * min(1, 2 / (wanted + 1e-6)), rtol=tolerance, atol=tolerance)
            if wanted < 2:
                np.testing.assert_array_equal(got[k], values[k])  # exactly as it was
            np.testing.assert_array_equal(got[3 + k], np.clip(values[k], -0.5, 0.5).astype(dtype))


def test_clipping_of_infinities_and_nan():
    a = pt.dvector("a")
    (scaled,), norm = optimizers.clip_by_global_norm([a], 1.0)
    f = pytensor.function([a], [scaled, norm, *optimizers.clip_by_value([a], 2.0)], mode="FAST_COMPILE")
    got, length, bounded = f([1.0, np.inf, -1.0])
    assert length == np.inf
    np.testing.assert_array_equal(got, [0, np.nan, 0])
    np.testing.assert_array_equal(bounded, [1, 2, -1])
    got, length, bounded = f([1.0, np.nan, -3.0])
    assert np.isnan(got).all()
    assert np.isnan(length)
    np.testing.assert_array_equal(bounded, [1, np.nan, -2])
    with pytest.raises(ValueError, match="limit must not be negative"):
        optimizers.clip_by_value([a], -1.0)
    with pytest.raises(ValueError, match="at least one gradient"):
        optimizers.clip_by_global_norm([], 1.0)


@pytest.mark.usefixtures("on_device")
@BOTH
def test_half_precision_norm_does_not_overflow(context, mode):
    """The square of 300 is infinite in float16."""
    a = pt.tensor("a", dtype="float16", shape=(None,))
    (scaled,), norm = optimizers.clip_by_global_norm([a], 1.0)
    got, length = compiled([a], [scaled, norm], None, mode)(np.full(4, 300, "float16"))
    assert length == pytest.approx(600)
    np.testing.assert_allclose(got, 0.5, rtol=1e-3)


@pytest.mark.usefixtures("on_device")
@BOTH
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_accumulated_parts_equal_the_whole(context, mode, dtype):
    """Parts of different sizes, one of them empty; twice, so that the sums have been cleared."""
    x, y = pt.matrix("x", dtype=dtype), pt.vector("y", dtype=dtype)
    w, whole = (pytensor.shared(np.ones(3, dtype), name="w") for _ in range(2))

    def loss_of(w):
        return (pt.sqr(x @ w - y).sum() / pt.maximum(x.shape[0], 1)).astype(dtype)

    parts = optimizers.Accumulator([w])
    grads = pytensor.grad(loss_of(w), [w])
    add = compiled([x, y], [], parts.add(grads, x.shape[0]), mode, GpuGemvPair)
    means, cleared = parts.finish(grads, x.shape[0])
    last = compiled([x, y], [], {**optimizers.momentum(means, [w], 0.1), **cleared}, mode, GpuGemvPair)
    at_once = compiled([x, y], [], optimizers.momentum(loss_of(whole), [whole], 0.1), mode, GpuGemvPair)
    rng = np.random.default_rng(4)
    for sizes in ((3, 0, 5, 1), (2, 7)):
        data = rng.normal(size=(sum(sizes), 3)).astype(dtype), rng.normal(size=sum(sizes)).astype(dtype)
        edges = np.cumsum([0, *sizes])
        for first, end in pairwise(edges[:-1]):
            add(*(value[first:end] for value in data))
        last(*(value[edges[-2] :] for value in data))
        at_once(*data)
        np.testing.assert_allclose(w.get_value(), whole.get_value(), rtol=1e-12 if dtype == "float64" else 1e-5)
        assert all(not np.any(v.get_value()) for v in parts.state.values())
    before = w.get_value()
    empty = np.zeros((0, 3), dtype), np.zeros(0, dtype)
    last(*empty)
    assert np.isfinite(w.get_value()).all()
    assert not np.array_equal(w.get_value(), before)  # momentum goes on


@pytest.mark.usefixtures("on_device")
@BOTH
@pytest.mark.parametrize("warm_up", [False, True])
def test_averages(context, mode, warm_up):
    (w,) = params_of("float32", {"w": np.zeros(3)})
    statistic = pytensor.shared(np.full(2, 5, "float32"), name="running_mean")
    updates, averages = optimizers.ema(
        {w: w + np.float32(1), statistic: statistic * np.float32(2)}, [w, statistic], 0.75, warm_up
    )
    f = compiled([], [], updates, mode)
    mean, other = 0.0, 5.0
    for t in range(1, 8):
        f()
        decay = min(0.75, (1 + t) / (10 + t)) if warm_up else 0.75
        mean, other = decay * mean + (1 - decay) * t, decay * other + (1 - decay) * 5 * 2**t
        np.testing.assert_allclose(averages["ema/w"].get_value(), mean, rtol=1e-6)
        np.testing.assert_allclose(averages["ema/running_mean"].get_value(), other, rtol=1e-6)
    assert ("ema/step" in averages) == warm_up


def test_averages_of_half_precision():
    """In float16 a thousandth of the difference is lost."""
    (w,) = params_of("float16", {"w": np.full(3, 1.0)})
    updates, averages = optimizers.ema({w: pt.ones_like(w) * np.float16(1.25)}, [w], 0.999)
    pytensor.function([], [], updates=updates, mode="FAST_COMPILE")()
    np.testing.assert_allclose(averages["ema/w"].get_value(), 1.00025, rtol=1e-6)
    with pytest.raises(ValueError, match="decay must be at least 0 and less than 1"):
        optimizers.ema(updates, [w], 1.0)


def rosenbrock(w, b):
    """Its minimum is 0 where all are 1."""
    x = pt.concatenate([w.ravel(), b])
    return (100 * pt.sqr(x[1:] - pt.sqr(x[:-1])) + pt.sqr(1 - x[:-1])).sum()


@pytest.mark.usefixtures("on_device")
@BOTH
def test_lbfgs(context, mode):
    w, b = pytensor.shared(np.full((2, 2), -0.5), name="w"), pytensor.shared(np.zeros(1, "float64"), name="b")
    scale = pt.dscalar("scale")
    minimise = optimizers.lbfgs(scale * rosenbrock(w, b), [w, b], [scale], max_iter=200, mode=mode)
    if mode == "OPENCL":
        assert_on_device(minimise.function, GpuElemwise)
    result = minimise(2.0)
    assert result.success
    assert result.fun < 1e-10
    np.testing.assert_allclose(w.get_value(), 1, atol=1e-4)
    np.testing.assert_allclose(b.get_value(), 1, atol=1e-4)


def test_lbfgs_keeps_the_best_point():
    """float32 and few iterations; an interrupt comes through."""
    w = pytensor.shared(np.array([3.0, -2.0], "float32"), name="w")
    minimise = optimizers.lbfgs(pt.sqr(w).sum(), [w], max_iter=1, mode="FAST_COMPILE")
    first = minimise()
    assert first.nit <= 1
    assert first.fun == pytest.approx(float((w.get_value() ** 2).sum()), rel=1e-6)
    assert w.get_value().dtype == "float32"
    calls, inner = [], minimise.function

    def interrupted():
        calls.append(inner())
        if len(calls) == 2:
            raise KeyboardInterrupt
        return calls[-1]

    w.set_value(np.array([3.0, -2.0], "float32"))
    minimise.function = interrupted
    with pytest.raises(KeyboardInterrupt):
        minimise()
    np.testing.assert_array_equal(w.get_value(), np.array([3.0, -2.0], "float32"))
    with pytest.raises(ValueError, match="at least one parameter"):
        optimizers.lbfgs(pt.dscalar(), [])
