"""Times to compile functions and to call them for the first time, by phase, with empty and with filled disk caches.

usage: python benchmarks/compile.py [--device opencl:pocl ...] [--only TEXT] [--rounds N]

Each measurement is a process of its own, with its caches in a temporary folder: *cold* is the first process there,
*warm* the one after it. The table has the best of the rounds, in seconds of wall time:

rewrite
    ``pytensor.function`` but for what follows: PyTensor's rewrites and ours.
link
    Making the steps of the nodes: routines and the text of kernels.
build
    Compilers at work before the first call is over, as far as the caller waits for them by name.
call 1, call 2
    The first call but for builds (drivers may compile there too), and the second one.
ours
    link + build + call 1: what a user waits for beside the rewrites.
CPU
    Seconds of all cores during link, build and call 1; helpers that had not ended by then do not count.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

DEVICES = ("opencl:pocl", "opencl:intel")
PHASES = ("rewrite", "link", "build", "call 1", "call 2", "ours", "CPU")
Made = tuple[Callable[..., Any], list[np.ndarray]]


class Clock:
    """Wall time by phase; a phase inside another counts for itself alone."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._inner = [0.0]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what runs inside."""
        start = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            taken = time.perf_counter() - start
            self.seconds[name] += taken - self._inner.pop()
            self._inner[-1] += taken

    def count(self, owner: Any, method: str, name: str) -> None:
        """Count all calls of a method as a phase."""
        plain = getattr(owner, method)

        def counted(*args: Any, **options: Any) -> Any:
            with self.phase(name):
                return plain(*args, **options)

        setattr(owner, method, counted)


