"""Collect what `ci/gpu.sh` has found on a GPU into one file, and write the tables of `docs/gpu.md` from it.

usage: python tools/gpu_results.py collect FOLDER OUT.json
       python tools/gpu_results.py tables [--check] [PAGE ...]

A page marks a table with the file that has its numbers, relative to the page:

    <!-- table workloads of results/nvidia-h200.json: begin -->
    <!-- table: end -->

The tables are `summary`, `workloads`, `arrays`, `merged`, `tiles`, `commands`, `bandwidth` and `features`. With
``--check`` nothing is written; the exit status is 1 if a page does not have the tables of its files.
"""

import argparse
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "gpu.md"]
END = "<!-- table: end -->"
TABLE = re.compile(rf"(<!-- table (\w+) of (\S+): begin -->\n).*?(?={END})", re.DOTALL)
BACKENDS = {"opencl": "this package", "cupy": "CuPy", "jax": "JAX", "torch": "PyTorch"}
PEERS = ("cupy", "jax", "torch")
DIGITS = 4  # significant digits of what is kept


# --- one file of many ---


def _rounded(value: Any) -> Any:
    """Return a value with fewer digits in its floating-point numbers."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _read(path: Path) -> Any:
    """Return the content of a file; empty if a step has not made it, or was ended while it wrote."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _kernels(profile: str) -> list[str]:
    """Return the rows of the device nodes of a profile."""
    rows = profile.partition("device node")[2].splitlines()
    return [" ".join(row.split()) for row in rows[2:] if row.strip()]


def _workload(entry: dict[str, Any]) -> dict[str, Any]:
    keys = ("row_us", "single_us", "compile", "error", "right", "failed")
    kept = {name: {key: found[key] for key in keys if key in found} for name, found in entry["backends"].items()}
    missing = ("NotImplementedError", "KeyError")
    backends = {n: found for n, found in kept.items() if not found.get("failed", "").startswith(missing)}
    others = {key: entry[key] for key in ("family", "bytes", "flops", "shapes") if key in entry}
    return {**others, "kernels": _kernels(str(entry.get("profile", ""))), "backends": backends}


def _tests(path: Path) -> dict[str, Any]:
    """Return the counts of a report of pytest, and the names of what failed."""
    try:
        suite = ET.parse(path).getroot().find("testsuite")
    except (OSError, ET.ParseError):
        return {}
    if suite is None:
        return {}
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    counts = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    return {**counts, "failed": failed}


def collect(folder: Path) -> dict[str, Any]:
    """Return what the files of a run say, without paths of the machine."""
    bench, probe, doctor = (_read(folder / f"{name}.json") for name in ("bench", "probe", "doctor"))
    device = bench.get("device", {})
    checks = [section for section in doctor.get("sections", []) if section["title"].startswith("opencl")]
    found = {
        "card": device.get("name") or probe.get("device", ""),
        "driver": device.get("driver") or probe.get("driver", ""),
        "date": date.today().isoformat(),
        "commit": next(iter(_lines(folder / "commit.txt")), "")[:7],
        "versions": bench.get("versions", {}),
        "scale": bench.get("scale"),
        "steps": dict(line.split(" ", 1) for line in _lines(folder / "steps.txt")),
        "checks": [f"{f['status']} {f['subject']}: {f['text']}" for part in checks for f in part["findings"]],
        "probe": {key: value for key, value in probe.items() if key not in ("device", "driver")},
        "features": {name: result["works"] for name, result in _read(folder / "features.json").items()},
        "workloads": {name: _workload(entry) for name, entry in bench.get("results", {}).items()},
        "chains": _lines(folder / "chains.txt"),
        "examples": [line for line in _lines(folder / "examples.txt") if line.startswith("---")],
        "variants": _read(folder / "variants.json"),
        "arrays": _read(folder / "arrays.json"),
        "launches": _read(folder / "launches.json"),
        "tests": _tests(folder / "tests.xml"),
    }
    return {key: value for key, value in _rounded(found).items() if value}


# --- tables ---


def _ratios(results: dict[str, Any], peer: str) -> Iterator[float]:
    """Yield how many times as fast as a peer each workload is."""
    for workload in results["workloads"].values():
        times = [workload["backends"].get(name, {}).get("row_us") for name in (peer, "opencl")]
        if all(times):
            yield times[0] / times[1]


