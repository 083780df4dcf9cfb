"""Matrix products against NumPy, in turns within one run.

usage: python benchmarks/gemm.py [device] [dtype ...]

NumPy's threads keep spinning for a while after a product, so the two take turns in blocks with a pause between
them. Figures are the best and the median time of a call that waits for its result, and the host's share of an
asynchronous call.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", str(len(os.sched_getaffinity(0))))

import sys
import time
from collections.abc import Callable

import numpy as np

from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.routines.gemv.routine import Gemv, Ger
from pytensor_cl.runtime.context import Context, open_context

PRODUCTS = [
    (8, 8, 8),
    (64, 64, 64),
    (100, 100, 100),
    (128, 128, 128),
    (256, 256, 10),
    (256, 10, 256),
    (10, 512, 256),
    (100_000, 20, 20),
    (20, 100_000, 20),
    (20_000, 64, 64),
    (1797, 64, 100),
    (64, 1797, 100),
    (256, 784, 512),
    (784, 256, 512),
    (256, 256, 256),
    (500, 500, 500),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
]
ORDERS = {"": (), "A by columns": (0,), "B by columns": (1,), "both by columns": (0, 1)}
ORDERED = {(256, 784, 512), (784, 256, 512), (512, 512, 512), (1024, 1024, 1024)}  # measured in all orders
MATRICES = [(4096, 4096), (100_000, 20), (20, 100_000), (64, 64), (1, 1_000_000)]
BATCHES = [(1000, 4, 4, 4), (64, 64, 64, 64), (64, 128, 128, 128), (100, 1, 64, 64)]
ROUNDS = 4
PAUSE = 0.15  # seconds until NumPy's threads sleep


def sample(call: Callable[[], object], seconds: float = 0.1) -> list[float]:
    """Time calls for a while, twice at least."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def compare(calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Time each call in turn, several rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            time.sleep(PAUSE)
            times[name] += sample(call)
    return times


def report(what: str, times: dict[str, list[float]], amount: float, unit: str) -> None:
    """Print one line: of each its time and rate, and the ratio of the best device time to NumPy's."""
    reference = min(times["numpy"])
    parts = [
        f"{name} {min(t) * 1e6:9.1f} us (median {np.median(t) * 1e6:9.1f}, {amount / min(t) / 1e9:6.1f} {unit}, "
        f"x{reference / min(t):.2f})"
        for name, t in times.items()
    ]
    print(f"{what:28s}", "  ".join(parts), flush=True)


class Bench:
    """Device calls of one dtype that wait for their result."""

    def __init__(self, context: Context, dtype: str) -> None:
        self.context, self.dtype = context, dtype
        self.rng = np.random.default_rng(0)

    def random(self, *shape: int) -> np.ndarray:
        """Return a random array."""
        return self.rng.standard_normal(shape).astype(self.dtype)

    def waiting(self, routine: object, *inputs: np.ndarray) -> Callable[[], None]:
        """Upload `inputs`, with their memory order, and return a call that launches and waits."""
        arrays = [self.context.from_host(x.T).T if x.flags.f_contiguous else self.context.from_host(x) for x in inputs]
        outputs = [self.context.empty(x.shape, self.dtype) for x in routine.layout(*(a.layout for a in arrays))]

        def call() -> None:
            routine.launch(outputs, arrays)
            self.context.queue.finish()

        return call

    def products(self) -> None:
        """Square, small and skinny matrix products, some of them with operands in both orders."""
        gemm = Gemm(self.context, self.dtype)
        for m, k, n in PRODUCTS:
            for order, by_columns in ORDERS.items() if (m, k, n) in ORDERED else [("", ())]:
                operands = [self.random(m, k), self.random(k, n)]
                a, b = (np.asfortranarray(x) if i in by_columns else x for i, x in enumerate(operands))
                out = self.random(m, n)
                calls = {
                    "numpy": lambda a=a, b=b, out=out: np.matmul(a, b, out=out),
                    "device": self.waiting(gemm, a, b),
                }
                report(f"{self.dtype} {m}x{k}x{n} {order}", compare(calls), 2 * m * k * n, "GFLOP/s")

    def vectors(self) -> None:
        """Matrix-vector products of both orders, and rank-one updates."""
        gemv, ger = Gemv(self.context, self.dtype), Ger(self.context, self.dtype)
        for m, k in MATRICES:
            a, x, y = self.random(m, k), self.random(k), self.random(m)
            size = a.nbytes
            for order, matrix in (("rows", a), ("columns", np.asfortranarray(a))):
                calls = {"numpy": lambda a=matrix, x=x: a @ x, "device": self.waiting(gemv, matrix, x)}
                report(f"{self.dtype} gemv {m}x{k} {order}", compare(calls), size, "GB/s")
            one = np.ones((), self.dtype)
            calls = {
                "numpy": lambda a=a, x=x, y=y: a + np.outer(y, x),
                "device": self.waiting(ger, a, one, y, x),
            }
            report(f"{self.dtype} ger {m}x{k}", compare(calls), 2 * size, "GB/s")

    def batches(self) -> None:
        """Batches of small products."""
        gemm = BatchedGemm(self.context, self.dtype)
        for batch, m, k, n in BATCHES:
            a, b = self.random(batch, m, k), self.random(batch, k, n)
            calls = {"numpy": lambda a=a, b=b: a @ b, "device": self.waiting(gemm, a, b)}
            report(f"{self.dtype} {batch} of {m}x{k}x{n}", compare(calls), 2 * batch * m * k * n, "GFLOP/s")

    def host(self) -> None:
        """Time of an asynchronous call on the host."""
        gemm = Gemm(self.context, self.dtype)
        a = self.context.from_host(self.random(8, 8))
        out = self.context.empty((8, 8), self.dtype)
        gemm.launch((out,), (a, a))
        times = [t for _ in range(20) for t in sample(lambda: gemm.launch((out,), (a, a)), 0)]
        self.context.queue.finish()
        print(f"{self.dtype} host side of a launch: median {np.median(times) * 1e6:.1f} us")


def main() -> None:
    """Run everything on one device."""
    device = sys.argv[1] if len(sys.argv) > 1 else "opencl:pocl"
    context = open_context(device)
    print(context.info.name, context.info.platform)
    for dtype in sys.argv[2:] or ("float32", "float64"):
        bench = Bench(context, dtype)
        bench.host()
        bench.products()
        bench.vectors()
        bench.batches()


if __name__ == "__main__":
    main()
