"""The pool of device memory."""

import gc

import numpy as np
import pytest

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.context import open_context
from pytensor_cl.runtime.launch_capture import LaunchCapture
from pytensor_cl.runtime.memory import pool


@pytest.fixture
def fresh(context):
    """A context whose pool no other test uses."""
    return open_context(f"opencl:{context.name}", "fresh")


def test_buffers_come_back_and_are_used_again(fresh):
    array = fresh.empty((1000,), "float64")
    used = fresh.memory.statistics()
    assert used.active_blocks == 1 and used.active_bytes >= 8000
    view = array[1:]
    del array
    gc.collect()
    assert fresh.memory.statistics().active_blocks == 1
    del view
    gc.collect()
    held = fresh.memory.statistics()
    assert (held.active_blocks, held.held_blocks) == (0, 1) and held.managed_bytes == used.managed_bytes
    again = fresh.empty((1000,), "float64")
    assert again.size == 1000 and fresh.memory.statistics().managed_bytes == used.managed_bytes
    del again
    fresh.memory.trim()
    assert fresh.memory.statistics().held_blocks == 0


def test_a_full_device_is_tried_again_after_the_pool_gave_back(fresh, monkeypatch):
    calls = []
    allocate = fresh.memory._allocate

    def full_once(count):
        calls.append(count)
        if len(calls) == 1:
            raise cl.MemoryError("full")
        return allocate(count)

    monkeypatch.setattr(fresh.memory, "_allocate", full_once)
    np.testing.assert_array_equal(fresh.empty((3,), "int8").shape, (3,))
    assert calls == [3, 3]


def test_a_device_that_stays_full(fresh, monkeypatch):
    def full(count):
        raise cl.MemoryError("full")

    monkeypatch.setattr(fresh.memory, "_allocate", full)
    with pytest.raises(OutOfDeviceMemory, match="could not allocate 12 bytes: at most"):
        fresh.empty((3,), "float32")
    monkeypatch.undo()
    assert fresh.empty((3,), "float32").size == 3


MIB = 1 << 20


def small_ones(context, windows):
    """As many allocations as that many windows have."""
    for _ in range(windows * pool.WINDOW):
        context.empty((1,), "int8")


def large(context):
    """Number of large buffers, in use or idle."""
    return sum(p.active_blocks + p.held_blocks for p in list(context.memory.buffers.pools())[1:])


def test_unused_large_buffers_are_released(fresh):
    one, two, other = (fresh.empty((n * MIB,), "int8") for n in (8, 8, 16))
    del one, other
    small_ones(fresh, 1)
    assert large(fresh) == 3
    small_ones(fresh, 2)
    assert large(fresh) == 1 and two.size == 8 * MIB
    del two
    small_ones(fresh, 3)
    assert large(fresh) == 0 and fresh.memory.statistics().managed_bytes < MIB


def test_only_what_is_idle_all_the_time_goes_back(fresh):
    arrays = [fresh.empty((4 * MIB,), "int8") for _ in range(5)]
    del arrays
    for _ in range(6 * pool.WINDOW):
        arrays = [fresh.empty((4 * MIB,), "int8") for _ in range(2)]
        del arrays
    assert large(fresh) == 2 and fresh.memory.buffers.max_idle_windows == 1


def test_large_buffers_that_are_needed_now_and_then_are_soon_kept(fresh):
    """Each time that one went back too soon, idle ones stay twice as long."""
    pool, missing = fresh.memory.buffers, []
    for _ in range(30):
        missing.append(large(fresh) == 0)
        fresh.empty((4 * MIB,), "int8")
        small_ones(fresh, 4)
    assert 1 < sum(missing) <= 4 and not any(missing[-20:])
    assert 1 < pool.max_idle_windows <= 8
    small_ones(fresh, 2 * pool.max_idle_windows)
    assert large(fresh) == 0


def test_what_is_idle_is_no_more_than_a_share_of_the_memory(fresh, monkeypatch):
    monkeypatch.setattr(fresh.memory.buffers, "_limit", 10 * MIB)
    for n in (1, 2, 4, 8, 16):
        fresh.empty((n * MIB,), "int8")
    assert large(fresh) == 1  # when the last one was allocated, fifteen MiB were idle


def test_calls_that_need_more_than_the_share_soon_find_it(fresh, monkeypatch):
    monkeypatch.setattr(fresh.memory.buffers, "_limit", 10 * MIB)
    found = []
    for _ in range(12):
        for n in (1, 2, 4, 8, 16):
            fresh.empty((n * MIB,), "int8")
        found.append(large(fresh))
    assert found[-8:] == [5] * 8


def test_a_capture_identifies_buffers_by_handles(fresh):
    fresh.empty((4 * MIB,), "int8")
    fresh.queue.capture = LaunchCapture()
    small_ones(fresh, 4)
    assert large(fresh) == 1
    fresh.queue.capture = None
    small_ones(fresh, 2)
    assert large(fresh) == 0