def summary(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each peer."""
    yield "beside", "workloads", "times as fast, median", "least", "most", "faster in"
    for peer in PEERS:
        found = sorted(_ratios(results, peer))
        if found:
            ends = (f"{median(found):.2f}", f"{found[0]:.2f}", f"{found[-1]:.3g}")
            yield BACKENDS[peer], str(len(found)), *ends, str(sum(ratio > 1 for ratio in found))


def _shape(shape: list[int]) -> str:
    return " x ".join(f"{n:,}" for n in shape) if shape else "a number"


def _shapes(shapes: list[list[int]]) -> str:
    texts = [_shape(shape) for shape in shapes]
    return "; ".join(texts[:2]) + (" ..." if len(texts) > 2 else "")


def _rate(workload: dict[str, Any], microseconds: float) -> str:
    if workload.get("flops"):
        return f"{workload['flops'] / microseconds / 1e6:.3g} TFLOP/s"
    rate = workload["bytes"] / microseconds / 1e3
    return f"{rate:,.0f} GB/s" if rate >= 1 else ""


def _cell(found: dict[str, Any]) -> str:
    if "row_us" not in found:
        return "failed" if "failed" in found else ""
    return f"{found['row_us']:,.0f}" + ("" if found.get("right", True) else " (wrong)")


def workloads(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each workload: microseconds of a call, and the ratio to the fastest peer."""
    yield "workload", "inputs", *BACKENDS.values(), "rate", "fastest peer / this package"
    for name, workload in results["workloads"].items():
        times = {backend: workload["backends"].get(backend, {}) for backend in BACKENDS}
        ours, peers = times["opencl"].get("row_us"), [times[p]["row_us"] for p in PEERS if "row_us" in times[p]]
        ends = (_rate(workload, ours) if ours else "", f"{min(peers) / ours:.2f}" if ours and peers else "")
        yield name, _shapes(workload.get("shapes", [])), *map(_cell, times.values()), *ends


def _time(microseconds: float) -> str:
    return f"{microseconds:,.0f} us" if microseconds >= 100 else f"{microseconds:.3g} us"


def commands(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield what commands, transfers and builds cost."""
    probe = results["probe"]
    yield "what", "time"
    for name, microseconds in probe.get("microseconds of commands", {}).items():
        yield name, _time(microseconds)
    for name, found in probe.get("transfers", {}).items():
        name = re.sub(r"\d+", lambda number: f"{int(number[0]):,}", name)
        yield f"transfer, {name}", f"{_time(found['up us'])} up, {_time(found['down us'])} down"
    for name, seconds in probe.get("seconds of builds", {}).items():
        yield f"build of {name}" if name[0].isdigit() else f"the same {name}", f"{seconds:.3g} s"


def bandwidth(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the bandwidth of copies, and the rate of arithmetic."""
    yield "what", "rate"
    best: dict[str, float] = {}
    for name, rate in results["probe"].get("bandwidth in GB/s", {}).items():
        kind = re.sub(r", \d+ groups a unit$", "", name)
        best[kind] = max(rate, best.get(kind, 0))
    for name, rate in best.items():
        yield name if name.startswith(("cl", "sum")) else f"copy by {name}", f"{rate:,.0f} GB/s"
    for name, rate in results["probe"].get("TFLOP/s of multiply-adds", {}).items():
        yield f"multiply-adds of {name}", f"{rate:.3g} TFLOP/s"


def arrays(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield microseconds of operations of arrays beside CuPy's."""
    yield "operation", "this package", "CuPy", "CuPy / this package"
    for name, found in results.get("arrays", {}).get("cases", {}).items():
        ours, theirs = found.get("ours"), found.get("CuPy")
        if ours and theirs:
            yield name.replace("*", r"\*"), _time(ours), _time(theirs), f"{theirs / ours:.2f}"


def merged(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield microseconds of calls with kernels launched one by one and merged, and what merging adds to the third."""
    yield "function", "one by one", "merged", "times as fast", "more for the third call"
    for name, found in results.get("launches", {}).items():
        if "failed" not in found:
            single, us = found["single_us"], found["merged_us"]
            _, second, third, *_ = found["merged_first_s"]  # seconds from the start until these calls have ended
            yield name, _time(single), _time(us), f"{single / us:.2f}", f"{third - second:.2g} s"


def tiles(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield for each size of products the time of the tile that was chosen, and the fastest."""
    yield "m x n x k", "chosen", "fastest", "the fastest tile"
    for name, found in results.get("variants", {}).get("tiles", {}).items():
        others = {tile: us for tile, us in found.items() if tile != "chosen"}
        best = min(others, key=others.__getitem__)
        yield name, _time(found["chosen"]), _time(others[best]), best


def features(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield which features work, and which do not."""
    yield "works", "does not"
    names = {works: ", ".join(n for n, w in results["features"].items() if w == works) for works in (True, False)}
    yield names[True], names[False]


TABLES: dict[str, Callable[[dict[str, Any]], Iterator[tuple[str, ...]]]] = {
    function.__name__: function
    for function in (summary, workloads, arrays, merged, tiles, commands, bandwidth, features)
}
LEFT = {
    "workload",
    "inputs",
    "beside",
    "what",
    "works",
    "does not",
    "operation",
    "function",
    "m x n x k",
    "the fastest tile",
}  # columns that are aligned to the left


def markdown(rows: Iterator[tuple[str, ...]]) -> str:
    """Return a table."""
    header, *body = rows
    lines = ["---" if column in LEFT else "---:" for column in header]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, tuple(lines), *body))


def refreshed(page: str, folder: Path) -> str:
    """Return a page with the tables of its files, whose names are relative to a folder."""

    def table(mark: re.Match[str]) -> str:
        return mark[1] + markdown(TABLES[mark[2]](json.loads((folder / mark[3]).read_text())))

    return TABLE.sub(table, page)


def main() -> int:
    """Collect, or write tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("collect")
    part.add_argument("folder", type=Path)
    part.add_argument("out", type=Path)
    part = parts.add_parser("tables")
    part.add_argument("--check", action="store_true")
    part.add_argument("pages", nargs="*", type=Path, default=PAGES)
    options = parser.parse_args()
    if options.part == "collect":
        options.out.write_text(json.dumps(collect(options.folder), indent=1) + "\n")
        return 0
    stale = []
    for page in options.pages:
        old = page.read_text()
        new = refreshed(old, page.parent)
        if new != old:
            stale.append(page.name)
        if not options.check:
            page.write_text(new)
    if options.check and stale:
        sys.stderr.write(f"not the tables of the files: {', '.join(stale)}\n")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
