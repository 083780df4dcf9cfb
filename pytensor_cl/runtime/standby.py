"""Who helps the host's thread in a call: nobody, work-items that are launched, or those that stand by since the last.

To launch work-items takes 60 to 90 us until the first one begins, and an interrupt for each thread that sleeps. Those
of a call stay for a short while, so that the next one finds them ready if it comes soon, as in a loop of a sampler.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from pytensor_cl.runtime import opencl as cl

if TYPE_CHECKING:
    from pytensor_cl.runtime.host_view import HostViews

__all__ = ["ALONE", "CALLED", "LAUNCHED", "NUMBERS", "TICKS", "Standby", "Team"]

ALONE, LAUNCHED, CALLED = "alone", "launched", "called"
TICKS, SOON = 400_000, 1e-4
"""How long work-items stand by, in ticks of the processor's clock (130 us at 3 GHz), and seconds between two calls that
are in quick succession."""
_OFTEN = 3  # calls in quick succession after which help is launched for those to come
_PLAN = LAUNCHED, ALONE, ALONE, ALONE, LAUNCHED, LAUNCHED
_PLAN_IF_SOON = CALLED, CALLED, CALLED, CALLED, CALLED
_AGAIN, _PLAN_AGAIN = 2048, (CALLED, CALLED, CALLED, ALONE, ALONE)
_LONG = 3e-3  # seconds of a call from which there is always help
_CLEAR = 0.85  # how much less a call must take with those that stand by
_PLACE = 256  # bytes
_READY = 1  # see dispatch.mako
NUMBERS = 1 << 30
"""Calls, and launches, after which their numbers begin again."""


class Standby:
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
        Where they look for calls; the first place says for which launch there may be any.
    numbers
        Of the calls, each another one, whatever thread it comes from.
    """

    def __init__(self, context: "cl.Context", views: "HostViews", most: int, ticks: int) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.places = cl.Buffer(context, flags, hostbuf=np.zeros(_PLACE * (1 + most), np.uint8))
        memory = views.memory_of(self.places)
        self.address = int(memory.__array_interface__["data"][0])
        states = memoryview(memory.view(np.uint32))[:: _PLACE // 4]
        self._latest, self._states = states[:1], states[1:]
        self.ticks = ticks
        self.numbers = count()
        self._launch = 0
        self._may_be = False
        self._waits: list[None] = []  # one for each thread that waits until nothing runs
        self._ended, self._row = -inf, 0
        self._left: list[tuple[np.ndarray, Any]] = []

    def is_ready(self) -> bool:
        """Whether one of them stands by."""
        return self._may_be and _READY in self._states

    def dismiss(self) -> None:
        """Let them go: the queue has other commands."""
        if self._may_be:
            self.launch(0)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let them go, and let no others come: the driver waits until nothing runs, whoever has launched it."""
        self._waits.append(None)
        self.dismiss()
        try:
            yield
        finally:
            self._waits.pop()

    def launch(self, ticks: int) -> tuple[np.uint32, np.uint64]:
        """Let them go, since others are launched; return the number of those, and how long they may stay."""
        stay = 0 if self._waits else ticks
        self._may_be = stay > 0
        number = self._launch = self._latest[0] = (self._launch + 1) % NUMBERS
        return np.uint32(number), np.uint64(stay)

    def leave(self, counts: np.ndarray, memory: Any) -> None:
        """Keep memory until counters are zero: who comes late looks there whether there is something to do."""
        self._left = [pair for pair in (*self._left, (counts, memory)) if pair[0].any()]

    def begin(self, now: float) -> bool:
        """Begin a call; return whether calls are in quick succession."""
        self._row = self._row + 1 if now - self._ended < SOON else 0
        return self._row >= _OFTEN

    def end(self, now: float) -> None:
        """End a call."""
        self._ended = now


class Team:
    """Who helps in the calls of a chain: what took least, as measured.

    Parameters
    ----------
    most
        For how many helpers there is something to do.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._best = LAUNCHED if most else ALONE
        self._times = dict.fromkeys((LAUNCHED, ALONE, CALLED), inf)
        self._plan: tuple[str, ...] = _PLAN if most else ()
        self._is_tried = not most  # whether it is known what those are worth that stand by
        self._calls = 0

    def choose(self, is_ready: bool, is_soon: bool) -> str:
        """Return who helps.

        Parameters
        ----------
        is_ready
            Whether work-items stand by.
        is_soon
            Whether calls are in quick succession.
        """
        if not self._plan:
            self._calls += 1
            if is_soon and self.most and (not self._is_tried or self._calls > _AGAIN):
                self._try()
        if self._plan:
            wanted = self._plan[0]
            return LAUNCHED if wanted == CALLED and not is_ready else wanted
        if is_ready:
            return CALLED if self._is_worth_it else ALONE
        return LAUNCHED if is_soon and self._is_worth_it else self._best

    def keeps(self, is_soon: bool) -> bool:
        """Whether those that are launched now stay for the next calls."""
        return self._plan[0] == CALLED if self._plan else is_soon and self._is_worth_it

    @property
    def _is_worth_it(self) -> bool:
        times = self._times
        return times[CALLED] < _CLEAR * min(times[ALONE], times[LAUNCHED])

    def _try(self) -> None:
        """Look what those are worth that stand by, in the next calls; other programs may have come, or have gone."""
        self._plan = _PLAN_AGAIN if self._is_tried else _PLAN_IF_SOON
        self._times[CALLED] = inf
        if self._is_tried:
            self._times[ALONE] = inf
        self._is_tried, self._calls = True, 0

    def took(self, way: str, seconds: float) -> None:
        """Note how long it took."""
        if not self._plan:
            return
        self._plan = self._plan[1:]
        times = self._times
        times[way] = min(times[way], seconds)
        if min(times.values()) > _LONG or (way == ALONE and seconds > 2 * times[LAUNCHED]):
            self._plan = ()
        self._best = ALONE if times[ALONE] < times[LAUNCHED] else LAUNCHED
