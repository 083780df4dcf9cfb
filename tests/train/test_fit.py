"""The loop of a training: results, histories, validation, callbacks, progress, NaN."""

import io
import logging
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import optimizers, train
from pytensor_cl.train import loop, progress

X = np.arange(10.0)


def quiet(step, data=X, epochs=1, callbacks=(), **options):
    return train.fit(
        step, data, epochs, callbacks, **{"progress": "never", "batch_size": 4, "shuffle": False, **options}
    )


class Recorder:
    """Notes the calls of a callback."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda run: self.calls.append((name.removeprefix("on_"), run.epoch, run.batch, run.step_count))


def test_means_are_weighted_by_rows():
    history = quiet(lambda x: {"loss": x.mean(), "largest": x.max()}, epochs=2)
    assert history["loss"] == [pytest.approx(X.mean(), rel=1e-15)] * 2  # batches of 4, 4 and 2 rows
    assert history["largest"] == [pytest.approx((3 * 4 + 7 * 4 + 9 * 2) / 10)] * 2
    assert history["epoch"] == [1, 2]
    assert history["steps"] == [3, 6]
    assert len(history) == 2
    assert list(history) == history.epochs
    assert repr(history).startswith("History(2 epochs; epoch 2, steps 6, loss 4.5")
    with pytest.raises(KeyError, match="accuracy.*there are epoch, steps, loss, largest"):
        history["accuracy"]


def test_means_are_weighted_by_the_steps_own_weight():
    def step(x):
        counted = x[x % 2 == 0]
        return {"loss": counted.mean(), "weight": counted.size}

    assert quiet(step)["loss"] == [4.0]
    assert quiet(lambda x: {"loss": 0.0, "weight": 0})["loss"] == [0.0]
    assert "weight" not in quiet(step)


def test_a_function_of_pytensor_as_step():
    w, x = pytensor.shared(1.0, name="w"), pt.dvector("x")
    f = pytensor.function([x], pt.sqr(x * w).mean(), updates={w: w * 0.5}, mode="FAST_COMPILE")
    history = quiet(f)
    expected = [np.mean(np.square(X[:4])), np.mean(np.square(X[4:8] / 2)), np.mean(np.square(X[8:] / 4))]
    assert history["loss"] == [pytest.approx((expected[0] * 4 + expected[1] * 4 + expected[2] * 2) / 10)]
    with pytest.raises(TypeError, match=r"a number or a dict of numbers by name; got 2 values"):
        quiet(pytensor.function([x], [x.sum(), x.max()], mode="FAST_COMPILE"))
    with pytest.raises(TypeError, match=r"got None"):
        quiet(lambda x: None)
    with pytest.raises(TypeError, match=r"must be single numbers"):
        quiet(lambda x: {"loss": x})


def test_callbacks():
    recorder = Recorder()
    quiet(lambda x: 0.0, epochs=2, callbacks=[recorder, object()])
    assert recorder.calls == [
        ("begin", 0, 0, 0),
        ("epoch_begin", 0, 0, 0),
        *(("step_end", 0, n, n) for n in (1, 2, 3)),
        ("epoch_end", 0, 3, 3),
        ("epoch_begin", 1, 0, 3),
        *(("step_end", 1, n, n + 3) for n in (1, 2, 3)),
        ("epoch_end", 1, 3, 6),
        ("end", 2, 0, 6),
    ]


def test_stop_after_a_step_and_after_an_epoch():
    class Stop:
        def __init__(self, step):
            self.step = step

        def on_step_end(self, run):
            if run.step_count == self.step:
                run.stop()

        def on_epoch_end(self, run):
            if run.step_count == -self.step:
                run.stop()

    steps = []
    assert len(quiet(steps.append(0) or (lambda x: steps.append(1) or 0.0), epochs=5, callbacks=[Stop(5)])) == 1
    assert sum(steps) == 5
    assert len(quiet(lambda x: 0.0, epochs=5, callbacks=[Stop(-6)])) == 2


def test_an_exception_ends_the_callbacks_too():
    recorder = Recorder()

    def step(x):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        quiet(step, callbacks=[recorder])
    assert recorder.calls[-1] == ("end", 0, 0, 0)


def test_results_are_read_ten_times_a_second(monkeypatch):
    """Between two readings nothing waits for the device."""
    now = [0.0]
    monkeypatch.setattr(loop, "perf_counter", lambda: now[0])
    events = []

    class Result:
        def __init__(self, number):
            self.number = number

        def __array__(self, dtype=None, copy=None):
            events.append(f"read {self.number}")
            return np.asarray(float(self.number))

    class Step:
        count = 0

        def __call__(self, x):
            now[0] += 0.03
            self.count += 1
            events.append(f"step {self.count}")
            return Result(self.count)

    seen = []

    class Callback:
        def on_step_end(self, run):
            seen.append(run.results.get("loss"))

        def on_epoch_end(self, run):
            seen.append(run.results["loss"])

    quiet(Step(), np.arange(6.0), callbacks=[Callback()], batch_size=1)
    assert events == [f"step {n}" for n in (1, 2, 3, 4)] + [f"read {n}" for n in (1, 2, 3, 4)] + [
        "step 5",
        "step 6",
        "read 5",
        "read 6",
    ]
    assert seen == [None, None, None, 4.0, 4.0, 4.0, 3.5]


def test_validation():
    w, x = pytensor.shared(np.array(1.0), name="w"), pt.dvector("x")
    loss = pt.sqr(x * w).mean()
    step = train.step([x], loss, optimizers.SGD(1e-3), metrics={"largest": pt.abs(x).max()}, mode="FAST_COMPILE")
    history = quiet(step, epochs=2, validation=np.arange(5.0))
    assert history.names == ["epoch", "steps", "loss", "largest", "val_loss", "val_largest"]
    assert history["val_loss"][-1] == pytest.approx(np.mean(np.square(np.arange(5) * w.get_value())), rel=1e-12)
    assert history["val_largest"] == [pytest.approx((3 * 4 + 4) / 5)] * 2
    history = quiet(step, validation=(X, X), evaluate=lambda a, b: {"difference": np.abs(a - b).sum()})
    assert history["val_difference"] == [0.0]
    with pytest.raises(ValueError, match=r"validation= needs evaluate="):
        quiet(lambda x: 0.0, validation=X)
    with pytest.raises(ValueError, match=r"evaluate needs validation="):
        quiet(lambda x: 0.0, evaluate=len)


def test_nan():
    def step(x):
        return {"loss": np.nan if 4 in x else 1.0, "other": 0.0}

    with pytest.warns(RuntimeWarning, match=r"^loss of step 2 \(epoch 1\): NaN$") as caught:
        history = quiet(step, epochs=3)
    assert len(caught) == 1
    assert np.isnan(history["loss"]).all()
    assert history["other"] == [0.0] * 3
    with pytest.raises(FloatingPointError, match=r"loss of step 2"):
        quiet(step, on_nan="raise")
    quiet(step, on_nan="ignore")
    with pytest.raises(ValueError, match="on_nan is warn, raise, ignore"):
        quiet(step, on_nan="no")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress(monkeypatch, capsys):
    step, options = (lambda x: {"loss": 0.25, "accuracy": 0.5}), {"epochs": 2, "progress": "auto"}
    quiet(step, **options)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(", accuracy")[0] for line in lines] == ["epoch 1/2: loss 0.25", "epoch 2/2: loss 0.25"]
    assert all(line.endswith(" samples/s") for line in lines)
    lines = []
    quiet(step, **options, log=lines.append)
    assert len(lines) == 2
    quiet(step, **{**options, "progress": "never"})
    assert capsys.readouterr().err == ""
    quiet(step, **{**options, "progress": "never"}, log=logging.getLogger("training").info)

    pytest.importorskip("tqdm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    quiet(step, **options)
    text = terminal.getvalue()
    assert "epoch 1/2 100%" in text
    assert "loss 0.25, accuracy 0.5" in text
    assert "samples/s" in text
    assert text.count("\n") == 2
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"pip install 'pytensor-cl\[train\]'"):
        quiet(step, **{**options, "progress": "always"})
    with pytest.raises(ValueError, match="progress is auto, always, never"):
        progress.Progress("maybe", None)


def test_other_arguments():
    assert len(quiet(lambda x: 0.0, epochs=0)) == 0
    with pytest.raises(TypeError, match="step must be callable"):
        quiet(3)
    with pytest.raises(ValueError, match="epochs must be at least 0"):
        quiet(lambda x: 0.0, epochs=-1)
    with pytest.raises(ValueError, match="checkpoint_every needs checkpoint="):
        quiet(lambda x: 0.0, checkpoint_every=3)
    with pytest.raises(ValueError, match="a checkpoint of this step needs state="):
        quiet(lambda x: 0.0, checkpoint="a.safetensors")
