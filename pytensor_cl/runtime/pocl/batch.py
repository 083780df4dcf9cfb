"""All kernels of a repeated call in one launch, for PoCL.

PoCL starts a kernel after the one before it has ended, and wakes its threads for each of them: 10 to 100 us on virtual
machines, in which all cores but one idle. `outline` gives kernels an entry, a function that finds its arguments in
memory. One kernel calls them all: its work-items, one for each core, take the work-items of one kernel after the other,
and go on with the next one as soon as those are done that it depends on. See docs/design/020-kernel-batch.md.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from math import prod
from time import monotonic, perf_counter, sleep
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from pytensor_cl.codegen.template import kernel_source
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.host_cpu import granted_cores
from pytensor_cl.runtime.interfaces import DeviceContext
from pytensor_cl.runtime.launch_capture import Launch
from pytensor_cl.runtime.pocl.builtin_headers import header
from pytensor_cl.runtime.pocl.worker_pool import (
    ALONE,
    CALLED,
    CORES,
    LAUNCHED,
    NUMBERS,
    TICKS,
    ParticipationTuner,
    WorkerPool,
)
from pytensor_cl.runtime.program import Kernel

__all__ = ["BatchBuilder", "BatchLauncher", "BatchedKernel", "Entry", "KernelBatch", "has_entries"]

MIN_BATCHED_KERNELS = 2
"""Smallest batch that pays if no call waits for it: a single kernel takes 2 to 5 us more from a table. If a call waits,
the host takes part, which pays for a single kernel too."""

_PATIENCE = 4096  # looks at a counter, about 0.2 ms, after which other programs are let in
_LOOKS = 128  # for a call, after which they are let in too
_RING = 4  # tables of a chain: calls that may be under way while the host prepares the next
_LATEST = 1.0  # seconds for which work-items that came late are waited for
_SHARES = 16  # of the items of a stage at most
_WORD, _LINE, _VALUE = 8, 64, 64
"""Bytes of an argument, and of a counter, and bytes at whose multiples a value lies."""
_WHO = slice(12, 16)
"""Among the arguments of the host: participants, number of the call, how many are called, and the host's own number."""


def has_entries(version: str) -> bool:
    """Whether kernels get entries: the PoCL of the wheel, whose driver version this is, on Linux and x86-64."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and header(version) is not None


class _Place(ctypes.Structure):
    """What the dynamic linker knows of an address: Dl_info."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _Library:
    """Keeps the library loaded in which an address is; PoCL unloads those that it has not used for long.

    Raises
    ------
    OSError
        There is none.
    """

    def __init__(self, address: int) -> None:
        process, place = ctypes.CDLL(None), _Place()
        if not process.dladdr(ctypes.c_void_p(address), ctypes.byref(place)):
            raise OSError("no library at this address")
        self._close, self._handle = process.dlclose, ctypes.c_void_p(ctypes.CDLL(os.fsdecode(place.file))._handle)

    def __del__(self) -> None:
        if hasattr(self, "_handle") and not sys.is_finalizing():
            self._close(self._handle)


class Entry:
    """A kernel that `BatchLauncher` can call, which stays loaded as long as this.

    Parameters
    ----------
    address
        Of its entry.
    parameters
        What its arguments are: see `outline.parameters_of`.
    """

    __slots__ = ("__weakref__", "_library", "address", "parameters")

    def __init__(self, address: int, parameters: str) -> None:
        self._library = _Library(address)
        self.address, self.parameters = address, parameters


