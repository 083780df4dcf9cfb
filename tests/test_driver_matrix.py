"""The tool that runs a share of the tests on every driver."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests import conftest
from tests.helpers import CHECKOUT

TOOL = CHECKOUT / "tools" / "driver_matrix.py"
REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure message="assert">x</failure></testcase>
<testcase name="c"><skipped/></testcase><testcase name="d"><error message="setup">x</error></testcase>
<testcase name="e"><failure message="worker 'gw0' crashed while running 't'">x</failure></testcase>
</testsuite></testsuites>"""


@pytest.fixture(scope="module")
def tool():
    if not TOOL.is_file():
        pytest.skip("not a checkout")
    return type("tool", (), runpy.run_path(str(TOOL)))


def test_failed_tests_and_ended_processes_are_counted(tool, tmp_path):
    (tmp_path / "r.xml").write_text(REPORT)
    assert tool._counts(tmp_path / "r.xml") == {"passed": 1, "failed": 2, "skipped": 1, "crashed": 1}


def test_the_table_replaces_that_of_the_page(tool):
    page = (CHECKOUT / "docs" / "drivers.md").read_text()
    text = tool.table([tool.Row("PoCL", "3.0", "1/24", 7, 1, 2, 3, 4.4, "why")])
    changed = tool.replaced(page, text)
    assert "| PoCL | 3.0 | 1/24 | 7 | 1 | 3 | 2 | 4 | why |" in changed
    assert tool.replaced(changed, text) == changed
    assert changed.partition(tool.BEGIN)[0] == page.partition(tool.BEGIN)[0]
    assert changed.partition(tool.END)[2] == page.partition(tool.END)[2]


def test_what_fails_the_run(tool):
    bad = [tool.Row("x", "1", "1/2", failed=1), tool.Row("x", "1", "1/2", crashed=1)]
    bad.append(tool.Row("x", "1", "1/2", remark="stopped after 4 minutes"))
    assert all(tool.is_bad(row) for row in bad)
    assert not tool.is_bad(tool.Row("x", "-", "-", remark="skipped: not installed (pip)"))
    assert not tool.is_bad(tool.Row("x", "1", "1/2", passed=3, skipped=1))


def test_each_driver_runs_without_the_others(tool, tmp_path):
    seen = {d.name: tool.environment_of(d, tmp_path)["OCL_ICD_VENDORS"] for d in tool.drivers()}
    assert len(set(seen.values())) == 4 and seen["pocl"] == seen["oclgrind"] == str(tmp_path / "none")
    assert not list((tmp_path / "none").iterdir())


def test_a_driver_that_is_not_installed_is_a_row(tool, tmp_path):
    driver = tool.Driver("ghost", "Ghost", tmp_path / "no.icd", "apt install ghost")
    row = tool._tested(driver, tool.AMOUNTS["quick"], tmp_path, tmp_path / "log")
    assert row.remark == "skipped: not installed (apt install ghost)" and row.passed == row.failed == 0


def test_what_takes_too_long_is_ended(tool, tmp_path):
    text = "import threading; threading.Event().wait()"
    assert tool._run([sys.executable, "-c", text], dict(os.environ), tmp_path / "log", 0.001) is None
    assert tool._run([sys.executable, "-c", "print(7); exit(3)"], dict(os.environ), tmp_path / "log", 1) == 3
    assert (tmp_path / "log").read_text() == "7\n"


@pytest.mark.parametrize(("value", "code"), [("off", 0), ("some", 2)])
def test_the_variable(tool, value, code, monkeypatch):
    monkeypatch.setenv("PYTENSOR_CL_MATRIX", value)
    done = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True, check=False)
    assert done.returncode == code and "PYTENSOR_CL_MATRIX" in done.stdout + done.stderr


class Item:
    def __init__(self, nodeid):
        self.nodeid = nodeid
        self.path = Path("x")


def test_shares_divide_the_tests_and_keep_schedules_together():
    driver = conftest.DRIVERS[0]
    items = [Item(f"t.py::test[{s}-{driver}-{k}]") for k in range(200) for s in ("cpu", "simt")]
    kept = [conftest._is_in_share(item, "1/8") for item in items]
    assert 10 <= sum(kept) <= 100 and kept[::2] == kept[1::2]
    assert all(conftest._is_in_share(item, "8/8") for item in items)
