"""Runs that are interrupted, killed, looked at and continued."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from pytensor_cl.pymc import Record, checkpoint, sample  # noqa: E402
from pytensor_cl.runtime.registry import add_context  # noqa: E402
from tests.helpers import on_one_driver  # noqa: E402

SAMPLERS = ("chees", "meads", "hmc", "nuts", "smc")
OPTIONS = {"chains": 8, "draws": 6, "tune": 18, "random_seed": 3, "max_steps": 31, "progressbar": False}
OPTIONS["mode"] = "FAST_COMPILE"


def schools(observed=(28.0, 8, -3)):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, shape=3)
        pm.Normal("y", mu + tau * z, [15.0, 10, 16], observed=observed)
    return model


@pytest.fixture
def at_each_iteration(monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_SHARE", 0)


class Stopped(Exception):
    """Stands for the end of the process."""


def stop_at(iteration):
    def callback(record):
        if record.iteration == iteration:
            raise Stopped

    return callback


def assert_same(found, expected):
    """All draws and statistics are the same, bit for bit."""
    for group in ("posterior", "sample_stats"):
        assert set(found[group].data_vars) == set(expected[group].data_vars)
        for name, values in expected[group].data_vars.items():
            np.testing.assert_array_equal(found[group][name].values, values.values)
    assert found.posterior.attrs["step_size"] == expected.posterior.attrs["step_size"]
    for name in ("log_marginal_likelihood", "nested_rhat_max"):
        assert found.posterior.attrs.get(name) == expected.posterior.attrs.get(name)


KILLED = """
import os, signal, sys
import pytensor_cl.pymc.checkpoint as checkpoint
from pytensor_cl.pymc import sample
from tests.pymc.test_checkpoint import OPTIONS, SAMPLERS, schools

checkpoint.SECONDS = checkpoint._SHARE = 0

def kill(record):
    if record.iteration == 12:
        os.kill(os.getpid(), signal.SIGKILL)

