"""Functions that the examples share: arguments, comparison, figure, report."""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pytensor
from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix
from tqdm import tqdm

# Rounding alone makes two backends differ by a few 1e-6 at the end of either training.
TOLERANCE = 1e-4
BLUE, GREY = "#1f5fa8", "#5a6270"


class Fit(NamedTuple):
    """A trained model.

    Attributes
    ----------
    losses
        The loss of each step.
    parameters
        The parameters after the last step, by name.
    labels, predicted
        The true and the predicted classes of the held-out rows.
    first_seconds, train_seconds
        Time of the first step, in which a backend may still compile, and of all others together.
    """

    losses: np.ndarray
    parameters: dict[str, np.ndarray]
    labels: np.ndarray
    predicted: np.ndarray
    first_seconds: float
    train_seconds: float

    @property
    def accuracy(self) -> float:
        """The share of held-out rows that are classified correctly."""
        return float(np.mean(self.labels == self.predicted))


def descend(step: Callable[..., np.ndarray], order: Iterable[tuple], label: str) -> tuple[np.ndarray, float, float]:
    """Call ``step(*arguments)`` for all arguments in `order`, with a progress bar.

    Returns
    -------
    tuple
        The losses, the seconds of the first step and the seconds of the others.
    """
    losses, times = [], [time.perf_counter()]
    for arguments in tqdm(order, desc=label, unit="step"):
        losses.append(float(step(*arguments)))
        times.append(time.perf_counter())
    return np.array(losses), times[1] - times[0], times[-1] - times[1]


def differences(fit: Fit, other: Fit) -> dict[str, float]:
    """Return the largest difference of the losses and of each parameter, relative to the largest value."""
    mine = {"loss": fit.losses, **fit.parameters}
    theirs = {"loss": other.losses, **other.parameters}
    scale = {name: max(float(np.max(np.abs(value))), 1e-3) for name, value in theirs.items()}
    return {name: float(np.max(np.abs(mine[name] - theirs[name]))) / scale[name] for name in mine}


def summary(title: str, mode: str, fit: Fit) -> str:
    """Return the final numbers in one line."""
    return (
        f"{title}, mode {mode}: held-out accuracy {fit.accuracy:.4f}, "
        f"loss {fit.losses[0]:.4f} -> {fit.losses[-1]:.4f}, "
        f"{len(fit.losses)} steps: first {fit.first_seconds:.2f} s, others {fit.train_seconds:.2f} s"
    )


def _plot_loss(axes: plt.Axes, losses: np.ndarray, window: int) -> None:
    steps = np.arange(1, len(losses) + 1)
    smooth = 1 < window < len(losses)
    axes.plot(steps, losses, color=BLUE, alpha=0.25 if smooth else 1, linewidth=1 if smooth else 2)
    if smooth:
        mean = np.convolve(losses, np.ones(window) / window, mode="valid")
        middle = steps[: len(mean)] + (window - 1) / 2
        axes.plot(middle, mean, color=BLUE, linewidth=2, label=f"mean of {window} steps")
        axes.legend(frameon=False)
    axes.set(xlabel="step", ylabel="loss", yscale="log" if smooth else "linear", title="Training loss")
    axes.margins(x=0.01)
    axes.grid(True, which="both", color="#e4e7eb", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _plot_confusion(axes: plt.Axes, fit: Fit, class_names: Sequence[str]) -> None:
    matrix = confusion_matrix(fit.labels, fit.predicted, labels=range(len(class_names)))
    display = ConfusionMatrixDisplay(matrix, display_labels=class_names)
    display.plot(ax=axes, cmap="Blues", colorbar=False, values_format="d")
    axes.set_title(f"Held-out rows: {fit.accuracy:.1%} correct")


def save_figure(path: Path, title: str, fit: Fit, class_names: Sequence[str], window: int) -> None:
    """Save the loss, smoothed over `window` steps, and the confusion matrix as a PNG."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    _plot_loss(left, fit.losses, window)
    _plot_confusion(right, fit, class_names)
    figure.suptitle(title, color=GREY)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def parser(description: str, unit: str, count: int) -> argparse.ArgumentParser:
    """Return the arguments of an example whose training is counted in `unit`."""
    words = argparse.ArgumentParser(description=description)
    words.add_argument("--mode", default="OPENCL", help="PyTensor mode (default: %(default)s)")
    words.add_argument(f"--{unit}", dest="count", type=int, default=count, help=f"default: {count}")
    words.add_argument("--out", type=Path, default=Path(), help="folder of the files (default: this one)")
    words.add_argument("--json", type=Path, metavar="FILE", help="also write the final numbers to this file")
    words.add_argument("--compare", metavar="MODE", help="train in this mode too; exit code 1 if they differ")
    return words


def _compare(fit: Fit, other: Fit, mode: str) -> dict[str, float]:
    found = differences(fit, other)
    print(f"largest relative differences from mode {mode} (tolerance {TOLERANCE:g}):")
    for name, value in found.items():
        print(f"  {name:<10} {value:.2e}  {'ok' if value <= TOLERANCE else 'TOO LARGE'}")
    return found


def _report(mode: str, fit: Fit, found: dict[str, float]) -> dict[str, object]:
    return {
        "mode": mode,
        "accuracy": fit.accuracy,
        "final_loss": float(fit.losses[-1]),
        "steps": len(fit.losses),
        "first_seconds": fit.first_seconds,
        "train_seconds": fit.train_seconds,
        "differences": found,
    }


def run(
    train: Callable[[str, int], Fit],
    *,
    title: str,
    unit: str,
    count: int,
    class_names: Sequence[str],
    window: int = 1,
    arguments: Sequence[str] | None = None,
) -> int:
    """Train as the command line says, save the figure and print the final numbers.

    Parameters
    ----------
    train
        Called with the mode and the number of `unit`.
    title
        Names the example in the report and the figure, and the figure's file.
    unit, count
        What the length of the training is counted in, and the default.
    class_names
        Labels of the confusion matrix.
    window
        Number of steps over which the plot smooths the loss.
    arguments
        Command line; the process's own by default.

    Returns
    -------
    int
        Exit code: 1 if ``--compare`` found a difference beyond `TOLERANCE`.
    """
    options = parser(title, unit, count).parse_args(arguments)
    with pytensor.config.change_flags(floatX="float32"):
        fit = train(options.mode, options.count)
        other = train(options.compare, options.count) if options.compare else None
    found = _compare(fit, other, options.compare) if other else {}
    figure = options.out / f"{title.lower().replace(' ', '_')}.png"
    save_figure(figure, f"{title}, mode {options.mode}", fit, class_names, window)
    print(confusion_matrix(fit.labels, fit.predicted))
    print(summary(title, options.mode, fit), f"-> {figure}")
    if options.json:
        options.json.write_text(json.dumps(_report(options.mode, fit, found), indent=2) + "\n")
    return int(any(value > TOLERANCE for value in found.values()))
