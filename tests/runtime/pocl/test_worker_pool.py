"""Work-items that stay for the next call, and who helps in a call."""

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
from pytensor_cl.runtime.pocl.affinity import spread_cores
from pytensor_cl.runtime.pocl.batch import KernelBatch
from pytensor_cl.runtime.pocl.worker_pool import ALONE, CALLED, LAUNCHED, ParticipationTuner
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
    if context.batch_launcher.units < 2:
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
    assert context.batch_launcher.begin(launches, True) is not None
    stages = [context.batch_launcher.stage(x) for x in launches]
    for stage, launch in zip(stages, launches, strict=True):
        stage.fixed.update((i, a) for i, a in enumerate(launch.arguments) if not isinstance(a, bytes | np.generic))
    return KernelBatch(context.batch_launcher, stages, after)


class Always:
    """A team that calls whoever stands by, and launches those who stay if nobody does."""

    def __init__(self, most):
        self.most = most
        self.ways = []

    def choose(self, are_ready, is_soon, is_crowded):
        self.ways.append(CALLED if are_ready else LAUNCHED)
        return self.ways[-1]

    def keeps(self, is_soon):
        return True

    def took(self, way, seconds):
        pass


def always(chain):
    chain._team = Always(chain._team.most)
    return chain._team.ways


@pytest.fixture
def patient(opened, monkeypatch):
    """Let work-items stand by until they are dismissed."""
    monkeypatch.setattr(opened.batch_launcher.standby, "ticks", FOREVER)


def states(context):
    return list(context.batch_launcher.standby._states)


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
        assert not opened.queue.pending
    assert ways.count(CALLED) > ways.count(LAUNCHED)


@pytest.mark.usefixtures("patient")
def test_those_that_stand_by_do_their_share(opened):
    out = opened.from_host(np.zeros(5000, "uint64"))
    chain = chained(opened, [launched(opened, STACKS, (400,), out.buffer)], [-1])
    opened.queue.finish()
    ways, threads = always(chain), 0
    while threads < 2 or ways[-1] != CALLED:
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
        number = opened.batch_launcher.standby._launch
        found = wait(x) if wait is not sync else wait()
        assert opened.batch_launcher.standby._launch == number
        if found is not None:
            np.testing.assert_array_equal(found, np.full(5000, 2, "f4"))


def test_a_setting_sends_them_away_at_once(context):
    off = open_context(f"opencl:{context.name}", "off", Settings(stand_by=False))
    if off.batch_launcher is None:
        pytest.skip("kernels have no entries with this driver")
    assert off.batch_launcher.standby.ticks == 0
    x = off.from_host(np.ones(5000, "float32"))
    chain = chained(off, [launched(off, DOUBLE, (61,), x.buffer, np.int64(5000))], [-1])
    ways = always(chain)
    for _ in range(20):
        chain.run_and_wait()
    assert set(ways) == {LAUNCHED}
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
    standby, count = opened.batch_launcher.standby, opened.batch_launcher.units - 1
    opened.queue.finish()

    def place(*there):
        standby._may_be, standby._size, standby._since = True, count, -inf  # they were launched long ago
        standby._states[:count] = memoryview(np.array([READY if k in there else AWAY for k in range(count)], np.uint32))

    yield place
    place()
    standby._may_be = False


def test_who_has_left_is_replaced(opened, placed):
    """With only some of those that could help each call would take longer for good."""
    standby, count = opened.batch_launcher.standby, opened.batch_launcher.units - 1
    for there in range(count + 1):
        placed(*range(there))
        assert standby.are_ready(count) == (4 * there >= 3 * count)
        assert standby.are_ready(1) == (there >= 1)
        assert not standby.are_ready(count + 1)
    placed(*range(1, count))  # only those are called that come first
    assert not standby.are_ready(1)


@pytest.fixture
def tied(opened):
    """Threads that are tied to a core each, and the cores."""
    if not spread_cores() or len(spread_cores()) < 2:
        pytest.skip("threads are not tied to cores")
    (cores,) = module._spread
    after, cores._next = cores._next, inf  # nobody reviews them
    cores._tie(1)
    yield cores
    cores._tie(1)
    cores._next = after


def where(cores):
    return {thread: os.sched_getaffinity(thread) for thread in cores._threads}


