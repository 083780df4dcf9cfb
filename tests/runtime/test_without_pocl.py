"""Without the folder of PoCL's hooks, PoCL is used as any other OpenCL driver."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.conftest import DRIVERS
from tests.helpers import CHECKOUT, ROOT

TESTS = ("tests/ops/test_elemwise.py", "tests/ops/test_reduction.py", "tests/linker/run")
"""Tests of which a share runs, so that the test takes less than a minute."""
PARTS = 24


def _without_pocl(folder):
    """Copy the package, its kernels and its tests; remove PoCL's hooks, and the line that imports them."""
    ignored = shutil.ignore_patterns("__pycache__", "pocl")
    shutil.copytree(ROOT / "pytensor_cl", folder / "pytensor_cl", ignore=ignored)
    shutil.copytree(CHECKOUT / "tests", folder / "tests", ignore=ignored)
    if not (folder / "pytensor_cl" / "kernels").exists():  # an installed package has them inside
        shutil.copytree(CHECKOUT / "kernels", folder / "kernels", ignore=ignored)
    shutil.copy(CHECKOUT / "pyproject.toml", folder)
    drivers = folder / "pytensor_cl" / "runtime" / "drivers.py"
    lines = drivers.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("import pytensor_cl.runtime.pocl")]
    assert len(kept) == len(lines) - 1
    drivers.write_text("".join(kept))


def _run(folder, *arguments, **variables):
    own = {"PYTHONPATH": str(folder), "PYTENSOR_FLAGS": "", "PYTENSOR_CL_TREE": "", "PYTEST_XDIST_WORKER": ""}
    environment = {**os.environ, **own, **variables}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif("pocl" not in DRIVERS, reason="PoCL is not tested")
@pytest.mark.skipif(find_spec("pytensor_cl.runtime.pocl") is None, reason="the hooks have been removed already")
def test_tests_pass_without_pocls_hooks(tmp_path):
    _without_pocl(tmp_path)
    where = _run(tmp_path, "-c", "import pytensor_cl.runtime.drivers as d; print(d.__file__, d.all_hooks())")
    assert where.split() == [str(tmp_path / "pytensor_cl" / "runtime" / "drivers.py"), "[]"]
    variables = {"PYTENSOR_CL_TEST_DRIVERS": "pocl", "PYTENSOR_CL_SHARE": f"1/{PARTS}"}
    out = _run(tmp_path, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *TESTS, **variables)
    assert " passed" in out
