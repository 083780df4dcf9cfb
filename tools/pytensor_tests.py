"""Run PyTensor's own tests with OPENCL as the default mode; list what fails there and not with FAST_COMPILE.

usage: python tools/pytensor_tests.py SOURCE_TREE [TEST ...] [--results FOLDER] [--device opencl:pocl] [--jobs 2]

SOURCE_TREE is a checkout of PyTensor, of a version near the installed one: its sdist has eight of the test files. Its
tests run with the installed PyTensor, in a folder of links to all that the checkout has beside the package. TEST
is a path in it, as tests/tensor/test_math.py, which may go on with ::Class::test. Each has a process of its own; one
that dies is started again behind the test that killed it. What fails is run again with FAST_COMPILE; what passes there
is listed with a class: structure (requires host Ops), arguments (requires work in place), unspecified, slow, numbers,
crash.

The last two are defects. tools/pytensor_tests_known.txt names those that are known, which should be none; the exit
status is 1 if there are others.
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
SPARSE_FILES = "test_basic test_linalg test_math test_sharedvar test_variable"
DEFAULT_FILES = (
    *(f"tests/tensor/{name}.py" for name in FILES.split()),
    *(f"tests/sparse/{name}.py" for name in SPARSE_FILES.split()),
)

# Class, a pattern of the test's name, the failure's message or its source line, and why a device graph may fail there.
STRUCTURE, ARGUMENTS, UNSPECIFIED, SLOW, NUMBERS, CRASH = CLASSES = (
    "structure",
    "arguments",
    "unspecified",
    "slow",
    "numbers",
    "crash",
)
EXCUSED = (
    (SLOW, r"TimeoutError|the file took too long", "took longer than allowed here"),
    (
        ARGUMENTS,
        r"assert.*inplace|destroy_map|data_of|\w*[Ii]nplace\w*::test_good|test_\w+_inplace",
        "requires work in place",
    ),
    (STRUCTURE, r"Gpu\w+[({]|HostFromGpu|\.op(\.scalar_op)?\b|fgraph|apply_nodes", "looks at the compiled graph"),
    (ARGUMENTS, r"assert_allclose\(x_f, scipy_T", "requires work in place"),
    (
        STRUCTURE,
        r"toposort|topo_?\b|scan_node|op1, op2 = |_nodes\b|expected_len|nb_gemm|n_gemvs|nb_dot|len\((ifnode|matches)",
        "counts nodes",
    ),
    (STRUCTURE, r"count_scans", "counts loops"),
    (
        STRUCTURE,
        r"\bf_ops\b|len\(solves\)|svd_counter|no_cholesky_in_graph|any_vector_b_solve|not_provably_square",
        "counts nodes of linear algebra",
    ),
    (STRUCTURE, r"<generator object .*genexpr|has_blockwise", "looks for a node of a host Op"),
    (STRUCTURE, r"check_stack_trace", "looks for the trace of a host Op"),
    (STRUCTURE, r"debugprint|\.maker\.linker|storage_map", "looks at the linker"),
    (UNSPECIFIED, r"test_schur_decomposition.*complex", "compares the phases of complex Schur vectors"),
    (UNSPECIFIED, r"test_searchsortedOp_on_right_side", "searches an array that is not sorted"),
)
DEFECTS = (NUMBERS, CRASH)
KNOWN = Path(__file__).with_name("pytensor_tests_known.txt")
_BAD = ("failed", "error", "crashed", "timeout")


# --- plug-in: `pytest -p pytensor_tests` writes each test's outcome down as soon as it is known ---


def _last_lines(longrepr: Any) -> str:
    """Return the end of a short traceback: the source line and the error."""
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


def _link_tests(tree: Path, folder: Path) -> Path:
    """Fill a folder with links to what a checkout has beside its package, and return it.

    Python would import the checkout's package, not the installed one, if tests ran in the checkout.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for entry in tree.iterdir():
        link = folder / entry.name
        if entry.name not in ("pytensor", "__pycache__") and not link.is_symlink():
            link.symlink_to(entry)
    return folder


