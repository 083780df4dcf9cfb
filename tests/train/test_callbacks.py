"""Callbacks of a training: early stopping, files, tables, plots, and rates that are reduced."""

import csv
import re

import numpy as np
import pytensor
import pytest

from pytensor_cl import optimizers, train


class Step:
    """Returns given losses, one for each epoch; the weight counts the steps."""

    def __init__(self, losses):
        self.losses = losses
        self.w = pytensor.shared(np.zeros(2), name="w")
        self.count = pytensor.shared(np.array(0), name="count")
        self.weights, self.variables = [self.w], [self.w, self.count]
        self.pulled = self.pushed = 0

    def __call__(self, x):
        number = int(self.count.get_value())
        self.w.set_value(self.w.get_value() + 1)
        self.count.set_value(np.array(number + 1))
        return {"loss": self.losses[number], "accuracy": -self.losses[number]}

    def pull(self):
        self.pulled += 1

    def push(self):
        self.pushed += 1


def fit(step, callbacks, epochs=None, **options):
    options = {"progress": "never", "on_nan": "ignore", **options}
    return train.fit(step, np.zeros(3), len(step.losses) if epochs is None else epochs, callbacks, **options)


@pytest.mark.parametrize(
    ("losses", "options", "epochs", "best"),
    [
        ([3, 2, 1, 5, 5, 5, 0], {"patience": 2}, 5, 3),
        ([3, 2, 1, 5, 5, 5, 0], {"patience": 4}, 7, 7),
        ([3, 2, 1], {"patience": 2}, 3, 3),
        ([1, 2, 3], {"patience": 5}, 3, 1),
        ([3, 2.9, 2.8, 2.75, 2], {"patience": 2, "min_delta": 0.15}, 5, 5),
        ([3, 2.9, 2.8, 2.75, 2], {"patience": 1, "min_delta": 0.15}, 2, 1),
        ([np.nan, 4, np.nan, 3, np.nan, np.nan], {"patience": 2}, 6, 4),
        ([1, 2, 3], {"patience": 1, "monitor": "accuracy", "mode": "max"}, 2, 1),
        ([1, 2, 3], {"patience": 1, "restore_best": False}, 2, 2),
    ],
)
def test_early_stopping(losses, options, epochs, best):
    step = Step(losses)
    stopping = train.EarlyStopping(**{"monitor": "loss", **options})
    assert len(fit(step, [stopping])) == epochs
    assert step.w.get_value().tolist() == [best, best]
    assert (step.pushed > 0) == options.get("restore_best", True)


def test_early_stopping_goes_on_with_its_best_weights(tmp_path):
    losses, path = [3, 1, 2, 2, 2, 2], tmp_path / "a.st"
    step = Step(losses)
    fit(step, [train.EarlyStopping("loss", 3)], 3, checkpoint=path)
    assert step.w.get_value()[0] == 2  # the best one; the file has the last one
    again = Step(losses)
    train.load(path, again)
    assert again.w.get_value()[0] == 3
    stopping = train.EarlyStopping("loss", 3)
    assert len(fit(Step(losses), [stopping], checkpoint=path)) == 5
    assert stopping.best == 1
    weights = Step(losses)
    assert len(fit(weights, [train.EarlyStopping("loss", 3)], checkpoint=path)) == 5  # it was finished
    assert weights.w.get_value()[0] == 2
    train.load(path, [weights.w], strict=False)  # what callbacks keep is no parameter
    assert weights.w.get_value()[0] == 5


def test_early_stopping_restores_after_an_exception():
    step = Step([1, 2, 3])

    def broken(x):
        if step.count.get_value() == 2:
            raise OSError("broken")
        return step(x)

    broken.weights, broken.variables = step.weights, step.variables
    with pytest.raises(OSError, match="broken"):
        train.fit(broken, np.zeros(3), 3, [train.EarlyStopping("loss")], progress="never")
    assert step.w.get_value()[0] == 1