def stand_by_freely(opened, cores):
    """Call until some stand by on all cores."""
    before, x = where(cores), opened.from_host(np.ones(5000, "float32"))
    double = launched(opened, DOUBLE, (61,), x.buffer, np.int64(5000))
    chain = chained(opened, [double] * 3, [-1, 0, 1])
    opened.queue.finish()
    ways, free = always(chain), 0
    while not free or ways[-1] != CALLED:
        assert len(ways) < 20_000
        chain.run_and_wait()
        free = sum(now == set(spread_cores()) != before[thread] for thread, now in where(cores).items())
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
    if len(spread_cores()) < 3:
        pytest.skip("two cores are all")
    stand_by_freely(opened, tied)
    tied._tie(2)
    expected = where(tied)
    opened.queue.finish()
    assert where(tied) == expected
    assert {len(cores) for cores in expected.values()} == {2}


def test_who_is_not_wanted_any_more_leaves(opened, monkeypatch):
    """Calls of a small function, for one helper, do not keep those of a large one."""
    if opened.batch_launcher.units < 4:
        pytest.skip("too few can help")
    monkeypatch.setattr(opened.batch_launcher.standby, "ticks", 30_000_000)  # 10 ms
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
    ways, standby = always(chain), opened.batch_launcher.standby
    before = opened.views.view(x).copy()
    standby._may_be, standby._size = True, len(states(opened))
    for k in range(standby_count := len(states(opened))):
        standby._states[k] = READY
    try:
        for _ in range(9):  # each table twice
            chain.run_and_wait()
            assert states(opened) == [READY] * standby_count
            assert not chain._counts.any()
    finally:
        for k in range(standby_count):
            standby._states[k] = AWAY
        standby._may_be = False
    assert ways == [CALLED] * 9
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
    standby = opened.batch_launcher.standby
    assert next(standby.numbers) != next(standby.numbers)


@pytest.fixture
def undisturbed(monkeypatch):
    """Look at all again only after many calls."""
    monkeypatch.setattr("pytensor_cl.runtime.pocl.worker_pool._AGAIN", (2048,))


@pytest.mark.usefixtures("undisturbed")
def test_help_that_others_have_launched_is_no_reason_to_do_without():
    """Those of a small function stand by; they are not worth it here, or are too few."""
    team = ParticipationTuner(3)
    seconds = {LAUNCHED: 1e-3, ALONE: 3.5e-3, CALLED: 3.5e-3}
    answers(team, seconds, 11, True)
    assert answers(team, seconds, 50, True, is_ready=True) == [LAUNCHED] * 50


@pytest.mark.usefixtures("undisturbed")
def test_a_lucky_launch_changes_nothing():
    team = ParticipationTuner(3)
    quiet = {LAUNCHED: 500e-6, ALONE: 130e-6, CALLED: 200e-6}
    answers(team, quiet, 6, True)
    answers(team, quiet | {LAUNCHED: 90e-6}, 1, True)  # for those that are to stand by
    assert answers(team, quiet, 60, True)[-50:] == [ALONE] * 50


@pytest.mark.usefixtures("undisturbed")
def test_what_takes_longer_in_use_than_in_tries_is_given_up():
    team = ParticipationTuner(3)
    tries = {LAUNCHED: 44e-6, ALONE: 45e-6, CALLED: 43e-6}
    answers(team, tries, 11, False)
    in_use = {LAUNCHED: 150e-6, ALONE: 45e-6, CALLED: 43e-6}
    found = answers(team, in_use, 200, False)
    assert found[0] == LAUNCHED and found[-150:] == [ALONE] * 150


@pytest.mark.usefixtures("undisturbed")
def test_where_other_threads_want_the_cores_a_call_is_done_alone():
    team = ParticipationTuner(3)
    answers(team, {LAUNCHED: 100e-6, ALONE: 150e-6, CALLED: 120e-6}, 40, False)
    assert team.choose(False, False, False) == LAUNCHED
    assert team.choose(False, False, True) == ALONE
    long = ParticipationTuner(3)
    answers(long, {LAUNCHED: 100e-6, ALONE: 250e-6, CALLED: 120e-6}, 40, False)
    assert long.choose(False, False, True) == LAUNCHED


def answers(team, seconds, calls, is_soon, is_ready=None):
    """Who is chosen in some calls of which each way takes so many seconds; those who are kept are ready."""
    found, ready = [], False
    for _ in range(calls):
        way = team.choose(ready if is_ready is None else is_ready, is_soon)
        ready = (way == LAUNCHED and team.keeps(is_soon)) or (ready and way == CALLED)
        team.took(way, seconds[way])
        found.append(way)
    return found


@pytest.mark.parametrize(("alone", "best"), [(80e-6, ALONE), (130e-6, LAUNCHED)])
def test_help_is_taken_where_it_helps(alone, best):
    team = ParticipationTuner(3)
    seconds = {LAUNCHED: 100e-6, ALONE: alone, CALLED: 10e-6}
    assert answers(team, seconds, 6, False) == [LAUNCHED, *[ALONE] * 3, *[LAUNCHED] * 2]
    assert answers(team, seconds, 20, False) == [best] * 20


