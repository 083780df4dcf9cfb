"""Parked workers: work-items that wait for the next call."""

import os
import threading
from math import inf

import numpy as np
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Settings, open_context
from pytensor_cl.runtime.launch_capture import Launch
from pytensor_cl.runtime.pocl import affinity as module
from pytensor_cl.runtime.pocl.affinity import pinned_cores
from pytensor_cl.runtime.pocl.participation import NEW_WORKERS, PARKED_WORKERS
from pytensor_cl.runtime.registry import sync

ALONE_ITEMS = "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\nvoid"
DOUBLE = f"""{ALONE_ITEMS} stood_double(__global float *x, const long n)
{{
    for (long i = get_global_id(0); i < n; i += get_global_size(0)) x[i] = 2 * x[i];
}}
"""
STACKS = f"""{ALONE_ITEMS} stood_stacks(__global ulong *out)
{{
    ulong stack;
    __asm__ volatile("movq %%rsp, %0" : "=r"(stack));
    for (int i = 0; i < 300; ++i) __builtin_ia32_pause();
    out[get_global_id(0)] = stack;
}}
"""
READY, AWAY = 1, 0
FOREVER = 1 << 60


@pytest.fixture
def opened(context):
    if context.batch_launcher is None:
        pytest.skip("kernels have no entries with this driver")
    if context.batch_launcher.max_participants < 2:
        pytest.skip("nobody can help on one core")
    context.queue.finish()
    yield context
    context.queue.finish()


def launched(context, text, size, *arguments):
    name = text.rpartition("void ")[2].partition("(")[0]
    kernel = context.kernel(KernelSource(name, text))
    kernel.launch(context.queue, size, (1,), *arguments)
    return Launch(kernel.handle, size, (1,), arguments)


def chained(context, launches, after):
    builder = context.batch_launcher.begin(launches, True)
    kernels = [builder.add(x) for x in launches]
    for kernel, launch in zip(kernels, launches, strict=True):
        for i, argument in enumerate(launch.arguments):
            if not isinstance(argument, bytes | np.generic):
                kernel.bind(i, argument)
    return builder.finish(kernels, after)


class Always:
    """A team that calls whoever stands by, and launches those who stay if nobody does."""

    def __init__(self, most):
        self.max_workers = most
        self.ways = []

    def choose(self, are_ready, is_burst, is_contended):
        self.ways.append(PARKED_WORKERS if are_ready else NEW_WORKERS)
        return self.ways[-1]

    def parks_workers(self, is_burst):
        return True

    def record(self, mode, seconds):
        pass


def always(chain):
    chain._tuner = Always(chain._tuner.max_workers)
    return chain._tuner.ways


@pytest.fixture
def patient(opened, monkeypatch):
    """Let work-items stand by until they are dismissed."""
    monkeypatch.setattr(opened.batch_launcher.workers, "spin_cycles", FOREVER)


def states(context):
    return list(context.batch_launcher.workers._states)


@pytest.mark.usefixtures("patient")
def test_calls_in_a_row_need_one_launch(opened):
    n, count = 5000, 30
    x = opened.from_host(np.ones(n, "float32"))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(n))
    chain = chained(opened, [double] * count, [-1, *range(count - 1)])
    opened.queue.finish()
    ways = always(chain)
    for _ in range(200):
        view = opened.views.view(x)
        view[...] = 1
        chain.run_and_wait()
        np.testing.assert_array_equal(view, np.full(n, 2.0**count, "f4"))
        assert not opened.queue.has_pending
    assert ways.count(PARKED_WORKERS) > ways.count(NEW_WORKERS)


@pytest.mark.usefixtures("patient")
def test_those_that_stand_by_do_their_share(opened):
    out = opened.from_host(np.zeros(5000, "uint64"))
    chain = chained(opened, [launched(opened, STACKS, (400,), out.buffer)], [-1])
    opened.queue.finish()
    ways, threads = always(chain), 0
    while threads < 2 or ways[-1] != PARKED_WORKERS:
        assert len(ways) < 20_000
        chain.run_and_wait()
        threads = len(np.unique(opened.views.view(out)[:400] >> np.uint64(20)))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("command", ["write", "launch", "read", "finish"])
