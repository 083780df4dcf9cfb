"""Device or host, decided at call time: a virtual machine that measures the sides for each class of sizes.

The sides are the device, and PyTensor's NUMBA and C backends. A class that is new starts on the side that `estimate`
suggests. When that side has taken some time, and a lower bound of what another one needs does not rule it out, that one
is compiled and measured; the faster one stays. They are measured again when so much time has passed that the slower
one's share of it is small, each time later.
"""

import sys
from collections.abc import Callable, Sequence
from math import inf
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from pytensor.compile.inner_function import HasInnerFunction
from pytensor.link.basic import Container

from pytensor_cl.errors import ForkedProcessError
from pytensor_cl.linker.backends import CFunction, HostFunction, NumbaFunction
from pytensor_cl.linker.draws import set_back, states_of
from pytensor_cl.linker.generated import Hooks, generate
from pytensor_cl.linker.host import Cell
from pytensor_cl.linker.replay import AFTER
from pytensor_cl.linker.sizes import Sizes
from pytensor_cl.linker.vm import OpenCLVM
from pytensor_cl.linker.work import least_seconds
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["DEVICE", "HOST", "ChoosingVM", "SizeClass"]

DEVICE, HOST = "device", "host"
NUMBA, C = NumbaFunction.backend, CFunction.backend

PATIENCE = {DEVICE: 0.02, NUMBA: 0.02, C: 0.25}
"""Seconds that a side may take in all before another one is tried, which must be compiled: for each node of the graph.
The more nodes, the longer that takes, and a run may end soon."""
LEAST_PATIENCE = 0.2
"""The same for small graphs."""
PATIENCE_IF_COMPILED = 0.05
"""The same if the other one has been compiled for calls of other sizes."""
FEW = 6
"""Nodes: a function of more takes C long to build, so it never goes first."""
UNLIKELY, DEAR = 3.0, 25.0
"""How much longer the wait is, at most, if the other one seems to be slower: for few nodes, and for more."""
SHORT, LIKELY = 5e-3, 4.0
"""Seconds: calls that take longer are not tried by the C backend, which may run Ops in Python; unless it seems to take
no more than so many times as long as the first side."""
SAMPLES, SEVERAL, MANY, BRIEF = 3, 9, {DEVICE: 12, NUMBA: 6, C: 6}, 3e-4
"""Calls that are timed when a side is tried, how many if they are `SHORT`, and if they take less than so many seconds:
a device tries itself who helps the host's thread."""
LONG, HOPELESS = 2e-3, 2.0
"""Seconds of a call on the chosen side, and how many times as long one on another takes that ends the trial at once:
other programs take the core for less than that."""
UNTIMED = {DEVICE: AFTER + 8, NUMBA: 2, C: 2}
"""Calls before these: the first one compiles, and moves shared variables; a device's third one is recorded, and in
those that follow it tries who helps; a host's last one brings the values into the caches."""
CALL, NODE = 3e-6, 1e-6
"""Seconds that no device call, and no device node, is faster than."""
SHARE = 0.02
"""Part of the time that may be lost by trying again, at first."""
FADE = 1.3
"""By how much a measured time grows until the next trial."""
CLEAR = 0.95
"""How much faster than the chosen side the other one must be to replace it."""
DOUBT = 1.2
"""How much faster another side must seem to go before the device."""
NEVER = 1 << 60
FORKED, EMPTY = "the process was forked", "no elements"
SIZES, CLASSES = 1024, 256  # how many are remembered

Side = Callable[[], list[Any]]


