"""Locks of functions: one call of a function at a time, and one update of a shared variable.

PyTensor's `Function.__call__` keeps arguments and results of a call in the function, so a second call must not begin
before the first one has ended. `_compat.SerialFunction` sets and clears `held` itself, since a call of a small function
takes a microsecond; what is here runs when several threads call at once, or a call calls the function again.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock, RLock
from time import monotonic
from types import FrameType
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from pytensor_cl._compat import SerialFunction
from pytensor_cl.linker.types import Cell

__all__ = ["CallLock", "CallLocks", "give_lock", "in_turn"]

POLL = 0.05
"""Seconds after which a thread that waits looks again: a signal may have interrupted the thread that was to wake it."""
PATIENCE, HANDOVER = 5e-3, 5e-3
"""Seconds that a thread waits before others let it go first, and for how long they do: a thread that calls in a loop
would take the lock again before another one is awake."""

Run = Callable[..., Any]


class _Waiter:
    """A thread that waits.

    Attributes
    ----------
    since
        When it began to.
    woken, ended
        Locks that are released when it shall look, and when it does not wait any more.
    """

    __slots__ = ("ended", "since", "woken")

    def __init__(self) -> None:
        self.since = monotonic()
        self.woken, self.ended = Lock(), Lock()
        self.woken.acquire()
        self.ended.acquire()

    def wake(self) -> None:
        """Make the thread look."""
        try:
            self.woken.release()
        except RuntimeError:  # it has been woken, and has not looked yet
            pass


class CallLock:
    """The lock of a function, or of some that update the same shared variables.

    Attributes
    ----------
    held
        Whether a call runs. Whoever has found it false sets it in the next line.
    waiting
        The threads that want it, the first one first.
    """

    __slots__ = ("__weakref__", "held", "waiting")

    def __init__(self) -> None:
        self.held = False
        self.waiting: deque[_Waiter] = deque()
        _locks.add(self)

    @property
    def locks(self) -> "tuple[CallLock, ...]":
        """This lock alone; see `CallLocks`."""
        return (self,)

    def wait(self, function: SerialFunction, action: Run | None = None) -> Run | None:
        """Wait until the lock may be free.

        Parameters
        ----------
        function
            What is called.
        action
            What is to run instead of a call of it.

        Returns
        -------
        callable or None
            What runs the call, if this thread has the lock already.
        """
        frame = sys._getframe(1).f_back
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
                waiter.woken.acquire(timeout=POLL)
        finally:
            if waiter in self.waiting:
                self.waiting.remove(waiter)
            waiter.ended.release()

    def notify(self) -> None:
        """Wake the first thread that waits, and let it go first if it has waited for long."""
        try:
            waiter = self.waiting[0]
        except IndexError:
            return
        waiter.wake()
        if monotonic() - waiter.since > PATIENCE:
            waiter.ended.acquire(timeout=HANDOVER)

    def is_held_above(self, frame: FrameType | None) -> bool:
        """Whether a frame, or one that called it, holds the lock."""
        return any(_lock_of(f) is self for f in _callers(frame))


class CallLocks:
    """The locks of a function of several shared variables, which others update that have different locks.

    Parameters
    ----------
    locks
        In the order in which all such functions take them.
    """

    held = True  # so that each call comes to `wait`
    waiting = ()

    def __init__(self, locks: Sequence[CallLock]) -> None:
        self.locks = tuple(locks)

    def wait(self, function: SerialFunction, action: Run | None = None) -> Run:
        """Return what takes the locks and runs a call of the function, or an action instead."""
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
    if frame.f_code is SerialFunction.__call__.__code__:
        return frame.f_locals.get("call_lock")
    return frame.f_locals.get("held_lock") if frame.f_code is _call_under.__code__ else None


def _is_call_of(frame: FrameType, function: SerialFunction) -> bool:
    codes = SerialFunction.__call__.__code__, SerialFunction.call_unlocked.__code__
    return frame.f_code in codes and frame.f_locals.get("self") is function


def _nested(function: SerialFunction, frame: FrameType | None) -> Run:
    """Return what runs a call in a thread that has the lock.

    That is the function, or a copy of it if a node of a call, or a signal handler, calls the function again: the outer
    call still needs its arguments and intermediate results.
    """
    if not any(_is_call_of(f, function) for f in _callers(frame)):
        return function.call_unlocked
    if function.vm.copy_for_nested_calls is None:
        function.vm.copy_for_nested_calls = function.copy()
    return function.vm.copy_for_nested_calls


class _Use:
    """What is known of a shared variable's storage cell; the virtual machines that use it keep it.

    Attributes
    ----------
    lock
        Of the functions that update it; None if there is none.
    machines
        The virtual machines of all functions that have it.
    """

    __slots__ = ("__weakref__", "lock", "machines")

    def __init__(self) -> None:
        self.lock: CallLock | None = None
        self.machines: WeakSet[Any] = WeakSet()


_locks: WeakSet[CallLock] = WeakSet()
_uses: WeakValueDictionary[int, _Use] = WeakValueDictionary()  # by the cells' ids: virtual machines keep both
_creation = RLock()


def give_lock(function: SerialFunction) -> None:
    """Give the virtual machine of a new function its lock.

    Functions of a variable that one of them updates get the same one, or several. So no update is lost, and none is
    written where another thread still reads the old value.
    """
    machine = function.vm
    pairs = [(c.storage, i) for c, i in zip(function.input_storage, function.maker.expanded_inputs, strict=True)]
    shared = [cell for cell, given in pairs if given.shared]
    updated = [cell for cell, given in pairs if given.update is not None]
    with _creation:
        uses = {id(cell): _uses.setdefault(id(cell), _Use()) for cell in (*shared, *updated, *machine.generators)}
        machine.uses = list(uses.values())
        machine.call_lock = CallLock()
        new = [uses[id(c)] for c in (*updated, *machine.generators) if uses[id(c)].lock is None]
        lock = next((use.lock for use in machine.uses if use.lock is not None), machine.call_lock)
        for use in new:
            use.lock = lock
        for use in machine.uses:
            use.machines.add(machine)
        for other in {machine, *(m for use in new for m in use.machines)}:
            _choose_lock(other)


def _choose_lock(machine: Any) -> None:
    """Give a virtual machine the locks of the variables that it uses."""
    locks = {id(use.lock): use.lock for use in machine.uses if use.lock is not None}
    mine = machine.call_lock
    if not locks:
        return
    for lock in mine.locks:
        if lock.held:  # by a call, which others still have to wait for
            locks[id(lock)] = lock
    chosen = [locks[key] for key in sorted(locks)]
    if list(mine.locks) != chosen:
        machine.call_lock = chosen[0] if len(chosen) == 1 else CallLocks(chosen)


def in_turn(cell: Cell, action: Run) -> Any:
    """Run something that reads or sets a shared variable while no function that updates it runs.

    Parameters
    ----------
    cell
        The variable's storage.
    action
        What to do, without arguments.
    """
    use = _uses.get(id(cell))
    return action() if use is None or use.lock is None else _call_under((use.lock,), action)


def _after_fork() -> None:
    """Free the locks that threads of the parent process had: they do not run here."""
    global _creation
    _creation = RLock()
    frame = sys._getframe()
    for lock in list(_locks):
        lock.waiting.clear()
        lock.held = lock.is_held_above(frame)


os.register_at_fork(after_in_child=_after_fork)
