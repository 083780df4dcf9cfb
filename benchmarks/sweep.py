"""Time against size, over decades: from which size each backend is the fastest, and its throughput.

usage: python benchmarks/sweep.py [--out DIR] [--device opencl:pocl ...] [--backend numba c jax=PYTHON ...]
                                  [--only TEXT] [--largest 1e8]
       python benchmarks/sweep.py --all [--auto opencl:pocl ...] [--backend numba c] [--warm 1] [--budget 3600]
                                  [--out DIR] [--only TEXT] [--smallest 1] [--largest 1e8]

Each backend is a process of its own and all take turns, as in run.py; every result is checked against float64 before
it is timed. Device arrays stay on the device. Writes ``sweep.json`` and ``sweep.png``. Takes less than eight minutes;
sizes for which there is not enough memory or time are left out.

With ``--all`` it runs all workloads, with NumPy arrays in and out and placement ``auto``, and writes how their times
compare to the best of the other backends (``ratios.json``, ``ratios.md``). A run can be stopped and started again.
"""

import argparse
import json
import os
import platform
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import ratios
from run import Worker
from tqdm import tqdm

ROUNDS = 3
SECONDS = 0.04  # time of a round
BUDGET = 420.0  # seconds; sizes that are left then are not measured


class Sweep(NamedTuple):
    """A workload of workloads.py at many sizes."""

    workload: str  # its name
    title: str
    elements: float  # size of its first input, at scale 1
    # smallest, largest: elements
    smallest: float = 1
    largest: float = 1e8


SWEEPS = (
    Sweep("add", "x + y", 16e6),
    Sweep("exp", "exp(x)", 16e6),
    Sweep("sum of all", "x.sum()", 16e6),
    Sweep("softmax", "softmax of rows of 1000", 4096e3, smallest=1e3),
    Sweep("gemm 1024", "product of square matrices", 1024**2, largest=1e7),
)


def sizes(sweep: Sweep, largest: float) -> list[float]:
    """Return a size for each decade."""
    return [10.0**k for k in range(9) if sweep.smallest <= 10.0**k <= min(sweep.largest, largest)]


def measure(sweep: Sweep, elements: float, workers: list[Worker]) -> dict[str, float]:
    """Return the best time of each backend in seconds; those that fail are missing."""
    best = {}
    for worker in workers:
        answer = worker.request(do="prepare", name=sweep.workload, scale=elements / sweep.elements)
        if "failed" in answer:
            tqdm.write(f"{sweep.title}, {elements:g} elements, {worker.label}: {answer['failed']}")
        else:
            best[worker.label] = float("inf")
    for _ in range(ROUNDS):
        for worker in (w for w in workers if w.label in best):
            times = worker.request(do="time", seconds=SECONDS).get("times", [])
            best[worker.label] = min([best[worker.label], *times])
            worker.rest()
    for worker in workers:
        worker.request(do="release")
    return best


def draw(results: dict[str, dict[str, dict[str, float]]], labels: list[str], path: Path) -> None:
    """Draw one plot for each workload, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")
    for plot, (title, by_size) in zip(axes.flat, results.items(), strict=False):
        for label in labels:
            points = [(float(n), found[label]) for n, found in by_size.items() if label in found]
            if points:
                plot.loglog(*zip(*points, strict=True), marker="o", markersize=4, label=label)
        plot.set_title(title)
        plot.set_xlabel("elements")
        plot.set_ylabel("seconds")
        plot.grid(alpha=0.3)
    for plot in axes.flat[len(results) :]:
        plot.axis("off")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="lower right", bbox_to_anchor=(0.95, 0.2))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder of what is written")
    parser.add_argument("--only", default="", help="workloads whose title has this in it")
    parser.add_argument("--smallest", type=float, default=1, help="elements at least, with --all")
    parser.add_argument("--largest", type=float, default=1e8, help="elements at most")
    parser.add_argument("--all", action="store_true", help="all workloads, auto against the best of the backends")
    parser.add_argument("--auto", action="append", help="OpenCL devices, with --all (default: opencl)")
    parser.add_argument("--warm", type=float, default=1.0, help="seconds of calls that are not timed, with --all")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds in all, with --all")
    parser.add_argument("--device", action="append", help="OpenCL devices (default: opencl:pocl and opencl:intel)")
    parser.add_argument(
        "--backend", action="append", help="numba, c, numpy or jax, or NAME=PYTHON for another interpreter"
    )
    return parser.parse_args()


def start(options: argparse.Namespace) -> list[Worker]:
    """Start a process for each backend."""
    if options.all:
        workers = [Worker(f"auto {d}", "auto", d, sys.executable) for d in options.auto or ["opencl"]]
    else:
        workers = [Worker(d, "opencl", d, sys.executable) for d in options.device or ["opencl:pocl", "opencl:intel"]]
    for text in options.backend or ["numba", "c"]:
        name, _, python = text.partition("=")
        workers.append(Worker(name, name, "", python or sys.executable))
    return workers


def save(options: argparse.Namespace, results: dict[str, Any], labels: list[str]) -> None:
    """Write what was measured so far."""
    options.out.mkdir(parents=True, exist_ok=True)
    about = {"date": str(date.today()), "machine": platform.processor(), "cores": len(os.sched_getaffinity(0))}
    text = json.dumps({**about, "unit": "seconds, best call", "backends": labels, "results": results}, indent=1)
    (options.out / "sweep.json").write_text(text)
    draw(results, labels, options.out / "sweep.png")


def main() -> None:
    """Measure, and write what was found: all small sizes first, so that the large ones can be left out."""
    options = arguments()
    workers = start(options)
    if options.all:
        ratios.run(options, workers)
        for worker in workers:
            worker.close()
        return
    labels = [w.label for w in workers]
    chosen = [s for s in SWEEPS if options.only in s.title]
    points = sorted((n, k) for k, s in enumerate(chosen) for n in sizes(s, options.largest))
    results: dict[str, dict[str, dict[str, float]]] = {s.title: {} for s in chosen}
    end = time.monotonic() + BUDGET
    for elements, k in tqdm(points, unit="size"):
        missing = "time" if time.monotonic() > end else "" if ratios.fits(elements, len(workers)) else "memory"
        if missing:
            tqdm.write(f"{chosen[k].title}, {elements:g} elements: not enough {missing}")
            continue
        results[chosen[k].title][f"{elements:g}"] = measure(chosen[k], elements, workers)
    for worker in workers:
        worker.close()
    save(options, results, labels)
    print(f"wrote {options.out / 'sweep.json'} and {options.out / 'sweep.png'}")


if __name__ == "__main__":
    main()
