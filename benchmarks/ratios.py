"""All workloads at all sizes: placement ``auto`` against the best of PyTensor's own backends.

What ``sweep.py --all`` runs. A function is compiled for each size, and called as in a script that warms up:
some calls and some time. Then all backends take turns, and their medians are compared. A run that is started again
with the same folder continues where it stopped.
"""

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from run import Worker
from tqdm import tqdm
from workloads import WORKLOADS, Workload

LIMIT = 1.1
"""Ratios above are marked."""
ROUNDS, SECONDS = 8, 0.05
LONG = 20.0  # seconds that the rounds of a point may take
SLOW = 3.0  # seconds of a call from which on larger sizes are left out
SAMPLE = 1 / 64  # scale at which a workload's inputs are made to count their elements
CALLS = 10  # before anything is timed
BYTES = 4
COPIES = 8  # arrays of a workload's size in a process while it is prepared

Found = dict[str, dict[str, Any]]  # the report of each backend


class Point(NamedTuple):
    """A workload at a size."""

    elements: float
    workload: Workload
    scale: float


def _sizes(workload: Workload, scale: float) -> np.ndarray:
    """Return the elements of all inputs and of the result."""
    arrays = workload.make(np.random.default_rng(0), scale)
    return np.array([np.size(a) for a in (*arrays, workload.numeric(np, *arrays))])


def points(workload: Workload, smallest: float, largest: float) -> list[Point]:
    """Return a point for each decade of the elements of the largest array that grows; one point if none does."""
    at_sample = _sizes(workload, SAMPLE)
    growth = (_sizes(workload, 2 * SAMPLE) - at_sample) / SAMPLE
    which = int(growth.argmax())
    if not growth[which]:
        return [Point(float(at_sample.max()), workload, 1.0)]
    least = float(_sizes(workload, 1e-12)[which])
    sizes = [max(10.0**k, least) for k in range(9) if smallest <= 10.0**k <= largest]
    return [Point(n, workload, n / growth[which]) for n in dict.fromkeys(sizes) if n <= largest]


def all_points(only: str, smallest: float, largest: float) -> list[Point]:
    """Return the points of all workloads, small ones first."""
    chosen = [w for w in WORKLOADS if only in f"{w.family} {w.name}"]
    return sorted((p for w in chosen for p in points(w, smallest, largest)), key=lambda p: p.elements)


def _available() -> float:
    """Return the bytes of free memory, as far as the system reports them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 8e9
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


def fits(elements: float, workers: int) -> bool:
    """Return whether all processes can hold their inputs, and one of them all that it needs to check a result."""
    return BYTES * elements * (3 * workers + 2 * COPIES) < 0.8 * _available()


def measure(point: Point, workers: list[Worker], warm: float) -> Found:
    """Return the report of each backend, and the median of its calls in seconds in its fastest round.

    Other programs, and the processor's changes of speed, make all calls of a round slower; all backends have a round
    without them if there are enough.
    """
    name, found = point.workload.name, {}
    for worker in workers:
        found[worker.label] = worker.request(
            do="prepare", name=name, scale=point.scale, recompile=_chooses(worker.label)
        )
    ready = [w for w in workers if "failed" not in found[w.label]]
    for worker in ready:
        found[worker.label] |= worker.request(do="warm_up", seconds=warm, calls=CALLS)
    times = _rounds(ready)
    for worker in ready:
        found[worker.label] |= worker.request(do="check")
        found[worker.label]["median"] = min(times[worker.label])
    for worker in workers:
        worker.request(do="release")
    return found


def _rounds(workers: list[Worker]) -> dict[str, list[float]]:
    """Return the medians of rounds."""
    times: dict[str, list[float]] = {w.label: [] for w in workers}
    end = time.monotonic() + LONG
    for number in range(ROUNDS):
        if number and time.monotonic() > end:
            break
        for worker in workers:
            times[worker.label].append(median(worker.request(do="time", seconds=SECONDS, least=1)["times"]))
            worker.rest()
    return times


def _chooses(label: str) -> bool:
    return label.startswith("auto")


def ratio(found: Found, label: str) -> float:
    """Return a backend's median relative to the best of those that choose nothing; nan if there is none."""
    others = [f["median"] for other, f in found.items() if not _chooses(other) and "median" in f]
    ours = found.get(label, {}).get("median")
    return ours / min(others) if ours and others else float("nan")


