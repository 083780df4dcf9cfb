"""Who takes part in the calls of a kernel batch besides the host's thread, as measured.

There are three modes: nobody, workers of a new launch, and parked workers of an earlier launch. A launch takes 60 to
90 us until the first worker begins. Parked workers begin at once, if the next call comes soon, as in a sampler's loop.
"""

from math import inf
from statistics import median

__all__ = ["HOST_ONLY", "NEW_WORKERS", "PARKED_WORKERS", "ParticipationTuner"]

HOST_ONLY, NEW_WORKERS, PARKED_WORKERS = "host only", "new workers", "parked workers"
_TRIAL = NEW_WORKERS, HOST_ONLY, HOST_ONLY, HOST_ONLY, NEW_WORKERS, NEW_WORKERS
_BURST_TRIAL = PARKED_WORKERS, PARKED_WORKERS, PARKED_WORKERS, PARKED_WORKERS, PARKED_WORKERS
_SAMPLES = 32  # calls outside trials whose median replaces that of a trial; calls without workers that end a burst mode
_RETRIAL_CALLS = 32, 128, 512, 2048  # calls until the next trial; the last number is repeated
_CONTENTION_FACTOR = 2.0  # how much longer a call of the host alone may take while other threads are in calls
_DECAY = 0.8  # of the times before a trial is counted after it
_LONG_CALL = 3e-3  # seconds of a call from which the host is never alone
_MIN_GAIN, _MIN_SECONDS_GAINED = 0.1, 3e-5  # what parked workers must save: this share of a call, or so many seconds


class ParticipationTuner:
    """Chooses a mode for each call of a batch, by the times of the calls before.

    Parameters
    ----------
    max_workers
        Workers that the batch can use.
    """

    def __init__(self, max_workers: int) -> None:
        self.max_workers = max_workers
        self._mode = NEW_WORKERS if max_workers else HOST_ONLY  # for calls that are not in a burst
        self._burst_mode = self._mode
        self._trial: list[str] = list(_TRIAL) if max_workers else []  # modes of the next calls
        self._trial_times: dict[str, list[float]] = {NEW_WORKERS: [], HOST_ONLY: [], PARKED_WORKERS: []}
        self._last_trial: dict[str, float] = {}  # medians of the trial before
        self._times: dict[str, list[float]] = {NEW_WORKERS: [], HOST_ONLY: [], PARKED_WORKERS: []}
        self._medians: dict[str, float] = {}  # of calls outside trials
        self._last_medians: dict[str, float] = {}  # the same, before the last trial
        self._has_tried_parked = False
        self._calls, self._retrials = 0, 0
        self._calls_without_workers = 0  # in a row, of a burst whose parked workers have left

    def choose(self, are_ready: bool, is_burst: bool, is_contended: bool = False) -> str:
        """Return the mode of the next call.

        Parameters
        ----------
        are_ready
            Whether workers are parked.
        is_burst
            Whether calls come in quick succession.
        is_contended
            Whether other threads are in calls and want the cores as well.
        """
        if not self._trial and self.max_workers:
            self._calls += 1
            limit = _RETRIAL_CALLS[min(self._retrials, len(_RETRIAL_CALLS) - 1)]
            if (is_burst and not self._has_tried_parked) or self._calls > limit:
                self._start_trial(is_burst)
        if self._trial:
            wanted = self._trial[0]
            return NEW_WORKERS if wanted == PARKED_WORKERS and not are_ready else wanted
        if is_contended and self._seconds(HOST_ONLY) < _CONTENTION_FACTOR * self._seconds(NEW_WORKERS):
            return HOST_ONLY
        if self._burst_mode == PARKED_WORKERS and (are_ready or is_burst):
            self._calls_without_workers = 0 if are_ready else self._calls_without_workers + 1
            if self._calls_without_workers > _SAMPLES:
                self._rule_out_parked()
            return PARKED_WORKERS if are_ready else NEW_WORKERS
        return self._mode

    def parks_workers(self, is_burst: bool) -> bool:
        """Whether the workers of a launch are parked after it."""
        return self._trial[0] == PARKED_WORKERS if self._trial else is_burst and self._burst_mode == PARKED_WORKERS

    def record(self, mode: str, seconds: float) -> None:
        """Take in the time of a call."""
        if self._trial:
            self._record_trial(mode, seconds)
        elif self.max_workers and mode not in self._medians:
            times = self._times[mode]
            times.append(seconds)
            if len(times) == _SAMPLES:
                self._medians[mode] = median(times)
                self._decide()

    def _start_trial(self, is_burst: bool) -> None:
        """Try parked workers for the first time in the next calls, or all modes again: the cores' load changes."""
        is_retrial = self._has_tried_parked or not is_burst
        self._trial = [*(_TRIAL if is_retrial else ()), *(_BURST_TRIAL if is_burst else ())]
        for mode in set(self._trial):
            self._last_trial[mode] = _median(self._trial_times[mode])
            self._trial_times[mode] = []
        self._last_medians, self._medians = self._medians, {}
        self._times = {NEW_WORKERS: [], HOST_ONLY: [], PARKED_WORKERS: []}
        self._has_tried_parked |= is_burst
        self._calls, self._retrials = 0, self._retrials + is_retrial

    def _record_trial(self, mode: str, seconds: float) -> None:
        """Take in the time of a call of a trial; shorten the trial where its result is clear."""
        wanted, times = self._trial.pop(0), self._trial_times
        if mode == wanted:
            times[mode].append(seconds)
        if mode == HOST_ONLY and seconds > 2 * _median(times[NEW_WORKERS]):
            self._trial = [mode for mode in self._trial if mode != HOST_ONLY]
        if min(map(_median, times.values())) > _LONG_CALL:
            self._trial = [mode for mode in self._trial if mode == PARKED_WORKERS]
        if not self._trial:
            self._decide()

    def _rule_out_parked(self) -> None:
        """Use no parked workers until the next trial: too often they have left when a call came."""
        self._calls_without_workers = 0
        self._trial_times[PARKED_WORKERS], self._last_trial[PARKED_WORKERS] = [], inf
        self._medians.pop(PARKED_WORKERS, None)
        self._decide()

    def _decide(self) -> None:
        """Choose the modes by what is known of their times."""
        host, new, parked = map(self._seconds, (HOST_ONLY, NEW_WORKERS, PARKED_WORKERS))
        self._mode = HOST_ONLY if host < new else NEW_WORKERS
        least = min(host, new)
        is_gain = parked < least - min(_MIN_GAIN * least, _MIN_SECONDS_GAINED)
        self._burst_mode = PARKED_WORKERS if is_gain else self._mode

    def _seconds(self, mode: str) -> float:
        """Return the expected time of a call.

        It is the median outside trials if there is one. Else it is the smaller one of the last two trials, but not much
        less than the median before: a mode that is chosen by mistake is measured soon, one that is not chosen is not.
        """
        tried = min(_median(self._trial_times[mode]), self._last_trial.get(mode, inf))
        return self._medians.get(mode, max(tried, _DECAY * self._last_medians.get(mode, 0.0)))


def _median(seconds: list[float]) -> float:
    """Return the median of times; infinity if there are none."""
    return median(seconds) if seconds else inf
