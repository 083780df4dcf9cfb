"""Arrays that are larger than a device allocates at once, and a device that has no memory left.

The limit is an artificial one, so that the arrays of the tests are small.
"""

from dataclasses import replace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl import GpuArrayType, explain
from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.linker.run import graph_cache
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import resolve
from tests.helpers import assert_close, normal, on_one_driver, opencl

LIMIT = 3_000_000
"""Bytes; 750,000 numbers of float32."""
LARGE, FITS = 1_000_000, 600_000

x, y, m, i = pt.fvector("x"), pt.fvector("y"), pt.fmatrix("m"), pt.lvector("i")


@pytest.fixture
def limited(context, monkeypatch):
    """Make the default context one whose device allocates no more than the limit at once."""
    entry = resolve(f"opencl:{context.name}")
    poor = Context(context.name, replace(entry, info=replace(entry.info, max_allocation=LIMIT)))
    monkeypatch.setattr("pytensor_cl.runtime.registry._registry.contexts", {context.name: poor})
    return poor


@pytest.fixture
def forced(limited):
    with pytensor.config.change_flags(opencl__placement="device"):
        yield limited


def refused(nbytes):
    """Expect an error with the size and the limit."""
    return pytest.raises(OutOfDeviceMemory, match=f"could not allocate {nbytes:,} bytes: at most {LIMIT:,} at once")


def note_of(caught):
    return "".join(caught.value.__notes__)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("graph", [lambda: pt.exp(x), lambda: pt.exp(pytensor_cl.gpu_from_host(x)).transfer("cpu")])
def test_a_large_argument_is_an_error_at_its_upload(forced, rng, graph, step):
    """Read where it is; and copied, as it is not contiguous."""
    f = opencl([x], graph())
    values = [normal(rng, step * n)[::step] for n in (FITS, LARGE)]
    for _ in range(5):  # repeated calls, too
        assert_close(f(values[0]), np.exp(values[0]), rtol=1e-5)
        with refused(4 * LARGE) as caught:
            f(values[1])
        assert "Raised by node GpuFromHost" in note_of(caught) and f"input shapes: ({LARGE},)" in note_of(caught)


def test_a_large_result_is_an_error_at_its_node(forced, rng):
    f = opencl([x, y], pt.exp(x[:, None] + y))
    small, large = normal(rng, 700), normal(rng, 1000)
    for _ in range(5):
        assert_close(f(small, small), np.exp(small[:, None] + small), rtol=1e-5)
        with refused(4 * 1000 * 1000) as caught:
            f(large, large)
        assert "input shapes: (1000,), (1000,)" in note_of(caught) or "input shapes: (1000, 1), (1, 1000)" in note_of(
            caught
        )


def test_a_large_constant_is_an_error_of_the_call(forced, rng):
    value = normal(rng, LARGE)
    f = opencl([i], pt.constant(value)[i])
    for _ in range(4):
        with refused(4 * LARGE) as caught:
            f([0, 3])
        assert "Raised by node GpuFromHost" in note_of(caught)


def test_a_large_shared_variable_stays_as_it_is(forced, rng):
    value = normal(rng, LARGE)
    w = pytensor.shared(value, "w")
    f = opencl([], w.sum(), updates={w: w * 2})
    for _ in range(4):
        with refused(4 * LARGE) as caught:
            f()
        assert "Raised by node GpuFromHost" in note_of(caught)
    assert_close(w.get_value(), value)


def test_an_update_that_is_too_large_changes_nothing(forced, rng):
    value = normal(rng, FITS)
    w = pytensor.shared(value, "w")
    f = opencl([], w[0], updates={w: pt.join(0, w, w)})
    with refused(8 * FITS):
        f()
    assert_close(w.get_value(), value)


def test_large_values_that_go_to_the_device_at_once(limited):
    large = np.zeros(LARGE, "float32")
    kind = GpuArrayType("float32", shape=(None,))
    for make in (pytensor_cl.shared, limited.from_host, limited.from_host_zero_copy, kind.filter):
        with refused(4 * LARGE):
            make(large)
    with refused(4 * LARGE):
        limited.from_host(np.broadcast_to(np.float32(1), LARGE))
    with refused(4 * LARGE):
        limited.empty((LARGE,), "float32")
    w = pytensor_cl.shared(large[:FITS])
    f = opencl([], w[:10].transfer("cpu"), updates={w: pytensor_cl.gpu_from_host(large)})
    with refused(4 * LARGE):
        f()
    assert w.get_value().shape == (FITS,)


@on_one_driver
@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (lambda: pt.exp(x), np.exp),
        (lambda: (x[:1000, None] * x[:1000]).sum(0), lambda v: (v[:1000, None] * v[:1000]).sum(0)),
        (
            lambda: x[:9] * pt.constant(np.arange(LARGE, dtype="float32"))[::100_000][:9],
            lambda v: v[:9] * np.arange(9) * 1e5,
        ),
    ],
)
@pytest.mark.usefixtures("c_compiler")
def test_a_call_that_is_too_large_runs_on_the_host(limited, rng, graph, expected):
    """The argument is too large, or the result of a node, or a constant."""
    with pytensor.config.change_flags(opencl__select_backend=True):
        f = opencl([x], graph())
    large = normal(rng, LARGE)
    for _ in range(3):
        assert_close(f(large), expected(large).astype("float32"), rtol=1e-4)
    (found,) = explain(f).choices
    assert found.side == "host"


def test_the_report_has_the_reason_for_a_large_call_on_the_host(limited, rng):
    with pytensor.config.change_flags(opencl__select_backend=True):
        f = opencl([x], pt.exp(x))
    large = normal(rng, LARGE)
    assert_close(f(large), np.exp(large), rtol=1e-5)
    assert f"could not allocate {4 * LARGE:,} bytes: at most {LIMIT:,} at once" in explain(f).choices[0].why


