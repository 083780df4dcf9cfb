"""Run a share of the tests on every OpenCL driver there is, and write the table of docs/drivers.md.

    python tools/driver_matrix.py [--only NAME] [--write]

PYTENSOR_CL_MATRIX sets how much: ``quick`` (default), ``all``, or ``off``. Each driver runs in processes of its own, in
which OCL_ICD_VENDORS makes no other driver available. A driver that is not installed has a row without results. The
exit code is 1 if a test failed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from shutil import which
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "drivers.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
VENDORS = Path("/etc/OpenCL/vendors")
TESTS = ("tests/routines", "tests/ops")


class Amount(NamedTuple):
    """Amount of tests to run."""

    share: str  # share of the routine and Op tests, in the form of PYTENSOR_CL_SHARE
    minutes: float  # the most minutes for each driver
    families: tuple[str, ...]  # families of routines to run under Oclgrind; empty: all


AMOUNTS = {
    "quick": Amount("1/24", 4, ("indexing/take_along_axis", "indexing/diagonal", "indexing/permute_row_elements")),
    "all": Amount("1/1", 120, ()),
}


@dataclass
class Driver:
    """A driver of the matrix."""

    # name, title: for the command line and the table
    name: str
    title: str
    icd: Path | None  # the .icd file of the only driver in its processes; None is the wheel's PoCL, which needs none
    needs: str
    environment: dict[str, str] = field(default_factory=dict)  # variables besides OCL_ICD_VENDORS


class Row(NamedTuple):
    """Result for a driver: numbers of tests, or the remark why there are none."""

    driver: str
    version: str
    share: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    crashed: int = 0
    seconds: float = 0
    remark: str = ""


def drivers() -> list[Driver]:
    """Return the drivers of the matrix, installed or not."""
    intel = Path(os.environ.get("PYTENSOR_CL_INTEL_ICD") or ROOT / "build" / "ci" / "icd" / "intel.icd")
    return [
        Driver("pocl", "PoCL, the wheel", None, "pip install pocl-binary-distribution"),
        Driver("pocl-debian", "PoCL, Debian's", VENDORS / "pocl.icd", "apt install pocl-opencl-icd"),
        Driver("intel", "Intel's CPU runtime", intel, "pip install pytensor-cl[intel]"),
        Driver(
            "rusticl",
            "Mesa rusticl on llvmpipe",
            VENDORS / "rusticl.icd",
            "apt install mesa-opencl-icd",
            {"RUSTICL_ENABLE": "llvmpipe"},
        ),
        Driver("oclgrind", "Oclgrind", None, "apt install oclgrind"),
    ]


_ASK = """
import json
from pytensor_cl.runtime.device import discover
entries = discover()
mine = [e for e in entries if WANTED in (None, e.stable_spec.split(":")[1])]
print(json.dumps([[e.stable_spec.split(":")[1], f"{e.info.platform} {e.info.driver}"] for e in mine][:1]))
"""


def environment_of(driver: Driver, folder: Path) -> dict[str, str]:
    """Return the environment of a driver's processes."""
    vendors = folder / "none"
    vendors.mkdir(exist_ok=True)
    unwanted = ("PYTENSOR_FLAGS", "PYOPENCL_CTX", "PYTENSOR_CL_REQUIRE_DRIVERS", "PYTENSOR_CL_TEST_DRIVERS")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    own = {"OCL_ICD_VENDORS": str(driver.icd or vendors), "PYTHONPATH": str(ROOT)}
    if driver.icd and driver.name == "intel":  # the wheel's PoCL beside it does no harm: the driver is chosen by name
        own["OCL_ICD_VENDORS"] = str(driver.icd.parent)
    return {**kept, **own, **driver.environment}


def name_and_version(driver: Driver, environment: dict[str, str]) -> tuple[str, str] | None:
    """Return the name and the version of a driver in its processes; None if there is none."""
    wanted = driver.name if driver.name in ("pocl", "intel", "rusticl") else None
    code = _ASK.replace("WANTED", repr(wanted))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout or "[]") if done.returncode == 0 else []
    return (found[0][0], found[0][1]) if found else None


def _counts(report: Path) -> dict[str, int]:
    """Return the numbers of tests in a report, whose worker may have died with some of them."""
    counts = dict.fromkeys(("passed", "failed", "skipped", "crashed"), 0)
    for case in ET.parse(report).getroot().iter("testcase"):
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        if problem is not None:
            text = f"{problem.get('message') or ''} {problem.text or ''}"
            counts["crashed" if "crashed while running" in text else "failed"] += 1
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    return counts


