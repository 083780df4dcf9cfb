"""Costs of commands and builds of a GPU's driver, its bandwidth and its rate of arithmetic.

usage: python benchmarks/gpu_probe.py [OUT.json] [--quick] [--device-type gpu]

Needs pyopencl and NumPy; with Numba also launches from compiled code. The file is written after each part.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

GROUP = 256  # work-items
LAUNCHES = 2000
ELEMENTS = 1 << 28  # floats in each array whose copy is timed
FOUR = "x[i], q = x[i + s], r = x[i + 2 * s], t = x[i + 3 * s]"
STORES = "o[i] = p; o[i + s] = q; o[i + 2 * s] = r; o[i + 3 * s] = t;"
COPIES = {
    "float": (2, "for (uint i = g; i < n; i += s) o[i] = x[i];"),
    "float, 4 loads in flight": (
        2,
        f"for (uint i = g; i < n; i += 4 * s) {{ const float p = {FOUR}; {STORES} }}",
    ),
    "float4": (2, "for (uint i = g; i < n / 4; i += s) vo[i] = vx[i];"),
    "float4, 2 loads in flight": (
        2,
        "for (uint i = g; i < n / 4; i += 2 * s) { float4 p = vx[i], q = vx[i + s]; vo[i] = p; vo[i + s] = q; }",
    ),
    "sum of floats": (
        1,
        f"float u = 0; for (uint i = g; i < n; i += 4 * s) {{ const float p = {FOUR}; u += p + q + r + t; }} o[g] = u;",
    ),
    "sum of float4": (
        1,
        "float4 t = 0; for (uint i = g; i < n / 4; i += 2 * s) t += vx[i] + vx[i + s]; o[g] = t.x + t.y + t.z + t.w;",
    ),
}
"""Loops of work-item g of s, by name, with the arrays of n floats that each moves."""
COPY_KERNEL = """__kernel void k(__global const float *restrict x, __global float *restrict o, const uint n) {
    const uint g = get_global_id(0), s = get_global_size(0);
    __global const float4 *restrict vx = (__global const float4 *)x;
    __global float4 *restrict vo = (__global float4 *)o;
    %s
}"""
SUMS, STEPS = 16, 512  # sums of a work-item, and multiply-adds of each
BUILDS = 6  # programs
BUILT = """#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel void k%d(__global double *x) {
    const size_t g = get_global_id(0);
    x[g] = lgamma(x[g] + %d.5) * exp(x[g]) + tanh(x[g]) * pow(x[g], %d.25);
}"""


def find_device(kind: str) -> "cl.Device":
    """Return the first device of a kind, also of a driver that no .icd file names."""
    import pytensor_cl.runtime.opencl as own

    wanted = getattr(cl.device_type, kind.upper())
    return next(d for p in own.get_platforms() for d in p.get_devices(wanted))


class Probe:
    """A context and a queue of a device, and what was found."""

    def __init__(self, device: "cl.Device", is_quick: bool) -> None:
        self.device, self.is_quick = device, is_quick
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        self.found: dict[str, Any] = {"device": device.name, "driver": device.driver_version}

    def kernel(self, text: str, *arguments: Any) -> "cl.Kernel":
        """Build a kernel ``k`` and set its arguments."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel = cl.Kernel(cl.Program(self.context, text).build(cache_dir=False), "k")
        kernel.set_args(*arguments)
        return kernel

    def buffer(self, nbytes: int, flags: int = 0) -> "cl.Buffer":
        """Return a buffer of the device."""
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE | flags, nbytes)

    def best(self, action: Callable[[], Any], count: int = 1) -> float:
        """Return the least seconds of an action that does something `count` times, of one time."""
        action()
        found = []
        for _ in range(2 if self.is_quick else 7):
            start = time.perf_counter()
            action()
            found.append(time.perf_counter() - start)
        return min(found) / count

    # --- commands ---

    def commands(self) -> dict[str, float]:
        """Return microseconds of commands."""
        queue, count = self.queue, 200 if self.is_quick else LAUNCHES
        x = self.buffer(1 << 20)
        text = "__kernel void k(__global float *x, const int n) { if (n) x[get_global_id(0)] += 1; }"
        kernel = self.kernel(text, x, np.int32(0))

        def launch(times: int, where: Any = queue) -> None:
            for _ in range(times):
                cl.enqueue_nd_range_kernel(where, kernel, (GROUP,), (GROUP,))

        def host_alone() -> float:
            queue.finish()
            start = time.perf_counter()
            launch(GROUP)
            seconds = time.perf_counter() - start
            queue.finish()
            return seconds / GROUP

        seconds = {
            "launch, in a row": self.best(lambda: (launch(count), queue.finish()), count),
            "launch, the host's part": min(host_alone() for _ in range(9)),
            "launch and wait": self.best(lambda: [(launch(1), queue.finish()) for _ in range(50)], 50),
            "wait for nothing": self.best(lambda: [queue.finish() for _ in range(200)], 200),
            "set a buffer argument": self.best(lambda: [kernel.set_arg(0, x) for _ in range(500)], 500),
            "set a number": self.best(lambda: [kernel.set_arg(1, np.int32(0)) for _ in range(500)], 500),
            "make a buffer of 1 MiB": self.best(lambda: [self.buffer(1 << 20) for _ in range(50)], 50),
            **self._compiled_launches(kernel, count),
        }
        stamped = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        events = [cl.enqueue_nd_range_kernel(stamped, kernel, (GROUP,), (GROUP,)) for _ in range(100)]
        stamped.finish()
        times = [(event.profile.start / 1e9, event.profile.end / 1e9) for event in events]
        seconds["kernel, by its events"] = float(np.median([end - start for start, end in times]))
        seconds["between two kernels, by events"] = float(np.median([b[0] - a[1] for a, b in pairwise(times)]))
        launches = self.best(lambda: (launch(500, stamped), stamped.finish()), 500)
        seconds["launch, in a row, with time stamps"] = launches
        return {name: round(1e6 * value, 3) for name, value in seconds.items()}

    def _compiled_launches(self, kernel: "cl.Kernel", count: int) -> dict[str, float]:
        """Return the seconds of launches without events, from a loop that Numba compiles."""
        try:
            import numba
        except ImportError:
            return {}
        libraries = [*(Path(cl.__file__).parent / ".libs").glob("libOpenCL*")]
        enqueue = ctypes.CDLL(str(libraries[0]) if libraries else "libOpenCL.so.1").clEnqueueNDRangeKernel
        pointer = ctypes.c_void_p
        enqueue.argtypes = [pointer, pointer, ctypes.c_uint, *[pointer] * 3, ctypes.c_uint, pointer, pointer]
        enqueue.restype = ctypes.c_int
        sizes = np.array([GROUP, 1, 1], np.uint64)

        @numba.njit
        def launch(call, queue, kernel, sizes, times):
            for _ in range(times):
                call(queue, kernel, 1, 0, sizes, sizes, 0, 0, 0)

        arguments = enqueue, self.queue.int_ptr, kernel.int_ptr, sizes.ctypes.data
        launch(*arguments, 1)
        return {
            "launch, by a compiled loop": self.best(lambda: (launch(*arguments, count), self.queue.finish()), count)
        }

    # --- transfers ---

    def transfers(self) -> dict[str, dict[str, float]]:
        """Return microseconds and GB/s of transfers from and to pageable and pinned memory."""
        found = {}
        for nbytes in (4, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 27):
            if self.is_quick and nbytes > 1 << 20:
                continue
            pinned_buffer = self.buffer(nbytes, cl.mem_flags.ALLOC_HOST_PTR)
            flags = cl.map_flags.READ | cl.map_flags.WRITE
            pinned, _ = cl.enqueue_map_buffer(self.queue, pinned_buffer, flags, 0, (nbytes,), np.uint8)
            for label, memory in (("pageable", np.ones(nbytes, np.uint8)), ("pinned", pinned)):
                found[f"{label}, {nbytes} bytes"] = self._transfer(memory, nbytes)
            pinned.base.release(self.queue)
            self.queue.finish()
        return found

    def _transfer(self, memory: np.ndarray, nbytes: int) -> dict[str, float]:
        buffer, count = self.buffer(nbytes), 50 if nbytes <= 1 << 16 else 3

        def up() -> None:
            for _ in range(count):
                cl.enqueue_copy(self.queue, buffer, memory, is_blocking=False)
            self.queue.finish()

        def down() -> None:
            for _ in range(count):
                cl.enqueue_copy(self.queue, memory, buffer, is_blocking=True)

        times = {"up": self.best(up, count), "down": self.best(down, count)}
        rates = {f"{name} GB/s": round(nbytes / seconds / 1e9, 3) for name, seconds in times.items()}
        return {**{f"{name} us": round(1e6 * seconds, 2) for name, seconds in times.items()}, **rates}

    # --- bandwidth and arithmetic ---

    def bandwidth(self) -> dict[str, float]:
        """Return GB/s of the device's copy and of kernels that copy or sum, by the number of work-groups."""
        n = 1 << 20 if self.is_quick else min(ELEMENTS, self.device.max_mem_alloc_size // 4 // 16 * 16)
        n = 1 << (n.bit_length() - 1)
        a, b = (self.buffer(4 * n) for _ in range(2))
        copy = self.best(lambda: (cl.enqueue_copy(self.queue, b, a, byte_count=4 * n), self.queue.finish()))
        found = {"clEnqueueCopyBuffer": round(8 * n / copy / 1e9, 1)}
        for name, (arrays, body) in COPIES.items():
            kernel = self.kernel(COPY_KERNEL % body, a, b, np.uint32(n))
            for groups in (8, 32, 128):
                items = min(n // 4, 1 << (int(groups * self.device.max_compute_units * GROUP).bit_length() - 1))
                seconds = self._run(kernel, items)
                found[f"{name}, {groups} groups a unit"] = round(4 * arrays * n / seconds / 1e9, 1)
        return found

    def _run(self, kernel: "cl.Kernel", items: int) -> float:
        """Return the least seconds of a kernel."""

        def run() -> None:
            cl.enqueue_nd_range_kernel(self.queue, kernel, (items,), (GROUP,))
            self.queue.finish()

        return self.best(run)

    def arithmetic(self) -> dict[str, float]:
        """Return TFLOP/s of multiply-adds."""
        items, found = self.device.max_compute_units * GROUP * (1 if self.is_quick else 64), {}
        for ctype, dtype in (("float", np.float32), ("double", np.float64)):
            if ctype == "double" and "cl_khr_fp64" not in self.device.extensions:
                continue
            names = [f"a{k}" for k in range(SUMS)]
            text = (
                f"{'' if ctype == 'float' else '#pragma OPENCL EXTENSION cl_khr_fp64 : enable'}\n"
                f"__kernel void k(__global {ctype} *x, const {ctype} c, const {ctype} d) {{"
                f" {ctype} {', '.join(f'{a} = x[{k}]' for k, a in enumerate(names))};"
                f" for (int i = 0; i < {STEPS}; i++) {{ {' '.join(f'{a} = fma({a}, c, d);' for a in names)} }}"
                f" x[get_global_id(0)] = {' + '.join(names)}; }}"
            )
            x = self.buffer(8 * items)  # a kernel's argument does not keep it
            kernel = self.kernel(text, x, dtype(0.5), dtype(0.25))
            found[ctype] = round(items * STEPS * SUMS * 2 / self._run(kernel, items) / 1e12, 2)
        return found


# --- builds ---


def build_in_this_process(kind: str, seed: int, is_again: bool) -> None:
    """Print the seconds of builds; again: of the same programs a second time."""
    device = find_device(kind)
    context = cl.Context([device])

    def build() -> float:
        start = time.perf_counter()
        for k in range(seed, seed + BUILDS):
            cl.Program(context, BUILT % (k, k, k)).build(cache_dir=False)
        return time.perf_counter() - start

    warnings.simplefilter("ignore")
    first = build()
    print(json.dumps([first, build()] if is_again else [first]))


def builds(kind: str) -> dict[str, float]:
    """Return the seconds of builds: new, again, in another process, and new in four processes at a time."""
    seed = time.time_ns() // 1000 % 100_000_000  # texts that no cache has

    def start(number: int, *more: str) -> "subprocess.Popen[str]":
        command = [sys.executable, __file__, "--device-type", kind, "--build", str(number), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def result(process: "subprocess.Popen[str]") -> list[float]:
        return json.loads(process.communicate()[0].splitlines()[-1])

    first, again = result(start(seed, "--again"))
    (elsewhere,) = result(start(seed))
    processes = [start(seed + 10_000 * k) for k in range(1, 5)]
    together = max(result(process)[0] for process in processes)
    return {
        f"{BUILDS} programs": first,
        "again in the process": again,
        "again in another process": elsewhere,
        f"{BUILDS} programs in each of 4 processes": together,
    }


def main() -> None:
    """Measure all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="small arrays and few repetitions")
    parser.add_argument("--device-type", default="gpu", choices=["gpu", "cpu", "all"])
    parser.add_argument("--build", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build is not None:
        build_in_this_process(options.device_type, options.build, options.again)
        return
    probe = Probe(find_device(options.device_type), options.quick)
    parts: dict[str, Callable[[], Any]] = {
        "microseconds of commands": probe.commands,
        "transfers": probe.transfers,
        "bandwidth in GB/s": probe.bandwidth,
        "TFLOP/s of multiply-adds": probe.arithmetic,
        "seconds of builds": lambda: builds(options.device_type),
    }
    for name, part in parts.items():
        try:
            probe.found[name] = part()
        except Exception as error:  # what a driver refuses is a line of the report
            probe.found[name] = f"{type(error).__name__}: {error}"[:300]
        print(f"{name}: {probe.found[name]}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(probe.found, indent=1))


if __name__ == "__main__":
    main()