def table(results: dict[str, dict[str, Found]], label: str) -> str:
    """Return the ratios, a row for each workload and a column for each decade; those above the limit are bold."""
    decades = sorted({len(f"{float(n):.0f}") - 1 for sizes in results.values() for n in sizes})
    lines = [f"| {label} | " + " | ".join(f"1e{k}" for k in decades) + " |", "|" + "---|" * (len(decades) + 1)]
    for name, sizes in results.items():
        cells = dict.fromkeys(decades, "")
        for n, found in sizes.items():
            value = ratio(found, label)
            cells[len(f"{float(n):.0f}") - 1] = f"**{value:.2f}**" if value > LIMIT else f"{value:.2f}"
        lines.append("| " + " | ".join([name, *cells.values()]) + " |")
    return "\n".join(lines) + "\n"


def excesses(results: dict[str, dict[str, Found]], label: str) -> str:
    """Return a table of the points above the limit, the worst first, with what was chosen and what others took."""
    rows = []
    for name, sizes in results.items():
        for n, found in sizes.items():
            value = ratio(found, label)
            if value > LIMIT:
                times = ", ".join(f"{k} {1e6 * f['median']:.4g}" for k, f in found.items() if "median" in f)
                ours = found[label]
                when = f"{ours['calls']} calls, {ours['seconds']:.2g} s"
                rows.append((value, f"| {name} | {float(n):g} | {value:.2f} | {ours['backend']} | {when} | {times} |"))
    if not rows:
        return f"{label}: no point above {LIMIT}\n"
    head = ["| workload | elements | ratio | backend | chosen after | medians in us |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *(text for _, text in sorted(rows, reverse=True))]) + "\n"


def late(results: dict[str, dict[str, Found]], label: str) -> str:
    """Return how much longer the first calls took than those of the best backend; compiling is part of it."""
    lines = [
        "| workload | elements | backend | chosen after | first | 10 | 100 | 1000 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, sizes in results.items():
        for n, found in sizes.items():
            ours = found.get(label, {})
            if "median" not in ours:
                continue
            best = min(f["median"] for f in found.values() if "median" in f)
            first = {int(k): v / (int(k) * best) for k, v in ours["first"].items()}
            cells = [f"{first[k]:.2g}" if k in first else "" for k in (1, 10, 100, 1000)]
            when = f"{ours['calls']} calls, {ours['seconds']:.2g} s"
            lines.append(f"| {name} | {float(n):g} | {ours['backend']} | {when} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def report(results: dict[str, dict[str, Found]], labels: list[str]) -> str:
    """Return all tables."""
    chosen = [x for x in labels if _chooses(x)]
    return "\n".join(make(results, label) for make in (table, excesses, late) for label in chosen)


def _load(path: Path, labels: list[str]) -> dict[str, dict[str, Found]]:
    """Return what an earlier run of the same backends found."""
    if not path.exists():
        return {}
    earlier = json.loads(path.read_text())
    return earlier["results"] if earlier["backends"] == labels else {}


def _missing(point: Point, smaller: dict[str, Found], workers: int, end: float) -> str:
    """Return of what there is not enough for a point."""
    slowest = max((f.get("median", 0.0) for found in smaller.values() for f in found.values()), default=0.0)
    if time.monotonic() > end or slowest > SLOW:
        return "time"
    return "" if fits(point.elements, workers) else "memory"


def run(options: argparse.Namespace, workers: list[Worker]) -> None:
    """Measure what is missing, and write what was found."""
    labels = [w.label for w in workers]
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "ratios.json"
    results = _load(path, labels)
    about = {"cores": len(os.sched_getaffinity(0)), "unit": "seconds", "backends": labels}
    end = time.monotonic() + options.budget
    for point in tqdm(all_points(options.only, options.smallest, options.largest), unit="size"):
        name, size = point.workload.name, f"{point.elements:g}"
        if size in results.get(name, {}):
            continue
        missing = _missing(point, results.get(name, {}), len(workers), end)
        if missing:
            tqdm.write(f"{name}, {size} elements: not enough {missing}")
            continue
        results.setdefault(name, {})[size] = measure(point, workers, options.warm)
        for label, answer in results[name][size].items():
            if "failed" in answer:
                tqdm.write(f"{name}, {size} elements, {label}: {answer['failed']}")
        path.write_text(json.dumps({**about, "results": results}, indent=1))
    (options.out / "ratios.md").write_text(text := report(results, labels))
    print(text)
