"""The choice of a backend from outside: where calls run, when another backend is tried, what a failure costs.

The backends are replaced at their borders, and so is the clock: nothing here depends on how the choice is made.
"""

import logging
import re
from collections import Counter
from dataclasses import replace
from threading import Event, current_thread

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from pytensor_cl import explain
from pytensor_cl.errors import OutOfDeviceMemory, OutOfDiskSpace
from pytensor_cl.linker.run.vm import OpenCLVM
from pytensor_cl.linker.selection import backends
from pytensor_cl.linker.selection import vm as selecting_vm
from pytensor_cl.linker.selection.backends import DEVICE, HOST, NUMBA, C
from pytensor_cl.linker.selection.estimate import NO_WORK, CostEstimate, Estimator
from tests.helpers import assert_close, opencl, run_script

pytestmark = pytest.mark.usefixtures("c_compiler")

x, m = pt.fvector("x"), pt.fmatrix("m")


@pytest.fixture(autouse=True)
def _adapt():
    with pytensor.config.change_flags(opencl__select_backend=True):
        yield


class Backends:
    """Three backends that compute ``exp``, take the set times, and fail when that is set.

    Attributes
    ----------
    seconds
        Of a call, by backend.
    errors
        What a call raises, by backend.
    compile_errors
        What compiling raises, by backend of the host.
    runs
        How many calls each has finished.
    """

    def __init__(self, monkeypatch):
        self.seconds = dict.fromkeys((DEVICE, NUMBA, C), 1e-3)
        self.errors, self.compile_errors = {}, {}
        self.runs, self.compilations = Counter(), Counter()
        self.clock = 0.0
        call_on_device = OpenCLVM.__call__

        def device(vm):
            results = call_on_device(vm)
            self._take(DEVICE)
            return results

        def numba(*_):
            self._compile(NUMBA)
            return (lambda value: self._take(NUMBA) or (np.exp(value),)), FunctionGraph([], [])

        def c(_, __, cells, *___):
            self._compile(C)
            return (lambda: self._take(C) or [np.exp(cells[0][0])]), []

        monkeypatch.setattr(OpenCLVM, "__call__", device)
        monkeypatch.setattr(backends, "compile_with_numba", numba)
        monkeypatch.setattr(backends, "compile_with_c", c)
        monkeypatch.setattr(selecting_vm, "perf_counter", lambda: self.clock)

    def _compile(self, name):
        self.compilations[name] += 1
        if name in self.compile_errors:
            raise self.compile_errors[name]

    def _take(self, name):
        if name in self.errors:
            raise self.errors[name]
        self.clock += self.seconds[name]
        self.runs[name] += 1

    def take(self, **seconds):
        """Say how long calls take; `device` and so on."""
        self.seconds.update({{"device": DEVICE, "numba": NUMBA, "c": C}[k]: v for k, v in seconds.items()})


@pytest.fixture
def sides(monkeypatch):
    return Backends(monkeypatch)


@pytest.fixture
def estimates(monkeypatch):
    """Set the estimates, in seconds of a call."""

    current = CostEstimate(1e-3, 1e-3, 1e-3, NO_WORK._replace(nodes=1))
    monkeypatch.setattr(Estimator, "__call__", lambda *_: current)

    def set_estimates(**seconds):
        nonlocal current
        current = CostEstimate(1e-3, 1e-3, 1e-3, NO_WORK._replace(nodes=1))._replace(**seconds)

    return set_estimates


def call(f, value, times=1):
    for _ in range(times):
        assert_close(f(value), np.exp(value), rtol=1e-5)


def ran(f, sides, value):
    """Return which backend the next call runs on."""
    before = sides.runs.copy()
    call(f, value)
    (name,) = sides.runs - before
    return name


def only(f):
    (found,) = explain(f).choices
    return found


def chosen(f):
    return DEVICE if only(f).side == DEVICE else only(f).backend


