"""The examples in short form: they run, and both backends reach the same numbers.

With NUMBA, which compiles a training step for minutes, ci/examples.sh compares all of them; PYTENSOR_CL_SWEEPS=all does so here too.
"""

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers import ALL

if not all(map(find_spec, ("sklearn", "matplotlib", "tqdm"))):  # looked for, not imported: that takes seconds
    pytest.skip("the examples need pip install 'pytensor-cl[examples]'", allow_module_level=True)

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {"logistic_regression": ["--steps", "30"], "mlp_digits": ["--epochs", "2"], "cnn_digits": ["--epochs", "1"]}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run an example, return its exit code and its report."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("MPLBACKEND", "Agg")

    def run(name, *words):
        code = import_module(name).main([*words, "--out", str(tmp_path), "--json", str(tmp_path / "report.json")])
        (figure,) = tmp_path.glob("*.png")
        assert figure.read_bytes().startswith(b"\x89PNG")
        return code, json.loads((tmp_path / "report.json").read_text())

    return run


HOST = "NUMBA" if ALL else "FAST_COMPILE"


@pytest.mark.parametrize("name", SHORT if ALL else ["logistic_regression", "mlp_digits"])
def test_opencl_agrees_with_the_host(run, name, capsys):
    code, report = run(name, *SHORT[name], "--compare", HOST)
    text = capsys.readouterr().out
    assert code == 0, text
    assert report["differences"] and max(report["differences"].values()) < 1e-4
    assert "held-out accuracy" in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "accuracy"), [("logistic_regression", 0.93), ("mlp_digits", 0.96), ("cnn_digits", 0.98)]
)
def test_full_training_reaches_its_result(run, name, accuracy):
    code, report = run(name)
    assert code == 0
    assert report["accuracy"] > accuracy


def test_compare_finds_differences(run, monkeypatch, capsys):
    # A tolerance below rounding: the same comparison must then say so.
    import_module("common")
    monkeypatch.setattr("common.TOLERANCE", -1.0)
    code, _ = run("logistic_regression", "--steps", "2", "--mode", HOST, "--compare", HOST)
    assert code == 1
    assert "TOO LARGE" in capsys.readouterr().out


def test_two_workers_are_one_device(monkeypatch, capsys):
    """Two processes and one device end with the same parameters."""
    pytest.importorskip("distributed")
    monkeypatch.syspath_prepend(EXAMPLES)
    assert import_module("data_parallel").main(["--epochs", "1", "--mode", "FAST_COMPILE"]) == 0
    assert "equal to those of one device: True" in capsys.readouterr().out
