"""The tables of CONTRIBUTING.md are complete."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FOLDERS = ("benchmarks", "ci", "examples", "pytensor_cl", "tests", "tools", ".github")


def test_the_table_of_steps_is_the_list_that_runs():
    script = (ROOT / "ci" / "all.sh").read_text()
    (pairs,) = re.findall(r"^printf '%s\\n' (.*) \|$", script, re.MULTILINE)
    assert "bash ci/setup.sh" in script and "bash ci/test.sh" in script
    alone = re.findall(r"^run_step (\w+)", script, re.MULTILINE)
    rows = re.findall(r"^\| `ci/(\w+)\.sh` ", TEXT, re.MULTILINE)
    assert rows == ["setup", *pairs.split(), *alone, "test"]


def test_the_server_runs_all_steps():
    runs = re.findall(r"- run: (.*?)(?: #|$)", (ROOT / ".github" / "workflows" / "ci.yml").read_text(), re.MULTILINE)
    assert runs == ["bash .ci/run"] and "ci/all.sh" in (ROOT / ".ci" / "run").read_text()


def test_every_environment_variable_has_a_row():
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh", ".yml"))
    used = {name for path in paths for name in re.findall(r"PYTENSOR_CL_[A-Z_]+", path.read_text())}
    rows = re.findall(r"^\| `(PYTENSOR_CL_.*?)\|", TEXT, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"PYTENSOR_CL_[A-Z_]+", row)} == used - {"PYTENSOR_CL_"}
