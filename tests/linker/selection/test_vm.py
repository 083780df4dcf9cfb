"""The side that runs a call: chosen by size and measured time, the same values and errors on both."""

import copy
import pickle
from dataclasses import replace

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Constant
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import SearchsortedOp

from pytensor_cl import GpuArrayType, explain
from pytensor_cl._compat.numba_backend import compiler_of
from pytensor_cl.linker.run.vm import OpenCLVM
from pytensor_cl.linker.selection import backends
from pytensor_cl.linker.selection import vm as selecting_vm
from pytensor_cl.linker.selection.backends import DEVICE, HOST, NUMBA, Backend, C, CFunction, NumbaFunction
from pytensor_cl.linker.selection.estimate import NO_WORK, CostEstimate, Estimator
from pytensor_cl.linker.selection.vm import SelectingVM
from pytensor_cl.rewriting.host_graph.graph import host_graph_of
from tests.helpers import ALL, assert_close, on_one_driver, opencl

pytestmark = pytest.mark.usefixtures("c_compiler")


@pytest.fixture(autouse=True)
def _adapt():
    with pytensor.config.change_flags(opencl__select_backend=True):
        yield


@pytest.fixture
def impatient(monkeypatch):
    """Try all backends at once, whatever the estimates say."""
    monkeypatch.setattr(selecting_vm, "POLICY", replace(selecting_vm.POLICY, trial_budget=0.0))
    monkeypatch.setattr(selecting_vm, "BLAS_SPIN_SECONDS", 0.0)


@pytest.fixture
def numba_first(monkeypatch):
    """Begin with NUMBA, whatever the estimates say."""
    monkeypatch.setattr(Estimator, "__call__", lambda *_: CostEstimate(1.0, 1e-6, 1.0, NO_WORK._replace(nodes=99)))


def only(f):
    (found,) = explain(f).choices
    return found


def backend_of(f, side):
    return f.vm._device if side == DEVICE else f.vm._host_backends[side]


def count(f, side):
    """Count the calls of a backend of a function."""
    runs, original = [], f.vm._run_on

    def counted(name):
        if name == side:
            runs.append(1)
        return original(name)

    f.vm._run_on = counted
    return runs


def fast(f, side, monkeypatch):
    """Make the clock say that a call takes a millisecond on a backend, and a second on the others."""
    clock = [0.0]
    original = f.vm._run_on

    def timed(name):
        clock[0] += 1e-3 if name == side else 1.0
        return original(name)

    f.vm._run_on = timed
    monkeypatch.setattr(selecting_vm, "perf_counter", lambda: clock[0])


CALLS = 2 * sum(b.warmup_calls + selecting_vm.POLICY.timed_calls for b in (Backend, NumbaFunction, CFunction))
"""So many that all backends have been tried."""

x = pt.fvector("x")


def test_a_tiny_call_runs_on_the_host_and_builds_no_kernel(context, rng, numba_first):
    f = opencl([x], [pt.exp(x), x.sum()])
    value = rng.normal(size=10).astype("float32")
    for _ in range(3):
        e, total = f(value)
        assert isinstance(e, np.ndarray)
        assert_close(e, np.exp(value))
        assert_close(total, value.sum())
    assert only(f).side == HOST
    assert only(f).device_seconds is None
    assert f.vm._build_kernels is not None
    assert "host (NUMBA)" in str(explain(f))


def test_a_large_call_runs_on_the_device_and_compiles_nothing(context, rng):
    f = opencl([x], pt.exp(x))
    value = rng.normal(size=100_000).astype("float32")
    host = count(f, NUMBA)
    for _ in range(3):
        assert_close(f(value), np.exp(value), rtol=1e-5)
    assert only(f).side == DEVICE
    assert not host


@pytest.mark.parametrize("winner", [DEVICE, NUMBA, C])
@pytest.mark.parametrize("size", [10, 10_000])
def test_the_fastest_side_stays(context, rng, monkeypatch, impatient, winner, size):
    f = opencl([x], pt.exp(x))
    value = rng.normal(size=size).astype("float32")
    fast(f, winner, monkeypatch)
    for _ in range(CALLS):
        assert_close(f(value), np.exp(value), rtol=1e-5)
    (found,) = f.vm.signatures
    assert found.backend == winner
    assert {side for side, seconds in found.seconds.items() if 0.9 < seconds < 2} == {DEVICE, NUMBA, C} - {winner}
    assert f"host ({winner})" in str(explain(f)) or winner == DEVICE


