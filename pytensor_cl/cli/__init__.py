"""The command line: ``python -m pytensor_cl <command>``, also installed as ``pytensor-cl``."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from pytensor_cl import __version__
from pytensor_cl.errors import OpenCLError

__all__ = ["main"]

# Command -> its line in --help. The module of the same name has add_arguments(parser) and
# run(options) -> exit code. It is imported when the command is used: `run` must be before PyTensor is
# imported, and `devices` needs no PyTensor.
_COMMANDS = {
    "devices": "list the OpenCL devices, with the string to paste, and the drivers that do not load",
    "check": "run the classic check program on a device and in PyTensor's default mode",
    "doctor": "examine drivers, settings, caches, speed and results of each device",
    "run": "run a script with an OpenCL device as the default",
    "prepare": "fill the caches with the commonest kernels of array functions",
    "cache": "show or clear the caches of compiled kernels",
}


def _parser(command: str | None) -> argparse.ArgumentParser:
    """Return the parser; it has the arguments of `command` only, because only that module is loaded."""
    parser = argparse.ArgumentParser(prog="pytensor-cl", description="Run PyTensor graphs on OpenCL devices.")
    parser.add_argument("--version", action="version", version=f"pytensor-cl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, line in _COMMANDS.items():
        sub = commands.add_parser(name, help=line, description=line[0].upper() + line[1:] + ".")
        if name == command:
            module = import_module(f"pytensor_cl.cli.{name}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns the exit code: 0 if all is well.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = next((word for word in words if word in _COMMANDS), None)
    options = _parser(command).parse_args(words)
    try:
        code = options.run(options)
        sys.stdout.flush()
        return code
    except OpenCLError as error:
        print(f"pytensor-cl {options.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has ended, as in `devices | head`
        if command == "run":
            raise  # the script's own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter fails to flush at its end
        return 1
