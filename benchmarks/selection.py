"""Placement ``auto`` against the best of PyTensor's NUMBA and C backends, after 100 calls and two seconds.

usage: python benchmarks/selection.py [--device opencl:pocl] [--only TEXT ...] [--rounds 8] [--warm-calls 100]
                                      [--warm-seconds 2] [--out build/selection]

Each backend is a process of its own with one function for each workload. A function is called until it had 100 calls
and two seconds. Then the backends take turns for some rounds. A round is calls for a tenth of a second, and its median
counts. The table has the least median of each backend, since other programs make all calls of a round slower, and the
ratio of ``auto`` to the better one of the others. Results are compared with those of the C backend. Writes
``selection.json`` and ``selection.md``.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

BACKENDS = "auto", "NUMBA", "C"
ROUND_SECONDS, LEAST_CALLS = 0.1, 3
TARGET = 1.05
REST = 0.12  # seconds until threads of OpenBLAS sleep

Built = tuple[list[Any], Any, list[Any], list[Any]]
"""Inputs, results, updates and arguments of a function."""


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype("float32")


def _product(m: int, k: int, n: int) -> Callable[..., Built]:
    def build(pt: Any, rng: np.random.Generator) -> Built:
        a, b = pt.fmatrix("a"), pt.fmatrix("b")
        return [a, b], a @ b, [], [_normal(rng, m, k), _normal(rng, k, n)]

    return build


def _matrix_vector(m: int, n: int) -> Callable[..., Built]:
    def build(pt: Any, rng: np.random.Generator) -> Built:
        a, x = pt.fmatrix("a"), pt.fvector("x")
        return [a, x], a @ x, [], [_normal(rng, m, n), _normal(rng, n)]

    return build


def _unary(make: Callable[[Any, Any], Any], *shape: int) -> Callable[..., Built]:
    """Return the builder of a function of one array."""

    def build(pt: Any, rng: np.random.Generator) -> Built:
        x = pt.tensor("x", dtype="float32", shape=(None,) * len(shape))
        return [x], make(pt, x), [], [_normal(rng, *shape)]

    return build


def _chain(pt: Any, x: Any) -> Any:
    return pt.exp(-x * x) * pt.tanh(x) + pt.log(1 + x * x) * pt.sin(x)


def _softmax(pt: Any, x: Any) -> Any:
    e = pt.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _network(batch: int, *widths: int) -> Callable[..., Built]:
    """Return the builder of a step of gradient descent."""

    def build(pt: Any, rng: np.random.Generator) -> Built:
        import pytensor

        x, y = pt.fmatrix("x"), pt.lvector("y")
        weights, h = [], x
        for i, (m, n) in enumerate(pairwise(widths)):
            w = pytensor.shared(_normal(rng, m, n) / np.float32(m) ** np.float32(0.5), f"w{i}")
            b = pytensor.shared(np.zeros(n, "float32"), f"b{i}")
            weights += [w, b]
            z = h @ w + b
            h = pt.maximum(z, 0)
        z = z - z.max(axis=1, keepdims=True)
        loss = (pt.log(pt.exp(z).sum(axis=1)) - z[pt.arange(y.shape[0]), y]).mean()
        step = np.float32(1e-4)
        updates = [(w, w - step * g) for w, g in zip(weights, pytensor.grad(loss, weights), strict=True)]
        return [x, y], loss, updates, [_normal(rng, batch, widths[0]), rng.integers(0, widths[-1], batch)]

    return build


def _scan(steps: int, width: int) -> Callable[..., Built]:
    def build(pt: Any, rng: np.random.Generator) -> Built:
        import pytensor

        x, w = pt.fmatrix("x"), pt.fmatrix("w")
        start = pt.zeros((w.shape[0],), dtype="float32")
        states = pytensor.scan(lambda a, before, w: pt.tanh(a + before @ w), [x], [start], [w], return_updates=False)
        return [x, w], states[-1].sum(), [], [_normal(rng, steps, width), _normal(rng, width, width) / width]

    return build


def _recurrence(steps: int) -> Callable[..., Built]:
    def build(pt: Any, rng: np.random.Generator) -> Built:
        import pytensor

        x = pt.fvector("x")
        zero = pt.constant(np.float32(0))
        states = pytensor.scan(lambda a, before: pt.tanh(a + 0.5 * before), [x], [zero], return_updates=False)
        return [x], states, [], [_normal(rng, steps)]

    return build


def _embedding(rows: int, width: int, batch: int) -> Callable[..., Built]:
    """Return the builder of an update of the rows of a table that were looked up."""

    def build(pt: Any, rng: np.random.Generator) -> Built:
        import pytensor

        index, target = pt.lvector("index"), pt.fmatrix("target")
        table = pytensor.shared(_normal(rng, rows, width), "table")
        looked_up = table[index]
        loss = ((looked_up - target) ** 2).sum()
        new = pt.inc_subtensor(looked_up, np.float32(-1e-4) * pytensor.grad(loss, looked_up))
        return [index, target], loss, [(table, new)], [rng.integers(0, rows, batch), _normal(rng, batch, width)]

    return build


def _cholesky(n: int) -> Callable[..., Built]:
    def build(pt: Any, rng: np.random.Generator) -> Built:
        a = pt.fmatrix("a")
        value = _normal(rng, n, n)
        return [a], pt.linalg.cholesky(a), [], [value @ value.T + n * np.eye(n, dtype="float32")]

    return build


def _gaussian(n: int) -> Callable[..., Built]:
    """Return the builder of the logarithm of a normal density with a covariance matrix."""

    def build(pt: Any, rng: np.random.Generator) -> Built:
        x, y, scale = pt.fvector("x"), pt.fvector("y"), pt.fscalar("scale")
        distance = (x[:, None] - x[None, :]) ** 2
        factor = pt.linalg.cholesky(pt.exp(-0.5 * distance / scale**2) + pt.eye(x.shape[0], dtype="float32"))
        z = pt.linalg.solve_triangular(factor, y, lower=True)
        density = -0.5 * (z**2).sum() - pt.log(pt.diag(factor)).sum()
        return [x, y, scale], density, [], [_normal(rng, n), _normal(rng, n), np.float32(1.5)]

    return build


def _eight_schools(pt: Any, rng: np.random.Generator) -> Built:
    import pytensor

    mu, log_tau, eta = pt.fscalar("mu"), pt.fscalar("log_tau"), pt.fvector("eta")
    effect = np.array([28, 8, -3, 7, -1, 1, 18, 12], "float32")
    spread = np.array([15, 10, 16, 11, 9, 11, 10, 18], "float32")
    z = (effect - (mu + pt.exp(log_tau) * eta)) / spread
    density = -0.5 * ((z * z).sum() + (eta * eta).sum() + mu * mu / 25) + log_tau
    results = [density, *pytensor.grad(density, [mu, log_tau, eta])]
    return [mu, log_tau, eta], results, [], [np.float32(0.3), np.float32(0.1), _normal(rng, 8)]


def _logistic(rows: int, columns: int) -> Callable[..., Built]:
    def build(pt: Any, rng: np.random.Generator) -> Built:
        import pytensor

        x, y, w = pt.fmatrix("x"), pt.fvector("y"), pt.fvector("w")
        z = x @ w
        loss = (pt.log1p(pt.exp(-abs(z))) + pt.maximum(z, 0) - y * z).sum() + 0.5 * (w * w).sum()
        values = [_normal(rng, rows, columns), (rng.random(rows) < 0.5).astype("float32"), _normal(rng, columns)]
        return [x, y, w], [loss, pytensor.grad(loss, w)], [], values

    return build


def _slopes(rows: int) -> Callable[..., Built]:
    def build(pt: Any, rng: np.random.Generator) -> Built:
        import pytensor

        group, x, y = pt.lvector("group"), pt.fvector("x"), pt.fvector("y")
        a, b = pt.fvector("a"), pt.fvector("b")
        z = y - a[group] - b[group] * x
        density = -0.5 * ((z * z).sum() + (a * a).sum() + (b * b).sum())
        values = [rng.integers(0, 85, rows), *(_normal(rng, n) for n in (rows, rows, 85, 85))]
        return [group, x, y, a, b], [density, *pytensor.grad(density, [a, b])], [], values

    return build


WORKLOADS: dict[str, Callable[..., Built]] = {
    "product 64": _product(64, 64, 64),
    "product 256": _product(256, 256, 256),
    "product 512": _product(512, 512, 512),
    "product 1024": _product(1024, 1024, 1024),
    "product 333 x 517 x 211": _product(333, 517, 211),
    "product 4096 x 4096 x 4": _product(4096, 4096, 4),
    "product 8 x 2048 x 2048": _product(8, 2048, 2048),
    "product 2000 x 3 x 2000": _product(2000, 3, 2000),
    "product 20000 x 64 x 64": _product(20000, 64, 64),
    "matrix-vector 500": _matrix_vector(500, 500),
    "matrix-vector 4096": _matrix_vector(4096, 4096),
    "matrix-vector 100000 x 20": _matrix_vector(100_000, 20),
    "network step, 32 of 64-32-10": _network(32, 64, 32, 10),
    "network step, 256 of 784-512-256-10": _network(256, 784, 512, 256, 10),
    "scan, 1000 numbers": _recurrence(1000),
    "scan, 200 steps of 64": _scan(200, 64),
    "embedding update, 512 of 50000 x 64": _embedding(50_000, 64, 512),
    "embedding update, 20000 of 50000 x 64": _embedding(50_000, 64, 20_000),
    "Cholesky 50": _cholesky(50),
    "Cholesky 500": _cholesky(500),
    "Cholesky 1500": _cholesky(1500),
    "normal density, covariance of 200": _gaussian(200),
    "x + 1, 10": _unary(lambda pt, x: x + 1, 10),
    "exp, 1000": _unary(lambda pt, x: pt.exp(x), 1000),
    "exp, 100000": _unary(lambda pt, x: pt.exp(x), 100_000),
    "chain, 1000000": _unary(_chain, 1_000_000),
    "sum, 1000": _unary(lambda pt, x: x.sum(), 1000),
    "sum, 4000000": _unary(lambda pt, x: x.sum(), 4_000_000),
    "sum of rows, 2000 x 500": _unary(lambda pt, x: x.sum(axis=1), 2000, 500),
    "maximum of columns, 2000 x 500": _unary(lambda pt, x: x.max(axis=0), 2000, 500),
    "softmax, 64 x 10": _unary(_softmax, 64, 10),
    "softmax, 1000 x 1000": _unary(_softmax, 1000, 1000),
    "cumulative sum, 1000000": _unary(lambda pt, x: pt.cumsum(x), 1_000_000),
    "eight schools, gradient": _eight_schools,
    "logistic regression 1000 x 20, gradient": _logistic(1000, 20),
    "logistic regression 100000 x 32, gradient": _logistic(100_000, 32),
    "varying slopes 1000, gradient": _slopes(1000),
    "varying slopes 100000, gradient": _slopes(100_000),
}


# A process of one backend: reads requests, one JSON object a line, and answers likewise


class Function:
    """A compiled workload with its arguments."""

    def __init__(self, name: str, mode: Any) -> None:
        import pytensor
        import pytensor.tensor as pt

        inputs, results, updates, self.arguments = WORKLOADS[name](pt, np.random.default_rng(2026))
        self.function = pytensor.function(inputs, results, updates=updates, mode=mode)

    def warm_up(self, calls: int, seconds: float) -> dict[str, Any]:
        """Call until there were so many calls and seconds; return the first result."""
        start, count = time.perf_counter(), 0
        first = None
        while count < calls or time.perf_counter() - start < seconds:
            results = self.function(*self.arguments)
            first = results if first is None else first
            count += 1
        many = first if isinstance(first, list) else [first]
        return {"calls": count, "sums": [float(np.abs(np.asarray(r, "float64")).sum()) for r in many]}

    def time(self) -> float:
        """Return the median time of the calls of a round."""
        function, arguments, clock = self.function, self.arguments, time.perf_counter
        times, end = [], clock() + ROUND_SECONDS
        while len(times) < LEAST_CALLS or clock() < end:
            start = clock()
            function(*arguments)
            times.append(clock() - start)
        return median(times)

    def report(self) -> dict[str, Any]:
        """Return what runs the calls, and why."""
        signatures = getattr(self.function.vm, "signatures", None)
        if not signatures:
            return {}
        stats = signatures[-1]
        comparison = list(stats.next_comparison or ())
        return {"backend": stats.backend, "seconds": stats.seconds, "next": comparison, "excluded": stats.excluded}


def serve(backend: str, device: str) -> None:
    """Answer requests until there are no more."""
    mode: Any = "NUMBA"
    if backend == "auto":
        import pytensor_cl

        pytensor_cl.use(device)
        mode = "OPENCL"
    elif backend == "C":
        from pytensor.compile.mode import Mode

        mode = Mode(linker="cvm", optimizer="fast_run")
    function = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "warm up":
                function = Function(request["name"], mode)
                answer: Any = function.warm_up(request["calls"], request["seconds"])
            elif function is None:
                answer = {"failed": "no function"}
            else:
                answer = {"seconds": function.time()} if request["do"] == "time" else function.report()
        except Exception as error:
            function, answer = None, {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
        print("answer " + json.dumps(answer), flush=True)


class Worker:
    """The process of a backend."""

    def __init__(self, backend: str, device: str) -> None:
        self.backend = backend
        command = [sys.executable, __file__, "--serve", backend, "--device", device]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def request(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        raise RuntimeError(f"the process of {self.backend} has ended")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(name: str, workers: list[Worker], options: argparse.Namespace) -> dict[str, Any]:
    """Return the least median of each backend in seconds, and what `auto` chose."""
    first = {w.backend: w.request(do="warm up", name=name, calls=options.warm_calls, seconds=options.warm_seconds)
             for w in workers}  # fmt: skip
    ready = [w for w in workers if "failed" not in first[w.backend]]
    failed = {w.backend: first[w.backend]["failed"] for w in workers if w not in ready}
    medians: dict[str, list[float]] = {w.backend: [] for w in ready}
    for _ in range(options.rounds):
        for worker in ready:
            time.sleep(REST)
            medians[worker.backend].append(worker.request(do="time")["seconds"])
    found: dict[str, Any] = {backend: min(times) for backend, times in medians.items()}
    sums = [first[w.backend]["sums"] for w in ready]
    for other in sums[1:]:
        np.testing.assert_allclose(other, sums[0], rtol=1e-3, atol=1e-3, err_msg=name)
    others = [found[b] for b in found if b != "auto"]
    ratio = found["auto"] / min(others) if "auto" in found and others else None
    report = next(w for w in workers if w.backend == "auto").request(do="report") if "auto" in found else {}
    return {"seconds": found, "ratio": ratio, "report": report, "failed": failed}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the table in Markdown, times in microseconds."""
    lines = ["| | auto, us | runs on | NUMBA, us | C, us | ratio |", "|---|---|---|---|---|---|"]
    for name, found in results.items():
        cells = [f"{1e6 * found['seconds'][b]:.4g}" if b in found["seconds"] else "-" for b in BACKENDS]
        ratio = found["ratio"]
        shown = "-" if ratio is None else f"**{ratio:.2f}**" if ratio > TARGET else f"{ratio:.2f}"
        cells.insert(1, found["report"].get("backend", "device"))
        lines.append("| " + " | ".join([name, *cells, shown]) + " |")
    ratios = [found["ratio"] for found in results.values() if found["ratio"]]
    if ratios:
        above = sum(r > TARGET for r in ratios)
        lines += ["", f"Geometric mean {geometric_mean(ratios):.2f}; {above} of {len(ratios)} above {TARGET}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="opencl:pocl", help="an OpenCL device")
    parser.add_argument("--only", nargs="+", default=[""], help="workloads whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--warm-calls", type=int, default=100, help="calls before the measurement, at least")
    parser.add_argument("--warm-seconds", type=float, default=2.0, help="seconds before the measurement, at least")
    parser.add_argument("--out", type=Path, default=Path("build/selection"), help="folder of what is written")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.device)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    workers = [Worker(backend, options.device) for backend in BACKENDS]
    results: dict[str, dict[str, Any]] = {}
    for name in WORKLOADS:
        if any(text in name for text in options.only):
            results[name] = measure(name, workers, options)
            print(name, json.dumps(results[name]), flush=True)
            (options.out / "selection.json").write_text(json.dumps(results, indent=1))
            (options.out / "selection.md").write_text(table(results))
    for worker in workers:
        worker.close()
    print(table(results))


if __name__ == "__main__":
    main()
