"""Messages about compilations; clock, timer and stream are fakes."""

import io
import threading

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.linker.selection import backends
from pytensor_cl.runtime import progress
from pytensor_cl.runtime.context import open_context
from pytensor_cl.runtime.progress import _Settings, _thread_state, calling, compiling, kernel_is_new


class Terminal(io.StringIO):
    is_one = True

    def isatty(self):
        return self.is_one


class FakeTimer:
    """A timer that a test fires; all that were started are in `started`."""

    def __init__(self, seconds, tell):
        self.seconds, self.tell, self.is_cancelled = seconds, tell, False

    def start(self):
        self.started.append(self)

    def cancel(self):
        self.is_cancelled = True


@pytest.fixture
def timers(monkeypatch):
    monkeypatch.setattr(FakeTimer, "started", [], raising=False)
    monkeypatch.setattr(_Settings, "timer", FakeTimer)
    monkeypatch.setattr(_Settings, "mode", staticmethod(lambda: "auto"))
    yield FakeTimer.started
    assert _thread_state.pause is None and _thread_state.label is None and not _thread_state.depth


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_Settings, "clock", staticmethod(lambda: now[0]))
    return now


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(_Settings, "stream", staticmethod(lambda: stream))
    return stream


def test_a_short_pause_is_not_reported(timers, terminal):
    with compiling("3 kernels", "PoCL"):
        pass
    assert [t.seconds for t in timers] == [0.5] and timers[0].is_cancelled
    timers[0].tell()  # it was about to
    assert terminal.getvalue() == ""


def test_a_long_pause_is_reported_with_its_reason_and_time(timers, terminal, clock):
    with calling("loss"), compiling("3 kernels", "PoCL"):
        timers[0].tell()
        assert terminal.getvalue() == "pytensor-cl: compiling 3 kernels for loss (PoCL)..."
        clock[0] += 3.21
    assert terminal.getvalue() == "pytensor-cl: compiling 3 kernels for loss (PoCL)... 3.2 s\n"


def test_an_error_ends_a_pause(timers, terminal):
    with pytest.raises(KeyboardInterrupt), compiling("a graph", "NUMBA", "f"):
        timers[0].tell()
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith("a graph for f (NUMBA)... 0.0 s\n")


def test_pauses_inside_a_pause_are_part_of_it(timers, terminal):
    with compiling("a graph", "NUMBA"), compiling("3 kernels", "PoCL"), calling("f"):
        kernel_is_new("PoCL")
    assert len(timers) == 1


def test_the_first_launch_of_a_kernel_may_compile_until_the_call_ends(timers, terminal):
    with calling("f"):
        with calling(None):
            kernel_is_new("PoCL")
            kernel_is_new("PoCL")
        timers[0].tell()
        assert not timers[0].is_cancelled
    assert len(timers) == 1 and terminal.getvalue() == "pytensor-cl: compiling kernels for f (PoCL)... 0.0 s\n"


def test_kernels_outside_of_calls_are_no_pause(timers, terminal):
    kernel_is_new("PoCL")
    assert timers == []


@pytest.mark.parametrize(("mode", "is_terminal", "is_printed"), [
    ("auto", True, True), ("auto", False, True), ("always", False, True), ("never", True, False),
])  # fmt: skip
def test_where_messages_are_written(timers, terminal, monkeypatch, mode, is_terminal, is_printed):
    terminal.is_one = is_terminal
    with pytensor.config.change_flags(opencl__progress=mode):
        progress.choose(lambda: pytensor.config.opencl__progress)
        with compiling("a graph", "C"):
            assert len(timers) == is_printed  # no thread where nothing is told
            for timer in timers:
                timer.tell()
    assert bool(terminal.getvalue()) == is_printed


