"""Time of the call of a raw kernel, beside pyopencl's call of the same kernel.

usage: python benchmarks/raw_kernels.py [device ...]

The calls are made by turns, and the least time counts. pyopencl is called twice: as a kernel is, and with the types of
its numbers declared by `set_scalar_arg_dtypes`. It checks no arguments.
"""

import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
import pyopencl as cl

from pytensor_cl import RawKernel
from pytensor_cl.runtime.context import open_context

CODE = """
__kernel void scale(__global const float *x, __global float *y, int n, float a) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i];
}
"""
SIZE, CALLS, ROUNDS = 64, 200, 60


def calls_of(device: str) -> dict[str, Callable[[], object]]:
    """Return the calls by what they are called in the table."""
    context = open_context(device)
    x, y = (context.from_host(np.ones(SIZE, "float32")) for _ in range(2))
    program = cl.Program(context.cl_context, CODE).build()
    plain, typed = cl.Kernel(program, "scale"), cl.Kernel(program, "scale")
    typed.set_scalar_arg_dtypes([None, None, np.int32, np.float32])
    queue, group, n, a = context.queue.handle, (SIZE,), np.int32(SIZE), np.float32(2)
    own = RawKernel(CODE, "scale")
    return {
        "RawKernel, NumPy's numbers": lambda: own(1, SIZE, (x, y, n, a)),
        "RawKernel, Python's numbers": lambda: own(1, SIZE, (x, y, SIZE, 2.0)),
        "pyopencl": lambda: plain(queue, group, group, x.buffer, y.buffer, n, a),
        "pyopencl, declared types": lambda: typed(queue, group, group, x.buffer, y.buffer, n, a),
        "wait": queue.finish,
    }


def main() -> None:
    """Print the microseconds of each call."""
    for device in sys.argv[1:] or ("opencl:pocl", "opencl:intel"):
        calls = calls_of(device)
        wait, best = calls.pop("wait"), dict.fromkeys(calls, float("inf"))
        for _ in range(ROUNDS):
            for name, call in calls.items():
                start = perf_counter()
                for _ in range(CALLS):
                    call()
                best[name] = min(best[name], (perf_counter() - start) / CALLS * 1e6)
                wait()
        print(device)
        for name, time in best.items():
            print(f"  {name:28} {time:6.2f} us")


if __name__ == "__main__":
    main()