def test_each_size_has_a_choice_of_its_own(context, rng):
    f = opencl([x], pt.exp(x))
    for n in (10, 11, 1_000_000, 1_000_001):
        f(rng.normal(size=n).astype("float32"))
    assert [(c.shapes, c.side) for c in explain(f).choices] == [(((10,),), HOST), (((1_000_000,),), DEVICE)]


def test_what_is_stored_is_bounded(context, monkeypatch):
    monkeypatch.setattr(selecting_vm, "POLICY", replace(selecting_vm.POLICY, max_signatures=3))
    f = opencl([x], x + 1)
    for n in (1, 2, 3, 5, 6, 9, 17, 33, 40, 70):
        assert len(f(np.zeros(n, "float32"))) == n
    assert len(f.vm.signatures) == 3


def test_shared_variables_follow_from_side_to_side(context, rng):
    w = pytensor.shared(np.zeros(10, "float32"), "w")
    step = opencl([x], w.sum(), updates={w: w + x})
    with pytensor.config.change_flags(opencl__placement="device"):
        device_step = opencl([x], w.sum(), updates={w: w + 2 * x})
    one = np.ones(10, "float32")
    sums = [f(one) for _ in range(3) for f in (step, device_step)]
    assert [float(s) for s in sums] == [0, 10, 30, 40, 60, 70]
    assert_close(w.get_value(), np.full(10, 9, "float32"))
    assert only(step).side == HOST
    w.set_value(np.full(10, 5, "float32"))
    assert float(step(one)) == 50
    assert float(device_step(one)) == 60


def test_reading_on_the_host_leaves_the_device_copy(context):
    w = pytensor.shared(np.arange(5, dtype="float32"), "w")
    with pytensor.config.change_flags(opencl__placement="device"):
        update = opencl([], None, updates={w: w + 1})
    total = opencl([], w.sum())
    for _ in range(4):
        update()
    assert float(total()) == 30
    assert w.container.storage.resident
    assert only(total).side == HOST


def test_results_and_inputs_share_no_memory(context):
    w = pytensor.shared(np.zeros(4, "float32"), "w")
    f = opencl([x], [x, x[::-1], w, w.T])
    value = np.arange(4, dtype="float32")
    for _ in range(3):
        results = f(value)
        for r in results:
            r += 1
    assert value.tolist() == [0, 1, 2, 3]
    assert w.get_value().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("size", [3, 10_000])
def test_errors_are_the_same_on_both_sides(context, size):
    w = pytensor.shared(np.zeros(size, "float32"), "w")
    f = opencl([x], None, updates={w: w * 2 + x})
    for _ in range(3):
        f(np.ones(size, "float32"))
    before = w.get_value()
    with pytest.raises(ValueError):
        f(np.ones(size + 1, "float32"))
    with pytest.raises(TypeError):
        f(np.ones((2, 2), "float32"))
    assert_close(w.get_value(), before)
    f(np.ones(size, "float32"))
    assert_close(w.get_value(), 2 * before + 1)


def test_an_error_in_the_first_call_comes_from_the_device(context):
    y = pt.fvector("y")
    f = opencl([x, y], x + y)
    with pytest.raises(ValueError, match="input shapes"):
        f(np.ones(2, "float32"), np.ones(3, "float32"))
    assert len(f(np.ones(2, "float32"), np.ones(2, "float32"))) == 2


def test_what_numba_cannot_compile_stays_on_the_device(context, rng, monkeypatch, numba_first):
    def refuse(*_):
        raise NotImplementedError("no such Op")

    monkeypatch.setattr(backends, "compile_with_numba", refuse)
    f = opencl([x], pt.exp(x))
    value = rng.normal(size=10).astype("float32")
    for _ in range(3):
        assert_close(f(value), np.exp(value), rtol=1e-5)
    assert only(f).side == DEVICE
    assert "no such Op" in only(f).why
    f(np.ones(100, "float32"))
    assert {c.side for c in explain(f).choices} == {DEVICE}


def test_a_device_that_fails_leaves_the_call_to_the_host(context, rng, impatient, monkeypatch, numba_first):
    f = opencl([x], pt.exp(x))

    def fail(vm):
        raise MemoryError("the device is full")

    monkeypatch.setattr(OpenCLVM, "__call__", fail)
    value = rng.normal(size=10).astype("float32")
    for _ in range(CALLS):
        assert_close(f(value), np.exp(value), rtol=1e-5)
    assert only(f).side == HOST
    assert "the device is full" in only(f).why


