"""Measure what the figures of docs/benchmarks.md show, and draw them.

usage: python benchmarks/figures.py [--device opencl:pocl] [--jax-python PATH] [--quick] [--only workloads]
       python benchmarks/figures.py --draw

Takes about 15 minutes on an idle machine; ``--quick`` takes a minute or two and is for trying it. ``--only`` measures
one kind again, and keeps the others of the file. Writes
``docs/results/figures.json``, which says on which machine, with which drivers and versions, and when it was made. From
this file alone ``--draw`` makes ``docs/images/ratios.svg``, ``sizes.svg`` and ``chains.svg``, and the summary
``docs/results/figures.md``.

Three kinds of measurements, each backend in a process of its own, all by turns, every result checked against float64:
all workloads of workloads.py with placement ``auto`` against PyTensor's NUMBA and C backends and JAX, after so many
seconds of calls that ``auto`` has tried each backend, which it compiles late on purpose; some of them over
seven decades of size with all calls on the device; effective draws per second of samplers. Those that are not installed
are left out.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import figure_plots
from run import Worker
from sweep import SWEEPS, sizes
from tqdm import tqdm
from workloads import WORKLOADS

ROOT = Path(__file__).parents[1]
PACKAGES = ["pytensor-cl", "pytensor", "numpy", "numba", "jax", "pyopencl", "pymc", "nutpie", "numpyro", "blackjax"]
MODELS = {"schools": "eight schools", "slopes": "varying slopes, 85 groups"}
LONGEST = 60.0
"""Seconds of a sampler, after which it is given up."""


class Effort(NamedTuple):
    """The amount that is measured.

    ``warm`` and ``seconds`` are the time of calls before and in each of ``rounds`` rounds, ``settle`` the time of calls
    before with placement ``auto``. ``largest`` is the number of elements up to which sizes go, ``every`` takes each so
    many workloads.
    """

    warm: float = 1.0
    settle: float = 8.0
    rounds: int = 4
    seconds: float = 0.12
    sweep_warm: float = 0.1
    sweep_rounds: int = 4
    sweep_seconds: float = 0.03
    largest: float = 1e7
    every: int = 1
    scale: float = 1.0
    models: tuple[str, ...] = tuple(MODELS)
    seeds: tuple[int, ...] = (1, 2)


QUICK = Effort(0.2, 0.2, 2, 0.05, 0.02, 1, 0.01, 1e4, 9, 0.02, ("schools",), (1,))


def machine() -> dict[str, Any]:
    """Return what the machine is."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    flags = set(facts.get("flags", "").split())
    vector = next((name for name in ("avx512f", "avx2", "avx") if name in flags), "")
    return {
        "processor": facts.get("model name", platform.processor()),
        "vector": vector,
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
    }


def device_facts(spec: str) -> dict[str, str]:
    """Return the name, the driver and the version of a device."""
    import pytensor_cl

    found = next(d for d in pytensor_cl.devices() if d.stable_spec.startswith(spec) or d.spec.startswith(spec))
    return {"spec": spec, "name": found.info.name, "platform": found.info.platform, "version": found.info.version}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def by_turns(
    name: str, scale: float, workers: list[Worker], warm: float, rounds: int, seconds: float, settle: float = 0.0
) -> dict[str, float]:
    """Return the time of the fastest call of each backend in seconds; those that fail are missing."""
    times: dict[str, list[float]] = {}
    for worker in workers:
        answer = worker.request(do="prepare", name=name, scale=scale)
        if "failed" in answer:
            tqdm.write(f"{name}, scale {scale:g}, {worker.label}: {answer['failed']}")
            continue
        worker.request(do="warm_up", seconds=max(warm, settle) if worker.backend == "auto" else warm, calls=2)
        times[worker.label] = []
    ready = [worker for worker in workers if worker.label in times]
    for turn in range(rounds):
        for worker in ready[:: -1 if turn % 2 else 1]:
            times[worker.label] += worker.request(do="time", seconds=seconds).get("times", [])
            worker.rest()
    for worker in workers:
        worker.request(do="release")
    return {label: min(samples) for label, samples in times.items() if samples}


def workers_of(labels: Iterable[tuple[str, str, str]], python: str) -> list[Worker]:
    """Start a process for each label, backend and device."""
    return [Worker(label, name, device, python if name == "jax" else sys.executable) for label, name, device in labels]


def measure_workloads(device: str, python: str, effort: Effort) -> dict[str, dict[str, float]]:
    """Return the time of each workload on each backend."""
    peers = [("NUMBA", "numba", ""), ("C", "c", ""), ("JAX", "jax", "")]
    workers = workers_of([("auto", "auto", device), *peers], python)
    found = {}
    for workload in tqdm(WORKLOADS[:: effort.every], unit="workload"):
        found[workload.name] = by_turns(
            workload.name, effort.scale, workers, effort.warm, effort.rounds, effort.seconds, effort.settle
        )
    for worker in workers:
        worker.close()
    return found


