"""Who helps the host's thread in a call: nobody, work-items that are launched, or those that stand by since the last.

To launch work-items takes 60 to 90 us until the first one begins, and an interrupt for each thread that sleeps. Those
of a call stay for a short while, so that the next one finds them ready if it comes soon, as in a loop of a sampler.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from math import inf
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.interfaces import HostAddresses
from pytensor_cl.runtime.pocl.affinity import rebalance, spread_cores

__all__ = ["ALONE", "CALLED", "CORES", "LAUNCHED", "NUMBERS", "TICKS", "ParticipationTuner", "WorkerPool"]

ALONE, LAUNCHED, CALLED = "alone", "launched", "called"
TICKS, SOON = 800_000, 2.5e-4
"""How long work-items stand by, in ticks of the processor's clock (270 us at 3 GHz), and seconds between two calls that
are in quick succession. After long calls both are longer: their data displaced what the interpreter needs in caches."""
_SHARE, _LONGEST = 0.25, 4.0  # of a call is between it and the next one, and how much longer both get at most
LATE = 2e-4
"""Seconds until those that were launched are all there, or will not come."""
_OFTEN = 3  # calls in quick succession after which help is launched for those to come
_PLAN = LAUNCHED, ALONE, ALONE, ALONE, LAUNCHED, LAUNCHED
_PLAN_IF_SOON = CALLED, CALLED, CALLED, CALLED, CALLED
_ENOUGH = 32  # calls after which it is known what one takes in use
_AGAIN = 32, 128, 512, 2048  # calls after which all are tried again, the last one for good
_CROWD = 2.0  # how much longer a call may take alone where other threads want the cores as well
_FADE = 0.8  # of what calls took before is counted when all are tried again
_LONG = 3e-3  # seconds of a call from which there is always help
_GAIN, _ENOUGH_GAINED = 0.1, 3e-5  # how much less a call must take with those that stand by: a share, or seconds
_MOST = 0.75  # share of those that could help without which others are launched
_PLACE, _TIED = 256, 12  # bytes of a place, and where the first one says that threads are tied
CORES = 1024
"""How many cores a system may have for those that stand by to be set free."""
NUMBERS = 1 << 30
"""Calls, and launches, after which their numbers begin again."""


class WorkerPool:
    """The work-items of a queue that stand by.

    Parameters
    ----------
    context, views
        Where they run.
    most
        How many there may be.
    ticks
        How long they stay without a call.

    Attributes
    ----------
    places
        Where they look for calls; the first place is for what all look at, as which launch there may be any of.
    numbers
        Of the calls, each another one, whatever thread it comes from.
    inside
        One object for each thread in a call, which removes it.
    """

    def __init__(self, context: "cl.Context", views: HostAddresses, most: int, ticks: int) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.places = cl.Buffer(context, flags, hostbuf=np.zeros(_PLACE * (1 + most), np.uint8))
        memory = views.memory_of(self.places)
        _tell_cores(memory, spread_cores())
        self.address = int(memory.__array_interface__["data"][0])
        states = memoryview(memory.view(np.uint32))[:: _PLACE // 4]
        self._latest, self._states = states[:1], states[1:]
        self.ticks = ticks
        self.numbers = count()
        self._launch = 0
        self._may_be, self._size = False, 0
        self._now = self._since = 0.0  # when the last call began, and the last one that launched them
        self._waits: dict[object, None] = {}  # one for each thread that waits until nothing runs
        self.inside: list[object] = []
        self._ended, self._row, self._patience = -inf, 0, 1.0
        self._left: deque[tuple[np.ndarray, Any]] = deque()

    def are_ready(self, count: int) -> bool:
        """Whether so many were launched, and most of them stand by, or are not through yet, or have hardly begun."""
        if not self._may_be or self._size < count:
            return False
        there = count - self._states[:count].tolist().count(0)
        return there >= _MOST * count or self._now - self._since < LATE

    def on_submit(self) -> None:
        """Let them go: the queue has other commands."""
        if self._may_be:
            self.launch(0)

    @contextmanager
    def exclusive_wait(self) -> Iterator[None]:
        """Let them go, and let no others come: the driver waits until nothing runs, whoever has launched it."""
        key = object()
        try:
            self._waits[key] = None
            self.on_submit()
            yield
        finally:
            self._waits.pop(key, None)

    def after_wait(self) -> None:
        """See whether PoCL's threads have the right cores."""
        rebalance()

    def launch(self, ticks: int, size: int = 0) -> tuple[int, int]:
        """Let them go, since others are launched; return the number of those, and how long they may stay."""
        stay = 0 if self._waits else ticks
        self._may_be, self._size, self._since = stay > 0, size, self._now
        number = self._launch = self._latest[0] = (self._launch + 1) % NUMBERS
        return number, stay

    def launched(self, number: int) -> None:
        """Say that they are enqueued: those of another thread that was faster are before them in the queue."""
        if number != self._launch:
            self.on_submit()

    def leave(self, counts: np.ndarray, memory: Any) -> None:
        """Keep memory until counters are zero: who comes late looks there whether there is something to do."""
        self._left.append((counts, memory))
        with suppress(IndexError):  # another thread, or the garbage collector, may be here too
            for _ in range(len(self._left)):
                pair = self._left.popleft()
                if any(pair[0][:, 0].tolist()):  # works while the interpreter ends, too
                    self._left.append(pair)

    def is_crowded(self) -> bool:
        """Whether several threads are in calls."""
        return len(self.inside) > 1

    def begin(self, now: float) -> bool:
        """Begin a call; return whether calls are in quick succession, one at a time."""
        self._now = now
        is_next = now - self._ended < SOON * self._patience and len(self.inside) == 1
        self._row = self._row + 1 if is_next else 0
        return self._row >= _OFTEN

    def end(self) -> None:
        """End a call."""
        self._ended = perf_counter()
        self._patience = min(max(1.0, _SHARE * (self._ended - self._now) / SOON), _LONGEST)

    def stay(self) -> int:
        """Return how many ticks those stay that are launched now."""
        return int(self.ticks * self._patience)


