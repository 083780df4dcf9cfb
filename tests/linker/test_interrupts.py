"""Calls that the user interrupts, wherever: the next one is right, and repeated as before."""

import sys
from pathlib import Path
from sys import monitoring

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemm import GpuDot22
from pytensor_cl.runtime.queue import Queue
from pytensor_cl.runtime.registry import get_context
from tests.helpers import assert_on_device, normal, opencl

pytestmark = [
    pytest.mark.usefixtures("on_device"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]

HOME = str(Path(pytensor_cl.__file__).parent)
TOOL = 4
CALLS = WARMUP_CALLS + 3
EVENTS = monitoring.events
LISTENS = (EVENTS.PY_START, EVENTS.PY_RETURN, EVENTS.C_RETURN)


def _is_in_a_finalizer():
    """Return whether something ends that a call has replaced: Python prints what is raised there, and continues."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(HOME):
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """Raises KeyboardInterrupt at one of the places of a call where Python would handle a signal.

    Parameters
    ----------
    after : int
        How many such places are passed before.

    """

    def __init__(self, after):
        self._left, self.where = after, ""

    def __enter__(self):
        monitoring.use_tool_id(TOOL, "interrupts")
        for event in LISTENS:
            monitoring.register_callback(TOOL, event, self._step)
        monitoring.set_events(TOOL, EVENTS.PY_START | EVENTS.PY_RETURN | EVENTS.CALL)  # and so of C_RETURN
        return self

    def __exit__(self, kind, error, trace):
        monitoring.set_events(TOOL, 0)
        for event in LISTENS:
            monitoring.register_callback(TOOL, event, None)
        monitoring.free_tool_id(TOOL)
        return kind is KeyboardInterrupt

    def _step(self, code, offset, *_):
        if self.where or not code.co_filename.startswith(HOME) or _is_in_a_finalizer():
            return
        self._left -= 1
        if self._left < 0 and not _is_in_destructor():
            self.where = f"{code.co_qualname} {offset}"
            raise KeyboardInterrupt


def _is_in_destructor():
    """Return whether Python would only report an exception: which version runs a destructor during a call differs."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def as_it_is(f, value):
    """Let the next call be repeated."""


def again(f, value):
    """Let the next call be captured."""
    get_context().memory.trim()  # forgets captured graphs
    assert not f.vm.executor.graphs


phases = pytest.mark.parametrize(("prepare", "step"), [(as_it_is, 1), (again, 7)], ids=["repeated", "captured"])


def interrupted(f, value, prepare, step):
    """Interrupt calls at every ``step``-th place in turn; yield where, after each call."""
    for _ in range(CALLS):
        f(value)
    at = 0
    while True:
        prepare(f, value)
        with Interrupts(at) as interrupts:
            f(value)
        if not interrupts.where:
            break
        yield interrupts.where
        at += step
    assert at > 20
    assert not f.vm.executor.unsupported_reason


@phases
def test_calls_with_arguments(context, rng, prepare, step):
    x = pt.matrix("x", dtype="float32")
    f = opencl([x], pt.tanh(x @ x.T).sum(0) + 1)
    assert_on_device(f, GpuElemwise, GpuDot22)
    value = normal(rng, 6, 5)
    wanted = np.tanh(value @ value.T).sum(0) + 1
    for where in interrupted(f, value, prepare, step):
        repeated = f.vm.executor.replay_count
        for _ in range(CALLS):
            np.testing.assert_allclose(f(value), wanted, 1e-4, 1e-5, err_msg=where)
        assert f.vm.executor.replay_count > repeated, where
        assert not context.batch_launcher or not context.batch_launcher.workers.active_callers, where


@phases
def test_calls_that_update(context, rng, prepare, step):
    x = pt.vector("x", dtype="float32")
    start = normal(rng, 5)
    w = pytensor.shared(start)
    f = opencl([x], (w * x).sum(), updates={w: w / 2 + x})
    assert_on_device(f, GpuElemwise)
    value = normal(rng, 5)

    def starts(f, value):
        prepare(f, value)
        w.set_value(start)

    for where in interrupted(f, value, starts, step):
        now = w.get_value()  # after this call if it came that far
        assert any(np.allclose(now, kept, 1e-4, 1e-5) for kept in (start, start / 2 + value)), where
        repeated = f.vm.executor.replay_count
        for _ in range(CALLS):
            old = w.get_value()
            np.testing.assert_allclose(f(value), (old * value).sum(), 1e-4, 1e-5, err_msg=where)
            np.testing.assert_allclose(w.get_value(), old / 2 + value, 1e-4, 1e-5, err_msg=where)
        assert f.vm.executor.replay_count > repeated, where


@pytest.mark.parametrize("kind", ["write", "copy"])
def test_a_command_is_noted_wherever_a_signal_comes(context, kind, monkeypatch):
    first, second = (context.from_host(np.full(50, k, "float32")) for k in (1, 2))
    context.queue.finish()
    noted, calls = Queue.mark_submitted, []

    def interrupted(queue):
        calls.append(queue)
        if len(calls) == 2:  # the command is under way
            raise KeyboardInterrupt
        noted(queue)

    command = {
        "write": lambda: context.queue.write(first.buffer, np.full(50, 2, "float32")),
        "copy": lambda: context.queue.copy(first.buffer, second.buffer, 200),
    }[kind]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Queue, "mark_submitted", interrupted)
        command()
    assert context.queue.has_pending
    np.testing.assert_array_equal(first.to_host(), 2)
