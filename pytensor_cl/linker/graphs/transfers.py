"""Transfers of a captured graph with few commands: small arguments go by one, small results come by one and one wait.

A command takes 5 us or more, whatever it transfers up to 64 KiB. Devices that share the host's memory need none.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.integers import round_up
from pytensor_cl.linker.graphs.buffers import ArenaBinding, BufferBinding
from pytensor_cl.linker.graphs.graph import ArgumentBinding
from pytensor_cl.linker.types import Cell
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import DeviceErrorFlag
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.parts import parts_of
from pytensor_cl.runtime.memory.staging import MIN_BYTES, SMALL, Slot

MAX_SPAN = 1 << 15
"""Bytes of the arena that one command reads at most: two commands take longer than the bytes between two results."""
_RESULT_ALIGNMENT, _RECORD_ROOM = 16, 256  # bytes: of a result in staging memory; room for an error record


def is_together(context: Context, dtype: np.dtype, layout: Layout) -> bool:
    """Return whether an array is transferred together with others."""
    is_fitting = layout.is_contiguous and 0 < layout.size * dtype.itemsize < MIN_BYTES
    return is_fitting and context.staging.is_usable()


class ArgumentBlock:
    """The step that uploads small arguments of a call by one command, into a buffer of the graph.

    The queue is in order: kernels of the call before have run when the buffer is written. `nbytes`: size of the buffer.
    """

    def __init__(self, context: Context, arguments: Sequence[ArgumentBinding]) -> None:
        self._context = context
        self._arguments = list(arguments)
        alignment, sizes = context.memory.arena.alignment, [a.nbytes for a in arguments]
        ends = np.cumsum([round_up(n, alignment) for n in sizes]).tolist()
        self._offsets = [0, *ends[:-1]]
        self.nbytes = self._offsets[-1] + sizes[-1]
        self._buffer = context.memory.allocate_divisible(self.nbytes)
        parts = parts_of(self._buffer)
        for argument, offset, size in zip(arguments, self._offsets, sizes, strict=True):
            argument.binding.bind(parts.part(offset, size))
        self._views: dict[int, list[np.ndarray]] = {}  # the arguments' places in the slots of staging memory

    def __call__(self) -> None:
        """Upload the values of this call."""
        staging, queue = self._context.staging, self._context.queue
        values = [argument.checked_value() for argument in self._arguments]
        slot = staging.next_small()
        with slot.lock:
            slot.wait()
            for view, value in zip(self._views.get(id(slot)) or self._views_of(slot), values, strict=True):
                view[...] = value
            slot.events = (queue.start_write(self._buffer, slot.memory[: self.nbytes]),)

    def _views_of(self, slot: Slot) -> list[np.ndarray]:
        views = [
            _view(slot, offset, argument.dtype, argument.layout)
            for offset, argument in zip(self._offsets, self._arguments, strict=True)
        ]
        self._views[id(slot)] = views
        return views

    @staticmethod
    def fitting(context: Context, arguments: Sequence[ArgumentBinding]) -> list[ArgumentBinding]:
        """Return the arguments that one block holds, from the first on."""
        alignment, end, chosen = context.memory.arena.alignment, 0, []
        for argument in arguments:
            end += round_up(argument.nbytes, alignment)
            if end <= SMALL:
                chosen.append(argument)
        return chosen


def _view(slot: Slot, offset: int, dtype: np.dtype, layout: Layout) -> np.ndarray:
    """Return an array in staging memory."""
    end = offset + layout.size * dtype.itemsize
    return slot.memory[offset:end].view(dtype).reshape(layout.shape)


class _Result(NamedTuple):
    """A result that is downloaded. `memory`: its binding, or its buffer, which is the same in each call."""

    memory: Any
    dtype: np.dtype
    layout: Layout
    out: Cell

    @property
    def begin(self) -> int:
        """First byte in the memory of the binding."""
        return self.layout.offset * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.layout.size * self.dtype.itemsize


class ResultReads:
    """Downloads of small results, and of the error record, that one wait ends.

    `add` collects results; the step of `start` enqueues the reads of those that were added since the last one, and the
    step of `finish` waits for all reads. Replays of a context take turns, so all use the same staging memory.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        slot = context.staging.results
        assert slot is not None
        self._slot = slot
        self._end = 0  # bytes of the slot in use
        self._new: list[_Result] = []
        self._copies: list[tuple[np.ndarray, Cell]] = []
        self._flags: list[tuple[DeviceErrorFlag, np.ndarray]] = []
        self._events: list[Any] = []

    @property
    def has_new(self) -> bool:
        """Whether results were added for which there is no step."""
        return bool(self._new)

    def has_room(self, nbytes: int) -> bool:
        """Return whether another result fits in the slot, and an error record after it."""
        sizes = [self._end, nbytes, *(r.nbytes for r in self._new)]
        return sum(round_up(n, _RESULT_ALIGNMENT) for n in sizes) <= SMALL - _RECORD_ROOM

    def add(self, memory: Any, dtype: np.dtype, layout: Layout, out: Cell) -> None:
        """Add a result."""
        self._new.append(_Result(memory, dtype, layout, out))

    def start(self) -> Callable[[], None]:
        """Return the step that enqueues the reads of the new results."""
        new, self._new = self._new, []
        in_arena = [r for r in new if isinstance(r.memory, ArenaBinding)]
        groups = [*_spans(in_arena), *([r] for r in new if not isinstance(r.memory, ArenaBinding))]
        if self._end + sum(round_up(_extent(g)[1], _RESULT_ALIGNMENT) for g in groups) > SMALL - _RECORD_ROOM:
            groups = [[r] for r in new]  # without the bytes between them
        return _together([self._read(group) for group in groups])

    def _read(self, group: Sequence[_Result]) -> Callable[[], None]:
        """Return a function that enqueues the read of results that are near each other."""
        low, nbytes = _extent(group)
        memory = self._slot.memory[self._end : self._end + nbytes]
        for result in group:
            view = _view(self._slot, self._end + _place(result) - low, result.dtype, result.layout)
            self._copies.append((view, result.out))
        self._end = round_up(self._end + nbytes, _RESULT_ALIGNMENT)
        queue, events, source = self._context.queue, self._events, group[0].memory
        if isinstance(source, ArenaBinding):
            return lambda: events.append(queue.start_read(memory, source.whole, low))
        if isinstance(source, BufferBinding):
            return lambda: events.append(queue.start_read(memory, source.buffer, low))
        return lambda: events.append(queue.start_read(memory, source, low))

    def start_flag(self, flag: DeviceErrorFlag) -> Callable[[], None]:
        """Return the step that enqueues the read of an error record, after all kernels of a call."""
        words = self._slot.memory[self._end : self._end + flag.nbytes].view(np.int32)
        self._end = round_up(self._end + flag.nbytes, _RESULT_ALIGNMENT)
        self._flags.append((flag, words))
        queue, events = self._context.queue, self._events
        return lambda: events.append(queue.start_read(words, flag.buffer))

    def finish(self) -> None:
        """Wait for the device, and copy the results from staging memory."""
        self._context.queue.finish()
        self._events.clear()  # not before: an event waits when it is destroyed
        for view, out in self._copies:
            out[0] = view.copy()
        for flag, words in self._flags:
            flag.note(words.copy())


def _place(result: _Result) -> int:
    """Return the first byte of a result in the buffer that is read."""
    memory = result.memory
    return result.begin + (memory.range.offset if isinstance(memory, ArenaBinding) else 0)


def _extent(group: Sequence[_Result]) -> tuple[int, int]:
    """Return the first byte of results in the buffer that is read, and the number of bytes."""
    low = min(_place(r) for r in group)
    return low, max(_place(r) + r.nbytes for r in group) - low


def _spans(results: Sequence[_Result]) -> list[list[_Result]]:
    """Divide results in the arena into groups that one command reads each."""
    groups: list[list[_Result]] = []
    for result in sorted(results, key=lambda r: (r.memory.range.number, _place(r))):
        group = groups[-1] if groups else [result]
        is_near = group[0].memory.range.number == result.memory.range.number
        if groups and is_near and _extent([*group, result])[1] <= MAX_SPAN:
            group.append(result)
        else:
            groups.append([result])
    return groups


def _together(actions: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Return a function that calls some, one after the other."""
    if len(actions) == 1:
        return actions[0]

    def call() -> None:
        for action in actions:
            action()

    return call
