"""A network on scikit-learn's digits, trained by two processes of a Dask cluster, with the numbers of one device.

Each process computes the gradients of half of every batch. At the end the same training runs on one device, with its
batches in as many parts, and the parameters are compared: they are equal to the last bit. On several machines, start
``dask scheduler`` and ``dask worker`` there and give ``--scheduler tcp://address:8786``.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
from distributed import Client, LocalCluster
from sklearn.datasets import load_digits

from pytensor_cl import nn, optimizers, train

TRAINING = 1400


def build(mode: str = "OPENCL") -> dict:
    """Return the arguments of ``train.step``; this runs in each process."""
    generator = np.random.default_rng(0)

    def layer(name: str, n_in: int, n_out: int) -> tuple:
        w = nn.init.he_normal(generator, (n_in, n_out), dtype="float32")
        return (
            pytensor.shared(w, name=f"{name}.weight"),
            pytensor.shared(np.zeros(n_out, "float32"), name=f"{name}.bias"),
        )

    (w1, b1), (w2, b2) = layer("hidden", 64, 128), layer("output", 128, 10)
    x, y = pt.fmatrix("x"), pt.lvector("y")
    noise = pt.random.shared_rng(seed=1, name="noise")
    _, hidden = nn.dropout(nn.relu(x @ w1 + b1), 0.2, noise)
    logits = hidden @ w2 + b2
    loss = nn.softmax_cross_entropy(logits, y)
    accuracy = pt.eq(logits.argmax(axis=1), y).mean()
    return {
        "inputs": [x, y],
        "loss": loss,
        "optimizer": optimizers.Adam(3e-3),
        "metrics": {"accuracy": accuracy},
        "mode": mode,
    }


def save_history(path: Path, history: train.History, workers: int) -> None:
    """Save a figure of the losses and of the accuracy."""
    import matplotlib.pyplot as plt

    figure, plots = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for plot, name in zip(plots, ("loss", "accuracy"), strict=True):
        plot.plot(history["epoch"], history[name], label="training")
        plot.plot(history["epoch"], history[f"val_{name}"], label="held out")
        plot.set(title=f"{name}, {workers} processes", xlabel="epoch")
        plot.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the return value is the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=2, help="processes of the cluster here (default: %(default)s)")
    parser.add_argument("--scheduler", help="the address of a cluster that is there")
    parser.add_argument("--shards", type=int, help="parts of a batch (default: the number of workers)")
    parser.add_argument("--mode", default="OPENCL", help="PyTensor mode (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the figure (default: this one)")
    chosen = parser.parse_args(arguments)

    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    rows, held_out = (images[:TRAINING], digits[:TRAINING]), (images[TRAINING:], digits[TRAINING:])

    def arguments_of_step() -> dict:
        return build(chosen.mode)

    with ExitStack() as stack:
        address = chosen.scheduler
        if address is None:
            cluster = LocalCluster(n_workers=chosen.workers, threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(cluster)
        client = stack.enter_context(Client(address))
        step = train.distribute(arguments_of_step, client, shards=chosen.shards)
        history = train.fit(step, rows, chosen.epochs, validation=held_out)
        step.pull()
        print(f"{len(step.workers)} workers: held-out accuracy {history['val_accuracy'][-1]:.4f}")

    alone = train.step(**build(chosen.mode), accumulate=step.shards)
    train.fit(alone, rows, chosen.epochs)
    equal = [np.array_equal(a.get_value(), b.get_value()) for a, b in zip(step.params, alone.params, strict=True)]
    print(f"parameters equal to those of one device: {all(equal)}")
    if find_spec("matplotlib"):
        save_history(chosen.out / "data_parallel.png", history, len(step.workers))
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