class BatchLauncher:
    """Finds entries, and launches the kernel that calls them.

    Parameters
    ----------
    context
        An open context.
    access_modes
        Per kernel with an entry point its arguments' access modes (`outlining.access_modes_of`).
    stands_by
        Whether work-items stay for the next call, if it comes soon.
    """

    def __init__(self, context: DeviceContext, access_modes: Mapping[str, str], stands_by: bool) -> None:
        self.context, self._access_modes = context, access_modes
        self.units = min(context.cl_context.devices[0].max_compute_units, granted_cores())
        self._source = kernel_source("pocl/batch", patience=_PATIENCE, looks=_LOOKS, shares=_SHARES, cores=CORES)
        self._entries: WeakValueDictionary[str, Entry] = WeakValueDictionary()  # of kernels that something calls
        self._without: set[str] = set()  # kernels that have none
        self._own: Entry | None = None  # of the kernel that calls them
        self._host: Any = None
        self.standby = WorkerPool(context.cl_context, context.views, self.units - 1, TICKS if stands_by else 0)
        context.queue.hooks = self.standby

    def _entry(self, launch: Launch) -> Entry | None:
        """Return the entry of a kernel that was launched; None if it has none."""
        name = launch.kernel.function_name
        entry = self._entries.get(name)
        if entry is None and name not in self._without:
            parameters = self._access_modes.get(name, "")
            is_known = len(parameters) == len(launch.arguments)
            entry = self._found(launch, parameters) if is_known else None
            if entry is None:
                self._without.add(name)
            else:
                self._entries[name] = entry
        return entry

    def _found(self, launch: Launch, parameters: str) -> Entry | None:
        """Launch a kernel so that it tells its address."""
        twin, memory = Kernel.twin(launch.kernel), np.zeros(16, np.uint64)
        for index, nbytes in enumerate(_sizes([launch.arguments])[0]):
            if nbytes:
                twin.set_bytes(index, bytes(nbytes))
            else:
                twin.set_buffer(index, None)
        told = cl.Buffer(self.context.cl_context, cl.mem_flags.USE_HOST_PTR, hostbuf=memory)
        twin.set_buffer(len(parameters), told)
        queue = self.context.queue
        queue.enqueued()  # those that stand by would be waited for
        cl.enqueue_nd_range_kernel(queue.handle, twin.handle, (1,), (1,))
        queue.drain()
        try:
            return Entry(int(memory[0]), parameters)
        except OSError:
            return None

    def kernel(self) -> Any:
        """Return a new object of the kernel that calls entries."""
        kernel = self.context.kernel(self._source)
        kernel.complete(9)
        kernel.set_buffer(6, self.standby.places)
        return kernel

    def host(self) -> Any:
        """Return what lets the calling thread take part, with two addresses: of arguments and of six numbers.

        None if the kernel that calls the others has no entry: then nothing can be called.
        """
        if self._host is None and self._own is None:
            first, places = (None, np.uint64(0)), (None, np.uint32(0), np.uint64(0))
            arguments = *first, np.uint32(0), np.uint32(0), None, np.uint64(0), *places
            self._own = self._entry(Launch(self.kernel().handle, (1,), (1,), arguments))
            if self._own is not None:
                self._host = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)(self._own.address)
        return self._host

    def entries(self, launches: Sequence[Launch]) -> list[Entry] | None:
        """Return the entries of kernels that are launched, which stay as long as the list; None if one has none."""
        if not all(_is_single(x.local_size) for x in launches):
            return None
        found = [entry for x in launches if (entry := self._entry(x)) is not None]
        return found if len(found) == len(launches) and self.host() is not None else None

    def begin(self, launches: Sequence[Launch], is_waited_for: bool) -> "BatchBuilder | None":
        """Return a builder for batches of these launches.

        None if a kernel has no entry point, or if there are too few kernels to pay. `is_waited_for` tells whether
        calls wait for the batches.
        """
        fewest = 1 if is_waited_for else MIN_BATCHED_KERNELS
        entries = self.entries(launches) if len(launches) >= fewest else None
        return None if entries is None else BatchBuilder(self, entries)

    def stage(self, launch: Launch) -> "BatchedKernel":
        """Return what calls a kernel that can be called."""
        entry = self._entry(launch)
        assert entry is not None
        return BatchedKernel(launch, entry)


