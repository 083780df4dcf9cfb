"""Calls that are captured and replayed."""

import gc
import threading

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.printing import Print

from pytensor_cl import explain
from pytensor_cl.linker.graphs import guards
from pytensor_cl.linker.run import graph_cache
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemm import GpuDot22, GpuGemm
from pytensor_cl.ops.gemv_pair import GpuGemvPair
from pytensor_cl.ops.rowwise import GpuRowwise
from pytensor_cl.runtime.registry import get_context
from tests.helpers import HostSort, assert_on_device, counted_traffic, normal, opencl

pytestmark = pytest.mark.usefixtures("on_device")

CALLS = WARMUP_CALLS + 4


@pytest.fixture
def x():
    return pt.matrix("x", dtype="float32")


def assert_close(got, expected, rtol=1e-4):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == np.float32 and got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol, 1e-5 * max(1, np.abs(expected).max(initial=0)))


def captured_graphs(f):
    return list(f.vm.executor.graphs.values())


def assert_repeats(f, arguments, expected, calls=CALLS):
    """Call a function with several arguments; all but the first calls must be repeated from one captured graph."""
    before = f.vm.executor.replay_count
    kept = [(f(*arguments(k)), expected(*arguments(k))) for k in range(calls)]
    for got, wanted in kept:  # at the end: later calls must not have changed earlier results
        for a, b in zip(got if isinstance(got, list) else [got], wanted, strict=True):
            assert_close(a, b)
    assert not f.vm.executor.unsupported_reason
    assert f.vm.executor.replay_count - before == calls - WARMUP_CALLS - 1


@pytest.mark.parametrize("size", [0, 1, 7, 300])
def test_results_are_those_of_each_call(context, x, rng, size):
    f = opencl([x], [pt.tanh(x @ x.T), (x.T @ x).sum(), x[::-1].T])
    assert_on_device(f, GpuElemwise, GpuDot22)
    values = [normal(rng, size, 5) for _ in range(CALLS)]

    def expected(v):
        v = v.astype("float64")
        return np.tanh(v @ v.T), (v.T @ v).sum(), v[::-1].T

    assert_repeats(f, lambda k: (values[k],), expected)
    (captured,) = captured_graphs(f)
    assert captured.kernels >= (2 if size else 1)
    assert captured.sync_count >= 1


def test_arguments_may_be_views_and_change_after_the_call(context, x, rng):
    f = opencl([x], pt.exp(x) * 2)
    base = normal(rng, 9, 6)
    for view in (base, base[::2], base[:, ::-1], base.T[1:], base[3:7, 1:4]):
        for _ in range(CALLS):
            value = view.copy() if view is base else view
            result = f(value)
            wanted = np.exp(value) * 2
            value[...] = value * 0.5
            assert_close(result, wanted)


def test_large_results_are_the_callers_own(context, x, rng):
    f = opencl([x], [x * 2, (x * 2).reshape((-1,)), x + 1])
    value = normal(rng, 200, 300)
    first = None
    for _ in range(CALLS):
        results = f(value)
        for got, wanted in zip(results, (value * 2, (value * 2).ravel(), value + 1), strict=True):
            assert_close(got, wanted)
            assert got.flags.writeable
            got[...] = -1  # no other code may use it
        assert first is None or (first == -1).all()
        first = results[2]
    assert f.vm.executor.replay_count


def test_a_result_and_a_shared_variable_may_be_one_array(context, x, rng):
    w = pytensor.shared(normal(rng, 2, 2), "w")
    y = pt.exp(x)
    f = opencl([x], [y, (x * 2)[:, ::2]], updates={w: y.T})
    value = normal(rng, 200, 300)
    for _ in range(CALLS):
        results = f(value)
        assert_close(results[0], np.exp(value))
        for result in results:
            result[...] = -1
        assert_close(w.get_value(), np.exp(value).T)
    assert f.vm.executor.replay_count


