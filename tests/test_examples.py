"""The examples in short form: they run, and both backends reach the same numbers.

With NUMBA, which compiles a training step for minutes, ci/examples.sh compares all of them; PYTENSOR_CL_SWEEPS=all does so here too.
"""

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers import ALL

if not all(map(find_spec, ("sklearn", "matplotlib", "tqdm"))):  # looked for, not imported: that takes seconds
    pytest.skip("the examples need pip install 'pytensor-cl[examples]'", allow_module_level=True)

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {"logistic_regression": ["--steps", "30"], "mlp_digits": ["--epochs", "2"]}
NETWORKS = ("cnn_digits", "resnet8_digits", "vae_digits", "lstm_text", "transformer_text")


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


@pytest.mark.parametrize("name", SHORT)
def test_opencl_agrees_with_the_host(run, name, capsys):
    code, report = run(name, *SHORT[name], "--compare", HOST)
    text = capsys.readouterr().out
    assert code == 0, text
    assert report["differences"] and max(report["differences"].values()) < 1e-4
    assert "held-out accuracy" in text.splitlines()[-1]


@pytest.mark.parametrize(("name", "accuracy"), [("logistic_regression", 0.93), ("mlp_digits", 0.96)])
def test_full_training_reaches_its_result(run, name, accuracy):
    code, report = run(name)
    assert code == 0
    assert report["accuracy"] > accuracy


# An epoch of another one is compiled and trained on the host for tens of seconds; ci/examples.sh does it for all.
@pytest.mark.parametrize("name", NETWORKS if ALL else ["vae_digits"])
def test_networks_agree_with_the_host(run, name, tmp_path, capsys):
    code, report = run(name, "--epochs", "1", "--compare", HOST)
    text = capsys.readouterr().out
    assert code == 0, text
    assert set(report["differences"]) == {"loss", "val_loss"}
    assert (tmp_path / f"{name}.safetensors").stat().st_size > 1000


RESULTS = {
    "cnn_digits": ("val_accuracy", 0.985),
    "resnet8_digits": ("val_accuracy", 0.985),
    "vae_digits": ("val_loss", 26),
    "lstm_text": ("val_loss", 0.75),
    "transformer_text": ("val_loss", 1.7),
}


@pytest.mark.parametrize("name", NETWORKS if ALL else ["cnn_digits"])
def test_networks_reach_their_results(run, name):
    code, report = run(name)
    result, bound = RESULTS[name]
    assert code == 0
    assert report[result] >= bound if "accuracy" in result else report[result] <= bound


def test_the_saved_network_is_tried(run, monkeypatch):
    monkeypatch.setattr("pytensor_cl.train.load", lambda *_: None)  # the weights are then those that replaced them
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        run("vae_digits", "--epochs", "1")


def test_compare_finds_differences(run, monkeypatch, capsys):
    # A tolerance below rounding: the same comparison must then say so.
    import_module("common")
    monkeypatch.setattr("common.TOLERANCE", -1.0)
    code, _ = run("logistic_regression", "--steps", "2", "--mode", HOST, "--compare", HOST)
    assert code == 1
    assert "TOO LARGE" in capsys.readouterr().out


def test_own_kernels_compute_what_numpy_does(monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES)
    assert import_module("own_kernels").main([]) == 0
    assert "kernels of exp(product(x, y)): GpuComposite{exp(product(i0, i1))}\n" in capsys.readouterr().out


def test_two_workers_are_one_device(tmp_path):
    """Two processes and one device end with the same parameters."""
    pytest.importorskip("distributed")
    words = ["--epochs", "1", "--mode", "FAST_COMPILE", "--out", str(tmp_path)]
    command = [sys.executable, EXAMPLES / "data_parallel.py", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES)
    assert "equal to those of one device: True" in done.stdout, done.stderr
    assert (tmp_path / "data_parallel.png").is_file()
