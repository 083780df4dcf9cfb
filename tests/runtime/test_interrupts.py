"""Work in another thread, which this one waits for."""

import threading

import pytest

from pytensor_cl.runtime import interrupts
from pytensor_cl.runtime.interrupts import in_another_thread


@pytest.fixture(autouse=True)
def no_threads(monkeypatch):
    """No thread is left from tests before."""
    monkeypatch.setattr(interrupts, "_idle", [])


def test_a_thread_is_kept_for_devices_that_are_no_cpus():
    """NVIDIA's driver may fail where a thread ends that has called it."""
    first, second = (in_another_thread(threading.get_ident, keeps_thread=True) for _ in range(2))
    assert first == second != threading.get_ident()
    assert first in {thread.ident for thread in threading.enumerate()}


def test_a_thread_that_is_not_kept_ends():
    thread = in_another_thread(threading.current_thread, keeps_thread=False)
    assert thread is not threading.current_thread()
    thread.join(60)
    assert not thread.is_alive()


def test_results_and_errors():
    for keeps_thread in (False, True):
        assert in_another_thread(lambda: 3, keeps_thread) == 3
        with pytest.raises(ZeroDivisionError):
            in_another_thread(lambda: 1 / 0, keeps_thread)


def test_work_that_an_interrupt_has_left_does_not_stop_other_work(monkeypatch):
    may_end = threading.Event()

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(interrupts, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            in_another_thread(may_end.wait, keeps_thread=True)
    assert in_another_thread(lambda: 5, keeps_thread=True) == 5
    may_end.set()


def test_another_thread_works_itself():
    found = []
    thread = threading.Thread(target=lambda: found.append(in_another_thread(threading.get_ident, keeps_thread=True)))
    thread.start()
    thread.join()
    assert found == [thread.ident]
