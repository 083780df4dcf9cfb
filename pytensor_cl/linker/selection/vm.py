"""Device or host, decided at call time: a virtual machine that measures the sides for each class of sizes.

The sides are the device, and PyTensor's NUMBA and C backends. A class that is new starts on the side that `estimate`
suggests. When that side has taken some time, another one is compiled and measured; the faster one stays. If it seems
that the other one cannot be faster, that takes longer. They are measured again when so much time has passed that the
slower one's share of it is small, each time later.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from errno import ENOSPC
from math import inf
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from pytensor.compile.inner_function import HasInnerFunction
from pytensor.link.basic import Container

from pytensor_cl.errors import ForkedProcessError, OpenCLError, OutOfDeviceMemory
from pytensor_cl.linker.cost.model import CostEstimate
from pytensor_cl.linker.cost.roofline import roofline_seconds
from pytensor_cl.linker.execution.graph_cache import WARMUP_CALLS
from pytensor_cl.linker.execution.rng_state import restore_rng_states, save_rng_states
from pytensor_cl.linker.execution.vm import OpenCLVM
from pytensor_cl.linker.selection.backends import CFunction, HostFunction, NumbaFunction
from pytensor_cl.linker.selection.call_codegen import SlowPaths, generate
from pytensor_cl.linker.selection.signature import Sizes
from pytensor_cl.linker.steps.host import Cell
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["DEVICE", "HOST", "SelectingVM", "SignatureStats"]

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
"""Seconds: calls that take longer are unlikely to be faster by the C backend, which may run Ops in Python; unless it
seems to take no more than so many times as long as the first side."""
IMPROBABLE, GUESSED = 10.0, 10.0
"""How many times as long the wait is, at least, for a side that seems unable to be faster, and how many times what its
trial seems to take. An estimate delays a trial; it never forbids one."""
LONGEST = 1e6
"""Seconds that any wait takes at most."""
SAMPLES, SEVERAL, MANY, BRIEF = 3, 9, {DEVICE: 12, NUMBA: 6, C: 6}, 3e-4
"""Calls that are timed when a side is tried, how many if they are `SHORT`, and if they take less than so many seconds:
a device tries itself who helps the host's thread."""
LONG, HOPELESS = 2e-3, 2.0
"""Seconds of a call on the chosen side, and how many times as long one on another takes that ends the trial at once:
other programs take the core for less than that."""
UNTIMED = {DEVICE: WARMUP_CALLS + 8, NUMBA: 2, C: 2}
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
SIZES, CLASSES = 1024, 256  # how many are remembered; those that were used last

_log = logging.getLogger("pytensor_cl")

Side = Callable[[], list[Any]]


