"""Parked workers: work-items that poll for the next call."""

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
from pytensor_cl.runtime.pocl.thread_mode import NEW_WORKERS, PARKED_WORKERS
from pytensor_cl.runtime.registry import sync

SINGLE_ITEMS = "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\nvoid"
DOUBLE = f"""{SINGLE_ITEMS} double_items(__global float *x, const long n)
{{
    for (long i = get_global_id(0); i < n; i += get_global_size(0)) x[i] = 2 * x[i];
}}
"""
STACKS = f"""{SINGLE_ITEMS} stack_addresses(__global ulong *out)
{{
    ulong stack;
    __asm__ volatile("movq %%rsp, %0" : "=r"(stack));
    for (int i = 0; i < 300; ++i) __builtin_ia32_pause();
    out[get_global_id(0)] = stack;
}}
"""
PARKED, ENDED = 1, 0
FOREVER = 1 << 60


@pytest.fixture
def opened(context):
    if context.batch_launcher is None:
        pytest.skip("kernels have no entries with this driver")
    if context.batch_launcher.max_threads < 2:
        pytest.skip("one core has no workers")
    context.queue.finish()
    yield context
    context.queue.finish()


def launched(context, text, size, *arguments):
    name = text.rpartition("void ")[2].partition("(")[0]
    kernel = context.kernel(KernelSource(name, text))
    kernel.launch(context.queue, size, (1,), *arguments)
    return Launch(kernel.handle, size, (1,), arguments)


def batch_of(context, launches, after):
    builder = context.batch_launcher.begin(launches, True)
    kernels = [builder.add(x) for x in launches]
    for kernel, launch in zip(kernels, launches, strict=True):
        for i, argument in enumerate(launch.arguments):
            if not isinstance(argument, bytes | np.generic):
                kernel.bind(i, argument)
    return builder.finish(kernels, after)


class Always:
    """A tuner that uses parked workers, and parks those of new launches."""

    def __init__(self, most):
        self.max_workers = most
        self.modes = []

    def choose(self, are_parked, is_burst, is_contended):
        self.modes.append(PARKED_WORKERS if are_parked else NEW_WORKERS)
        return self.modes[-1]

    def parks_workers(self, is_burst):
        return True

    def record(self, mode, seconds):
        pass


def always(batch):
    batch._tuner = Always(batch._tuner.max_workers)
    return batch._tuner.modes


@pytest.fixture
def parked_forever(opened, monkeypatch):
    """Park workers until they are released."""
    monkeypatch.setattr(opened.batch_launcher.workers, "spin_cycles", FOREVER)


def states(context):
    return list(context.batch_launcher.workers._states)


@pytest.mark.usefixtures("parked_forever")
def test_calls_in_a_row_need_one_launch(opened):
    n, count = 5000, 30
    x = opened.from_host(np.ones(n, "float32"))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(n))
    batch = batch_of(opened, [double] * count, [-1, *range(count - 1)])
    opened.queue.finish()
    modes = always(batch)
    for _ in range(200):
        view = opened.mappings.view(x)
        view[...] = 1
        batch.run_and_wait()
        np.testing.assert_array_equal(view, np.full(n, 2.0**count, "f4"))
        assert not opened.queue.has_pending
    assert modes.count(PARKED_WORKERS) > modes.count(NEW_WORKERS)


@pytest.mark.usefixtures("parked_forever")
def test_parked_workers_run_work_items(opened):
    out = opened.from_host(np.zeros(5000, "uint64"))
    batch = batch_of(opened, [launched(opened, STACKS, (400,), out.buffer)], [-1])
    opened.queue.finish()
    modes, threads = always(batch), 0
    while threads < 2 or modes[-1] != PARKED_WORKERS:
        assert len(modes) < 20_000
        batch.run_and_wait()
        threads = len(np.unique(opened.mappings.view(out)[:400] >> np.uint64(20)))


@pytest.mark.usefixtures("parked_forever")
@pytest.mark.parametrize("command", ["write", "launch", "read", "finish"])
def test_other_commands_release_workers(opened, command):
    x = opened.from_host(np.ones(5000, "float32"))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))
    batch = batch_of(opened, [double], [-1])
    opened.queue.finish()
    always(batch)
    expected = np.full(5000, 2.0, "f4")
    for _ in range(30):
        batch.run_and_wait()
        expected = 2 * expected
        if command == "write":
            expected = np.ones(5000, "float32")
            opened.queue.write(x.buffer, expected)
        elif command == "launch":
            batch.submit((), ())
            expected = 2 * expected
        elif command == "read":
            found = np.empty(5000, "float32")
            opened.queue.read(found, x.buffer)
            np.testing.assert_array_equal(found, expected)
        opened.queue.finish()
        np.testing.assert_array_equal(opened.mappings.view(x), expected)
        assert set(states(opened)) == {ENDED}
        expected = expected / expected[0]
        opened.mappings.view(x)[...] = expected


