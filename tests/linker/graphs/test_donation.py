"""Updates that are written where the old value is."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from tests.helpers import HostSort, normal, opencl

pytestmark = pytest.mark.usefixtures("on_device")

CALLS = WARMUP_CALLS + 4


@pytest.fixture
def w(rng):
    return pytensor.shared(normal(rng, 7, 5), "w")


def donations(f):
    return [d for r in f.vm.executor.graphs.values() for d in r.donations]


def assert_close(got, expected):
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-5)


def handles(*variables):
    return [next(iter(v.container.storage.devices.values())).buffer.int_ptr for v in variables]


def count_allocations(context, monkeypatch):
    """The sizes of what is allocated from now on, in a list."""
    sizes, allocate = [], context.memory.allocate
    monkeypatch.setattr(context.memory, "allocate", lambda n: sizes.append(n) or allocate(n))
    return sizes


def test_a_training_step_allocates_nothing(context, rng, monkeypatch):
    x, rate = pt.fmatrix("x"), np.float32(0.1)
    w, b = pytensor.shared(normal(rng, 6, 3), "w"), pytensor.shared(normal(rng, 3), "b")
    speed = pytensor.shared(np.zeros((6, 3), "float32"), "speed")
    h = pt.tanh(x @ w + b)
    loss = (h**2).mean()
    slope, slope_b = pytensor.grad(loss, [w, b])
    new = np.float32(0.9) * speed - rate * slope
    step = opencl([x], loss, updates={speed: new, w: w + new, b: b - rate * slope_b})
    predict = opencl([x], pt.tanh(x @ w + b))
    value, bias, velocity, data = w.get_value(), b.get_value(), speed.get_value(), normal(rng, 8, 6)

    def check():
        nonlocal value, bias, velocity
        h = np.tanh(data @ value + bias)
        assert_close(step(data), (h**2).mean())
        d = 2 * h * (1 - h**2) / h.size
        velocity = np.float32(0.9) * velocity - rate * data.T @ d
        value, bias = value + velocity, bias - rate * d.sum(0)
        assert_close(predict(data), np.tanh(data @ value + bias))

    for _ in range(CALLS):
        check()
    held = context.memory.statistics().managed_bytes
    sizes, before = count_allocations(context, monkeypatch), handles(w, b, speed)
    for _ in range(4):
        step(data)
    assert context.memory.statistics().managed_bytes == held
    assert set(sizes) <= {b.get_value().nbytes}  # it is updated in the kernel that computes its gradient
    assert handles(w, speed) == before[::2] and len(donations(step)) == 2
    monkeypatch.undo()
    for v in (w, b, speed):
        v.set_value(v.get_value() * 0 + 1)
    value, bias, velocity = (v.get_value() for v in (w, b, speed))
    for _ in range(CALLS):
        check()
    for v, wanted in ((w, value), (b, bias), (speed, velocity)):
        assert_close(v.get_value(), wanted)
    (report,) = pytensor_cl.explain(step).captured_graphs
    assert report.peak_bytes < 2 * sum(v.get_value().nbytes for v in (w, b, speed)) + report.arena_bytes + 1024


@pytest.mark.parametrize("shape", [(3, 4, 2), (40, 3000, 50), (2, 20000, 3), (130, 1, 257)])
@pytest.mark.parametrize("factor", [0, 0.5])
def test_products_that_are_added(context, rng, shape, factor):
    m, k, n = shape
    a, b = (pt.matrix(name, dtype="float32") for name in "ab")
    w, v = pytensor.shared(normal(rng, m, n), "w"), pytensor.shared(normal(rng, m), "v")
    f = opencl([a, b], [], updates={w: np.float32(factor) * w - a @ b, v: v + np.float32(0.5) * a @ b[:, 0]})
    first, second = normal(rng, m, k) / np.float32(k**0.5), normal(rng, k, n)
    value, column = w.get_value(), v.get_value()
    for _ in range(CALLS):
        f(first, second)
        value = np.float32(factor) * value - first @ second
        column = column + np.float32(0.5) * first @ second[:, 0]
    assert len(donations(f)) == 1 + (factor > 0)
    np.testing.assert_allclose(w.get_value(), value, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(v.get_value(), column, rtol=1e-3, atol=1e-3)


def test_an_array_that_the_user_keeps_is_not_overwritten(context, rng):
    """Device arrays with other references, and views of them, are not overwritten."""
    w = pytensor_cl.shared(normal(rng, 7, 5), "w")
    step = opencl([], [], updates={w: w * 2 + 1})
    kept = []
    for k in range(4 * CALLS):
        array = w.get_value(borrow=True, return_internal_type=True)
        if k % 3 == 0:
            kept.append((array, array.to_host()))
        elif k % 3 == 1:
            view = array[1:].T
            kept.append((view, view.to_host()))
        del array
        before = w.get_value()
        step()
        assert_close(w.get_value(), before * 2 + 1)
    (donation,) = donations(step)
    assert donation.reuse_count > CALLS
    for array, value in kept:
        assert_close(array.to_host(), value)


def test_arrays_of_the_host_that_a_user_keeps_stay(context, w):
    step = opencl([], [], updates={w: w * 2 + 1})
    kept = []
    for _ in range(2 * CALLS):
        value = w.get_value(borrow=True)
        kept.append((value, value.copy()))
        step()
        assert_close(w.get_value(), value * 2 + 1)
    for _ in range(CALLS):
        step()
    assert donations(step)[0].reuse_count
    for value, copy in kept:
        assert_close(value, copy)


def test_results_of_earlier_calls_stay(context, w):
    on_device = opencl([], (w * 1).transfer(context.name), updates={w: w + 1})
    itself = opencl([], [w.transfer(context.name), w.T[1:].transfer(context.name)])
    new = opencl([], (w + 1).transfer(context.name), updates={w: w + 1})
    kept, value = [], w.get_value()
    for _ in range(3 * CALLS):
        kept.append((on_device(), value))
        value = value + 1
        kept.extend(zip(itself(), (value, value.T[1:]), strict=True))
        kept.append((new(), value + 1))
        value = value + 1
    assert not donations(new)
    for array, wanted in kept:
        assert_close(array.to_host(), wanted)
    assert_close(w.get_value(), value)


@pytest.mark.parametrize("updates", [lambda w: w.T @ w, lambda w: w[::-1] + w, lambda w: pt.exp(w) / pt.exp(w).sum()])
def test_values_that_are_read_after_they_would_be_written(context, rng, updates):
    w = pytensor.shared(normal(rng, 5, 5), "w")
    step = opencl([], [], updates={w: pt.tanh(updates(w)) + np.float32(0.1)})
    host = pytensor.shared(w.get_value())
    other = pytensor.function([], [], updates={host: pt.tanh(updates(host)) + np.float32(0.1)}, mode="FAST_COMPILE")
    for _ in range(2 * CALLS):
        step()
        other()
        assert_close(w.get_value(), host.get_value())


def test_the_old_value_as_a_result(context, w):
    f = opencl([], [w, w * 3], updates={w: w + 1})
    value = w.get_value()
    for _ in range(2 * CALLS):
        same, thrice = f()
        assert_close(same, value)
        assert_close(thrice, 3 * value)
        value = value + 1


def test_a_call_that_fails_changes_nothing(context, w):
    """Neither where a kernel finds an error at the end, nor where the host does in the middle."""
    at = pt.lvector("at")
    table = opencl([at], w[at], updates={w: w + 1})

    class Refuses(HostSort):
        def perform(self, node, inputs, output_storage):
            if (inputs[0] > 100).any():
                raise RuntimeError("above 100")
            super().perform(node, inputs, output_storage)

    x = pt.fvector("x")
    host = opencl([x], Refuses()(pt.exp(w * 0).sum() + x), updates={w: w + 1})
    for f, good, bad in ((table, [1, 2], [1, 99]), (host, np.ones(3, "f"), np.full(3, 999, "f"))):
        for _ in range(CALLS):
            f(good)
        value = w.get_value()
        for _ in range(3):
            with pytest.raises((IndexError, RuntimeError)):
                f(bad)
            assert_close(w.get_value(), value)
        f(good)
        assert_close(w.get_value(), value + 1)


def test_one_value_in_two_variables(context, rng):
    value = pytensor_cl.runtime.registry.get_context(context.name).from_host(normal(rng, 4, 4))
    a, b = (pytensor_cl.shared(value, name, borrow=True) for name in "ab")
    assert a.get_value(borrow=True, return_internal_type=True).buffer.int_ptr == value.buffer.int_ptr
    step, wanted = opencl([], [], updates={a: a + 1}), value.to_host()
    for k in range(CALLS):
        step()
        if k == CALLS - 2:
            b.set_value(a.get_value(borrow=True, return_internal_type=True), borrow=True)
            expected_b = wanted + k + 1
    assert_close(a.get_value(), wanted + CALLS)
    assert_close(b.get_value(), expected_b)
    assert_close(value.to_host(), wanted)
