"""The hot path: the Python functions and the files of a repeated call; see docs/architecture.md, "A repeated call"."""

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.linker.selection.backends import DEVICE
from pytensor_cl.runtime.pocl.thread_mode import HOST_ONLY, ThreadModeTuner
from tests.helpers import normal, opencl

PACKAGE = Path(pytensor_cl.__file__).parent
WALK = Path(__file__).parents[2] / "docs" / "architecture.md"
CALLS, FILES = 22, 7


@pytest.fixture(autouse=True)
def calls_of_the_host_thread(monkeypatch):
    """Choose the host thread alone: the time of a mode depends on what else runs on the machine.

    Functions of other tests may have arrays of pyopencl, and with them the queue, whose waits are real ones then.
    """
    gc.collect()
    monkeypatch.setattr(ThreadModeTuner, "_seconds", lambda _, mode: float(mode != HOST_ONLY))


def network(context, rng):
    """A function of three kernels and two shared variables, and its argument."""
    if context.batch_launcher is None:
        pytest.skip("kernels are enqueued one by one")
    x = pt.fmatrix("x")
    first, second = (pytensor.shared(normal(rng, *shape)) for shape in ((64, 64), (64, 32)))
    f = opencl([x], pt.tanh(pt.tanh(x @ first) @ second).sum(0))
    value = normal(rng, 100, 64)
    expected = np.tanh(np.tanh(value @ first.get_value()) @ second.get_value()).sum(0)
    for _ in range(100):  # until the thread mode is measured, too
        np.testing.assert_allclose(f(value), expected, 1e-3, 1e-3)
    return f, value


def python_calls(f, value):
    """The Python functions of the package in one call, as pairs of file and name."""
    found = []

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            found.append((path.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname))

    replays = f.vm.executor.replay_count
    sys.setprofile(note)
    try:
        f(value)
    finally:
        sys.setprofile(None)
    assert f.vm.executor.replay_count == replays + 1
    return found


def shortest(f, value):
    """The call with the fewest functions of some: some calls measure how many threads to use."""
    return min((python_calls(f, value) for _ in range(40)), key=len)


def assert_short(calls):
    files = {path for path, _ in calls}
    assert len(calls) <= CALLS, "\n".join(map(" ".join, calls))
    assert len(files) <= FILES, sorted(files)


@pytest.mark.usefixtures("on_device")
def test_a_repeated_call_on_the_device(context, rng):
    assert_short(shortest(*network(context, rng)))


def test_a_repeated_call_with_a_choice_that_is_settled(context, rng):
    """One function more, and its file: the generated call."""
    with pytensor.config.change_flags(opencl__placement="auto", opencl__select_backend=True):
        f, value = network(context, rng)
        for stats in f.vm.signatures:
            stats.use(DEVICE)
            stats.calls_left = 1 << 40
            f.vm._apply(stats)
        for _ in range(WARMUP_CALLS + 100):
            f(value)
        calls = shortest(f, value)
    assert calls[0] == ("linker/selection/call_codegen.py", "make.<locals>.call")
    assert calls[1] == ("linker/run/vm.py", "OpenCLVM.__call__")
    assert_short(calls[1:])


@pytest.mark.usefixtures("on_device")
def test_the_architecture_page_names_every_file(context, rng):
    text = WALK.read_text() if WALK.exists() else pytest.skip("needs the documents")
    section = text.split("## A repeated call", 1)[1].split("\n## ", 1)[0]
    assert not {path for path, _ in shortest(*network(context, rng)) if path not in section}


@pytest.mark.usefixtures("on_device")
def test_a_captured_graph_keeps_no_argument(context, rng):
    x = pt.fmatrix("x")
    f = opencl([x], pt.exp(x).sum(0))
    value = normal(rng, 2000, 100)
    expected, alive = np.exp(value).sum(0), weakref.ref(value)
    for _ in range(WARMUP_CALLS + 1):  # the last one is captured
        np.testing.assert_allclose(f(value), expected, 1e-4)
    assert f.vm.executor.graphs
    del value
    f(normal(rng, 2000, 100))  # whose wait ends the use of the first one
    gc.collect()
    assert alive() is None
