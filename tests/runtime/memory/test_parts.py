"""Parts of buffers, and the order in which they are released."""

import gc
import os
import signal
import sys
from _thread import interrupt_main
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.context import open_context
from pytensor_cl.runtime.memory import device_memory, parts


class Whole:
    """Stands in for a buffer of the driver."""

    int_ptr = 1

    def __init__(self):
        self.released = []

    def get_sub_region(self, begin, nbytes):
        return SimpleNamespace(place=(begin, nbytes), release=lambda: self.released.append(begin))


@pytest.fixture
def whole(monkeypatch):
    found = Whole()
    buffers = SimpleNamespace(from_int_ptr=lambda pointer, retain: found)
    monkeypatch.setattr(parts, "cl", SimpleNamespace(Buffer=buffers))
    return found


def test_all_parts_are_released_at_once_and_in_reverse(whole):
    buffer = SimpleNamespace(int_ptr=1)
    kept = [parts.parts_of(buffer).part(begin, 4) for begin in (8, 0, 4)]
    kept.append(parts.parts_of(buffer).new(0, 4))
    kept[0] = kept[2] = None
    gc.collect()
    assert whole.released == []
    del buffer
    gc.collect()
    assert whole.released == [0, 4, 0, 8] and kept[1].place == (0, 4)


def test_a_part_is_the_same_object_unless_a_new_one_is_asked_for(whole):
    buffer = SimpleNamespace(int_ptr=1)
    found = parts.parts_of(buffer)
    assert found.part(0, 4) is parts.parts_of(buffer).part(0, 4)
    assert found.part(0, 4) is not found.part(0, 8) and found.new(0, 4) is not found.part(0, 4)
    assert len(found) == 3


def test_a_known_part_is_one_that_was_made(whole):
    found = parts.parts_of(SimpleNamespace(int_ptr=1))
    assert found.known(0, 4) is None and len(found) == 0
    assert found.part(0, 4) is found.known(0, 4) and found.known(0, 8) is None


def test_a_signal_leaves_no_part(whole, monkeypatch):
    """Its handler runs after the loop over the methods, which are in C; what it raises is lost in ``__del__``."""
    buffer = SimpleNamespace(int_ptr=1)
    made = [parts.parts_of(buffer).part(begin, 4) for begin in range(200)]
    for begin, part in enumerate(made):
        part.release = partial(whole.released.append, begin)
    made[150].release = partial(interrupt_main, signal.SIGUSR1)
    errors = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: errors.append(error.exc_type))
    before = signal.signal(signal.SIGUSR1, lambda *_: 1 / 0)
    try:
        del buffer
        gc.collect()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert errors == [ZeroDivisionError]
    assert whole.released == [begin for begin in range(199, -1, -1) if begin != 150]


def test_a_forked_child_releases_nothing(whole, monkeypatch):
    buffer = SimpleNamespace(int_ptr=1)
    parts.parts_of(buffer).part(0, 4)
    parts.parts_of(buffer)._process = os.getpid() + 1
    del buffer
    gc.collect()
    assert whole.released == []


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_before_there_are_parts_is_all_that_is_raised(monkeypatch):
    def interrupted(pointer, retain):
        raise KeyboardInterrupt

    monkeypatch.setattr(parts, "cl", SimpleNamespace(Buffer=SimpleNamespace(from_int_ptr=interrupted)))
    with pytest.raises(KeyboardInterrupt):
        parts.parts_of(SimpleNamespace(int_ptr=1))
    gc.collect()


def test_parts_have_the_bytes_of_the_buffer(context):
    fresh = open_context(f"opencl:{context.name}", "fresh")
    step = fresh.memory.arena.alignment
    x = np.arange(4 * step, dtype="uint8")
    array = fresh.from_host(x)
    part = parts.parts_of(array.buffer).part(step, 2 * step)
    found = np.empty(2 * step, "uint8")
    cl.enqueue_copy(fresh.queue.handle, found, part)
    np.testing.assert_array_equal(found, x[step : 3 * step])
    del array
    gc.collect()
    with pytest.raises(cl.Error):  # it was released with the array
        part.release()


def test_captured_graphs_release_no_part_before_the_arena_grows(context, monkeypatch):
    released, made = [], []

    class Noted(parts.Parts):
        def new(self, begin, nbytes):
            made.append((id(self), begin, nbytes))
            return super().new(begin, nbytes)

        def __del__(self):
            released.append((id(self), len(self)))
            super().__del__()

    monkeypatch.setattr(parts, "Parts", Noted)
    fresh = open_context(f"opencl:{context.name}", "fresh")
    if fresh.batch_launcher is not None:
        pytest.skip("the launcher of this driver passes addresses")
    arena = fresh.memory.arena
    fresh.memory.reserve([1 << 16])
    for offset in (0, 2, 1, 0):
        arena.part(0, offset * arena.alignment, 64)
    first = id(parts.parts_of(arena.buffers[0]))
    assert [place for number, *place in made if number == first] == [
        [0, 64], [2 * arena.alignment, 64], [arena.alignment, 64]
    ] and released == []  # fmt: skip
    fresh.memory.reserve([1 << 20])
    gc.collect()
    assert released == [(first, 3)]


def test_parts_of_graphs_that_are_gone_are_released(context, monkeypatch):
    memory = open_context(f"opencl:{context.name}", "fresh").memory
    monkeypatch.setattr(device_memory, "MANY_PARTS", 10)
    memory.reserve([1 << 16])
    user = SimpleUser()
    memory.add_arena_user(user)
    for count in range(1, 20):
        memory.arena.part(0, 0, count)
    user.range_count = 10
    memory.reserve([1 << 10])  # half of them are in use
    assert memory.arena.part_count == 19 and not user.releases
    user.range_count = 9
    memory.reserve([1 << 10])
    assert memory.arena.part_count == 0 and user.releases == 1 and memory.arena.fits([1 << 16])


class SimpleUser:
    """Has captured graphs in the arena."""

    range_count = releases = 0

    def release_arena(self):
        self.releases += 1
