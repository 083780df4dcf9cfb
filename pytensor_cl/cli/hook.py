"""Whether scripts that nobody changed obey ``PYTENSOR_FLAGS=device=opencl...``."""

import subprocess
import sys

__all__ = ["is_installed"]


def is_installed() -> bool:
    """Ask a fresh interpreter whether the start-up hook is at work in it."""
    # -P: in a checkout, the package in the current folder must not pass for an installed one.
    program = "import sys; print('pytensor_cl._autoload' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "True"
