"""Time stamps of commands are on the host's clock and in order."""

from time import perf_counter_ns

import numpy as np

from pytensor_cl.routines.elemwise.routine import Cast, Elemwise
from pytensor_cl.runtime.timed_queue import COPY, DOWNLOAD, KERNEL, UPLOAD, read_commands, timed


def work(context, array):
    """One command of each kind."""
    copy = Elemwise(context, Cast("float32", "float32"), ((False,),), 1, (False,))
    return copy(context.from_host(array))[0].copy().to_host()


def test_commands_are_stamped_in_order(context, rng):
    array = rng.normal(size=10_000).astype("float32")
    with timed([context]) as (log,):
        before = perf_counter_ns()
        result = work(context, array)
        after = perf_counter_ns()
    np.testing.assert_array_equal(result, array)
    commands = read_commands(log)
    # Copies may be made by kernels, and where the host can read the device's memory nothing is downloaded.
    kinds = [c.kind for c in commands]
    assert kinds[:2] == [UPLOAD, KERNEL] and kinds[2] in (COPY, KERNEL) and kinds[3:] in ([], [DOWNLOAD])
    assert [c.nbytes for c in commands if c.kind != KERNEL] == [array.nbytes] * (len(kinds) - kinds.count(KERNEL))
    assert commands[1].name.startswith("elemwise") and all(c.context == context.name for c in commands)
    ends = [c.end for c in commands]
    assert ends == sorted(ends) and all(c.start <= c.end for c in commands)
    slack = 50_000  # ns: of two clocks
    assert all(before - slack <= c.start and c.end <= after + slack for c in commands)
    assert read_commands(log) == []


def test_the_queue_comes_back(context, rng):
    before = dict(vars(context.queue))
    with timed([context]) as (log,):
        assert vars(context.queue) != before
    assert vars(context.queue) == before
    work(context, np.ones(10_000, "float32"))
    assert read_commands(log) == []


def test_one_inside_another_has_commands_of_its_own(context):
    array = np.ones(10_000, "float32")
    with timed([context]) as (outer,):
        context.from_host(array)
        with timed([context]) as (inner,):
            context.from_host(array).to_host()
        context.from_host(array)
    assert [[c.kind for c in read_commands(log)].count(UPLOAD) for log in (outer, inner)] == [2, 1]
