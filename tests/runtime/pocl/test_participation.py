"""Who takes part in the calls of a batch."""

from math import inf

import pytest

from pytensor_cl.runtime.pocl.participation import HOST_ONLY, NEW_WORKERS, PARKED_WORKERS, ParticipationTuner


@pytest.fixture
def undisturbed(monkeypatch):
    """Look at all again only after many calls."""
    monkeypatch.setattr("pytensor_cl.runtime.pocl.participation._RETRIAL_CALLS", (2048,))


@pytest.mark.usefixtures("undisturbed")
def test_help_that_others_have_launched_is_no_reason_to_do_without():
    """Those of a small function stand by; they are not worth it here, or are too few."""
    tuner = ParticipationTuner(3)
    seconds = {NEW_WORKERS: 1e-3, HOST_ONLY: 3.5e-3, PARKED_WORKERS: 3.5e-3}
    answers(tuner, seconds, 11, True)
    assert answers(tuner, seconds, 50, True, is_ready=True) == [NEW_WORKERS] * 50


@pytest.mark.usefixtures("undisturbed")
def test_a_lucky_launch_changes_nothing():
    tuner = ParticipationTuner(3)
    quiet = {NEW_WORKERS: 500e-6, HOST_ONLY: 130e-6, PARKED_WORKERS: 200e-6}
    answers(tuner, quiet, 6, True)
    answers(tuner, quiet | {NEW_WORKERS: 90e-6}, 1, True)  # for those that are to stand by
    assert answers(tuner, quiet, 60, True)[-50:] == [HOST_ONLY] * 50


@pytest.mark.usefixtures("undisturbed")
def test_what_takes_longer_in_use_than_in_tries_is_given_up():
    tuner = ParticipationTuner(3)
    tries = {NEW_WORKERS: 44e-6, HOST_ONLY: 45e-6, PARKED_WORKERS: 43e-6}
    answers(tuner, tries, 11, False)
    in_use = {NEW_WORKERS: 150e-6, HOST_ONLY: 45e-6, PARKED_WORKERS: 43e-6}
    found = answers(tuner, in_use, 200, False)
    assert found[0] == NEW_WORKERS and found[-150:] == [HOST_ONLY] * 150


@pytest.mark.usefixtures("undisturbed")
def test_where_other_threads_want_the_cores_a_call_is_done_alone():
    tuner = ParticipationTuner(3)
    answers(tuner, {NEW_WORKERS: 100e-6, HOST_ONLY: 150e-6, PARKED_WORKERS: 120e-6}, 40, False)
    assert tuner.choose(False, False, False) == NEW_WORKERS
    assert tuner.choose(False, False, True) == HOST_ONLY
    long = ParticipationTuner(3)
    answers(long, {NEW_WORKERS: 100e-6, HOST_ONLY: 250e-6, PARKED_WORKERS: 120e-6}, 40, False)
    assert long.choose(False, False, True) == NEW_WORKERS


def answers(tuner, seconds, calls, is_burst, is_ready=None):
    """Who is chosen in some calls of which each way takes so many seconds; those who are kept are ready."""
    found, ready = [], False
    for _ in range(calls):
        way = tuner.choose(ready if is_ready is None else is_ready, is_burst)
        ready = (way == NEW_WORKERS and tuner.parks_workers(is_burst)) or (ready and way == PARKED_WORKERS)
        tuner.record(way, seconds[way])
        found.append(way)
    return found


@pytest.mark.parametrize(("alone", "best"), [(80e-6, HOST_ONLY), (130e-6, NEW_WORKERS)])
def test_help_is_taken_where_it_helps(alone, best):
    tuner = ParticipationTuner(3)
    seconds = {NEW_WORKERS: 100e-6, HOST_ONLY: alone, PARKED_WORKERS: 10e-6}
    assert answers(tuner, seconds, 6, False) == [NEW_WORKERS, *[HOST_ONLY] * 3, *[NEW_WORKERS] * 2]
    assert answers(tuner, seconds, 20, False) == [best] * 20


@pytest.mark.usefixtures("undisturbed")
def test_those_that_stand_by_are_called_where_calls_come_soon():
    tuner = ParticipationTuner(3)
    seconds = {NEW_WORKERS: 100e-6, HOST_ONLY: 80e-6, PARKED_WORKERS: 30e-6}
    answers(tuner, seconds, 6, True)
    assert answers(tuner, seconds, 50, True) == [NEW_WORKERS, *[PARKED_WORKERS] * 49]
    assert answers(tuner, seconds, 3, False, is_ready=False) == [HOST_ONLY] * 3


