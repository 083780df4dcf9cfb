"""The kernels that `record` has collected: their texts, where they come from, and their work-groups."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path

from tools.compile_tables.record import ROOT

__all__ = ["Program", "collect", "read"]

_REQUIRED = re.compile(r"reqd_work_group_size\((\d+), (\d+), (\d+)\)\)\)[^;{]*?\bvoid\s+(\w+)\s*\(")
_DIGEST = re.compile(r"_[0-9a-f]{12}")
_DIRECT = ("tests/routines/", "tests/scalar/")  # tests that make routines themselves
_DOUBLES = re.compile(r"__global (?:const )?double|\(\s*const double\b|\bconst double (?:i\d|one\b)")
_WRONG = re.compile(r"= nonsense;")  # text of the tests of error messages
TESTS = ("routines", "ops", "nn", "linker", "rewriting", "differential", "scalar",
         "test_coverage.py", "test_sharedvar.py")  # fmt: skip
"""The rest of the tests launches no kernels of GPUs that these do not."""


@dataclass
class Program:
    """A distinct text."""

    name: str
    text: str  # OpenCL C
    devices: set[str] = field(default_factory=set)  # names of `record.DEVICES` whose programs have it
    origins: set[str] = field(default_factory=set)  # tests and benchmarks that launch it

    @property
    def family(self) -> str:
        """The template's name."""
        return _DIGEST.split(self.name)[0]

    @property
    def benchmarks(self) -> list[str]:
        """Names of the benchmarks among the origins."""
        return sorted(o.removeprefix("benchmark: ") for o in self.origins if o.startswith("benchmark: "))

    def required_groups(self) -> dict[str, int]:
        """Return the size of the work-groups of those kernels that require one."""
        return {name: int(x) * int(y) * int(z) for x, y, z, name in _REQUIRED.findall(self.text)}


def read(folder: Path) -> tuple[list[Program], dict[str, int]]:
    """Return all programs in the order of their names, and the size of each kernel's work-groups, the largest seen."""
    programs: dict[str, Program] = {}
    groups: dict[str, int] = {}
    for path in sorted(folder.glob("*/*.json")):
        found = json.loads(path.read_text())
        if path.name.startswith("launches."):
            for kernel, sizes in found.items():
                groups[kernel] = max(groups.get(kernel, 0), *(prod(size) if size else 0 for size in sizes))
            continue
        if not _is_kernel(found["name"]) or _WRONG.search(found["source"]):
            continue
        text = "\n".join((*found["preambles"], found["source"]))
        if _asks_for_fp64(path.parent.name, found["origins"], text):
            continue
        program = programs.setdefault(found["name"], Program(found["name"], text))
        assert program.text == text, f"two texts are called {program.name}"
        program.devices.add(path.parent.name)
        program.origins.update(found["origins"])
    for program in programs.values():
        groups.update(program.required_groups())
    return sorted(programs.values(), key=lambda p: p.name), groups


def _asks_for_fp64(device: str, origins: Iterable[str], text: str) -> bool:
    """Return whether a test gives float64 arrays to a routine on a device without them; placement refuses these."""
    direct = all(origin.startswith(_DIRECT) for origin in origins)
    return device == "small" and direct and _DOUBLES.search(text) is not None


def _is_kernel(name: str) -> bool:
    """Return whether a text is one of the project's kernels; tests have own ones, or wrong ones on purpose."""
    return _DIGEST.split(name)[0] in _templates()


@cache
def _templates() -> frozenset[str]:
    """Return the names that programs have from their templates: the path in ``kernels``, with underscores."""
    folder = ROOT / "kernels"
    paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.mako"))
    return frozenset("_".join(path.parts) for path in paths)


def _commands(share: int, tests: Sequence[str]) -> Iterator[list[str]]:
    yield ["-m", "tools.compile_tables.record"]
    if tests:
        plugin = ["-p", "tools.compile_tables.record", "--assert=plain", "--tb=no", "-q", "-n", "0"]
        yield ["-O", "-W", "ignore", "-m", "pytest", *plugin, *tests]


def collect(folder: Path, device: str, share: int = 1, tests: Sequence[str] | None = None) -> None:
    """Record the benchmarks and the tests for one kind of device.

    `tests`: files and folders; None is all that launch kernels. Raises `RuntimeError`: nothing could be recorded.
    """
    tests = [f"tests/{name}" for name in TESTS] if tests is None else tests
    environment = {
        **os.environ,
        "PYTENSOR_CL_RECORD": str(folder),
        "PYTENSOR_CL_RECORD_DEVICE": device,
        "PYTENSOR_CL_RECORD_SHARE": str(share),
        "PYTENSOR_CL_TEST_DRIVERS": os.environ.get("PYTENSOR_CL_TEST_DRIVERS", "pocl"),
    }
    for command in _commands(share, tests):
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        # Tests fail, as no kernel computes anything; pytest then returns 1. More is an error of another kind.
        if done.returncode > ("pytest" in command) or "no tests ran" in done.stdout:
            raise RuntimeError(f"{' '.join(command)}:\n{(done.stdout + done.stderr)[-4000:]}")
