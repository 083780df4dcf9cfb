"""The time of a data-parallel step against the number of workers, and the bytes that it moves.

python benchmarks/distribute.py [--mode OPENCL] [--hidden 256 1024] [--rows 256] [--workers 1 2] [--steps 30]

Each worker computes with one thread (of PoCL and of BLAS), as a device of its own. The network has one hidden layer;
the batch has the same rows for each number of workers. "one device" is `train.step(accumulate=...)` in one such
process, without Dask. An empty model (--hidden 1 --rows 2) shows what the scheduler takes.
"""

import argparse
import os
from time import perf_counter

ONE_THREAD = {"POCL_MAX_PTHREAD_COUNT": "1", "POCL_CPU_MAX_CU_COUNT": "1", "OMP_NUM_THREADS": "1"}
os.environ.update(ONE_THREAD)

import numpy as np  # noqa: E402
import pytensor  # noqa: E402
import pytensor.tensor as pt  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

from pytensor_cl import nn, optimizers, train  # noqa: E402

FEATURES, CLASSES, SHARDS = 512, 10, 2


def builder(hidden, mode):
    """Return a function that makes a network with one hidden layer."""

    def build():
        generator = np.random.default_rng(0)
        shapes = {"w1": (FEATURES, hidden), "w2": (hidden, hidden), "w3": (hidden, CLASSES)}
        w1, w2, w3 = (
            pytensor.shared(nn.init.normal(generator, shape, std=0.05, dtype="float32"), name=name)
            for name, shape in shapes.items()
        )
        x, y = pt.fmatrix("x"), pt.lvector("y")
        logits = nn.relu(nn.relu(x @ w1) @ w2) @ w3
        loss = nn.softmax_cross_entropy(logits, y)
        return {"inputs": [x, y], "loss": loss, "optimizer": optimizers.Adam(1e-3), "mode": mode}

    return build


def least(step, batch, steps):
    """Return the least time of a step in milliseconds."""
    times = []
    for _ in range(steps + 5):
        begun = perf_counter()
        float(np.asarray(step(*batch)["loss"]))
        times.append(perf_counter() - begun)
    return 1e3 * min(times[5:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mode", default="OPENCL")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=30)
    chosen = parser.parse_args()
    generator = np.random.default_rng(0)
    batch = (
        generator.normal(size=(chosen.rows, FEATURES)).astype("float32"),
        generator.integers(0, CLASSES, chosen.rows),
    )
    print(
        "hidden units | MB of gradients | " + " | ".join(["one device, ms", *(f"{n} workers" for n in chosen.workers)])
    )
    for hidden in chosen.hidden:
        build = builder(hidden, chosen.mode)
        alone = train.step(**build(), accumulate=SHARDS)
        size = sum(param.get_value().nbytes for param in alone.params)
        row = [least(alone, batch, chosen.steps)]
        for workers in chosen.workers:
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster) as client,
            ):
                row.append(least(train.distribute(build, client, shards=SHARDS), batch, chosen.steps))
        print(f"{hidden:12} | {size / 1e6:15.2f} | " + " | ".join(f"{time:9.2f}" for time in row), flush=True)


if __name__ == "__main__":
    main()
