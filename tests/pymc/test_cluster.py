"""Chains on the workers of a Dask cluster: the same draws wherever the shards are, and whatever happens to workers."""

import os
import signal
import threading

import numpy as np
import pytest

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")
distributed = pytest.importorskip("distributed")

from pytensor_cl.pymc import cluster, sample, worker_shards, workers  # noqa: E402
from tests.conftest import DRIVERS  # noqa: E402
from tests.helpers import on_one_driver  # noqa: E402
from tests.pymc.test_checkpoint import assert_same, schools  # noqa: E402

OPTIONS = {"chains": 16, "draws": 8, "tune": 30, "random_seed": 3, "max_steps": 31, "progressbar": False}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def client():
    """A cluster of two worker processes, on the driver of the first tests."""
    env = {"PYTENSOR_FLAGS": f"device=opencl:{DRIVERS[0]},opencl__select_backend=False"}
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", env=env, memory_limit=0
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def undisturbed(client):
    """The draws of two workers to which nothing happens."""
    return sample(schools(), client=client, **OPTIONS)


@pytest.fixture
def often(monkeypatch):
    """States are kept, draws are fetched and workers are looked at often."""
    monkeypatch.setattr(cluster, "STATE_COMMANDS", 5)
    monkeypatch.setattr(cluster, "BLOCK_LENGTH", 2)
    monkeypatch.setattr(workers, "_SECONDS_BETWEEN_LOOKS", 0.1)


def kill(client, addresses):
    """End worker processes as a power cut does; their nannies start others."""
    for pid in client.run(os.getpid, workers=list(addresses)).values():
        os.kill(pid, signal.SIGKILL)


@on_one_driver
def test_draws_are_those_of_devices(context, client, undisturbed):
    """The same number of shards makes the same draws, bit for bit, in this process and in two others."""
    assert_same(undisturbed, sample(schools(), devices=[context.name], **OPTIONS))
    assert len(np.unique(undisturbed.posterior["mu"].values[:, 0])) == OPTIONS["chains"]
    counts = client.run(lambda: (len(worker_shards._functions), len(worker_shards._runs)))
    assert list(counts.values()) == [(1, 0)] * 2  # both had a part, and the chains' memory is free again


@on_one_driver
def test_killed_workers_change_nothing(context, client, undisturbed, often, monkeypatch, tmp_path):
    """One is killed in the warm-up; then all are, which is an error; then one among the draws.

    The run goes on from the checkpoint that was written with the error, on as many workers as there are.
    """
    model, path, seen = schools(), tmp_path / "state", []

    def disturb(record):
        seen.append(record.iteration)
        if record.iteration == 22:
            monkeypatch.setattr(workers, "SECONDS_WITHOUT_WORKERS", 0.01)
        if record.iteration in (13, 22, 33):
            client.wait_for_workers(2, timeout=120)  # the nannies have replaced those killed before
            kill(client, list(client.nthreads())[: 2 if record.iteration == 22 else 1])

    with pytest.raises(workers.WorkersLost, match="no worker of the cluster is left"):
        sample(model, client=client, checkpoint=path, callback=disturb, **OPTIONS)
    assert seen == list(range(23))
    monkeypatch.setattr(workers, "SECONDS_WITHOUT_WORKERS", 60)
    found = sample(model, client=client, checkpoint=path, callback=disturb, **OPTIONS)
    assert seen == list(range(38))
    assert_same(found, undisturbed)
    with pytest.raises(ValueError, match="client was True and is False"):
        sample(model, devices=[context.name], checkpoint=path, **OPTIONS)


def test_a_command_that_comes_twice_is_executed_once():
    """A shard returns the same results again; one that has executed other commands requires a state."""
    from pytensor_cl.pymc.initial import InitialPoints

    model = schools()
    shapes = InitialPoints(model, None, True).shapes(1)
    payload = cluster.payload_of(model, shapes, False, 4, "FAST_COMPILE")
    assert payload == cluster.payload_of(model, shapes, False, 4, "FAST_COMPILE")  # nothing is compiled twice
    state = {"generator": np.random.default_rng(5).bit_generator.state}
    begin = ("set_positions", [np.linspace(-1, 1, 20).reshape(4, 5), np.ones(4, int)])
    moves = [("draw", [0.1, 3])] * 40  # more than there are random numbers in a block
    assert worker_shards.execute("run", [], None) is None
    (first,) = worker_shards.execute("run", [worker_shards.Request(0, 0, [begin], state=state)], payload)
    assert np.isfinite(first.results[0]).all()
    request = worker_shards.Request(0, 1, moves, [("positions", [])], wants_state=True)
    (once,), (twice,) = (worker_shards.execute("run", [request], None) for _ in range(2))
    assert once is twice
    assert worker_shards.execute("run", [worker_shards.Request(0, 7, moves)], None) == [None]
    # From the state before, from the first one, and from one in the middle of a block of random numbers.
    (middle,) = worker_shards.execute(
        "run",
        [worker_shards.Request(1, 10, moves[9:], wants_state=True, state=state, missed=[begin, *moves[:9]])],
        None,
    )
    for again in (
        worker_shards.Request(2, 1, moves, state=once.state),
        worker_shards.Request(3, 1, moves, state=state, missed=[begin]),
        worker_shards.Request(4, 10, moves[9:], state=middle.state),
    ):
        (reply,) = worker_shards.execute("run", [again], None)
        np.testing.assert_array_equal(reply.results[-1][-1], once.results[-1][-1])
    with pytest.raises(AttributeError):
        worker_shards.execute("run", [worker_shards.Request(0, 41, [("no_such_command", [])])], None)
    assert worker_shards.execute("run", [worker_shards.Request(0, 41, moves)], None) == [
        None
    ]  # what failed is not used again
    worker_shards.forget_run("run")
    assert worker_shards.execute("run", [request], None) is None


@on_one_driver
def test_particles_on_one_worker(context):
    """Sequential Monte Carlo resamples among all shards; a worker with two threads has all eight."""
    options = {**OPTIONS, "sampler": "smc", "shards": 8, "tune": 6, "draws": 4}
    expected = sample(schools(), devices=[context.name], **options)
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0", memory_limit=0
    ) as client:
        assert_same(sample(schools(), client=client, **options), expected)


def test_bad_arguments(client):
    """They are refused before anything is compiled."""
    model = schools()
    for error, options, message in (
        (TypeError, {"client": "tcp://somewhere:8786"}, "client must be a dask.distributed.Client, not builtins.str"),
        (ValueError, {"client": client, "chains": 10}, "with client=, chains must be a multiple of 4"),
        (ValueError, {"client": client, "chains": 16, "shards": 16}, "multiple of 16 and at least 32"),
        (ValueError, {"client": client, "devices": ["dev0"]}, "cannot be given both"),
        (ValueError, {"shards": 4}, "needs devices= or client="),
        (TypeError, {"client": client, "shards": 2.5}, "shards must be an integer"),
        (ValueError, {"client": client, "shards": 0}, "at least 1"),
        (ValueError, {"client": client, "sampler": "nuts"}, "runs on one device"),
    ):
        with pytest.raises(error, match=message):
            sample(model, **{**OPTIONS, **options})
    with pm.Model() as odd:
        x = pm.Normal("x")
        odd.what = threading.Lock()
        pm.Normal("y", x, observed=1.0)
    with pytest.raises(TypeError, match="cannot be pickled"):
        sample(odd, client=client, **OPTIONS)
    closed = distributed.Client(client.scheduler.address)
    closed.close()
    with pytest.raises(ValueError, match="not connected"):
        sample(model, client=closed, **OPTIONS)
