"""All workloads on a GPU: this package beside CuPy, JAX and PyTorch, in one process.

usage: python benchmarks/gpu.py OUT.json [--scale 4] [--only TEXT ...] [--backends opencl cupy jax torch]
                                [--device opencl:gpu] [--seconds 150] [--profile] [--binaries FILE.tar.xz] [--list]

Every result is checked against float64 first (computed by CuPy where it is installed, else by NumPy). Inputs and
results stay on the GPU, for models too. There are two times of each backend: `row_us`, the time of a call when many are
enqueued before the host waits, and `single_us`, when it waits for each. Both are medians of rounds in which the
backends take turns. No backend uses TF32. `--only` takes the workloads in whose family or name one of the texts occurs.
With `--profile` the report has the kernels of each workload with their times by the device's clock, and `--binaries`
keeps what the driver made of the programs (PTX for NVIDIA's). The file is written after each workload; a backend that
is not installed, or fails, does not end the run.
"""

import argparse
import io
import json
import os
import tarfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("CUPY_TF32", "0")

import numpy as np
import worker
from gpu_cases import CASES, FIRST_CALLS, Case, Step

ROUNDS = 5
IN_A_ROW = 0.03  # seconds of calls in a row
NO_CACHE = 200 << 20  # bytes that no cache holds: the sets of inputs of a workload together have as many
SMALL = 1 << 20  # bytes of inputs that may stay in a cache
LARGEST_ARCHIVE = 15 << 20  # bytes of the binaries before they are packed


class FastRng:
    """NumPy's Generator; large arrays of normal numbers are made on the GPU by CuPy, where it is installed."""

    def __init__(self, seed: int, cupy: Any) -> None:
        self._rng, self._cupy = np.random.default_rng(seed), cupy
        if cupy is not None:
            cupy.random.seed(seed)

    def normal(self, size: Any = None) -> Any:
        """Return standard normal numbers."""
        if self._cupy is None or size is None or np.prod(size) < 1 << 20:
            return self._rng.normal(size=size)
        shape = (int(size),) if np.ndim(size) == 0 else tuple(size)
        return self._cupy.random.standard_normal(shape, dtype=np.float32).get()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)


class OpenCL(worker.OpenCL):
    """This package, with device arrays in and out."""

    def function(self, variables: list[Any], results: list[Any], updates: Any = None) -> Callable[..., Any]:
        """Compile; results stay on the device."""
        import pytensor

        import pytensor_cl

        kinds = [pytensor_cl.GpuArrayType(v.type.dtype, v.type.shape, self.context)() for v in variables]
        given = dict(zip(variables, map(pytensor_cl.host_from_gpu, kinds), strict=True))
        with pytensor.config.change_flags(opencl__placement="device", opencl__select_backend=False):
            outputs = [r.transfer(self.context) for r in results]
            f = pytensor.function(kinds, outputs, updates=updates, mode="OPENCL", givens=given)
        f.trust_input = True
        self.compiled = f
        return f

    def wait(self, result: Any) -> None:
        """Wait for a result."""
        import pytensor_cl

        if result:
            result[0].sync()
        else:
            pytensor_cl.sync()

    def kernels(self, call: Callable[..., Any], values: list[Any]) -> str:
        """Return the profile of calls that run step by step."""
        import pytensor_cl

        with pytensor_cl.profile(self.compiled) as found:
            for _ in range(5):
                self.wait(call(*values))
        return str(found)[:4000]

    def add_binaries(self, found: dict[str, bytes]) -> None:
        """Add the binaries of the programs, by the first of their kernels."""
        import pyopencl as cl

        from pytensor_cl.runtime.registry import get_context

        programs = get_context(self.context).programs
        for program in {*programs._programs.values(), *programs._recent}:
            names = program.get_info(cl.program_info.KERNEL_NAMES).split(";")
            (binary,) = program.get_info(cl.program_info.BINARIES)
            found.setdefault(f"{names[0]}-{len(names)}", binary)


class CuPy(worker.Backend):
    def __init__(self, device: str) -> None:
        super().__init__(device)
        import cupy

        cupy.zeros(1)  # fails here where there is no GPU
        self.module = cupy

    def place(self, arrays: list[np.ndarray]) -> list[Any]:
        return [self.module.asarray(a) for a in arrays]

    def wait(self, result: Any) -> None:
        self.module.cuda.get_current_stream().synchronize()

    def release(self) -> None:
        self.module.get_default_memory_pool().free_all_blocks()

    def host(self, results: Any) -> list[np.ndarray]:
        return [self.module.asnumpy(r) for r in (results if isinstance(results, list | tuple) else [results])]


class JAX(worker.JAX):
    def __init__(self, device: str) -> None:
        super().__init__(device)
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")
        self.module, self.jit, self.value_and_grad = jax.numpy, jax.jit, jax.value_and_grad
        self.wait = jax.block_until_ready


