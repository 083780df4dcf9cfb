"""All workloads on all backends, side by side.

usage: python benchmarks/run.py [--out DIR] [--only TEXT] [--backend NAME=PYTHON ...] [--device opencl:pocl ...]
                                [--auto opencl:pocl ...]

Each backend is a process of its own (inside one process their thread pools disturb each other), and they take turns
in rounds. Every result is checked against float64 before it is timed, and each backend is called for a second first:
one that compiles while it runs, or chooses where to run, has done so then. Writes ``results.json``, ``table.md`` and
``chart.png``. All get the same number of threads.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from tqdm import tqdm
from workloads import WORKLOADS

HERE = Path(__file__).parent
ROUNDS = 5
SECONDS = 0.25  # time of a round
WARM = 1.0  # seconds of calls before the first round
PAUSE = 0.02  # seconds between two looks whether a process is at rest
LONGEST_REST = 0.5
THREAD_FLAGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


class Worker:
    """A backend's process."""

    def __init__(self, label: str, backend: str, device: str, python: str) -> None:
        self.label, self.backend = label, backend
        threads = str(len(os.sched_getaffinity(0)))
        environment = {**os.environ, **dict.fromkeys(THREAD_FLAGS, threads), "PYTENSOR_FLAGS": "floatX=float32"}
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(HERE / "worker.py"), backend, device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def request(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"failed": "the process ended"}

    def rest(self) -> None:
        """Wait until its threads sleep: OpenBLAS's look for work for 0.1 s after a product, and slow others down."""
        before, end = self._busy(), time.monotonic() + LONGEST_REST
        while time.monotonic() < end:
            time.sleep(PAUSE)
            now = self._busy()
            if now - before < PAUSE / 10:
                return
            before = now

    def _busy(self) -> float:
        """Return the seconds that its threads have run; where the system has no such counter, the time."""
        files = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        times = [int(file.read_text().split()[0]) for file in files]
        return sum(times) / 1e9 if times else time.monotonic()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def measure(name: str, workers: list[Worker], scale: float) -> dict[str, Any]:
    """Return the report of each backend, with the median and the best of all its calls in seconds."""
    found = {w.label: w.request(do="prepare", name=name, scale=scale) for w in workers}
    ready = [w for w in workers if "failed" not in found[w.label]]
    for w in ready:
        found[w.label]["warm_up"] = w.request(do="warm_up", seconds=WARM, calls=1)
    times: dict[str, list[float]] = {w.label: [] for w in ready}
    for turn in range(ROUNDS):
        first = turn % max(1, len(ready))  # after others each time: a machine that was just busy may be slower
        for w in (ready[first:] + ready[:first])[:: -1 if turn % 2 else 1]:
            times[w.label] += w.request(do="time", seconds=SECONDS).get("times", [])
            w.rest()
    for w in workers:
        w.request(do="release")
    for label, samples in times.items():
        found[label] |= {"median": median(samples), "best": min(samples), "calls": len(samples)}
    return found


def table(results: dict[str, dict[str, Any]], labels: list[str]) -> str:
    """Return the medians in ms, and how much faster the first backend is than the best other one of PyTensor."""
    head = ["workload", *labels, "GB/s", "GFLOP/s", *(f"against {x}" for x in labels[1:])]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, found in results.items():
        first = found[labels[0]]
        cells = [f"{1e3 * found[x]['median']:.3g}" if "median" in found[x] else "-" for x in labels]
        seconds = first.get("median")
        cells.append(f"{first['bytes'] / seconds / 1e9:.3g}" if seconds else "-")
        cells.append(f"{first['flops'] / seconds / 1e9:.3g}" if seconds and first["flops"] else "")
        cells += [f"{found[x]['median'] / seconds:.2f}" if seconds and "median" in found[x] else "" for x in labels[1:]]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines) + "\n"


def summary(results: dict[str, dict[str, Any]], labels: list[str]) -> str:
    """Return the geometric mean of the first backend's lead over each other one."""
    lines = []
    for other in labels[1:]:
        pairs = [f for f in results.values() if "median" in f[labels[0]] and "median" in f[other]]
        if pairs:
            lead = geometric_mean([f[other]["median"] / f[labels[0]]["median"] for f in pairs])
            lines.append(f"{labels[0]} against {other}: {lead:.2f} times as fast (geometric mean of {len(pairs)})")
    return "\n".join(lines) + "\n"


def chart(results: dict[str, dict[str, Any]], labels: list[str], path: Path) -> None:
    """Draw the time of each backend relative to the first."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [n for n, f in results.items() if "median" in f[labels[0]]]
    figure, axes = plt.subplots(figsize=(9, 1 + 0.45 * len(names)), layout="constrained")
    height = 0.8 / len(labels)
    for k, label in enumerate(labels):
        ratio = [results[n][label].get("median", float("nan")) / results[n][labels[0]]["median"] for n in names]
        axes.barh([i + k * height for i in range(len(names))], ratio, height, label=label)
    axes.set_yticks([i + 0.4 for i in range(len(names))], names)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel(f"time relative to {labels[0]} (longer is slower)")
    axes.invert_yaxis()
    axes.legend()
    figure.savefig(path, dpi=120)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder of what is written")
    parser.add_argument("--only", default="", help="workloads whose name or family has this in it")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the workloads, relative")
    parser.add_argument("--device", action="append", help="OpenCL devices; the others are compared to the first one")
    parser.add_argument("--auto", action="append", help="OpenCL devices with NumPy arrays in and out, as in a script")
    parser.add_argument(
        "--backend",
        action="append",
        help="numpy, numba, c or jax; NAME=PYTHON for another interpreter; opencl:pocl=PYTHON for another version",
    )
    return parser.parse_args()


def start(options: argparse.Namespace) -> list[Worker]:
    """Start a process for each requested backend."""
    devices = options.device or ([] if options.auto else ["opencl"])
    workers = [Worker(f"auto {d}", "auto", d, sys.executable) for d in options.auto or ()]
    workers += [Worker(d, "opencl", d, sys.executable) for d in devices]
    for text in options.backend or ["numba", "c", "numpy"]:
        name, _, python = text.partition("=")
        backend, device = ("opencl", name) if name.startswith("opencl") else (name, "")
        label = f"{name} of {python}" if device else name
        workers.append(Worker(label, backend, device, python or sys.executable))
    return workers


def main() -> None:
    """Measure, and write what was found."""
    options = arguments()
    workers = start(options)
    labels = [w.label for w in workers]
    chosen = [w for w in WORKLOADS if options.only in f"{w.family} {w.name}"]
    results = {}
    for workload in tqdm(chosen, unit="workload"):
        results[workload.name] = measure(workload.name, workers, options.scale)
        for label, answer in results[workload.name].items():
            if "failed" in answer:
                tqdm.write(f"{workload.name} on {label}: {answer['failed']}")
        options.out.mkdir(parents=True, exist_ok=True)
        about = {"date": str(date.today()), "machine": platform.processor(), "cores": len(os.sched_getaffinity(0))}
        (options.out / "results.json").write_text(json.dumps({**about, "results": results}, indent=1))
    for worker in workers:
        worker.close()
    text = table(results, labels) + "\n" + summary(results, labels)
    (options.out / "table.md").write_text(text)
    chart(results, labels, options.out / "chart.png")
    print(text)


if __name__ == "__main__":
    main()
