"""A bounded comparison of alternatives by the median time of their calls; holds no clock."""

from collections.abc import Mapping
from math import inf
from statistics import median

MIN_TIMED_CALLS = 3
"""Timed calls of an alternative at least: the median of fewer is the time of one call."""


class TimedComparison:
    """Times alternatives one after another. The caller runs `current` and reports each call to `note`.

    `warmup_calls`: alternatives in the order in which they are timed, and how many calls of each are not timed at
    first. The first alternative is the reference for `abort_ratio`. `long_seconds`: once the timed calls of an
    alternative took this long, `MIN_TIMED_CALLS` calls are enough, or one call that `abort_ratio` rules out.
    `warmup_seconds`: least time of the calls before the timed ones, for alternatives that have such calls. `current`:
    the alternative of the next call; None when the comparison is over.
    """

    def __init__(
        self,
        warmup_calls: Mapping[str, int],
        timed_calls: int,
        long_seconds: float = inf,
        abort_ratio: float = inf,
        warmup_seconds: float = 0.0,
    ) -> None:
        self.medians: dict[str, float] = {}
        self._waiting = dict(warmup_calls)
        self._timed_calls = timed_calls
        self._long_seconds = long_seconds
        self._abort_ratio = abort_ratio
        self._warmup_seconds = warmup_seconds
        self._start_next()

    def _start_next(self) -> None:
        self.current = next(iter(self._waiting), None)
        self._warmup = self._waiting.pop(self.current) if self.current is not None else 0
        self._warmup_left = self._warmup_seconds if self._warmup else 0.0
        self._times: list[float] = []

    def note(self, seconds: float) -> None:
        """Take in the time of a call of the current alternative."""
        if self.current is None:
            raise ValueError("the comparison is over")
        if self._warmup > 0 or self._warmup_left > 0:
            self._warmup -= 1
            self._warmup_left -= seconds
            return
        self._times.append(seconds)
        if self._is_enough(seconds):
            self.medians[self.current] = median(self._times)
            self._start_next()

    def drop(self, name: str) -> None:
        """Leave out an alternative that has no median yet; if it is the current one, the next one follows."""
        self._waiting.pop(name, None)
        if self.current == name:
            self._start_next()

    def _is_enough(self, latest: float) -> bool:
        if len(self._times) >= self._timed_calls:
            return True
        if sum(self._times) < self._long_seconds:
            return False
        reference = next(iter(self.medians.values()), inf)
        return len(self._times) >= MIN_TIMED_CALLS or latest > self._abort_ratio * reference
