"""``pytensor-cl prepare``: fill the caches with the commonest kernels of array functions."""

import argparse
from time import perf_counter

from pytensor_cl.array.prepare import prepare
from pytensor_cl.mode import use


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--dtype", action="append", default=[], help="a dtype, such as float32 (the default); repeatable"
    )
    parser.add_argument("--device", default="opencl", help="a device, such as opencl:gpu (default: the best one)")


def run(options: argparse.Namespace) -> int:
    """Build and run the kernels; return the exit code."""
    began = perf_counter()
    count = prepare(options.dtype or ["float32"], device=use(options.device))
    print(f"{count} kernels are in the caches, after {perf_counter() - began:.1f} s")
    return 0
