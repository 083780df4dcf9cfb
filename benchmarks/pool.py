"""Pooling and its gradients, as a share of the bandwidth of a copy on the same device.

usage: python benchmarks/pool.py [opencl:pocl ...] [--rounds 20]

The array has the shape of an image network's first layers, (16, 64, 112, 112), float32; the stride is 2. The bytes that
count are those of the inputs and the output, each once. The routines take turns; a figure is the best of all rounds.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.routines.pool import Bin, MaxPool, MaxPoolScatter, SumPool, SumPoolGrad, Window
from pytensor_cl.runtime.context import Context, open_context

SHAPE = (16, 64, 112, 112)


class Case(NamedTuple):
    """A call, and the bytes that it has to move."""

    name: str
    call: Callable[[], tuple[Any, ...]]
    moved: int


def cases(context: Context) -> Iterator[Case]:
    """Yield a copy, then pooling by 2 x 2 and by 3 x 3, dilated, and to 7 x 7 and 1 x 1 bins."""
    x = context.from_host(np.random.default_rng(0).normal(size=SHAPE).astype("float32"))
    copy = Copy(context, "float32", 4)
    yield Case("copy", lambda: copy(x), 2 * x.nbytes)
    shapes = {
        "2": Window(2, 2, 0, 0),
        "3": Window(3, 2, 0, 0),
        "dilated": Window(3, 2, 0, 0, 2),
        "bins": Bin(7),
        "all": Bin(1),
    }
    for name, window in shapes.items():
        windows = [window] * 2
        largest, average, scatter, spread = (
            kind(context, "float32", windows) for kind in (MaxPool, SumPool, MaxPoolScatter, SumPoolGrad)
        )
        (y,) = largest(x)
        both = x.nbytes + y.nbytes
        yield Case(f"max {name}", lambda f=largest: f(x), both)
        yield Case(f"average {name}", lambda f=average: f(x), both)
        yield Case(f"max {name}, gradient", lambda f=scatter, dy=y: f(x, dy), both + x.nbytes)
        yield Case(f"average {name}, gradient", lambda f=spread, dy=y: f(dy, SHAPE[2:]), both)


def measure(context: Context, rounds: int) -> None:
    """Print the best time of each case."""
    found = list(cases(context))
    best = dict.fromkeys((case.name for case in found), float("inf"))
    for _ in range(rounds + 1):
        for case in found:
            start = time.perf_counter()
            case.call()
            context.queue.finish()
            best[case.name] = min(best[case.name], time.perf_counter() - start)
    copied = found[0].moved / best["copy"]
    for case in found:
        rate = case.moved / best[case.name]
        print(f"{case.name:<26} {best[case.name] * 1e3:8.2f} ms {rate / 1e9:7.1f} GB/s {rate / copied:6.0%}")


def main() -> None:
    """Measure on each device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("devices", nargs="*", default=["opencl"])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    for device in options.devices:
        context = open_context(device)
        print(f"--- {device}: {context.info.name}")
        measure(context, options.rounds)


if __name__ == "__main__":
    main()