class BatchBuilder:
    """Makes batches of kernels with entry points.

    Parameters
    ----------
    launcher
        Of the context.
    entries
        Entry points of the kernels, which are kept meanwhile.
    """

    uses_addresses = True

    def __init__(self, launcher: BatchLauncher, entries: Sequence[Entry]) -> None:
        self._launcher, self._entries = launcher, entries

    def add(self, launch: Launch) -> "BatchedKernel":
        """Return a new kernel for a launch, with the launch's by-value arguments and no buffers."""
        return self._launcher.stage(launch)

    def finish(self, kernels: Sequence["BatchedKernel"], depends_on: Sequence[int]) -> "KernelBatch":
        """Return a batch (`SequenceBuilder.finish`)."""
        return KernelBatch(self._launcher, kernels, depends_on)


def _is_single(local_size: tuple[int, ...] | None) -> bool:
    return local_size is not None and prod(local_size) == 1


class BatchedKernel:
    """Sets the arguments of a kernel that is called by its entry, as a `Kernel` does.

    Parameters
    ----------
    launch, entry
        What is called.

    Attributes
    ----------
    fixed
        By position, buffers that never change.
    """

    __slots__ = ("_chain", "_first", "_values", "entry", "fixed", "launch")

    def __init__(self, launch: Launch, entry: Entry) -> None:
        self.launch, self.entry = launch, entry
        self.fixed: dict[int, Any] = {}

    @property
    def access_modes(self) -> str:
        """One letter per argument (`outlining.access_modes_of`)."""
        return self.entry.parameters

    def bind(self, index: int, buffer: Any) -> None:
        """Set a pointer argument that stays the same in all runs."""
        self.fixed[index] = buffer

    def settle(self, chain: "KernelBatch", first: int, values: dict[int, memoryview]) -> None:
        """Be a part of a chain, with arguments from a word of its table on, and values there."""
        self._chain, self._first, self._values = chain, first, values
        for index, buffer in self.fixed.items():
            self.set_buffer(index, buffer)
        for index in values:
            self.set_bytes(index, self.launch.arguments[index])

    def set_buffer(self, index: int, buffer: Any) -> None:
        """Set a pointer argument."""
        self._chain.words[self._first + index] = self._chain.address(buffer)

    def argument_word(self, index: int) -> tuple[np.ndarray, int]:
        """Return the array and the index of the word that holds the address of an argument."""
        return self._chain.words, self._first + index

    def set_bytes(self, index: int, value: Any) -> None:
        """Set a value."""
        self._values[index][:] = value if type(value) is bytes else value.tobytes()


