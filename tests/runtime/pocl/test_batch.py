"""Kernels that are called by their entries, from one launch."""

import ctypes
import gc
from math import prod
from weakref import ref

import numpy as np
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.runtime.context import Settings, open_context
from pytensor_cl.runtime.launch_capture import Launch
from pytensor_cl.runtime.pocl import batch, thread_mode
from pytensor_cl.runtime.timed_queue import timed

ALONE = "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\nvoid"
STRUCT = "typedef struct { long n; float16 add; int sign; } dispatched_plan;\n"
FILL = f"""{STRUCT}{ALONE} dispatched_fill(__global float *out, const float value, const dispatched_plan p)
{{
    for (long i = get_global_id(0); i < p.n; i += get_global_size(0)) out[i] = value * p.sign + p.add.s1 + p.add.sf;
}}
"""
PLACES = f"""{ALONE} dispatched_places(__global long *out, __global const float *restrict unused)
{{
    const long at = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
    out[at] += 1 + (unused != 0) + 100 * get_global_id(0) + 10000 * get_global_id(1) + 1000000 * get_global_id(2);
}}
"""
DOUBLE = f"""{ALONE} dispatched_double(__global float *x, const long n)
{{
    for (long i = get_global_id(0); i < n; i += get_global_size(0)) x[i] = 2 * x[i];
}}
"""
SHARED = f"""{ALONE} dispatched_local(__global float *x)
{{
    __local float y[1];
    y[0] = x[0];
    x[0] = y[0];
}}
"""
PLAN = np.dtype([("n", "i8"), ("unused", "V56"), ("add", "f4", 16), ("sign", "i4"), ("end", "V60")])


@pytest.fixture
def opened(context):
    if context.batch_launcher is None:
        pytest.skip("kernels have no entries with this driver")
    return context


def plan(n, sign=1):
    found = np.zeros((), PLAN)
    found["n"], found["sign"] = n, sign
    found["add"][[1, 15]] = 0.5, 0.25
    return found.tobytes()


def launched(context, text, size, *arguments):
    """Launch a kernel; return its launch."""
    name = text.rpartition("void ")[2].partition("(")[0]
    kernel = context.kernel(KernelSource(name, text))
    kernel.launch(context.queue, size, (1,) * len(size), *arguments)
    return Launch(kernel.handle, size, (1,) * len(size), arguments)


def sequence_of(context, launches, after):
    builder = context.batch_launcher.begin(launches, True)
    kernels = [builder.add(x) for x in launches]
    for kernel, launch in zip(kernels, launches, strict=True):
        for i, argument in enumerate(launch.arguments):
            if not isinstance(argument, bytes | np.generic):
                kernel.bind(i, argument)
    return builder.finish(kernels, after), kernels


def test_values_are_passed_as_by_a_launch(opened):
    n = 1000
    x = opened.empty((n,), "float32")
    fill = launched(opened, FILL, (16,), x.buffer, np.float32(3), plan(n))
    np.testing.assert_array_equal(opened.download(x), np.full(n, 3.75, "f4"))
    double = launched(opened, DOUBLE, (7,), x.buffer, np.int64(n))
    sequence, (first, _, _) = sequence_of(opened, [fill, double, double], [-1, 0, 1])
    for value, sign in ((5, 1), (-7, -1)):
        first.set_bytes(1, np.float32(value))
        first.set_bytes(2, plan(n, sign))
        sequence.submit((), ())
        np.testing.assert_array_equal(opened.download(x), np.full(n, 4 * (value * sign + 0.75), "f4"))


@pytest.mark.parametrize("size", [(1,), (3,), (300,), (5, 1), (3, 4), (2, 3, 4), (1, 1, 9)])
def test_each_work_item_runs_once_under_its_own_numbers(opened, size):
    x = opened.from_host(np.zeros(prod(size), "int64"))
    launch = launched(opened, PLACES, size, x.buffer, None)
    sequence, _ = sequence_of(opened, [launch], [-1])
    for _ in range(3):
        sequence.submit((), ())
    wide = (*size, 1, 1)[:3]
    i = np.arange(prod(size))
    places = 1 + 100 * (i % wide[0]) + 10000 * (i // wide[0] % wide[1]) + 1000000 * (i // wide[0] // wide[1])
    np.testing.assert_array_equal(opened.download(x), 4 * places)


@pytest.mark.parametrize("fast_math", [False, True])
def test_subnormal_numbers_are_zero_with_fast_math_alone(opened, fast_math):
    """Launched alone, in a batch, and in one that the host's thread computes too."""
    context = open_context(f"opencl:{opened.name}", "fast", Settings(fast_math=fast_math))
    numbers = np.full(1000, 2e-39, "float32")
    x = context.from_host(numbers)
    double = launched(context, DOUBLE, (16,), x.buffer, np.int64(len(numbers)))
    wanted = (0 if fast_math else 2) * numbers
    np.testing.assert_array_equal(context.download(x), wanted)
    sequence, (stage,) = sequence_of(context, [double], [-1])
    for call in (lambda: sequence.submit((), ()), sequence.run_and_wait):
        x = context.from_host(numbers)
        stage.set_buffer(0, x.buffer)
        call()
        np.testing.assert_array_equal(context.download(x), wanted)


def test_a_stage_waits_for_those_before_it(opened):
    n, count = 1 << 16, 40
    x = opened.empty((n,), "float64")  # a float for each work-item and more
    fill = launched(opened, FILL, (16,), x.buffer, np.float32(0), plan(n))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(n))
    sequence, (first, *_) = sequence_of(opened, [fill, *[double] * count], [-1, *range(count)])
    first.set_bytes(1, np.float32(0.25))
    for _ in range(20):
        sequence.submit((), ())
        found = opened.download(x).view("float32")[:n]
        np.testing.assert_array_equal(found, np.full(n, 2.0**count, "f4"))


