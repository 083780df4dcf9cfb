"""The tables of CONTRIBUTING.md are complete."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FOLDERS = ("benchmarks", "ci", "examples", "pytensor_cl", "tests", "tools", ".github")


def test_the_table_of_steps_is_the_list_that_runs():
    (loop,) = re.findall(r"for step in (.*); do", (ROOT / "ci" / "all.sh").read_text())
    assert re.findall(r"^\| `ci/(\w+)\.sh` ", TEXT, re.MULTILINE) == [*loop.split(), "test"]


def test_the_server_runs_all_steps():
    runs = re.findall(r"- run: (.*?)(?: #|$)", (ROOT / ".github" / "workflows" / "ci.yml").read_text(), re.MULTILINE)
    assert runs == ["bash .ci/run"] and "ci/all.sh" in (ROOT / ".ci" / "run").read_text()


def test_every_environment_variable_has_a_row():
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh", ".yml"))
    used = {name for path in paths for name in re.findall(r"PYTENSOR_CL_[A-Z_]+", path.read_text())}
    rows = re.findall(r"^\| `(PYTENSOR_CL_.*?)\|", TEXT, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"PYTENSOR_CL_[A-Z_]+", row)} == used - {"PYTENSOR_CL_"}
