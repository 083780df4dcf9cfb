"""The profile: its parts add up to the calls' time, its figures are those of the nodes, and nothing stays behind."""

import json
import threading

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.linker.reports.profile import _exclusive_times
from tests.helpers import assert_close, host_sort, opencl

x = pt.fmatrix("x")


@pytest.fixture(autouse=True)
def everywhere():
    """Small graphs go to the device too."""
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.fixture
def value(rng):
    return rng.normal(size=(64, 64)).astype("float32")


@pytest.fixture
def recorded(context, value):
    """A function with every kind of node, and the profile of three calls."""
    w = pytensor.shared(value.T.copy(), name="w")
    f = opencl([x], [pt.exp(x) @ w, host_sort(x).sum(1)], updates={w: w + 1}, name="step")
    with pytensor_cl.profile(f) as p:
        for _ in range(3):
            f(value.T)  # where the device reads the host's memory, only what is not contiguous is uploaded
    return f, p


def by_op(p, name):
    return next(n for n in p.nodes if name in str(n.node.op))


def test_results_are_those_of_a_call_without_it(context, value, monkeypatch):
    """NumPy's functions of device arrays would import their namespace in the time of a call."""
    f = opencl([x], pt.exp(x) @ x)
    with pytensor_cl.profile(f), monkeypatch.context() as patch:
        patch.setattr(pytensor_cl.GpuArray, "__array_function__", None)
        inside = f(value)
    assert_close(inside, f(value))


def test_the_parts_add_up_to_the_whole(recorded):
    _, p = recorded
    assert p.calls == 3 and sum(p.shares) == pytest.approx(p.seconds)
    assert all(share >= 0 for share in p.shares) and p.shares.kernels > 0 and p.shares.host > 0


def test_kernels_end_with_the_calls(recorded):
    _, p = recorded
    assert 0 < sum(n.device_seconds for n in p.nodes) <= p.seconds


def test_bytes_and_operations(recorded, value):
    _, p = recorded
    product, exp = by_op(p, "Dot22"), by_op(p, "GpuExp")
    assert product.flops == 3 * 2 * 64**3 and product.nbytes == 3 * 3 * value.nbytes
    assert exp.flops == 3 * value.size and exp.nbytes == 3 * 2 * value.nbytes
    assert product.calls == 3 and product.launches >= 3


def test_transfers_are_listed_apart(recorded, value):
    _, p = recorded
    upload = next(n for n in p.nodes if n.context and n.node.inputs[0].name == "x")
    assert upload.device_seconds == 0
    if upload.nbytes:  # else the device reads the argument where it is
        assert upload.nbytes == 3 * value.nbytes and upload.transfer_seconds > 0


def test_nodes_of_the_host_have_no_device(recorded):
    _, p = recorded
    node = by_op(p, "HostSort")
    assert (node.context, node.launches, node.device_seconds) == ("", 0, 0) and node.host_seconds > 0


def test_text_and_html_name_every_node(recorded):
    _, p = recorded
    for shown in (str(p), p._repr_html_()):
        assert all(word in shown for word in ("GpuExp", "GpuDot22", "HostSort", "HostFromGpu", "overhead", "of peak"))


def test_html_escapes_what_ops_are_called(recorded):
    _, p = recorded
    assert "GpuFromHost&lt;" in p._repr_html_()


def test_trace(recorded, tmp_path):
    f, p = recorded
    p.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    calls = [e for e in slices if e["cat"] == "call"]
    assert [e["name"] for e in calls] == ["step"] * 3
    assert sum(e["dur"] for e in calls) == pytest.approx(1e6 * p.seconds)
    assert len([e for e in slices if e["cat"] == "step"]) == 3 * len(f.vm.nodes)
    assert {e["pid"] for e in slices} == {e["pid"] for e in events if e["ph"] == "M"} == {1, 2}


def test_device_slices_are_inside_their_call(recorded, tmp_path):
    _, p = recorded
    p.save_trace(tmp_path / "trace.json")
    slices = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    calls = [(e["ts"], e["ts"] + e["dur"]) for e in slices if e["cat"] == "call"]
    slack = 50.0  # us: of two clocks
    on_device = [(e["ts"], e["ts"] + e["dur"]) for e in slices if e["pid"] == 2]
    assert on_device
    assert all(any(a - slack <= start and end <= b + slack for a, b in calls) for start, end in on_device)