def until(f, sides, value, condition, most):
    """Call until a condition holds; return how often."""
    for calls in range(1, most + 1):
        call(f, value)
        if condition():
            return calls
    raise AssertionError(f"not within {most} calls; runs: {dict(sides.runs)}")


ONE = np.ones(10, "float32")


def test_a_failed_trial_keeps_the_reported_backend(context, sides, estimates):
    """The backend that was chosen before has become slower than another one when the trial of a third one fails."""
    estimates(numba=1e-6)
    sides.take(numba=1e-3, device=1.15e-3, c=1.0)
    sides.compile_errors[C] = NotImplementedError("no such Op")
    f = opencl([x], pt.exp(x))
    failed = []

    def slower_when_tried():
        """NUMBA is slow in the calls of the trial that C fails in."""
        if sides.runs[DEVICE]:
            sides.take(numba=2e-3)
        if sides.compilations[C]:
            failed.append(1)
        return bool(failed)

    until(f, sides, ONE, slower_when_tried, 20_000)
    for _ in range(3):
        assert ran(f, sides, ONE) == chosen(f)


def test_an_estimate_delays_a_trial_and_never_forbids_it(context, sides, estimates):
    """The hosts are estimated to be slower than the device by far; still one is faster."""
    estimates(device=1e-6, numba=10.0, c=10.0)
    sides.take(device=2e-2, numba=1e-3, c=3.0)
    f = opencl([x], pt.exp(x))
    until(f, sides, ONE, lambda: only(f).device_seconds is not None, 100)
    promised = re.search(r"(NUMBA|C) is tried in ([\d,]+) calls", str(explain(f)))
    assert promised is not None
    tried = {"NUMBA": NUMBA, "C": C}[promised[1]]
    calls = until(f, sides, ONE, lambda: sides.runs[tried] > 0, 100_000)
    assert 0 <= calls - int(promised[2].replace(",", "")) <= 50
    until(f, sides, ONE, lambda: chosen(f) == NUMBA, 100_000)
    assert ran(f, sides, ONE) == NUMBA


def test_a_delay_grows_with_the_estimated_cost_of_the_trial(context, sides, estimates):
    delays = []
    for seconds in (0.1, 100.0):
        estimates(device=1e-6, numba=seconds, c=seconds)
        f = opencl([x], pt.exp(x))
        until(f, sides, ONE, lambda f=f: only(f).device_seconds is not None, 100)
        delays.append(only(f).next_calls)
    assert 0 < 10 * delays[0] < delays[1] < 10**9


@pytest.mark.parametrize("error", [OutOfDeviceMemory("full"), MemoryError("full"), OSError(28, "disk is full")])
@pytest.mark.parametrize("side", [DEVICE, NUMBA])
def test_an_error_that_may_pass_ends_one_trial_only(context, sides, estimates, error, side):
    estimates(**{"device": 1e-6} if side == NUMBA else {"numba": 1e-6})
    sides.take(device=1.0, numba=1.0, c=1.0)
    sides.seconds[side] = 1e-3
    first = DEVICE if side == NUMBA else NUMBA
    (sides.errors if side == DEVICE else sides.compile_errors)[side] = error
    f = opencl([x], pt.exp(x))
    until(f, sides, ONE, lambda: "full" in only(f).why, 1000)
    assert ran(f, sides, ONE) == chosen(f) != side
    sides.errors.clear()
    sides.compile_errors.clear()
    until(f, sides, ONE, lambda: chosen(f) == side, 5000)
    assert ran(f, sides, ONE) == side
    assert "full" not in only(f).why
    assert sides.runs[first]


def test_a_temporary_error_delays_the_next_trial_more_each_time(context, sides, estimates):
    estimates(device=1e-6)
    sides.compile_errors = {NUMBA: OSError(28, "disk is full"), C: NotImplementedError("no")}
    f = opencl([x], pt.exp(x))
    call(f, ONE, 40_000)
    assert 2 <= sides.compilations[NUMBA] <= 13
    assert sides.compilations[C] == 1