def test_other_commands_send_them_away(opened, command):
    x = opened.from_host(np.ones(5000, "float32"))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))
    chain = chained(opened, [double], [-1])
    opened.queue.finish()
    always(chain)
    expected = np.full(5000, 2.0, "f4")
    for _ in range(30):
        chain.run_and_wait()
        expected = 2 * expected
        if command == "write":
            expected = np.ones(5000, "float32")
            opened.queue.write(x.buffer, expected)
        elif command == "launch":
            chain.submit((), ())
            expected = 2 * expected
        elif command == "read":
            found = np.empty(5000, "float32")
            opened.queue.read(found, x.buffer)
            np.testing.assert_array_equal(found, expected)
        opened.queue.finish()
        np.testing.assert_array_equal(opened.views.view(x), expected)
        assert set(states(opened)) == {AWAY}
        expected = expected / expected[0]
        opened.views.view(x)[...] = expected


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("wait", [sync, GpuArray.sync, GpuArray.to_host, np.asarray])
def test_who_has_nothing_to_wait_for_leaves_them_there(opened, wait):
    x = opened.from_host(np.ones(5000, "float32"))
    chain = chained(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    always(chain)
    for _ in range(20):
        opened.queue.finish()
        opened.views.view(x)[...] = 1
        chain.run_and_wait()
        number = opened.batch_launcher.workers._launch_number
        found = wait(x) if wait is not sync else wait()
        assert opened.batch_launcher.workers._launch_number == number
        if found is not None:
            np.testing.assert_array_equal(found, np.full(5000, 2, "f4"))


def test_a_setting_sends_them_away_at_once(context):
    off = open_context(f"opencl:{context.name}", "off", Settings(park_workers=False))
    if off.batch_launcher is None:
        pytest.skip("kernels have no entries with this driver")
    assert off.batch_launcher.workers.spin_cycles == 0
    x = off.from_host(np.ones(5000, "float32"))
    chain = chained(off, [launched(off, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    ways = always(chain)
    for _ in range(20):
        chain.run_and_wait()
    assert set(ways) == {NEW_WORKERS}
    np.testing.assert_array_equal(off.download(x), np.full(5000, 2.0**21, "f4"))


def test_they_leave_by_themselves(opened):
    x = opened.from_host(np.ones(5000, "float32"))
    chain = chained(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    opened.queue.finish()
    always(chain)
    chain.run_and_wait()
    opened.queue.handle.finish()  # behind the queue's back: nobody sends them away
    assert set(states(opened)) == {AWAY}


@pytest.fixture
def placed(opened):
    """Say who stands by, though nobody is there."""
    workers, count = opened.batch_launcher.workers, opened.batch_launcher.max_participants - 1
    opened.queue.finish()

    def place(*there):
        workers._may_be_parked, workers._size, workers._launched_at = True, count, -inf  # they were launched long ago
        workers._states[:count] = memoryview(np.array([READY if k in there else AWAY for k in range(count)], np.uint32))

    yield place
    place()
    workers._may_be_parked = False


def test_who_has_left_is_replaced(opened, placed):
    """With only some of those that could help each call would take longer for good."""
    workers, count = opened.batch_launcher.workers, opened.batch_launcher.max_participants - 1
    for there in range(count + 1):
        placed(*range(there))
        assert workers.are_ready(count) == (4 * there >= 3 * count)
        assert workers.are_ready(1) == (there >= 1)
        assert not workers.are_ready(count + 1)
    placed(*range(1, count))  # only those are called that come first
    assert not workers.are_ready(1)


@pytest.fixture
def tied(opened):
    """Threads that are tied to a core each, and the cores."""
    if not pinned_cores() or len(pinned_cores()) < 2:
        pytest.skip("threads are not tied to cores")
    (cores,) = module._pinned
    after, cores._next_time = cores._next_time, inf  # nobody reviews them
    cores._pin(1)
    yield cores
    cores._pin(1)
    cores._next_time = after


def where(cores):
    return {thread: os.sched_getaffinity(thread) for thread in cores._threads}


def stand_by_freely(opened, cores):
    """Call until some stand by on all cores."""
    before, x = where(cores), opened.from_host(np.ones(5000, "float32"))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))
    chain = chained(opened, [double] * 3, [-1, 0, 1])
    opened.queue.finish()
    ways, free = always(chain), 0
    while not free or ways[-1] != PARKED_WORKERS:
        assert len(ways) < 20_000
        chain.run_and_wait()
        free = sum(now == set(pinned_cores()) != before[thread] for thread, now in where(cores).items())
    looks = 0
    while set(states(opened)) != {READY}:  # who comes late may be on its way from one core to another
        looks += 1
        assert looks < 100_000_000


@pytest.mark.usefixtures("patient")
def test_those_that_stand_by_may_use_all_cores_until_they_leave(opened, tied):
    before = where(tied)
    stand_by_freely(opened, tied)
    opened.queue.finish()
    assert where(tied) == before
    assert {len(cores) for cores in before.values()} == {1}


@pytest.mark.usefixtures("patient")
def test_who_is_tied_while_it_stands_by_stays_so(opened, tied):
    if len(pinned_cores()) < 3:
        pytest.skip("two cores are all")
    stand_by_freely(opened, tied)
    tied._pin(2)
    expected = where(tied)
    opened.queue.finish()
    assert where(tied) == expected
    assert {len(cores) for cores in expected.values()} == {2}


def test_who_is_not_wanted_any_more_leaves(opened, monkeypatch):
    """Calls of a small function, for one helper, do not keep those of a large one."""
    if opened.batch_launcher.max_participants < 4:
        pytest.skip("too few can help")
    monkeypatch.setattr(opened.batch_launcher.workers, "spin_cycles", 30_000_000)  # 10 ms
    x = opened.from_host(np.ones(5000, "float32"))
    large = chained(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    small = chained(opened, [launched(opened, DOUBLE, (2,), x.buffer, np.int64(5000))], [-1])
    opened.queue.finish()
    for chain in (large, small):
        always(chain)
    for _ in range(1_000_000):
        if sum(state != AWAY for state in states(opened)) != len(states(opened)):
            large.run_and_wait()
            continue
        break
    for _ in range(10_000_000):
        small.run_and_wait()
        if not any(states(opened)[1:]):
            break
    assert not any(states(opened)[1:])


def test_who_does_not_come_is_not_waited_for(opened):
    """The places say that all are ready, but nobody is there."""
    x = opened.from_host(np.ones(5000, "float32"))
    chain = chained(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))] * 2, [-1, 0])
    opened.queue.finish()
    ways, workers = always(chain), opened.batch_launcher.workers
    before = opened.views.view(x).copy()
    workers._may_be_parked, workers._size = True, len(states(opened))
    for k in range(count := len(states(opened))):
        workers._states[k] = READY
    try:
        for _ in range(9):  # each table twice
            chain.run_and_wait()
            assert states(opened) == [READY] * count
            assert not chain._counters.any()
    finally:
        for k in range(count):
            workers._states[k] = AWAY
        workers._may_be_parked = False
    assert ways == [PARKED_WORKERS] * 9
    np.testing.assert_array_equal(opened.views.view(x), before * 4**9)


@pytest.mark.usefixtures("patient")
def test_chains_come_and_go(opened):
    n = 5000
    x = opened.from_host(np.ones(n, "float32"))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(n))
    opened.queue.finish()
    for _ in range(100):
        chain = chained(opened, [double] * 3, [-1, 0, 1])
        always(chain)
        opened.views.view(x)[...] = 1
        chain.run_and_wait()
        chain.run_and_wait()
        del chain
        np.testing.assert_array_equal(opened.views.view(x), np.full(n, 64, "f4"))