def test_random_numbers_of_the_host_are_drawn_once(context, x, rng):
    """A call that turns out not to match its captured graph runs again."""
    state = pytensor.shared(np.random.default_rng(5), "rng")
    after, count = pt.random.integers(1, 4, rng=state).owner.outputs
    last, draws = pt.random.normal(size=(count,), rng=after).owner.outputs
    outputs = [pt.exp(x)[:count].sum(), (pt.exp(draws.astype("float32")) * x.sum()).sum()]
    with pytensor.config.change_flags(on_opt_error="raise"):  # a graph with a generator goes through all rewrites
        f = opencl([x], outputs, updates={state: last})
    value, expected = np.ones((4, 1), "float32"), np.random.default_rng(5)
    for _ in range(5 * CALLS):
        rows = expected.integers(1, 4)
        numbers = expected.normal(size=rows).astype("float32")
        first, second = f(value)
        assert_close(first, np.float32(np.e * rows))
        assert_close(second, 4 * np.exp(numbers).sum())
    assert f.vm.executor.replay_count


def test_what_is_printed_is_printed_once(context, x, rng, capfd):
    n = pt.lscalar("n")
    f = opencl([x, n], pt.exp(x)[: Print("rows")(n)])
    for _ in range(CALLS):
        f(normal(rng, 4, 2), 3)
    assert capfd.readouterr().out.count("rows") == CALLS
    assert "printed" in f.vm.executor.unsupported_reason


def test_arguments_that_a_call_changes_change_once(context, x, rng):
    y = pt.fvector("y")
    ordered = HostSort(inplace=True)(y)
    inputs = [x, pytensor.In(y, mutable=True)]
    f = pytensor.function(inputs, pt.exp(x).sum() + ordered, mode="OPENCL", accept_inplace=True)
    for _ in range(CALLS):
        value = normal(rng, 5)
        assert_close(f(np.zeros((2, 2), "float32"), value.copy()), np.sort(value) + 4)


def test_shared_variables(context, x, rng):
    w, count = pytensor.shared(normal(rng, 5, 5), "w"), pytensor.shared(np.float32(0), "count")
    f = opencl([x], (w * x).sum(), updates={w: w + x, count: count + 1})
    total, steps, value = w.get_value(), 0, normal(rng, 5, 5)
    for k in range(3 * CALLS):
        assert_close(f(value), (total * value).sum())
        total, steps = total + value, steps + 1
        if k % 5 == 4:
            assert_close(w.get_value(), total)
            total = normal(rng, 5, 5)
            w.set_value(total)
    assert_close(w.get_value(), total)
    assert_close(count.get_value(), steps)
    assert f.vm.executor.replay_count > CALLS


def test_numbers_that_are_read_by_value_stay_on_the_device(context, x, rng):
    rate, value = pytensor.shared(np.float32(3), "rate"), normal(rng, 4, 3)
    grow = opencl([], [], updates={rate: rate + 1})
    f = opencl([x], x * rate)
    for k in range(2 * CALLS):
        grow()
        where = rate.container.storage.resident
        assert_close(f(value), value * (k + 4))
        assert rate.container.storage.resident == where
    assert f.vm.executor.replay_count


def test_updates_that_exchange_values(context, rng):
    a, b = (pytensor.shared(normal(rng, 6), name) for name in "ab")
    f = opencl([], [], updates={a: b * 2, b: a + 1})
    first, second = a.get_value(), b.get_value()
    for _ in range(2 * CALLS):
        f()
        first, second = second * 2, first + 1
        assert_close(a.get_value(borrow=False), first)
        assert_close(b.get_value(borrow=False), second)


def test_one_value_in_two_shared_variables(context, rng):
    value = normal(rng, 6)
    a, b = (pytensor.shared(value, name) for name in "ab")
    same = opencl([], [], updates={a: a + 1, b: a + 1})
    total = opencl([], a + 2 * b)
    for k in range(2 * CALLS):
        same()
        assert_close(total(), 3 * (value + k + 1))


def test_arrays_of_the_device_go_in_and_out(context, x, rng):
    y = x.transfer(context.name)
    step = opencl([y], (y * 2 + 1).transfer(context.name))
    value = normal(rng, 4, 4)
    results, wanted = [context.from_host(value)], [value]
    for _ in range(CALLS):
        results.append(step(results[-1]))
        wanted.append(wanted[-1] * 2 + 1)
    for got, expected in zip(results, wanted, strict=True):
        assert_close(got, expected)
    assert step.vm.executor.replay_count


def test_values_of_the_host_go_to_kernels_by_value(context, x, rng):
    a = pt.scalar("a", dtype="float32")
    f = opencl([x, a], x * (a + 1) - pt.exp(x) * a)
    value = normal(rng, 6, 5)
    numbers = rng.normal(size=CALLS).astype("float32")
    assert_repeats(f, lambda k: (value, numbers[k]), lambda v, a: (v * (a + 1) - np.exp(v) * a,))
    assert len(captured_graphs(f)) == 1


