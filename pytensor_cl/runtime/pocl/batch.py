"""Kernel batches: all kernels of a replayed call in one launch, and the threads that run them.

Why. PoCL starts a kernel when the one before it has ended, and wakes its threads for each. On virtual machines this
takes 10 to 100 us, during which all cores but one idle. A batch is one launch of one kernel, the batch kernel
(``kernels/pocl/batch.mako``), which calls the kernels of a call one after the other by their addresses
(`entry_points`). Measurements are in docs/design/020-kernel-batch.md.

Threads. The *host thread* is the Python thread that makes a call. *Workers* are PoCL's threads, one for each core; each
runs one work-item of the batch kernel. The host thread calls the batch kernel as a C function (ctypes, without the
interpreter's lock), so it computes like a worker. The threads of a call are its *participants*.

What participants share. The *table* of a batch has for each kernel a head (entry point, NDRange, dependency), its
arguments and its values. `KernelBatch.words` is the host's copy; `_fill_slot` copies it to one of four *slots* for each
call, so that a call can be prepared while earlier ones run. A slot has *counters*: how many participants have finished,
and for each kernel how many of its work-items are taken and done. The work-items of a kernel are divided into shares;
each participant begins with the same share in every kernel, because its core's cache has what it wrote there, and then
helps with the others. It takes work-items of a kernel only when those kernels have ended that it depends on, and holds
none while it waits: so one participant alone gets through the whole batch, however late the others come. The last one
to finish sets all counters to zero. A worker that PoCL wakes *late*, after the host thread has done everything, still
reads the counters: a slot is used again only when they are zero, and freed memory is kept until then
(`WorkerPool.defer_free`).

Thread modes. A call has one of three:

- ``HOST_ONLY``: the host thread alone, for calls of a few microseconds;
- ``NEW_WORKERS``: a launch of the batch kernel. It takes 60 to 90 us until the first worker begins;
- ``PARKED_WORKERS``: workers of an earlier launch. A worker whose work-item is done may be *parked*: it polls its
  mailbox, with its core busy, for about 0.3 ms. The host thread writes the next job there, without a launch.

`thread_mode` chooses the mode of each call by measured times. Workers are parked in a *burst*, that is when calls of
one thread follow one another within 0.25 ms, as in a sampler's loop. They leave when no call comes, and when anything
else is enqueued (`WorkerPool.on_submit`), because PoCL would wait for them.

A call (`KernelBatch.run_and_wait`) in order:

1. wait for commands that are pending on the queue; fill a slot;
2. choose the mode; for ``NEW_WORKERS`` enqueue the batch kernel, for ``PARKED_WORKERS`` note in the host's arguments
   how many workers to call;
3. call the batch kernel in the host thread. It hands jobs to parked workers, takes part, and returns when all kernels
   have ended. Workers that have not begun by then are taken off the count of participants;
4. record the time for the choice of the next call's mode.

`KernelBatch.submit` is the other way to run a batch, for calls that nobody waits for: a launch, with an event.

Signals. A Python exception (Ctrl-C) can arrive between any two statements. Then `run_and_wait` waits for the device and
sets the slot's counters to zero: no worker is left, and the next call finds the slot as it should be.

Files. This one: tables, slots, calls. `worker_pool`: mailboxes, bursts, releasing workers; ``worker_pool.mako`` is the
other side. `thread_mode`: the choice. `affinity`: which cores PoCL's threads may use. `entry_points`: addresses.
Invariants that the kernels rely on stand at the top of ``batch.mako``.
"""

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from time import monotonic, perf_counter, sleep
from typing import Any

import numpy as np

from pytensor_cl.codegen.template import kernel_source
from pytensor_cl.integers import round_up
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.host_cpu import granted_cores
from pytensor_cl.runtime.interfaces import ContextOptions, DeviceContext
from pytensor_cl.runtime.interrupts import LONG_WAIT_SECONDS
from pytensor_cl.runtime.launch_capture import Launch
from pytensor_cl.runtime.pocl.entry_points import EntryPoint, EntryPoints, value_sizes
from pytensor_cl.runtime.pocl.thread_mode import HOST_ONLY, NEW_WORKERS, PARKED_WORKERS, ThreadModeTuner
from pytensor_cl.runtime.pocl.worker_pool import CALL_NUMBERS, MAX_CORES, PARKED_CYCLES, WorkerPool