def test_what_the_pool_would_round_up_to_more_than_the_limit(forced, rng):
    """It may be an argument, an intermediate result or a result; handed over to the caller, too."""
    count = LIMIT // 4
    value = normal(rng, count)
    assert forced.memory.buffers._small.alloc_size(forced.memory.buffers._small.bin_number(LIMIT)) > LIMIT
    f = opencl([x], [pt.exp(x), pt.cumsum(pt.cumsum(pt.tanh(x)))[-1]])
    kept = []
    for k in range(6):
        got = f(value + k)
        kept.append(got[0])
        assert_close(got[0], np.exp(value + k), rtol=1e-5)
        assert_close(got[1], np.cumsum(np.cumsum(np.tanh(value + k))).astype("float32")[-1], rtol=1e-2)
    for k, got in enumerate(kept):  # each is the caller's own
        assert_close(got, np.exp(value + k), rtol=1e-5)
    del kept, got
    forced.memory.trim()
    assert forced.memory.statistics().managed_bytes < LIMIT


def full(times=10**9):
    """Return a function that raises as a driver without memory does, some times, and then calls another one."""

    def wrap(function):
        left = [times]

        def called(*args, **kwargs):
            if left[0] > 0:
                left[0] -= 1
                raise cl.MemoryError("clEnqueueNDRangeKernel failed: MEM_OBJECT_ALLOCATION_FAILURE")
            return function(*args, **kwargs)

        return called

    return wrap


@pytest.mark.parametrize("method", ["launch", "write"])
def test_a_command_that_finds_no_memory_is_repeated_when_idle_buffers_are_gone(forced, rng, monkeypatch, method):
    f = opencl([m], pt.exp(m[:, ::-1]).sum(0))
    value = normal(rng, 300, 200)[:, ::2]
    expected = np.exp(value[:, ::-1]).sum(0)
    monkeypatch.setattr(type(forced.queue), method, full(1)(getattr(type(forced.queue), method)))
    for _ in range(5):
        assert_close(f(value), expected)


def test_a_command_that_finds_no_memory_again_is_an_error_at_its_node(forced, rng, monkeypatch):
    f = opencl([x], pt.cumsum(x))
    value = normal(rng, 5000)
    with monkeypatch.context() as patch:
        patch.setattr(type(forced.queue), "launch", full()(type(forced.queue).launch))
        with pytest.raises(OutOfDeviceMemory, match="MEM_OBJECT_ALLOCATION_FAILURE.*at most 3,000,000") as caught:
            f(value)
        assert "input shapes: (5000,)" in note_of(caught)
    for _ in range(5):
        assert_close(f(value), np.cumsum(value), rtol=1e-3)


@pytest.mark.parametrize("updates", [False, True])
def test_a_repeated_call_that_finds_no_memory(forced, rng, updates):
    """It runs step by step, unless its kernels may have written to an old value: then it is an error."""
    w = pytensor.shared(np.zeros(5000, "float32"), "w")
    f = opencl([x], pt.cumsum(x) + 1, updates={w: w + x} if updates else {})
    value = normal(rng, 5000)
    for _ in range(5):
        assert_close(f(value), np.cumsum(value) + 1, rtol=1e-3)
    (made,) = f.vm.executor.graphs.values()
    steps = made.steps[:]
    made.steps[-1] = steps[-1][0], full(1)(steps[-1][1])
    if made.donations:
        with pytest.raises(OutOfDeviceMemory, match="MEM_OBJECT_ALLOCATION_FAILURE"):
            f(value)
    else:
        assert not updates
        assert_close(f(value), np.cumsum(value) + 1, rtol=1e-3)
    made.steps[:] = steps
    assert_close(f(value), np.cumsum(value) + 1, rtol=1e-3)


def test_a_captured_graph_that_finds_no_memory_is_made_later(forced, rng, monkeypatch):
    f = opencl([x], pt.cumsum(x))
    value = normal(rng, 5000)
    monkeypatch.setattr(graph_cache, "build_graph", full(1)(graph_cache.build_graph))
    for calls in range(9):
        assert bool(f.vm.executor.graphs) == (calls >= 6)  # tried in the third call, and three calls later
        assert_close(f(value), np.cumsum(value), rtol=1e-3)
    assert f.vm.executor.replay_count


def test_a_small_upload_that_finds_no_memory(limited, monkeypatch):
    value = np.arange(10, dtype="float32")
    made = []

    def none_at_first(*_, **__):
        made.append(1)
        if len(made) == 1:
            raise cl.MemoryError("create_buffer failed: MEM_OBJECT_ALLOCATION_FAILURE")
        return np.nan

    monkeypatch.setattr(cl, "Buffer", none_at_first)
    assert limited._buffer_of(value) is np.nan and len(made) == 2


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_arrays_without_elements(forced, shape):
    """No buffer of no bytes is allocated."""
    w = pytensor.shared(np.zeros(shape, "float32"), "w")
    outputs = [pt.exp(m), m.sum(), m.sum(0), m.T @ m, pt.join(0, m, m)[1:], m[:, ::-1], w + m, pt.cumsum(m, axis=1)]
    f = opencl([m], outputs, updates={w: w - m})
    with pytensor.config.change_flags(cxx=""):
        expected = pytensor.function([m], outputs, mode="FAST_COMPILE")(np.zeros(shape, "float32"))
    for _ in range(5):
        for got, wanted in zip(f(np.zeros(shape, "float32")), expected, strict=True):
            assert_close(got, wanted)
    assert pytensor_cl.shared(np.zeros(shape)).get_value().shape == shape
