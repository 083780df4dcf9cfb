"""Arrays and kernels of one's own on a GPU: right results, and times beside CuPy.

usage: python benchmarks/gpu_arrays.py OUT.json [--device opencl:gpu] [--seconds 40] [--scale 1]

Each result is checked against NumPy. The libraries are timed by turns: microseconds of a call in a row of calls, and of
a call that waits. A mask and a sum as a Python number wait in any case. At the end arrays are exchanged with CuPy and
PyTorch: an array of OpenCL memory on a GPU has no address that CUDA reads, so that it passes through host memory, and
its DLPack device is kDLOpenCL.
"""

import argparse
import json
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gpu_variants import by_turns

import pytensor_cl
import pytensor_cl.array as xp
from pytensor_cl.runtime.registry import get_context

TEXT = "d * d + exp(-d)"
RAW = """
{kernel} void scaled({place} const float *x, {place} float *z, const float by, const int size)
{{
    const int i = {item};
    if (i < size)
        z[i] = by * x[size - 1 - i];
}}
"""
GROUP, KDL_OPENCL = 256, 4


class Case(NamedTuple):
    """A function of arrays in NumPy, in this package and in CuPy; the arrays are the attributes of a namespace."""

    name: str
    wanted: Callable[[Any], Any]
    ours: Callable[[Any], Any]
    cupy: Callable[[Any, Any], Any]
    tolerance: float = 1e-5


class Arrays:
    """The inputs, in one library."""

    def __init__(self, host: dict[str, np.ndarray], place: Callable[[np.ndarray], Any]) -> None:
        for name, value in host.items():
            setattr(self, name, place(value))


def inputs(scale: float) -> dict[str, np.ndarray]:
    """Return the arrays, for a scale."""
    rng = np.random.default_rng(2026)
    size, side = max(1000, round(16_000_000 * scale)), max(32, round(2048 * scale**0.5))
    x, y = rng.normal(size=(2, size)).astype("float32")
    a, b = rng.normal(size=(2, side, side)).astype("float32")
    z = rng.normal(size=(max(2, round(1024 * scale)), 4096)).astype("complex64")
    return {"x": x, "y": y, "mask": x > 0, "a": a, "b": b, "z": z, "n": rng.integers(0, 1 << 30, size).astype("int32")}


