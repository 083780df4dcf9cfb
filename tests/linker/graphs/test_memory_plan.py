"""Offsets of intermediate results in the arena."""

import numpy as np
import pytest

from pytensor_cl.linker.graphs.memory import Allocation, MemoryPlan, lower_bound, make_plan
from pytensor_cl.runtime.context import open_context

LIMIT = 1 << 40


def allocation(nbytes, first, last):
    return Allocation("", None, "", nbytes, first, last)


def assert_valid(plan, alignment):
    """No two that are alive at once share a byte."""
    for k, (a, here) in enumerate(zip(plan.allocations, plan.ranges, strict=True)):
        assert here.offset % alignment == 0 and here.nbytes >= a.nbytes
        assert here.end <= plan.buffer_sizes[here.number]
        for b, there in zip(plan.allocations[:k], plan.ranges[:k], strict=True):
            if a.first <= b.last and b.first <= a.last and here.number == there.number:
                assert here.end <= there.offset or there.end <= here.offset


def test_what_is_live_at_once():
    assert lower_bound([]) == 0
    assert lower_bound([allocation(5, 0, 1), allocation(7, 1, 2), allocation(100, 3, 3)]) == 100
    assert lower_bound([allocation(5, 0, 1), allocation(7, 1, 2), allocation(9, 2, 3)]) == 16


@pytest.mark.parametrize("alignment", [1, 128])
def test_plans_of_random_lifetimes(rng, alignment):
    for _ in range(50):
        count = int(rng.integers(1, 40))
        first = rng.integers(0, 30, count)
        lives = zip(rng.integers(1, 10**6, count), first, first + rng.integers(0, 8, count), strict=True)
        plan = make_plan([allocation(*map(int, life)) for life in lives], alignment, LIMIT)
        assert_valid(plan, alignment)
        assert plan.lower_bound <= plan.nbytes <= 1.6 * plan.lower_bound + alignment * count


def test_a_chain_needs_no_more_than_its_bound(rng):
    sizes = rng.integers(10**4, 10**6, 60)
    plan = make_plan([allocation(int(n), k, k + 1) for k, n in enumerate(sizes)], 128, LIMIT)
    assert_valid(plan, 128)
    assert plan.nbytes <= 1.01 * plan.lower_bound


def test_several_buffers_where_none_can_be_larger():
    plan = make_plan([allocation(60, 0, 5) for _ in range(5)] + [allocation(100, 6, 7)], 10, 128)
    assert_valid(plan, 10)
    assert plan.buffer_sizes == (120, 120, 60)


def test_nothing():
    assert make_plan([], 128, LIMIT) == MemoryPlan()


def test_an_arena_that_grows(context):
    memory = open_context(f"opencl:{context.name}", "grows").memory
    released = []

    class User:
        range_count = 0

        def release_arena(self):
            released.append(memory.arena.version)

        def clear(self):
            raise AssertionError

    user = User()
    memory.add_arena_user(user)
    memory.reserve((1000, 300))
    memory.reserve((500,))
    assert len(released) == 1 and memory.arena.fits((1000, 300)) and not memory.arena.fits((1000, 300, 1))
    version, whole = memory.arena.version, memory.arena.buffers[0]
    part = memory.arena.part(0, memory.arena.alignment, 128)
    memory.reserve((200, 400, 50))
    assert memory.arena.version != version and [b.size for b in memory.arena.buffers] == [1000, 400, 50]
    assert memory.statistics().arena_bytes == 1450
    host = np.arange(128, dtype="uint8")
    memory._queue.write(part, host)  # whoever holds a buffer that was replaced can still use its parts
    back = np.empty_like(host)
    memory._queue.read(back, part)
    np.testing.assert_array_equal(back, host)
    assert all(b is not whole for b in memory.arena.buffers)