def _run(command: list[str], environment: dict[str, str], log: Path, minutes: float) -> int | None:
    """Run a command with its output in a file; return its exit code, or None if it was ended after some minutes."""
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(60 * minutes)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with the workers of the tests
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def _tested(driver: Driver, amount: Amount, folder: Path, log: Path) -> Row:
    """Run the tests on a driver: in one worker, in whose place another one comes if the driver ends it."""
    environment = environment_of(driver, folder)
    found = name_and_version(driver, environment)
    if (driver.icd is not None and not driver.icd.is_file()) or found is None:
        return Row(driver.title, "-", "-", remark=f"skipped: not installed ({driver.needs})")
    name, version = found
    report = folder / f"{driver.name}.xml"
    environment |= {"PYTENSOR_CL_TEST_DRIVERS": name, "PYTENSOR_CL_SHARE": amount.share}
    options = ["-q", "-n", "1", "--max-worker-restart=200", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *options, *TESTS]
    begin = time.monotonic()
    if _run(command, environment, log, amount.minutes) is None:
        return Row(driver.title, version, amount.share, remark=f"stopped after {amount.minutes:g} minutes")
    seconds = time.monotonic() - begin
    if not report.is_file():
        return Row(driver.title, version, amount.share, failed=1, seconds=seconds, remark=f"no report: see {log}")
    return Row(driver.title, version, amount.share, **_counts(report), seconds=seconds)


def _simulated(driver: Driver, amount: Amount, folder: Path, log: Path) -> Row:
    """Run families of routines under Oclgrind, which reports data races and accesses out of bounds."""
    if which("oclgrind") is None:
        return Row(driver.title, "-", "-", remark=f"skipped: not installed ({driver.needs})")
    version = subprocess.run(["oclgrind", "--version"], capture_output=True, text=True, check=False).stdout.split()
    share = ", ".join(amount.families) or "ci/oclgrind.sh"
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    begin = time.monotonic()
    command = ["bash", "ci/oclgrind.sh", *amount.families]
    code = _run(command, environment, log, amount.minutes)
    if code is None:
        return Row(driver.title, _version(version), share, remark=f"stopped after {amount.minutes:g} minutes")
    output = log.read_text(errors="replace")
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for line in output.splitlines():
        words = line.replace(",", "").split()
        for number, word in pairwise(words):
            if " in " in line and number.isdigit() and word in counts:
                counts[word] += int(number)
    problems = output.count("(report:")
    remark = f"{problems} families with reports" if problems else "no race, no access out of bounds"
    if code and not (problems or counts["failed"]):
        counts["failed"], remark = 1, f"ended with {code}: see {log}"
    counts["failed"] += problems
    seconds = time.monotonic() - begin
    return Row(driver.title, _version(version), share, **counts, seconds=seconds, remark=remark)


def _version(words: list[str]) -> str:
    return next((word for word in words if word[:1].isdigit()), "?")


def rows(amount: Amount, only: list[str], logs: Path) -> Iterator[tuple[Driver, Row]]:
    """Run one driver after the other; yield what came out."""
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for driver in drivers():
            if only and driver.name not in only:
                continue
            run = _simulated if driver.name == "oclgrind" else _tested
            yield driver, run(driver, amount, Path(folder), logs / f"{driver.name}.log")


def table(found: list[Row]) -> str:
    """Return the rows as a table of Markdown."""
    lines = [
        "| driver | version | share | passed | failed | process ended | skipped | seconds | |",
        "|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    lines += [
        f"| {r.driver} | {r.version} | {r.share} | {r.passed} | {r.failed} | {r.crashed} | {r.skipped} | "
        f"{r.seconds:.0f} | {r.remark} |"
        for r in found
    ]
    return "\n".join(lines)


def replaced(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """Return a page with another table between its marks."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"


def is_bad(row: Row) -> bool:
    """Return whether a row fails the run."""
    return bool(row.failed or row.crashed or row.remark.startswith("stopped"))


def main() -> int:
    """Run the matrix; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], choices=[d.name for d in drivers()])
    parser.add_argument("--write", action="store_true", help="write the table to docs/drivers.md")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "matrix", help="folder of the tests' output")
    parser.add_argument("--minutes", type=float, help="for each driver at most, in place of the variable's")
    options = parser.parse_args()
    chosen = os.environ.get("PYTENSOR_CL_MATRIX") or "quick"
    if chosen == "off":
        print("the driver matrix is off (PYTENSOR_CL_MATRIX)")
        return 0
    if chosen not in AMOUNTS:
        parser.error(f"PYTENSOR_CL_MATRIX={chosen!r} is none of {', '.join((*AMOUNTS, 'off'))}")
    found = []
    amount = AMOUNTS[chosen]._replace(minutes=options.minutes or AMOUNTS[chosen].minutes)
    for driver, row in rows(amount, options.only, options.logs.resolve()):
        found.append((driver, row))
        print(f"{driver.name}: {row.passed} passed, {row.failed} failed, {row.crashed} ended, {row.skipped} skipped, "
              f"{row.seconds:.0f} s {row.remark}", flush=True)  # fmt: skip
    text = table([row for _, row in found])
    print(f"\n{text}")
    if options.write:
        PAGE.write_text(replaced(PAGE.read_text(), text))
    bad = [driver.name for driver, row in found if is_bad(row)]
    if bad:
        print(f"failures on {', '.join(bad)}: the output is in {options.logs}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