def _run_tests(tree: Path, tests: list[str], flags: str, log: Path) -> None:
    """Run tests in one process, again after each crash, until all have an outcome."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTENSOR_FLAGS": flags, "PYTENSOR_TESTS_LOG": str(log.absolute())}
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(tree)]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (*here, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "pytest", "-p", "pytensor_tests", "-p", "no:cacheprovider", "-q", "--tb=short"]
    command += ["-o", "addopts=", "--rootdir", str(tree), *tests]
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


def _class_of(record: dict[str, str]) -> tuple[str, str]:
    """Return the class of a failure, and the reason."""
    text = f"{record['test']}\n{record['why']}"
    excuse = next(((kind, reason) for kind, pattern, reason in EXCUSED if re.search(pattern, text)), None)
    if excuse is not None:
        return excuse
    return (CRASH if record["outcome"] == "crashed" else NUMBERS), record["why"]


def _known() -> set[str]:
    """Return the defects that are known."""
    lines = (line.partition("#")[0].strip() for line in KNOWN.read_text().splitlines())
    return {line for line in lines if line}


def _log(results: Path, mode: str, name: str) -> Path:
    return results / mode / (name.replace("/", ".").replace("::", ".") + ".jsonl")


def _report(results: Path, names: list[str]) -> int:
    """Print what fails in mode OPENCL alone, by classes; return how many defects are not known."""
    counts: Counter[str] = Counter()
    ours: dict[str, list[tuple[str, str]]] = {kind: [] for kind in CLASSES}
    for name in names:
        found, plain = (_outcomes(_log(results, mode, name)) for mode in ("OPENCL", "FAST_COMPILE"))
        counts.update(record["outcome"] for record in found.values())
        for test, record in found.items():
            if record["outcome"] in _BAD and plain.get(test, {}).get("outcome") == "passed":
                kind, reason = _class_of(record)
                ours[kind].append((test, reason))
    known = _known()
    new = [test for kind in DEFECTS for test, _ in ours[kind] if test not in known]
    lines = []
    for kind, failures in ours.items():
        for test, reason in failures:
            mark = ", known" if test in known else ""
            lines.append(f"{kind}{mark}: {test}\n    " + reason.replace("\n", "\n    "))
    lines.append("mode OPENCL: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())))
    lines.append("fail in mode OPENCL alone: " + ", ".join(f"{len(found)} {kind}" for kind, found in ours.items()))
    lines.append(f"defects that are not known: {len(new)}")
    sys.stdout.write("\n".join(lines) + "\n")
    return len(new)


def _run(tree: Path, name: str, flags: dict[str, str], results: Path) -> None:
    """Run tests in mode OPENCL, then those that fail with FAST_COMPILE."""
    log = _log(results, "OPENCL", name)
    _run_tests(tree, [name], flags["OPENCL"], log)
    failed = [test for test, record in _outcomes(log).items() if record["outcome"] in _BAD]
    if failed:
        _run_tests(tree, failed, flags["FAST_COMPILE"], _log(results, "FAST_COMPILE", name))


def main() -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--results", type=Path, default=Path("pytensor-tests"))
    parser.add_argument("--device", default="opencl:pocl")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--flags", default="", help="more of PYTENSOR_FLAGS, as floatX=float32")
    parser.add_argument("--compare", action="store_true", help="only compare the results that are there")
    options = parser.parse_args()
    names = options.tests or [f for f in DEFAULT_FILES if (options.tree / f).exists()]
    flags = {k: ",".join(filter(None, (v.format(device=options.device), options.flags))) for k, v in MODES.items()}
    if not options.compare:
        tree = _link_tests(options.tree.absolute(), options.results.absolute() / "tree")
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda name: _run(tree, name, flags, options.results), names))
    return int(_report(options.results, names) > 0)


if __name__ == "__main__":
    sys.exit(main())