class SizeClass:
    """Calls whose inputs have about the same sizes.

    Attributes
    ----------
    shapes
        Of the inputs, in the first such call.
    side, is_on_device
        Where they run.
    run
        What runs them there.
    seconds
        Measured time of a call on each side; inf where it has not been measured.
    bound
        Less than which it cannot take there.
    guessed, nodes
        Seconds that a call on each side seems to take, and what of the graph must be built there.
    patience
        Seconds that another side may take before this one is tried, if it seems to be no slower.
    longest
        Seconds of a call from which on it is not tried.
    barred
        Why a side is out of the question.
    """

    __slots__ = (
        *("barred", "bound", "done", "guessed", "is_on_device", "left", "longest", "nodes", "patience"),
        *("rounds", "run", "seconds", "shapes", "side", "span", "taken", "tried", "trials", "waited"),
    )

    def __init__(self, shapes: tuple[Any, ...], side: str, sides: dict[str, Side]) -> None:
        self.shapes = shapes
        self.move(side, sides[side])
        self.seconds = dict.fromkeys(sides, inf)
        self.bound = dict.fromkeys(sides, 0.0)
        self.guessed, self.nodes = dict.fromkeys(sides, inf), 1
        self.patience = dict.fromkeys(sides, LEAST_PATIENCE)
        self.longest = dict.fromkeys(sides, inf)
        self.barred: dict[str, str] = {}
        self.rounds = dict.fromkeys(sides, 0)
        self.waited = dict.fromkeys(sides, 0.0)  # seconds of calls since a side was measured last
        self.left = 0  # calls until something is measured
        self.span = 0  # what that was at first
        self.tried = [side]  # what is measured then
        self.trials = [side]  # what of it is left
        self.done = 0  # calls of the first of these
        self.taken: list[float] = []  # what those took that are timed

    def move(self, side: str, run: Side) -> None:
        """Run the calls elsewhere."""
        self.side, self.is_on_device, self.run = side, side == DEVICE, run

    def stay(self, side: str, run: Side) -> None:
        """Run the calls elsewhere, and measure nothing any more."""
        self.move(side, run)
        self.left = NEVER

    def note(self, side: str, seconds: float) -> None:
        """Take in the time of a call."""
        self.done += 1
        timed = self.done - UNTIMED[side]
        if timed > 0:
            self.taken.append(seconds)
        if timed >= _samples(side, seconds) or self._is_hopeless(side, seconds, timed):
            # The median, as several threads of a busy machine do without being disturbed more seldom than one. The
            # least of earlier trials counts, but less each time.
            self.seconds[side] = min(median(self.taken), FADE * self.seconds[side])
            self.taken.clear()
            self.trials.pop(0)
            self.done = 0
            self.rounds[side] += 1

    def _is_hopeless(self, side: str, seconds: float, timed: int) -> bool:
        """Whether a call tells enough of a side that is tried; those that are not timed may still build kernels."""
        chosen = self.seconds[self.side]
        return side != self.side and timed > 0 and chosen > LONG and HOPELESS * chosen < seconds

    def settle(self) -> None:
        """Choose, and say what to measure next and when."""
        self._pass()
        best = min(self.seconds, key=lambda side: self.seconds[side])
        if self.seconds[best] < CLEAR * self.seconds[self.side]:
            self.side = best
        waits = {side: self._wait(side) - self.waited[side] for side in self.seconds if side != self.side}
        following = min(waits, key=lambda side: waits[side])
        self.plan([self.side, following], int(min(max(waits[following], 0.0) / self._mine, NEVER)))

    def plan(self, sides: list[str], calls: int) -> None:
        """Measure sides after some calls."""
        self.left, self.span, self.tried, self.trials, self.done = calls, calls, sides, list(sides), 0
        self.taken.clear()

    def _pass(self) -> None:
        """Each side has waited for the calls before the measurements, except for those that were measured."""
        seconds = self.span * self._mine if self.seconds[self.side] < inf else 0.0
        for side in self.waited:
            self.waited[side] = 0.0 if side in self.tried else self.waited[side] + seconds

    @property
    def _mine(self) -> float:
        return max(self.seconds[self.side], 1e-9)

    def _wait(self, side: str) -> float:
        """Return how many seconds the chosen side runs before another one is tried."""
        mine, others = self._mine, self.seconds[side]
        if side in self.barred or mine <= self.bound[side]:
            return inf
        if others == inf:
            slower = _slower(self.guessed[side], mine, self.nodes)  # than measured: a guess of the first side is past
            return self.patience[side] * slower if mine < self.longest[side] else inf
        lost = max(others - mine, SHARE * others) * (UNTIMED[side] + _samples(side, others))
        return 2 ** min(self.rounds[side], 30) * lost / SHARE