def test_files_of_some_epochs(tmp_path):
    step = Step([3, 1, 2, 4, 5, 6, 7])
    files = train.Checkpoint(tmp_path / "net.safetensors", every=2, keep=2, best="loss")
    fit(step, [files], checkpoint=tmp_path / "run.safetensors")
    names = {"run.safetensors", "net-4.safetensors", "net-6.safetensors", "net-best.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == names
    for name, value in ((4, 4), (6, 6), ("best", 2)):
        train.load(files.path_of(name), step)
        assert step.w.get_value()[0] == value
    more = Step([*step.losses, 8])
    fit(
        more, [train.Checkpoint(tmp_path / "net.safetensors", every=2, keep=2)], checkpoint=tmp_path / "run.safetensors"
    )
    assert {path.name for path in tmp_path.iterdir()} == names - {"net-4.safetensors"} | {"net-8.safetensors"}
    assert step.pulled > 0


def test_table(tmp_path):
    losses, path = [3.0, 0.1, 1 / 3], tmp_path / "log.csv"
    fit(Step(losses), [train.CSVLog(path)])
    whole = path.read_text()
    rows = list(csv.DictReader(whole.splitlines()))
    assert [float(row["loss"]) for row in rows] == pytest.approx(losses, rel=1e-15)
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    options = {"checkpoint": tmp_path / "a.st"}
    fit(Step(losses), [train.CSVLog(path)], 2, **options)
    path.write_text("lost")
    fit(Step(losses), [train.CSVLog(path)], **options)
    assert path.read_text() == whole


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_plot(tmp_path, ending):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"results.{ending}"
    fit(Step([3.0, 2.0]), [train.Plot(path)], validation=np.zeros(4), evaluate=lambda x: 1.0)
    content = path.read_bytes()
    if ending == "svg":
        text = content.decode()
        panels = set(re.findall(r'id="axes_(\d)"', text))
        assert panels == {"1", "2"}  # loss and accuracy; val_loss is in the first one
        assert "<!-- validation -->" in text
    else:
        assert content.startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


# torch.optim.lr_scheduler.ReduceLROnPlateau(factor=0.5, patience=1, threshold=0.1, cooldown=1, min_lr=0.2) on SGD(1.0)
LOSSES = [5, 4, 3.9, 3.8, 3.7, 3.7, 3.7, 3.7, 2, 2, 2, 2, 2, 2]
TORCH_RATES = [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.2, 0.2, 0.2, 0.2]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_rate_is_reduced_as_by_torch(mode):
    step, rates = Step(LOSSES), []
    step.optimizer = optimizers.SGD(1.0)

    class Rates:
        def on_epoch_end(self, run):
            rates.append(float(step.optimizer.learning_rate.get_value()))

    if mode == "max":
        step.losses = [-1 / loss for loss in LOSSES]
    monitor = "loss" if mode == "min" else "accuracy"
    options = {"factor": 0.5, "patience": 1, "threshold": 0.1, "cooldown": 1, "min_rate": 0.2, "mode": mode}
    fit(step, [train.ReduceOnPlateau(monitor, **options), Rates()])
    assert rates == TORCH_RATES
    assert step.pushed == 3


def test_what_is_refused(tmp_path):
    schedule = Step([1.0])
    schedule.optimizer = optimizers.SGD(optimizers.cosine(0.1, 10))
    for step in (Step([1.0]), schedule):
        with pytest.raises(TypeError, match="learning rate is a number or a shared variable"):
            fit(step, [train.ReduceOnPlateau("loss")])
    step = Step([1.0])
    step.optimizer = optimizers.SGD(0.1)
    for callback in (train.EarlyStopping(), train.ReduceOnPlateau(), train.Checkpoint(tmp_path / "a", best="val_loss")):
        with pytest.raises(ValueError, match=r"there is no result 'val_loss' to monitor; there are loss, accuracy"):
            fit(step, [callback])
        step.count.set_value(np.array(0))
    missing = tmp_path / "missing" / "a.png"
    for callback in (train.Checkpoint(missing), train.CSVLog(missing), train.Plot(missing)):
        with pytest.raises(FileNotFoundError, match="no folder .*missing for a.png"):
            fit(step, [callback])
    with pytest.raises(FileNotFoundError, match="no folder .*missing for a.png"):
        fit(step, [], checkpoint=missing)
    for make, text in (
        (lambda: train.EarlyStopping(mode="smallest"), "mode is min or max"),
        (lambda: train.ReduceOnPlateau(mode="smallest"), "mode is min or max"),
        (lambda: train.EarlyStopping(patience=0), "patience must be at least 1"),
        (lambda: train.Checkpoint("a", every=0), "every must be at least 1"),
        (lambda: train.Plot("a.png", every=0), "every must be at least 1"),
        (lambda: train.ReduceOnPlateau(factor=2.0), "factor"),
    ):
        with pytest.raises(ValueError, match=text):
            make()


def test_own_callbacks_are_in_checkpoints(tmp_path):
    class Counter:
        def __init__(self):
            self.values = np.zeros((0, 2), "float32")
            self.note = None

        def on_epoch_end(self, run):
            self.values = np.concatenate([self.values, [[run.epoch, run.results["loss"]]]]).astype("float32")
            self.note = {"last": [run.epoch, 0.1]}

        def state_dict(self):
            return {"values": self.values, "note": self.note}

        def load_state_dict(self, state):
            self.values, self.note = state["values"], state["note"]

    path = tmp_path / "a.st"
    fit(Step([3, 2, 1]), [Counter(), Counter()], 2, checkpoint=path)
    first, second = Counter(), Counter()
    fit(Step([3, 2, 1]), [first, second], checkpoint=path)
    for counter in (first, second):
        assert counter.values.tolist() == [[0, 3], [1, 2], [2, 1]]
        assert counter.note == {"last": [2, 0.1]}
    fit(Step([3, 2, 1]), [], checkpoint=path)  # callbacks may be left out