def test_copies_and_pickles_choose_too(context):
    w = pytensor.shared(np.zeros(3, "float32"), "w")
    v = pytensor.shared(np.full(3, 7, "float32"), "v")
    f = opencl([x], (w * x).sum(), updates={w: w + x})
    one = np.ones(3, "float32")
    f(one)
    for g in (copy.copy(f), pickle.loads(pickle.dumps(f))):
        assert isinstance(g.vm, SelectingVM)
        assert [float(g(one)) for _ in range(3)] == [3, 6, 9]
        assert only(g).side == HOST
    swapped = f.copy(swap={w: v})
    assert [float(swapped(one)) for _ in range(2)] == [21, 24]
    constant = f.copy(delete_updates=True)
    assert len({float(constant(one)) for _ in range(3)}) == 1
    assert only(constant).side == HOST


def test_profiling_runs_on_the_device(context):
    f = opencl([x], pt.exp(x), profile=True)
    f(np.ones(3, "float32"))
    assert explain(f).choices == ()
    assert sum(f.profile.apply_callcount.values()) > 0


def test_no_elements_no_host(context):
    f = opencl([x], x.max())
    with pytest.raises(ValueError):
        f(np.ones(0, "float32"))
    assert only(f).side == DEVICE


i = pt.lvector("i")
m = pt.fmatrix("m")