def _tell_cores(news: np.ndarray, cores: Sequence[int]) -> None:
    """Say which cores threads may use while they help, if they are tied to one each."""
    if cores and max(cores) < CORES:
        bits = np.zeros(CORES, bool)
        bits[list(cores)] = True
        news[_PLACE - CORES // 8 : _PLACE] = np.packbits(bits, bitorder="little")
        news[_TIED] = 1


class ParticipationTuner:
    """Who helps in the calls of a chain: what took least, as measured.

    Parameters
    ----------
    most
        For how many helpers there is something to do.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._best = self._way = LAUNCHED if most else ALONE  # without those that stand by, and in quick succession
        self._plan: list[str] = list(_PLAN) if most else []
        self._taken: dict[str, list[float]] = {LAUNCHED: [], ALONE: [], CALLED: []}
        self._tried: dict[str, float] = {}  # what the tries before these took
        self._recent: dict[str, list[float]] = {LAUNCHED: [], ALONE: [], CALLED: []}
        self._seen: dict[str, float] = {}  # what calls took in use
        self._before: dict[str, float] = {}  # the same, before all were tried again
        self._has_called = False  # whether it is known what those are worth that stand by
        self._calls, self._rounds = 0, 0
        self._absent = 0  # calls in a row whose helpers had left

    def choose(self, are_ready: bool, is_soon: bool, is_crowded: bool = False) -> str:
        """Return who helps.

        Parameters
        ----------
        are_ready
            Whether work-items stand by.
        is_soon
            Whether calls are in quick succession.
        is_crowded
            Whether other threads are in calls, which want the cores as well.
        """
        if not self._plan and self.most:
            self._calls += 1
            if (is_soon and not self._has_called) or self._calls > _AGAIN[min(self._rounds, len(_AGAIN) - 1)]:
                self._try(is_soon)
        if self._plan:
            wanted = self._plan[0]
            return LAUNCHED if wanted == CALLED and not are_ready else wanted
        if is_crowded and self._known(ALONE) < _CROWD * self._known(LAUNCHED):
            return ALONE
        if self._way == CALLED and (are_ready or is_soon):
            self._absent = 0 if are_ready else self._absent + 1
            if self._absent > _ENOUGH:
                self._give_up()
            return CALLED if are_ready else LAUNCHED
        return self._best

    def _give_up(self) -> None:
        """Do without those that stand by, until all are tried again: again and again some have left."""
        self._absent = 0
        self._taken[CALLED], self._tried[CALLED] = [], inf
        self._seen.pop(CALLED, None)
        self._decide()

    def keeps(self, is_soon: bool) -> bool:
        """Whether those that are launched now stay for the next calls."""
        return self._plan[0] == CALLED if self._plan else is_soon and self._way == CALLED

    def _try(self, is_soon: bool) -> None:
        """Look what those are worth that stand by, in the next calls; or all again, as other programs come and go."""
        is_again = self._has_called or not is_soon
        self._plan = [*(_PLAN if is_again else ()), *(_PLAN_IF_SOON if is_soon else ())]
        for way in set(self._plan):
            self._tried[way] = _usual(self._taken[way])
            self._taken[way] = []
        self._before, self._seen = self._seen, {}
        self._recent = {LAUNCHED: [], ALONE: [], CALLED: []}
        self._has_called |= is_soon
        self._calls, self._rounds = 0, self._rounds + is_again

    def took(self, way: str, seconds: float) -> None:
        """Note how long it took."""
        if self._plan:
            self._note(way, seconds)
        elif self.most and way not in self._seen:
            recent = self._recent[way]
            recent.append(seconds)
            if len(recent) == _ENOUGH:
                self._seen[way] = median(recent)
                self._decide()

    def _note(self, way: str, seconds: float) -> None:
        """Note how long a call of the plan took."""
        wanted, taken = self._plan.pop(0), self._taken
        if way == wanted:
            taken[way].append(seconds)
        if way == ALONE and seconds > 2 * _usual(taken[LAUNCHED]):
            self._plan = [way for way in self._plan if way != ALONE]
        if min(map(_usual, taken.values())) > _LONG:
            self._plan = [way for way in self._plan if way == CALLED]
        if not self._plan:
            self._decide()

    def _decide(self) -> None:
        """Choose; what was chosen is looked at again in use, where a launch may take longer than in a few tries."""
        alone, launched, called = map(self._known, (ALONE, LAUNCHED, CALLED))
        self._best = ALONE if alone < launched else LAUNCHED
        least = min(alone, launched)
        self._way = CALLED if called < least - min(_GAIN * least, _ENOUGH_GAINED) else self._best

    def _known(self, way: str) -> float:
        """Return how long a call takes: in use, or in the luckier of two tries, but not much less than in use before.

        Whoever is taken by mistake is soon seen in use; who is not taken by mistake is not.
        """
        tried = min(_usual(self._taken[way]), self._tried.get(way, inf))
        return self._seen.get(way, max(tried, _FADE * self._before.get(way, 0.0)))


def _usual(seconds: list[float]) -> float:
    """Return the median: wakes take as long as it happens, and the best of a few tells little."""
    return median(seconds) if seconds else inf