MIN_BATCHED_KERNELS = 2
"""Kernels of a batch from which it is faster than single launches, if no call waits for it: one kernel takes 2 to 5 us
more in a batch. If a call waits, the host's thread runs work-items too, and a batch of one kernel is faster."""
_SPINS_BEFORE_YIELD = 4096  # polls of a counter, about 0.2 ms, after which a thread yields its core
_POLLS_BEFORE_YIELD = 128  # polls for the next call, after which a parked worker yields its core
_SLOT_COUNT = 4  # copies of a batch's table, so that a call can be prepared while earlier ones run
_LATE_WORKER_SECONDS = 1.0  # time `_fill_slot` polls for late workers before it waits for the device
_MAX_SHARES = 16  # parts into which the work-items of a kernel are divided
_WORD, _LINE, _VALUE = 8, 64, 64
"""Bytes of an argument, of a counter (a cache line), and the alignment of values."""
_KERNEL_WORDS = 8  # words of a kernel's head: entry, arguments, three sizes, items, dependency, unused

# The host thread passes these to the entry point of the batch kernel: for each of its nine arguments the address, or
# the distance to its value; then the values; then global ids and sizes. A size of 0 says that it is the host thread.
_HOST_CALL = np.dtype(
    [
        ("arguments", "u8", 9),
        ("table_begin", "u8"),
        ("kernel_count", "u8"),
        ("first_counter", "u8"),
        ("participants", "u8"),
        ("call_number", "u8"),
        ("called_workers", "u8"),
        ("global_id", "u8", 3),
        ("global_size", "u8", 3),
    ]
)


def _offset(field: str) -> int:
    """Return the byte offset of a field of `_HOST_CALL`."""
    assert _HOST_CALL.fields is not None
    return int(_HOST_CALL.fields[field][1])


_GLOBAL_ID = _offset("global_id")
_PER_CALL_WORDS = slice(_offset("participants") // _WORD, _GLOBAL_ID // _WORD + 1)
"""Words of `_HOST_CALL` that differ from call to call: participants, call number, called workers, the host's index."""


class BatchLauncher:
    """Makes the batches of a context, and has the workers that run them.

    `access_modes` has a letter for each argument of a kernel with an entry point (`outlining.access_modes_of`).
    `max_threads` counts the host thread too.
    """

    def __init__(self, context: DeviceContext, access_modes: Mapping[str, str], options: ContextOptions) -> None:
        self.context = context
        self.max_threads = min(context.cl_context.devices[0].max_compute_units, granted_cores())
        self.entry_points = EntryPoints(context, access_modes)
        self._source = kernel_source(
            "pocl/batch",
            spins=_SPINS_BEFORE_YIELD,
            polls=_POLLS_BEFORE_YIELD,
            max_shares=_MAX_SHARES,
            max_cores=MAX_CORES,
            flushes_subnormals=options.flushes_subnormals,
        )
        self._own_entry: EntryPoint | None = None
        self._host_entry: Any = None
        spin_cycles = PARKED_CYCLES if options.park_workers else 0
        self.workers = WorkerPool(context.cl_context, context.mappings, self.max_threads - 1, spin_cycles)
        context.queue.hooks = self.workers

    def begin(self, launches: Sequence[Launch], is_waited_for: bool) -> "BatchBuilder | None":
        """Return a builder for batches of these launches; None if one has no entry point, or there are too few.

        `is_waited_for` says whether calls wait for the batches.
        """
        if len(launches) < (1 if is_waited_for else MIN_BATCHED_KERNELS):
            return None
        entries = self.entry_points.find_all(launches)
        return None if entries is None or self.host_entry() is None else BatchBuilder(self, entries)

    def new_kernel(self) -> Any:
        """Return a new object of the batch kernel."""
        kernel = self.context.kernel(self._source)
        kernel.null_trailing_arguments(9)
        kernel.set_buffer(6, self.workers.mailboxes)
        return kernel

    def host_entry(self) -> Any:
        """Return the batch kernel's entry point as a function of two addresses: of arguments, of ids and sizes.

        None if it has none. Then there are no batches.
        """
        if self._host_entry is None and self._own_entry is None:
            table, counters, mailboxes = (None, np.uint64(0)), (None, np.uint64(0)), (None, np.uint32(0), np.uint64(0))
            arguments = *table, np.uint32(0), np.uint32(0), *counters, *mailboxes
            self._own_entry = self.entry_points.find(Launch(self.new_kernel().handle, (1,), (1,), arguments))
            if self._own_entry is not None:
                self._host_entry = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)(self._own_entry.address)
        return self._host_entry