def _normal(*shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(2026)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def chain() -> Made:
    """50 nodes that do not fuse, no two of the element-wise ones alike."""
    import pytensor
    import pytensor.tensor as pt

    x = y = pt.fmatrix()
    for i in range(25):
        y = pt.cumsum(pt.tanh(y) * (1 + 0.01 * i) + y / (3 + i), axis=i % 2)
    return pytensor.function([x], y, mode="OPENCL"), _normal((64, 64))


def mlp() -> Made:
    """A training step: three layers, softmax, gradients, momentum."""
    import pytensor
    import pytensor.tensor as pt

    x, t = pt.fmatrix(), pt.ivector()
    sizes = [784, 256, 128, 10]
    weights = [pytensor.shared(w) for w in _normal(*pairwise(sizes))]
    biases = [pytensor.shared(np.zeros(n, "float32")) for n in sizes[1:]]
    h = x
    for w, b in zip(weights, biases, strict=True):
        z = h @ w + b
        h = pt.tanh(z)
    loss = -pt.mean(pt.special.log_softmax(z, axis=1)[pt.arange(t.shape[0]), t])
    updates = []
    for p in weights + biases:
        v = pytensor.shared(np.zeros_like(p.get_value()))
        step = np.float32(0.9) * v - np.float32(0.01) * pytensor.grad(loss, p)
        updates += [(v, step), (p, p + step)]
    f = pytensor.function([x, t], loss, updates=updates, mode="OPENCL")
    return f, [*_normal((64, 784)), np.arange(64, dtype="int32") % 10]


def schools() -> Made:
    """The log-density of the eight schools and its gradient, in float64."""
    import pytensor
    import pytensor.tensor as pt

    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    sigma = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    mu, log_tau, eta = pt.dscalar(), pt.dscalar(), pt.dvector()
    tau = pt.exp(log_tau)
    density = -(mu**2) / 50 - pt.log1p((tau / 5) ** 2) + log_tau - pt.sum(eta**2) / 2
    density -= pt.sum(((y - mu - tau * eta) / sigma) ** 2) / 2
    results = [density, *pytensor.grad(density, [mu, log_tau, eta])]
    return pytensor.function([mu, log_tau, eta], results, mode="OPENCL"), _normal((), (), (8,), dtype="float64")


def convolutions() -> Made:
    """A small convolutional net with its gradients."""
    import pytensor
    import pytensor.tensor as pt

    from pytensor_cl import nn

    x, w1, w2 = (pt.tensor4(dtype="float32") for _ in range(3))
    w3, t = pt.fmatrix(), pt.ivector()
    h = nn.pool_2d(pt.maximum(nn.conv2d(x, w1), 0), (2, 2))
    h = nn.pool_2d(pt.maximum(nn.conv2d(h, w2), 0), (2, 2))
    p = pt.special.log_softmax(pt.flatten(h, 2) @ w3, axis=1)
    loss = -pt.mean(p[pt.arange(t.shape[0]), t])
    f = pytensor.function([x, w1, w2, w3, t], [loss, *pytensor.grad(loss, [w1, w2, w3])], mode="OPENCL")
    arrays = _normal((16, 1, 28, 28), (8, 1, 5, 5), (16, 8, 5, 5), (256, 10))
    return f, [*arrays, np.arange(16, dtype="int32") % 10]


FUNCTIONS = {"chain": chain, "mlp": mlp, "schools": schools, "convolutions": convolutions}


def used() -> float:
    """CPU seconds of this process and those that it has waited for."""
    return sum(os.times()[:4])


def measure(name: str, device: str) -> dict[str, float]:
    """Return the seconds of each phase; run in a fresh process."""
    import pytensor

    import pytensor_cl
    from pytensor_cl.linker.linker import OpenCLLinker
    from pytensor_cl.runtime.program import ProgramCache
    from pytensor_cl.runtime.registry import get_context

    clock = Clock()
    get_context(pytensor_cl.use(device))
    clock.count(OpenCLLinker, "make_thunk", "link")
    clock.count(ProgramCache, "build", "build")
    cpu: list[float] = []
    plain = OpenCLLinker.make_thunk

    def noted(*args: Any, **options: Any) -> Any:
        cpu.append(used())
        return plain(*args, **options)

    OpenCLLinker.make_thunk = noted  # type: ignore[method-assign]
    with pytensor.config.change_flags(opencl__placement="device"), clock.phase("rewrite"):
        f, arrays = FUNCTIONS[name]()
    with clock.phase("call 1"):
        f(*arrays)
    clock.seconds["CPU"] = used() - cpu[0]
    with clock.phase("call 2"):
        f(*arrays)
    clock.seconds["ours"] = sum(clock.seconds[p] for p in ("link", "build", "call 1"))
    return clock.seconds


def child(name: str, device: str, folder: str) -> dict[str, float]:
    """Measure in a process of its own, with its caches in `folder`."""
    caches = {key: str(Path(folder) / key.lower()) for key in ("POCL_CACHE_DIR", "XDG_CACHE_HOME")}
    flags = f"floatX=float32,compiledir={Path(folder) / 'pytensor'}"
    command = [sys.executable, "-W", "ignore", __file__, "--measure", name, device]
    environment = {**os.environ, **caches, "PYTENSOR_FLAGS": flags}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} on {device}: {done.stderr[-2000:]}")
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def best(name: str, device: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return the round with the least time of ours, for cold and warm caches."""
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # helpers may be writing
            for samples in found.values():
                samples.append(child(name, device, folder))
    return {state: min(samples, key=lambda s: s["ours"]) for state, samples in found.items()}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", help="OpenCL devices; default PoCL and Intel")
    parser.add_argument("--only", default="", help=f"functions whose name has this in it: {', '.join(FUNCTIONS)}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "DEVICE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    print("| function | device | caches | " + " | ".join(PHASES) + " |\n" + "|---" * (3 + len(PHASES)) + "|")
    for name in (n for n in FUNCTIONS if options.only in n):
        for device in options.device or DEVICES:
            for state, seconds in best(name, device, options.rounds).items():
                cells = (f"{seconds[p]:.3f}" for p in PHASES)
                print(f"| {name} | {device.partition(':')[2]} | {state} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
