"""benchmarks/sweep.py: it runs, checks results, and writes its files."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import DRIVERS
from tests.helpers import ROOT

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

FOLDER = ROOT / "benchmarks"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="an installed package has no benchmarks")
def test_a_small_sweep(tmp_path):
    device = f"opencl:{DRIVERS[0]}"
    words = ["--only", "x + y", "--largest", "10", "--device", device, "--backend", "numpy", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, str(FOLDER / "sweep.py"), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert found["backends"] == [device, "numpy"] and set(found["results"]["x + y"]) == {"1", "10"}
    assert all(set(times) == {device, "numpy"} for times in found["results"]["x + y"].values()), done.stderr
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