def test_those_that_stand_by_are_not_called_where_it_takes_longer():
    tuner = ParticipationTuner(3)
    seconds = {NEW_WORKERS: 100e-6, HOST_ONLY: 5e-6, PARKED_WORKERS: 6e-6}
    answers(tuner, seconds, 6, True)
    assert answers(tuner, seconds, 30, True) == [NEW_WORKERS, *[PARKED_WORKERS] * 4, *[HOST_ONLY] * 25]


def test_it_is_looked_at_again(monkeypatch):
    """Programs that keep the cores busy come and go."""
    monkeypatch.setattr("pytensor_cl.runtime.pocl.participation._RETRIAL_CALLS", (100,))
    tuner = ParticipationTuner(3)
    quiet = {NEW_WORKERS: 100e-6, HOST_ONLY: 80e-6, PARKED_WORKERS: 30e-6}
    busy = {NEW_WORKERS: 900e-6, HOST_ONLY: 90e-6, PARKED_WORKERS: 300e-6}
    assert answers(tuner, quiet, 60, True)[-1] == PARKED_WORKERS
    assert answers(tuner, busy, 200, True)[-50:].count(HOST_ONLY) >= 35
    assert answers(tuner, quiet, 200, True)[-50:].count(PARKED_WORKERS) >= 35


def test_an_unlucky_try_is_burst_made_good():
    """Of the first launches each wakes threads, and touches memory for the first time."""
    tuner = ParticipationTuner(3)
    answers(tuner, {NEW_WORKERS: 1900e-6, HOST_ONLY: 1800e-6, PARKED_WORKERS: inf}, 6, False)
    settled = {NEW_WORKERS: 700e-6, HOST_ONLY: 1500e-6, PARKED_WORKERS: inf}
    assert answers(tuner, settled, 32, False) == [HOST_ONLY] * 32
    assert answers(tuner, settled, 50, False)[6:] == [NEW_WORKERS] * 44


@pytest.mark.usefixtures("undisturbed")
def test_what_is_taken_where_nobody_stands_by_is_looked_at_in_use_too():
    tuner = ParticipationTuner(3)
    answers(tuner, {NEW_WORKERS: 90e-6, HOST_ONLY: 80e-6, PARKED_WORKERS: 20e-6}, 12, True)
    apart = answers(tuner, {NEW_WORKERS: 90e-6, HOST_ONLY: 200e-6, PARKED_WORKERS: 20e-6}, 40, False, is_ready=False)
    assert apart[0] == HOST_ONLY and apart[-1] == NEW_WORKERS


def test_those_that_stand_by_are_tried_in_long_calls_too():
    """They need not be better by a tenth then: what they gain is more than what they cost others."""
    tuner = ParticipationTuner(3)
    seconds = {NEW_WORKERS: 4e-3, HOST_ONLY: 14e-3, PARKED_WORKERS: 3.9e-3}
    assert answers(tuner, seconds, 30, True)[-20:] == [PARKED_WORKERS] * 20
    tuner = ParticipationTuner(3)
    assert answers(tuner, seconds | {PARKED_WORKERS: 3.99e-3}, 30, True)[-20:] == [NEW_WORKERS] * 20


@pytest.mark.usefixtures("undisturbed")
def test_those_who_leave_again_and_again_are_done_without():
    """Another program keeps a core from one of them: each call would launch others."""
    tuner = ParticipationTuner(3)
    seconds = {NEW_WORKERS: 200e-6, HOST_ONLY: 100e-6, PARKED_WORKERS: 50e-6}
    assert answers(tuner, seconds, 20, True)[-1] == PARKED_WORKERS
    assert answers(tuner, seconds, 60, True, is_ready=False)[-20:] == [HOST_ONLY] * 20
    assert answers(tuner, seconds, 20, True)[-1] == HOST_ONLY


@pytest.mark.parametrize("calls", [[(NEW_WORKERS, 5e-3)], [(NEW_WORKERS, 1e-3), (HOST_ONLY, 3.5e-3)]])
def test_what_takes_long_is_not_done_alone(calls):
    tuner = ParticipationTuner(3)
    for wanted, seconds in calls:
        assert tuner.choose(False, False) == wanted
        tuner.record(wanted, seconds)
    assert answers(tuner, {NEW_WORKERS: calls[0][1]}, 9, False) == [NEW_WORKERS] * 9
    alone = ParticipationTuner(0)
    alone.record(HOST_ONLY, 1.0)
    assert alone.choose(False, True) == alone.choose(True, True) == HOST_ONLY
