"""Parked workers: work-items of a kernel batch that wait for the next call after their own has ended.

`batch` says what workers, bursts and thread modes are. A parked worker polls its mailbox for a short time, and the host
thread writes the next job there (``kernels/pocl/worker_pool.mako`` is the worker's side). The *control block* is what
all workers read: the numbers of the latest launch and the latest call, and the cores of PoCL's threads. A worker leaves
when the latest launch is not its own: `begin_launch(0)` takes a new number without a launch, and so releases them all.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from math import inf
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.interfaces import HostAddresses
from pytensor_cl.runtime.pocl.affinity import REBALANCE_SECONDS, pinned_cores, rebalance

PARKED_CYCLES = 800_000
"""Cycles of the time stamp counter for which workers are parked: 270 us at 3 GHz."""
BURST_GAP = 2.5e-4
"""Seconds between the end of a call and the next call up to which the two belong to a burst."""
_GAP_SHARE, _MAX_GAP_FACTOR = 0.25, 4.0
# After long calls the interpreter's data has left the caches, so the gap is longer: a share of the call, at most this
# multiple of BURST_GAP. Workers are parked for longer by the same factor.
START_SECONDS = 2e-4
"""Seconds after a launch within which its workers begin; later ones are not expected."""
_BURST_CALLS = 3  # calls in quick succession from which there is a burst
_MIN_PARKED_SHARE = 0.75  # share of the wanted workers that must be parked, else new ones are launched
_MAILBOX_BYTES = 256
_PINNED_BYTE = 12  # offset in the control block; the byte is 1 if threads are pinned
MAX_CORES = 1024
"""Bits of a CPU set in the control block."""
CALL_NUMBERS = 1 << 30
"""Numbers of calls and launches; after the last one they begin again."""


class WorkerPool:
    """The workers of a context. Implements `QueueHooks`: workers leave before the queue is used otherwise.

    `spin_cycles` is how long they are parked without a call; 0 parks none. `mailboxes` is the buffer of the control
    block and of one mailbox for each worker. `call_numbers` gives a number to each call, whichever thread it comes
    from; `active_callers` has one object for each thread in a call, which the thread adds and removes.
    """

    def __init__(self, context: "cl.Context", mappings: HostAddresses, max_workers: int, spin_cycles: int) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.mailboxes = cl.Buffer(context, flags, hostbuf=np.zeros(_MAILBOX_BYTES * (1 + max_workers), np.uint8))
        memory = mappings.memory_of(self.mailboxes)
        _write_cores(memory, pinned_cores())
        self.address = int(memory.__array_interface__["data"][0])
        # A memoryview: it reads and writes single elements faster than NumPy.
        states = memoryview(memory.view(np.uint32))[:: _MAILBOX_BYTES // 4]
        self._latest_launch, self._states = states[:1], states[1:]
        self.spin_cycles = spin_cycles
        self.call_numbers = count()
        self._launch_number = 0
        self._may_be_parked, self._launched_workers = False, 0
        self._call_began = self._launched_at = 0.0
        self._exclusive_waits: dict[object, None] = {}  # one for each thread that waits until nothing runs
        self.active_callers: list[object] = []
        self._call_ended, self._calls_in_burst, self._gap_factor = -inf, 0, 1.0
        self._next_rebalance = 0.0
        self._deferred: deque[tuple[np.ndarray, Any]] = deque()

    # Queue hooks

    def on_submit(self) -> None:
        """Release the workers: a command is enqueued."""
        if self._may_be_parked:
            self.begin_launch(0)

    @contextmanager
    def exclusive_wait(self) -> Iterator[None]:
        """Release the workers and park no others meanwhile: the driver waits until nothing runs at all."""
        key = object()
        try:
            self._exclusive_waits[key] = None
            self.on_submit()
            yield
        finally:
            self._exclusive_waits.pop(key, None)

    def after_wait(self) -> None:
        """Pin PoCL's threads again if necessary, at most every `REBALANCE_SECONDS` / 4."""
        now = monotonic()
        if now >= self._next_rebalance:
            self._next_rebalance = now + REBALANCE_SECONDS / 4  # `rebalance` checks the interval itself
            rebalance()

    # Launches

    def begin_launch(self, spin_cycles: int, size: int = 0) -> tuple[int, int]:
        """Release the workers, as others are launched; return the launch's number, and for how long to park them."""
        if self._exclusive_waits:
            spin_cycles = 0
        self._may_be_parked, self._launched_workers, self._launched_at = spin_cycles > 0, size, self._call_began
        # Workers of earlier launches poll this number, and leave when it is not theirs.
        number = self._launch_number = self._latest_launch[0] = (self._launch_number + 1) % CALL_NUMBERS
        return number, spin_cycles

    def end_launch(self, number: int) -> None:
        """Note that a launch was enqueued. If another thread has begun one since, release the workers: its own wait."""
        if number != self._launch_number:
            self.on_submit()

    def are_parked(self, wanted: int) -> bool:
        """Return whether enough of the wanted workers are parked, still in a call, or have just been launched."""
        if not self._may_be_parked or self._launched_workers < wanted:
            return False
        present = wanted - self._states[:wanted].tolist().count(0)
        return present >= _MIN_PARKED_SHARE * wanted or self._call_began - self._launched_at < START_SECONDS

    # Calls

    def begin_call(self, now: float) -> bool:
        """Note the begin of a call; return whether it is in a burst of one thread."""
        self._call_began = now
        is_next = now - self._call_ended < BURST_GAP * self._gap_factor and len(self.active_callers) == 1
        self._calls_in_burst = self._calls_in_burst + 1 if is_next else 0
        return self._calls_in_burst >= _BURST_CALLS

    def end_call(self) -> None:
        """Note the end of a call."""
        self._call_ended = perf_counter()
        gap = _GAP_SHARE * (self._call_ended - self._call_began)
        self._gap_factor = min(max(1.0, gap / BURST_GAP), _MAX_GAP_FACTOR)

    def is_contended(self) -> bool:
        """Return whether several threads are in calls."""
        return len(self.active_callers) > 1

    def parking_cycles(self) -> int:
        """Return for how many cycles to park the workers of a launch now."""
        return int(self.spin_cycles * self._gap_factor)

    def defer_free(self, counters: np.ndarray, memory: Any) -> None:
        """Keep memory until counters are zero: a worker that comes late reads them."""
        self._deferred.append((counters, memory))
        with suppress(IndexError):  # another thread, or the garbage collector, may be here too
            for _ in range(len(self._deferred)):
                pair = self._deferred.popleft()
                if any(pair[0][:, 0].tolist()):  # works while the interpreter shuts down, too
                    self._deferred.append(pair)


def _write_cores(control_block: np.ndarray, cores: Sequence[int]) -> None:
    """Write the cores to the control block, if each of PoCL's threads is pinned to one."""
    if cores and max(cores) < MAX_CORES:
        bits = np.zeros(MAX_CORES, bool)
        bits[list(cores)] = True
        control_block[_MAILBOX_BYTES - MAX_CORES // 8 : _MAILBOX_BYTES] = np.packbits(bits, bitorder="little")
        control_block[_PINNED_BYTE] = 1
