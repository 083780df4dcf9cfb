"""Functions of which only parts can be captured."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.ifelse import ifelse
from pytensor.tensor.random.basic import IntegersRV

from pytensor_cl import explain
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from pytensor_cl.ops.scan import GpuScan
from pytensor_cl.ops.sort import GpuUnique
from tests.helpers import assert_on_device, normal, opencl

pytestmark = pytest.mark.usefixtures("on_device")

CALLS = 3 * (WARMUP_CALLS + 2)


@pytest.fixture
def x():
    return pt.matrix("x", dtype="float32")


def assert_close(got, expected):
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-3, atol=1e-4)


def kernels(f):
    return sum(r.kernels for r in f.vm.executor.graphs.values())


def test_nodes_before_and_after_are_replayed(context, x, rng):
    y = pt.tanh(x @ x.T)
    picked = (y * 2)[y[:, 0] > 0]
    f = opencl([x], [pt.exp(picked @ y).sum(0), y.sum()])
    assert_on_device(f, GpuAdvancedSubtensor)
    for k in range(4 * CALLS):
        value = normal(rng, 7, 5)
        value[:, :] = np.abs(value) if k % 3 else value  # seven rows most of the time
        h = np.tanh(value @ value.T)
        first, second = f(value)
        assert_close(first, np.exp((2 * h)[h[:, 0] > 0] @ h).sum(0))
        assert_close(second, h.sum())
    before, after = f.vm.executor.caches
    assert (
        before.replay_count >= 4 * CALLS - 2 * (WARMUP_CALLS + 1)
        and 2 * CALLS < after.replay_count < before.replay_count
    )
    assert (
        kernels(f) >= 4 and not f.vm.executor.unsupported_reason and f.vm.executor.replay_count == before.replay_count
    )
    report = explain(f)
    assert [op for op, _ in report.graph_breaks] == [
        str(n.op) for n in report.device_nodes if isinstance(n.op, GpuAdvancedSubtensor)
    ] and len(report.captured_graphs) >= 2
    assert "graph break" in str(report)


class HostIntegers(IntegersRV):
    """Has no kernel, so that NumPy draws."""


def test_a_value_of_the_host_between_parts_is_freed_after_its_last_use(context, rng):
    """The device reads it in its own memory, and it is gone when the part after it is captured."""
    table = rng.normal(size=(500, 3))

    def function(mode):
        first, second = (pytensor.shared(np.random.default_rng(seed)) for seed in (4, 5))
        next_first, index = HostIntegers()(0, 500, size=(50,), rng=first, return_next_rng=True)
        next_second, slopes = pt.random.normal(size=(3,), rng=second, return_next_rng=True)
        result = pt.tanh(pytensor.shared(table)[index] @ slopes) + 1
        return pytensor.function([], [slopes, result], updates={second: next_second, first: next_first}, mode=mode)

    f, reference = function("OPENCL"), function("FAST_COMPILE")
    assert_on_device(f, GpuAdvancedSubtensor)
    for _ in range(CALLS):
        for got, expected in zip(f(), reference(), strict=True):
            assert_close(got, expected)
    assert f.vm.executor.replay_count


def test_indices_between_parts_are_freed_after_their_last_use(context, rng):
    """Slices begin at them, and they are gone when their part is captured: a gradient between random weights."""
    a, b, start, first = pt.dmatrix("a"), pt.dvector("b"), pt.dvector("start"), pt.dvector("first")
    w, v = pt.dmatrix("w"), pt.dmatrix("v")

    def step(a0, a2, b, state, y3, y1, w, v):
        new = pt.tanh((a0 + a2) @ w + b + state @ v)
        return new, (y3 + y1) * 0.5 * new.sum()

    states, products = pytensor.scan(
        step,
        sequences=[{"input": a, "taps": [0, 2]}, b],
        outputs_info=[start, {"initial": first, "taps": [-3, -1]}],
        non_sequences=[w, v],
        go_backwards=True,
        return_updates=False,
    )

    def function(mode):
        generator = pytensor.shared(np.random.default_rng(3))
        between, one = pt.random.uniform(size=states.shape, rng=generator, return_next_rng=True)
        after, other = pt.random.uniform(size=products.shape, rng=between, return_next_rng=True)
        cost = (states * one).sum() + (products * other).sum()
        outputs = [cost, *pt.grad(cost, [w, v, start, first, a, b])]
        return pytensor.function([a, b, start, first, w, v], outputs, mode=mode, updates={generator: after})

    with pytensor.config.change_flags(opencl__placement="device"):
        f = function("OPENCL")
    assert_on_device(f, GpuScan)
    reference = function("FAST_COMPILE")
    for _ in range(CALLS):
        values = [rng.normal(size=shape) for shape in ((7, 2), 5, 3, 3, (2, 3), (3, 3))]
        for got, expected in zip(f(*values), reference(*values), strict=True):
            assert_close(got, expected)


def test_no_part_is_large_enough(context, x):
    f = opencl([x], pt.nonzero(x)[0])
    for _ in range(CALLS):
        np.testing.assert_array_equal(f(np.eye(3, dtype="float32")), [0, 1, 2])
    assert not explain(f).captured_graphs and "Calls are not captured: a " in str(explain(f))


def test_several_such_nodes(context, x, rng):
    values = pt.unique(pt.round(pt.tanh(x) * 3)) * 2
    again = pt.unique(pt.abs(values)) + x.sum()
    w = pytensor.shared(normal(rng, 3, 3), "w")
    f = opencl([x], [pt.exp(again), values.sum() + w.sum()], updates={w: w + pt.tanh(x[:3, :3])})
    assert_on_device(f, GpuUnique)
    total = w.get_value()
    for _ in range(3 * CALLS):
        value = normal(rng, 30, 4)
        found = np.unique(np.round(np.tanh(value) * 3)) * 2
        first, second = f(value)
        assert_close(first, np.exp(np.unique(np.abs(found)) + value.sum(dtype="float32")))
        assert_close(second, found.sum() + total.sum())
        total = total + np.tanh(value[:3, :3])
    assert_close(w.get_value(), total)
    assert f.vm.executor.replay_count > CALLS and len(f.vm.executor.graph_breaks) == 2


def test_views_across_such_a_node(context, x, rng):
    """Two variables that are the same memory are handed on."""
    y = x * 2
    count = pt.nonzero(y[0] > 0)[0].shape[0]
    f = opencl([x], [y.T + count, y[::-1] - count, (y @ y.T).sum(0) * count])
    value = normal(rng, 5, 6)
    for _ in range(2 * CALLS):
        value = np.roll(value, 1)
        n, h = (value[0] > 0).sum(), 2 * value
        for got, wanted in zip(f(value), (h.T + n, h[::-1] - n, (h @ h.T).sum(0) * n), strict=True):
            assert_close(got, wanted)
    assert f.vm.executor.replay_count


def test_errors_name_their_nodes_and_change_nothing(context, x, rng):
    at = pt.lvector("at")
    w = pytensor.shared(normal(rng, 4, 3), "w")
    rows = pt.nonzero(pt.tanh(x).sum(1) > 0)[0]
    f = opencl([x, at], (w[rows] * 2)[at], updates={w: w + 1})
    value, total = np.array([[1, 2], [-1, -1], [3, 1], [0, 1]], "float32"), w.get_value()
    for _ in range(CALLS):
        assert_close(f(value, [0, 2]), 2 * total[[0, 3]])
        total = total + 1
        with pytest.raises(IndexError, match="out of bounds"):
            f(value, [0, 3])
        assert_close(w.get_value(), total)
    assert f.vm.executor.replay_count


def test_random_numbers_are_drawn_once(context, x):
    state = pytensor.shared(np.random.default_rng(5), "rng")
    after, draws = pt.random.normal(size=(4, 3), rng=state, return_next_rng=True)
    last, count = pt.random.integers(1, 4, rng=after, return_next_rng=True)
    y = pt.exp(draws.astype("float32")) * x
    f = opencl([x], [pt.nonzero(pt.tanh(y) > 0.5)[0], pt.tanh(y * 2)[:count].sum()], updates={state: last})
    value, expected = np.ones((4, 3), "float32"), np.random.default_rng(5)
    for _ in range(2 * CALLS):
        y = np.exp(expected.normal(size=(4, 3)).astype("float32"))
        rows = expected.integers(1, 4)
        first, second = f(value)
        np.testing.assert_array_equal(first, np.nonzero(np.tanh(y) > 0.5)[0])
        assert_close(second, np.tanh(y * 2)[:rows].sum())
    assert f.vm.executor.replay_count


def test_arrays_that_are_copied(context, x, rng):
    """An update that is an input must be copied."""
    y = x.transfer(context.name)
    f = opencl([y], [y, pt.tanh(y @ y.T).transfer(context.name)])
    kept = []
    for _ in range(CALLS):
        value = normal(rng, 4, 4)
        kept.append((f(context.from_host(value)), value))
    for (first, second), value in kept:
        assert_close(first.to_host(), value)
        assert_close(second.to_host(), np.tanh(value @ value.T))
    assert f.vm.executor.replay_count


def test_conditionals(context, x, rng):
    c = pt.scalar("c", dtype="float32")
    y = pt.tanh(x @ x.T)
    f = opencl([x, c], pt.exp(ifelse(c > 0, pt.tanh(y @ y) * c, y + x.sum())).sum(0))
    for k in range(4 * CALLS):
        value, number = normal(rng, 5, 5), np.float32(k % 3 - 1)
        h = np.tanh(value @ value.T)
        assert_close(f(value, number), np.exp(np.tanh(h @ h) * number if number > 0 else h + value.sum()).sum(0))
    assert f.vm.executor.replay_count
