"""The pool of device memory."""

import gc

import numpy as np
import pytest

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.context import open_context


@pytest.fixture
def fresh(context):
    """A context whose pool nobody else uses."""
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
