"""Memory of large results is used again when no array uses it, and not before."""

import gc
import pickle

import numpy as np
import pytest

from pytensor_cl.runtime.memory import result_memory
from pytensor_cl.runtime.memory.result_memory import ResultMemory

SIZE = 1 << 16


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks that are quick to write."""
    monkeypatch.setattr(result_memory, "MIN_BYTES", SIZE)
    monkeypatch.setattr(result_memory, "MAX_BYTES", 4 * SIZE)
    monkeypatch.setattr(result_memory, "_UNIT", 1 << 12)


def address(array):
    return array.__array_interface__["data"][0]


def make(memory, nbytes=SIZE):
    return memory.empty((nbytes // 8,), np.dtype("float64"), nbytes)


def test_memory_is_used_again():
    memory = ResultMemory()
    first, second = make(memory), make(memory)
    first[:], second[:] = 1, 2
    place = address(first)
    assert address(second) != place and (first == 1).all() and first.flags.writeable and first.flags.c_contiguous
    part = first[::2].reshape(-1, 2)
    del first
    gc.collect()
    third = make(memory)
    assert address(third) not in (place, address(second)), "a view uses it"
    third[:] = 3
    assert (part == 1).all()
    del part
    gc.collect()
    assert address(make(memory)) == place


def test_only_memory_of_about_the_size_is_used():
    memory = ResultMemory()
    kept = make(memory, 2 * SIZE)
    large = address(kept)
    del kept
    gc.collect()
    assert address(make(memory)) != large
    gc.collect()
    assert address(make(memory, 2 * SIZE - 512)) == large


def test_small_results_and_too_large_ones_are_not_kept():
    memory = ResultMemory()
    small = make(memory, SIZE - 8)
    assert small.flags.owndata
    arrays = [make(memory, (4 + k) * SIZE) for k in range(3)] + [make(memory) for _ in range(6)]
    del arrays, small
    gc.collect()
    assert sum(block.size for block in memory._free) <= 4 * SIZE
    memory.clear()
    assert not memory._free


def test_arrays_outlive_their_maker_and_can_be_pickled():
    array = make(ResultMemory())
    array[:] = 5
    gc.collect()
    assert (pickle.loads(pickle.dumps(array)) == array).all() and (array == 5).all()
