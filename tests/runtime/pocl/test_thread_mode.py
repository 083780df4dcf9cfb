"""The choice of the threads that run a kernel batch."""

from math import inf

import pytest

from pytensor_cl.runtime.pocl.thread_mode import HOST_ONLY, NEW_WORKERS, PARKED_WORKERS, ThreadModeTuner


@pytest.fixture
def rare_comparisons(monkeypatch):
    """Compare the modes again only after many calls."""
    monkeypatch.setattr("pytensor_cl.runtime.pocl.thread_mode._RETRIAL_CALLS", (2048,))


@pytest.mark.usefixtures("rare_comparisons")
def test_parked_workers_of_another_batch_do_not_replace_new_ones():
    """Workers of a smaller batch are parked. They do not make this batch faster."""
    tuner = ThreadModeTuner(3)
    seconds = {NEW_WORKERS: 1e-3, HOST_ONLY: 3.5e-3, PARKED_WORKERS: 3.5e-3}
    answers(tuner, seconds, 12, True)
    assert answers(tuner, seconds, 50, True, is_parked=True) == [NEW_WORKERS] * 50


@pytest.mark.usefixtures("rare_comparisons")
def test_a_single_fast_launch_changes_nothing():
    tuner = ThreadModeTuner(3)
    quiet = {NEW_WORKERS: 500e-6, HOST_ONLY: 130e-6, PARKED_WORKERS: 200e-6}
    answers(tuner, quiet, 7, True)
    answers(tuner, quiet | {NEW_WORKERS: 90e-6}, 1, True)  # which is to park its workers
    assert answers(tuner, quiet, 60, True)[-50:] == [HOST_ONLY] * 50


@pytest.mark.usefixtures("rare_comparisons")
def test_a_mode_that_is_slower_after_the_comparison_is_replaced():
    tuner = ThreadModeTuner(3)
    compared = {NEW_WORKERS: 44e-6, HOST_ONLY: 45e-6, PARKED_WORKERS: 43e-6}
    answers(tuner, compared, 12, False)
    in_use = {NEW_WORKERS: 150e-6, HOST_ONLY: 45e-6, PARKED_WORKERS: 43e-6}
    found = answers(tuner, in_use, 200, False)
    assert found[0] == NEW_WORKERS and found[-150:] == [HOST_ONLY] * 150


@pytest.mark.usefixtures("rare_comparisons")
def test_with_calls_in_other_threads_the_host_is_alone():
    tuner = ThreadModeTuner(3)
    answers(tuner, {NEW_WORKERS: 100e-6, HOST_ONLY: 150e-6, PARKED_WORKERS: 120e-6}, 40, False)
    assert tuner.choose(False, False, False) == NEW_WORKERS
    assert tuner.choose(False, False, True) == HOST_ONLY
    long = ThreadModeTuner(3)
    answers(long, {NEW_WORKERS: 100e-6, HOST_ONLY: 250e-6, PARKED_WORKERS: 120e-6}, 40, False)
    assert long.choose(False, False, True) == NEW_WORKERS


def answers(tuner, seconds, calls, is_burst, is_parked=None):
    """Return the modes of some calls, of which each takes `seconds[mode]`; workers stay parked unless `is_parked` says."""
    found, ready = [], False
    for _ in range(calls):
        mode = tuner.choose(ready if is_parked is None else is_parked, is_burst)
        ready = (mode == NEW_WORKERS and tuner.parks_workers(is_burst)) or (ready and mode == PARKED_WORKERS)
        tuner.record(mode, seconds[mode])
        found.append(mode)
    return found


@pytest.mark.parametrize(("alone", "best"), [(80e-6, HOST_ONLY), (130e-6, NEW_WORKERS)])
def test_workers_are_used_where_they_are_faster(alone, best):
    tuner = ThreadModeTuner(3)
    seconds = {NEW_WORKERS: 100e-6, HOST_ONLY: alone, PARKED_WORKERS: 10e-6}
    assert answers(tuner, seconds, 7, False) == [NEW_WORKERS] * 4 + [HOST_ONLY] * 3
    assert answers(tuner, seconds, 20, False) == [best] * 20


@pytest.mark.usefixtures("rare_comparisons")
def test_parked_workers_are_used_in_bursts():
    tuner = ThreadModeTuner(3)
    seconds = {NEW_WORKERS: 100e-6, HOST_ONLY: 80e-6, PARKED_WORKERS: 30e-6}
    answers(tuner, seconds, 7, True)
    assert answers(tuner, seconds, 50, True) == [NEW_WORKERS, *[PARKED_WORKERS] * 49]
    assert answers(tuner, seconds, 3, False, is_parked=False) == [HOST_ONLY] * 3


def test_parked_workers_are_not_used_where_they_are_slower():
    tuner = ThreadModeTuner(3)
    seconds = {NEW_WORKERS: 100e-6, HOST_ONLY: 5e-6, PARKED_WORKERS: 6e-6}
    answers(tuner, seconds, 7, True)
    assert answers(tuner, seconds, 30, True) == [NEW_WORKERS, *[PARKED_WORKERS] * 4, *[HOST_ONLY] * 25]