@pytest.mark.usefixtures("patient")
def test_two_threads_call_the_same(opened):
    n, wrong = 3000, []
    chains, arrays = [], []
    for _ in range(2):
        x = opened.from_host(np.ones(n, "float32"))
        double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(n))
        chains.append(chained(opened, [double] * 5, [-1, 0, 1, 2, 3]))
        always(chains[-1])
        arrays.append(x)
    opened.queue.finish()

    def work(chain, x):
        view = opened.views.view(x)
        for _ in range(300):
            view[...] = 1
            chain.run_and_wait()
            if not (view == 32).all():
                wrong.append(view.copy())

    threads = [threading.Thread(target=work, args=pair) for pair in zip(chains, arrays, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("command", ["finish", "read"])
def test_a_wait_of_another_thread_comes_to_an_end(opened, command):
    """The driver waits until nothing runs at all; calls of this thread would keep it from that for good."""
    x = opened.from_host(np.ones(5000, "float32"))
    chain = chained(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    opened.queue.finish()
    always(chain)
    ended, found = threading.Event(), np.empty(5000, "float32")
    wait_once = {"finish": opened.queue.finish, "read": lambda: opened.queue.read(found, x.buffer)}[command]

    def wait():
        for _ in range(50):
            wait_once()
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not ended.is_set():
        chain.run_and_wait()
    thread.join()


def test_numbers_of_calls_are_never_the_same(opened):
    workers = opened.batch_launcher.workers
    assert next(workers.call_numbers) != next(workers.call_numbers)
