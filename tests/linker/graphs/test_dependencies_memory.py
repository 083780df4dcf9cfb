"""Calls whose kernels run from one launch: the driver has no record of their memory."""

import gc
import weakref

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.linker.graphs import graph
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.memory.host_mapping import HostMappings
from tests.helpers import normal, opencl

pytestmark = pytest.mark.usefixtures("on_device")

CALLS = WARMUP_CALLS + 4


@pytest.fixture(autouse=True)
def _only_where_chains_are(context, monkeypatch):
    if context.batch_launcher is None:
        pytest.skip("kernels are launched one by one")
    begin = context.batch_launcher.begin
    monkeypatch.setattr(context.batch_launcher, "begin", lambda launches, _: begin(launches, True))  # single ones too


def captured_graphs(f):
    return list(f.vm.executor.graphs.values())


def assert_joined(f):
    """Check that a function was captured, and its kernels joined."""
    assert captured_graphs(f)
    assert all(r.sequences for r in captured_graphs(f))


def device_buffer(variable):
    return next(iter(variable.container.storage.devices.values())).buffer


def lent(context, monkeypatch):
    """A list of weak references to the arrays that are staged from now on."""
    found, stage = [], context.stage

    def noting(array):
        made = stage(array)
        found.append(weakref.ref(made.buffer))
        return made

    monkeypatch.setattr(context, "stage", noting)
    return found


def test_updates_without_a_wait_need_no_memory(context):
    w = pytensor.shared(np.ones(1000, "float32"), "w")
    f = opencl([], [], updates={w: w * np.float32(0.5) + np.float32(1)})
    for _ in range(CALLS):
        f()
    (made,) = captured_graphs(f)
    (donation,) = made.donations
    before, handle = donation.reuse_count, device_buffer(w).int_ptr
    for _ in range(10):
        f()
    assert_joined(f)
    assert donation.reuse_count == before + 10
    assert device_buffer(w).int_ptr == handle
    np.testing.assert_allclose(w.get_value(), 2 - 0.5 ** (CALLS + 10), rtol=1e-6)


def test_an_argument_stays_while_kernels_read_a_part_of_it(context, rng, monkeypatch):
    x, k = pt.fvector("x"), pt.lscalar("k")
    out = pytensor.shared(np.zeros(64, "float32"))
    f = opencl([x, k], [], updates={out: 2 * x[k * 64 : (k + 1) * 64]})
    data = normal(rng, 256)
    for call in range(CALLS):
        f(data, call % 4)
    assert_joined(f)
    context.queue.finish()
    buffers = lent(context, monkeypatch)
    f(data, 1)
    gc.collect()
    assert [b() is not None for b in buffers] == [True]
    np.testing.assert_allclose(out.get_value(), 2 * data[64:128], rtol=1e-6)
    gc.collect()
    assert [b() for b in buffers] == [None]


def test_memory_of_the_host_does_not_outlive_the_call(context, rng, monkeypatch):
    """Kernels that are launched one by one may read it later, and the host's memory would not be kept for them."""
    x, w = pt.fvector("x"), pytensor.shared(np.ones(5, "float32"))
    kept = pytensor.shared(np.zeros((6, 4), "float32"))
    f = opencl([x], [], updates={kept: x.reshape((4, 6)).T, w: w + x[:5]})
    for _ in range(CALLS):
        f(normal(rng, 24))
    assert_joined(f)
    buffers, data = lent(context, monkeypatch), normal(rng, 24)
    f(data)
    assert not buffers
    np.testing.assert_array_equal(kept.get_value(), data.reshape(4, 6).T)


def test_a_minibatch_is_found_without_a_wait(context, rng, monkeypatch):
    data, k = pytensor.shared(normal(rng, 64, 100)), pt.lscalar("k")
    total = pytensor.shared(np.zeros((4, 100), "float32"))
    f = opencl([k], [], updates={total: total + data[k * 4 : (k + 1) * 4]})
    for call in range(32):
        f(call % 16)
    assert_joined(f)
    maps, find = [], HostMappings._address
    monkeypatch.setattr(
        HostMappings, "_address", lambda mappings, buffer: maps.append(buffer) or find(mappings, buffer)
    )
    for call in range(16):
        f(call)
    assert not maps
    expected = 3 * data.get_value().reshape(16, 4, 100).sum(0)
    np.testing.assert_allclose(total.get_value(), expected, rtol=1e-4, atol=1e-4)


def test_an_interrupted_launch_is_waited_for(context, rng, monkeypatch):
    """Only the queue keeps it: its arguments would be released, and the next launch would get its table."""
    x, w = pt.fvector("x"), pytensor.shared(np.zeros(1_000_000, "float32"))
    f = opencl([x], [], updates={w: pt.exp(pt.sin(w)) + x[0]})
    data = normal(rng, 7)
    for _ in range(CALLS):
        f(data)
    assert_joined(f)
    events = []

    def interrupt(event, what):
        events.append(event)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(context.queue, "keep_until_event", interrupt)
        f(data)
    assert [e.command_execution_status for e in events] == [cl.command_execution_status.COMPLETE]


def test_shared_variables_are_replaced_while_calls_are_under_way(context, rng):
    rate, w = pytensor.shared(np.ones(8, "float32")), pytensor.shared(normal(rng, 9000, 8))
    f = opencl([], [], updates={w: pt.tanh(w) * rate})
    expected = w.get_value()
    for _ in range(4 * CALLS):
        value = rng.uniform(1, 2, 8).astype("float32")
        rate.set_value(value)
        f()
        expected = np.tanh(expected) * value
    assert_joined(f)
    np.testing.assert_allclose(w.get_value(), expected, rtol=1e-4, atol=1e-4)


def test_an_update_in_place_comes_before_or_after_what_other_threads_enqueue(context, monkeypatch):
    """What the host computes itself is in no order with what another thread enqueues meanwhile."""
    w = pytensor.shared(np.ones(1000, "float32"), "w")
    v = pytensor.shared(np.ones(3, "float32"))
    f = opencl([], (v * 2).sum(), updates={w: w + np.float32(1)})
    for _ in range(CALLS):
        f()
    (made,) = captured_graphs(f)
    (dispatch,) = made.sequences
    assert made.donations and dispatch._writes_shared and dispatch.is_waited_for
    ways = []
    for way in ("run_and_wait", "submit"):
        function = getattr(dispatch.sequence, way)
        monkeypatch.setattr(dispatch.sequence, way, lambda *a, way=way, do=function: (ways.append(way), do(*a)))
    monkeypatch.setattr(graph, "active_count", lambda: 1)
    assert f() == 6
    monkeypatch.setattr(graph, "active_count", lambda: 2)
    assert f() == 6
    assert ways == ["run_and_wait", "submit"]
    np.testing.assert_array_equal(w.get_value(), np.full(1000, CALLS + 3, "f4"))
