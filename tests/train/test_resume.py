"""Trainings that stop and go on: after exceptions, signals and SIGKILL they end with the bytes of one that never did."""

import os
import signal
import threading

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import nn, optimizers, train
from pytensor_cl.ops.elemwise import GpuElemwise
from tests.helpers import assert_on_device, run_script

pytest.importorskip("safetensors")
ROWS, BATCH, EPOCHS = 50, 8, 3
STEPS = 7 * EPOCHS
X = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")


class Stopped(Exception):
    """A training was stopped by a test."""


class StopAfter:
    """Ends a training after a step by an exception, a signal or a function."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, run):
        if run.step_count == self.step:
            self.action()


def stop():
    raise Stopped


def make(mode, accumulate=1):
    """A step with everything that a checkpoint has to hold."""
    w = pytensor.shared(np.random.default_rng(1).normal(size=(4, 6)).astype("float32"), name="w")
    noise = pt.random.shared_rng(seed=2, name="noise")
    x = pt.fmatrix("x")
    _, hidden = nn.dropout(pt.tanh(x @ w), 0.5, noise)
    loss = pt.sqr(hidden.sum(axis=1) - 1).mean()
    metrics = {"largest": pt.abs(hidden).max()}
    options = {"metrics": metrics, "ema": 0.9, "max_norm": 1.0, "accumulate": accumulate}
    return train.step([x], loss, optimizers.Adam(0.05), **options, mode=mode)


def callbacks():
    """Callbacks that remember; the rate goes down now and then."""
    return [train.EarlyStopping("loss", 100), train.ReduceOnPlateau("loss", 0.5, patience=0, threshold=0.3)]


def run(step, path, more=(), **options):
    options = {"batch_size": BATCH, "seed": 5, "progress": "never", "checkpoint": path, **options}
    return train.fit(step, X, EPOCHS, [*callbacks(), *more], **options)


def spoil(step):
    """Change all variables, so that nothing of a training is left in them."""
    for variable in [*step.weights, *step.optimizer.state.values(), *step.averages.values()]:
        variable.set_value(np.full_like(variable.get_value(), 7))


@pytest.fixture(scope="module")
def in_python():
    """A step in Python, which compiles quickly."""
    return make("FAST_COMPILE", accumulate=2)


def resumed_bytes(step, folder, stops, **options):
    """Train once without a stop, and once with all of them; return both files."""
    initial, whole, parts = (folder / name for name in ("initial.st", "whole.st", "parts.st"))
    if not initial.exists():
        train.save(initial, step)
    train.load(initial, step)
    history = run(step, whole, **options)
    after = [variable.get_value() for variable in step.weights]
    train.load(initial, step)
    for number in stops:
        with pytest.raises(Stopped):
            run(step, parts, [StopAfter(number, stop)], **options)
        spoil(step)
    continued = run(step, parts, **options)
    assert continued.epochs == history.epochs
    for variable, value in zip(step.weights, after, strict=True):
        np.testing.assert_array_equal(variable.get_value(), value)
    return whole.read_bytes(), parts.read_bytes()


@pytest.mark.parametrize("number", range(10))
def test_bit_for_bit_after_any_batch(in_python, tmp_path, number):
    stops = np.random.default_rng(number).choice(np.arange(1, STEPS), 1 + number % 3, replace=False)
    options = {"prefetch": number % 2, "checkpoint_every": [None, 4][number % 2], "drop_last": number % 4 == 3}
    if options["drop_last"]:
        stops = [6, 12]
    whole, parts = resumed_bytes(in_python, tmp_path, sorted(map(int, stops)), **options)
    assert whole == parts


def test_bit_for_bit_on_the_device(context, on_device, tmp_path):
    step = make("OPENCL")
    assert_on_device(step.function, GpuElemwise)
    whole, parts = resumed_bytes(step, tmp_path, [3, 10, 14], validation=X[:20], evaluate=lambda x: float(x.sum()))
    assert whole == parts
    assert train.read_metadata(tmp_path / "whole.st")["loop"].count('"val_loss"') == EPOCHS


def test_a_finished_training_returns_at_once(in_python, tmp_path):
    path = tmp_path / "a.st"
    history = run(in_python, path)
    content = path.read_bytes()
    spoil(in_python)
    again = run(in_python, path, [StopAfter(STEPS, stop)])
    assert again.epochs == history.epochs
    assert path.read_bytes() == content
    assert not (in_python.params[0].get_value() == 7).any()

    class Stop:
        def on_epoch_end(self, run):
            run.stop()

    path = tmp_path / "b.st"
    assert len(run(in_python, path, [Stop()])) == 1
    assert len(run(in_python, path)) == 1


def test_more_epochs_go_on(in_python, tmp_path):
    initial = tmp_path / "initial.st"
    train.save(initial, in_python)
    options = {"batch_size": BATCH, "progress": "never"}
    for name, numbers in (("a.st", [1, 4]), ("b.st", [4])):
        train.load(initial, in_python)
        for epochs in numbers:
            history = train.fit(in_python, X, epochs, checkpoint=tmp_path / name, **options)
            assert len(history) == epochs
    assert (tmp_path / "a.st").read_bytes() == (tmp_path / "b.st").read_bytes()


def test_other_data_are_refused(in_python, tmp_path):
    path = tmp_path / "a.st"
    run(in_python, path)
    before = in_python.params[0].get_value()
    options = {"batch_size": BATCH, "seed": 5, "progress": "never", "checkpoint": path}
    for data, changed, text in (
        (X[1:], {}, "rows was 50, now 49"),
        (X, {"batch_size": 9}, "batch_size was 8, now 9"),
        (X, {"seed": 6}, "seed was 5, now 6"),
        (X, {"shuffle": False}, "shuffle was True, now False"),
        (X, {"drop_last": True}, "drop_last was False, now True"),
        ([X], {}, "data was 'arrays', now 'batches'"),
    ):
        with pytest.raises(ValueError, match=text):
            train.fit(in_python, data, EPOCHS, **{**options, **changed})
    np.testing.assert_array_equal(in_python.params[0].get_value(), before)
    with pytest.raises(ValueError, match="accumulate was 2, now 1"):
        run(make("FAST_COMPILE"), path)
    train.save(path, in_python)
    with pytest.raises(ValueError, match="is no checkpoint of fit"):
        run(in_python, path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is no safetensors file"):
        run(in_python, path)


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_lets_the_step_end(in_python, tmp_path, number, raised):
    initial = tmp_path / "initial.st"
    train.save(initial, in_python)
    before = signal.getsignal(number)
    run(in_python, tmp_path / "whole.st")
    train.load(initial, in_python)
    events = []

    class Step:
        """Gets the signal in the middle of a step."""

        def __getattr__(self, name):
            return getattr(in_python, name)

        def __call__(self, x):
            events.append("begin")
            if len(events) == 19:
                os.kill(os.getpid(), number)
            result = in_python(x)
            events.append("end")
            return result

    with pytest.raises(raised) as caught:
        run(Step(), tmp_path / "parts.st")
    assert raised is KeyboardInterrupt or caught.value.code == 143
    assert events[-1] == "end"
    assert len(events) == 20
    assert signal.getsignal(number) == before
    spoil(in_python)
    run(in_python, tmp_path / "parts.st")
    assert (tmp_path / "parts.st").read_bytes() == (tmp_path / "whole.st").read_bytes()


def test_a_second_signal_interrupts_at_once(in_python, tmp_path):
    path, events = tmp_path / "a.st", []

    def step(x):
        os.kill(os.getpid(), signal.SIGINT)
        events.append("first")
        os.kill(os.getpid(), signal.SIGTERM)
        events.append("second")

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        train.fit(step, X, checkpoint=path, state=in_python.weights, progress="never")
    assert events == ["first"]
    assert not path.exists()  # the state may be broken
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


def test_a_signal_while_the_data_are_awaited(in_python, tmp_path):
    path, is_asked = tmp_path / "a.st", threading.Event()

    def batches(epoch):
        yield X[:5]
        os.kill(os.getpid(), signal.SIGTERM)
        is_asked.wait()
        yield X[5:]

    class Release:
        def on_end(self, run):
            is_asked.set()

    with pytest.raises(SystemExit):
        train.fit(in_python, batches, checkpoint=path, progress="never", callbacks=[Release()])
    assert '"batch": 1' in train.read_metadata(path)["loop"]


def test_a_signal_while_the_last_checkpoint_is_written(in_python, tmp_path, monkeypatch):
    path, fsync = tmp_path / "a.st", os.fsync

    def signalled(file):
        os.kill(os.getpid(), signal.SIGTERM)
        monkeypatch.setattr(os, "fsync", fsync)
        fsync(file)

    monkeypatch.setattr(os, "fsync", signalled)
    with pytest.raises(SystemExit):
        run(in_python, path, checkpoint_every=1000)
    assert len(run(in_python, path, [StopAfter(1, stop)])) == EPOCHS


def test_nothing_is_written_over_when_the_state_may_be_broken(in_python, tmp_path):
    path, options = tmp_path / "a.st", {"state": in_python, "progress": "never", "batch_size": BATCH}
    with pytest.raises(Stopped):
        train.fit(lambda x: 0.0, X, 1, [StopAfter(4, stop)], checkpoint=path, **options)
    content = path.read_bytes()
    with pytest.raises(Stopped):
        train.fit(lambda x: stop(), X, 1, checkpoint=path, checkpoint_every=1, **options)
    assert path.read_bytes() == content
    with pytest.raises(FloatingPointError):
        train.fit(lambda x: np.nan, X, 1, checkpoint=path, on_nan="raise", **options)
    assert path.read_bytes() == content


def test_an_exception_that_has_no_checkpoint_says_so(in_python, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Stopped) as caught:
        run(in_python, tmp_path / "a.st", [StopAfter(2, stop)])
    assert "No space left on device" in caught.value.__notes__[0]


def test_a_step_of_ones_own_with_state(tmp_path):
    w, count = pytensor.shared(np.zeros(3), name="w"), pytensor.shared(np.array(0), name="count")
    x = pt.dvector("x")
    f = pytensor.function([x], x.mean(), updates={w: w * 0.5 + x.mean(), count: count + 1}, mode="FAST_COMPILE")
    data, results = np.arange(20.0), []
    for stops in ([], [4]):
        path = tmp_path / f"{len(stops)}.st"
        for name in (w, count):
            name.set_value(np.zeros_like(name.get_value()))
        options = {"batch_size": 3, "checkpoint": path, "progress": "never"}
        for number in stops:
            with pytest.raises(Stopped):
                train.fit(f, data, 2, [StopAfter(number, stop)], **options)
            w.set_value(np.full(3, np.nan))
        train.fit(f, data, 2, **options)
        results.append(path.read_bytes())
    assert results[0] == results[1]
    assert count.get_value() == 14
    other = pytensor.shared(np.zeros(2))
    with pytest.raises(ValueError, match="has no name"):
        train.fit(lambda x: 0.0, data, checkpoint=tmp_path / "a.st", state=[other])


def test_killed_processes_go_on(tmp_path):
    """SIGKILL after some steps and SIGTERM after others; each time a new process goes on with the same command."""
    seen, _ = run_script(
        f"""
        import os, signal
        from pathlib import Path
        import numpy as np, pytensor, pytensor.tensor as pt
        from pytensor_cl import nn, optimizers, train

        x, w = pt.fmatrix("x"), pytensor.shared(np.ones((4, 6), "float32"), name="w")
        _, hidden = nn.dropout(x @ w, 0.5, pt.random.shared_rng(seed=2, name="noise"))
        step = train.step([x], pt.sqr(hidden).mean(), optimizers.Adam(0.05), mode="FAST_COMPILE")
        data = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")

        class Kill:
            def __init__(self, after, number):
                self.after, self.number = after, number

            def on_step_end(self, run):
                if run.step_count == self.after:
                    os.kill(os.getpid(), self.number)

        def process(name, *kill):
            child = os.fork()
            if not child:
                try:
                    options = dict(batch_size=8, progress="never", checkpoint=name, checkpoint_every=3)
                    train.fit(step, data, 4, [Kill(*kill)] if kill else [], **options)
                    os._exit(0)
                except SystemExit as end:
                    os._exit(end.code)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        os.chdir({str(tmp_path)!r})
        kills = [(5, signal.SIGKILL), (5, signal.SIGKILL), (11, signal.SIGTERM), (13, signal.SIGKILL), (25, signal.SIGKILL)]
        seen["codes"] = [process("whole.st"), *(process("parts.st", *kill) for kill in kills), process("parts.st")]
        seen["equal"] = Path("whole.st").read_bytes() == Path("parts.st").read_bytes()
        seen["files"] = sorted(path.name for path in Path().iterdir())
        """
    )
    kill = -signal.SIGKILL
    assert seen["codes"] == [0, kill, kill, 143, kill, kill, 0]
    assert seen["equal"]
    assert seen["files"] == ["parts.st", "whole.st"]
