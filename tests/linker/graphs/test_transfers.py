"""Small arguments go to the device by one command, small results come back by one, if it has a memory of its own."""

import threading

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.linker.graphs.transfers import ArgumentBlock
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.runtime.memory.staging import MIN_BYTES
from tests.device_apart import context_apart
from tests.helpers import opencl


@pytest.fixture
def apart():
    """A context whose device has a memory of its own; functions of mode OPENCL run on it."""
    with context_apart() as context:
        assert context.staging.is_usable()
        yield context


@pytest.fixture
def commands(apart, monkeypatch):
    """The names of the queue's methods that were called."""
    used = []
    for name in ("write", "start_write", "read", "start_read", "finish", "launch"):
        method = getattr(apart.queue, name)
        monkeypatch.setattr(apart.queue, name, lambda *args, m=method, n=name: (used.append(n), m(*args))[1])
    return used


def warm(f, *values):
    """Call a function until it is captured, and once more."""
    for _ in range(WARMUP_CALLS + 2):
        result = f(*values)
    assert f.vm.executor.replay_count
    return result


def test_several_arguments_and_results_need_three_commands(apart, commands, rng):
    x, y, n = pt.fvector("x"), pt.fmatrix("y"), pt.ivector("n")
    f = opencl([x, y, n], [pt.exp(x), pt.tanh(y).sum(0), y.T + 1, n * 2, (y * x).sum()])
    for size in (1, 5, 7):
        a, b, c = (rng.normal(size=s).astype("float32") for s in (3, (size, 3), 4))
        c = c.astype("int32")
        warm(f, a, b, c)
        commands.clear()
        a += 1
        results = f(a, np.asfortranarray(b), c[::-1])
        expected = [np.exp(a), np.tanh(b).sum(0), b.T + 1, c[::-1] * 2, (b * a).sum()]
        for got, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)
            assert got.shape == wanted.shape and got.flags.owndata
        assert commands == ["start_write", "start_read", "finish"]


def test_the_caller_may_change_arguments_and_results(apart, rng):
    x, y = pt.fvectors("xy")
    f = opencl([x, y], [x + y, x * y])
    a, b = rng.normal(size=(2, 100)).astype("float32")
    warm(f, a, b)
    kept = []
    for k in range(70):  # more calls than slots
        a[...], b[...] = k, 2
        kept.append(f(a, b))
        a[...] = -1
    for k, (total, product) in enumerate(kept):
        assert (total == k + 2).all() and (product == 2 * k).all()
        total[...] = 0


def test_calls_that_nothing_waits_for(apart, rng):
    x, y = pt.fvectors("xy")
    shared = pytensor.shared(np.zeros(50, "float32"))
    f = opencl([x, y], [], updates={shared: shared + pt.exp(x) * y})
    expected = np.zeros(50)
    for k in range(100):
        a, b = np.full(50, k / 100, "float32"), np.full(50, k, "float32")
        f(a, b)
        expected += np.exp(a) * b
        a[...] = b[...] = np.nan
    np.testing.assert_allclose(shared.get_value(), expected, 1e-4)