def test_other_errors_exclude_a_backend(context, sides, estimates):
    estimates(device=1e-6)
    sides.compile_errors = {NUMBA: NotImplementedError("no such Op"), C: RuntimeError("a bug of the compiler")}
    f = opencl([x], pt.exp(x))
    call(f, ONE, 20_000)
    assert sides.compilations == {NUMBA: 1, C: 1}
    assert "no such Op" in only(f).why and "a bug of the compiler" in only(f).why


@pytest.mark.parametrize("error", [OutOfDeviceMemory("the device is full"), OutOfDiskSpace("the disk is full")])
def test_a_device_that_runs_out_of_memory_leaves_the_call_to_the_host(context, sides, estimates, error):
    """In the first call, and in one that is not measured."""
    estimates(device=1e-6)
    sides.take(numba=1.0, c=1.0)
    for calls in (0, 40):
        f = opencl([x], pt.exp(x))
        call(f, ONE, calls)
        assert not calls or ran(f, sides, ONE) == DEVICE
        sides.errors[DEVICE] = error
        assert ran(f, sides, ONE) == NUMBA
        assert only(f).side == HOST and str(error) in only(f).why
        sides.errors.clear()
        until(f, sides, ONE, lambda f=f: chosen(f) == DEVICE, 500)
        assert ran(f, sides, ONE) == DEVICE


def test_the_error_of_the_data_is_raised_although_the_device_is_full(context, sides, estimates):
    estimates(device=1e-6)
    f = opencl([x], pt.exp(x))
    sides.errors = {DEVICE: OutOfDeviceMemory("full"), NUMBA: ValueError("wrong data"), C: ValueError("wrong data")}
    for _ in range(3):
        with pytest.raises(ValueError, match="wrong data"):
            f(ONE)
    sides.errors.clear()
    call(f, ONE, 3)


def test_matrices_of_as_many_elements_are_of_other_classes(context, sides, estimates):
    estimates(numba=1e-6)
    f = opencl([m], pt.exp(m))
    row, column = np.ones((1, 1000), "float32"), np.ones((1000, 1), "float32")
    for value in (column, row, column, row):
        call(f, value)
    assert [c.shapes for c in explain(f).choices] in ([((1000, 1),), ((1, 1000),)], [((1, 1000),), ((1000, 1),)])
    near = np.ones((1001, 1), "float32")
    call(f, near)
    assert len(explain(f).choices) == 2


def test_the_signature_that_was_used_last_is_not_evicted(context, sides, estimates, monkeypatch):
    monkeypatch.setattr(selecting_vm, "POLICY", replace(selecting_vm.POLICY, max_signatures=4))
    estimates(numba=1e-6)
    f = opencl([x], pt.exp(x))
    until(f, sides, ONE, lambda: only(f).host_seconds is not None, 100)
    for bits in range(5, 12):  # eight classes in all
        call(f, np.ones(2**bits, "float32"))
        call(f, ONE)
        kept = explain(f).choices
        assert len(kept) <= 4
        assert [c.host_seconds is not None for c in kept if c.shapes == ((10,),)] == [True]


def test_a_first_call_that_raises_for_its_data_has_compiled(context, sides, estimates):
    """So that the wait for a trial in another class is the short one."""
    f = opencl([x], pt.exp(x))
    estimates(numba=1e-6)
    sides.errors[NUMBA] = ValueError("wrong data")
    call(f, ONE)  # on the device, which raises nothing
    sides.errors.clear()
    estimates(device=1e-6)
    other = np.ones(1000, "float32")
    calls = 0
    while not sides.runs[NUMBA]:
        call(f, other)
        calls += 1
        assert calls < 150, "compiled already: 0.05 s are 50 calls of a millisecond"