def test_elsewhere_than_on_a_terminal_a_whole_line_comes_after_five_seconds(timers, terminal, clock):
    terminal.is_one = False
    for name in "fg":
        with compiling("3 kernels", "PoCL", name):
            clock[0] += 6
            timers[-1].tell()
    assert [timer.seconds for timer in timers] == [5.0, 5.0]
    assert terminal.getvalue().splitlines() == [f"pytensor-cl: compiling 3 kernels for {f} (PoCL)..." for f in "fg"]
    assert terminal.getvalue().endswith("\n")


@pytest.mark.parametrize("stream", [None, "closed"])
def test_no_stderr(timers, monkeypatch, stream):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(_Settings, "stream", staticmethod(lambda: closed if stream else None))
    for mode in ("auto", "always"):
        monkeypatch.setattr(_Settings, "mode", staticmethod(lambda mode=mode: mode))
        with compiling("a graph", "C"):
            for timer in timers:
                timer.tell()


def test_the_log_has_it_for_every_value_of_the_flag(timers, terminal, clock, monkeypatch, caplog):
    monkeypatch.setattr(_Settings, "mode", staticmethod(lambda: "never"))
    with caplog.at_level("INFO", logger="pytensor_cl"), compiling("a graph", "C", "f"):
        timers[0].tell()
        clock[0] += 2
    assert [r.getMessage() for r in caplog.records] == [
        "compiling a graph for f (C)",
        "compiled a graph for f (C) in 2.0 s",
    ]
    assert terminal.getvalue() == ""


def test_a_forked_child_writes_no_message(timers, terminal, monkeypatch):
    with compiling("a graph", "C"):
        monkeypatch.setattr(progress.os, "getpid", lambda: -1)
        timers[0].tell()
    assert terminal.getvalue() == ""


def test_threads_have_pauses_of_their_own(timers, terminal):
    with calling("f"), compiling("a graph", "C"):
        other = threading.Thread(target=lambda: compiling("b", "C").__enter__())
        other.start()
        other.join()
    assert len(timers) == 2 and "for" not in timers[1].tell.__self__._description


def test_the_real_timer_is_a_thread_that_ends(terminal):
    with compiling("a graph", "C"):
        work = _thread_state.pause._timer.work
        assert work.is_alive() and not work.is_awaited, "it would keep the process alive"
    work.join(60)
    assert not work.is_alive()


def test_building_kernels_is_a_pause(context, timers, terminal):
    fresh = open_context(f"opencl:{context.name}", "fresh")
    text = "__kernel void {0}(__global int *x) {{ x[0] = 1; }}"
    sources = [KernelSource(f"p{k}", text.format(f"p{k}")) for k in range(2)]
    timers.clear()
    fresh.build(sources)
    (timer,) = timers
    assert timer.tell.__self__._description == f"2 kernels ({fresh.device.platform.name})"
    fresh.build(sources)
    assert len(timers) == 1


def test_messages_of_calls_have_the_functions_name(context, timers, terminal, on_device, rng):
    x = pt.fvector("x")
    f = pytensor.function([x], pt.exp(x) * 1.25 - 7, mode="OPENCL", name="decay")
    v = rng.normal(size=100).astype("float32")
    np.testing.assert_allclose(f(v), np.exp(v) * 1.25 - 7, rtol=1e-5, atol=1e-5)
    assert any("kernel" in t.tell.__self__._description and "for decay" in t.tell.__self__._description for t in timers)
    for _ in range(3):  # to record calls builds a kernel too
        f(v)
    count = len(timers)
    for _ in range(3):
        f(v)
    assert len(timers) == count  # nothing is new


def test_hidden_compilation_of_the_host_is_a_pause(timers, terminal):
    class Host(backends.HostFunction):
        name = "NUMBA"

        def _compile(self):
            timers[0].tell()
            return lambda: [1]

    host = Host(None, [], [], set())
    host.function_name = "f"
    assert host.run() == [1] == host.run() and len(timers) == 1
    assert terminal.getvalue().startswith("pytensor-cl: compiling a graph for f (NUMBA)...")
