"""The examples with PyMC in short form: they run on the device and agree with the host. ci/examples.sh runs longer ones."""

from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pymc", reason="the examples need pip install pymc")

from tests.helpers import ALL, on_one_driver

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = {
    "gaussian_process": (["--points", "40"], "GpuCholesky"),
    "hidden_markov_model": (["--steps", "60", "--chains", "0"], "GpuScanLoop"),
    "state_space_model": (["--steps", "60", "--chains", "0"], "GpuScanLoop"),
    "mixture": (["--count", "100", "--chains", "0"], "GpuRowwise"),
    "pymc_logistic_regression": (["--rows", "500", "--chains", "0"], "GpuGemv"),
    "pymc_radon": (["--chains", "0"], "nodes on the host: 0"),
    "stochastic_volatility": (["--days", "60", "--chains", "0"], "GpuScanLoop"),
    "many_chains": (["--chains", "32", "--draws", "40"], "effective draws"),
}
SLOW = set(SHORT) - {"state_space_model", "stochastic_volatility"}  # ci/examples.sh runs them too

pytestmark = pytest.mark.filterwarnings("ignore")  # of short chains


@on_one_driver
@pytest.mark.parametrize("name", [name for name in SHORT if ALL or name not in SLOW])
def test_agrees_with_the_host(context, name, monkeypatch, capsys, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)  # where a figure goes
    words, seen = SHORT[name]
    code = import_module(name).main(words)
    text = capsys.readouterr().out
    assert code == 0, text
    assert seen in text
    assert "nodes on the device: 0" not in text