def test_what_is_compiled_for_one_class_is_tried_sooner_in_others(context, sides, estimates, monkeypatch):
    late = replace(selecting_vm.POLICY, trial_budget=30.0)  # 10 seconds of compiling: 10,000 calls
    monkeypatch.setattr(selecting_vm, "POLICY", late)
    estimates(device=1e-6)
    f = opencl([x], pt.exp(x))
    call(f, ONE, 100)  # on the device, and measured there
    assert not sides.runs[NUMBA]
    other = np.ones(1000, "float32")
    estimates(numba=1e-6)
    call(f, other, 3)  # compiles
    assert sides.runs[NUMBA] == 3
    calls = until(f, sides, ONE, lambda: sides.runs[NUMBA] > 3, 300)
    assert calls < 200


def test_numba_compiles_in_a_thread_while_the_calls_go_on(context, sides, estimates, monkeypatch):
    monkeypatch.setattr(backends.NumbaFunction, "compiles_in_thread", True)
    estimates(device=1e-6)
    sides.take(numba=1e-6, c=1.0)
    may_end, threads = Event(), []

    class Function:
        def __call__(self, value):
            sides._take(NUMBA)
            return (np.exp(value),)

        @staticmethod
        def py_func(value):
            raise AssertionError

        def compile(self, types):
            threads.append(current_thread())
            may_end.wait()
            raise RuntimeError("the call that needs it raises it again")

    monkeypatch.setattr(backends, "compile_with_numba", lambda *_: (Function(), FunctionGraph([], [])))
    f = opencl([x], pt.exp(x))
    until(f, sides, ONE, lambda: threads, 20_000)
    for _ in range(500):  # ten times the seconds after which it is asked again
        assert ran(f, sides, ONE) == DEVICE
    assert threads != [current_thread()] and len(threads) == 1
    may_end.set()
    threads[0].join()
    until(f, sides, ONE, lambda: chosen(f) == NUMBA, 200)
    assert ran(f, sides, ONE) == NUMBA


def test_an_error_of_the_estimate_is_logged_and_shown(context, sides, monkeypatch, caplog):
    def broken(*_, **__):
        raise AttributeError("no such counter")

    monkeypatch.setattr(Estimator, "__call__", broken)
    f = opencl([x], pt.exp(x))
    with caplog.at_level(logging.WARNING, "pytensor_cl"):
        for size in (3, 10, 1000):
            call(f, np.ones(size, "float32"), 3)
    (record,) = caplog.records
    assert record.name == "pytensor_cl" and "no such counter" in caplog.text and record.exc_info
    assert "no such counter" in str(explain(f))
    assert len(explain(f).choices) == 3  # the calls still have a choice


def test_the_report_has_the_backend_and_the_reason(context, sides, estimates):
    estimates(device=1e-6, numba=5e-3)
    sides.take(device=1e-3, numba=5e-3, c=7e-3)
    f = opencl([x], pt.exp(x))
    call(f, ONE)
    assert only(f).side == DEVICE and "by estimate" in only(f).why
    until(f, sides, ONE, lambda: only(f).host_seconds is not None, 20_000)
    assert only(f).side == DEVICE and "measured" in only(f).why
    assert re.search(
        r"fastest of those measured; (C|NUMBA|the device) is (tried|timed again) in [\d,]+ calls", str(explain(f))
    )


def test_packages_can_be_imported_after_c_has_compiled():
    """A query for a rewrite that is not registered yet would keep ``pytensor.sparse`` from registering it."""
    script = """
        import sys
        import pytensor, pytensor.tensor as pt
        from pytensor.graph.fg import FunctionGraph
        from pytensor_cl._compat.c_backend import compile_with_c
        from pytensor_cl.mode import OPENCL
        from pytensor_cl.rewriting.host_graph.known_faults import C, excluded_rewrites
        seen["before"] = "pytensor.sparse" in sys.modules
        x = pt.fvector("x")
        with pytensor.config.change_flags(cxx=""):
            compile_with_c(FunctionGraph([x], [x + 1], clone=False), OPENCL, [[None]], [[None]], (), excluded_rewrites(C))
        import pytensor.sparse
        seen["names"] = [name for name in excluded_rewrites(C) if name in pytensor.compile.mode.optdb]
    """
    seen, _ = run_script(script)
    assert not seen["before"] and "local_addsd_ccode" in seen["names"]
