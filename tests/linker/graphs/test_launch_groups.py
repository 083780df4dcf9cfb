"""Small kernels that do not depend on each other run in one launch, on devices with a memory of their own."""

import logging

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import explain, optimizers
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import CompilationError
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.launch_capture import Launch
from pytensor_cl.runtime.merged_kernels import merged_source, part_of
from tests.device_apart import context_apart
from tests.helpers import opencl

CALLS = WARMUP_CALLS + 3


@pytest.fixture
def apart():
    """A context whose device has a memory of its own, as graphics cards have."""
    with context_apart() as context, pytensor.config.change_flags(opencl__placement="device"):
        yield context


def graph_of(f):
    (graph,) = explain(f).captured_graphs
    return graph


def test_a_step_of_an_optimizer_is_one_launch(apart, rng):
    params = [pytensor.shared(rng.normal(size=n).astype("float32"), f"p{n}") for n in (3, 70, 1000, 5)]
    grads = [pytensor.shared(rng.normal(size=p.get_value().shape).astype("float32")) for p in params]
    wanted = [p.get_value().astype("float64") for p in params]
    f = pytensor.function([], [], updates=optimizers.momentum(grads, params, 0.1, 0.5), mode="OPENCL")
    speeds = [0.0] * len(params)
    for _ in range(CALLS):
        f()
        speeds = [0.5 * v - 0.1 * g.get_value() for v, g in zip(speeds, grads, strict=True)]
        wanted = [p + v for p, v in zip(wanted, speeds, strict=True)]
        for param, value in zip(params, wanted, strict=True):
            np.testing.assert_allclose(param.get_value(), value, 1e-5, 1e-6)
    assert (graph_of(f).kernels, graph_of(f).launches) == (len(params), 1)
    assert all(donation.reuse_count for g in f.vm.executor.graphs.values() for donation in g.donations)


def test_what_depends_on_a_launch_runs_after_it(apart, rng):
    """Sums use local memory; an update is read by others before it is written; parts of a result are copied."""
    x, y, i = pt.fmatrix("x"), pt.fvector("y"), pt.lvector("i")
    state = pytensor.shared(np.ones(700, "float32"), "state")
    total, peak = x.sum(0), y.max()
    joined = pt.join(0, total, (state * y)[i], pt.exp(y), x.sum(1) + peak)
    results = [joined, joined[:50].sum(), state.sum() + total.sum(), pt.tanh(state - peak)]
    f = opencl([x, y, i], results, updates={state: state * 0.5 + y})
    kept = np.ones(700)
    for _ in range(CALLS):
        a, b, at = (
            rng.normal(size=(40, 30)).astype("float32"),
            rng.normal(size=700).astype("float32"),
            rng.integers(0, 700, 20),
        )
        first = np.concatenate([a.sum(0), (kept * b)[at], np.exp(b), a.sum(1) + b.max()])
        wanted = [first, first[:50].sum(), kept.sum() + a.sum(), np.tanh(kept - b.max())]
        for got, value in zip(f(a, b, at), wanted, strict=True):
            np.testing.assert_allclose(got, value, 1e-4, 1e-4)
        kept = 0.5 * kept + b
        np.testing.assert_allclose(state.get_value(), kept, 1e-5, 1e-5)
    assert graph_of(f).launches < graph_of(f).kernels


def test_random_graphs(apart, rng):
    """Values that depend on each other in any order, kept in shared variables, are those of NumPy."""
    tenth = np.float32(0.1)
    start = [rng.normal(size=n).astype("float32") for n in (30, 30, 30, 7)]
    shared = [pytensor.shared(value, f"s{k}") for k, value in enumerate(start)]
    makers = [
        lambda m, a, b: m.tanh(a + b),
        lambda m, a, b: a * m.cos(b).sum(),
        lambda m, a, b: (a - b)[::-1] * a.max(),
        lambda m, a, b: m.concatenate([a[:9], b[9:]]),
        lambda m, a, b: m.cumsum(a) * tenth,
    ]
    steps = [(int(rng.integers(len(makers))), *rng.integers(0, 3 + k, 2)) for k in range(14)]

    def values(m, state):
        found = list(state[:3])
        for kind, left, right in steps:
            found.append(makers[kind](m, found[left], found[right]))
        return [*(tenth * v for v in found[:-4:-1]), state[3] + found[-4].sum()]

    f = pytensor.function([], [], updates=dict(zip(shared, values(pt, shared), strict=True)), mode="OPENCL")
    state = [value.astype("float64") for value in start]
    for _ in range(CALLS):
        f()
        state = values(np, state)
        for variable, value in zip(shared, state, strict=True):
            np.testing.assert_allclose(variable.get_value(), value, 1e-3, 1e-4)


