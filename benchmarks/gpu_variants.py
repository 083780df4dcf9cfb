"""Time on a GPU what a measurement has to choose: tiles of products, scatter-adds, reductions in one launch.

usage: python benchmarks/gpu_variants.py OUT.json [--device opencl:gpu] [--seconds 55] [--scale 1]
                                         [--only products tiles scatter reductions]

Every result is checked. All variants of a section, and cuBLAS by CuPy or PyTorch where one is installed, are timed by
turns in this process: a time is the median over rounds of a call in a row of calls. The last line of the section on
products is the content of a file for the variable PYTENSOR_CL_TUNING. The section on scatter-adds has each launch with
its time by the device's clock. The file is written after each section.
"""

import argparse
import json
import re
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pytensor_cl.routines.gemm.limits import SIMT_FORMS
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.routines.gemm.schedule_simt import large_tiles
from pytensor_cl.routines.indexing.gather_scatter import Scatter
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.context import Context, open_context
from pytensor_cl.runtime.timed_queue import read_commands, timed

ROUNDS = 7
SECONDS_IN_A_ROW = 0.01
SIZES = (1024, 2048, 4096)
CHECKED_ROWS = 16  # rows of a product that are computed in float64
TOLERANCE = 1e-4
# What the default form takes without some of its loads: which of them bound it. The results are wrong then.
WITHOUT = {
    "no global loads": (r"[ab]_\d+ = \*\(__global const float4 \*\)[^;]*;", ""),
    "no local loads": (r"const float4 ([ab])(\d) = \*\(__local const float4 \*\)[^;]*;", r"const float4 \1\2 = \1_0;"),
}

Call = Callable[[], Any]