def test_values_of_the_host_go_to_kernels_of_rows(context, x, rng):
    """To those of both walks where rows are cut in chunks, and not to the copies of a folded array's rows."""
    a, row = pt.fscalar("a"), pt.fvector("row")
    values = np.random.default_rng(1).normal(size=CALLS).astype("float32")
    f = opencl([x, a], [(x * a).sum(axis=1) / a, pt.exp(x * a - (x * a).max())])
    assert_on_device(f, GpuRowwise)
    wide = normal(rng, 2, 40_000)
    assert_repeats(
        f,
        lambda k: (wide, values[k]),
        lambda v, a: ((v * a).sum(axis=1, dtype="float64") / a, np.exp(v * a - (v * a).max())),
    )
    f = opencl([x, row, a], x * a + row * a)
    narrow, short = normal(rng, 999, 3), normal(rng, 3)
    assert_repeats(f, lambda k: (narrow, short, values[k]), lambda v, r, a: (v * a + r * a,))


@pytest.mark.parametrize("order", ["C", "F", "gaps"])
def test_values_of_the_host_go_to_linear_models(context, x, rng, order):
    """One pass, and three steps; a scale becomes the product's alpha, which is read on the device."""
    a, s, y, b = pt.fscalar("a"), pt.fscalar("s"), pt.fvector("y"), pt.fvector("b")
    cost = (-0.5 * ((y - a - x @ b) / s) ** 2).sum()
    f = opencl([x, y, b, a, s], [cost, pytensor.grad(cost, b)])
    assert_on_device(f, GpuGemvPair)
    base = normal(rng, 600, 10)
    matrix = {"C": base, "F": np.asfortranarray(base), "gaps": base[::2, ::2]}[order]
    target, weights = normal(rng, len(matrix)), normal(rng, matrix.shape[1])

    def expected(matrix, target, weights, a, s):
        r = (target.astype("float64") - a - matrix @ weights) / s
        return -0.5 * np.sum(r**2), matrix.T @ r / s

    numbers = [np.abs(normal(rng, 2)) + np.float32(0.1) for _ in range(CALLS)]
    assert_repeats(f, lambda k: (matrix, target, weights, *numbers[k]), expected)


def test_scales_of_products_may_change(context, x, rng):
    a, b, y = pt.fscalar("a"), pt.fscalar("b"), pt.fmatrix("y")
    f = opencl([x, y, a, b], [a * (x @ y) + b * x])
    assert_on_device(f, GpuGemm)
    left, right = normal(rng, 30, 30), normal(rng, 30, 30)
    numbers = [normal(rng, 2) for _ in range(CALLS)]
    assert_repeats(f, lambda k: (left, right, *numbers[k]), lambda x, y, a, b: (a * (x.astype("float64") @ y) + b * x,))


def test_values_that_launches_depend_on_are_part_of_the_signature(context, x, rng):
    start, length = pt.lscalar("start"), pt.lscalar("length")
    f = opencl([x, start, length], pt.tanh(x[start : start + length] * 2))
    value = normal(rng, 20, 3)
    for k in range(12 * CALLS):
        i, n = k % 3, 5 + k % 2
        assert_close(f(value, i, n), np.tanh(value[i : i + n] * 2))
    assert f.vm.executor.replay_count
    for k in range(15):  # never the same twice
        assert_close(f(value, k, 2), np.tanh(value[k : k + 2] * 2))


def test_a_value_that_the_device_computes_is_checked(context, x, rng):
    f = opencl([x], pt.tanh(x[: pt.cast(x.sum(), "int64")] * 2))
    value = np.zeros((8, 3), "float32")
    for n in (4, 4, 4, 4, 4, 2, 4, 4, 3, 3, 3, 3, 3):
        value[0, 0] = n
        assert_close(f(value), np.tanh(value[:n] * 2))


def test_changing_shapes(context, x, rng, monkeypatch):
    monkeypatch.setattr(graph_cache, "MAX_GRAPHS", 4)
    f = opencl([x], pt.tanh(x @ x.T).sum(0))
    sizes = [*range(1, 12), *([3] * CALLS), *([4] * CALLS), *([3] * CALLS)]
    for n in sizes:
        value = normal(rng, n, 4)
        assert_close(f(value), np.tanh(value @ value.T).sum(0))
    assert len(captured_graphs(f)) == 2
    for n in list(range(1, 12)) * CALLS:
        f(normal(rng, n, 4))
    assert len(captured_graphs(f)) <= 4