class KernelBatch:
    """Kernels that run one after the other, in one launch.

    The host changes arguments in a table of its own. A launch gets a copy of it, one of a few, so that a call can be
    prepared while those before it are under way.

    Parameters
    ----------
    dispatcher
        Of the context.
    stages
        What is called.
    after
        Per stage, the number of the last one that must be over before; -1 if none.

    Attributes
    ----------
    words
        The table: of each stage what `dispatch.mako` calls one, then its arguments and values.
    """

    def __init__(self, dispatcher: BatchLauncher, stages: Sequence[BatchedKernel], after: Sequence[int]) -> None:
        self._context, self._standby = dispatcher.context, dispatcher.standby
        self._tables = self._counters = None
        self._counts = np.empty((0, 1), np.uint32)
        self._entries = [stage.entry for stage in stages]
        self._views = self._context.views
        self._count = len(stages)
        self._last: tuple[Any, int] = None, 0
        firsts, places, total = _outlay(_sizes([s.launch.arguments for s in stages]), _VALUE * self._count)
        self.words = np.zeros(total // _WORD, np.uint64)
        memory = memoryview(self.words).cast("B")
        shapes = [(*s.launch.global_size, 1, 1)[:3] for s in stages]
        for k, (stage, first, shape) in enumerate(zip(stages, firsts, shapes, strict=True)):
            head = stage.entry.address, first, *shape, prod(shape), after[k] % (1 << 64)
            self.words[8 * k : 8 * k + len(head)] = head
            values = {i: memory[begin : begin + nbytes] for i, (begin, nbytes) in places[k].items()}
            for i, (begin, _) in places[k].items():
                self.words[first // _WORD + i] = begin - first
            stage.settle(self, first // _WORD, values)
        self._participants = min(max(map(prod, shapes)), dispatcher.units)
        self._make_ring(dispatcher)
        self._team = ParticipationTuner(self._participants - 1)

    def _make_ring(self, dispatcher: BatchLauncher) -> None:
        """Allocate the tables that launches read, and the counters."""
        nbytes = self.words.nbytes
        pitch = _LINE * (1 + (1 + min(_SHARES, self._participants)) * self._count)
        flags = cl.mem_flags.READ_WRITE
        self._tables = cl.Buffer(self._context.cl_context, flags, _RING * nbytes)
        self._counters = cl.Buffer(
            self._context.cl_context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(_RING * pitch, np.uint8)
        )
        memory = self._views.memory_of(self._tables).view(np.uint64).reshape(_RING, -1)
        self._ring = [memory[r] for r in range(_RING)]
        self._counts = self._views.memory_of(self._counters).view(np.uint32).reshape(_RING, -1)
        self._begins = [(np.uint64(r * nbytes), np.uint64(r * pitch // 4)) for r in range(_RING)]
        self._events: list[Any] = [None] * _RING
        self._ways = [ALONE] * _RING
        self._turn = 0
        self._kernel = kernel = dispatcher.kernel()
        kernel.set_buffer(0, self._tables)
        kernel.set_bytes(2, np.uint32(self._count))
        kernel.set_buffer(4, self._counters)
        self._host = dispatcher.host()
        self._host_arguments = [self._arguments_of_host(*begins) for begins in self._begins]
        self._host_addresses = [int(a.__array_interface__["data"][0]) for a in self._host_arguments]

    def _arguments_of_host(self, begin: np.uint64, first_counter: np.uint64) -> np.ndarray:
        """Return the arguments of the kernel's own entry: two addresses, and where the values are, which follow."""
        tables, counters = (int(m.__array_interface__["data"][0]) for m in (self._ring[0], self._counts))
        pointers = tables, 72, 80, 96, counters, 88, self._standby.address, 104, 112
        words = [*pointers, begin, self._count, first_counter, 1, 0, 0, 0, 0, 0, 0, 1, 1]
        return np.array(words, np.uint64)

    def __del__(self) -> None:
        """Leave the tables to those who may still look at them."""
        if hasattr(self, "_counts"):  # not where a signal interrupts the very first steps
            self._standby.leave(self._counts, (self._tables, self._counters, self._entries))

    def address(self, buffer: Any) -> int:
        """Return where a buffer is; arguments of several kernels are often set to the same one."""
        if buffer is None:
            return 0
        last = self._last
        if last[0] is buffer:
            return last[1]
        address = self._views.address(buffer)
        self._last = buffer, address
        return address

    def __len__(self) -> int:
        return self._count

    launches = 1

    def submit(self, keep: Sequence[Any], buffers: Sequence[Any]) -> None:
        """Enqueue the kernels with the arguments that are set now.

        Parameters
        ----------
        keep
            What must stay until they ran.
        buffers
            Whose memory must, though the pool may have them for commands after these.
        """
        turn, queue = self._prepare(), self._context.queue
        used = self, keep, [self._views.keeper(buffer) for buffer in buffers]
        try:
            queue.hold(self._enqueue(turn, self._participants, self._participants), used)
        except BaseException:  # a signal: what was enqueued must not outlive what it uses
            queue.drain()
            raise

    def run_and_wait(self) -> None:
        """Run the kernels, and whatever was enqueued before, to the end; this thread takes part."""
        queue, standby, team = self._context.queue, self._standby, self._team
        if queue.pending:
            queue.finish()
        turn = self._prepare()
        mine, inside, began = object(), standby.inside, perf_counter()
        try:
            inside.append(mine)
            is_soon = standby.begin(began)
            way = ALONE
            if team.most:
                way = team.choose(standby.are_ready(team.most), is_soon, standby.is_crowded())
            if way == CALLED or way != self._ways[turn]:
                self._tell_host(turn, way)
            if way == LAUNCHED:
                ticks = standby.stay() if team.keeps(is_soon) and not queue.pending else 0
                self._enqueue(turn, team.most, team.most + 1, ticks)
                self._events[turn] = None  # which comes when nobody stands by any more
            address = self._host_addresses[turn]
            self._host(address, address + 120)
        except BaseException:  # a signal, before this thread or after it took part
            try:
                queue.drain()
            finally:  # even if one more comes
                self._counts[turn] = 0
            raise
        finally:  # a signal may come at the end, too
            if mine in inside:
                inside.remove(mine)
            standby.end()
        team.took(way, perf_counter() - began)
        queue.settle()

    def _tell_host(self, turn: int, way: str) -> None:
        """Set what differs between the ways in the arguments of the host's part."""
        workers = 0 if way == ALONE else self._team.most
        called = (next(self._standby.numbers) % NUMBERS, workers, 0) if way == CALLED else (0, 0, workers)
        self._ways[turn] = ""  # until it is done: a signal may come
        self._host_arguments[turn][_WHO] = workers + 1, *called
        self._ways[turn] = way

    def _prepare(self) -> int:
        """Copy the table to one that no launch under way reads; return which."""
        self._last = None, 0
        turn = self._turn
        self._turn = (turn + 1) % _RING
        event = self._events[turn]
        if event is not None and event.command_execution_status != cl.command_execution_status.COMPLETE:
            event.wait()
        if self._counts[turn, 0]:
            self._wait_for_late_ones(turn)
        self._ring[turn][:] = self.words
        return turn

    def _wait_for_late_ones(self, turn: int) -> None:
        """Wait until work-items that came late are through with a table, at the latest until nothing runs any more."""
        end = monotonic() + _LATEST
        while self._counts[turn, 0]:
            if monotonic() > end:
                self._context.queue.drain()
                self._counts[turn] = 0
                break
            sleep(0)

    def _enqueue(self, turn: int, size: int, participants: int, ticks: int = 0) -> "cl.Event":
        """Launch work-items, of which there may be more participants; they stand by afterwards for some ticks."""
        kernel, (begin, first_counter) = self._kernel, self._begins[turn]
        kernel.set_bytes(1, begin)
        kernel.set_bytes(3, np.uint32(participants))
        kernel.set_bytes(5, first_counter)
        number, stay = self._standby.launch(ticks, size)
        kernel.set_bytes(7, np.uint32(number))
        kernel.set_bytes(8, np.uint64(stay))
        queue = self._context.queue.handle
        event = self._events[turn] = cl.enqueue_nd_range_kernel(queue, kernel.handle, (size,), (1,))
        self._standby.launched(number)
        return event


def _sizes(launches: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Return the bytes of each argument that is passed by value; 0 for pointers."""
    return [
        [len(a) if isinstance(a, bytes) else a.nbytes if isinstance(a, np.generic) else 0 for a in arguments]
        for arguments in launches
    ]


def _outlay(sizes: Sequence[Sequence[int]], begin: int) -> tuple[list[int], list[dict[int, tuple[int, int]]], int]:
    """Return where the arguments of each stage begin, where its values are and how long, and the end of it all."""
    firsts: list[int] = []
    values: list[dict[int, tuple[int, int]]] = []
    for stage in sizes:
        firsts.append(begin)
        begin = _up(begin + _WORD * len(stage))
        values.append({})
        for i, nbytes in enumerate(stage):
            if nbytes:
                values[-1][i] = begin, nbytes
                begin = _up(begin + nbytes)
    return firsts, values, begin


def _up(count: int) -> int:
    return -(-count // _VALUE) * _VALUE
