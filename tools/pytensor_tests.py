"""Run PyTensor's own tests with FAST_COMPILE and with OPENCL as the default mode, and compare.

usage: python tools/pytensor_tests.py SOURCE_TREE [FILE ...] [--results FOLDER] [--device opencl:pocl] [--jobs 2]

SOURCE_TREE is a checkout of PyTensor (its sdist lacks most tests); FILE is a path in it, as tests/tensor/test_math.py.
Each file has a process of its own; one that dies is started again behind the test that killed it. What fails only
under OPENCL is listed, but for tests that ask for host Ops or in-place work (`EXCUSED`).
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MODES = {
    "FAST_COMPILE": "mode=FAST_COMPILE,linker=vm",
    "OPENCL": "device={device},opencl__placement=device",
}
TEST_SECONDS, FILE_SECONDS = 60, 1200
FILES = """
    test_basic test_elemwise test_math test_subtensor test_extra_ops test_shape test_sort test_special test_blas
    test_pad test_blockwise test_einsum test_inplace test_keepdims test_math_scipy test_sharedvar test_complex
    test_functional
    rewriting/test_basic rewriting/test_elemwise rewriting/test_math rewriting/test_shape rewriting/test_subtensor
    rewriting/test_reshape rewriting/test_extra_ops rewriting/test_blas
"""
DEFAULT_FILES = tuple(f"tests/tensor/{name}.py" for name in FILES.split())

# What a failure's message or source line says -> why a device graph may fail there.
EXCUSED = {
    r"Gpu\w+[({]|HostFromGpu|\.op(\.scalar_op)?\b|fgraph|apply_nodes": "looks at the compiled graph",
    r"toposort|topo_?\b|_nodes\b|expected_len|nb_gemm|n_gemvs|nb_dot": "counts nodes of the compiled graph",
    r"check_stack_trace": "looks for the trace of a host Op",
    r"assert.*inplace|destroy_map": "asks for work in place",
    r"debugprint|\.maker\.linker|storage_map": "looks at the linker",
}
_BAD = ("failed", "error", "crashed", "timeout")


# --- plug-in: `pytest -p pytensor_tests` writes each test's outcome down as soon as it is known ---


def _last_lines(longrepr: Any) -> str:
    """Return what a short traceback ends with: the source line, and what was raised."""
    lines = [line[:300] for line in str(longrepr).splitlines()]
    start = next((i for i, line in enumerate(lines) if line.startswith("E ")), len(lines))
    return "\n".join(lines[max(0, start - 4) : start + 6])


def _write(**record: Any) -> None:
    with Path(os.environ["PYTENSOR_TESTS_LOG"]).open("a") as log:
        log.write(json.dumps(record) + "\n")


def _give_up(number: int, frame: Any) -> None:
    raise TimeoutError(f"took more than {TEST_SECONDS} s")


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test starts; if nothing follows in the log, it killed the process."""
    _write(test=nodeid, outcome="crashed", why="the process died")
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(TEST_SECONDS)


def pytest_runtest_logreport(report: Any) -> None:
    """A phase of a test is over."""
    if report.when == "call" or report.outcome != "passed":
        _write(test=report.nodeid, outcome=report.outcome, why=_last_lines(report.longrepr or ""))


def pytest_runtest_logfinish(nodeid: str) -> None:
    """A test is over."""
    signal.alarm(0)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Leave out what an earlier process has run."""
    done = set(_outcomes(Path(os.environ["PYTENSOR_TESTS_LOG"])))
    items[:] = [item for item in items if item.nodeid not in done]


# --- the runs ---


def _outcomes(log: Path) -> dict[str, dict[str, str]]:
    """Return the last record of each test in a log."""
    if not log.exists():
        return {}
    found: dict[str, dict[str, str]] = {}
    for line in log.read_text().splitlines():
        record = json.loads(line)
        # An error of teardown must not be hidden by the call that passed before it.
        if found.get(record["test"], {}).get("outcome") not in ("failed", "error"):
            found[record["test"]] = record
    return found


def _run_file(tree: Path, file: str, flags: str, log: Path) -> None:
    """Run a file, again after each crash, until all its tests have an outcome."""
    environment = {**os.environ, "PYTENSOR_FLAGS": flags, "PYTENSOR_TESTS_LOG": str(log.absolute())}
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(tree)]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (*here, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "pytest", "-p", "pytensor_tests", "-p", "no:cacheprovider", "-q", "--tb=short"]
    command += ["-o", "addopts=", "--rootdir", str(tree), file]
    with log.with_suffix(".txt").open("a") as text:
        for _ in range(20):
            try:
                done = subprocess.run(
                    command, cwd=tree, env=environment, stdout=text, stderr=text, timeout=FILE_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                _mark_last(log, "timeout")
                return
            if 0 <= done.returncode < 128:
                return


def _mark_last(log: Path, outcome: str) -> None:
    """Say what became of the test that was running when the process was ended."""
    last = json.loads(log.read_text().splitlines()[-1])
    with log.open("a") as file:
        file.write(json.dumps({"test": last["test"], "outcome": outcome, "why": "the file took too long"}) + "\n")


def _excuse(why: str) -> str | None:
    return next((reason for pattern, reason in EXCUSED.items() if re.search(pattern, why)), None)


def _compare(results: Path, files: list[str]) -> int:
    """Print what passes in the first mode and not in the second; return how many of these have no excuse."""
    counts: dict[str, Counter[str]] = {mode: Counter() for mode in MODES}
    ours = []
    for file in files:
        first, second = (_outcomes(results / mode / (file.replace("/", ".") + ".jsonl")) for mode in MODES)
        for mode, found in zip(MODES, (first, second), strict=True):
            counts[mode].update(record["outcome"] for record in found.values())
        passed = (test for test, record in first.items() if record["outcome"] == "passed")
        ours += [second[test] for test in passed if test in second and second[test]["outcome"] in _BAD]
    excused = [(record, reason) for record in ours if (reason := _excuse(record["why"]))]
    faults = [record for record in ours if not _excuse(record["why"])]
    lines = [f"{r['outcome']}: {r['test']}\n    " + r["why"].replace("\n", "\n    ") for r in faults]
    for mode, found in counts.items():
        lines.append(f"{mode}: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(found.items())))
    reasons = Counter(reason for _, reason in excused)
    lines.append(f"fail under OPENCL only: {len(ours)}; excused {len(excused)} {dict(reasons)}")
    sys.stdout.write("\n".join(lines) + "\n")
    return len(faults)


def main() -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--results", type=Path, default=Path("pytensor-tests"))
    parser.add_argument("--device", default="opencl:pocl")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--flags", default="", help="more of PYTENSOR_FLAGS, as floatX=float32")
    parser.add_argument("--compare", action="store_true", help="only compare the results that are there")
    options = parser.parse_args()
    files = options.files or [f for f in DEFAULT_FILES if (options.tree / f).exists()]
    jobs = []
    for file in files:
        for mode, flags in MODES.items():
            log = options.results / mode / (file.replace("/", ".") + ".jsonl")
            log.parent.mkdir(parents=True, exist_ok=True)
            flags = ",".join(filter(None, (flags.format(device=options.device), options.flags)))
            jobs.append((options.tree.absolute(), file, flags, log))
    if not options.compare:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda job: _run_file(*job), jobs))
    return int(_compare(options.results, files) > 0)


if __name__ == "__main__":
    sys.exit(main())
