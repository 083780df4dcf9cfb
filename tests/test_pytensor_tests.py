"""`tools/pytensor_tests.py` sorts failures of PyTensor's own tests by the defects that are known."""

import json

import pytest

from tests.helpers import CHECKOUT
from tools import pytensor_tests

EXAMPLES = {
    "structure": ("tests/a.py::test_b", "failed", "assert isinstance(f.maker.fgraph.toposort()[0].op, Dot22)"),
    "arguments": ("tests/a.py::TestAddInplaceBroadcast::test_good", "failed", "E AssertionError: outputs were"),
    "slow": ("tests/a.py::test_b", "timeout", "the file took too long"),
    "numbers": ("tests/a.py::test_b", "failed", "E  Not equal to tolerance rtol=1e-07"),
    "crash": ("tests/a.py::test_b", "crashed", "the process died"),
}


def write_results(folder, test, outcome, why, plain):
    for mode, record in (("OPENCL", (outcome, why)), ("FAST_COMPILE", (plain, ""))):
        log = folder / mode / "tests.a.py.jsonl"
        log.parent.mkdir()
        log.write_text(json.dumps({"test": test, "outcome": record[0], "why": record[1]}) + "\n")


@pytest.mark.parametrize("kind", EXAMPLES)
def test_classes(kind, tmp_path, capsys):
    write_results(tmp_path, *EXAMPLES[kind], plain="passed")
    assert pytensor_tests._report(tmp_path, ["tests/a.py"]) == (kind in ("numbers", "crash"))
    assert f"1 {kind}" in capsys.readouterr().out


def test_what_fails_in_both_modes_is_none_of_ours(tmp_path):
    write_results(tmp_path, *EXAMPLES["numbers"], plain="failed")
    assert pytensor_tests._report(tmp_path, ["tests/a.py"]) == 0


def test_known_defects_do_not_count(tmp_path, monkeypatch):
    known = tmp_path / "known.txt"
    known.write_text("tests/a.py::test_b  # a reason\n")
    monkeypatch.setattr(pytensor_tests, "KNOWN", known)
    write_results(tmp_path, *EXAMPLES["numbers"], plain="passed")
    assert pytensor_tests._report(tmp_path, ["tests/a.py"]) == 0


def test_no_defect_is_known():
    lines = (CHECKOUT / "tools" / "pytensor_tests_known.txt").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == []


def test_the_package_of_the_checkout_is_left_out(tmp_path):
    checkout = tmp_path / "checkout"
    for name in ("pytensor", "tests"):
        (checkout / name).mkdir(parents=True)
    (checkout / "conftest.py").touch()
    for _ in range(2):
        tree = pytensor_tests._link_tests(checkout, tmp_path / "tree")
    assert {p.name for p in tree.iterdir()} == {"tests", "conftest.py"}