for sampler in SAMPLERS:
    child = os.fork()
    if not child:
        sample(schools(), sampler=sampler, checkpoint=f"{sys.argv[1]}/{sampler}", callback=kill, **OPTIONS)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder with the checkpoints of processes that were killed in the warm-up, one for each sampler."""
    if not hasattr(os, "fork"):
        pytest.skip("the processes are forked, so that one start is enough")
    folder = tmp_path_factory.mktemp("killed")
    subprocess.run([sys.executable, "-c", KILLED, folder], check=True, timeout=600)
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_goes_on_bit_for_bit(sampler, killed, at_each_iteration):
    """A run that is killed in the warm-up, and ends again among the draws, makes the draws of an undisturbed one."""
    model, path, seen = schools(), killed / sampler, []

    def stop_at_20(record):
        seen.append(record.iteration)
        if record.iteration == 20:
            raise Stopped

    with pytest.raises(Stopped):
        sample(model, sampler=sampler, checkpoint=path, callback=stop_at_20, **OPTIONS)
    found = sample(
        model, sampler=sampler, checkpoint=path, callback=lambda record: seen.append(record.iteration), **OPTIONS
    )
    # A process that is killed in a callback has written the state before; a callback that raises an error, that after.
    assert seen == [*range(12, 21), *range(21, 24)]
    assert_same(found, sample(model, sampler=sampler, **OPTIONS))
    if sampler == "chees":
        again = sample(model, sampler=sampler, checkpoint=path, callback=lambda record: seen.clear(), **OPTIONS)
        assert seen
        assert_same(again, found)


@on_one_driver
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_goes_on_on_devices(context, tmp_path, at_each_iteration):
    """The state comes from the devices and goes back to them, each to the contexts among which chains are divided."""
    add_context("second", f"opencl:{context.name}")
    options = {**OPTIONS, "mode": "OPENCL", "devices": [context.name, "second"]}
    model, path = schools(), tmp_path / "state"
    with pytest.raises(Stopped):
        sample(model, checkpoint=path, callback=stop_at(20), **options)
    assert_same(sample(model, checkpoint=path, **options), sample(model, **options))


def test_other_calls_are_refused(tmp_path, at_each_iteration):
    """Another model, other data, arguments or files are errors that say what differs."""
    path = tmp_path / "state"
    with pytest.raises(Stopped):
        sample(schools(), checkpoint=path, callback=stop_at(3), **OPTIONS)
    before = path.read_bytes()
    for model, options, message in (
        (schools(), {"draws": 13}, "draws was 6 and is 13"),
        (schools(), {"random_seed": 4}, "random_seed was"),
        (schools(), {"sampler": "hmc"}, "sampler was 'chees' and is 'hmc'"),
        (schools((28.0, 8, -4)), {}, "the model, or its data, are others"),
        (schools(), {"initvals": {"mu": 1.0}}, "initvals was"),
    ):
        with pytest.raises(ValueError, match=message):
            sample(model, checkpoint=path, **{**OPTIONS, **options})
    assert path.read_bytes() == before
    path.write_text("something else")
    with pytest.raises(ValueError, match="no checkpoint"):
        sample(schools(), checkpoint=path, **OPTIONS)
    with pytest.raises(FileNotFoundError, match="no folder"):
        sample(schools(), checkpoint=tmp_path / "none" / "state", **OPTIONS)


def test_digest_tells_models_apart_that_have_the_same_ops():
    """The axis of a sum, and which of two parameters is which, belong to the model."""

    def digest(axis, sign):
        with pm.Model() as model:
            a, b = pm.Normal("a", shape=(2, 2)), pm.Normal("b", shape=(2, 2))
            first, second = (a, b) if sign > 0 else (b, a)
            pm.Normal("y", (first - second).sum(axis=axis), observed=[1.0, 2.0])
        return checkpoint.model_digest(model)

    assert digest(0, 1) == digest(0, 1)
    assert len({digest(0, 1), digest(1, 1), digest(0, -1)}) == 3


def test_arguments_may_be_numbers_of_numpy(tmp_path):
    """Numbers of Python mean the same call; what cannot be compared later is refused before anything is compiled."""
    path = tmp_path / "state"
    numbers = {"draws": np.int64(6), "chains": np.int32(8), "target_accept": np.float64(0.7)}
    first = sample(schools(), checkpoint=path, **{**OPTIONS, **numbers})
    assert_same(sample(schools(), checkpoint=path, **OPTIONS, target_accept=0.7), first)
    model = schools()
    with pytest.raises(TypeError, match="a checkpoint cannot say"):
        sample(model, checkpoint=path, initvals={"mu": model["tau"] + 1}, **OPTIONS)


def test_checkpoint_that_cannot_be_written_costs_nothing(tmp_path, at_each_iteration, monkeypatch):
    """It is said once."""

    def fails(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.np, "savez", fails)
    with pytest.warns(UserWarning, match="cannot be written.*No space") as said:
        found = sample(schools(), checkpoint=tmp_path / "state", **OPTIONS)
    assert sum("cannot be written" in str(warning.message) for warning in said) == 1
    assert found.posterior["mu"].shape == (8, 6)
    assert not list(tmp_path.iterdir())


def test_attributes_that_cannot_be_saved_are_an_error():
    """What a sampler would forget is not left out in silence."""

    class Odd:
        def __init__(self):
            self.what = {1: 2}

    with pytest.raises(TypeError, match="state of a dict"):
        checkpoint.state_dict(Odd())


def test_callback():
    """It sees each iteration once, and the draws that the result has."""
    records = []
    found = sample(schools(), callback=records.append, **OPTIONS)
    assert [record.iteration for record in records] == list(range(24))
    assert [record.tuning for record in records] == [True] * 18 + [False] * 6
    assert all(isinstance(record, Record) for record in records)
    np.testing.assert_array_equal(
        np.stack([record.positions["mu"] for record in records[18:]], axis=1), found.posterior["mu"].values
    )
    assert records[-1].draws == 6
    assert records[-1].divergences == found.posterior.attrs["divergences"]
    with pytest.raises(TypeError, match="function of a Record"):
        sample(schools(), callback=1, **OPTIONS)


@pytest.fixture
def usual_handlers():
    """Python's handlers, also where the tests run in the background of a shell, which ignores SIGINT."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_returns_the_draws_so_far(number, tmp_path, usual_handlers):
    """The iteration that is under way ends; a checkpoint is written, and the run goes on from it."""
    usual, path = signal.getsignal(number), tmp_path / "state"

    def interrupt(record):
        if record.draws == 4:
            os.kill(os.getpid(), number)

    model = schools()
    with pytest.warns(UserWarning, match="interrupted: 4 of 6 draws"):
        found = sample(model, callback=interrupt, checkpoint=path, **OPTIONS)
    assert signal.getsignal(number) == usual
    assert found.posterior["mu"].shape == (8, 4)
    rest = sample(model, checkpoint=path, **OPTIONS)
    np.testing.assert_array_equal(rest.posterior["mu"].values[:, :4], found.posterior["mu"].values)
    assert rest.posterior["mu"].shape == (8, 6)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_signal_in_the_warm_up(number, error, usual_handlers):
    """There are no draws, and the signal does what it usually does."""
    with pytest.raises(error):
        sample(schools(), callback=lambda record: os.kill(os.getpid(), number), **OPTIONS)


def test_callback_ends_the_run_in_a_thread(tmp_path):
    """A callback may raise KeyboardInterrupt, as with `pm.sample`; threads have no signal handlers."""
    results, path = [], tmp_path / "state"

    def end(record):
        if record.draws == 5:
            raise KeyboardInterrupt

    model = schools()
    with pytest.warns(UserWarning, match="interrupted: 5 of 6 draws"):
        thread = threading.Thread(
            target=lambda: results.append(sample(model, callback=end, checkpoint=path, **OPTIONS))
        )
        thread.start()
        thread.join()
    assert results[0].posterior["mu"].shape == (8, 5)
    # A last checkpoint was written, although the run took less time than there is between two.
    seen = []
    sample(model, callback=seen.append, checkpoint=path, **OPTIONS)
    assert [record.draws for record in seen] == [6]