def state_of(queue):
    """Return what a queue is, but for what was enqueued last."""
    return {
        name: value for name, value in vars(queue).items() if name not in ("_submitted", "_completed", "may_take_long")
    }


def test_it_leaves_nothing_behind(context, value):
    f = opencl([x], pt.exp(x))
    queue = state_of(context.queue)
    with pytensor_cl.profile(f) as p:
        f(value)
        assert state_of(context.queue) == queue
    f(value)
    assert p.calls == 1 and not f.vm.call_listeners and not f.vm.time_thunks and state_of(context.queue) == queue


@pytest.mark.usefixtures("c_compiler")
def test_kernels_are_built_before_the_calls(context, value):
    """Calls that a host runs need none."""
    with pytensor.config.change_flags(opencl__placement="auto", opencl__select_backend=True):
        f = opencl([x], pt.exp(x))
    assert f.vm._build_kernels is not None
    with pytensor_cl.profile(f) as p:
        assert f.vm._build_kernels is None
        assert_close(f(value), np.exp(value))
    assert p.calls == 1 and sum(node.launches for node in p.nodes) == 1


def test_it_ends_where_the_block_raises(context, value):
    f = opencl([x], x @ x)
    queue = state_of(context.queue)
    with pytest.raises(ValueError), pytensor_cl.profile(f) as p:
        f(value[:, :3])
    assert p.calls == 0 and not f.vm.time_thunks and state_of(context.queue) == queue
    assert "no calls" in str(p) and "no calls" in p._repr_html_()
    assert_close(f(value), value @ value, 1e-4)


def test_arrays_that_stay_on_the_device_belong_to_the_call(context, value):
    f = opencl([x], pt.exp(x).transfer(context.name))
    with pytensor_cl.profile(f) as p:
        result = f(value)
    assert_close(result, np.exp(value))
    assert p.shares.kernels > 0


def test_several_functions(context, value):
    f, g = opencl([x], pt.exp(x)), opencl([x], pt.exp(x) - 1)
    with pytensor_cl.profile(f, g) as p:
        f(value), g(value), g(value)
    assert p.calls == 3 and {n.function for n in p.nodes} == {0, 1}


def test_inside_another(context, value):
    f = opencl([x], pt.exp(x))
    with pytensor_cl.profile(f) as outer:
        with pytensor_cl.profile(f) as inner:
            f(value)
        f(value)
    assert (outer.calls, inner.calls) == (2, 1)


def test_other_threads_may_call_functions_meanwhile(context, value):
    f, g = opencl([x], pt.exp(x)), opencl([x], [pt.tanh(x @ x).sum(axis=0), x + 1])
    wanted, wrong, over = [np.tanh(value @ value).sum(axis=0), value + 1], [], threading.Event()

    def others():
        while not over.is_set():
            if not all(np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(g(value), wanted, strict=True)):
                wrong.append(g)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(30):
            with pytensor_cl.profile(f) as p:
                assert_close(f(value), np.exp(value))
            assert {n.node for n in p.nodes} == set(f.vm.nodes) and sum(p.shares) == pytest.approx(p.seconds)
    finally:
        over.set()
        thread.join()
    assert not wrong


def test_beside_pytensors_own(context, value):
    f = opencl([x], pt.exp(x), profile=True)
    with pytensor_cl.profile(f) as p:
        f(value)
    f(value)
    assert p.calls == 1 and f.profile.fct_callcount == 2 and set(f.profile.apply_callcount.values()) == {2}
    f.profile = None


def test_other_modes_are_refused():
    with pytest.raises(TypeError, match="OPENCL"):
        pytensor_cl.profile(pytensor.function([x], x + 1, mode="NUMBA"))
    with pytest.raises(TypeError, match="function"):
        pytensor_cl.profile()


def test_calling_the_profile_raises_an_error_with_a_hint(context, value):
    f = opencl([x], pt.exp(x))
    with pytest.raises(TypeError, match=r"with pytensor_cl\.profile\(f\) as p"):
        pytensor_cl.profile(f)(value)


def test_what_overlaps_counts_once():
    shares = _exclusive_times([[(0, 30), (20, 40)], [(10, 50), (90, 120)], []], 0, 100)
    assert shares == pytest.approx([40e-9, 20e-9, 0, 40e-9])