@pytest.mark.usefixtures("parked_forever")
@pytest.mark.parametrize("wait", [sync, GpuArray.sync, GpuArray.to_host, np.asarray])
def test_waits_for_nothing_release_no_workers(opened, wait):
    x = opened.from_host(np.ones(5000, "float32"))
    batch = batch_of(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    always(batch)
    for _ in range(20):
        opened.queue.finish()
        opened.mappings.view(x)[...] = 1
        batch.run_and_wait()
        number = opened.batch_launcher.workers._launch_number
        found = wait(x) if wait is not sync else wait()
        assert opened.batch_launcher.workers._launch_number == number
        if found is not None:
            np.testing.assert_array_equal(found, np.full(5000, 2, "f4"))


def test_a_setting_parks_no_workers(context):
    off = open_context(f"opencl:{context.name}", "off", Settings(park_workers=False))
    if off.batch_launcher is None:
        pytest.skip("kernels have no entries with this driver")
    assert off.batch_launcher.workers.spin_cycles == 0
    x = off.from_host(np.ones(5000, "float32"))
    batch = batch_of(off, [launched(off, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    modes = always(batch)
    for _ in range(20):
        batch.run_and_wait()
    assert set(modes) == {NEW_WORKERS}
    np.testing.assert_array_equal(off.download(x), np.full(5000, 2.0**21, "f4"))


def test_workers_end_without_calls(opened):
    x = opened.from_host(np.ones(5000, "float32"))
    batch = batch_of(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    opened.queue.finish()
    always(batch)
    batch.run_and_wait()
    opened.queue.handle.finish()  # not by the context's queue, which releases workers
    assert set(states(opened)) == {ENDED}


@pytest.fixture
def fake_states(opened):
    """Return a function that writes the states of workers, without workers."""
    workers, count = opened.batch_launcher.workers, opened.batch_launcher.max_threads - 1
    opened.queue.finish()

    def set_states(*there):
        workers._may_be_parked, workers._launched_workers, workers._launched_at = (
            True,
            count,
            -inf,
        )  # they were launched long ago
        workers._states[:count] = memoryview(
            np.array([PARKED if k in there else ENDED for k in range(count)], np.uint32)
        )

    yield set_states
    set_states()
    workers._may_be_parked = False


def test_ended_workers_are_replaced(opened, fake_states):
    """With only some of the workers every later call would take longer."""
    workers, count = opened.batch_launcher.workers, opened.batch_launcher.max_threads - 1
    for there in range(count + 1):
        fake_states(*range(there))
        assert workers.are_parked(count) == (4 * there >= 3 * count)
        assert workers.are_parked(1) == (there >= 1)
        assert not workers.are_parked(count + 1)
    fake_states(*range(1, count))  # a call uses the first workers only
    assert not workers.are_parked(1)


@pytest.fixture
def pinned(opened):
    """The affinity of threads that are pinned to one core each."""
    if not pinned_cores() or len(pinned_cores()) < 2:
        pytest.skip("threads are not pinned to cores")
    (cores,) = module._pinned
    after, cores._next_time = cores._next_time, inf  # no rebalancing
    cores._pin(1)
    yield cores
    cores._pin(1)
    cores._next_time = after


def where(cores):
    return {thread: os.sched_getaffinity(thread) for thread in cores._threads}


def park_on_all_cores(opened, cores):
    """Call until workers are parked that may use all cores."""
    before, x = where(cores), opened.from_host(np.ones(5000, "float32"))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))
    batch = batch_of(opened, [double] * 3, [-1, 0, 1])
    opened.queue.finish()
    modes, free = always(batch), 0
    while not free or modes[-1] != PARKED_WORKERS:
        assert len(modes) < 20_000
        batch.run_and_wait()
        free = sum(now == set(pinned_cores()) != before[thread] for thread, now in where(cores).items())
    polls = 0
    while set(states(opened)) != {PARKED}:  # a late worker may be moving between cores
        polls += 1
        assert polls < 100_000_000


@pytest.mark.usefixtures("parked_forever")
def test_parked_workers_may_use_all_cores_until_they_end(opened, pinned):
    before = where(pinned)
    park_on_all_cores(opened, pinned)
    opened.queue.finish()
    assert where(pinned) == before
    assert {len(cores) for cores in before.values()} == {1}


@pytest.mark.usefixtures("parked_forever")
def test_threads_pinned_while_parked_stay_pinned(opened, pinned):
    if len(pinned_cores()) < 3:
        pytest.skip("two cores are all")
    park_on_all_cores(opened, pinned)
    pinned._pin(2)
    expected = where(pinned)
    opened.queue.finish()
    assert where(pinned) == expected
    assert {len(cores) for cores in expected.values()} == {2}


def test_workers_that_smaller_batches_do_not_use_end(opened, monkeypatch):
    """Calls of a batch for one worker do not keep the workers of a larger one parked."""
    if opened.batch_launcher.max_threads < 4:
        pytest.skip("there are too few workers")
    monkeypatch.setattr(opened.batch_launcher.workers, "spin_cycles", 30_000_000)  # 10 ms
    x = opened.from_host(np.ones(5000, "float32"))
    large = batch_of(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    small = batch_of(opened, [launched(opened, DOUBLE, (2,), x.buffer, np.int64(5000))], [-1])
    opened.queue.finish()
    for batch in (large, small):
        always(batch)
    for _ in range(1_000_000):
        if sum(state != ENDED for state in states(opened)) != len(states(opened)):
            large.run_and_wait()
            continue
        break
    for _ in range(10_000_000):
        small.run_and_wait()
        if not any(states(opened)[1:]):
            break
    assert not any(states(opened)[1:])


def test_missing_workers_are_not_waited_for(opened):
    """All states are those of parked workers, but there are none."""
    x = opened.from_host(np.ones(5000, "float32"))
    batch = batch_of(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))] * 2, [-1, 0])
    opened.queue.finish()
    modes, workers = always(batch), opened.batch_launcher.workers
    before = opened.mappings.view(x).copy()
    workers._may_be_parked, workers._launched_workers = True, len(states(opened))
    for k in range(count := len(states(opened))):
        workers._states[k] = PARKED
    try:
        for _ in range(9):  # each table twice
            batch.run_and_wait()
            assert states(opened) == [PARKED] * count
            assert not batch._counters.any()
    finally:
        for k in range(count):
            workers._states[k] = ENDED
        workers._may_be_parked = False
    assert modes == [PARKED_WORKERS] * 9
    np.testing.assert_array_equal(opened.mappings.view(x), before * 4**9)


@pytest.mark.usefixtures("parked_forever")
def test_batches_are_created_and_released(opened):
    n = 5000
    x = opened.from_host(np.ones(n, "float32"))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(n))
    opened.queue.finish()
    for _ in range(100):
        batch = batch_of(opened, [double] * 3, [-1, 0, 1])
        always(batch)
        opened.mappings.view(x)[...] = 1
        batch.run_and_wait()
        batch.run_and_wait()
        del batch
        np.testing.assert_array_equal(opened.mappings.view(x), np.full(n, 64, "f4"))


