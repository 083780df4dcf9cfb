"""Data-parallel training on a cluster of two processes: the bytes of one device, also if workers are lost."""

import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pytensor_cl
from pytensor_cl import nn, optimizers, train
from pytensor_cl.train.replica import Replica, StaleReplica

distributed = pytest.importorskip("distributed")
pytest.importorskip("safetensors")
cloudpickle = pytest.importorskip("cloudpickle")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

ROWS, BATCH, EPOCHS = 21, 8, 2
STEPS = 3 * EPOCHS
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(ROWS, 4)).astype("float32")
Y = np.where(np.arange(ROWS) % 3 == 0, -100, GENERATOR.integers(0, 3, ROWS))


class Deadly(Op):
    """Returns its argument; kills the process if there is a file, which the first process takes away."""

    __props__ = ("path",)

    def __init__(self, path):
        self.path = path

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        try:
            Path(self.path).unlink()
        except FileNotFoundError:
            outputs[0][0] = inputs[0].copy()
        else:
            os.kill(os.getpid(), signal.SIGKILL)


NOWHERE = "/no/such/folder"
"""A folder without files, so that no process is killed."""


def builder(folder=NOWHERE, mode="FAST_COMPILE"):
    """A function that makes a step with everything that a checkpoint has to hold; files in the folder kill workers."""

    def build():
        w = pytensor.shared(np.random.default_rng(1).normal(size=(4, 6)).astype("float32"), name="w")
        mean, var = (pytensor.shared(np.full(6, i, "float32"), name=name) for i, name in enumerate(("mean", "var")))
        noise = pt.random.shared_rng(seed=2, name="noise")
        x, y = pt.fmatrix("x"), pt.lvector("y")
        normal, *_ = nn.batch_normalization_train(x @ w, None, None, running_mean=mean, running_var=var)
        _, hidden = nn.dropout(pt.tanh(normal), 0.5, noise)
        loss = nn.softmax_cross_entropy(hidden[:, :3], y)
        adam = optimizers.Adam(0.05)
        options = {"weight": pt.neq(y, -100).sum(), "max_norm": 1.0, "ema": 0.9, "mode": mode}

        def rule(grads, params):
            return adam([Deadly(f"{folder}/update")(grads[0]), *grads[1:]], params)

        metrics = {"most": Deadly(f"{folder}/gradients")(loss) * 2}
        return {"inputs": [x, y], "loss": loss, "optimizer": rule, "metrics": metrics, **options}

    return build


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def initial(folder):
    """A file with the variables before the training."""
    train.save(folder / "initial.st", train.step(**builder()()))
    return folder / "initial.st"


def trained_alone(build, parts, path):
    """The bytes of the checkpoint of a training on one device."""
    return fit(train.step(**build(), accumulate=parts), path)


@pytest.fixture(scope="module")
def one_device(client, folder, initial):
    """The bytes of that checkpoint by the number of parts, from a worker.

    Tests may run without PyTensor's C compiler, which workers have: its code computes other last digits.
    """
    known = {}

    def bytes_of(parts):
        if parts not in known:
            path = folder / f"{parts}.st"
            known[parts] = client.submit(trained_alone, builder(), parts, path, pure=False).result()
        return known[parts]

    return bytes_of


@pytest.fixture(scope="module")
def shared_step(client, folder):
    return train.distribute(builder(folder), client)


@pytest.fixture
def start(client, shared_step, initial):
    """A function that returns the step for a number of parts, from the start, on two workers."""

    def start(shards):
        client.wait_for_workers(2, timeout=60)
        shared_step.shards = shared_step.settings["accumulate"] = shards  # replicas do not depend on it
        train.load(initial, shared_step)
        shared_step.push()
        assert len(shared_step.workers) == 2
        return shared_step

    return start


def fit(step, path, callbacks=(), **options):
    options = {
        "batch_size": BATCH,
        "seed": 5,
        "progress": "never",
        "checkpoint": path,
        "checkpoint_every": 1,
        **options,
    }
    train.fit(step, (X, Y), EPOCHS, callbacks, **options)
    return path.read_bytes()


