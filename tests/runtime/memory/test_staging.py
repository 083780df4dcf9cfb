"""Staging: values that pass through page-locked memory, on a driver that is told to have a memory of its own."""

import threading

import numpy as np
import pytest

from pytensor_cl.runtime.context import Context, Settings
from pytensor_cl.runtime.memory import result_memory, staging
from pytensor_cl.runtime.timed_queue import DOWNLOAD, UPLOAD, read_commands, timed
from tests.device_apart import device_apart

MIN, SMALL, LARGE, MIN_PIECE = staging.MIN_BYTES, staging.SMALL, staging.LARGE, staging.MIN_PIECE
SIZES = {n + d for n in (MIN, SMALL, MIN_PIECE, 2 * MIN_PIECE, LARGE, staging.MIN_SHARED) for d in (-1, 0, 1)}
BOUNDARIES = sorted({0, 1, *SIZES, staging.LARGE_SLOTS * LARGE, (staging.LARGE_SLOTS + 1) * LARGE + 1})


@pytest.fixture(scope="module")
def apart():
    """A context that stages."""
    context = Context("apart", device_apart(), Settings(quiet=True))
    assert context.staging.is_usable()
    return context


@pytest.fixture(params=[1, 4], autouse=True)
def threads(request, monkeypatch):
    """One thread copies, or several do."""
    monkeypatch.setattr(staging, "copying_threads", lambda: request.param)
    return request.param


@pytest.mark.parametrize("nbytes", BOUNDARIES)
def test_sizes_around_the_boundaries(apart, rng, nbytes):
    host = rng.integers(0, 256, nbytes, dtype="uint8")
    expected = host.copy()
    there = apart.from_host(host)
    host[...] = 0  # the caller may change it at once
    back = there.to_host()
    np.testing.assert_array_equal(back, expected)
    back[...] = 7
    np.testing.assert_array_equal(there.to_host(), expected)


def test_which_arrays_are_staged(apart, monkeypatch):
    used = []
    for name in ("write", "start_write", "read", "start_read"):
        method = getattr(apart.queue, name)
        monkeypatch.setattr(apart.queue, name, lambda *args, m=method, n=name: (used.append(n), m(*args))[1])
    for nbytes, expected in ((MIN - 1, ["write", "read"]), (MIN, ["start_write", "read"])):
        apart.from_host(np.zeros(nbytes, "uint8")).to_host()
        assert used == expected
        used.clear()
    apart.from_host(np.zeros(5 * LARGE + 3, "uint8")).to_host()
    pieces = used.count("start_write")
    assert pieces == used.count("start_read") == len(used) / 2 >= 6


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "uint32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("rows", [40, 700])
def test_dtypes_and_strides(apart, rng, dtype, rows):
    value = (rng.normal(size=(rows, 501)) * 50).astype(dtype)
    for host in (value, value.T, value[::-1, ::2], np.asfortranarray(value), np.broadcast_to(value[:1], (rows, 501))):
        there = apart.from_host(host)
        np.testing.assert_array_equal(there.to_host(), host)
    np.testing.assert_array_equal(there[:, 3:].to_host(), host[:, 3:])
    np.testing.assert_array_equal(apart.from_host(np.matrix(value)).to_host(), value)


def test_strided_arrays_are_packed_piece_by_piece(apart, rng, monkeypatch):
    deep = rng.integers(0, 256, (2, 3, LARGE + 5), dtype="uint8")
    wide = rng.normal(size=(900, 1100))
    for host in (
        deep[:, :2],
        deep[:, ::2, 3:],
        deep.T,
        wide.T,
        wide[::-3],
        wide[:, 7],
        np.broadcast_to(wide[0], (400, 1100)),
    ):
        np.testing.assert_array_equal(apart.from_host(host).to_host(), host)
    monkeypatch.setattr(np, "ascontiguousarray", None)  # no copy on the host
    there = apart.from_host(wide.T)
    monkeypatch.undo()
    np.testing.assert_array_equal(there.to_host(), wide.T)


def test_more_uploads_than_slots_before_a_wait(apart):
    for size in (MIN, SMALL, SMALL + 1, 3 * LARGE):
        there = [apart.from_host(np.full(size, i, "uint8")) for i in range(40)]
        for i, array in enumerate(there):
            assert (array.to_host() == i).all()