def test_what_numba_does_not_check_is_for_the_c_backend(context, rng, impatient):
    graphs = [
        pt.set_subtensor(x[x > 0], i[0]),
        x.sum() + pt.cumsum(i.astype("uint8")),
        pt.linalg.eigh(pt.outer(x, x))[0] + i.sum(),
    ]
    assert [opencl([x, i], graph, on_unused_input="ignore").vm.backends for graph in graphs] == [[C]] * 3
    compiled = graphs if ALL else graphs[:2]  # the others take seconds
    f = opencl([x, i], compiled)
    expected = pytensor.function([x, i], compiled, mode=Mode("py", "fast_run"))
    value, index = rng.normal(size=3).astype("float32"), np.array([2, 0, 1])
    runs = count(f, C)
    for _ in range(CALLS):
        for got, wanted in zip(f(value, index), expected(value, index), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert runs


def draw(loc, generator):
    following, drawn = pt.random.normal(loc, 1, rng=generator, return_next_rng=True)
    return opencl([x], drawn * 2, updates={generator: following})


def test_device_arrays_are_compiled_for_in_the_call_which_converts_them(context):
    function = numba.njit(lambda x: x)
    assert compiler_of(function, [context.from_host(np.ones(3))]) is None
    compiler_of(function, [np.ones(3)])()
    assert len(function.signatures) == 1


def test_numba_compiles_in_a_thread_for_the_types_of_the_arguments(context, monkeypatch):
    """The call afterwards compiles for no others."""
    monkeypatch.setattr(NumbaFunction, "compiles_in_thread", True)
    w, generator = pytensor.shared(np.ones(3, "float32")), pytensor.shared(np.random.default_rng(11))
    a = pt.fscalar("a")
    following, drawn = pt.random.normal(x, 1, rng=generator, return_next_rng=True)
    f = opencl([x, m, a], [drawn + w, m.T * a], updates={generator: following, w: w * 2})
    host = f.vm._host_backends[NUMBA]
    values = np.zeros(3, "float32"), np.ones((2, 3), "float32"), np.float32(2)
    for cell, value in zip(f.vm.input_storage, values, strict=False):
        cell[0] = np.asarray(value)
    while not host.is_ready():
        host._thread.join()
    function = host._compile_for_arguments.func.__self__
    assert len(function.signatures) == 1 and not host.is_compiled
    results = host.run()
    assert len(function.signatures) == 1 and host.is_compiled
    np.testing.assert_allclose(results[0], np.random.default_rng(11).normal(size=3) + 1, rtol=1e-6)
    np.testing.assert_allclose(results[1], np.full((3, 2), 2, "float32"))


def test_draws_are_the_same_on_every_side(context, impatient, monkeypatch):
    value = np.zeros(4, "float32")
    for winner in (DEVICE, NUMBA, C):
        generator = pytensor.shared(np.random.default_rng(11))
        f = draw(x, generator)
        f.vm._computes_on_device = True  # else it runs by NUMBA, without a trial
        fast(f, winner, monkeypatch)
        numpy = np.random.default_rng(11)
        runs = count(f, C)
        for _ in range(CALLS):
            np.testing.assert_allclose(f(value), 2 * numpy.normal(value, 1), rtol=1e-6)
        assert runs and f.vm.signatures[0].backend == winner


def test_a_call_that_fails_leaves_generators_as_they_were_on_every_side(context, impatient, monkeypatch):
    y, value = pt.fvector("y"), np.zeros(4, "float32")
    for winner in (DEVICE, NUMBA, C):
        generator, numpy = pytensor.shared(np.random.default_rng(11)), np.random.default_rng(11)
        following, drawn = pt.random.normal(x, 1, rng=generator, return_next_rng=True)
        f = opencl([x, y], drawn + y, updates={generator: following})
        f.vm._computes_on_device = True  # else it runs by NUMBA, without a trial
        fast(f, winner, monkeypatch)
        for _ in range(CALLS):
            np.testing.assert_allclose(f(value, value), numpy.normal(value, 1), rtol=1e-6)
            with pytest.raises(ValueError):
                f(value, np.zeros(3, "float32"))
        assert f.vm.signatures[0].backend == winner


@on_one_driver
def test_the_c_backend_adds_no_product_that_does_not_fit(context, impatient, monkeypatch):
    def refuse(*_):
        raise NotImplementedError("it would take twenty seconds")

    monkeypatch.setattr(backends, "compile_with_numba", refuse)
    a, b = pt.fmatrix("a"), pt.fmatrix("b")
    f = opencl([m, a, b], pt.tanh(m) + 0.5 * pt.dot(a, b))
    fast(f, C, monkeypatch)
    square, column = np.ones((2, 2), "float32"), np.ones((2, 1), "float32")
    for _ in range(CALLS):
        assert_close(f(square, square, square), np.tanh(square) + 1)
    assert f.vm.signatures[0].backend == C
    for shapes in ((square, square, column), (square, column.T, square), (column, square, square)):
        for cell, value in zip(f.vm.input_storage, shapes, strict=True):
            cell[0] = value
        stats = f.vm._find_stats()
        stats.use(C)
        f.vm._apply(stats)
        with pytest.raises(ValueError):
            f(*shapes)


def test_numbers_with_trust_input(context, impatient, monkeypatch):
    a = pt.fscalar("a")
    f = opencl([x, a], x * a)
    f.trust_input = True
    fast(f, C, monkeypatch)
    for _ in range(CALLS):
        assert_close(f(np.ones(3, "float32"), np.float32(2)), np.full(3, 2, "float32"))
    assert f.vm.signatures[0].backend == C


def test_results_of_the_c_backend_are_the_caller_s(context, impatient, monkeypatch):
    w = pytensor.shared(np.zeros(4, "float32"), "w")
    f = opencl([x], [x, x[::-1], w, w.T, x + 1], updates={w: w})
    fast(f, C, monkeypatch)
    value, kept = np.arange(4, dtype="float32"), []
    for _ in range(CALLS):
        kept.append(f(value))
        for r in kept[-1][:4]:
            r += 1
    assert f.vm.signatures[0].backend == C
    assert value.tolist() == [0, 1, 2, 3]
    assert w.get_value().tolist() == [0, 0, 0, 0]
    assert all(results[4].tolist() == [1, 2, 3, 4] for results in kept)


def test_what_no_compiler_builds_stays_where_it_is(context, rng, impatient, monkeypatch):
    def refuse(*_):
        raise NotImplementedError("no compiler")

    monkeypatch.setattr(backends, "compile_with_c", refuse)
    f = opencl([x], pt.exp(x))
    value = rng.normal(size=10).astype("float32")
    for _ in range(CALLS):
        assert_close(f(value), np.exp(value), rtol=1e-5)
    assert "no compiler" in only(f).why
    assert only(f).host_seconds and only(f).device_seconds


t = pt.ftensor3("t")


def _rows(m, t):
    """Return what ``rows`` below should be, for the indices of the test."""
    result = m.copy()
    result[[1, 0], 1:] = t[0, :2, :2]
    return result


def _columns(m, t):
    result = m.copy()
    result[:, [0]] += t[0, :, :1]
    return result


def _masked(v, m):
    result = m.copy()
    result[np.eye(3, dtype=bool)] = v
    result[:, [True, False, True]] += v[:2]
    return result


MASK = np.array([True, False, True])
CHECKED = {
    "index": (lambda: x[i] * 2, lambda v, j, m, t: v[j] * 2),
    "column": (lambda: m[:, i] + x.sum(), lambda v, j, m, t: m[:, j] + v.sum()),
    "pairs": (lambda: m[i, i[::-1]], lambda v, j, m, t: m[j, j[::-1]]),
    "constant": (lambda: m[[0, 2]] + i.sum(), lambda v, j, m, t: m[[0, 2]] + j.sum(dtype="float32")),
    "scatter": (
        lambda: pt.inc_subtensor(x[i], 2),
        lambda v, j, m, t: v + 2 * np.bincount(j % len(v), minlength=len(v)),
    ),
    "rows": (lambda: pt.set_subtensor(m[i[1:], 1:], t[0, :2, :2]), lambda v, j, m, t: _rows(m, t)),
    "columns": (lambda: pt.inc_subtensor(m[:, i[:1]], t[0, :, :1]), lambda v, j, m, t: _columns(m, t)),
    "mask": (lambda: x[x > -9] * i.shape[0], lambda v, j, m, t: v[v > -9] * 3),
    "mask of two dimensions": (lambda: m[m > -9] + i.sum(), lambda v, j, m, t: m[m > -9] + j.sum()),
    "constant mask": (lambda: m[MASK] * i.sum(), lambda v, j, m, t: m[MASK] * j.sum()),
    "writes by constant masks": (
        lambda: pt.inc_subtensor(pt.set_subtensor(m[np.eye(3, dtype=bool)], x)[:, MASK], x[: i.shape[0] - 1]),
        lambda v, j, m, t: _masked(v, m),
    ),
    "maximum": (lambda: x[i[1] + 2 :].max() + m.sum(), lambda v, j, m, t: v.max() + m.sum()),
    "maxima": (lambda: m.max(axis=0) * i.sum(), lambda v, j, m, t: m.max(axis=0) * j.sum()),
    "division": (lambda: i // (i + 3) + i % 4 + x, lambda v, j, m, t: j // (j + 3) + j % 4 + v),
    "batches": (lambda: pt.matmul(t, t[::-1]), lambda v, j, m, t: t @ t[::-1]),
    "cholesky": (
        lambda: pt.linalg.cholesky(m @ m.T + pt.eye(3)),
        lambda v, j, m, t: np.linalg.cholesky(m @ m.T + np.eye(3)),
    ),
}


SLOW = {"batches", "cholesky", "columns", "maxima"}  # up to twenty seconds of NUMBA each
OUT_OF_BOUNDS = IndexError, "index 5 is out of bounds for axis [01] with size 3"
WRONG = dict.fromkeys(("index", "column", "pairs", "scatter", "rows"), OUT_OF_BOUNDS)
WRONG["maximum"] = ValueError, "zero-size|no identity|empty"


@on_one_driver
@pytest.mark.parametrize("name", [name for name in CHECKED if ALL or name not in SLOW])
def test_what_numba_does_not_check_is_checked_for_it(context, rng, name, numba_first):
    graph, expected = CHECKED[name]
    values = rng.normal(size=3), np.array([0, -2, 0]), rng.normal(size=(3, 3)), rng.normal(size=(2, 3, 3))
    values = [v.astype("float32" if v.dtype.kind == "f" else "int64") for v in values]
    f = opencl([x, i, m, t], graph(), on_unused_input="ignore")
    hosts = count(f, NUMBA)
    for _ in range(3):
        np.testing.assert_allclose(f(*values), expected(*values), rtol=1e-4, atol=1e-5)
    assert only(f).side == HOST and len(hosts) == 3
    if name in WRONG:
        error, text = WRONG[name]
        with pytest.raises(error, match=text):
            f(values[0], np.array([0, 5, 0]), *values[2:])
        assert len(hosts) == 4


@on_one_driver
@pytest.mark.parametrize(
    ("graph", "error", "text"),
    [
        (lambda: m[i, i[1:]], IndexError, "shape mismatch|broadcast"),
        (lambda: pt.set_subtensor(m[pt.clip(i, 0, 2)], m[:2]), ValueError, ""),
        (lambda: pt.set_subtensor(x[pt.clip(i, 0, 2)], t[:1, 0, 0]), ValueError, "broadcasting"),
        (lambda: x[i[:2] > -1], IndexError, "boolean index|mask"),
        (lambda: pt.inc_subtensor(t[:, 0, 0][MASK], 1), IndexError, "boolean index|mask|index 2"),
        (lambda: pt.set_subtensor(x[MASK | True], t[:, 0, 0]), ValueError, ""),
        *(
            [
                (lambda: pt.inc_subtensor(x[pt.clip(i, 0, 2)], m[0][:2]), ValueError, ""),
                (lambda: pt.inc_subtensor(m[pt.clip(i, 0, 2)], t[:1, 0]), ValueError, "broadcasting"),
                (lambda: pt.set_subtensor(m[i, 1], 1), IndexError, "index 5 is out of bounds"),
                (lambda: pt.linalg.cholesky(m[:2]) + i.sum(), ValueError, "square"),
            ]
            if ALL
            else []
        ),
    ],
)
def test_errors_of_the_host_are_those_of_the_device(context, rng, graph, error, text, numba_first):
    f = opencl([x, i, m, t], graph(), on_unused_input="ignore")
    good = [np.ones(3, "float32"), np.zeros(3, "int64"), np.eye(3, dtype="float32"), np.ones((1, 3, 3), "float32")]
    bad = [good[0], np.array([0, 5, 0]), good[2], np.ones((2, 3, 3), "float32")]
    assert isinstance(f.vm, SelectingVM), explain(f).fixed
    hosts = count(f, NUMBA)
    for _ in range(2):
        with pytest.raises(error, match=text):
            f(*bad)
    assert hosts


def test_what_is_inside_an_op_from_graph_is_checked_too(context, numba_first):
    a, b = pt.fvector(), pt.lvector()
    f = opencl([x, i], OpFromGraph([a, b], [a[b] * 2])(x, i))
    value = np.arange(3, dtype="float32")
    assert_close(f(value, np.array([2, -3])), value[[2, 0]] * 2)
    assert only(f).side == HOST
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 3"):
        f(value, np.array([0, 5]))


BATCHED = [(Blockwise(SearchsortedOp(), signature="(n),(m)->(m)"), 0)]
if ALL:  # NUMBA compiles a product for half a minute
    BATCHED.append((pt.matmul, 2))


@on_one_driver
@pytest.mark.parametrize(("op", "value"), BATCHED)
def test_each_batch_dimension_is_checked(context, numba_first, op, value):
    a, b = pt.tensor4("a", dtype="float32"), pt.tensor4("b", dtype="float32")
    f = opencl([a, b], op(a, b))
    hosts, one = count(f, NUMBA), np.ones((2, 3, 2, 2), "float32")
    np.testing.assert_array_equal(f(one, one), np.full((2, 3, 2, 2), value))
    assert only(f).side == HOST
    for number, batch in enumerate([(2, 4), (5, 3), (5, 4)]):
        with pytest.raises(ValueError):
            f(one, np.ones((*batch, 2, 2), "float32"))
        assert len(hosts) == number + 2


def test_an_error_does_not_end_the_choice(context, numba_first):
    f = opencl([x, i], x[i])
    value, good = np.arange(3, dtype="float32"), np.array([1, 2])
    for _ in range(3):
        assert_close(f(value, good), value[good])
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            f(value, good + 3)
    hosts = count(f, NUMBA)
    f(value, good)
    assert hosts and only(f).side == HOST


def test_products_of_matrices_have_a_choice(context):
    for y in (m @ m.T, pt.dot(m, x), m @ x, pt.exp(m).sum(0) @ x):
        f = opencl([m, x], y, on_unused_input="ignore")
        assert isinstance(f.vm, SelectingVM), explain(f).fixed
        if ALL:  # NUMBA compiles a product for ten seconds
            with pytest.raises(ValueError):
                opencl([m, x], y + pt.dot(m, x).sum())(np.ones((2, 3), "float32"), np.ones(2, "float32"))


def test_graphs_that_name_a_device_run_there(context):
    d = GpuArrayType("float32", shape=(None,))("d")
    for f in (opencl([x], pt.exp(x).transfer(context.name)), opencl([d], pt.exp(d))):
        assert not isinstance(f.vm, SelectingVM) and explain(f).fixed


@pytest.mark.parametrize(
    "flags", [{"opencl__placement": "device"}, {"opencl__placement": "host"}, {"opencl__select_backend": False}]
)
def test_flags_force_a_side(context, flags):
    with pytensor.config.change_flags(**flags):
        f = opencl([x], pt.exp(x))
    assert not isinstance(f.vm, SelectingVM) and explain(f).fixed


def of_a_number():
    """A function without a node that computes on a device."""
    a = pt.fscalar("a")
    return opencl([a], pt.exp(a) * 2)


@pytest.mark.parametrize("winner", [DEVICE, C])
def test_a_graph_that_computes_nothing_on_the_device_runs_by_a_host_backend(context, monkeypatch, winner):
    """By NUMBA at first; C is tried, the device never."""
    f = of_a_number()
    fast(f, winner, monkeypatch)
    for _ in range(CALLS):
        assert_close(f(np.float32(1)), np.float32(2 * np.e))
    (found,) = explain(f).choices
    assert (found.side, found.backend) == (HOST, C if winner == C else NUMBA)
    assert "computes nothing on a device" in f.vm.signatures[0].excluded[DEVICE]


def test_such_a_graph_runs_by_c_where_numba_has_no_function(context, monkeypatch):
    def refuse(*_):
        raise NotImplementedError("no such Op")

    monkeypatch.setattr(backends, "compile_with_numba", refuse)
    f = of_a_number()
    for _ in range(3):
        assert_close(f(np.float32(1)), np.float32(2 * np.e))
    (found,) = explain(f).choices
    assert (found.side, found.backend, found.next_calls) == (HOST, C, None)
    assert "no such Op" in found.why


def update_of_rows(index, value):
    """A function that updates rows of a table, and returns a sum that is computed from them."""
    table = pytensor.shared(np.zeros((50, 4), "float32"), "table")
    looked_up = table[index]
    loss = ((looked_up - value) ** 2).sum()
    new = pt.inc_subtensor(looked_up, -0.5 * pytensor.grad(loss, looked_up))
    return opencl([index, value], loss, updates={table: new}), table


def test_numba_updates_rows_of_a_table_in_place(context, numba_first):
    f, table = update_of_rows(i, m)
    rows = np.arange(12, dtype="float32").reshape(3, 4)
    expected, memory = np.zeros((50, 4), "float32"), table.get_value(borrow=True)
    for k in range(4):
        value = rows + k
        at = np.array([1, 7, 1 + k])
        before = expected.copy()
        assert_close(f(at, value), ((before[at] - value) ** 2).sum())
        np.add.at(expected, at, value - before[at])
        assert_close(table.get_value(), expected)
    assert only(f).backend == NUMBA and only(f).side == HOST
    assert table.get_value(borrow=True) is memory


@pytest.mark.parametrize(
    ("index", "shape", "error"), [([1, 50, 2], (3, 4), IndexError), ([1, 3, 2], (2, 4), ValueError)]
)
def test_a_call_that_fails_has_changed_no_row(context, numba_first, index, shape, error):
    f, table = update_of_rows(i, m)
    f(np.array([1, 7, 9]), np.ones((3, 4), "float32"))
    before = table.get_value()
    for _ in range(3):
        with pytest.raises(error):
            f(np.array(index), np.full(shape, 5, "float32"))
    np.testing.assert_array_equal(table.get_value(), before)


def without_memory_for_copies(monkeypatch):
    """Make NUMBA functions run their nodes one by one. From the second call on, copies of arrays raise MemoryError."""
    compile_with_numba, calls = backends.compile_with_numba, []

    def compiled(*arguments):
        _, graph = compile_with_numba(*arguments)

        def call(*values):
            calls.append(graph)
            storage = dict(zip(graph.inputs, values, strict=True))
            for node in graph.toposort():
                if isinstance(node.op, DeepCopyOp) and len(calls) > 1:
                    raise MemoryError
                cells = [[None] for _ in node.outputs]
                inputs = [v.data if isinstance(v, Constant) else storage[v] for v in node.inputs]
                node.op.perform(node, inputs, cells)
                storage.update(zip(node.outputs, (cell[0] for cell in cells), strict=True))
            return [storage[v] for v in graph.outputs]

        return call, graph

    monkeypatch.setattr(backends, "compile_with_numba", compiled)
    return calls


def test_a_copy_that_fails_has_changed_no_row(context, numba_first, monkeypatch):
    """The updated table is also returned, so it is copied after the update. The call is repeated on the device."""
    calls = without_memory_for_copies(monkeypatch)
    table = pytensor.shared(np.zeros((50, 4), "float32"), "table")
    new = pt.inc_subtensor(table[i], m)
    f = opencl([i, m], new, updates={table: new})
    at, rows, expected = np.array([1, 7, 1]), np.ones((3, 4), "float32"), np.zeros((50, 4), "float32")
    for _ in range(4):
        np.add.at(expected, at, rows)
        assert_close(f(at, rows), expected)
        assert_close(table.get_value(), expected)
    assert len(calls) > 1


def test_numba_updates_rows_of_two_tables_in_place(context, numba_first):
    tables = [pytensor.shared(np.zeros((50, 4), "float32")) for _ in range(2)]
    f = opencl([i, m], m.sum(), updates={t: pt.inc_subtensor(t[i], m) for t in tables})
    at, rows, memory = np.array([1, 7, 1]), np.ones((3, 4), "float32"), [t.get_value(borrow=True) for t in tables]
    for _ in range(4):
        assert f(at, rows) == 12
    for t, old in zip(tables, memory, strict=True):
        assert t.get_value(borrow=True) is old and old[1, 0] == 8


def test_a_copy_without_updates_changes_no_row(context, numba_first):
    f, table = update_of_rows(i, m)
    g = f.copy(delete_updates=True)
    for _ in range(3):
        g(np.array([1, 7, 9]), np.ones((3, 4), "float32"))
    assert not table.get_value().any()


def test_a_function_without_inputs_or_with_fixed_shapes(context):
    f = opencl([], pt.exp(np.ones(3, "float32")))
    assert_close(f(), np.exp(np.ones(3, "float32")))
    fixed = pt.tensor("fixed", dtype="float32", shape=(4,))
    g = opencl([fixed], pt.exp(fixed))
    for _ in range(3):
        assert_close(g(np.zeros(4, "float32")), np.ones(4, "float32"))
    assert "fixed" in str(explain(g))


def test_a_trial_keeps_parked_workers(context, rng, monkeypatch):
    """Without them a call takes longer than in use, and another side seems to be faster."""
    if context.batch_launcher is None or context.batch_launcher.max_threads < 2:
        pytest.skip("there are no parked workers")
    f = opencl([x], pt.exp(x).sum())
    value = rng.normal(size=100_000).astype("float32")
    f(value)
    workers, released = context.batch_launcher.workers, []
    monkeypatch.setattr(workers, "on_submit", lambda: released.append(1))
    for call in range(40):
        (stats,) = f.vm.signatures
        stats._plan([DEVICE], 0)
        if call == 20:  # it has been captured, and waits for nothing
            released.clear()
        assert_close(f(value), np.exp(value).sum())
    assert not released


def test_whole_numbers_that_numba_cannot_divide(context, numba_first):
    """INT_MIN / -1 ends the process, and zero gives zero, if NUMBA is left to itself."""
    f = opencl([i], [i // (i - 1), i % (i - 1)])
    values = np.array([0, 5, np.iinfo("int64").min, 9])  # divides by -1
    for got, wanted in zip(f(values), [values // (values - 1), values % (values - 1)], strict=True):
        np.testing.assert_array_equal(got, wanted)
    with pytest.raises(ZeroDivisionError):
        f(values + 1)
    least = np.iinfo("int64").min
    d = opencl([i], (i + least) // i)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(d(np.array([-1, 2])), (np.array([-1, 2]) + least) // np.array([-1, 2]))


@pytest.mark.parametrize("dtype", ["float64", "int16"])
@pytest.mark.parametrize("placement", ["auto", "device"])
def test_arguments_of_another_byte_order(context, c_compiler, placement, dtype):
    """With trust_input nothing converts them before the backend, and C code would read them as they are."""
    v = pt.vector("v", dtype=dtype)
    value = np.arange(1, 5).astype(dtype)
    swapped = value.astype(value.dtype.newbyteorder("S"))
    with pytensor.config.change_flags(opencl__placement=placement):
        for outputs in ([v.sum()], [v.sum(), v[::-1], v * 2]):
            f = opencl([v], outputs)
            f.trust_input = True
            for argument in [value, swapped] * 3:
                for got, right in zip(f(argument), [value.sum(), value[::-1], value * 2], strict=False):
                    np.testing.assert_array_equal(got, right)
        shared = pytensor.shared(value)
        g = opencl([], v.sum(), givens={v: shared})
        shared.set_value(swapped, borrow=True)
        assert g() == value.sum()
        with pytest.raises(TypeError):
            pytensor.shared(swapped)


@pytest.mark.parametrize(
    "graph",
    [
        lambda k: k.max(),
        lambda k: k.min(),
        lambda k: pt.maximum(k, k[::-1]),
        lambda k: pytensor.scan(lambda a, b: pt.maximum(a, b), [k], non_sequences=[k[0]], return_updates=False),
    ],
)
def test_what_the_c_backend_rounds_is_not_for_it(context, graph):
    k = pt.vector("k", dtype="uint64")
    f = opencl([k], graph(k))
    assert f.vm.backends == [NUMBA]
    value = np.array([2**64 - 1, 2**63 + 1, 2**64 - 9], "uint64")
    expected = pytensor.function([k], graph(k), mode=Mode("py", "fast_run"))
    np.testing.assert_array_equal(f(value), expected(value))
    masked = opencl([k, i], pt.set_subtensor(k[k > 9], i[0]).max(), on_unused_input="ignore")
    assert "float64" in explain(masked).fixed


def test_half_precision_is_not_for_the_c_backend(context):
    """It would compute element by element, in Python."""
    h = pt.vector("h", dtype="float16")
    for graph in (pt.tanh(h) * h + 1, h.sum()):
        assert not host_graph_of(opencl([h], graph).maker.fgraph).c_eligible
