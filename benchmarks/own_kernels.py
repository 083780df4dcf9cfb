"""Time of kernels of one's own, beside pyopencl's kernels of the same texts.

usage: python benchmarks/own_kernels.py [device ...]

The calls are made by turns on one queue, and the least time counts: of small arrays that of the call alone, of large
ones that until the device has finished.
"""

import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
import pyopencl.array as cl_array
from pyopencl.elementwise import ElementwiseKernel as PyopenclElementwise
from pyopencl.reduction import ReductionKernel as PyopenclReduction

from pytensor_cl import ElementwiseKernel, ReductionKernel
from pytensor_cl.runtime.context import Context, open_context

SMALL, LARGE = 1000, 4_000_000
CALLS, ROUNDS = 200, 40
EXPRESSIONS = ("x * y", "exp(x) * y", "x > 0.5f ? x : y")

Calls = dict[str, Callable[[], object]]


def elementwise_calls(context: Context, expression: str, size: int) -> Calls:
    """Return the calls of an elementwise kernel, with outputs that are given, and with new ones."""
    x, y = np.random.default_rng(0).random((2, size), "float32")
    own = ElementwiseKernel("T x, T y", "T z", f"z = {expression}")
    a, b, c = (context.from_host(v) for v in (x, y, y))
    queue = context.queue.expose_handle()
    indexed = expression.replace("(x)", "(x[i])").replace("x ", "x[i] ").replace("y", "y[i]")
    other = PyopenclElementwise(queue.context, "float *x, float *y, float *z", f"z[i] = {indexed}")
    d, e, f = (cl_array.to_device(queue, v) for v in (x, y, y))
    return {
        "ours": lambda: own(a, b, c),
        "pyopencl": lambda: other(d, e, f),
        "ours, new output": lambda: own(a, b),
        "pyopencl, new output": lambda: other(d, e, cl_array.empty_like(d)),
    }


def reduction_calls(context: Context, size: int) -> Calls:
    """Return the calls of a sum of squares: as an expression that is recognised, and as one that is not."""
    x = np.random.default_rng(0).random(size, "float32")
    texts = ("a + b", "a + b + 0 * b")
    known, general = (ReductionKernel("T x", "T y", "x * x", text, "y = a", "0") for text in texts)
    queue = context.queue.expose_handle()
    other = PyopenclReduction(queue.context, np.float32, "0", "a + b", "x[i] * x[i]", "float *x")
    a, b = context.from_host(x), cl_array.to_device(queue, x)
    return {"ours": lambda: known(a), "ours, general": lambda: general(a), "pyopencl": lambda: other(b)}


def least(context: Context, calls: Calls, count: int, is_waiting: bool) -> dict[str, float]:
    """Return the least time of each call in microseconds."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = perf_counter()
            for _ in range(count):
                call()
            if is_waiting:
                context.queue.handle.finish()
            best[name] = min(best[name], (perf_counter() - start) / count * 1e6)
            context.queue.handle.finish()
    return best


def main() -> None:
    """Print a line for each kernel and size."""
    for device in sys.argv[1:] or ("opencl:pocl", "opencl:intel"):
        context = open_context(device)
        print(device)
        for name in (*EXPRESSIONS, "sum of squares"):
            for size, count, is_waiting in ((SMALL, CALLS, False), (LARGE, 1, True)):
                is_elementwise = name in EXPRESSIONS
                calls = elementwise_calls(context, name, size) if is_elementwise else reduction_calls(context, size)
                times = least(context, calls, count, is_waiting)
                print(f"  {name}, {size:,}:", ", ".join(f"{what} {time:.1f} us" for what, time in times.items()))


if __name__ == "__main__":
    main()
