"""``run``: a script with an OpenCL device as PyTensor's default, without the start-up hook.

Interpreters that the script starts in turn inherit the flags; only where the hook is installed do they accept
what ``device`` means.
"""

import argparse
import os
import runpy
import sys
from pathlib import Path
from zipfile import is_zipfile

from pytensor_cl import _autoload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--device", help="OpenCL device (default: that of PYTENSOR_FLAGS, else the best one)")
    parser.add_argument("script", help="path of a Python script, or a folder or zip file with a __main__.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def with_device(flags: str, device: str | None, default: str = "opencl") -> str:
    """Return PyTensor flags that name a device.

    `device`: replaces the one in `flags`; None keeps it.
    """
    items = [item.strip() for item in flags.split(",") if item.strip()]
    given = [item for item in items if item.partition("=")[0].strip() == "device"]
    if given and device is None:
        return flags
    others = [item for item in items if item not in given]
    return ",".join([*others, f"device={device or default}"])


def run(options: argparse.Namespace) -> int:
    """Run the script as ``__main__``; its exception or exit code is the command's."""
    os.environ["PYTENSOR_FLAGS"] = with_device(os.environ.get("PYTENSOR_FLAGS", ""), options.device)
    _autoload.install()
    script = Path(options.script)
    if not script.exists():
        print(f"pytensor-cl run: there is no file {options.script!r}", file=sys.stderr)
        return 2
    sys.argv = [options.script, *options.arguments]
    by_itself = script.is_dir() or is_zipfile(script) or sys.flags.safe_path
    if not by_itself:  # runpy puts folders and zip files on the path, and safe_path forbids both
        sys.path[0] = str(script.resolve().parent)
    runpy.run_path(options.script, run_name="__main__")
    return 0
