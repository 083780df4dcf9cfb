"""What is noted of the calls of one class, and what follows."""

import pytest

from pytensor_cl.linker.choice import DEAR, DEVICE, FEW, NUMBA, SAMPLES, UNLIKELY, UNTIMED, C, SizeClass, _slower


@pytest.fixture
def size():
    """Return a class whose first side, NUMBA, takes three milliseconds."""
    made = SizeClass(((3,),), NUMBA, dict.fromkeys((DEVICE, NUMBA, C), lambda: []))
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
