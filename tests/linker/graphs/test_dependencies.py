"""Captured calls whose kernels run from one launch."""

import gc

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.linker.graphs.buffers import ArenaBinding, BufferBinding
from pytensor_cl.linker.graphs.dependencies import Access, accesses, predecessor_index
from pytensor_cl.linker.graphs.memory import ArenaRange
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.ops.gemm import GpuDot22
from pytensor_cl.ops.rowwise import GpuRowwise
from pytensor_cl.runtime.queue import Queue
from tests.helpers import assert_on_device, normal, opencl

pytestmark = pytest.mark.usefixtures("on_device")

CALLS = WARMUP_CALLS + 4


@pytest.fixture
def x():
    return pt.matrix("x", dtype="float32")


def dispatched(context, f):
    """How many kernels each sequence of the only captured graph runs."""
    (captured,) = f.vm.executor.graphs.values()
    counts = [len(step.sequence) for step in captured.sequences]
    assert sum(counts) == captured.kernels
    assert captured.launches == len(counts) if context.batch_launcher else captured.launches <= captured.kernels
    return counts


def test_accesses_collide_where_one_of_them_writes():
    read, write = Access("a", 0, 4, False), Access("a", 2, 6, True)
    assert read.conflicts(write) and write.conflicts(read) and write.conflicts(write)
    assert not read.conflicts(read)
    assert not write.conflicts(read._replace(end=2)) and not write.conflicts(read._replace(memory="b"))


def test_slots_may_be_the_same_memory_unless_it_is_new():
    given, other, new = BufferBinding(), BufferBinding(), BufferBinding()
    block = ArenaBinding(ArenaRange(0, 128, 64))
    found = accesses("rwvwrw", [given, other, None, new, block, None], {new})
    assert [a.writes for a in found] == [False, True, True, False]
    assert found[0].conflicts(found[1]) and not found[2].conflicts(found[1])
    assert found[3].begin == 128 and found[3].end == 192


def test_the_last_collision_counts():
    a, b = Access("a", 0, 1, True), Access("b", 0, 1, True)
    used = [[a], [b], [a._replace(writes=False)], [b._replace(writes=False)], [a, b], []]
    assert predecessor_index(used) == [-1, -1, 0, 1, 3, -1]


def test_a_training_step_is_one_launch(context, rng):
    x, t = pt.fmatrices("x", "t")
    first, second = (pytensor.shared(normal(rng, *s)) for s in ((20, 30), (30, 5)))
    cost = ((pt.tanh(x @ first) @ second - t) ** 2).mean()
    rate = pt.fscalar("rate")
    updates = [(w, w - rate * g) for w, g in zip((first, second), pt.grad(cost, [first, second]), strict=True)]
    host = [w.get_value() for w in (first, second)]
    f = opencl([x, t, rate], cost, updates=updates)
    assert_on_device(f, GpuDot22)
    on_host = [pytensor.shared(w) for w in host]
    g = pytensor.function(
        [x, t, rate],
        cost,
        givens=dict(zip((first, second), on_host, strict=True)),
        updates=[(h, h - rate * d) for h, d in zip(on_host, _gradients(x, t, *on_host), strict=True)],
        mode="NUMBA",
    )
    for k in range(CALLS):
        values = normal(rng, 64, 20), normal(rng, 64, 5), np.float32(0.1 / (k + 1))
        np.testing.assert_allclose(f(*values), g(*values), 1e-4)
    for mine, theirs in zip((first, second), on_host, strict=True):
        np.testing.assert_allclose(mine.get_value(), theirs.get_value(), 1e-3, 1e-5)
    assert len(dispatched(context, f)) in (1, 2)


def _gradients(x, t, first, second):
    return pt.grad(((pt.tanh(x @ first) @ second - t) ** 2).mean(), [first, second])


