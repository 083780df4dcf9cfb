"""``run``: a script with an OpenCL device as the default."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytensor_cl.cli import main
from pytensor_cl.cli.run import with_device

ROOT = Path(__file__).parents[2]

SCRIPT = """
import json, sys
import pytensor
print(json.dumps({
    "name": __name__,
    "file": __file__,
    "argv": sys.argv,
    "path": sys.path[0],
    "device": pytensor.config.device,
    "mode": str(pytensor.config.mode),
    "floatX": pytensor.config.floatX,
}))
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("flags", "device", "expected"),
    [
        ("", None, "device=opencl"),
        ("", "opencl:pocl", "device=opencl:pocl"),
        ("floatX=float32", None, "floatX=float32,device=opencl"),
        ("device=opencl0:0,floatX=float32", None, "device=opencl0:0,floatX=float32"),
        ("device=cpu,floatX=float32", "opencl1:0", "floatX=float32,device=opencl1:0"),
        (" device = cpu , ,", "opencl", "device=opencl"),
        (
            "contexts=dev0->opencl0:0;dev1->opencl1:0",
            None,
            "contexts=dev0->opencl0:0;dev1->opencl1:0,device=opencl",
        ),
    ],
)
def test_with_device(flags, device, expected):
    assert with_device(flags, device) == expected


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script with blank.py"
    path.write_text(SCRIPT)
    return path


def run(*words, flags=""):
    environment = {**os.environ, "PYTENSOR_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytensor_cl", "run", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_script_has_its_usual_environment(script):
    done = run("--device", "opencl:cpu", script, "3", "--device", "x", flags="floatX=float32")
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout) == {
        "name": "__main__",
        "file": str(script),
        "argv": [str(script), "3", "--device", "x"],
        "path": str(script.parent),
        "device": "opencl:cpu",
        "mode": "OPENCL",
        "floatX": "float32",
    }


def test_device_of_the_flags_is_kept(script):
    done = run(script, "0", flags="device=opencl0:0")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["device"] == "opencl0:0"


def test_missing_script(capsys, monkeypatch):
    monkeypatch.setenv("PYTENSOR_FLAGS", "")
    assert main(["run", "no-such-script.py"]) == 2
    assert "no-such-script.py" in capsys.readouterr().err


def test_device_that_does_not_exist_is_an_error_and_not_the_host(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import pytensor, pytensor.tensor as pt\n"
        "x = pt.vector('x')\n"
        "print(pytensor.function([x], pt.exp(x))([1.0, 2.0]))\n"
    )
    done = run("--device", "opencl:nonsense", script)
    assert done.returncode != 0, done.stdout
    assert "no OpenCL device matches 'opencl:nonsense'" in done.stderr
    assert done.stdout == ""