def test_what_is_not_small_goes_alone(apart, commands, rng):
    x, y = pt.fvectors("xy")
    f = opencl([x, y], [pt.exp(x), pt.exp(y), pt.exp(x).sum() + pt.exp(y).sum()])
    a, b = rng.normal(size=10).astype("float32"), rng.normal(size=MIN_BYTES // 4).astype("float32")
    warm(f, a, b)
    commands.clear()
    for got, wanted in zip(f(a, b), [np.exp(a), np.exp(b), np.exp(a).sum() + np.exp(b).sum()], strict=True):
        np.testing.assert_allclose(got, wanted, 1e-4)
    assert commands.count("start_write") == 2 and commands.count("read") == 1


def test_results_that_do_not_fit_together(apart, rng):
    x = pt.fmatrix("x")
    parts = [pt.exp(x[k]) for k in range(20)]
    f = opencl([x], [*parts, pt.tanh(x).sum(0)])
    value = rng.normal(size=(20, MIN_BYTES // 4 - 1)).astype("float32")
    results = warm(f, value)
    for k in range(20):
        np.testing.assert_allclose(results[k], np.exp(value[k]), 1e-5)
    np.testing.assert_allclose(results[20], np.tanh(value).sum(0), 1e-4, 1e-4)


def test_arguments_that_do_not_fit_together(apart, rng):
    xs = pt.fvectors(12)
    f = opencl(xs, [pt.exp(sum(xs))])
    values = rng.normal(size=(12, MIN_BYTES // 4 - 1)).astype("float32")
    (result,) = warm(f, *values)
    np.testing.assert_allclose(result, np.exp(values.sum(0)), 1e-4)


def test_an_argument_that_is_returned_has_memory_of_its_own(apart, rng):
    x, y = pt.fvectors("xy")
    on_device = pytensor.function([x, y], [pytensor.Out(x.transfer("apart"), borrow=True), pt.exp(y)], mode="OPENCL")
    values = rng.normal(size=(10, 2, 30)).astype("float32")
    kept = [on_device(*pair) for pair in values]
    for (a, b), (first, second) in zip(values, kept, strict=True):
        np.testing.assert_array_equal(np.asarray(first), a)
        np.testing.assert_allclose(second, np.exp(b), 1e-5)


def test_errors_of_kernels_come_with_the_results(apart, commands, rng):
    x, k = pt.fvector("x"), pt.lvector("k")
    f = opencl([x, k], [pt.exp(x[k]), x.sum()])
    value, good, bad = rng.normal(size=20).astype("float32"), np.array([3, 0, 19]), np.array([3, 20, 0])
    warm(f, value, good)
    for _ in range(3):
        commands.clear()
        got, total = f(value, good)
        np.testing.assert_allclose(got, np.exp(value[good]), 1e-5)
        np.testing.assert_allclose(total, value.sum(), 1e-4)
        assert commands == ["start_write", "start_read", "start_read", "finish"]
        with pytest.raises(IndexError, match="20"):
            f(value, bad)


def test_steps_between_results(apart, rng):
    """A value that the host has computed from a result goes back to the device."""
    x = pt.fvector("x")
    n = pt.exp(x).sum().astype("int64") % 5 + 1
    f = opencl([x], [pt.exp(x), pt.tanh(x)[:n], pt.arange(n) * 2, x.sum()])
    for _ in range(8):
        value = rng.normal(size=12).astype("float32")
        count = int(np.exp(value).sum()) % 5 + 1
        results = f(value)
        np.testing.assert_allclose(results[0], np.exp(value), 1e-5)
        np.testing.assert_allclose(results[1], np.tanh(value)[:count], 1e-5)
        np.testing.assert_array_equal(results[2], np.arange(count) * 2)


def test_an_argument_of_another_kind_runs_step_by_step(apart, rng):
    x, y = pt.fvectors("xy")
    f = opencl([x, y], [x + y, x * y], trust_input=True)
    a, b = rng.normal(size=(2, 8)).astype("float32")
    warm(f, a, b)
    np.testing.assert_allclose(f(a.astype(">f4"), b)[0], a + b, 1e-6)
    with pytest.raises(TypeError, match="expected an array with dtype=float32"):
        f(a.astype("float64"), b)
    np.testing.assert_allclose(f(a, b)[1], a * b, 1e-6)


def test_two_functions_and_two_threads(apart, rng):
    x, y = pt.fvectors("xy")
    functions = [opencl([x, y], [pt.exp(x) + k, (x * y).sum()]) for k in range(2)]
    wrong = []

    def work(k):
        mine = np.random.default_rng(k)
        for _ in range(60):
            a, b = mine.normal(size=(2, 40)).astype("float32")
            first, second = functions[k](a, b)
            if not (np.allclose(first, np.exp(a) + k, 1e-5) and np.allclose(second, (a * b).sum(), 1e-3, 1e-3)):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_devices_in_the_memory_of_the_host_transfer_one_by_one(context, rng):
    x, y = pt.fvectors("xy")
    f = opencl([x, y], [x + y, pt.exp(x * y)])
    a, b = rng.normal(size=(2, 8)).astype("float32")
    np.testing.assert_allclose(warm(f, a, b)[1], np.exp(a * b), 1e-5)
    if context.info.kind == "cpu":
        graph = next(iter(f.vm.executor.graphs.values()))
        assert not any(isinstance(step, ArgumentBlock) for _, step in graph.steps)