class At:
    """Calls a function after a step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, run):
        if run.step_count == self.step:
            self.action()


@pytest.mark.parametrize("shards", [2, 5])
def test_two_workers_are_one_device(start, one_device, tmp_path, shards):
    """The last batch has 5 rows; 5 parts of 8 rows differ in length, and in labels that count."""
    assert fit(start(shards), tmp_path / "file.st") == one_device(shards)


def build_small():
    """A model of few kernels, on the device."""
    w = pytensor.shared(np.random.default_rng(1).normal(size=(4, 3)).astype("float32"), name="w")
    noise = pt.random.shared_rng(seed=2, name="noise")
    x, y = pt.fmatrix("x"), pt.lvector("y")
    _, dropped = nn.dropout(x, 0.5, noise)
    loss = nn.softmax_cross_entropy(pt.tanh(dropped @ w), y)
    return {"inputs": [x, y], "loss": loss, "optimizer": optimizers.SGD(0.1), "mode": "OPENCL"}


def alone(batches):
    """Results and parameters of a step on one device, and whether it was one: in a worker, which builds as others do."""
    step = train.step(**build_small(), accumulate=2)
    losses = [float(step(*map(np.array, batch))["loss"]) for batch in batches]  # aligned
    nodes = pytensor_cl.explain(step._parts._devices[0]._compute).device_nodes
    return losses, step.params[0].get_value(), len(nodes)


def test_on_the_device(client):
    client.wait_for_workers(2, timeout=60)
    step = train.distribute(build_small, client, shards=2)
    batches = [(X[:rows], np.abs(Y[:rows]) % 3) for rows in (8, 8, 5, 1)]
    losses = [float(step(*map(np.array, batch))["loss"]) for batch in batches]  # aligned
    step.pull()
    expected, w, device_nodes = client.submit(alone, batches, workers=step.workers[:1]).result()
    assert losses == expected and len(set(losses)) == 4
    np.testing.assert_array_equal(step.params[0].get_value(), w)
    assert device_nodes > 3
    step.close()


def steps_alone(build, *batches):
    """Results of steps on one device, None for one that raises IndexError; and the first parameter after them."""
    step, results = train.step(**build(), accumulate=2), []
    for batch in batches:
        try:
            results.append(step(*batch))
        except IndexError:
            results.append(None)
    return results, step.params[0].get_value()


def test_all_labels_of_a_part_are_ignored(start, client):
    step = start(2)
    x, y = X[:6], np.array([-100, -100, -100, 2, 1, 0])
    batches = (x, y), (x, np.full(6, -100))
    expected, parameter = client.submit(steps_alone, builder(), *batches, pure=False).result()
    assert [step(*batch) for batch in batches] == expected and expected[1]["loss"] == 0
    step.pull()
    np.testing.assert_array_equal(step.params[0].get_value(), parameter)


def test_workers_are_killed(start, client, one_device, folder, tmp_path):
    """One in the gradients: the other does all parts. Then one in the update, when a new one is there again."""
    step = start(4)
    known = []

    def again():
        known.extend(step.workers)
        client.wait_for_workers(2, timeout=60)
        (folder / "update").touch()

    actions = [At(1, (folder / "gradients").touch), At(3, again), At(4, lambda: known.append(step.workers))]
    assert fit(step, tmp_path / "file.st", actions) == one_device(4)
    assert not list(folder.glob("gradients")) and not list(folder.glob("update"))
    assert len(known[:-1]) == 1
    assert known[-1] != known[:-1]  # one of them, or both, is another worker


def test_all_workers_are_killed(start, client, one_device, tmp_path):
    """The training goes on from its checkpoint, on workers that have nothing of it."""
    path = tmp_path / "file.st"

    def kill_all():
        for pid in client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)

    step = start(2)
    with pytest.raises(train.WorkerLost, match="from its checkpoint"):
        fit(step, path, [At(3, kill_all)], checkpoint_every=2)
    client.wait_for_workers(2, timeout=60)
    assert fit(step, path, checkpoint_every=2) == one_device(2)


def test_no_attempt_is_left(start, folder, one_device, tmp_path, monkeypatch):
    """The variables come from the survivor, and the checkpoint is written."""
    step, path = start(2), tmp_path / "file.st"
    monkeypatch.setattr(step, "_retries", 0)
    with pytest.raises(train.WorkerLost, match="1 attempts at step") as caught:
        fit(step, path, [At(3, (folder / "gradients").touch)], checkpoint_every=100)
    assert caught.value.is_state_whole
    assert '"step_count": 3' in train.read_metadata(path)["loop"]
    assert fit(step, path, checkpoint_every=100) == one_device(2)


def test_an_error_of_the_model_changes_nothing(start, client):
    step, wrong = start(2), np.where(Y == 2, 7, Y)[:8]
    assert 7 in wrong
    right = X[:8], Y[:8]
    (first, error, last), _ = client.submit(steps_alone, builder(), right, (X[:8], wrong), right, pure=False).result()
    assert step(*right) == first and error is None
    with pytest.raises(IndexError):
        step(X[:8], wrong)
    assert step(*right) == last


def fit_with_validation(step):
    """The history of a training that restores its best weights, the results of all data, and the weights."""
    stopping = train.EarlyStopping("val_loss", patience=1, mode="max")
    options = {"batch_size": BATCH, "validation": (X[:8], Y[:8]), "progress": "never"}
    history = train.fit(step, (X, Y), 3, [stopping], **options)
    return history.epochs, step.evaluate(X, Y), [variable.get_value() for variable in step.weights]


def fit_alone(build):
    return fit_with_validation(train.step(**build(), accumulate=2))


def test_validation_and_restored_weights(start, client):
    """Callbacks read and set variables where they are."""
    epochs, results, weights = client.submit(fit_alone, builder(), pure=False).result()
    found = fit_with_validation(start(2))
    assert found[:2] == (epochs, results)
    for weight, other in zip(found[2], weights, strict=True):
        np.testing.assert_array_equal(weight, other)


def test_a_task_that_runs_twice():
    replica = Replica(builder())
    keys = [[1, 2, 3, 4]]
    with pytest.raises(StaleReplica):
        replica.total(0, {0: (X, Y)}, keys, 0, 1)  # it has no values yet
    replica.load(0, replica.values())
    total = replica.total(0, {0: (X, Y)}, keys, 0, 1)
    for first, second in zip(total, replica.total(0, {0: (X, Y)}, keys, 0, 1), strict=True):
        np.testing.assert_array_equal(first, second)
    before = replica.status()
    results = replica.update(0, total)
    after = replica.status()
    assert (before.step_count, after.step_count) == (0, 1) and before.digest != after.digest
    assert replica.update(0, total) == results and replica.status().digest == after.digest
    for stale in (lambda: replica.total(0, {0: (X, Y)}, keys, 0, 1), lambda: replica.update(2, total)):
        with pytest.raises(StaleReplica):
            stale()


def test_replicas_that_differ_are_found(start, client, monkeypatch):
    step = start(2)
    step(X[:8], Y[:8])

    def spoil(training):
        from pytensor_cl.train.replica import _replica

        variable = _replica(training)._definition.params[0]
        variable.set_value(variable.get_value() + 1)

    client.submit(spoil, step._training, workers=step.workers[:1], pure=False).result()
    with pytest.raises(RuntimeError, match="variables differ"):
        step.pull()


def test_what_is_refused(client):
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot be sent to workers.*lock.*inside of it"):
        train.distribute(lambda: {"lock": lock}, client)
    with pytest.raises(TypeError, match=r"must be a function"):
        train.distribute({"inputs": []}, client)
    with pytest.raises(TypeError, match=r"as a dict"):
        train.distribute(lambda: [1], client)
    with pytest.raises(ValueError, match=r"accumulate: shards= is the number"):
        train.distribute(lambda: {"accumulate": 2}, client)
    with pytest.raises(ValueError, match=r"shards must be a whole number"):
        train.distribute(builder(), client, shards=0)

    def further():
        seen = pytensor.shared(0, name="seen")
        return {**builder()(), "updates": {seen: seen + 1}}

    with pytest.raises(ValueError, match=r"several workers cannot do"):
        train.distribute(further, client)
