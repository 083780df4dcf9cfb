"""Staging memory: page-locked host memory, through which arrays go to and from a device with a memory of its own.

A driver copies pageable memory through page-locked memory of its own, with one thread (NVIDIA: 6 to 14 GB/s). From
page-locked memory the device copies by itself (54 GB/s), while the host copies the next piece.
"""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import count
from threading import Lock
from typing import Any

import numpy as np

from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.host_cpu import granted_cores
from pytensor_cl.runtime.memory.result_memory import MIN_BYTES as MIN_RESULT_BYTES
from pytensor_cl.runtime.memory.result_memory import ResultMemory
from pytensor_cl.runtime.queue import Queue

MIN_BYTES = 1 << 14
"""Bytes of an array from which it is staged: drivers copy smaller ones as fast from pageable memory."""
SMALL, SMALL_SLOTS = 1 << 17, 31
"""Bytes of a slot for a small array, and the number of these slots."""
LARGE, LARGE_SLOTS = 2 << 20, 8
"""Bytes of a slot for a piece of a large array, and the number of these slots."""
MIN_PIECE = 1 << 18
"""Bytes of the smallest piece of a large array: a command and its thread take 10 to 20 us."""
MIN_SHARED = 4 << 20
"""Bytes of an array from which several threads copy: another thread begins 30 to 60 us after it is asked."""
MAX_THREADS = 8
"""Threads that copy pieces: one core copies 5 to 10 GB/s, a device takes up to 55."""
MAX_READS = 4
"""Downloads of pieces that are enqueued at a time; the other slots are copied from meanwhile."""
_ALIGNMENT = 1 << 16
_PROBE = 256  # bytes


class Slot:
    """A part of the staging memory, for one transfer at a time.

    `memory`: its bytes; `lock`: held by a thread that reads or writes them, of small slots; `events`: the commands that
    do; `copy`: the copy by another thread that does; None if it was made at once.
    """

    __slots__ = ("copy", "events", "lock", "memory")

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory
        self.lock = Lock()
        self.events: Sequence[Any] = ()
        self.copy: Future[None] | None = None

    def is_busy(self) -> bool:
        """Return whether a thread holds the slot, or one of its commands has not run."""
        complete = cl.command_execution_status.COMPLETE
        return self.lock.locked() or any(e.command_execution_status != complete for e in self.events)

    @property
    def is_copied(self) -> bool:
        """Whether no thread copies it any more."""
        return self.copy is None or self.copy.done()

    def wait(self) -> None:
        """Wait for the commands, and for the copy."""
        events, self.events = self.events, ()
        for event in events:
            event.wait()
        copy, self.copy = self.copy, None
        if copy is not None:
            copy.result()