@pytest.mark.usefixtures("undisturbed")
def test_those_that_stand_by_are_called_where_calls_come_soon():
    team = ParticipationTuner(3)
    seconds = {LAUNCHED: 100e-6, ALONE: 80e-6, CALLED: 30e-6}
    answers(team, seconds, 6, True)
    assert answers(team, seconds, 50, True) == [LAUNCHED, *[CALLED] * 49]
    assert answers(team, seconds, 3, False, is_ready=False) == [ALONE] * 3


def test_those_that_stand_by_are_not_called_where_it_takes_longer():
    team = ParticipationTuner(3)
    seconds = {LAUNCHED: 100e-6, ALONE: 5e-6, CALLED: 6e-6}
    answers(team, seconds, 6, True)
    assert answers(team, seconds, 30, True) == [LAUNCHED, *[CALLED] * 4, *[ALONE] * 25]


def test_it_is_looked_at_again(monkeypatch):
    """Programs that keep the cores busy come and go."""
    monkeypatch.setattr("pytensor_cl.runtime.pocl.worker_pool._AGAIN", (100,))
    team = ParticipationTuner(3)
    quiet = {LAUNCHED: 100e-6, ALONE: 80e-6, CALLED: 30e-6}
    busy = {LAUNCHED: 900e-6, ALONE: 90e-6, CALLED: 300e-6}
    assert answers(team, quiet, 60, True)[-1] == CALLED
    assert answers(team, busy, 200, True)[-50:].count(ALONE) >= 35
    assert answers(team, quiet, 200, True)[-50:].count(CALLED) >= 35


def test_an_unlucky_try_is_soon_made_good():
    """Of the first launches each wakes threads, and touches memory for the first time."""
    team = ParticipationTuner(3)
    answers(team, {LAUNCHED: 1900e-6, ALONE: 1800e-6, CALLED: inf}, 6, False)
    settled = {LAUNCHED: 700e-6, ALONE: 1500e-6, CALLED: inf}
    assert answers(team, settled, 32, False) == [ALONE] * 32
    assert answers(team, settled, 50, False)[6:] == [LAUNCHED] * 44


@pytest.mark.usefixtures("undisturbed")
def test_what_is_taken_where_nobody_stands_by_is_looked_at_in_use_too():
    team = ParticipationTuner(3)
    answers(team, {LAUNCHED: 90e-6, ALONE: 80e-6, CALLED: 20e-6}, 12, True)
    apart = answers(team, {LAUNCHED: 90e-6, ALONE: 200e-6, CALLED: 20e-6}, 40, False, is_ready=False)
    assert apart[0] == ALONE and apart[-1] == LAUNCHED


def test_those_that_stand_by_are_tried_in_long_calls_too():
    """They need not be better by a tenth then: what they gain is more than what they cost others."""
    team = ParticipationTuner(3)
    seconds = {LAUNCHED: 4e-3, ALONE: 14e-3, CALLED: 3.9e-3}
    assert answers(team, seconds, 30, True)[-20:] == [CALLED] * 20
    team = ParticipationTuner(3)
    assert answers(team, seconds | {CALLED: 3.99e-3}, 30, True)[-20:] == [LAUNCHED] * 20


@pytest.mark.usefixtures("undisturbed")
def test_those_who_leave_again_and_again_are_done_without():
    """Another program keeps a core from one of them: each call would launch others."""
    team = ParticipationTuner(3)
    seconds = {LAUNCHED: 200e-6, ALONE: 100e-6, CALLED: 50e-6}
    assert answers(team, seconds, 20, True)[-1] == CALLED
    assert answers(team, seconds, 60, True, is_ready=False)[-20:] == [ALONE] * 20
    assert answers(team, seconds, 20, True)[-1] == ALONE


@pytest.mark.parametrize("calls", [[(LAUNCHED, 5e-3)], [(LAUNCHED, 1e-3), (ALONE, 3.5e-3)]])
def test_what_takes_long_is_not_done_alone(calls):
    team = ParticipationTuner(3)
    for wanted, seconds in calls:
        assert team.choose(False, False) == wanted
        team.took(wanted, seconds)
    assert answers(team, {LAUNCHED: calls[0][1]}, 9, False) == [LAUNCHED] * 9
    alone = ParticipationTuner(0)
    alone.took(ALONE, 1.0)
    assert alone.choose(False, True) == alone.choose(True, True) == ALONE
