"""Choice of the backend for the calls of one input signature, and of the time to try another one.

The policy uses neither a clock nor a virtual machine: it returns the backend of a call, and the caller reports the time
of those calls that belong to a comparison.

1. The first backend is the one with the least estimated time of a call, plus its time to compile spread over
   `SelectionPolicy.horizon` calls. It is timed at once.
2. Each other backend is tried once. A trial compiles inside a call, so it waits until the backend could have won the
   time to compile in the calls so far: see `winnable_share`. That is a finite number of calls, which
   `SignatureStats.next_comparison` returns. An estimate delays a trial; it never forbids one.
3. A comparison times the present backend and then the other one. The other one takes over if it is faster by
   `SelectionPolicy.min_gain`.
4. The two fastest are compared again each time when the time spent has grown by `SelectionPolicy.recheck_growth`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite

from pytensor_cl.runtime.measured_choice import TimedComparison

NEVER = 1 << 60
"""More calls than there are: no comparison is planned."""
SHORTEST = 1e-9
"""Seconds that a call counts for at least, where a coarse clock measured none."""


def winnable_share(ratio: float) -> float:
    """Return which share of the time a backend can win that is estimated to take `ratio` times as long as another.

    A call may take a quarter of the estimate. From twice the time on the share is 1 / ratio, which is larger: an
    estimate delays a trial and never forbids it.
    """
    return 1 - ratio / 4 if ratio < 2 else 1 / ratio


@dataclass(frozen=True)
class SelectionPolicy:
    """The numbers of the selection."""

    timed_calls: int = 7  # timed calls of each backend in a comparison; their median counts
    long_seconds: float = 0.02  # seconds of three timed calls, from which these are enough
    # A timed call that takes this multiple of the present backend's median ends the comparison.
    abort_ratio: float = 2.0
    min_gain: float = 0.03  # a backend takes over if its median is smaller by this share
    trial_budget: float = 1.0  # the present backend runs for this multiple of a trial's expected cost before the trial
    # Calls over which the time to compile is spread when the first backend is chosen. With a small number it is the one
    # that compiles fastest, unless its calls are much slower.
    horizon: int = 1000
    # The two fastest backends are compared again when the time spent in calls has grown by this factor.
    recheck_growth: float = 4.0
    max_signatures: int = 256  # signatures of a function that are stored; the least recently used one is dropped


@dataclass
class Candidate:
    """Estimates of a backend before it has run."""

    estimate: float
    """Estimated seconds of a call; inf if unknown."""
    compile_seconds: float
    """Seconds that its first call compiles; 0 once it is compiled."""
    warmup_calls: int
    """Calls that are slower than later ones."""
    warmup_seconds: float = 0.0
    """Seconds of calls until the threads of another backend do not take the cores any more."""


class SignatureStats:
    """The present backend of a signature, what was measured, and the next comparison; of equal backends the first."""

    def __init__(
        self,
        candidates: Mapping[str, Candidate],
        policy: SelectionPolicy | None = None,
        excluded: Mapping[str, str] | None = None,
    ) -> None:
        self.policy = policy or SelectionPolicy()
        self.candidates = dict(candidates)
        self.excluded = dict(excluded or {})  # backends that must not run these calls, and why
        self.seconds: dict[str, float] = {}  # measured median time of a call
        self.failures: dict[str, str] = {}  # backend to error of its last trial, where a later trial may succeed
        self.calls_left = 0  # until the next comparison, 0 while one is under way; the caller counts it down
        self.elapsed = 0.0  # seconds of calls of the present backend between comparisons, so far
        self._failed_trials: Counter[str] = Counter()
        self._waits_since: dict[str, float] = {}  # elapsed seconds when a trial failed
        self._recheck_at = inf  # elapsed seconds
        self._scheduled = 0  # `calls_left` when elapsed seconds were counted last
        self._challenger: str | None = None
        self._comparison: TimedComparison | None = None
        self.backend = min(self._eligible(), key=self._first_cost, default=next(iter(self.candidates)))
        self.schedule()

    def _eligible(self) -> list[str]:
        return [name for name in self.candidates if name not in self.excluded]

    def _first_cost(self, name: str) -> float:
        candidate = self.candidates[name]
        return candidate.estimate + candidate.compile_seconds / self.policy.horizon

    @property
    def timed_backend(self) -> str:
        """The backend of the next call of the comparison that is due."""
        current = self._comparison.current if self._comparison is not None else None
        return self.backend if current is None else current

    @property
    def next_comparison(self) -> tuple[str, int] | None:
        """The backend that is tried or timed again next, and after how many calls; None if there is none."""
        return None if self._challenger is None else (self._challenger, max(self.calls_left, 0))

    def note(self, seconds: float) -> None:
        """Take in the time of a call of `timed_backend`."""
        if self._comparison is None:
            self.calls_left = NEVER
        if self._comparison is None or self.calls_left > 0:  # replanned during the call, as a backend failed
            return
        self.calls_left = 0
        self._comparison.note(seconds)
        if self._comparison.current is None:
            self._finish(self._comparison.medians)

    def _finish(self, medians: Mapping[str, float]) -> None:
        self._count_elapsed()
        self.seconds.update(medians)
        for name in medians:
            self.candidates[name].compile_seconds = 0.0
            self.failures.pop(name, None)
        fastest = min(medians, key=lambda name: medians[name])
        if medians[fastest] < (1 - self.policy.min_gain) * self.seconds[self.backend]:
            self.backend = fastest
        if len(self.seconds) > 1:
            cost = sum(self._run_cost(name, self.seconds[name]) for name in medians)
            self._recheck_at = self.policy.recheck_growth * max(self.elapsed, cost)
        self.schedule()

    def schedule(self) -> None:
        """Plan the next comparison."""
        self._count_elapsed()
        others = [name for name in self._eligible() if name != self.backend]
        if not others:
            self._plan((), NEVER)
        elif self.backend not in self.seconds:
            self._plan((self.backend,), 0)
        else:
            measured = [name for name in others if name in self.seconds]
            due = {name: self._trial_at(name) for name in others if name not in self.seconds}
            if measured:
                due[min(measured, key=lambda name: self.seconds[name])] = self._recheck_at
            challenger = min(due, key=lambda name: due[name])
            mine = max(self.seconds[self.backend], SHORTEST)
            calls = min(max(due[challenger] - self.elapsed, 0.0) / mine, NEVER)
            self._plan((self.backend, challenger), int(calls))

    def _plan(self, backends: Iterable[str], calls: int) -> None:
        names = list(backends)
        warmup = {name: 0 if name in self.seconds and name == self.backend else self._warmup(name) for name in names}
        p = self.policy
        seconds = self.candidates[names[-1]].warmup_seconds if len(names) > 1 else 0.0
        comparison = TimedComparison(warmup, p.timed_calls, p.long_seconds, p.abort_ratio, seconds)
        self._comparison = comparison if names else None
        self._challenger = names[-1] if len(names) > 1 else None
        self.calls_left = self._scheduled = calls

    def _warmup(self, name: str) -> int:
        return self.candidates[name].warmup_calls

    def _count_elapsed(self) -> None:
        """Add the time of the calls since this was done last."""
        left = max(self.calls_left, 0)
        self.elapsed += (self._scheduled - left) * self.seconds.get(self.backend, 0.0)
        self._scheduled = left

    def _trial_at(self, name: str) -> float:
        """Return the elapsed seconds at which a backend is tried that was not measured.

        By then it could have won the time that it compiles, had it run all these calls.
        """
        mine = max(self.seconds[self.backend], SHORTEST)
        candidate = self.candidates[name]
        estimate = candidate.estimate if isfinite(candidate.estimate) else mine
        cost = candidate.compile_seconds / winnable_share(estimate / mine) + self._run_cost(name, estimate)
        delay = self.policy.trial_budget * cost * 2 ** min(self._failed_trials[name], 30)
        return self._waits_since.get(name, 0.0) + delay

    def _run_cost(self, name: str, seconds: float) -> float:
        return (self._warmup(name) + self.policy.timed_calls) * seconds

    def note_compiled(self, name: str) -> None:
        """Try a backend earlier: it has been compiled for another signature."""
        candidate = self.candidates.get(name)
        if candidate is None or not candidate.compile_seconds:
            return
        candidate.compile_seconds = 0.0
        if self.calls_left > 0 and self._comparison is not None:
            self.schedule()

    def postpone(self, seconds: float) -> None:
        """Run the present backend for some seconds, and go on with the comparison then."""
        self._count_elapsed()
        self.calls_left = self._scheduled = max(
            int(seconds / max(self.seconds.get(self.backend, seconds), SHORTEST)), 1
        )

    def use(self, name: str) -> None:
        """Run the calls on another backend, as the present one has failed."""
        self._count_elapsed()
        self.excluded.pop(name, None)
        self.backend = name
        self.schedule()

    def exclude(self, name: str, why: str) -> None:
        """Note that a backend must not run these calls; `use` or `schedule` follows."""
        self.excluded[name] = why
        self.seconds.pop(name, None)

    def fail(self, name: str, why: str) -> None:
        """Note that a call failed for a reason that may pass: the next trial waits twice as long."""
        self._count_elapsed()
        self.failures[name] = why
        self.seconds.pop(name, None)
        self._failed_trials[name] += 1
        self._waits_since[name] = self.elapsed
