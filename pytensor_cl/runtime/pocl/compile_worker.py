"""Compile the kernels of a program in a worker process.

Usage: ``python -m pytensor_cl.runtime.pocl.compile_worker PLATFORM VERSION DEVICE``, with the program on stdin as JSON.

`compile_workers` starts it. Kernels are launched with null pointers only. Kernels that `outline` has changed do nothing
then.
"""

import json
import os
import sys
from contextlib import suppress

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation.kernel_objects import new_kernel
from pytensor_cl.runtime.cpu_name import repair_cpu_name
from pytensor_cl.runtime.pocl.compiler_start import start_compiler

NICENESS = 5

# Sizes of by-value arguments in bytes, common ones first. Numbers, vectors and structs of numbers have no others.
_SIZES = (8, 4, 2, 1, *range(12, 4096, 4))


def _fill(kernel: "cl.Kernel", index: int) -> None:
    """Set an argument to a null pointer, or to zeros of the size that the driver accepts."""
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

    `text`, `options`: the program, exactly as the parent process builds it; `kernels`: names of kernels that do nothing
    if all their pointers are null; `parent`: number of the parent process. When it has ended, the remaining kernels are
    not compiled.
    """
    program = cl.Program(context, text).build(options=options, cache_dir=False)
    queue = cl.CommandQueue(context)
    for name in kernels:
        if parent not in (None, os.getppid()):
            return
        kernel = new_kernel(program, name)
        for index in range(kernel.num_args):
            _fill(kernel, index)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        queue.finish()


def main(platform: str, version: str, device: str) -> None:
    """Open the device, then read a job from stdin and do it, at a lower priority than the parent."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    platforms = (p for p in cl.get_platforms() if (p.name, p.version) == (platform, version))
    found = next(platforms).get_devices()[int(device)]
    repair_cpu_name(found)
    context, parent = cl.Context([found]), os.getppid()
    start_compiler(found)  # while the parent builds the program
    job = sys.stdin.read()
    if job:
        compile_all(context, **json.loads(job), parent=parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