class Torch(worker.Backend):
    def __init__(self, device: str) -> None:
        super().__init__(device)
        import torch

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True  # the fastest algorithm of each convolution
        self.module, self.device_name = torch, "cuda" if torch.cuda.is_available() else "cpu"

    def place(self, arrays: list[np.ndarray]) -> list[Any]:
        return [self.module.asarray(np.asarray(a)).to(self.device_name) for a in arrays]

    def wait(self, result: Any) -> None:
        if self.device_name == "cuda":
            self.module.cuda.synchronize()

    def release(self) -> None:
        if self.device_name == "cuda":
            self.module.cuda.empty_cache()

    def host(self, results: Any) -> list[np.ndarray]:
        return [r.cpu().numpy() for r in (results if isinstance(results, list | tuple) else [results])]


BACKENDS: dict[str, type[worker.Backend]] = {"opencl": OpenCL, "cupy": CuPy, "jax": JAX, "torch": Torch}


def reference(case: Case, arrays: list[np.ndarray], cupy: Any) -> list[np.ndarray]:
    """Return the results in float64."""
    wide = [a.astype("float64") if np.asarray(a).dtype.kind == "f" else a for a in arrays]
    if cupy is not None:
        try:
            return [cupy.asnumpy(r) for r in case.wanted(cupy, *map(cupy.asarray, wide))]
        except Exception:  # what CuPy does not take, such as constants of NumPy
            cupy.get_default_memory_pool().free_all_blocks()
    return [np.asarray(r) for r in case.wanted(np, *wide)]


class Timed:
    """A case on one backend, ready to be timed."""

    def __init__(self, backend: Any, case: Case, sets: list[list[np.ndarray]]) -> None:
        self.backend = backend
        start = time.perf_counter()
        self.call = case.makers[backend.name](backend, sets[0])
        self.sets = [[]] if case.is_stateful else [backend.place(arrays) for arrays in sets]
        for _ in range(FIRST_CALLS):
            result = self.call(*self.sets[0])
        self.results = backend.host(self.call.read() if isinstance(self.call, Step) else result)
        self.compile_seconds = time.perf_counter() - start
        self.samples: list[tuple[float, float]] = []
        self._count = 0

    def _row(self, count: int) -> float:
        """Return the seconds of calls before the host waits."""
        start = time.perf_counter()
        for k in range(count):
            result = self.call(*self.sets[k % len(self.sets)])
        self.backend.wait(result)
        return time.perf_counter() - start

    def measure(self) -> None:
        """Add the seconds of a call, in a row and alone."""
        if not self._count:
            self._count = max(3, min(2000, int(3 * IN_A_ROW / max(1e-7, self._row(3)))))
        row = self._row(self._count) / self._count
        single = []
        for k in range(min(self._count, 50)):
            start = time.perf_counter()
            self.backend.wait(self.call(*self.sets[k % len(self.sets)]))
            single.append(time.perf_counter() - start)
        self.samples.append((row, median(single)))

    def times(self) -> dict[str, float]:
        """Return microseconds."""
        rows, singles = zip(*self.samples, strict=True)
        return {"row_us": 1e6 * median(rows), "single_us": 1e6 * median(singles), "best_row_us": 1e6 * min(rows)}


def failure(error: Exception) -> dict[str, str]:
    """Return what the report says of an error."""
    return {
        "failed": f"{type(error).__name__}: {error}"[:400],
        "trace": "".join(traceback.format_exception(error))[-1500:],
    }


def prepared(case: Case, backends: dict[str, Any], sets: list[list[np.ndarray]], cupy: Any, found: dict) -> dict:
    """Return the backends that are ready; note errors and times of compilation in `found`."""
    wanted = reference(case, sets[0], cupy)
    ready = {}
    for name, backend in backends.items():
        if name not in case.makers:
            continue
        try:
            timed = Timed(backend, case, sets)
            error = case.error(timed.results, wanted)
            found[name] = {
                "compile": timed.compile_seconds,
                "error": error,
                "right": bool(error <= case.tolerance),
                "output_bytes": sum(r.nbytes for r in timed.results),
            }
            timed.results = []
            ready[name] = timed
        except Exception as error:  # one backend's error is a line of the report
            found[name] = failure(error)
    return ready


def take_turns(ready: dict[str, Timed], found: dict[str, dict]) -> None:
    """Time the backends by turns."""
    for turn in range(ROUNDS):
        names = list(ready)
        first = turn % max(1, len(names))
        for name in names[first:] + names[:first]:
            try:
                ready[name].measure()
            except Exception as error:
                found[name] |= failure(error)
                del ready[name]
    for name, timed in ready.items():
        found[name] |= timed.times()