def flat_bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes of a contiguous array."""
    return array.view(np.ndarray).reshape(-1).view(np.uint8)


class Staging:
    """The staging memory of a context: allocated and probed when it is first used.

    `queue`: the context's queue; `info`: properties of the device.
    """

    def __init__(self, queue: Queue, info: DeviceInfo) -> None:
        self._queue, self._info = queue, info
        self._lock = Lock()
        # None until it is needed; then whether it can be used.
        self._is_usable: bool | None = None if info.has_own_memory else False
        self._memory: np.ndarray | None = None  # mapped as long as this object
        self._numbers = count()
        self._small: list[Slot] = []
        self._large: list[Slot] = []
        self._next = 0  # the large slot that was used longest ago
        self._large_lock = Lock()  # held during the transfer of a large array
        self._pool: ThreadPoolExecutor | None = None
        self._result_memory = ResultMemory()
        self.results: Slot | None = None  # for the results of replays, of which there is one at a time

    def is_usable(self) -> bool:
        """Return whether arrays can be staged."""
        if self._is_usable is None:
            with self._lock:
                if self._is_usable is None:
                    self._is_usable = self._open()
        return self._is_usable

    def _open(self) -> bool:
        """Allocate and map the memory; return whether the device can use it."""
        nbytes = SMALL * (SMALL_SLOTS + 1) + LARGE * LARGE_SLOTS
        flags, access = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, cl.map_flags.READ | cl.map_flags.WRITE
        if nbytes > self._info.max_allocation:
            return False
        handle = self._queue.handle
        try:
            self._queue.finish_raw()  # the map waits for all commands, but would handle no signals
            buffer = cl.Buffer(handle.context, flags, nbytes)
            memory, _ = cl.enqueue_map_buffer(handle, buffer, access, 0, (nbytes,), np.uint8, is_blocking=True)
            if not self._probe(memory):
                return False
        except cl.Error:  # arrays are copied from pageable memory
            return False
        slots = [Slot(memory[LARGE * k : LARGE * (k + 1)]) for k in range(LARGE_SLOTS)]
        rest = memory[LARGE * LARGE_SLOTS :]
        small = [Slot(rest[SMALL * k : SMALL * (k + 1)]) for k in range(SMALL_SLOTS + 1)]
        self._memory, self._large, self._small, self.results = memory, slots, small[1:], small[0]
        return True

    def _probe(self, memory: np.ndarray) -> bool:
        """Return whether two transfers from and to mapped memory, one after the other, have the right values."""
        context, queue = self._queue.handle.context, self._queue.handle
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, _PROBE)
        source, target = memory[:_PROBE], memory[LARGE : LARGE + _PROBE]
        for step in (1, 7):
            values = np.arange(_PROBE, dtype=np.uint8) * np.uint8(step)
            source[:] = values
            events = [cl.enqueue_copy(queue, buffer, source, is_blocking=False)]
            events.append(cl.enqueue_copy(queue, target, buffer, is_blocking=False))
            queue.finish()
            source[:] = 0
            if not np.array_equal(target, values):
                return False
        return True

    def next_small(self) -> Slot:
        """Return the small slot that was used longest ago; the caller holds its lock and waits for its commands."""
        return self._small[next(self._numbers) % SMALL_SLOTS]

    def _next_large(self) -> Slot:
        """Return the large slot that was used longest ago, when its transfer has ended."""
        slot = self._large[self._next]
        self._next = (self._next + 1) % LARGE_SLOTS
        slot.wait()
        return slot

    def _start_copy(self, slot: Slot, target: np.ndarray, source: np.ndarray, is_shared: bool) -> None:
        """Copy a piece between a slot and an array, in another thread if several share the work.

        The threads do nothing but this. All commands are enqueued, and waited for, by the thread of the transfer.
        """
        if is_shared and copying_threads() > 1:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(copying_threads(), "pytensor-cl-copy")
            try:
                slot.copy = self._pool.submit(np.copyto, target, source)
                return
            except RuntimeError:  # the interpreter shuts down
                pass
        np.copyto(target, source)

    def upload(self, buffer: "cl.Buffer", array: np.ndarray) -> bool:
        """Copy a host array into a buffer, without waiting for the copy; the array may change afterwards.

        Returns whether the array was staged; if not, nothing was done.
        """
        nbytes = array.nbytes
        if nbytes < MIN_BYTES or not self.is_usable():
            return False
        if nbytes <= SMALL:
            slot = self.next_small()
            if slot.is_busy():  # the device is far behind: the driver may have more memory
                return False
            with slot.lock:
                slot.wait()
                np.copyto(slot.memory[:nbytes].view(array.dtype).reshape(array.shape), array)
                slot.events = (self._queue.start_write(buffer, slot.memory[:nbytes]),)
            return True
        self._queue.note_unsupported("an upload")
        self._upload_pieces(buffer, array)
        return True

    def _upload_pieces(self, buffer: "cl.Buffer", array: np.ndarray) -> None:
        """Copy pieces of an array to slots, in several threads, and enqueue their transfer in order."""
        source, row_bytes = _rows(array)
        rows = max(1, _piece(array.nbytes) // row_bytes)
        copied: deque[tuple[Slot, np.ndarray, int]] = deque()  # what is not enqueued yet

        def write() -> None:
            slot, memory, begin = copied[0]
            slot.wait()
            slot.events = (self._queue.start_write(buffer, memory, begin),)
            copied.popleft()

        with self._large_lock:
            try:
                for begin in range(0, len(source), rows):
                    while copied and (len(copied) == LARGE_SLOTS or copied[0][0].is_copied):
                        write()
                    slot, part = self._next_large(), source[begin : begin + rows]
                    memory = slot.memory[: part.nbytes]
                    self._start_copy(
                        slot, memory.view(part.dtype).reshape(part.shape), part, array.nbytes >= MIN_SHARED
                    )
                    copied.append((slot, memory, begin * row_bytes))
                while copied:
                    write()
            finally:  # after an error too, no thread copies any more
                for slot, *_ in copied:
                    slot.wait()

    def empty_result(self, shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> np.ndarray:
        """Return an array of `nbytes` bytes for `download`, with arbitrary values."""
        if nbytes < MIN_RESULT_BYTES or not self.is_usable():
            return np.empty(shape, dtype)
        return self._result_memory.empty(shape, dtype, nbytes)

    def release_results(self) -> None:
        """Release the memory of results that are gone."""
        self._result_memory.clear()

    def download(self, array: np.ndarray, buffer: "cl.Buffer", offset: int) -> bool:
        """Copy bytes of a buffer from `offset` on into a contiguous host array; wait for it.

        Returns whether they were staged; if not, nothing was done.
        """
        nbytes = array.nbytes
        if nbytes < MIN_BYTES or not self.is_usable():
            return False
        target, queue = flat_bytes(array), self._queue
        if nbytes <= SMALL:
            slot = self.next_small()
            with slot.lock:
                slot.wait()
                queue.read(slot.memory[:nbytes], buffer, offset)
                np.copyto(target, slot.memory[:nbytes])
            return True
        queue.finish_for_download()
        self._download_pieces(target, buffer, offset)
        return True

    def _download_pieces(self, target: np.ndarray, buffer: "cl.Buffer", offset: int) -> None:
        """Enqueue the transfers of pieces to slots, and copy these to an array in several threads."""
        piece = _piece(target.size)
        reads: deque[tuple[Slot, np.ndarray, np.ndarray]] = deque()

        def finish() -> None:
            slot, memory, part = reads.popleft()
            slot.wait()
            self._start_copy(slot, part, memory, target.size >= MIN_SHARED)

        with self._large_lock:
            try:
                for begin in range(0, target.size, piece):
                    if len(reads) == MAX_READS:
                        finish()
                    slot, part = self._next_large(), target[begin : begin + piece]
                    memory = slot.memory[: part.size]
                    slot.events = (self._queue.start_read(memory, buffer, offset + begin),)
                    reads.append((slot, memory, part))
                while reads:
                    finish()
            finally:
                for slot in self._large:
                    slot.wait()


@lru_cache(1)
def copying_threads() -> int:
    """Return how many threads copy a large array: half of the cores, as the others have work, too."""
    return max(1, min(MAX_THREADS, granted_cores() // 2))


def _rows(array: np.ndarray) -> tuple[np.ndarray, int]:
    """Return an array to be copied by rows, and the bytes of a row; the rows of a contiguous array are its bytes."""
    row_bytes = array.nbytes // len(array) if array.ndim else 0
    if not array.flags.c_contiguous and row_bytes <= LARGE:
        return array.view(np.ndarray), row_bytes
    return flat_bytes(np.ascontiguousarray(array)), 1


def _piece(nbytes: int) -> int:
    """Return the bytes of each piece of a large array: all threads have one, if they share the work."""
    if nbytes < MIN_SHARED:
        return MIN_PIECE
    return min(LARGE, max(MIN_PIECE, round_up(ceil_div(nbytes, copying_threads()), _ALIGNMENT)))
