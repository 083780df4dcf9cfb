"""Compile a program in a process of its own.

usage: python -m pytensor_cl.runtime.pocl.compile_worker PLATFORM VERSION DEVICE, with the program on stdin.

See `ahead`. Kernels are launched with null pointers only: those that `outline` has moved then do nothing.
"""

import json
import os
import sys
from contextlib import suppress

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.cpu_name import repair_cpu_name

__all__ = ["compile_all", "main"]

NICENESS = 5

# Bytes of arguments passed by value, likely ones first; numbers, vectors and structs of numbers have no others.
_SIZES = (8, 4, 2, 1, *range(12, 4096, 4))


def _fill(kernel: "cl.Kernel", index: int) -> None:
    """Set an argument: a null pointer, or as many zeros as it takes."""
    try:
        kernel.set_arg(index, None)
    except cl.Error:
        for size in _SIZES:
            with suppress(cl.Error):
                kernel.set_arg(index, bytes(size))
                return


def compile_all(
    context: "cl.Context", text: str, options: list[str], kernels: list[str], parent: int | None = None
) -> None:
    """Build a program, and launch kernels of it so that the driver compiles them.

    Parameters
    ----------
    context
        Of one device.
    text, options
        The program, exactly as it is built elsewhere.
    kernels
        Names of kernels that do nothing if all their pointers are null.
    parent
        Process for which this is done; nothing more is done when it has ended.
    """
    program = cl.Program(context, text).build(options=options, cache_dir=False)
    queue = cl.CommandQueue(context)
    for name in kernels:
        if parent not in (None, os.getppid()):
            return
        kernel = cl.Kernel(program, name)
        for index in range(kernel.num_args):
            _fill(kernel, index)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        queue.finish()


def main(platform: str, version: str, device: str) -> None:
    """Open the device, and do the job that comes, with what the other processes leave of the cores."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    platforms = (p for p in cl.get_platforms() if (p.name, p.version) == (platform, version))
    found = next(platforms).get_devices()[int(device)]
    repair_cpu_name(found)
    context, parent = cl.Context([found]), os.getppid()
    job = sys.stdin.read()
    if job:
        compile_all(context, **json.loads(job), parent=parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