def test_large_results_use_memory_again_that_nobody_sees(apart, monkeypatch):
    monkeypatch.setattr(staging, "MIN_RESULT_BYTES", LARGE)
    monkeypatch.setattr(result_memory, "MIN_BYTES", LARGE)
    there = [apart.from_host(np.full(LARGE, k, "uint8")) for k in range(3)]
    kept = [array.to_host() for array in there]
    place = kept[1].ctypes.data
    kept[1] = None
    assert there[0].to_host().ctypes.data == place
    assert (kept[0] == 0).all() and (kept[2] == 2).all()


def test_busy_slots_are_not_waited_for(apart, monkeypatch):
    class Never:
        command_execution_status = 3

        def wait(self):
            raise AssertionError("waited")

    slots = [staging.Slot(slot.memory) for slot in apart.staging._small]
    monkeypatch.setattr(apart.staging, "_small", slots)
    for slot in slots:
        slot.events = (Never(),)
    array = np.arange(SMALL // 8)
    np.testing.assert_array_equal(apart.staging.upload(apart.empty((1,), "int64").buffer, array), False)
    there = apart.from_host(array)
    for slot in slots:
        slot.events = ()
    np.testing.assert_array_equal(there.to_host(), array)


def test_threads_at_the_same_time(apart):
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(6):
            host = rng.integers(0, 256, int(rng.choice(BOUNDARIES)), dtype="uint8")
            if not np.array_equal(apart.from_host(host).to_host(), host):
                wrong.append(host.size)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_timed_transfers_are_counted_in_full(apart):
    host = np.ones(3 * LARGE + 1, "uint8")
    with timed([apart]) as (log,):
        apart.from_host(host).to_host()
    commands = read_commands(log)
    for kind in (UPLOAD, DOWNLOAD):
        assert sum(c.nbytes for c in commands if c.kind == kind) == host.nbytes


def test_devices_in_the_memory_of_the_host_do_not_stage(context):
    assert context.info.kind != "cpu" or not context.staging.is_usable()


@pytest.mark.parametrize("defect", ["too small", "no memory", "wrong values"])
def test_without_staging_memory_the_driver_copies(defect, monkeypatch, rng):
    with monkeypatch.context() as patched:
        if defect == "no memory":
            from pyopencl import Buffer, RuntimeError

            def refuse(context, flags, size=0, hostbuf=None):
                if size > SMALL:
                    raise RuntimeError("out of memory")
                return Buffer(context, flags, size, hostbuf)

            patched.setattr(staging.cl, "Buffer", refuse)
        if defect == "wrong values":
            patched.setattr(staging.np, "array_equal", lambda a, b: False)
        size = {"max_allocation": LARGE} if defect == "too small" else {}
        bare = Context("bare", device_apart(**size), Settings(quiet=True))
        assert not bare.staging.is_usable()
    host = rng.normal(size=LARGE // 32)
    np.testing.assert_array_equal(bare.from_host(host).to_host(), host)


@pytest.mark.parametrize("name", ["start_write", "start_read"])
def test_an_error_ends_a_transfer_and_leaves_the_slots_free(apart, rng, monkeypatch, name):
    host = rng.integers(0, 256, (staging.LARGE_SLOTS + 3) * LARGE, dtype="uint8")
    there, method, calls = apart.from_host(host), getattr(apart.queue, name), []

    def fail_once(*args):
        calls.append(args)
        if len(calls) == 4:
            raise ValueError("piece 3")
        return method(*args)

    monkeypatch.setattr(apart.queue, name, fail_once)
    with pytest.raises(ValueError, match="piece 3"):
        apart.from_host(host) if name == "start_write" else there.to_host()
    np.testing.assert_array_equal(apart.from_host(host).to_host(), host)


def test_one_thread_enqueues_all_commands(apart, monkeypatch):
    """Drivers may fail where several threads use a queue at a time."""
    callers = set()
    for name in ("start_write", "start_read"):
        method = getattr(apart.queue, name)
        monkeypatch.setattr(
            apart.queue, name, lambda *args, m=method: (callers.add(threading.get_ident()), m(*args))[1]
        )
    apart.from_host(np.zeros(5 * LARGE, "uint8")).to_host()
    assert callers == {threading.get_ident()}