class BatchBuilder:
    """Makes batches of kernels that have entry points, which it keeps until the kernels have them."""

    uses_addresses = True

    def __init__(self, launcher: BatchLauncher, entries: Sequence[EntryPoint]) -> None:
        self._launcher, self._entries = launcher, entries

    def add(self, launch: Launch) -> "BatchedKernel":
        """Return a new kernel for a launch, with the launch's by-value arguments and no buffers."""
        entry = self._launcher.entry_points.find(launch)
        assert entry is not None
        return BatchedKernel(launch, entry)

    def finish(
        self,
        kernels: Sequence["BatchedKernel"],
        depends_on: Sequence[int],
        groups: Sequence[Sequence[int]] | None = None,
    ) -> "KernelBatch":
        """Return a batch (`SequenceBuilder.finish`)."""
        return KernelBatch(self._launcher, kernels, depends_on)


class BatchedKernel:
    """A kernel of a batch: it repeats a launch, with arguments of its own."""

    __slots__ = ("_batch", "_constant_buffers", "_first_word", "_values", "entry", "launch")

    def __init__(self, launch: Launch, entry: EntryPoint) -> None:
        self.launch, self.entry = launch, entry
        self._constant_buffers: dict[int, Any] = {}

    @property
    def access_modes(self) -> str:
        """One letter per argument (`outlining.access_modes_of`)."""
        return self.entry.access_modes

    def bind(self, index: int, buffer: Any) -> None:
        """Set a pointer argument that stays the same in all runs; called before the kernel is in a batch."""
        self._constant_buffers[index] = buffer

    def place(self, batch: "KernelBatch", first_word: int, values: dict[int, memoryview]) -> None:
        """Join a batch: arguments begin at `first_word` of its table, `values` are the bytes of by-value ones."""
        self._batch, self._first_word, self._values = batch, first_word, values
        for index, buffer in self._constant_buffers.items():
            self.set_buffer(index, buffer)
        for index in values:
            self.set_bytes(index, self.launch.arguments[index])

    def set_buffer(self, index: int, buffer: Any) -> None:
        """Set a pointer argument."""
        self._batch.words[self._first_word + index] = self._batch.address_of(buffer)

    def argument_word(self, index: int) -> tuple[np.ndarray, int]:
        """Return the array and the index of the word that holds the address of an argument."""
        return self._batch.words, self._first_word + index

    def set_bytes(self, index: int, value: Any) -> None:
        """Set an argument that is passed by value."""
        self._values[index][:] = value if type(value) is bytes else value.tobytes()