def measure_sizes(device: str, python: str, effort: Effort) -> dict[str, dict[str, dict[str, float]]]:
    """Return the best time of a call for each workload, size and backend."""
    peers = [("NUMBA", "numba", ""), ("C", "c", ""), ("JAX", "jax", "")]
    workers = workers_of([("device", "device", device), *peers], python)
    found: dict[str, dict[str, dict[str, float]]] = {sweep.title: {} for sweep in SWEEPS}
    points = sorted((n, k) for k, sweep in enumerate(SWEEPS) for n in sizes(sweep, effort.largest))
    for elements, k in tqdm(points, unit="size"):
        found[SWEEPS[k].title][f"{elements:g}"] = by_turns(
            SWEEPS[k].workload,
            elements / SWEEPS[k].elements,
            workers,
            effort.sweep_warm,
            effort.sweep_rounds,
            effort.sweep_seconds,
        )
    for worker in workers:
        worker.close()
    return found


def _samplers(python: str) -> list[tuple[str, str, str, str]]:
    """Return the label, the Python, the program and the sampler of each that is installed."""
    has_jax = find_spec("blackjax") or python != sys.executable
    found = [
        ("pytensor-cl, ChEES", sys.executable, "pymc", "chees"),
        ("pytensor-cl, NUTS", sys.executable, "pymc", "nuts"),
    ]
    if find_spec("nutpie"):
        found.append(("nutpie", sys.executable, "nutpie", "nuts"))
    if has_jax:
        found.append(("blackjax, ChEES", python, "jax", "chees"))
        found.append(("numpyro, NUTS", python, "numpyro", "nuts"))
    return found


def sample(python: str, kind: str, sampler: str, model: str, seed: int, file: Path) -> dict[str, float]:
    """Run benchmarks/chains.py for one sampler, and return its figures; none if it takes too long.

    ``process`` are the seconds of a program that compiles and samples once: those of the samplers on JAX compile by
    sampling a first time, which is subtracted.
    """
    import numpy as np

    from pytensor_cl.pymc.diagnostics import bulk_ess

    program = str(Path(__file__).with_name("chains.py"))
    command = [python, "-W", "ignore", program, "--child", kind, "--sampler", sampler, "--model", model]
    command += ["--seed", str(seed), "--file", str(file), "--chains", "256", "--tune", "100", "--draws", "100"]
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        tqdm.write(f"{model}, {kind} {sampler}: given up after {LONGEST:g} s")
        return {}
    process = time.perf_counter() - begin
    if done.returncode:
        tqdm.write(f"{model}, {kind} {sampler}: {done.stderr.splitlines()[-1]}")
        return {}
    figures = json.loads(done.stdout.splitlines()[-1])
    seconds = float(figures["seconds"])
    twice = seconds if kind in ("jax", "numpyro") else 0.0
    effective = float(np.min(bulk_ess(np.load(file))))
    return {"effective": effective, "seconds": seconds, "process": process - twice}


def measure_chains(device: str, python: str, effort: Effort) -> dict[str, dict[str, dict[str, float]]]:
    """Return effective draws, seconds of warm-up and draws, and seconds of the process, of each sampler and model."""
    import tempfile

    if not find_spec("pymc"):
        return {}
    os.environ["PYTENSOR_FLAGS"] = f"device={device},opencl__quiet=True"
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        runs = [(model, seed, run) for model in effort.models for seed in effort.seeds for run in _samplers(python)]
        every: dict[tuple[str, str], list[dict[str, float]]] = {}
        given_up: set[tuple[str, str]] = set()
        for model, seed, (label, interpreter, kind, sampler) in tqdm(runs, unit="run"):
            if (model, label) in given_up:
                continue
            figures = sample(interpreter, kind, sampler, model, seed, Path(folder) / "draws.npy")
            if figures:
                every.setdefault((model, label), []).append(figures)
            else:
                given_up.add((model, label))
    for (model, label), figures in every.items():
        merged = {name: sum(f[name] for f in figures) / len(figures) for name in figures[0]}
        found.setdefault(MODELS[model], {})[label] = merged
    return found


def rounded(value: Any) -> Any:
    """Return a value with four digits in its numbers."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="opencl:pocl", help="default: %(default)s")
    parser.add_argument("--jax-python", default=sys.executable, help="a Python with JAX, blackjax, optax and numpyro")
    parser.add_argument("--quick", action="store_true", help="small, few and short: to try it")
    parser.add_argument("--only", choices=["workloads", "sizes", "chains"], help="kind that is measured again")
    parser.add_argument("--draw", action="store_true", help="only draw, from the file that is there")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of results/ and images/")
    return parser.parse_args()


def main() -> None:
    """Measure and draw."""
    options = arguments()
    path = options.out / "results" / "figures.json"
    if not options.draw:
        effort, begin = QUICK if options.quick else Effort(), time.perf_counter()
        load = os.getloadavg()[0]
        measures = {"workloads": measure_workloads, "sizes": measure_sizes, "chains": measure_chains}
        wanted = [options.only] if options.only else list(measures)
        results = {
            **(json.loads(path.read_text()) if options.only else {}),
            "date": str(date.today()),
            "machine": machine(),
            "device": device_facts(options.device),
            "versions": versions(),
            "is_quick": options.quick,
            **{kind: measures[kind](options.device, options.jax_python, effort) for kind in wanted},
            "load_before": load,
            "seconds": round(time.perf_counter() - begin),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rounded(results), indent=1) + "\n")
        print(f"{path}, {results['seconds']} s")
    for file in figure_plots.write(json.loads(path.read_text()), options.out):
        print(file)


if __name__ == "__main__":
    main()