def test_kernels_that_are_not_merged_run_one_by_one(apart, rng, monkeypatch, caplog):
    def fail(sources):
        raise CompilationError("no", "")

    x, y = pt.fvector("x"), pt.fmatrix("y")
    f = opencl([x, y], [pt.exp(x).sum(), pt.tanh(y)])
    a, b = rng.normal(size=20).astype("float32"), rng.normal(size=(3, 4)).astype("float32")
    for call in range(CALLS):
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            if call == WARMUP_CALLS:
                patch.setattr(apart.programs, "build", fail)
            total, bent = f(a, b)
        np.testing.assert_allclose(total, np.exp(a).sum(), 1e-5)
        np.testing.assert_allclose(bent, np.tanh(b), 1e-5)
    assert graph_of(f).kernels == graph_of(f).launches == 2
    assert "not built" in caplog.text


def test_local_memory_and_work_groups_of_a_kernel_become_arguments():
    text = """
    __kernel __attribute__((reqd_work_group_size(8, 1, 1)))
    void twice(__global const float *restrict x, const int n, __global float *y)
    {
        __local float sums[8], more[2][4] __attribute__((aligned(16)));
        __local int any;
        sums[get_local_id(0)] = x[get_global_id(0)];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (any < get_num_groups(1)) y[get_group_id(0)] = more[0][1] + p.sums + get_global_id(2);
    }
    """
    launch = Launch(None, (16, 3), (8, 1), (None, np.int32(2), None))
    part = part_of(launch, KernelSource("twice", text), "twice")
    assert (part.modes, part.groups, part.local_size, part.nbytes) == ("rvw", (2, 3), (8, 1, 1), 32)
    merged = merged_source([part, part])
    function = merged.preambles[-1]
    assert (
        "float sums[8] __attribute__((aligned(16))); float more[2][4] __attribute__((aligned(16))); int any ;"
        in function
    )
    assert "(part_local->any) < part_groups_1" in function and "p.sums + ((size_t)0 *" in function
    assert "y[part_group_0]" in function and "__local float" not in function
    assert merged.source.count("twice_part(") == 2 and "at most" not in merged.source


@pytest.mark.parametrize(
    "change",
    [
        ("float x", "__local float *x"),  # memory that the launch chooses
        ("{ }", "{ __constant float *y; }"),
        ("{ }", "{ } /* at most 128 registers */"),
        ("{ }", "{ size_t n = get_global_size(d); }"),
        ("static", "static size_t f() { return get_group_id(0); } static"),
        ("{ }", "{ __local volatile int x[3]; }"),
    ],
)
def test_kernels_that_cannot_be_merged(change):
    text = "static int g; __kernel void f(float x) { }".replace(*change)
    launch = Launch(None, (16,), (8,), (np.float32(1),))
    assert part_of(launch, KernelSource(f"f{hash(change)}", text), "f") is None
    assert part_of(launch, KernelSource("g", "static int g; __kernel void f(float x) { }"), "f") is not None
    assert part_of(launch._replace(local_size=None), KernelSource("g", text), "f") is None


def test_values_of_the_host_do_not_keep_a_call_from_being_captured(apart, rng):
    """A graph cannot repeat the upload of a fill value: its buffer is made with the value."""
    x, i, s = pt.fvector("x"), pt.lvector("i"), pt.fscalar("s")
    f = opencl([x, i, s], [pt.inc_subtensor(pt.zeros(9, "float32")[i], x), pt.set_subtensor(x[i[:2]], s * 2)])
    i_value = np.array([1, 8, 1, 3])
    for k in range(CALLS):
        a, scale = rng.normal(size=4).astype("float32"), np.float32(k // 4)
        filled, kept = np.zeros(9, "float32"), a.copy()
        np.add.at(filled, i_value % 4, a)
        kept[[1, 0]] = 2 * scale
        for got, wanted in zip(f(a, i_value % 4, scale), (filled, kept), strict=True):
            np.testing.assert_allclose(got, wanted, 1e-6)
    assert f.vm.executor.replay_count and not explain(f).not_captured


def test_reductions_in_one_launch_use_the_counters_in_turn(rng):
    """They write the counters of the context, so that no two of them are parts of one merged kernel."""
    with context_apart(last_group=True) as context, pytensor.config.change_flags(opencl__placement="device"):
        x, y = pt.fvector("x"), pt.fmatrix("y")
        results = [x.sum(), y.max(1), pt.tanh(y[:, 0]), y.sum() * x.max()]
        f = pytensor.function([x, y], results, mode="OPENCL")
        for _ in range(CALLS + 3):
            a, b = rng.normal(size=200_001).astype("float32"), rng.normal(size=(3, 70_001)).astype("float32")
            wanted = [a.sum(dtype="f8"), b.max(1), np.tanh(b[:, 0]), b.sum(dtype="f8") * a.max()]
            for got, value in zip(f(a, b), wanted, strict=True):
                np.testing.assert_allclose(got, value, 1e-5, 1e-2)
        plans = [plan for r in f.vm.routines.values() if isinstance(r, Reduction) for plan in r._plans._plans.values()]
        assert sum(plan.joins for plan in plans) >= 2
        assert not context.counters.to_host().any()
        assert graph_of(f).launches < graph_of(f).kernels
