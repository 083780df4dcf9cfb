"""The thread mode of each call of a kernel batch, chosen by measured times; `batch` says what the modes are.

Modes are compared as backends are (`TimedComparison`): in the first calls, in the first burst, and again whenever the
number of calls since the last comparison has grown by a factor of four. Between comparisons, calls are timed too: the
median of the first calls of a mode replaces that of the comparison.
"""

from math import inf
from statistics import median

from pytensor_cl.runtime.measured_choice import TimedComparison

HOST_ONLY, NEW_WORKERS, PARKED_WORKERS = "host only", "new workers", "parked workers"
_WARMUP_CALLS = {NEW_WORKERS: 1, HOST_ONLY: 0, PARKED_WORKERS: 1}  # calls of a mode in a comparison
_TIMED_CALLS = 3  # calls of a mode in a comparison
_ABORT_RATIO = 2.0  # one call that takes this many times as long as with new workers ends the timing of a mode
_MAX_MISSED = 5  # calls of a comparison without the parked workers that it times, after which it leaves the mode out
_SAMPLES = 32  # calls between comparisons whose median counts; calls without parked workers that end their use
_RETRIAL_CALLS = 32, 128, 512, 2048  # calls until the next comparison; the last number is repeated
_CONTENTION_FACTOR = 2.0  # ratio allowed for a call of the host alone while other threads are in calls
_DECAY = 0.8  # share of a time before a comparison that is a lower bound after it
_LONG_CALL = 3e-3  # seconds of a call from which the host alone is not tried
_MIN_GAIN, _MIN_SECONDS_GAINED = 0.1, 3e-5  # parked workers must save this share of a call, or these seconds


class ThreadModeTuner:
    """Chooses a mode for each call of a batch that can use `max_workers`, by the times of the calls before."""

    def __init__(self, max_workers: int) -> None:
        self.max_workers = max_workers
        self._mode = NEW_WORKERS if max_workers else HOST_ONLY  # mode of calls that are not in a burst
        self._burst_mode = self._mode
        self._comparison = _comparison((NEW_WORKERS, HOST_ONLY)) if max_workers else None  # None: none is under way
        self._missed = 0  # calls of this comparison in which no workers were parked, although they should have been
        self._compared: dict[str, float] = {}  # medians of the last comparison of each mode
        self._compared_before: dict[str, float] = {}  # medians of the comparison before that
        self._times: dict[str, list[float]] = {NEW_WORKERS: [], HOST_ONLY: [], PARKED_WORKERS: []}
        self._medians: dict[str, float] = {}  # medians of calls since the last comparison
        self._medians_before: dict[str, float] = {}  # medians of calls before the last comparison
        self._has_tried_parked = False
        self._calls, self._retrials = 0, 0
        self._calls_without_workers = 0  # in a row, of a burst whose parked workers have left

    def choose(self, are_parked: bool, is_burst: bool, is_contended: bool = False) -> str:
        """Return the mode of the next call.

        `are_parked` says whether enough workers are, `is_burst` whether calls come in quick succession, `is_contended`
        whether other threads are in calls and use the cores as well.
        """
        if self._comparison is None and self.max_workers:
            self._calls += 1
            limit = _RETRIAL_CALLS[min(self._retrials, len(_RETRIAL_CALLS) - 1)]
            if (is_burst and not self._has_tried_parked) or self._calls > limit:
                self._start_comparison(is_burst)
        wanted = None if self._comparison is None else self._comparison.current
        if wanted is not None:
            return NEW_WORKERS if wanted == PARKED_WORKERS and not are_parked else wanted
        if is_contended and self._seconds(HOST_ONLY) < _CONTENTION_FACTOR * self._seconds(NEW_WORKERS):
            return HOST_ONLY
        if self._burst_mode == PARKED_WORKERS and (are_parked or is_burst):
            self._calls_without_workers = 0 if are_parked else self._calls_without_workers + 1
            if self._calls_without_workers > _SAMPLES:
                self._rule_out_parked()
            return PARKED_WORKERS if are_parked else NEW_WORKERS
        return self._mode

    def parks_workers(self, is_burst: bool) -> bool:
        """Return whether the workers of a launch are parked after it."""
        comparison = self._comparison
        if comparison is not None:
            return comparison.current == PARKED_WORKERS
        return is_burst and self._burst_mode == PARKED_WORKERS

    def record(self, mode: str, seconds: float) -> None:
        """Take in the time of a call."""
        if self._comparison is not None:
            self._record_compared(self._comparison, mode, seconds)
        elif self.max_workers and mode not in self._medians:
            times = self._times[mode]
            times.append(seconds)
            if len(times) == _SAMPLES:
                self._medians[mode] = median(times)
                self._decide()

    def _start_comparison(self, is_burst: bool) -> None:
        """Compare parked workers for the first time, or all modes again, as the load of the cores changes."""
        is_retrial = self._has_tried_parked or not is_burst
        modes = (*((NEW_WORKERS, HOST_ONLY) if is_retrial else ()), *((PARKED_WORKERS,) if is_burst else ()))
        self._comparison, self._missed = _comparison(modes), 0
        for mode in modes:
            self._compared_before[mode] = self._compared.pop(mode, inf)
        self._medians_before, self._medians = self._medians, {}
        self._times = {NEW_WORKERS: [], HOST_ONLY: [], PARKED_WORKERS: []}
        self._has_tried_parked |= is_burst
        self._calls, self._retrials = 0, self._retrials + is_retrial

    def _record_compared(self, comparison: TimedComparison, mode: str, seconds: float) -> None:
        """Take in the time of a call of a comparison."""
        if mode == comparison.current:
            comparison.note(seconds)
        else:
            self._missed += 1
            if self._missed == _MAX_MISSED:
                comparison.drop(PARKED_WORKERS)
        if comparison.medians.get(NEW_WORKERS, 0.0) > _LONG_CALL:
            comparison.drop(HOST_ONLY)
        if comparison.current is None:
            self._comparison = None
            self._compared.update(comparison.medians)
            self._decide()

    def _rule_out_parked(self) -> None:
        """Use no parked workers until the next comparison: too often they have left before a call."""
        self._calls_without_workers = 0
        self._compared[PARKED_WORKERS] = self._compared_before[PARKED_WORKERS] = inf
        self._medians.pop(PARKED_WORKERS, None)
        self._decide()

    def _decide(self) -> None:
        """Choose the modes by their expected times."""
        host, new, parked = map(self._seconds, (HOST_ONLY, NEW_WORKERS, PARKED_WORKERS))
        self._mode = HOST_ONLY if host < new else NEW_WORKERS
        least = min(host, new)
        is_gain = parked < least - min(_MIN_GAIN * least, _MIN_SECONDS_GAINED)
        self._burst_mode = PARKED_WORKERS if is_gain else self._mode

    def _seconds(self, mode: str) -> float:
        """Return the expected time of a call.

        It is the median of calls since the last comparison if there is one. Else it is the smaller one of the last two
        comparisons, but not much less than the median before: a mode that is chosen by mistake is measured soon, one
        that is not chosen is not.
        """
        compared = min(self._compared.get(mode, inf), self._compared_before.get(mode, inf))
        return self._medians.get(mode, max(compared, _DECAY * self._medians_before.get(mode, 0.0)))


def _comparison(modes: tuple[str, ...]) -> TimedComparison:
    """Return a comparison of modes; `long_seconds` is 0, so that one long call rules a mode out."""
    return TimedComparison({mode: _WARMUP_CALLS[mode] for mode in modes}, _TIMED_CALLS, 0.0, _ABORT_RATIO)
