"""Locks of functions: one call of a function at a time, and one update of a shared variable.

PyTensor's `Function.__call__` keeps arguments and results of a call in the function, so a second call must not begin
before the first one has ended. `SerialFunction` sets and clears `held` itself, since a call of a small function
takes a microsecond. The code here runs when several threads call at once, or when a call calls the function again.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock, RLock
from time import monotonic
from types import FrameType
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from pytensor_cl._compat.serial_function import SerialFunction
from pytensor_cl.forks import at_fork
from pytensor_cl.linker.types import Cell

POLL_SECONDS = 0.05
"""Seconds after which a waiting thread checks again: a signal may have interrupted the thread that was to wake it."""
HANDOVER_AFTER, HANDOVER_SECONDS = 5e-3, 5e-3
"""Seconds after which a waiting thread gets the lock next, and for how many seconds a releasing thread waits for that.
A thread that calls in a loop would take the lock again before another one runs."""

Run = Callable[..., Any]


class _Waiter:
    """A thread that waits for a lock."""

    __slots__ = ("ended", "since", "woken")

    def __init__(self) -> None:
        self.since = monotonic()  # when the wait began, in seconds
        # Released when the thread shall check, and when its wait has ended
        self.woken, self.ended = Lock(), Lock()
        self.woken.acquire()
        self.ended.acquire()

    def wake(self) -> None:
        """Make the thread check whether the lock is free."""
        try:
            self.woken.release()
        except RuntimeError:  # it has been woken, and has not checked yet
            pass


class CallLock:
    """The lock of a function, or of some that update the same shared variables."""

    __slots__ = ("__weakref__", "held", "waiting")

    def __init__(self) -> None:
        # Whether a call runs. The code that finds it false sets it in the next line, and CPython switches no thread in
        # between (`SerialFunction`).
        self.held = False
        self.waiting: deque[_Waiter] = deque()  # the threads that wait for it, in order
        _locks.add(self)

    @property
    def locks(self) -> "tuple[CallLock, ...]":
        """This lock alone; see `CallLocks`."""
        return (self,)

    def wait(self, function: SerialFunction, action: Run | None = None) -> Run | None:
        """Wait until the lock may be free; return a function for the call if this thread has the lock already.

        An `action` runs instead of a call of the function.
        """
        frame = sys._getframe(1).f_back  # without the call that waits
        if self.is_held_above(frame):
            return action or _nested(function, frame)
        self.wait_until_free()
        return None

    def wait_until_free(self) -> None:
        """Return when the lock is free, or was a moment ago."""
        waiter = _Waiter()
        try:
            self.waiting.append(waiter)
            while self.held:
                waiter.woken.acquire(timeout=POLL_SECONDS)
        finally:
            if waiter in self.waiting:
                self.waiting.remove(waiter)
            waiter.ended.release()  # `notify` may wait for it

    def notify(self) -> None:
        """Wake the first waiting thread; if it has waited for long, wait until it has the lock."""
        try:
            waiter = self.waiting[0]
        except IndexError:
            return
        waiter.wake()
        if monotonic() - waiter.since > HANDOVER_AFTER:
            waiter.ended.acquire(timeout=HANDOVER_SECONDS)

    def is_held_above(self, frame: FrameType | None) -> bool:
        """Return whether a frame, or one that called it, holds the lock."""
        return any(_lock_of(f) is self for f in _callers(frame))


class CallLocks:
    """The locks of a function of several shared variables that other functions with different locks update."""

    held = True  # always true, so that each call runs `wait`
    waiting = ()

    def __init__(self, locks: Sequence[CallLock]) -> None:
        self.locks = tuple(locks)  # in the order in which all such functions take them

    def wait(self, function: SerialFunction, action: Run | None = None) -> Run:
        """Return a function that takes the locks and runs a call of `function`, or an action instead."""
        return partial(_call_under, self.locks, action or _nested(function, sys._getframe(1).f_back))

    def notify(self) -> None:
        """Do nothing: each of the locks wakes its own threads."""


def _call_under(locks: Sequence[CallLock], run: Run, *args: Any, **kwargs: Any) -> Any:
    """Run a call with some locks."""
    if not locks:
        return run(*args, **kwargs)
    held_lock = locks[0]
    while held_lock.held:
        if held_lock.is_held_above(sys._getframe(1)):
            return _call_under(locks[1:], run, *args, **kwargs)
        held_lock.wait_until_free()
    held_lock.held = True
    try:
        return _call_under(locks[1:], run, *args, **kwargs)
    finally:
        held_lock.held = False
        if held_lock.waiting:
            held_lock.notify()


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _lock_of(frame: FrameType) -> Any:
    """Return the lock that a frame holds, if it is one of a call."""
    if frame.f_code in (SerialFunction.__call__.__code__, SerialFunction._call_accepted.__code__):
        return frame.f_locals.get("call_lock")
    return frame.f_locals.get("held_lock") if frame.f_code is _call_under.__code__ else None


def _is_call_of(frame: FrameType, function: SerialFunction) -> bool:
    """Return whether a frame runs a call of a function.

    A call that adapts its arguments first has no lock of its own, and nothing in the function's storage: another frame
    above it runs the call.
    """
    runs = frame.f_code is SerialFunction.call_unlocked.__code__ or _lock_of(frame) is not None
    return runs and frame.f_locals.get("self") is function


def _nested(function: SerialFunction, frame: FrameType | None) -> Run:
    """Return a callable for a call in a thread that has the lock.

    That is the function, or a copy of it if a node of a call, or a signal handler, calls the function again: the outer
    call still needs its arguments and intermediate results.
    """
    if not any(_is_call_of(f, function) for f in _callers(frame)):
        return function.call_unlocked
    if function.vm.copy_for_nested_calls is None:
        function.vm.copy_for_nested_calls = function.copy()
    return function.vm.copy_for_nested_calls


class _CellLock:
    """The lock of a shared variable's storage cell, kept by the virtual machines that use the cell."""

    __slots__ = ("__weakref__", "lock", "machines")

    def __init__(self) -> None:
        self.lock: CallLock | None = None  # lock of the functions that update the cell; None if there is none
        self.machines: WeakSet[Any] = WeakSet()  # virtual machines of all functions with the cell


