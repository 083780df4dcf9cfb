"""The time that `train.fit` adds to a step, beside a bare loop over the compiled function that makes the same batches.

python benchmarks/fit.py [--mode OPENCL] [--rows 6400] [--repeats 50]

All variants run by turns, epoch by epoch. The table has the least time of a step of each, of the clock and of the
process's own time on all threads, which other programs disturb less.
"""

import argparse
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor_cl import nn, optimizers, train

BATCH = 64


def make_step(mode, hidden):
    """Return a step of a network with one hidden layer."""
    generator = np.random.default_rng(0)
    shapes = {"w1": (64, hidden), "b1": (hidden,), "w2": (hidden, 10), "b2": (10,)}
    w1, b1, w2, b2 = (
        pytensor.shared(nn.init.normal(generator, shape, std=0.1, dtype="float32"), name=name)
        for name, shape in shapes.items()
    )
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    out = pt.tanh(x @ w1 + b1) @ w2 + b2
    loss = pt.sqr(out - y).mean()
    metrics = {"largest": pt.abs(out - y).max()}
    return train.step([x, y], loss, optimizers.Adam(1e-4), metrics=metrics, mode=mode)


def bare(step, data, order):
    """Call the compiled function for each batch and add up its loss."""
    total, f = 0.0, step.function
    for begin in range(0, len(order), BATCH):
        rows = order[begin : begin + BATCH]
        loss, _ = f(*(array[rows] for array in data))
        total += float(loss) * len(rows)
    return total / len(order)


def reading_nothing(step, data, order):
    """Call the compiled function for each batch, made before."""
    batch, f = [array[:BATCH] for array in data], step.function
    for _ in range(0, len(order), BATCH):
        f(*batch)


def variants_of(step, data, order, folder):
    """Return what is compared, by name."""
    fit = {"batch_size": BATCH, "progress": "never"}
    return {
        "bare loop": lambda: bare(step, data, order),
        "function alone, one batch": lambda: reading_nothing(step, data, order),
        "fit": lambda: train.fit(step, data, **fit),
        "fit, prefetch=0": lambda: train.fit(step, data, prefetch=0, **fit),
        "fit, with a bar": lambda: train.fit(step, data, **{**fit, "progress": "always"}),
        "fit, with a checkpoint": lambda: train.fit(step, data, checkpoint=_fresh(folder / "a.safetensors"), **fit),
    }


def main():
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", default="OPENCL")
    parser.add_argument("--hidden", type=int, nargs="*", default=[32, 256, 1024])
    parser.add_argument("--rows", type=int, default=6400)
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    generator = np.random.default_rng(1)
    data = tuple(generator.normal(size=(options.rows, n)).astype("float32") for n in (64, 10))
    order, folder = generator.permutation(options.rows), Path(tempfile.mkdtemp())
    steps = -(-options.rows // BATCH)
    print(f"{'hidden':>8}{'variant':>28}{'us a step':>12}{'ratio':>8}{'CPU us a step':>16}{'ratio':>8}")
    for hidden in options.hidden:
        variants = variants_of(make_step(options.mode, hidden), data, order, folder)
        clock, own = dict.fromkeys(variants, np.inf), dict.fromkeys(variants, np.inf)
        for _ in range(options.repeats):
            for name, run in variants.items():
                begun, used = perf_counter(), process_time()
                run()
                clock[name] = min(clock[name], (perf_counter() - begun) / steps)
                own[name] = min(own[name], (process_time() - used) / steps)
        for name in variants:
            ratios = [found[name] / found["bare loop"] for found in (clock, own)]
            print(
                f"{hidden:8}{name:>28}{clock[name] * 1e6:12.0f}{ratios[0]:8.3f}{own[name] * 1e6:16.0f}{ratios[1]:8.3f}"
            )


def _fresh(path):
    path.unlink(missing_ok=True)
    return path


if __name__ == "__main__":
    main()