def test_products_that_do_not_depend_on_each_other_need_not_wait(context, x, rng):
    f = opencl([x], [x @ x.T, x.T @ x, pt.exp(x)])
    value = normal(rng, 50, 40)
    for _ in range(CALLS):
        got = f(value)
    for mine, wanted in zip(got, (value @ value.T, value.T @ value, np.exp(value)), strict=True):
        np.testing.assert_allclose(mine, wanted, 1e-4, 1e-4)
    if context.batch_launcher:
        (captured,) = f.vm.executor.graphs.values()
        (chain,) = [step.sequence for step in captured.sequences]
        after = chain.words[: 8 * len(chain)].reshape(-1, 8)[:, 6].astype("int64")
        assert len(after) > 2 and after.min() == -1 and (after < np.arange(len(after))).all()
        assert (after[1:] < np.arange(len(after) - 1)).any()


def test_updates_without_a_wait(context, rng):
    w = pytensor.shared(normal(rng, 100, 100))
    v = pytensor.shared(normal(rng, 100))
    x, s = pt.fvector("x"), pt.fscalar("s")
    f = opencl([x, s], [], updates=[(w, pt.tanh((w @ w) * s) + pt.outer(x, x)), (v, pt.tanh(v @ w))])
    expected, vector = w.get_value().astype("float64"), v.get_value().astype("float64")
    for k in range(60):
        value = normal(rng, 100) / 10
        f(value, np.float32(1 / (k + 1)))
        vector = np.tanh(vector @ expected)
        expected = np.tanh((expected @ expected) / (k + 1)) + np.outer(value, value)
        value[:] = np.nan  # the call has its own copy
        if k % 7 == 0:
            gc.collect()
    np.testing.assert_allclose(w.get_value(), expected, 1e-3, 1e-4)
    np.testing.assert_allclose(v.get_value(), vector, 1e-2, 1e-3)
    dispatched(context, f)


def test_arguments_that_are_the_same_array(context, rng):
    x, y = pt.fmatrices("x", "y")
    f = opencl([x, y], [pt.tanh(x) @ y, (x + y).sum(axis=0)])
    for k in range(CALLS):
        a = normal(rng, 30, 30)
        b = a if k % 2 else normal(rng, 30, 30)
        first, second = f(a, b)
        np.testing.assert_allclose(first, np.tanh(a) @ b, 1e-3, 1e-4)
        np.testing.assert_allclose(second, (a + b).sum(axis=0), 1e-4, 1e-4)


def test_shared_variables_that_are_set_between_calls(context, x, rng):
    w = pytensor.shared(normal(rng, 8, 6))
    f = opencl([x], pt.tanh(pt.tanh(x @ w) @ w.T))
    for k in range(3 * CALLS):
        if k % 3 == 0:
            w.set_value(normal(rng, 8, 6), borrow=k % 2 == 0)
        value, weights = normal(rng, 5, 8), w.get_value()
        np.testing.assert_allclose(f(value), np.tanh(np.tanh(value @ weights) @ weights.T), 1e-4, 1e-5)
    dispatched(context, f)


def test_checked_indices_release_no_workers(context, x, rng, monkeypatch):
    indices = pt.lvector("indices")
    f = opencl([x, indices], pt.tanh(x[indices]).sum(0) * 2)
    assert_on_device(f, GpuRowwise)
    value, which = normal(rng, 50, 4), rng.integers(-50, 50, 300)
    for _ in range(CALLS):
        f(value, which)
    waits = []
    finish = Queue.finish
    monkeypatch.setattr(Queue, "finish", lambda queue: waits.append(queue) or finish(queue))
    repeated = f.vm.executor.replay_count
    for _ in range(5):
        which = rng.integers(-50, 50, 300)
        np.testing.assert_allclose(f(value, which), np.tanh(value[which]).sum(0) * 2, 1e-4, 1e-4)
    assert f.vm.executor.replay_count == repeated + 5
    assert not (waits and context.batch_launcher)
    with pytest.raises(IndexError):
        f(value, which + 50)
    np.testing.assert_allclose(f(value, which), np.tanh(value[which]).sum(0) * 2, 1e-4, 1e-4)
