"""The bounded comparison of alternatives by medians."""

import pytest

from pytensor_cl.runtime.measured_choice import MIN_TIMED_CALLS, TimedComparison


def calls_until_over(comparison, seconds):
    """Report calls of constant times until the comparison is over; return how many each alternative had."""
    calls = dict.fromkeys(seconds, 0)
    while comparison.current is not None:
        name = comparison.current
        calls[name] += 1
        comparison.note(seconds[name])
    return calls


def test_each_alternative_has_its_warmup_and_timed_calls():
    comparison = TimedComparison({"a": 0, "b": 2}, timed_calls=5)
    assert calls_until_over(comparison, {"a": 1.0, "b": 2.0}) == {"a": 5, "b": 7}
    assert comparison.medians == {"a": 1.0, "b": 2.0}


def test_the_median_counts_and_the_warmup_does_not():
    comparison = TimedComparison({"a": 2}, timed_calls=5)
    for seconds in (99.0, 99.0, 3.0, 1.0, 50.0, 2.0, 4.0):
        comparison.note(seconds)
    assert comparison.medians == {"a": 3.0}
    with pytest.raises(ValueError, match="over"):
        comparison.note(1.0)


def test_long_calls_are_timed_less_often():
    comparison = TimedComparison({"a": 0, "b": 0}, timed_calls=9, long_seconds=0.1)
    assert calls_until_over(comparison, {"a": 0.05, "b": 0.001}) == {"a": MIN_TIMED_CALLS, "b": 9}


def test_one_long_call_rules_a_slow_alternative_out():
    comparison = TimedComparison({"a": 1, "b": 1}, timed_calls=9, long_seconds=0.1, abort_ratio=2.0)
    assert calls_until_over(comparison, {"a": 0.2, "b": 0.5})["b"] == 2
    comparison = TimedComparison({"a": 1, "b": 1}, timed_calls=9, long_seconds=0.1, abort_ratio=2.0)
    assert calls_until_over(comparison, {"a": 0.2, "b": 0.3})["b"] == 1 + MIN_TIMED_CALLS


def test_short_calls_are_never_ruled_out_by_one_of_them():
    """Another program may have taken the core for its time."""
    comparison = TimedComparison({"a": 0, "b": 0}, timed_calls=9, long_seconds=0.1, abort_ratio=2.0)
    assert calls_until_over(comparison, {"a": 1e-5, "b": 1e-3})["b"] == 9


def test_a_warmup_takes_some_seconds():
    """Only some alternatives have a warm-up: others have run until now."""
    comparison = TimedComparison({"a": 0, "b": 2}, timed_calls=5, warmup_seconds=1.0)
    assert calls_until_over(comparison, {"a": 0.25, "b": 0.25}) == {"a": 5, "b": 4 + 5}
    comparison = TimedComparison({"a": 0, "b": 2}, timed_calls=5, warmup_seconds=0.1)
    assert calls_until_over(comparison, {"a": 0.25, "b": 1.0}) == {"a": 5, "b": 2 + 5}


def test_an_alternative_can_be_left_out():
    comparison = TimedComparison({"a": 1, "b": 0, "c": 0}, timed_calls=5)
    comparison.note(9.0)
    comparison.note(1.0)
    comparison.drop("c")
    comparison.drop("a")
    assert comparison.current == "b" and calls_until_over(comparison, {"b": 2.0}) == {"b": 5}
    assert comparison.medians == {"b": 2.0}
    comparison.drop("b")
    assert comparison.current is None and comparison.medians == {"b": 2.0}
