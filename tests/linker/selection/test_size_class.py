"""What is noted of the calls of one class, and what follows."""

import pytest

from pytensor_cl.linker.selection.vm import (
    DEAR,
    DEVICE,
    FEW,
    MANY,
    NEVER,
    NUMBA,
    SAMPLES,
    UNLIKELY,
    UNTIMED,
    C,
    SignatureStats,
    _slower,
)


@pytest.fixture
def size():
    """Return a class whose first side, NUMBA, takes three milliseconds."""
    made = SignatureStats(((3,),), NUMBA, dict.fromkeys((DEVICE, NUMBA, C), lambda: []))
    made.seconds[NUMBA] = 3e-3
    made.trials = [DEVICE, C]
    return made


def calls_of_a_trial(size, side, seconds):
    for call in range(1, 100):
        size.note(side, seconds)
        if size.trials[0] != side:
            return call
    raise AssertionError


def test_a_trial_of_a_side_that_may_win_is_several_calls(size):
    assert calls_of_a_trial(size, DEVICE, 5e-3) == UNTIMED[DEVICE] + SAMPLES
    assert size.seconds[DEVICE] == 5e-3


def test_one_timed_call_is_enough_if_it_takes_twice_as_long(size):
    assert calls_of_a_trial(size, DEVICE, 9e-3) == UNTIMED[DEVICE] + 1
    assert size.seconds[DEVICE] == 9e-3
    size.trials = []
    size.settle()
    assert size.side == NUMBA


def test_short_calls_are_always_repeated(size):
    size.seconds[NUMBA] = 1e-4
    assert calls_of_a_trial(size, DEVICE, 1e-2) == UNTIMED[DEVICE] + SAMPLES


def test_the_chosen_side_is_measured_whatever_it_takes(size):
    size.trials = [NUMBA, DEVICE]
    assert calls_of_a_trial(size, NUMBA, 1.0) == UNTIMED[NUMBA] + SAMPLES


def test_who_seems_slower_waits_longer_where_compiling_takes_long():
    assert _slower(2.0, 1.0, FEW) == 2
    assert _slower(100.0, 1.0, FEW) == UNLIKELY
    assert _slower(2.0, 1.0, FEW + 1) == 4
    assert _slower(100.0, 1.0, FEW + 1) == DEAR
    assert _slower(0.5, 1.0, FEW + 1) == 1
    assert _slower(float("inf"), 1.0, FEW) == 1


@pytest.mark.parametrize(("seconds", "slower"), [(1e-3, 4), (2e-3, 1), (4e-3, 1)])
def test_who_seemed_slower_than_the_first_side_was_thought_to_be_waits_by_what_that_takes(seconds, slower):
    size = SignatureStats(((3,),), DEVICE, dict.fromkeys((DEVICE, NUMBA), lambda: []))
    size.guessed, size.nodes, size.patience[NUMBA] = {DEVICE: 1e-3, NUMBA: 2e-3}, FEW + 1, 0.5
    size.seconds[DEVICE] = seconds
    size.plan([DEVICE], 0)
    size.settle()
    assert size.tried == [DEVICE, NUMBA]
    assert size.left * seconds == pytest.approx(0.5 * slower, abs=seconds)


def test_a_side_waits_no_longer_because_another_one_is_measured(size):
    """C is due after half a second of calls; the device, which is about as fast, has several turns until then."""
    size.patience[C] = 0.5
    size.seconds[DEVICE] = 3.1e-3
    size.plan([NUMBA], 0)
    waited, turns = 0.0, []
    while size.seconds[C] == float("inf"):
        size.settle()
        waited += size.left * 3e-3
        turns.append(size.tried[-1])
        size.seconds[turns[-1]] = 3.1e-3
        size.rounds[turns[-1]] += 1
    assert turns.count(DEVICE) >= 2
    assert waited == pytest.approx(0.5, abs=len(turns) * 3e-3)


def test_who_was_measured_waits_from_then_on(size):
    size.seconds.update({DEVICE: 4e-3, C: 4e-3})
    size.rounds[C] = 3
    size.plan([NUMBA], 0)
    size.settle()
    first = size.left
    assert size.tried == [NUMBA, DEVICE]
    size.settle()
    assert size.left == pytest.approx(first, abs=1)


def test_a_side_that_is_out_of_the_question_is_not_measured(size):
    size.barred.update({DEVICE: "no", C: "no"})
    size.plan([NUMBA], 0)
    size.settle()
    assert size.left == NEVER


def test_the_median_of_a_trial_counts(size):
    """Several threads do without being disturbed more seldom than one does: their best call says little."""
    for seconds in [9.0] * UNTIMED[DEVICE] + [2e-3, 4e-3, 4.5e-3, 4e-3, 4.2e-3, 1e-3, 4e-3, 4.9e-3]:
        size.note(DEVICE, seconds)
    assert size.trials[0] == DEVICE
    size.note(DEVICE, 4.1e-3)
    assert size.trials == [C]
    assert size.seconds[DEVICE] == 4e-3


def test_a_side_that_has_become_slower_is_given_up(size):
    size.seconds.update({DEVICE: 4e-3, C: 9e-3})
    rounds = 0
    while size.side == NUMBA:
        size.plan([NUMBA, DEVICE], 0)
        calls_of_a_trial(size, NUMBA, 5.5e-3)
        while size.trials:
            size.note(DEVICE, 4.4e-3)
        size.settle()
        rounds += 1
    assert rounds <= 3


def test_brief_calls_are_timed_more_often(size):
    size.seconds[NUMBA] = 1e-4
    assert calls_of_a_trial(size, DEVICE, 2e-4) == UNTIMED[DEVICE] + MANY[DEVICE]