def test_calls_without_a_wait_have_their_own_arguments(opened):
    n, count = 5000, 50
    results = [opened.empty((n,), "float32") for _ in range(count)]
    fill = launched(opened, FILL, (16,), results[0].buffer, np.float32(0), plan(n))
    double = launched(opened, DOUBLE, (16,), results[0].buffer, np.int64(n))
    sequence, (first, second) = sequence_of(opened, [fill, double], [-1, 0])
    for k, result in enumerate(results):
        first.set_bytes(1, np.float32(k))
        first.set_buffer(0, result.buffer)
        second.set_buffer(0, result.buffer)
        sequence.submit((), (result.buffer,))
    for k, result in enumerate(results):
        np.testing.assert_array_equal(opened.download(result), np.full(n, 2 * (k + 0.75), "f4"))


def test_memory_is_kept_until_it_has_been_written(opened):
    n = 1 << 20
    source = np.arange(n, dtype="float32")
    kept = opened.from_host(np.zeros(1, "float32"))
    double = launched(opened, DOUBLE, (16,), kept.buffer, np.int64(1))
    for k in range(200):
        x = opened.from_host(source + k)
        sequence, (stage,) = sequence_of(opened, [double], [-1])
        stage.set_bytes(1, np.int64(n))
        stage.set_buffer(0, x.buffer)
        sequence.submit((), (x.buffer,))
        if k % 20:
            del x, sequence, stage
        else:
            gc.collect()
            np.testing.assert_array_equal(opened.download(x), 2 * (source + k))


def test_kernels_that_cannot_be_called(opened):
    x = opened.from_host(np.ones(64, "float32"))
    local = launched(opened, SHARED, (1,), x.buffer)
    double = launched(opened, DOUBLE, (4,), x.buffer, np.int64(64))
    launcher = opened.batch_launcher
    assert launcher.begin([double], True) is not None
    assert launcher.begin([double, local], True) is None
    assert launcher.begin([double._replace(local_size=(4,))], True) is None
    assert launcher.begin([double._replace(local_size=None)], True) is None


def test_a_setting_switches_it_off(context):
    from pytensor_cl.runtime.context import Settings

    off = open_context(f"opencl:{context.name}", "off", Settings(batch_kernels=False))
    assert off.batch_launcher is None
    x = off.from_host(np.ones(10, "float32"))
    launch = launched(off, DOUBLE, (2,), x.buffer, np.int64(10))
    np.testing.assert_array_equal(off.download(x), np.full(10, 2, "f4"))
    assert launch.kernel.num_args == 2


@pytest.mark.parametrize("workers", [0, None])
def test_the_host_runs_work_items_of_calls_with_a_wait(opened, monkeypatch, workers):
    n, count = 5000, 6
    x = opened.empty((n,), "float32")
    fill = launched(opened, FILL, (16,), x.buffer, np.float32(0), plan(n))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(n))
    sequence, (first, *_) = sequence_of(opened, [fill, *[double] * count], [-1, *range(count)])
    most = min(61, opened.batch_launcher.max_threads) - 1
    monkeypatch.setattr(
        sequence._tuner,
        "choose",
        lambda *_: thread_mode.NEW_WORKERS if most and workers is None else thread_mode.HOST_ONLY,
    )
    for k in range(20):
        first.set_bytes(1, np.float32(k))
        sequence.run_and_wait()
        np.testing.assert_array_equal(opened.mappings.view(x), np.full(n, 2**count * (k + 0.75), "f4"))
        assert not opened.queue.has_pending


def test_the_host_waits_for_earlier_commands(opened):
    n = 1 << 16
    x = opened.empty((n,), "float32")
    fill = launched(opened, FILL, (16,), x.buffer, np.float32(1), plan(n))
    double = launched(opened, DOUBLE, (16,), x.buffer, np.int64(n))
    first, _ = sequence_of(opened, [fill, double, double], [-1, 0, 1])
    second, _ = sequence_of(opened, [double], [-1])
    opened.queue.finish()
    for _ in range(20):
        first.submit((), (x.buffer,))
        assert opened.queue.has_pending
        second.run_and_wait()
        np.testing.assert_array_equal(opened.mappings.view(x), np.full(n, 8 * 1.75, "f4"))