@pytest.mark.usefixtures("parked_forever")
def test_two_threads_run_batches(opened):
    n, wrong = 3000, []
    batches, arrays = [], []
    for _ in range(2):
        x = opened.from_host(np.ones(n, "float32"))
        double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(n))
        batches.append(batch_of(opened, [double] * 5, [-1, 0, 1, 2, 3]))
        always(batches[-1])
        arrays.append(x)
    opened.queue.finish()

    def work(batch, x):
        view = opened.mappings.view(x)
        for _ in range(300):
            view[...] = 1
            batch.run_and_wait()
            if not (view == 32).all():
                wrong.append(view.copy())

    threads = [threading.Thread(target=work, args=pair) for pair in zip(batches, arrays, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("parked_forever")
@pytest.mark.parametrize("command", ["finish", "read"])
def test_a_wait_of_another_thread_comes_to_an_end(opened, command):
    """The driver waits until nothing runs; calls of this thread must not make it wait forever."""
    x = opened.from_host(np.ones(5000, "float32"))
    batch = batch_of(opened, [launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    opened.queue.finish()
    always(batch)
    ended, found = threading.Event(), np.empty(5000, "float32")
    wait_once = {"finish": opened.queue.finish, "read": lambda: opened.queue.read(found, x.buffer)}[command]

    def wait():
        for _ in range(50):
            wait_once()
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not ended.is_set():
        batch.run_and_wait()
    thread.join()


def test_numbers_of_calls_are_never_the_same(opened):
    workers = opened.batch_launcher.workers
    assert next(workers.call_numbers) != next(workers.call_numbers)
