"""The package runs where Python has no POSIX modules, as on Windows."""

import os
import subprocess
import sys

import pytest

from tests.conftest import DRIVERS
from tests.helpers import CHECKOUT


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="takes away what Linux has")
def test_functions_arrays_and_commands_run(tmp_path):
    variables = {"PYTENSOR_FLAGS": f"device=opencl:{DRIVERS[0]}", "PYTENSOR_CL_TREE": "", "PYTEST_XDIST_WORKER": ""}
    own = {"XDG_CACHE_HOME": str(tmp_path)}  # so that the device is checked, in another process
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "tests" / "without_posix.py")],
        env={**os.environ, **variables, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout[-2000:] + done.stderr[-4000:]
    assert f"opencl:{DRIVERS[0]}" in done.stdout