def test_memory_stays_what_it_is(context, x, rng):
    f = opencl([x], [pt.tanh(x @ x.T) @ x, pt.exp(x).sum(1)])
    values = [normal(rng, n, 30) for n in (100, 90, 80)]
    for value in values:
        for _ in range(CALLS):
            f(value)
    gc.collect()
    before = context.memory.statistics()
    for _ in range(20):
        for value in values:
            f(value)
    gc.collect()
    after = context.memory.statistics()
    assert after == before and after.arena_bytes > 0


def test_intermediate_results_share_blocks(context, x, rng):
    y = x
    for k in range(12):
        y = pt.tanh(y @ x + k)
    f = opencl([x], y)
    value = normal(rng, 128, 128)
    for _ in range(CALLS):
        f(value)
    (captured,) = captured_graphs(f)
    assert captured.kernels >= 12
    plan = captured.memory.plan
    assert plan.nbytes <= 1.01 * plan.lower_bound
    workspace = max((t.nbytes for t in plan.allocations if t.shape is None), default=0)  # what a product packs
    assert plan.lower_bound <= 2 * value.nbytes + workspace


def test_trimming_the_pool_drops_captured_graphs(context, x, rng):
    f = opencl([x], pt.tanh(x @ x.T))
    value = normal(rng, 30, 4)
    for _ in range(CALLS):
        wanted = f(value)
    assert captured_graphs(f)
    context.memory.trim()
    assert not captured_graphs(f)
    for _ in range(CALLS):
        assert_close(f(value), wanted)
    assert captured_graphs(f)


def test_errors_are_raised_and_nothing_is_lost(context, rng):
    table, at = pytensor.shared(normal(rng, 7, 3)), pt.lvector("at")
    f = opencl([at], table[at] * 2, updates={table: table + 1})
    value, good, bad = table.get_value(), np.array([1, -1, 4]), np.array([1, 9, 4])
    for k in range(CALLS):
        assert_close(f(good), (value + k)[good] * 2)
    for _ in range(3):
        with pytest.raises(IndexError, match="out of bounds"):
            f(bad)
        assert_close(table.get_value(), value + CALLS)
    assert_close(f(good), (value + CALLS)[good] * 2)
    assert f.vm.executor.replay_count > 1


def test_errors_of_host_nodes_name_the_node(context, x, rng):
    f = opencl([x], pt.exp(pt.specify_shape(x, (None, 3))))
    for _ in range(CALLS):
        f(normal(rng, 2, 3))
    with pytest.raises((AssertionError, ValueError, TypeError), match="SpecifyShape|shape"):
        f(normal(rng, 2, 4))
    assert_close(f(np.zeros((2, 3), "float32")), np.ones((2, 3)))


class Refuses(Op):
    """Raises an error for numbers above 9."""

    __props__ = ()

    def make_node(self, v):
        return Apply(self, [v], [v.type()])

    def perform(self, node, inputs, output_storage):
        if np.any(inputs[0] > 9):
            raise RuntimeError("above 9")
        output_storage[0][0] = inputs[0].copy()


def test_notes_of_errors_are_those_of_other_calls(context, x, rng):
    """Errors of a node in the middle of a captured call, and of one that runs before the captured graph is chosen."""
    n = pt.lscalar("n")
    inside, before = opencl([x], pt.exp(Refuses()(x * 2))), opencl([x, n], pt.exp(x)[: Refuses()(n)])
    value = np.ones((4, 3), "float32")
    for _ in range(CALLS):
        inside(value)
        before(value, 2)
    assert inside.vm.executor.replay_count and before.vm.executor.replay_count
    for call, shape in ((lambda: inside(value * 9), "(4, 3)"), (lambda: before(value, 10), "()")):
        with pytest.raises(RuntimeError, match="above 9") as caught:
            call()
        assert any("Raised by node Refuses" in note and shape in note for note in caught.value.__notes__)
    assert_close(before(value, 2), np.exp(value[:2]))


