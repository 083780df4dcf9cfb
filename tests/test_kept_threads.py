"""Threads that are kept for the next work."""

import threading
from weakref import ref

import pytest

from pytensor_cl import kept_threads
from tests.helpers import run_script


@pytest.fixture(autouse=True)
def no_threads(monkeypatch):
    """None is left from tests before, or left by these."""
    monkeypatch.setattr(kept_threads, "_idle", [])
    monkeypatch.setattr(kept_threads, "_keeps", False)


def threads_of(count):
    """Return the threads of works that follow one another."""
    found = []
    for _ in range(count):
        work = kept_threads.start(
            lambda: found.append((threading.current_thread(), threading.current_thread().name)), "a"
        )
        work.join(60)
        assert not work.is_alive()
    return found


def test_threads_are_kept_as_soon_as_there_is_a_gpu():
    (first, _), (second, _) = threads_of(2)
    first.join(60)
    assert first is not second and not first.is_alive()
    kept_threads.keep_threads()
    (first, name), (second, _) = threads_of(2)
    assert first is second and name == "a"
    other, may_end = threads_of(1)[0][0], threading.Event()
    work = kept_threads.start(may_end.wait, "b")
    assert threads_of(1)[0][0] is not other is first and work.is_alive()
    may_end.set()
    work.join(60)


def test_a_kept_thread_keeps_nothing_of_its_work_and_survives_an_error(monkeypatch):
    class Callable:
        def __call__(self):
            raise ValueError("of the work")

    errors, run = [], Callable()
    monkeypatch.setattr(threading, "excepthook", lambda found: errors.append(str(found.exc_value)))
    kept_threads.keep_threads()
    gone = ref(run)
    kept_threads.start(run, "a").join(60)
    del run
    (thread, _) = threads_of(1)[0]
    assert errors == ["of the work"] and gone() is None and thread.is_alive()


def test_a_timer_calls_a_function_unless_it_is_cancelled():
    called = []
    for seconds in (0, 600):
        timer = kept_threads.Timer(seconds, lambda: called.append(0))
        timer.start()
        if seconds:
            timer.cancel()
        timer.work.join(60)
        assert not timer.work.is_alive() and called == [0]


def test_the_process_waits_for_awaited_work_alone_and_a_fork_for_none():
    script = """
        import os, threading
        from pytensor_cl import kept_threads
        began, for_ever = threading.Barrier(3), threading.Event()

        def wait():
            began.wait()
            for_ever.wait()

        def write():
            began.wait()
            kept_threads.keep_threads()
            for _ in range(100000):
                pass
            os.write(2, b"written")

        works = kept_threads.start(wait, "a"), kept_threads.start(write, "b", is_awaited=True)
        began.wait()
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, bytes([work.is_alive() for work in works]))
            os._exit(0)
        os.wait()
        seen["in the child"] = list(os.read(reader, 9))
    """
    seen, printed = run_script(script)
    assert seen == {"in the child": [0, 0]} and "written" in printed
