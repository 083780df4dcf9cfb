"""The pool of device memory."""

import gc

import numpy as np
import pytest

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.context import open_context
from pytensor_cl.runtime.launch_capture import LaunchCapture
from pytensor_cl.runtime.memory import pool
from pytensor_cl.runtime.memory.device_memory import is_lack_of_memory
from tests.helpers import run_script


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
    """Return as many allocations as that many windows have."""
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


@pytest.mark.usefixtures("host_sees_memory")  # other memory takes no addresses of the process
def test_a_limit_of_address_space_is_an_error_when_memory_is_allocated(context):
    """PoCL allocated memory at its first use, and ended the process where there was none."""
    script = f"""
        import resource
        import numpy as np
        from pathlib import Path
        from pytensor_cl.runtime.context import open_context

        context, kept = open_context("opencl:{context.name}"), []
        context.from_host(np.ones(1 << 20)).copy().to_host()  # what is loaded at the first use is loaded
        used = next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").open() if "VmSize" in line)
        resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)
        try:
            while len(kept) < 20:
                kept.append(context.empty((25 << 20,), "float64"))
        except MemoryError as error:
            seen["error"] = type(error).__name__, str(error)
        seen["count"] = len(kept)
        for value, array in enumerate(kept):
            context.queue.write(array.buffer, np.full(10, value + 0.5))
        seen["values"] = [array[:10].to_host().tolist() for array in kept]
        del kept, array
        seen["later"] = context.from_host(np.ones(1 << 18)).copy().to_host()[:3].tolist()
    """
    seen, _ = run_script(script)
    name, text = seen["error"]
    assert name == "OutOfDeviceMemory" and "could not allocate 209,715,200 bytes" in text
    assert 1 <= seen["count"] <= 3
    assert seen["values"] == [[value + 0.5] * 10 for value in range(seen["count"])]
    assert seen["later"] == [1.0] * 3


@pytest.mark.parametrize(("code", "is_lack"), [
    ("OUT_OF_HOST_MEMORY", True), ("OUT_OF_RESOURCES", True), ("INVALID_BUFFER_SIZE", True), ("INVALID_VALUE", False),
])  # fmt: skip
def test_what_says_that_memory_is_lacking(code, is_lack):
    """pyopencl's class of the error depends on the code, and is its MemoryError for one code only."""
    failure = type("Failure", (cl.RuntimeError,), {"code": getattr(cl.status_code, code)})
    assert is_lack_of_memory(failure()) == is_lack
