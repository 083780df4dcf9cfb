"""Functions that the examples of networks share: arguments, saved weights, comparison, plots, report."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pytensor
from common import BLUE, GREY, parser
from pytensor.compile.sharedvalue import SharedVariable
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split

from pytensor_cl import train

# Rounding alone makes the losses of two backends differ by some 1e-5 after a few epochs.
TOLERANCE = 1e-3
ORANGE = "#d9730d"


class Trained(NamedTuple):
    """A trained network.

    Attributes
    ----------
    step
        The compiled step of the training.
    history
        The results of each epoch.
    predict
        The compiled prediction.
    inputs
        Some inputs of `predict`, on which the saved network is tried.
    more
        Another compiled function for the figure.
    """

    step: train.Step
    history: train.History
    predict: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    more: Callable[..., Any] | None = None


def parameter(name: str, value: np.ndarray) -> SharedVariable:
    """Return a shared variable of float32."""
    return pytensor.shared(np.asarray(value, "float32"), name=name, shape=np.shape(value))


def digits(seed: int) -> list[np.ndarray]:
    """Return training and held-out images (N, 1, 8, 8) in 0..1, and training and held-out digits, of scikit-learn."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 1, 8, 8)
    return train_test_split(images, labels, test_size=0.25, random_state=seed, stratify=labels)


def check_saved(path: Path, trained: Trained) -> None:
    """Save the weights, replace them, load them, and assert that the network predicts the same."""
    weights, before = trained.step.weights, trained.predict(*trained.inputs)
    train.save(path, weights)
    for weight in weights:
        weight.set_value(np.full_like(weight.get_value(), 0.5))
    assert not np.allclose(trained.predict(*trained.inputs), before)
    train.load(path, weights)
    np.testing.assert_allclose(trained.predict(*trained.inputs), before, rtol=1e-5, atol=1e-6)


def plot_history(axes: plt.Axes, history: train.History, name: str = "loss") -> None:
    """Draw a result against the epochs, of training and validation data."""
    for key, colour, label in ((name, BLUE, "training"), (f"val_{name}", ORANGE, "held out")):
        if key in history:
            axes.plot(history["epoch"], history[key], color=colour, linewidth=2, marker=".", label=label)
    axes.set(xlabel="epoch", ylabel=name, title=name.capitalize())
    axes.grid(True, color="#e4e7eb", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


def plot_confusion(axes: plt.Axes, labels: np.ndarray, predicted: np.ndarray) -> None:
    """Draw the confusion matrix of held-out rows."""
    ConfusionMatrixDisplay.from_predictions(labels, predicted, ax=axes, cmap="Blues", colorbar=False)
    axes.set_title(f"Held out: {np.mean(labels == predicted):.1%} correct")


def differences(history: train.History, other: train.History) -> dict[str, float]:
    """Return the largest relative difference of each result of two trainings."""
    names = [name for name in history.names if "loss" in name]
    return {name: float(np.max(np.abs(np.divide(history[name], other[name]) - 1))) for name in names}


def _compare(history: train.History, other: train.History, mode: str, tolerance: float) -> dict[str, float]:
    found = differences(history, other)
    for name, value in found.items():
        verdict = "ok" if value <= tolerance else "TOO LARGE"
        print(f"{name} differs from mode {mode} by {value:.1e} (tolerance {tolerance:g}): {verdict}")
    return found


def run(
    fit: Callable[[str, int], Trained],
    draw: Callable[[Any, Trained], None],
    *,
    title: str,
    epochs: int,
    width: float = 11,
    tolerance: float = TOLERANCE,
    arguments: Sequence[str] | None = None,
) -> int:
    """Train as the command line says, save weights and figure, and print the final numbers.

    Parameters
    ----------
    fit
        Builds and trains the network; called with the mode and the number of epochs.
    draw
        Draws on a figure.
    title
        Names the example in the report, and its files.
    epochs
        The default number of epochs.
    width
        The width of the figure in inches.
    tolerance
        The largest relative difference of losses from those of another mode.
    arguments
        Command line; the process's own by default.

    Returns
    -------
    int
        Exit code: 1 if ``--compare`` found a difference beyond `tolerance`.
    """
    options = parser(title, "epochs", epochs).parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / title.lower().replace(" ", "_")
    with pytensor.config.change_flags(floatX="float32"):
        begin = time.perf_counter()
        trained = fit(options.mode, options.count)
        seconds = time.perf_counter() - begin
        other = fit(options.compare, options.count) if options.compare else None
        found = _compare(trained.history, other.history, options.compare, tolerance) if other else {}
        check_saved(path.with_suffix(".safetensors"), trained)
        figure = plt.figure(figsize=(width, 4.8), layout="constrained")
        draw(figure, trained)
    figure.suptitle(f"{title}, mode {options.mode}", color=GREY)
    figure.savefig(path.with_suffix(".png"), dpi=130)
    plt.close(figure)
    last = {name: values for name, values in trained.history.epochs[-1].items() if name != "epoch"}
    results = ", ".join(f"{name} {value:.4g}" for name, value in last.items())
    print(f"{title}, mode {options.mode}: {results}; {seconds:.1f} s -> {path}.png, {path}.safetensors")
    if options.json:
        report = {"mode": options.mode, **last, "seconds": seconds, "differences": found}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return int(any(value > tolerance for value in found.values()))
