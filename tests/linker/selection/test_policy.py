"""The policy of the selection, with a clock of its own: what runs, what is tried, and when."""

from collections import Counter
from dataclasses import fields, replace
from inspect import getsource
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest

from pytensor_cl.linker.selection.policy import NEVER, Candidate, SelectionPolicy, SignatureStats

POLICY = SelectionPolicy()
WARMUP = {"device": 11, "NUMBA": 2, "C": 2}


def make(estimates, compile_seconds=None, policy=POLICY, excluded=None):
    compile_seconds = compile_seconds or {"device": 0.3, "NUMBA": 0.3, "C": 1.0}
    candidates = {n: Candidate(e, compile_seconds[n], WARMUP[n]) for n, e in estimates.items()}
    return SignatureStats(candidates, policy, excluded)


class Loop:
    """Calls of a function whose backends take constant times."""

    def __init__(self, stats, seconds):
        self.stats, self.seconds = stats, seconds
        self.clock, self.runs = 0.0, Counter()

    def call(self):
        self.stats.calls_left -= 1
        is_timed = self.stats.calls_left < 0
        name = self.stats.timed_backend if is_timed else self.stats.backend
        self.clock += self.seconds[name]
        self.runs[name] += 1
        if is_timed:
            self.stats.note(self.seconds[name])
        return name

    def until(self, condition, most=10**6):
        for calls in range(1, most + 1):
            self.call()
            if condition():
                return calls
        raise AssertionError(f"not within {most} calls: {self.runs}")


def test_there_are_at_most_eight_numbers_and_each_is_documented():
    names = [f.name for f in fields(SelectionPolicy)]
    assert len(names) <= 8
    lines = getsource(SelectionPolicy).splitlines()
    record = (Path(__file__).parents[3] / "docs/design/008-backend-selection.md").read_text()
    for name in names:
        at = next(k for k, line in enumerate(lines) if line.startswith(f"    {name}: "))
        assert "  # " in lines[at] or lines[at - 1].startswith("    # "), name
        assert f"| `{name}` | " in record, name


def test_the_least_estimate_goes_first_and_compiling_is_spread_over_the_horizon():
    assert make({"device": 1e-3, "NUMBA": 1e-5, "C": 1e-4}).backend == "NUMBA"
    assert make({"device": 1e-4, "NUMBA": 1e-3, "C": 1e-3}).backend == "device"
    slow_to_compile = {"device": 0.3, "NUMBA": 0.3, "C": 6.0}  # 600 us a call over the horizon
    assert make({"device": 1e-3, "NUMBA": 1e-4, "C": 1e-5}, slow_to_compile).backend == "NUMBA"
    assert make(dict.fromkeys(WARMUP, inf)).backend == "device"


@pytest.mark.parametrize("fastest", list(WARMUP))
@pytest.mark.parametrize("first", list(WARMUP))
@pytest.mark.parametrize("seconds", [5e-6, 1e-3, 0.2])
def test_the_fastest_backend_is_found_whatever_the_estimates_say(first, fastest, seconds):
    stats = make({n: seconds * (1 if n == first else 8) for n in WARMUP}, dict.fromkeys(WARMUP, 0.3))
    loop = Loop(stats, {n: seconds * (1 if n == fastest else 3) for n in WARMUP})
    assert stats.backend == first
    loop.until(lambda: len(stats.seconds) == 3, 10**7)
    assert stats.backend == fastest
    loop.until(lambda: stats.calls_left > 0)
    assert loop.call() == fastest


def test_a_trial_comes_after_the_reported_number_of_calls():
    stats = make({"device": 1e-3, "NUMBA": 2e-3, "C": 5e-3})
    loop = Loop(stats, {"device": 1e-3, "NUMBA": 1e-3, "C": 1e-3})
    loop.until(lambda: stats.calls_left > 0)
    while len(stats.seconds) < 3:
        name, told = stats.next_comparison
        assert 0 <= told < 10_000
        before = loop.runs[name]
        calls = loop.until(lambda name=name, before=before: loop.runs[name] > before)
        assert calls == told + POLICY.timed_calls + 1  # the present backend is timed first
        loop.until(lambda: stats.calls_left > 0)


def test_every_backend_is_tried_after_a_finite_number_of_calls(rng):
    """However wrong the estimates are."""
    estimates = {n: float(10 ** rng.uniform(-6, 3)) for n in WARMUP}
    stats = make(estimates)
    loop = Loop(stats, {n: float(10 ** rng.uniform(-3, -1)) for n in WARMUP})
    while len(stats.seconds) < 3:
        loop.call()
        if stats.next_comparison is not None:
            assert stats.next_comparison[1] < NEVER
            stats.calls_left = min(stats.calls_left, 0)  # skip the wait


def test_a_pessimistic_estimate_delays_a_trial():
    delays = []
    for estimate in (1e-3, 1e-2, 1.0, inf):
        stats = make({"device": 1e-3, "NUMBA": estimate})
        Loop(stats, {"device": 1e-3, "NUMBA": 1e-3}).until(lambda stats=stats: stats.calls_left > 0)
        delays.append(stats.next_comparison[1])
    assert 0 < delays[3] == delays[0] < delays[1] < delays[2] < NEVER  # unknown: as fast as the present one


def test_what_is_compiled_already_is_tried_sooner():
    stats = make({"device": 1e-3, "NUMBA": 1e-3})
    loop = Loop(stats, {"device": 1e-3, "NUMBA": 2e-3})
    loop.until(lambda: stats.calls_left > 0)
    late = stats.calls_left
    stats.note_compiled("NUMBA")
    assert stats.next_comparison[0] == "NUMBA" and stats.calls_left < late / 5