class KernelBatch:
    """Kernels that run in one launch, in order.

    `depends_on` has for each kernel the index of the last one that must have ended when it begins, or -1. `words` is
    the table: a head for each kernel (``*_kernel`` in ``kernels/pocl/batch.mako``), then arguments and values.
    """

    launches = 1

    def __init__(self, launcher: BatchLauncher, kernels: Sequence[BatchedKernel], depends_on: Sequence[int]) -> None:
        self._context, self._workers = launcher.context, launcher.workers
        self._tables = self._counter_buffer = None
        self._counters = np.empty((0, 1), np.uint32)
        self._entries = [kernel.entry for kernel in kernels]
        self._mappings = self._context.mappings
        self._count = len(kernels)
        self._last_address: tuple[Any, int] = None, 0
        layout = _TableLayout([value_sizes(kernel.launch.arguments) for kernel in kernels])
        self.words = np.zeros(layout.nbytes // _WORD, np.uint64)
        memory = memoryview(self.words).cast("B")
        shapes = [(*kernel.launch.global_size, 1, 1)[:3] for kernel in kernels]
        for k, (kernel, shape) in enumerate(zip(kernels, shapes, strict=True)):
            first = layout.arguments[k]
            head = kernel.entry.address, first, *shape, prod(shape), depends_on[k] % (1 << 64)  # -1 as unsigned
            self.words[_KERNEL_WORDS * k : _KERNEL_WORDS * k + len(head)] = head
            for i, (begin, _) in layout.values[k].items():
                self.words[first // _WORD + i] = begin - first
            values = {i: memory[begin : begin + nbytes] for i, (begin, nbytes) in layout.values[k].items()}
            kernel.place(self, first // _WORD, values)
        self._max_threads = min(max(map(prod, shapes)), launcher.max_threads)
        self._allocate_slots(launcher)
        self._tuner = ThreadModeTuner(self._max_threads - 1)

    def _allocate_slots(self, launcher: BatchLauncher) -> None:
        """Allocate the tables that launches read, and their counters."""
        nbytes = self.words.nbytes
        pitch = _LINE * (1 + (1 + min(_MAX_SHARES, self._max_threads)) * self._count)
        flags = cl.mem_flags.READ_WRITE
        self._tables = cl.Buffer(self._context.cl_context, flags, _SLOT_COUNT * nbytes)
        zeros = np.zeros(_SLOT_COUNT * pitch, np.uint8)
        self._counter_buffer = cl.Buffer(self._context.cl_context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=zeros)
        memory = self._mappings.memory_of(self._tables).view(np.uint64).reshape(_SLOT_COUNT, -1)
        self._slots = [memory[s] for s in range(_SLOT_COUNT)]
        self._counters = self._mappings.memory_of(self._counter_buffer).view(np.uint32).reshape(_SLOT_COUNT, -1)
        self._begins = [(np.uint64(s * nbytes), np.uint64(s * pitch // 4)) for s in range(_SLOT_COUNT)]
        self._events: list[Any] = [None] * _SLOT_COUNT
        self._slot_modes = [HOST_ONLY] * _SLOT_COUNT  # mode that the host's arguments are set for
        self._next_slot = 0
        self._kernel = kernel = launcher.new_kernel()
        kernel.set_buffer(0, self._tables)
        kernel.set_bytes(2, np.uint32(self._count))
        kernel.set_buffer(4, self._counter_buffer)
        self._host_entry = launcher.host_entry()
        self._host_words = [self._host_call(*begins) for begins in self._begins]
        self._host_addresses = [int(words.__array_interface__["data"][0]) for words in self._host_words]

    def _host_call(self, table_begin: np.uint64, first_counter: np.uint64) -> np.ndarray:
        """Return the words of a `_HOST_CALL` for a slot, with the host as the only participant."""
        table, counters = (int(m.__array_interface__["data"][0]) for m in (self._slots[0], self._counters))
        call = np.zeros(1, _HOST_CALL)
        call["arguments"] = (
            table,
            _offset("table_begin"),
            _offset("kernel_count"),
            _offset("participants"),
            counters,
            _offset("first_counter"),
            self._workers.address,
            _offset("call_number"),
            _offset("called_workers"),
        )
        call["table_begin"], call["kernel_count"], call["first_counter"] = table_begin, self._count, first_counter
        call["participants"], call["global_size"] = 1, (0, 1, 1)
        return call.view(np.uint64)

    def __del__(self) -> None:
        """Leave tables and counters to workers that may still read them."""
        if hasattr(self, "_counters"):  # false if a signal interrupted the first statements
            self._workers.defer_free(self._counters, (self._tables, self._counter_buffer, self._entries))

    def __len__(self) -> int:
        return self._count

    def address_of(self, buffer: Any) -> int:
        """Return the address of a buffer. The last one is kept: kernels in a row often have an argument in common."""
        if buffer is None:
            return 0
        last = self._last_address
        if last[0] is buffer:
            return last[1]
        address = self._mappings.address(buffer)
        self._last_address = buffer, address
        return address

    def submit(self, keep: Sequence[Any], buffers: Sequence[Any]) -> None:
        """Enqueue the kernels with the arguments that are set now (`LaunchSequence.submit`)."""
        slot, queue = self._fill_slot(), self._context.queue
        used = self, keep, [self._mappings.retain(buffer) for buffer in buffers]
        try:
            queue.keep_until_event(self._enqueue(slot, self._max_threads, self._max_threads), used)
        except BaseException:  # a signal: what was enqueued must end before its buffers are freed
            queue.finish_raw()
            raise

    def run_and_wait(self) -> None:
        """Run the kernels, and all commands enqueued before them, to the end, in the calling thread too."""
        queue, workers, tuner = self._context.queue, self._workers, self._tuner
        if queue.has_pending:  # this thread would compute before commands that are enqueued
            queue.finish()
        slot = self._fill_slot()
        caller, callers, began = object(), workers.active_callers, perf_counter()
        try:
            callers.append(caller)
            is_burst = workers.begin_call(began)
            mode = HOST_ONLY
            if tuner.max_workers:
                mode = tuner.choose(workers.are_parked(tuner.max_workers), is_burst, workers.is_contended())
            if mode == PARKED_WORKERS or mode != self._slot_modes[slot]:
                self._write_call(slot, mode)
            if mode == NEW_WORKERS:
                # PoCL runs a pending command only when no worker is parked any more.
                is_parking = tuner.parks_workers(is_burst) and not queue.has_pending
                self._enqueue(slot, tuner.max_workers, 1 + tuner.max_workers, workers.parking_cycles() * is_parking)
                self._events[slot] = None  # the launch ends only when no worker is parked any more
            address = self._host_addresses[slot]
            self._host_entry(address, address + _GLOBAL_ID)  # takes part; returns when all kernels have ended
        except BaseException:  # a signal, before this thread took part or after it
            try:
                queue.finish_raw()
            finally:  # even if a second signal arrives
                self._counters[slot] = 0
            raise
        finally:  # a signal may arrive here, too
            if caller in callers:
                callers.remove(caller)
            workers.end_call()
        seconds = perf_counter() - began
        tuner.record(mode, seconds)
        if seconds > LONG_WAIT_SECONDS:
            queue.expect_long_wait()
        queue.end_wait()

    def _write_call(self, slot: int, mode: str) -> None:
        """Set the host's arguments that depend on the participating threads."""
        workers = 0 if mode == HOST_ONLY else self._tuner.max_workers
        is_parked = mode == PARKED_WORKERS
        call = (next(self._workers.call_numbers) % CALL_NUMBERS, workers, 0) if is_parked else (0, 0, workers)
        self._slot_modes[slot] = ""  # until the words are written: a signal may arrive
        self._host_words[slot][_PER_CALL_WORDS] = workers + 1, *call
        self._slot_modes[slot] = mode

    def _fill_slot(self) -> int:
        """Copy the table to a slot that no launch reads; return the slot's number."""
        self._last_address = None, 0  # a batch must keep no buffer alive between calls
        slot = self._next_slot
        self._next_slot = (slot + 1) % _SLOT_COUNT
        event = self._events[slot]
        if event is not None and event.command_execution_status != cl.command_execution_status.COMPLETE:
            event.wait()
        if self._counters[slot, 0]:
            self._wait_for_late_workers(slot)
        self._slots[slot][:] = self.words
        return slot

    def _wait_for_late_workers(self, slot: int) -> None:
        """Wait until workers that came late have left a slot, at the latest until nothing runs on the device."""
        end = monotonic() + _LATE_WORKER_SECONDS
        while self._counters[slot, 0]:
            if monotonic() > end:
                self._context.queue.finish_raw()
                self._counters[slot] = 0
                break
            sleep(0)

    def _enqueue(self, slot: int, size: int, participants: int, spin_cycles: int = 0) -> "cl.Event":
        """Launch workers, besides which there may be one more participant; they are parked afterwards for some time."""
        kernel, (table_begin, first_counter) = self._kernel, self._begins[slot]
        kernel.set_bytes(1, table_begin)
        kernel.set_bytes(3, np.uint32(participants))
        kernel.set_bytes(5, first_counter)
        number, spin_cycles = self._workers.begin_launch(spin_cycles, size)
        kernel.set_bytes(7, np.uint32(number))
        kernel.set_bytes(8, np.uint64(spin_cycles))
        queue = self._context.queue.handle
        event = self._events[slot] = cl.enqueue_nd_range_kernel(queue, kernel.handle, (size,), (1,))
        self._workers.end_launch(number)
        return event


class _TableLayout:
    """Byte offsets in the table of a batch, from the sizes of each kernel's values (0 for a pointer).

    `arguments` has where each kernel's arguments begin, `values` the offset and size of each value by the argument's
    index, `nbytes` the size of the table.
    """

    def __init__(self, sizes: Sequence[Sequence[int]]) -> None:
        self.arguments: list[int] = []
        self.values: list[dict[int, tuple[int, int]]] = []
        end = _KERNEL_WORDS * _WORD * len(sizes)
        for kernel in sizes:
            self.arguments.append(end)
            end = round_up(end + _WORD * len(kernel), _VALUE)
            values = {}
            for index, nbytes in enumerate(kernel):
                if nbytes:
                    values[index] = end, nbytes
                    end = round_up(end + nbytes, _VALUE)
            self.values.append(values)
        self.nbytes = end