class Calls(Op):
    """Calls a function of mode OPENCL in the middle of another one."""

    __props__ = ()

    def __init__(self, function):
        self.function = function

    def make_node(self, v):
        return Apply(self, [v], [v.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = self.function(inputs[0])


def test_a_function_that_calls_a_function(context, x, rng):
    inner = opencl([x], pt.tanh(x @ x) + 1)
    f = opencl([x], pt.exp(Calls(inner)(x * 2) @ x) + (x @ x))
    value = normal(rng, 6, 6) * np.float32(0.1)
    wanted = np.exp((np.tanh(4 * value @ value) + 1) @ value) + value @ value
    for _ in range(2 * CALLS):
        assert_close(f(value), wanted)
        inner(value)
    assert f.vm.executor.replay_count and inner.vm.executor.replay_count


def test_threads(context, x, rng):
    functions = [opencl([x], pt.tanh(x @ x.T) * k + x.sum()) for k in (1, 2)]
    values = [normal(rng, 40, 40) for _ in range(4)]
    wrong = []

    def work(k):
        f, v = functions[k % 2].copy(), values[k]
        wanted = np.tanh(v @ v.T) * (k % 2 + 1) + v.sum()
        wrong.extend(k for _ in range(50) if not np.allclose(f(v), wanted, rtol=1e-3, atol=1e-3))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


class Trims(Op):
    """Makes the context release all memory that it can, as it does when there is no more, in the middle of a call."""

    __props__ = ()
    wanted = False

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def infer_shape(self, node, shapes):
        return shapes

    def perform(self, node, inputs, output_storage):
        if Trims.wanted:
            get_context().memory.trim()
        output_storage[0][0] = np.sort(inputs[0])


def test_a_call_during_which_memory_runs_out(context, x, rng, monkeypatch):
    y = pt.matrix("y", dtype="float32")
    w = pytensor.shared(np.zeros((9, 9), "float32"))
    product = pt.tanh(x @ x.T)
    f = opencl([x, y], [(product @ product).sum(axis=0), Trims()(pt.exp(y)), product + 1], updates={w: w + product})
    total = np.zeros((9, 9), "float32")
    for k in range(4 * CALLS):
        monkeypatch.setattr(Trims, "wanted", k % 3 == 2)
        a, b = normal(rng, 9, 5), normal(rng, 3, 4)
        inner = np.tanh(a @ a.T)
        total += inner
        for got, wanted in zip(f(a, b), ((inner @ inner).sum(0), np.sort(np.exp(b)), inner + 1), strict=True):
            assert_close(got, wanted)
        assert_close(w.get_value(), total)
    assert f.vm.executor.replay_count


def test_no_captured_graphs_where_each_step_is_looked_at(context, x, rng):
    with pytensor.config.change_flags(profile=True):
        f = opencl([x], pt.tanh(x @ x.T))
    for _ in range(CALLS):
        f(normal(rng, 3, 3))
    assert not captured_graphs(f)


def test_explain_shows_captured_graphs(context, x, rng):
    f = opencl([x], pt.tanh(x @ x.T) @ x)
    assert not explain(f).captured_graphs
    for _ in range(CALLS):
        f(normal(rng, 3, 4))
    (report,) = explain(f).captured_graphs
    assert report.kernels == 2 and report.syncs == 1 and "(3, 4)" in report.signature
    assert report.live_bytes <= report.arena_bytes < report.peak_bytes
    results = [t for t in report.allocations if t.shape is not None]
    assert [(t.name, t.shape, t.dtype, t.nbytes) for t in results[:1]] == [("GpuDot22", (3, 4), "float32", 48)]
    text = str(explain(f))
    assert "captured graph" in text and "largest in the arena" in text and "float32(3, 3)" in text
    g = opencl([x], pt.nonzero(x)[0])
    for _ in range(8 * CALLS):
        g(np.eye(3, dtype="float32"))
    assert "not captured" in str(explain(g))


def test_a_call_that_only_updates_does_not_wait(context, rng):
    w, x = pytensor.shared(normal(rng, 50)), pt.vector("x", dtype="float32")
    f = opencl([x], [], updates={w: w * 0.5 + x})
    for _ in range(CALLS):
        f(np.ones(50, "float32"))
    (captured,) = captured_graphs(f)
    assert captured.sync_count == 0


def test_minibatches_that_are_slices(context, rng):
    data, w = pytensor.shared(normal(rng, 24, 5)), pytensor.shared(normal(rng, 5, 3))
    batch = pt.iscalar("batch")
    x = data[batch * 4 : (batch + 1) * 4]
    loss = (pt.tanh(x @ w) ** 2).mean()
    f = opencl([batch], loss, updates={w: w - np.float32(0.1) * pytensor.grad(loss, w)})
    value, rows = w.get_value(), data.get_value()
    for k in range(6 * CALLS):
        part = rows[k % 6 * 4 : (k % 6 + 1) * 4]
        h = np.tanh(part @ value)
        assert_close(f(k % 6), (h**2).mean())
        value -= np.float32(0.1) * part.T @ (2 * h * (1 - h**2) / h.size)
    assert (
        f.vm.executor.replay_count == 6 * (CALLS - WARMUP_CALLS - 1) and len(captured_graphs(f)) == 6
    )  # none begins at a like address


def test_a_shared_number_that_is_part_of_the_signature(context, rng):
    data, n = pytensor.shared(normal(rng, 30, 2)), pytensor.shared(np.int64(2), "n")
    f = opencl([], pt.tanh(data[: n + 1]).sum(0), updates={n: (n + 1) % 5})
    rows = data.get_value()
    for k in range(5 * CALLS):
        assert_close(f(), np.tanh(rows[: (k + 2) % 5 + 1]).sum(0))
    assert f.vm.executor.replay_count == 5 * (CALLS - WARMUP_CALLS - 1)


def test_an_array_of_numbers_is_no_counter(context, x, rng):
    at = pt.lvector("at")
    f = opencl([x, at], pt.tanh(x[at[0] : at[1]] * 2))
    value = normal(rng, 9, 3)
    for k in range(3 * CALLS):
        low, high = k % 2, 4 + k % 3
        assert_close(f(value, np.array([low, high])), np.tanh(value[low:high] * 2))


@pytest.mark.parametrize("size", [10, 5000])
def test_a_shared_variable_that_its_owner_may_change_is_uploaded_once_a_call(context, rng, size):
    value = rng.normal(size=size).astype("float32")
    w = pytensor.shared(value, "w", borrow=True)
    f = opencl([], pt.exp(w).sum())
    for _ in range(4):
        f()
    for _ in range(3):
        value += 1
        with counted_traffic() as traffic:
            assert_close(f(), np.exp(value).sum(), rtol=1e-4)
        is_staged = size == 10 and context.batch_launcher is not None  # kernels then read addresses from a table
        assert f.vm.executor.replay_count and traffic.up == (not is_staged)


def test_an_error_in_the_comparison_of_calls_is_logged_and_shown(context, rng, monkeypatch, caplog):
    """The calls are right, step by step; one note is enough."""
    x = pt.fvector("x")
    f = opencl([x], pt.exp(x))
    value = rng.normal(size=9).astype("float32")
    f(value)

    def broken():
        raise KeyError("a defect")

    monkeypatch.setattr(f.vm.executor.caches[0], "_read_signature", broken)
    with caplog.at_level("WARNING", "pytensor_cl"):
        for _ in range(4):
            assert_close(f(value), np.exp(value), rtol=1e-5)
    (record,) = caplog.records
    assert record.name == "pytensor_cl" and "a defect" in caplog.text
    assert "the comparison of calls failed: KeyError: 'a defect'" in str(explain(f))
    assert not f.vm.executor.replay_count


def test_wrong_data_are_no_error_of_the_comparison(context, rng, caplog):
    x, i = pt.fvector("x"), pt.lscalar("i")
    f = opencl([x, i], pt.exp(x.reshape((i, 2))))
    value = rng.normal(size=8).astype("float32")
    f.trust_input = True
    with caplog.at_level("WARNING", "pytensor_cl"):
        for _ in range(4):
            assert_close(f(value, np.array(4)), np.exp(value.reshape(4, 2)), rtol=1e-5)
            for wrong in ((value, np.array(3)), (None, np.array(4))):
                with pytest.raises(Exception, match="."):
                    f(*wrong)
    assert not caplog.records and "failed" not in str(explain(f))


def test_too_large_parts_of_a_signature_are_reported(context, rng, monkeypatch):
    monkeypatch.setattr(guards, "MAX_GUARD_BYTES", 4)
    x, i = pt.fvector("x"), pt.lscalar("i")
    f = opencl([x, i], pt.exp(x.reshape((i, 3))))
    value = rng.normal(size=6).astype("float32")
    for _ in range(4):
        assert_close(f(value, 2), np.exp(value).reshape(2, 3), rtol=1e-5)
    assert "Calls are not captured: launches depend on a value of the host of " in str(explain(f))
