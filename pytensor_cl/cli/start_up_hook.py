"""Checks of the installed start-up hook, by which unchanged scripts use ``PYTENSOR_FLAGS=device=opencl...``."""

import subprocess
import sys


def is_installed() -> bool:
    """Return whether the start-up hook is active in a new interpreter."""
    # -P: the package of a checkout in the current folder must not count as installed.
    program = "import sys; print('pytensor_cl._autoload' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "True"