def by_turns(calls: dict[str, Call], wait: Callable[[], None], end: float) -> dict[str, float]:
    """Return microseconds of each call in a row; `wait` waits for what all calls have enqueued."""
    counts, samples = {}, defaultdict(list)

    def row(call: Call, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        return (time.perf_counter() - start) / count

    for name, call in calls.items():
        row(call, 1)
        counts[name] = max(2, min(500, int(SECONDS_IN_A_ROW / max(1e-7, row(call, 2)))))
    for turn in range(ROUNDS):
        if turn and time.monotonic() > end:
            break
        for name, call in calls.items():
            samples[name].append(1e6 * row(call, counts[name]))
    return {name: median(found) for name, found in samples.items()}


def peers() -> dict[str, tuple[Callable[[np.ndarray], Any], Callable[[Any, Any], Any], Callable[[], None]]]:
    """Return for each library that has a GPU: how it places an array, multiplies, and waits. None uses TF32."""
    found: dict[str, Any] = {}
    try:
        import cupy

        cupy.zeros(1)
        found["CuPy"] = cupy.asarray, cupy.matmul, cupy.cuda.get_current_stream().synchronize
    except Exception as error:  # not installed, or no GPU
        print(f"CuPy: {type(error).__name__}")
    try:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        if torch.cuda.is_available():
            found["PyTorch"] = lambda a: torch.asarray(a).cuda(), torch.matmul, torch.cuda.synchronize
    except Exception as error:
        print(f"PyTorch: {type(error).__name__}")
    return found


# --- products ---


def _forms(context: Context, a: np.ndarray, b: np.ndarray, end: float, found: dict[str, Any]) -> dict[str, Call]:
    """Return a call for each form that gives the right product."""
    calls: dict[str, Call] = {}
    rows = np.linspace(0, len(a) - 1, CHECKED_ROWS).astype(int)
    wanted = a[rows].astype("float64") @ b.astype("float64")
    left, right = context.from_host(a), context.from_host(b)
    for form, described in enumerate(SIMT_FORMS):
        name = f"form {form}"
        if calls and time.monotonic() > end:
            break
        try:
            routine = Gemm(context, "float32", schedule="simt")
            ((tile, _), *_) = large_tiles(np.dtype("float32"), 0, form)
            routine._work_group_tile = lambda _, tile=tile: tile  # whatever the sizes would choose
            start = time.perf_counter()
            (out,) = routine(left, right)
            error = np.abs(out.to_host()[rows] - wanted).max() / np.abs(wanted).max()
            found[name] = {"form": described, "build_s": time.perf_counter() - start, "error": float(error)}
            if error > TOLERANCE:
                print(f"{name} {described}: WRONG by {error:.1e}")
                continue
            calls[name] = partial(routine.launch, (out,), (left, right))
        except Exception as error:  # a form that the driver does not build is a line of the report
            found[name] = {"form": described, "failed": f"{type(error).__name__}: {error}"[:300]}
            print(f"{name} {described}: {found[name]['failed'][:100]}")
    return calls


def _parts(context: Context, a: np.ndarray, b: np.ndarray) -> dict[str, Call]:
    """Return a call for each part of the default form."""
    calls: dict[str, Call] = {}
    ((tile, _), *_) = large_tiles(np.dtype("float32"), 0)
    left, right = context.from_host(a), context.from_host(b)
    for name, (pattern, by) in WITHOUT.items():
        routine = Gemm(context, "float32", schedule="simt")
        routine._work_group_tile = lambda _, tile=tile: tile
        source = routine._source(tile)
        text, count = re.subn(pattern, by, source.source)
        if not count:
            raise ValueError(f"{name}: the kernel's text has changed")
        changed = f"{source.name}_{name.replace(' ', '_')}"
        routine._sources[tile, "int"] = source._replace(name=changed, source=text.replace(source.name, changed))
        (out,) = routine(left, right)
        calls[name] = partial(routine.launch, (out,), (left, right))
    return calls


def products(context: Context, scale: float, end: float) -> dict[str, Any]:
    """Time the forms of the largest tile of float32 beside cuBLAS."""
    rng, report, others = np.random.default_rng(2026), {}, peers()
    rates: dict[str, list[float]] = defaultdict(list)
    for size in (round(n * scale) for n in SIZES):
        a, b = (rng.normal(size=(size, size)).astype("float32") for _ in range(2))
        found: dict[str, Any] = {}
        calls, waits = _forms(context, a, b, end, found), [context.queue.wait]
        if size == round(SIZES[-1] * scale) and time.monotonic() < end:
            try:
                calls |= _parts(context, a, b)
            except Exception as error:  # the forms are timed all the same
                print(f"parts: {type(error).__name__}: {error}")
        for name, (place, multiply, wait) in others.items():
            x, y = place(a), place(b)
            calls[name] = partial(multiply, x, y)
            waits.append(wait)
        times = by_turns(calls, lambda waits=waits: [wait() for wait in waits] and None, end)
        for name, us in times.items():
            rate = 2e-6 * size**3 / us
            rates[name].append(rate)
            found[name] = {**found.get(name, {}), "row_us": us, "tflops": rate}
            form = str(found[name].get("form", ""))
            print(f"{size:5} {name:10} {form:28} {us:9.1f} us  {rate:6.2f} TFLOP/s", flush=True)
        report[str(size)] = found
    complete = {name: prod(r) for name, r in rates.items() if name.startswith("form") and len(r) == len(SIZES)}
    if complete:
        fastest = max(complete, key=complete.__getitem__)
        report["fastest"] = int(fastest.split()[1])
        print(f'fastest: {fastest} {SIMT_FORMS[report["fastest"]]}\n{{"gemm.form": {report["fastest"]}}}')
    return report


# --- tiles ---

# Sizes of products: m, n, k, length of the batch, and which matrices are transposed.
TILE_SIZES = {
    "float32": (
        (4096, 4096, 4096, 0, ""), (2048, 2048, 2048, 0, ""), (1024, 1024, 1024, 0, ""), (512, 512, 512, 0, ""),
        (1024, 512, 784, 0, ""), (784, 512, 1024, 0, "a"), (1024, 512, 256, 0, "b"), (512, 256, 1024, 0, "a"),
        (80_000, 64, 64, 0, ""), (64, 64, 80_000, 0, "a"), (1024, 10, 256, 0, ""), (128, 128, 128, 256, ""),
        (256, 3136, 64, 32, ""),
    ),
    "float64": (
        (4096, 4096, 4096, 0, ""), (2048, 2048, 2048, 0, ""), (1024, 1024, 1024, 0, ""), (512, 512, 512, 0, ""),
        (64, 64, 100_000, 0, "a"), (20_000, 64, 64, 0, ""), (128, 128, 128, 256, ""),
    ),
}  # fmt: skip
PARTS = 1, 2, 4, 8, 16
MOST_GROUPS_PER_UNIT = 4  # work-groups per compute unit, where k is divided


def _tile_calls(
    context: Context, dtype: str, arrays: tuple[Any, Any], shape: tuple[int, int, int], known: dict[str, Any]
) -> dict[str, Call]:
    """Return a call for each tile and number of parts; `known`: routines with programs, by the name of the tile."""
    (a, b), (m, n, k), info = arrays, shape, context.info
    kind = BatchedGemm if a.ndim > 2 else Gemm
    default = kind(context, dtype, schedule="simt")
    (out,) = default(a, b)
    wanted, calls = out.to_host(), {"chosen": partial(default.launch, (out,), (a, b))}
    features = info.features
    for tile, _ in large_tiles(np.dtype(dtype), features.matrix_f64, 0, features.warp_shuffles):
        name = f"{tile.rows} x {tile.columns}, step {tile.step}, {tile.slices} slices"
        for parts in PARTS:
            groups = tile.tiles(m, n) * parts
            if parts > 1 and (a.ndim > 2 or k < 64 * parts or groups > MOST_GROUPS_PER_UNIT * info.compute_units):
                continue
            routine = kind(context, dtype, schedule="simt")
            routine._sources, routine._kernels = known.setdefault((name, kind), (routine._sources, routine._kernels))
            divided = tile._replace(split_k=parts)
            routine._work_group_tile = lambda _, tile=divided: tile
            (got,) = routine(a, b)
            error = np.abs(got.to_host() - wanted).max() / np.abs(wanted).max()
            if error < TOLERANCE:
                calls[f"{name}, {parts} parts"] = partial(routine.launch, (got,), (a, b))
            else:
                print(f"{name}, {parts} parts, {m} x {n} x {k}: WRONG by {error:.1e}")
    return calls


def tiles(context: Context, scale: float, end: float) -> dict[str, Any]:
    """Time every tile with its sums in registers, and the one that is chosen, with k in several parts."""
    rng, report = np.random.default_rng(2026), {}
    for dtype, sizes in TILE_SIZES.items():
        known: dict[str, Any] = {}
        if dtype == "float64" and not context.info.has_fp64:
            continue
        for *lengths, batch, transposed in sizes:
            if time.monotonic() > end:
                break
            m, n, k = (max(4, round(length * scale)) for length in lengths)
            before = (batch,) if batch else ()
            a = context.from_host(rng.normal(size=(*before, *((k, m) if "a" in transposed else (m, k)))).astype(dtype))
            b = context.from_host(rng.normal(size=(*before, *((n, k) if "b" in transposed else (k, n)))).astype(dtype))
            arrays = a.T if "a" in transposed else a, b.T if "b" in transposed else b
            times = by_turns(_tile_calls(context, dtype, arrays, (m, n, k), known), context.queue.wait, end)
            name = f"{dtype} {m} x {n} x {k}" + (f", {batch} of them" if batch else "")
            report[name] = times
            best, rate = min(times, key=times.__getitem__), 2e-6 * m * n * k * max(1, batch)
            print(
                f"{name:40} chosen {times['chosen']:8.1f} us {rate / times['chosen']:6.2f} TFLOP/s; "
                f"fastest {times[best]:8.1f} us: {best}",
                flush=True,
            )
    return report


# --- scatter-adds ---


def _launches(context: Context, call: Call) -> list[tuple[str, float]]:
    """Return the kernels of a call, and their microseconds by the device's clock: the least of some calls."""
    runs = []
    for _ in range(5):
        with timed([context]) as (log,):
            call()
            context.queue.wait()
        runs.append([(c.name, (c.end - c.start) / 1e3) for c in read_commands(log)])
    return [(name, min(run[k][1] for run in runs)) for k, (name, _) in enumerate(runs[0])]


def scatter(context: Context, scale: float, end: float) -> dict[str, Any]:
    """Time additions to many rows: sorted, or atomic, and each of their launches."""
    rng, report = np.random.default_rng(2026), {}
    for name, values, rows, columns in (("many rows", 1_600_000, 200_000, 32), ("few rows", 800_000, 5000, 32)):
        count, length = max(2000, round(values * scale)), max(1000, round(rows * scale))
        x = context.from_host(np.zeros((length, columns), "float32"))
        y, i = rng.integers(-8, 8, (count, columns)).astype("float32"), rng.integers(0, length, count)
        wanted = np.zeros((length, columns))
        np.add.at(wanted, i, y)
        value, index, calls = context.from_host(y), context.from_host(i), {}
        for way, atomics in (("sorted", False), ("atomic", True)):
            if atomics and not context.info.features.float_atomics:
                continue
            of = {"value_dtype": "float32", "value_ndim": 2, "accumulate": True, "schedule": "simt"}
            routine = Scatter(context, "float32", 2, [0], [("int64", 1)], atomics=atomics, **of)
            is_right = np.array_equal(routine(x, value, index)[0].to_host(), wanted)  # sums of small integers are exact
            (plan,) = routine._plans._plans.values()
            print(f"{name}, {way} ({type(plan.way).__name__}): {'right' if is_right else 'WRONG'}")
            calls[way] = partial(routine, x, value, index)
        times = by_turns(calls, context.queue.wait, end)
        for way, us in times.items():
            launches = _launches(context, calls[way])
            report[f"{name}, {way}"] = {"row_us": us, "launches": launches}
            total = sum(t for _, t in launches)
            print(f"{name}, {way}: {us:.1f} us; {len(launches)} launches, {total:.1f} us by the device's clock")
            print(*(f"    {t:8.1f} us  {kernel}" for kernel, t in launches), sep="\n", flush=True)
    return report


# --- reductions ---


def reductions(context: Context, scale: float, end: float) -> dict[str, Any]:
    """Time sums in two launches, and in one where the driver has the feature."""
    rng, report = np.random.default_rng(2026), {}
    for shape, axes in (((64_000_000,), (0,)), ((64_000, 1000), (0,)), ((100_000,), (0,)), ((20, 50_000), (1,))):
        host = rng.integers(-8, 8, [max(1, round(n * scale)) if n > 20 else n for n in shape]).astype("float32")
        array, calls, routines = context.from_host(host), {}, {}
        for one_launch in (0, 1):
            context.tuning["reduction.one_launch"] = one_launch
            routine = Reduction(context, "add", "float32", "float64", "float32", host.ndim, axes, schedule="simt")
            is_right = np.array_equal(routine(array)[0].to_host(), host.sum(axes, dtype="float64").astype("float32"))
            (plan,) = routine._plans._plans.values()
            name = "one launch" if plan.joins or plan.final is None else "two launches"
            print(f"{host.shape} {axes} {name}: {'right' if is_right else 'WRONG'}")
            routines[name] = routine
        for name, routine in routines.items():
            calls[name] = partial(routine, array)
        report[f"{host.shape} {axes}"] = times = by_turns(calls, context.queue.wait, end)
        print(*(f"    {us:8.1f} us  {name}" for name, us in times.items()), sep="\n", flush=True)
    return report


SECTIONS = {
    "products": (products, 3.0),
    "tiles": (tiles, 3.0),
    "scatter": (scatter, 1.5),
    "reductions": (reductions, 1.0),
}
"""Each with its share of the time."""


def main() -> None:
    """Run the sections, each within a share of the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="opencl:gpu")
    parser.add_argument("--seconds", type=float, default=55)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    options = parser.parse_args()
    context, began = open_context(options.device), time.monotonic()
    report: dict[str, Any] = {"device": context.info.name, "driver": context.info.driver}
    waiting = list(options.only)
    while waiting:
        name = waiting[0]
        section, share = SECTIONS[name]
        left = options.seconds - (time.monotonic() - began)
        end = time.monotonic() + left * share / sum(SECTIONS[other][1] for other in waiting)
        del waiting[0]
        try:
            report[name] = section(context, options.scale, end)
        except Exception:  # the other sections run all the same
            report[name] = {"failed": traceback.format_exc()[-1500:]}
            print(report[name]["failed"])
        options.out.write_text(json.dumps(report, indent=1))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