def test_modes_are_compared_again(monkeypatch):
    """Programs that keep the cores busy come and go."""
    monkeypatch.setattr("pytensor_cl.runtime.pocl.thread_mode._RETRIAL_CALLS", (100,))
    tuner = ThreadModeTuner(3)
    quiet = {NEW_WORKERS: 100e-6, HOST_ONLY: 80e-6, PARKED_WORKERS: 30e-6}
    busy = {NEW_WORKERS: 900e-6, HOST_ONLY: 90e-6, PARKED_WORKERS: 300e-6}
    assert answers(tuner, quiet, 60, True)[-1] == PARKED_WORKERS
    assert answers(tuner, busy, 200, True)[-50:].count(HOST_ONLY) >= 35
    assert answers(tuner, quiet, 200, True)[-50:].count(PARKED_WORKERS) >= 35


def test_a_wrong_comparison_is_corrected():
    """The first launches start threads, and write memory for the first time."""
    tuner = ThreadModeTuner(3)
    answers(tuner, {NEW_WORKERS: 1900e-6, HOST_ONLY: 1800e-6, PARKED_WORKERS: inf}, 7, False)
    settled = {NEW_WORKERS: 700e-6, HOST_ONLY: 1500e-6, PARKED_WORKERS: inf}
    assert answers(tuner, settled, 32, False) == [HOST_ONLY] * 32
    assert answers(tuner, settled, 50, False)[7:] == [NEW_WORKERS] * 43


@pytest.mark.usefixtures("rare_comparisons")
def test_the_mode_outside_bursts_is_measured_too():
    tuner = ThreadModeTuner(3)
    answers(tuner, {NEW_WORKERS: 90e-6, HOST_ONLY: 80e-6, PARKED_WORKERS: 20e-6}, 12, True)
    single = answers(tuner, {NEW_WORKERS: 90e-6, HOST_ONLY: 200e-6, PARKED_WORKERS: 20e-6}, 40, False, is_parked=False)
    assert single[0] == HOST_ONLY and single[-1] == NEW_WORKERS


def test_parked_workers_are_tried_in_long_calls_too():
    """A long call need not be faster by a tenth: 30 us are enough."""
    tuner = ThreadModeTuner(3)
    seconds = {NEW_WORKERS: 4e-3, HOST_ONLY: 14e-3, PARKED_WORKERS: 3.9e-3}
    assert answers(tuner, seconds, 30, True)[-20:] == [PARKED_WORKERS] * 20
    tuner = ThreadModeTuner(3)
    assert answers(tuner, seconds | {PARKED_WORKERS: 3.99e-3}, 30, True)[-20:] == [NEW_WORKERS] * 20


@pytest.mark.usefixtures("rare_comparisons")
def test_workers_that_leave_too_often_are_not_used():
    """Another program uses the core of a worker, so each call would launch new ones."""
    tuner = ThreadModeTuner(3)
    seconds = {NEW_WORKERS: 200e-6, HOST_ONLY: 100e-6, PARKED_WORKERS: 50e-6}
    assert answers(tuner, seconds, 20, True)[-1] == PARKED_WORKERS
    assert answers(tuner, seconds, 60, True, is_parked=False)[-20:] == [HOST_ONLY] * 20
    assert answers(tuner, seconds, 20, True)[-1] == HOST_ONLY


@pytest.mark.parametrize("calls", [[(NEW_WORKERS, 5e-3)] * 4, [(NEW_WORKERS, 1e-3)] * 4 + [(HOST_ONLY, 3.5e-3)]])
def test_long_calls_are_not_run_by_the_host_alone(calls):
    tuner = ThreadModeTuner(3)
    for wanted, seconds in calls:
        assert tuner.choose(False, False) == wanted
        tuner.record(wanted, seconds)
    assert answers(tuner, {NEW_WORKERS: calls[0][1]}, 9, False) == [NEW_WORKERS] * 9
    alone = ThreadModeTuner(0)
    alone.record(HOST_ONLY, 1.0)
    assert alone.choose(False, True) == alone.choose(True, True) == HOST_ONLY


def test_a_slow_call_ends_the_timing_of_a_mode():
    """The other modes are compared nevertheless."""
    tuner = ThreadModeTuner(3)
    seconds = {NEW_WORKERS: 50e-6, HOST_ONLY: 200e-6, PARKED_WORKERS: 20e-6}
    assert answers(tuner, seconds, 15, True) == [*[NEW_WORKERS] * 4, HOST_ONLY, NEW_WORKERS, *[PARKED_WORKERS] * 9]


@pytest.mark.usefixtures("rare_comparisons")
def test_workers_that_are_never_parked_end_a_comparison():
    tuner = ThreadModeTuner(3)
    seconds = {NEW_WORKERS: 100e-6, HOST_ONLY: 80e-6, PARKED_WORKERS: 1e-6}
    answers(tuner, seconds, 7, True)
    assert answers(tuner, seconds, 30, True, is_parked=False) == [*[NEW_WORKERS] * 5, *[HOST_ONLY] * 25]