def test_a_slow_trial_ends_early():
    stats = make({"device": 0.05, "NUMBA": 0.05})
    loop = Loop(stats, {"device": 0.05, "NUMBA": 5.0})
    loop.until(lambda: "NUMBA" in stats.seconds)
    assert loop.runs["NUMBA"] == WARMUP["NUMBA"] + 1
    assert stats.backend == "device"


def test_close_times_change_nothing():
    stats = make({"device": 1e-3, "NUMBA": 1e-3})
    loop = Loop(stats, {"device": 1e-3, "NUMBA": 0.98e-3})
    loop.until(lambda: "NUMBA" in stats.seconds)
    assert stats.backend == "device"


def test_a_backend_that_has_become_slower_is_replaced_at_the_next_comparison():
    stats = make({"device": 1e-3, "NUMBA": 1e-3})
    loop = Loop(stats, {"device": 1e-3, "NUMBA": 2e-3})
    loop.until(lambda: "NUMBA" in stats.seconds)
    loop.seconds["device"] = 4e-3
    loop.until(lambda: stats.backend == "NUMBA", 100_000)


def test_comparisons_of_the_two_fastest_become_rare():
    """Their number grows with the logarithm of the number of calls, and their share of the time is small."""
    stats = make({"device": 1e-3, "NUMBA": 1e-3, "C": 1e-3})
    loop = Loop(stats, {"device": 1e-3, "NUMBA": 1.5e-3, "C": 9e-3})
    loop.until(lambda: len(stats.seconds) == 3)
    loop.runs.clear()
    waits = []
    for _ in range(100_000):
        if loop.call() == "device" and stats.calls_left > 0 and (not waits or stats.calls_left > waits[-1]):
            waits.append(stats.calls_left)
    assert loop.runs["C"] == 0
    assert 0 < loop.runs["NUMBA"] < 100
    assert stats.next_comparison[0] == "NUMBA"


def test_nothing_is_compared_if_rechecks_are_off():
    stats = make({"device": 1e-3, "NUMBA": 1e-3}, policy=replace(POLICY, recheck_growth=inf))
    Loop(stats, {"device": 1e-3, "NUMBA": 2e-3}).until(lambda: "NUMBA" in stats.seconds)
    assert stats.calls_left == NEVER


def test_one_eligible_backend_needs_no_trial():
    stats = make({"device": 1e-3, "NUMBA": 1e-6}, excluded={"device": "no"})
    assert (stats.backend, stats.next_comparison, stats.calls_left) == ("NUMBA", None, NEVER)
    stats.calls_left = -1  # the first call is reported, as it compiles
    stats.note(1.0)
    assert stats.calls_left == NEVER


def test_a_failure_that_may_pass_doubles_the_wait():
    stats = make({"device": 1e-3, "NUMBA": 1e-3})
    loop = Loop(stats, {"device": 1e-3, "NUMBA": 1e-4})
    waits = []
    for _ in range(4):
        loop.until(lambda: stats.calls_left > 0)
        waits.append(stats.calls_left)
        loop.until(lambda: stats.calls_left <= 0 and stats.timed_backend == "NUMBA")
        stats.fail("NUMBA", "full")
        stats.use("device")
    assert all(1.9 < b / a < 2.1 for a, b in pairwise(waits))
    loop.until(lambda: stats.backend == "NUMBA")
    assert not stats.failures


def test_an_excluded_backend_is_not_tried():
    stats = make({"device": 1e-3, "NUMBA": 1e-3, "C": 1e-3})
    loop = Loop(stats, dict.fromkeys(WARMUP, 1e-3))
    loop.until(lambda: stats.calls_left > 0)
    stats.exclude("NUMBA", "no such Op")
    stats.use("device")
    loop.until(lambda: "C" in stats.seconds)
    assert not loop.runs["NUMBA"]
    assert stats.excluded == {"NUMBA": "no such Op"}


def test_after_a_failure_of_the_present_backend_another_one_is_timed_at_once():
    stats = make({"device": 1e-3, "NUMBA": 1e-3})
    loop = Loop(stats, {"device": 1e-3, "NUMBA": 1e-3})
    loop.until(lambda: stats.calls_left > 0)
    stats.fail("device", "full")
    stats.use("NUMBA")
    assert (stats.backend, stats.timed_backend, stats.calls_left) == ("NUMBA", "NUMBA", 0)
    loop.until(lambda: stats.calls_left > 0)
    assert stats.next_comparison[0] == "device"


def test_a_function_that_is_called_for_less_time_than_a_trial_compiles_meets_none():
    stats = make({"device": 3e-4, "NUMBA": 5e-5, "C": 9e-5}, {"device": 2.0, "NUMBA": 5.0, "C": 20.0})
    loop = Loop(stats, {"device": 3.5e-4, "NUMBA": 5e-5, "C": 9e-5})
    assert {loop.call() for _ in range(10_000)} == {"device"}
    loop.until(lambda: "NUMBA" in stats.seconds, 10_000)  # in all at least 5 and at most 7 seconds
    assert stats.backend == "NUMBA"


def test_what_compiles_fastest_goes_first_unless_its_calls_are_much_slower():
    compiling = {"device": 2.0, "NUMBA": 6.0, "C": 20.0}
    assert make({"device": 2e-4, "NUMBA": 1e-5, "C": 4e-5}, compiling).backend == "device"
    assert make({"device": 2e-2, "NUMBA": 1e-5, "C": 4e-5}, compiling).backend == "NUMBA"