class ChoosingVM(OpenCLVM):
    """Runs each call on the side that is fastest for its sizes.

    Parameters
    ----------
    machine
        Arguments of `OpenCLVM`.
    hosts
        The other sides.
    sizes
        What tells calls apart.
    arguments, results
        What PyTensor puts the arguments in, and takes the results out of.
    """

    # Found by who calls the machine: another one for each function, and while it is profiled.
    __slots__ = ("__call__",)

    def __init__(
        self,
        *machine: Any,
        hosts: Sequence[HostFunction],
        sizes: Sizes,
        arguments: Sequence[Container],
        results: Sequence[Container],
    ) -> None:
        super().__init__(*machine)
        # Pickling a function that keeps its values compiles what Scan and its like have inside.
        self._drops = self.allow_gc and not any(isinstance(n.op, HasInnerFunction) for n in self.nodes)
        self.allow_gc = self.allow_gc and not self._drops
        self._hosts = {host.backend: host for host in hosts}
        self._sizes = sizes
        self._arguments, self._returned = arguments, results
        self._by_size: dict[tuple[int, ...], SizeClass] = {}
        self._classes: dict[tuple[int, ...], SizeClass] = {}
        self._refusals: dict[str, str] = {}
        self._sides: dict[str, Side] = {DEVICE: self._device, **{h.backend: self._side_of(h) for h in hosts}}

    @property
    def backends(self) -> list[str]:
        """The backends of the host that may run a call."""
        return list(self._hosts)

    @property
    def size_classes(self) -> list[SizeClass]:
        """What was chosen for the sizes seen so far."""
        return list(self._classes.values())

    def _set_call(self, call: Side) -> None:
        setattr(self, "__call__", call)  # noqa: B010, it is no method to mypy otherwise

    def _begin(self) -> list[Any]:
        """Make what runs the calls; PyTensor has said by now which arguments it wants back."""
        hooks = Hooks(self._class_of, self._otherwise, self._on_device, self._without_choice)
        doubtful = [cell for host in self._hosts.values() for cell in host.doubtful]
        call = generate(hooks, self._sizes.telling, self._dropped(), doubtful)
        self._set_call(call)
        return call()

    def _dropped(self) -> list[Cell]:
        """Return the cells that PyTensor empties after each call, unless the machine has done it, which is quicker."""
        if not self._drops:
            return []
        given = [c.storage for c in self._arguments if getattr(c, "required", False)]
        return given + [c.storage for c, v in zip(self._returned, self.fgraph.outputs, strict=True) if v.owner]

    @property
    def time_thunks(self) -> bool:
        """Whether calls are timed, on the device."""
        return self._is_timed

    @time_thunks.setter
    def time_thunks(self, value: bool) -> None:
        self._is_timed = value
        self._set_call(self._without_choice if value else self._begin)

    def _without_choice(self) -> list[Any]:
        """Run on the device: the call is timed, or a function that trusts its arguments got none that is an array."""
        results = self._on_device()
        for cell in self._dropped():
            cell[0] = None
        return results

    def _device(self) -> list[Any]:
        return super().__call__()

    def _on_device(self) -> list[Any]:
        try:
            return self._device()
        except ForkedProcessError as error:
            return self._without_device(error)

    def _without_device(self, error: ForkedProcessError) -> list[Any]:
        """Run a call on a host: the device is the parent's, as in the workers that PyMC forks."""
        self._refusals[DEVICE] = FORKED
        for size in self._classes.values():
            size.barred[DEVICE] = FORKED
        size = self._class_of()
        for host in sorted(self._hosts.values(), key=lambda h: size.seconds[h.backend]):
            reason = size.barred.get(host.backend)
            if reason is not None and (host.backend, reason) != (C, EMPTY):
                continue
            try:
                results = host.run()
            except Exception:
                if not host.is_to_blame:
                    raise
                continue
            size.stay(host.backend, host.direct or host.run)
            return results
        raise error

    def _side_of(self, host: HostFunction) -> Side:
        """Return what runs a call on the host; what is wrong with its data the device says, at the node."""

        def run() -> list[Any]:
            try:
                return host.run()
            except Exception:
                if host.is_to_blame:
                    raise
            return self._on_device()

        return run

    def _direct(self, side: str) -> Side:
        """Return what runs a call on a side that has been measured."""
        return self._on_device if side == DEVICE else self._hosts[side].direct or self._hosts[side].run

    def _class_of(self) -> SizeClass:
        """Return the class of the arguments."""
        sizes = tuple([c[0].size for c, _ in self._sizes.telling])
        found = self._by_size.get(sizes)
        if found is not None:
            return found
        if len(self._by_size) >= SIZES:
            self._by_size.clear()
        if len(self._classes) >= CLASSES:
            self._classes.clear()
            self._by_size.clear()
        key = tuple([n.bit_length() for n in sizes])
        size = self._classes.get(key)
        if size is None:
            size = self._classes[key] = self._new(tuple([c[0].shape for c in self._sizes.unknown]))
        self._by_size[sizes] = size
        return size

    def _new(self, shapes: tuple[Any, ...]) -> SizeClass:
        is_empty = any(0 in s for s in shapes)
        guessed = self._sizes.guess([getattr(_anywhere(c), "shape", ()) for c in self.input_storage])
        likely = dict(zip((DEVICE, NUMBA, C), guessed, strict=False))
        barred = self._refusals | (dict.fromkeys(self._hosts, EMPTY) if is_empty else {})
        dear = C if guessed.nodes > FEW else ""
        possible = (s for s in self._sides if s not in barred)
        first = min(possible, key=lambda s: (s == dear, likely[s]), default=DEVICE)
        if DEVICE not in barred and DOUBT * likely[first] >= likely[DEVICE]:
            first = DEVICE  # which takes the least time to try
        size = SizeClass(shapes, first, self._sides)
        size.bound[DEVICE] = CALL + NODE * sum(isinstance(n.op, GpuOp) and n.op.works for n in self.nodes)
        size.guessed, size.nodes = {s: likely[s] for s in self._sides}, guessed.nodes
        size.patience = {s: self._patience(s, guessed.nodes) for s in self._sides}
        size.longest[C] = inf if likely[C] < LIKELY * likely[first] else SHORT
        size.barred.update(barred)
        return size

    def _patience(self, side: str, nodes: int) -> float:
        """Return how many seconds others may take before a side is tried."""
        is_compiled = side in self._hosts and self._hosts[side].is_compiled
        return PATIENCE_IF_COMPILED if is_compiled else max(LEAST_PATIENCE, PATIENCE[side] * nodes)

    def _otherwise(self, size: SizeClass) -> list[Any]:
        """Run a call that is due to be timed, or one that needs care."""
        if size.left < 0:
            return self._measured(size)
        return self._on_device() if size.is_on_device else self._sides[size.side]()

    def _measured(self, size: SizeClass) -> list[Any]:
        """Run a call and time it; the last one of a trial decides."""
        side = size.trials[0]
        failure: Exception | None = None
        start = perf_counter()
        try:
            results = self._trial(size, side)
        except Exception as error:
            if side == size.side and isinstance(error, ForkedProcessError):
                return self._without_device(error)
            if side == size.side and (side == DEVICE or size.seconds[side] < inf):
                raise
            failure = error  # what another side raises shall not look like a consequence of it
        if failure is not None:
            return self._instead(size, side, failure)
        size.note(side, perf_counter() - start)
        if not size.trials:
            self._settle(size)
        return results

    def _settle(self, size: SizeClass) -> None:
        size.settle()
        size.move(size.side, self._direct(size.side))

    def _trial(self, size: SizeClass, side: str) -> list[Any]:
        if side != DEVICE:
            return self._sides[side]()
        if not any(size.bound[host] for host in self._hosts):
            return self._noted(size)
        results = self._sides[DEVICE]()
        self._finish()
        return results

    def _noted(self, size: SizeClass) -> list[Any]:
        """Run on the device, and note the bounds of the other sides."""
        before = states_of(self.generators)
        try:
            size.bound.update(dict.fromkeys(self._hosts, self._noting() or sys.float_info.min))
            return self._results()
        except BaseException:
            set_back(before)
            raise

    def _noting(self) -> float:
        """Run on the device; return how long the host would need at least."""
        total = 0.0

        def note(at: int) -> None:
            nonlocal total
            node = self.nodes[at]
            shapes = [[np.shape(_anywhere(self.storage_map[v])) for v in many] for many in (node.inputs, node.outputs)]
            total += least_seconds(node, *shapes)

        self.run(after=note)
        return total

    def _instead(self, size: SizeClass, failed: str, error: Exception) -> list[Any]:
        """The side that was tried has failed: if another one does not, it is the fault of the side."""
        others = (s for s in (size.side, DEVICE, *self._hosts) if s != failed and s not in size.barred)
        instead = next(others, None)
        if instead is None:
            raise error
        try:
            results = self._sides[instead]()
        except ForkedProcessError as forked:
            return self._without_device(forked)
        name = "the device" if failed == DEVICE else failed
        size.barred[failed] = f"{name}: {type(error).__name__}: {error}".splitlines()[0]
        if failed != DEVICE:
            self._refusals[failed] = size.barred[failed]
        size.move(instead, self._sides[instead])
        size.seconds[failed] = inf
        if size.seconds[instead] < inf:
            size.settle()
        else:
            size.plan([instead], 0)
        return results


def _samples(side: str, seconds: float) -> int:
    """Return how many calls of a trial are timed if one takes so long."""
    return MANY[side] if seconds < BRIEF else SEVERAL if seconds < SHORT else SAMPLES


def _slower(seconds: float, others: float, nodes: int) -> float:
    """Return how much longer to wait for a side that seems to be slower: what many nodes take to compile is lost."""
    ratio = max(seconds / others, 1.0) if seconds < inf else 1.0
    return min(ratio, UNLIKELY) if nodes <= FEW else min(ratio**2, DEAR)


def _anywhere(cell: Cell) -> Any:
    """Return a value where it is."""
    return cell.anywhere() if isinstance(cell, DeviceCell) else cell[0]
