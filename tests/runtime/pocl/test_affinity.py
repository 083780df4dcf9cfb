"""The cores that PoCL's threads may use."""

import os
import threading
from math import inf

import pytest

from pytensor_cl.runtime import host_cpu
from pytensor_cl.runtime.pocl import affinity as module


@pytest.fixture
def sleepers(monkeypatch):
    """Return as many threads as this process has cores."""
    if not hasattr(os, "sched_getaffinity") or not host_cpu.thread_ids():
        pytest.skip("threads cannot be tied to cores here")
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    monkeypatch.setattr(module, "_pinned", [])
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in os.sched_getaffinity(0)]
    for thread in threads:
        thread.start()
    yield frozenset(t.native_id for t in threads)
    end.set()
    for thread in threads:
        thread.join()
    for cores in module._pinned:
        for file in cores._files:
            os.close(file)


@pytest.fixture
def times(monkeypatch):
    """Nanoseconds that all threads have run and waited; the clock continues by an hour with each look."""
    told, clock = [0, 0], iter(range(0, 10**9, 3600))
    monkeypatch.setattr(module, "_thread_times", lambda files: tuple(told))
    monkeypatch.setattr(module, "monotonic", lambda: float(next(clock)))
    return told


def allowed(threads):
    return {len(os.sched_getaffinity(thread)) for thread in threads}


def both():
    return min(2, len(os.sched_getaffinity(0)))


def test_each_thread_begins_with_a_core_of_its_own(sleepers, times):
    assert sleepers <= host_cpu.thread_ids()
    assert module.pin_threads(sleepers)
    assert allowed(sleepers) == {1}
    assert {min(os.sched_getaffinity(thread)) for thread in sleepers} == os.sched_getaffinity(0)


def test_threads_of_python_are_left_out(sleepers):
    assert module.without_python_threads(sleepers | {1}) == {1}


def test_threads_that_wait_for_their_cores_get_two_and_later_try_one_again(sleepers, times):
    module.pin_threads(sleepers)
    times[:] = 10**9, 10**8  # they waited 9 % of the time
    module.rebalance()
    assert allowed(sleepers) == {1}
    times[1] += 10**6  # too little time for a decision
    module.rebalance()
    assert allowed(sleepers) == {1}
    times[:] = 2 * 10**9, 2 * 10**9
    module.rebalance()
    assert allowed(sleepers) == {both()}
    assert all(sum(core in os.sched_getaffinity(t) for t in sleepers) == both() for core in os.sched_getaffinity(0))
    times[0] += 10**9
    module.rebalance()
    assert allowed(sleepers) == {1}


def test_trials_become_rarer_while_other_programs_use_the_cores(sleepers, times):
    module.pin_threads(sleepers)
    pauses = []
    for _ in range(16):
        times[1] += 10**9
        module.rebalance()
        pauses.append(module._pinned[0]._retry_seconds)
    assert pauses == sorted(pauses)
    assert pauses[-1] == module._RETRY_SECONDS[1]


def test_measurements_have_a_least_interval(sleepers, monkeypatch):
    module.pin_threads(sleepers)
    module.rebalance()
    monkeypatch.setattr(module, "_thread_times", pytest.fail)
    monkeypatch.setattr(module, "monotonic", lambda: module._pinned[0]._next_time - 0.01)
    module.rebalance()


def test_a_system_without_counters_of_waits(sleepers, monkeypatch):
    def deny(files):
        raise OSError("no such file")

    monkeypatch.setattr(module, "_thread_times", deny)
    module.pin_threads(sleepers)
    module.rebalance()
    assert allowed(sleepers) == {both()}
    assert module._pinned[0]._next_time == inf


def test_threads_that_have_ended_are_ignored(sleepers, monkeypatch):
    module.pin_threads(sleepers)

    def deny(files):
        raise ProcessLookupError("no such thread")

    monkeypatch.setattr(module, "_thread_times", deny)
    module.rebalance()
    module.rebalance()
    assert module._pinned[0]._next_time == inf


def test_threads_are_not_pinned_if_the_user_has_set_it_or_if_there_are_not_as_many_as_cores(sleepers, monkeypatch):
    assert not module.pin_threads(frozenset())
    assert not module.pin_threads(sleepers | {0})
    monkeypatch.setenv("POCL_AFFINITY", "0")
    assert not module.pin_threads(sleepers)
    assert {frozenset(os.sched_getaffinity(t)) for t in sleepers} == {frozenset(os.sched_getaffinity(0))}


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 3), ("150000 100000", 2), ("1000 100000", 1), ("900000 100000", 3), ("", 3)]
)
def test_a_limit_of_time_counts_as_cores(monkeypatch, tmp_path, text, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5}, raising=False)
    assert host_cpu.granted_cores(tmp_path) == 3
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert host_cpu.granted_cores(tmp_path) == cores
