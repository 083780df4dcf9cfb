"""Run the graphs of tests/probes on every OpenCL driver there is, and write the table of docs/drivers.md.

    python tools/driver_probes.py [--only NAME] [--match TEXT] [--write]

With ``--only``, ``--write`` keeps the rows of the other drivers.

Each graph is made of single precision (float64 becomes float32, complex128 becomes complex64), compiled with
``opencl__placement=device``, run, and compared with PyTensor's Python Ops. The graphs run in parts, each in a process
with one driver only; if a driver ends the process, or hangs, the graphs that it had begun run in a process each.
The exit code is 1 if a graph is not right on a driver.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, singledispatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pytensor  # noqa: E402
from pytensor.graph.traversal import ancestors  # noqa: E402

from pytensor_cl.runtime.registry import define_contexts  # noqa: E402
from tests.probes.census import NUMERIC, group_of  # noqa: E402
from tests.probes.probe import Probe  # noqa: E402
from tests.probes.survey import BATCH, DEVICE, PROBES, run_all  # noqa: E402
from tools.driver_matrix import PAGE, Driver, drivers, environment_of, name_and_version, replaced  # noqa: E402

BEGIN, END = "<!-- graphs: begin -->", "<!-- graphs: end -->"
PART = 12 * BATCH
"""Graphs for one process."""
PROCESS_TIMEOUT = 900.0
"""Seconds after which a process hangs."""
SINGLE = {"float64": "float32", "complex128": "complex64"}
RIGHT, WRONG, RAISED, CRASHED = "right", "wrong", "raised", "crashed"


@dataclass(frozen=True)
class Result:
    """Outcome of a graph on a driver."""

    number: int  # index in `PROBES`
    state: str  # `RIGHT`, `WRONG`, `RAISED` or `CRASHED`
    is_on_device: bool  # whether the device computed it
    text: str = ""  # error, or reason for the host


@singledispatch
def in_single(value: Any) -> Any:
    """Return an argument of a probe in single precision."""
    dtype = SINGLE.get(str(getattr(value, "dtype", "")))
    return value.astype(dtype) if dtype else value


@in_single.register
def _(value: list) -> list:
    return [in_single(item) for item in value]


@in_single.register
def _(value: float) -> Any:
    return np.float32(value)


def single_probe(number: int) -> Probe:
    """Return a probe with its arguments in single precision."""
    probe = PROBES[number]
    return replace(probe, values=tuple(in_single(value) for value in probe.values))


def _dtypes(probe: Probe) -> set[str]:
    _, outputs = probe.graph()
    return {getattr(variable.type, "dtype", "") for variable in ancestors(outputs)}


@cache
def numbers_of_numeric() -> frozenset[int]:
    """Return which probes are of numeric Ops, and have no double precision in their graphs."""
    numeric = [k for k, probe in enumerate(PROBES) if group_of(probe.op)[2] == NUMERIC]
    with pytensor.config.change_flags(floatX="float32"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return frozenset(k for k in numeric if not _dtypes(single_probe(k)) & SINGLE.keys())


def run_here(numbers: Sequence[int], driver: str, path: Path) -> None:
    """Run probes on the device of a driver in this process; write a line before and after each few of them."""
    warnings.simplefilter("ignore")
    define_contexts({driver: f"opencl:{driver}"}, driver)
    with path.open("w") as file, pytensor.config.change_flags(floatX="float32"):
        for start in range(0, len(numbers), BATCH):
            batch = numbers[start : start + BATCH]
            print(json.dumps(["begin", *batch]), file=file, flush=True)
            for number, outcome in zip(batch, run_all([single_probe(k) for k in batch]), strict=True):
                state = RIGHT if not outcome.fault else RAISED if outcome.has_raised else WRONG
                line = number, state, outcome.place == DEVICE, outcome.fault or outcome.reason
                print(json.dumps(["end", *line]), file=file, flush=True)


def _read(path: Path) -> tuple[list[Result], list[int]]:
    """Return the results of a process, and the probes that it had begun when it ended."""
    results: list[Result] = []
    begun: list[int] = []
    for line in path.read_text().splitlines() if path.is_file() else ():
        kind, *rest = json.loads(line)
        if kind == "begin":
            begun = rest
        else:
            results.append(Result(*rest))
    done = {result.number for result in results}
    return results, [number for number in begun if number not in done]


def _in_a_process(numbers: Sequence[int], driver: str, environment: dict[str, str], log: Path) -> tuple[Path, str]:
    """Run probes in a process of their own; return where its lines are, and how it ended if not well."""
    path = log.with_suffix(".lines")
    path.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--run", driver, str(path), *map(str, numbers)]
    with log.open("a") as out:
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=out, stderr=out, timeout=PROCESS_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            return path, f"the process hung for {PROCESS_TIMEOUT:.0f} s"
    return path, f"the process ended with {done.returncode}" if done.returncode else ""


def run_on(driver: str, numbers: Sequence[int], environment: dict[str, str], log: Path) -> Iterator[Result]:
    """Run probes on a driver, and yield what became of them."""
    parts = [list(numbers[start : start + PART]) for start in range(0, len(numbers), PART)]
    while parts:
        part = parts.pop()
        path, problem = _in_a_process(part, driver, environment, log)
        results, begun = _read(path)
        yield from results
        left = [number for number in part if number not in {result.number for result in results}]
        if not left:
            continue
        if len(part) == 1:
            yield Result(part[0], CRASHED, False, problem)
            continue
        alone = begun or left
        parts += [[number] for number in alone]
        rest = [number for number in left if number not in alone]
        parts += [rest] if rest else []


def _row(driver: Driver, version: str, results: Sequence[Result], seconds: float) -> str:
    count = {state: sum(r.state == state for r in results) for state in (RIGHT, WRONG, RAISED, CRASHED)}
    numeric = [r for r in results if r.number in numbers_of_numeric()]
    there = sum(r.is_on_device for r in numeric)
    share = f"{there} of {len(numeric)} ({100 * there / len(numeric):.1f} %)" if numeric else "-"
    numbers = " | ".join(str(n) for n in (len(results), *count.values()))
    return f"| {driver.title} | {version} | {numbers} | {share} | {seconds:.0f} |"


def table(rows: Sequence[str]) -> str:
    """Return the rows as a table of Markdown."""
    head = (
        "| driver | version | graphs | right | wrong | raised | process ended | numeric ones on the device | seconds |"
    )
    return "\n".join((head, "|---|---|---:|---:|---:|---:|---:|---|---:|", *rows))


def with_kept_rows(rows: Sequence[str], text: str) -> list[str]:
    """Return the rows and those of other drivers in an earlier table, in the order of `drivers`."""
    earlier = text.partition(BEGIN)[2].partition(END)[0].splitlines()
    found = {row.split(" | ")[0]: row for row in (*earlier, *rows)}
    return [found[key] for driver in drivers() if (key := f"| {driver.title}") in found]


def _survey(driver: Driver, numbers: Sequence[int], folder: Path, logs: Path) -> tuple[str, list[Result]]:
    """Run probes on a driver, print the wrong results, and return its row."""
    environment = environment_of(driver, folder)
    found = name_and_version(driver, environment)
    if found is None or (driver.icd is not None and not driver.icd.is_file()):
        return f"| {driver.title} | skipped: not installed ({driver.needs}) | | | | | | | |", []
    name, version = found
    log = logs / f"probes-{driver.name}.log"
    log.unlink(missing_ok=True)
    begin = time.monotonic()
    results = []
    for result in run_on(name, numbers, environment, log):
        results.append(result)
        is_away = not result.is_on_device and result.number in numbers_of_numeric()
        if result.state != RIGHT or is_away:
            text = f"{result.state}: {' '.join(result.text.split())[:300]}"
            print(f"{driver.name}: {PROBES[result.number].name} (--number {result.number}): {text}", flush=True)
    return _row(driver, version, results, time.monotonic() - begin), results


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [driver.name for driver in drivers() if driver.name != "oclgrind"]
    parser.add_argument("--only", action="append", default=[], choices=names)
    parser.add_argument("--match", default="", help="only graphs whose name contains this")
    parser.add_argument("--number", action="append", type=int, default=[], help="only the graph with this number")
    parser.add_argument("--write", action="store_true", help="write the table to docs/drivers.md")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "matrix", help="folder of the processes' output")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run the graphs; see the module's text."""
    options = _parsed()
    if options.run:
        driver, path, *numbers = options.run
        run_here([int(number) for number in numbers], driver, Path(path))
        return 0
    logs = options.logs.resolve()
    logs.mkdir(parents=True, exist_ok=True)
    numbers = options.number or [k for k, probe in enumerate(PROBES) if options.match in probe.name]
    rows, is_bad = [], False
    with tempfile.TemporaryDirectory() as folder:
        for driver in drivers():
            if driver.name == "oclgrind" or (options.only and driver.name not in options.only):
                continue
            row, results = _survey(driver, numbers, Path(folder), logs)
            is_bad |= any(result.state != RIGHT for result in results)
            rows.append(row)
            print(row, flush=True)
    text = table(rows)
    print(f"\n{text}")
    if options.write:
        page = PAGE.read_text()
        PAGE.write_text(replaced(page, table(with_kept_rows(rows, page)), BEGIN, END))
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