def measure(case: Case, backends: dict[str, Any], scale: float, cupy: Any, has_profile: bool) -> dict[str, Any]:
    """Return what the report says of a case."""
    rng, found = FastRng(2026, cupy), {}
    arrays = case.make(rng, scale)
    nbytes = 0 if case.family == "draws" else sum(np.asarray(a).nbytes for a in arrays)
    many = 1 if case.is_stateful or nbytes < SMALL else min(8, -(-NO_CACHE // nbytes))
    sets = [arrays, *(case.make(rng, scale) for _ in range(many - 1))]
    ready = prepared(case, backends, sets, cupy, found)
    take_turns(ready, found)
    entry = {
        "family": case.family,
        "bytes": nbytes + found.get("opencl", {}).get("output_bytes", 0),
        "flops": case.flops(arrays),
        "shapes": [np.shape(a) for a in arrays[:6]],
        "sets": many,
        "backends": found,
    }
    if has_profile and "opencl" in ready:
        ours = ready["opencl"]
        try:
            entry["profile"] = ours.backend.kernels(ours.call, ours.sets[0])
        except Exception as error:
            entry["profile"] = failure(error)["failed"]
    return entry


def line_of(name: str, entry: dict[str, Any]) -> str:
    """Return a line for the terminal: microseconds in a row and alone."""
    parts = []
    for backend, found in entry["backends"].items():
        if "row_us" not in found:
            parts.append(f"{backend} failed: {found['failed'][:60]}")
            continue
        wrong = "" if found["right"] else f" WRONG by {found['error']:.1e}"
        parts.append(f"{backend} {found['row_us']:.4g}/{found['single_us']:.4g} us{wrong}")
    ours = entry["backends"].get("opencl", {}).get("row_us")
    if ours:
        parts.append(f"{entry['bytes'] / ours / 1e3:.0f} GB/s")
    if ours and entry["flops"]:
        parts.append(f"{entry['flops'] / ours / 1e6:.2f} TFLOP/s")
    return f"{name:40} " + "  ".join(parts)


def write_archive(path: Path, binaries: dict[str, bytes]) -> None:
    """Write binaries until the limit."""
    room = LARGEST_ARCHIVE
    with tarfile.open(path, "w:xz") as archive:
        for name, binary in binaries.items():
            room -= len(binary)
            if room < 0:
                break
            entry = tarfile.TarInfo(name)
            entry.size = len(binary)
            archive.addfile(entry, io.BytesIO(binary))


def opened(names: list[str], device: str, failed: dict[str, str]) -> dict[str, Any]:
    """Return the backends that are installed."""
    backends = {}
    for name in names:
        try:
            backends[name] = BACKENDS[name](device)
            backends[name].name = name
        except Exception as error:
            failed[name] = failure(error)["failed"]
    return backends


def versions(backends: dict[str, Any]) -> dict[str, str]:
    """Return the versions of the peers."""
    from importlib.metadata import packages_distributions, version

    found = {name: packages_distributions().get(name, []) for name in backends if name != "opencl"}
    return {name: version(packages[0]) for name, packages in found.items() if packages}


def device_facts(context: str) -> dict[str, str]:
    """Return name and driver of the device."""
    from pytensor_cl.runtime.registry import get_context

    info = get_context(context).info
    return {"name": info.name, "platform": info.platform, "driver": info.driver}


def is_chosen(case: Case, texts: list[str]) -> bool:
    """Return whether a text occurs in the family and name of a case."""
    return not texts or any(text in f"{case.family} {case.name}" for text in texts)


def main() -> None:
    """Measure what is chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("gpu.json"))
    parser.add_argument("--scale", type=float, default=4.0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--backends", nargs="*", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--device", default="opencl:gpu")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--binaries", type=Path, help="an archive of what the driver made of each program")
    parser.add_argument("--list", action="store_true", help="print the workloads and end")
    options = parser.parse_args()
    chosen = [case for case in CASES if is_chosen(case, options.only)]
    if options.list:
        print(*(f"{case.family}: {case.name}" for case in chosen), sep="\n")
        return
    end = time.monotonic() + options.seconds
    report: dict[str, Any] = {"scale": options.scale, "failed": {}, "results": {}}
    backends, binaries = opened(options.backends, options.device, report["failed"]), {}
    cupy = backends["cupy"].module if "cupy" in backends else None
    report["versions"] = versions(backends)
    if "opencl" in backends:
        report["device"] = device_facts(backends["opencl"].context)
    for case in chosen:
        if time.monotonic() > end:
            report["failed"]["time"] = f"no time for {case.name} and those after it"
            break
        entry = report["results"][case.name] = measure(case, backends, options.scale, cupy, options.profile)
        if options.binaries and "opencl" in backends:
            backends["opencl"].add_binaries(binaries)
        options.out.write_text(json.dumps(report, indent=1))
        print(line_of(case.name, entry), flush=True)
        for backend in backends.values():
            backend.release()
    options.out.write_text(json.dumps(report, indent=1))
    if options.binaries:
        write_archive(options.binaries, binaries)
    print(json.dumps(report["failed"]))


if __name__ == "__main__":
    main()