def cases() -> Iterator[Case]:
    """Yield the cases; kernels are made once."""
    same = (
        ("a + b", lambda m, v: v.x + v.y),
        ("exp(-x * x) * 2 + 1", lambda m, v: m.exp(-v.x * v.x) * 2 + 1),
        ("sum", lambda m, v: m.sum(v.n)),
        ("x[mask]", lambda m, v: v.x[v.mask]),
        ("sort", lambda m, v: m.sort(v.n)),
        ("matmul", lambda m, v: m.matmul(v.a, v.b)),
        ("fft", lambda m, v: m.fft.fft(v.z)),
        ("transpose", lambda m, v: v.a.T + 0),
    )
    for name, of in same:
        yield Case(name, lambda v, of=of: of(np, v), lambda v, of=of: of(xp, v), lambda m, v, of=of: of(m, v), 1e-4)
    yield Case(
        "cumsum",
        lambda v: np.cumsum(v.n, dtype="int64"),
        lambda v: xp.cumulative_sum(v.n, dtype=xp.int64),
        lambda m, v: m.cumsum(v.n, dtype="int64"),
    )
    element = pytensor_cl.ElementwiseKernel("T x, T y", "T z", f"T d = x - y; z = {TEXT};", "gpu_element")
    total = pytensor_cl.ReductionKernel("T x, T y", "T z", "x * y", "a + b", "z = a", "0", "gpu_total")
    raw = pytensor_cl.RawKernel(RAW.format(kernel="__kernel", place="__global", item="get_global_id(0)"), "scaled")
    cu: dict[str, Any] = {}

    def cupy_kernel(m: Any, kind: str, *arguments: str) -> Any:
        if kind not in cu:
            cu[kind] = getattr(m, kind)(*arguments)
        return cu[kind]

    def raw_call(v: Any) -> Any:
        z = xp.empty(v.x.shape, dtype=xp.float32)
        raw((-(-v.x.size // GROUP),), (GROUP,), (v.x, z, 2.5, v.x.size))
        return z

    def raw_cupy(m: Any, v: Any) -> Any:
        item = "blockIdx.x * blockDim.x + threadIdx.x"
        text = RAW.format(kernel='extern "C" __global__', place="", item=item)
        z = m.empty_like(v.x)
        kernel = cupy_kernel(m, "RawKernel", text, "scaled")
        kernel((-(-v.x.size // GROUP),), (GROUP,), (v.x, z, np.float32(2.5), np.int32(v.x.size)))
        return z

    yield Case(
        "ElementwiseKernel",
        lambda v: (v.x - v.y) ** 2 + np.exp(v.y - v.x),
        lambda v: element(v.x, v.y),
        lambda m, v: cupy_kernel(m, "ElementwiseKernel", "T x, T y", "T z", f"T d = x - y; z = {TEXT};", "e")(v.x, v.y),
    )
    yield Case(
        "ReductionKernel",
        lambda v: np.sum(v.a.astype("float64") ** 2),
        lambda v: total(v.a, v.a),
        lambda m, v: cupy_kernel(m, "ReductionKernel", "T x, T y", "T z", "x * y", "a + b", "z = a", "0", "total")(
            v.a, v.a
        ),
        1e-4,
    )
    yield Case("RawKernel", lambda v: np.float32(2.5) * v.x[::-1], raw_call, raw_cupy)


def error_of(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest error, relative to the largest element; infinite for another shape."""
    if got.shape != np.shape(wanted):
        return float("inf")
    if not got.size:
        return 0.0
    return float(np.abs(got - wanted).max() / (np.abs(wanted).max() or 1))


def single(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Return the least microseconds of a call that waits."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return 1e6 * min(times)


def exchange(cupy: Any) -> dict[str, str]:
    """Exchange arrays with the libraries that are installed; each line says what happened."""
    x, found = xp.asarray(np.arange(12, dtype="float32").reshape(3, 4)), {}
    is_shared = get_context(None).info.kind == "cpu"

    def run(name: str, check: Callable[[], Any]) -> None:
        try:
            found[name] = "right" if np.array_equal(np.asarray(check()), np.asarray(x)) else "WRONG"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:200]

    found["device of an array"] = str(x.__dlpack_device__())
    if not is_shared and x.__dlpack_device__()[0] != KDL_OPENCL:
        found["device of an array"] += " WRONG"
    run("NumPy, a copy", lambda: np.from_dlpack(x, device="cpu"))
    run("NumPy and back", lambda: xp.from_dlpack(np.from_dlpack(x, device="cpu").copy()))
    run("within this package", lambda: xp.from_dlpack(x))
    if cupy is not None:
        run("CuPy, through the host", lambda: cupy.asnumpy(cupy.asarray(np.asarray(x))))
        run("from CuPy, through the host", lambda: xp.asarray(cupy.asnumpy(cupy.arange(12.0, dtype="f").reshape(3, 4))))
    try:
        import torch
    except ImportError:
        return found
    run("PyTorch, a copy", lambda: torch.from_dlpack(np.from_dlpack(x, device="cpu")).numpy())
    run("from PyTorch, of the host", lambda: xp.from_dlpack(torch.arange(12.0).reshape(3, 4)))
    if torch.cuda.is_available():
        tensor = torch.arange(12.0, device="cuda").reshape(3, 4)
        run("from PyTorch, of the GPU through the host", lambda: xp.asarray(tensor.cpu().numpy()))
        run("from PyTorch, of the GPU", lambda: xp.from_dlpack(tensor))  # a copy through the host
    return found


def main() -> None:
    """Check and time the cases until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="opencl:gpu")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    pytensor_cl.use(options.device, "dev0")
    cupy = None
    try:
        import cupy

        cupy.zeros(1)
    except Exception as error:  # not installed, or no GPU
        print(f"CuPy: {type(error).__name__}")
        cupy = None
    host = inputs(options.scale)
    numbers, ours = Arrays(host, lambda a: a), Arrays(host, xp.asarray)
    theirs = None if cupy is None else Arrays(host, cupy.asarray)
    report: dict[str, Any] = {"device": get_context(None).info.name, "cases": {}, "exchange": {}}

    def wait() -> None:
        pytensor_cl.sync()
        if cupy is not None:
            cupy.cuda.get_current_stream().synchronize()

    report["exchange"] = exchange(cupy)
    print(*(f"{name}: {said}" for name, said in report["exchange"].items()), sep="\n")
    for case in cases():
        if time.monotonic() > end:
            print("no time is left")
            break
        entry = report["cases"][case.name] = {}
        try:
            error = error_of(np.asarray(case.ours(ours)), case.wanted(numbers))
            entry |= {"error": error, "right": bool(error <= case.tolerance)}
            calls = {"ours": lambda case=case: case.ours(ours)}
            if theirs is not None:
                calls["CuPy"] = lambda case=case: case.cupy(cupy, theirs)
            entry |= by_turns(calls, wait, end)
            entry["single"] = {name: single(call, wait) for name, call in calls.items()}
            beside = ""
            if theirs is not None:
                beside = f"  CuPy {entry['CuPy']:9.1f} us  {entry['CuPy'] / entry['ours']:5.2f}"
            alone = "/".join(f"{us:.0f}" for us in entry["single"].values())
            verdict = "" if entry["right"] else f"  WRONG by {error:.1e}"
            print(f"{case.name:22} {entry['ours']:9.1f} us{beside}  alone {alone}{verdict}", flush=True)
        except Exception:  # the other cases run all the same
            entry["failed"] = traceback.format_exc()[-1500:]
            print(case.name, entry["failed"], sep="\n", flush=True)
        options.out.write_text(json.dumps(report, indent=1))
    options.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