class SignatureStats:
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
        Less than which it cannot take there, by estimate.
    guessed, nodes
        Seconds that a call on each side seems to take, and what of the graph must be built there.
    patience
        Seconds that another side may take before this one is tried, if it seems to be no slower.
    longest
        Seconds of a call from which on it seems unable to be faster.
    barred
        Why a side is out of the question.
    troubles
        Why the last trial of a side failed, for a reason that may pass.
    """

    __slots__ = (
        *("barred", "bound", "done", "guessed", "is_on_device", "left", "longest", "nodes", "patience"),
        *("rounds", "run", "seconds", "shapes", "side", "span", "taken", "tried", "trials", "troubles", "waited"),
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
        self.troubles: dict[str, str] = {}
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
            self.troubles.pop(side, None)

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
        self.plan([self.side, following], self._calls(waits[following]))

    def _calls(self, seconds: float) -> int:
        """Return how many calls take so long."""
        return int(min(max(seconds, 0.0) / self._mine, NEVER))

    @property
    def following(self) -> tuple[str, int] | None:
        """The side that is tried next, and after how many calls; None if none is."""
        side = self.tried[-1]
        if side == self.side or side in self.barred or self.left >= NEVER // 2:
            return None
        return side, max(self.left, 0)

    def fail(self, side: str, why: str) -> None:
        """Note that a trial failed for a reason that may pass: the next one is later."""
        self.troubles[side], self.seconds[side] = why, inf
        self.rounds[side] += 1
        self.waited[side] = 0.0

    def hasten(self, side: str, patience: float) -> None:
        """Try a side sooner, if that was not measured: it has been compiled meanwhile."""
        if patience >= self.patience[side]:
            return
        self.patience[side] = patience
        is_waiting = 0 < self.left < self.span and len(self.trials) == 2 and self.seconds[self.side] < inf
        if side == self.side or side in self.barred or self.seconds[side] < inf or not is_waiting:
            return
        calls = self._calls(self._wait(side) - self.waited[side] - (self.span - self.left) * self._mine)
        if calls < self.left:
            self.span -= self.left - calls  # so that the other sides have waited as long as they have
            self.left, self.tried, self.trials = calls, [self.side, side], [self.side, side]

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
        if side in self.barred:
            return inf
        if others == inf:
            slower = _slower(self.guessed[side], mine, self.nodes)  # than measured: a guess of the first side is past
            wait = self.patience[side] * slower * 2 ** min(self.rounds[side], 30)
            if mine <= self.bound[side] or mine >= self.longest[side]:
                guessed = self.guessed[side] if self.guessed[side] < inf else 0.0
                wait = max(IMPROBABLE * wait, GUESSED * guessed * (UNTIMED[side] + _samples(side, guessed)))
            return min(wait, LONGEST)
        lost = max(others - mine, SHARE * others) * (UNTIMED[side] + _samples(side, others))
        return 2 ** min(self.rounds[side], 30) * lost / SHARE


class SelectingVM(OpenCLVM):
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

    Attributes
    ----------
    trouble
        What went wrong with the estimates, if anything did.
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
        self._by_size: dict[Any, SignatureStats] = {}
        self._classes: dict[Any, SignatureStats] = {}
        self._used: dict[Any, None] = {}  # their keys, in the order of their last use
        self._refusals: dict[str, str] = {}
        self._compiled: set[str] = set()  # hosts
        self.trouble = ""
        self._sides: dict[str, Side] = {DEVICE: self._device, **{h.backend: self._side_of(h) for h in hosts}}

    @property
    def backends(self) -> list[str]:
        """The backends of the host that may run a call."""
        return list(self._hosts)

    @property
    def size_classes(self) -> list[SignatureStats]:
        """What was chosen for the sizes seen so far."""
        return list(self._classes.values())

    def _set_call(self, call: Side) -> None:
        setattr(self, "__call__", call)  # noqa: B010, it is no method to mypy otherwise

    def _begin(self) -> list[Any]:
        """Make what runs the calls; PyTensor has said by now which arguments it wants back."""
        hooks = SlowPaths(self._class_of, self._otherwise, self._on_device, self._without_choice)
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
        except OutOfDeviceMemory as error:
            lack = error  # what a host raises shall not look like a consequence of it
        return self._without_memory(lack)

    def _without_device(self, error: ForkedProcessError) -> list[Any]:
        """Run a call on a host: the device is the parent's, as in the workers that PyMC forks."""
        self._refusals[DEVICE] = FORKED
        for size in self._classes.values():
            size.barred[DEVICE] = FORKED
        size, host, results = self._on_a_host(error)
        size.stay(host.backend, host.direct or host.run)
        return results

    def _without_memory(self, error: OutOfDeviceMemory) -> list[Any]:
        """Run a call on a host: the device has no room for it now."""
        size, host, results = self._on_a_host(error)
        size.fail(DEVICE, _told(DEVICE, error))
        self._leave(size, host.backend)
        return results

    def _on_a_host(self, error: OpenCLError) -> tuple[SignatureStats, HostFunction, list[Any]]:
        """Run a call on the first host that can; `error` is raised if none can."""
        size = self._class_of()
        if size is None:
            raise error
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
            return size, host, results
        raise error

    def _leave(self, size: SignatureStats, side: str) -> None:
        """Run calls on a side, as another one has failed."""
        size.move(side, self._direct(side))
        if size.seconds[side] < inf:
            self._settle(size)
        else:
            size.plan([side], 0)

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

    def _class_of(self) -> SignatureStats | None:
        """Return the class of the arguments; None if a caller who is trusted gave one that has no shape."""
        try:
            told = tuple([tuple(c[0].shape) for c, _ in self._sizes.telling])
            shapes = tuple([c[0].shape for c in self._sizes.unknown])
        except (AttributeError, TypeError):
            return None
        size = self._by_size.get(told)
        key = tuple([tuple([n.bit_length() for n in shape]) for shape in told])
        if size is None:
            size = self._classes.get(key)
            if size is None:
                size = self._new(shapes)
            if len(self._by_size) >= SIZES:
                self._by_size.clear()
            self._by_size[told] = size
        self._classes[key] = size
        self._used.pop(key, None)
        self._used[key] = None  # as the last one
        if len(self._used) > CLASSES:
            oldest = next(iter(self._used))
            self._used.pop(oldest)
            gone = self._classes.pop(oldest)
            self._by_size = {sizes: kept for sizes, kept in self._by_size.items() if kept is not gone}
        return size

    def _new(self, shapes: tuple[Any, ...]) -> SignatureStats:
        is_empty = any(0 in s for s in shapes)
        guessed = self._guess()
        likely = dict(zip((DEVICE, NUMBA, C), guessed, strict=False))
        barred = self._refusals | (dict.fromkeys(self._hosts, EMPTY) if is_empty else {})
        dear = C if guessed.nodes > FEW else ""
        possible = (s for s in self._sides if s not in barred)
        first = min(possible, key=lambda s: (s == dear, likely[s]), default=DEVICE)
        if DEVICE not in barred and DOUBT * likely[first] >= likely[DEVICE]:
            first = DEVICE  # which takes the least time to try
        size = SignatureStats(shapes, first, self._sides)
        size.bound[DEVICE] = CALL + NODE * sum(isinstance(n.op, GpuOp) and n.op.is_compute for n in self.nodes)
        size.guessed, size.nodes = {s: likely[s] for s in self._sides}, guessed.nodes
        size.patience = {s: self._patience(s, guessed.nodes) for s in self._sides}
        size.longest[C] = inf if likely[C] < LIKELY * likely[first] else SHORT
        size.barred.update(barred)
        return size

    def _guess(self) -> CostEstimate:
        """Estimate what a call takes; a failure of that must not become one of the call."""
        try:
            return self._sizes.guess([getattr(_anywhere(c), "shape", ()) for c in self.input_storage])
        except Exception as error:
            if not self.trouble:
                self.trouble = f"estimates failed: {type(error).__name__}: {error}"
                _log.warning("The estimate of a call's time failed; the device goes first.", exc_info=True)
            return CostEstimate(inf, inf, inf, len(self.nodes))

    def _patience(self, side: str, nodes: int) -> float:
        """Return how many seconds others may take before a side is tried."""
        is_compiled = side in self._hosts and self._hosts[side].is_compiled
        return PATIENCE_IF_COMPILED if is_compiled else max(LEAST_PATIENCE, PATIENCE[side] * nodes)

    def _otherwise(self, size: SignatureStats) -> list[Any]:
        """Run a call that is due to be timed, or one that needs care."""
        if size.left < 0:
            return self._measured(size)
        return self._on_device() if size.is_on_device else self._sides[size.side]()

    def _measured(self, size: SignatureStats) -> list[Any]:
        """Run a call and time it; the last one of a trial decides."""
        side = size.trials[0]
        failure: Exception | None = None
        start = perf_counter()
        try:
            results = self._trial(size, side)
        except Exception as error:
            if side == size.side and isinstance(error, ForkedProcessError):
                return self._without_device(error)
            is_chosen = side == size.side and (side == DEVICE or size.seconds[side] < inf)
            if is_chosen and not isinstance(error, OutOfDeviceMemory):
                raise
            failure = error  # what another side raises shall not look like a consequence of it
        if isinstance(failure, OutOfDeviceMemory) and side == size.side:
            return self._without_memory(failure)
        if failure is not None:
            return self._instead(size, side, failure)
        size.note(side, perf_counter() - start)
        if not size.trials:
            self._settle(size)
        self._hasten(side)
        return results

    def _hasten(self, side: str) -> None:
        """Let other classes try a host soon, as soon as it has been compiled for one."""
        host = self._hosts.get(side)
        if host is None or not host.is_compiled or side in self._compiled:
            return
        self._compiled.add(side)
        for size in self._classes.values():
            size.hasten(side, PATIENCE_IF_COMPILED)

    def _settle(self, size: SignatureStats) -> None:
        size.settle()
        size.move(size.side, self._direct(size.side))

    def _trial(self, size: SignatureStats, side: str) -> list[Any]:
        if side != DEVICE:
            return self._sides[side]()
        if not any(size.bound[host] for host in self._hosts):
            return self._noted(size)
        results = self._sides[DEVICE]()
        self._finish()
        return results

    def _noted(self, size: SignatureStats) -> list[Any]:
        """Run on the device, and note the bounds of the other sides."""
        before = save_rng_states(self.generators)
        try:
            size.bound.update(dict.fromkeys(self._hosts, self._noting() or sys.float_info.min))
            return self._results()
        except BaseException:
            restore_rng_states(before)
            raise

    def _noting(self) -> float:
        """Run on the device; return how long the host would need at least."""
        total = 0.0

        def note(at: int) -> None:
            nonlocal total
            node = self.nodes[at]
            shapes = [[np.shape(_anywhere(self.storage_map[v])) for v in many] for many in (node.inputs, node.outputs)]
            total += roofline_seconds(node, *shapes)

        self.run(after=note)
        return total

    def _instead(self, size: SignatureStats, failed: str, error: Exception) -> list[Any]:
        """The side that was tried has failed: if another one does not, it is the fault of the side."""
        others = (s for s in (size.side, DEVICE, *self._hosts) if s != failed and s not in size.barred)
        instead = next(others, None)
        if instead is None:
            raise error
        try:
            results = self._sides[instead]()
        except ForkedProcessError as forked:
            return self._without_device(forked)
        why = _told(failed, error)
        if _may_pass(error):
            size.fail(failed, why)
        else:
            size.barred[failed] = why
            size.seconds[failed] = inf
            if failed != DEVICE:
                self._refusals[failed] = why
        self._leave(size, instead)
        return results


def _told(side: str, error: Exception) -> str:
    """Return what a side has raised, in one line."""
    name = "the device" if side == DEVICE else side
    return f"{name}: {type(error).__name__}: {error}".splitlines()[0]


def _may_pass(error: BaseException | None) -> bool:
    """Whether an error, or one that it comes from, is a lack of memory, of space on the disk, or of files."""
    while error is not None:
        if isinstance(error, MemoryError | OSError) or os.strerror(ENOSPC) in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


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