_locks: WeakSet[CallLock] = WeakSet()
_cell_locks: WeakValueDictionary[int, _CellLock] = WeakValueDictionary()  # keys: id() of the cell
_creation = RLock()


def assign_lock(function: SerialFunction) -> None:
    """Give the virtual machine of a new function its lock.

    Functions of a variable that one of them updates get the same one, or several. So no update is lost, and none is
    written where another thread still reads the old value.
    """
    machine = function.vm
    pairs = [(c.storage, i) for c, i in zip(function.input_storage, function.maker.expanded_inputs, strict=True)]
    shared = [cell for cell, given in pairs if given.shared]
    updated = [cell for cell, given in pairs if given.update is not None]
    with _creation:
        cells = (*shared, *updated, *machine.mutable_rngs)
        cell_locks = {id(cell): _cell_locks.setdefault(id(cell), _CellLock()) for cell in cells}
        machine.cell_locks = list(cell_locks.values())
        machine.call_lock = CallLock()
        new = [cell_locks[id(c)] for c in (*updated, *machine.mutable_rngs) if cell_locks[id(c)].lock is None]
        lock = next((entry.lock for entry in machine.cell_locks if entry.lock is not None), machine.call_lock)
        for entry in new:
            entry.lock = lock
        for entry in machine.cell_locks:
            entry.machines.add(machine)
        for other in {machine, *(m for entry in new for m in entry.machines)}:
            _choose_lock(other)


def _choose_lock(machine: Any) -> None:
    """Give a virtual machine the locks of the shared variables that it uses."""
    locks = {id(entry.lock): entry.lock for entry in machine.cell_locks if entry.lock is not None}
    mine = machine.call_lock
    if not locks:
        return
    for lock in mine.locks:
        if lock.held:  # a call holds the lock: others must wait for it
            locks[id(lock)] = lock
    # All functions take locks in one order, so that two of them cannot wait for each other.
    ordered = [locks[key] for key in sorted(locks)]
    if list(mine.locks) != ordered:
        machine.call_lock = ordered[0] if len(ordered) == 1 else CallLocks(ordered)


def run_exclusively(cell: Cell, action: Run) -> Any:
    """Run an action that reads or sets a shared variable while no function that updates it runs."""
    entry = _cell_locks.get(id(cell))
    return action() if entry is None or entry.lock is None else _call_under((entry.lock,), action)


def _after_fork() -> None:
    """Free the locks that threads of the parent process held: they do not run in the child."""
    global _creation
    _creation = RLock()
    frame = sys._getframe()
    for lock in list(_locks):
        lock.waiting.clear()
        lock.held = lock.is_held_above(frame)  # a call that forks goes on in the child


at_fork(after_in_child=_after_fork)