@pytest.mark.parametrize("has_workers", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_signal_resets_the_counters(opened, monkeypatch, has_workers, is_late):
    n = 100
    x = opened.from_host(np.ones(n, "float32"))
    double = launched(opened, DOUBLE, (3,), x.buffer, np.int64(n))
    sequence, _ = sequence_of(opened, [double, double], [-1, 0])
    most = min(3, opened.batch_launcher.max_threads) - 1
    monkeypatch.setattr(
        sequence._tuner,
        "choose",
        lambda *_: thread_mode.NEW_WORKERS if most and has_workers else thread_mode.HOST_ONLY,
    )
    host = sequence._host_entry

    def interrupted(*addresses):
        if is_late:
            host(*addresses)
        raise KeyboardInterrupt

    for _ in range(6):  # each table
        monkeypatch.setattr(sequence, "_host_entry", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sequence.run_and_wait()
        monkeypatch.setattr(sequence, "_host_entry", host)
        before = opened.download(x)
        sequence.run_and_wait()
        np.testing.assert_array_equal(opened.download(x), 4 * before)
        assert not sequence._counters.any()


def test_commands_are_pending_during_a_wait(opened, monkeypatch):
    queue, seen = opened.queue, []

    class Handle:
        @staticmethod
        def finish():
            seen.append(queue.has_pending)  # as another thread would
            queue.mark_submitted()

    queue.finish()
    assert not queue.has_pending
    queue.mark_submitted()
    with monkeypatch.context() as patch:
        patch.setattr(queue, "handle", Handle)
        queue.finish()
    assert seen == [True] and queue.has_pending
    queue.finish()
    assert not queue.has_pending


def test_a_command_stays_pending_after_a_signal(opened, monkeypatch):
    queue = opened.queue
    queue.finish()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(queue, "_enqueue", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.launch(None, (1,), (1,))
    assert queue.has_pending


def test_timed_launches_are_pending_for_others(opened):
    array = opened.from_host(np.ones(10, "f4"))
    with timed([opened]):
        opened.queue.finish()
        assert not opened.queue.has_pending
        array.copy()
        assert opened.queue.has_pending


def test_the_host_computes_as_the_device_does(opened, monkeypatch):
    """A library may have set the thread's flags so that subnormal numbers are zero, or are rounded elsewhere."""
    libm, environment = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 8)()
    x = opened.from_host(np.full(8, 1e-40, "f4"))
    double = launched(opened, DOUBLE, (1,), x.buffer, np.int64(8))
    sequence, _ = sequence_of(opened, [double], [-1])
    libm.fegetenv(environment)
    before = environment[7]
    environment[7] = flushing = before | 0x8040  # to zero, what comes and what goes
    libm.fesetenv(environment)
    try:
        sequence.run_and_wait()
        libm.fegetenv(environment)
        after, environment[7] = environment[7], before
    finally:
        libm.fesetenv(environment)
    assert after & 0xFFC0 == flushing & 0xFFC0
    np.testing.assert_array_equal(opened.download(x), 4 * np.full(8, 1e-40, "f4"))  # launched once before


def test_a_kernel_without_an_entry_point_is_not_called(opened, monkeypatch):
    """Kernels are launched one by one then."""
    launcher = opened.batch_launcher
    double = launched(opened, DOUBLE, (1,), opened.from_host(np.ones(3, "float32")).buffer, np.int64(3))
    assert launcher.begin([double], True) is not None
    monkeypatch.setattr(launcher, "_host_entry", None)
    monkeypatch.setattr(launcher, "_own_entry", None)
    entry_points, own = launcher.entry_points, launcher.new_kernel().handle.function_name
    found = entry_points.find
    monkeypatch.setattr(entry_points, "find", lambda x: None if x.kernel.function_name == own else found(x))
    assert launcher.begin([double], True) is None


def test_libraries_are_closed_with_the_last_entry_point(opened, rng):
    """One for each kernel that is called, and PoCL's own handle."""
    launcher = opened.batch_launcher
    double = launched(opened, DOUBLE, (1,), opened.from_host(np.ones(3, "float32")).buffer, np.int64(3))
    entry_points = launcher.entry_points
    entries = entry_points.find_all([double])
    library, name = ref(entries[0]._library), double.kernel.function_name
    assert name in entry_points._found
    del entries
    gc.collect()
    assert library() is None
    assert name not in entry_points._found
    assert launcher.begin([double], True) is not None  # it is found again


def test_a_wait_covers_work_items_that_end_late(opened, monkeypatch):
    monkeypatch.setattr(batch, "_LATE_WORKER_SECONDS", 0.0)
    x = opened.from_host(np.ones(3, "float32"))
    sequence, _ = sequence_of(opened, [launched(opened, DOUBLE, (1,), x.buffer, np.int64(3))], [-1])
    opened.queue.finish()
    sequence._counters[:] = 1  # as if some were still there
    before = x.to_host()
    sequence.submit([], [])
    opened.queue.finish()
    np.testing.assert_array_equal(x.to_host(), 2 * before)
    sequence._counters[:] = 0
