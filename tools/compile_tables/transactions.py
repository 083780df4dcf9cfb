"""Count memory transactions of the benchmarks' kernels in Oclgrind, with the plug-in ``transactions.cpp``.

usage: python -m tools.compile_tables.transactions [--write PAGE] [--only NAME]

Inputs are small, as the simulator is slow. Global memory counts in sectors of 32 bytes a warp, local memory in turns of
32 banks; both as multiples of the least that the bytes need. Above 1.3 is listed by line.

Needed: Debian's oclgrind, liboclgrind-dev, llvm-14-dev, opencl-c-headers, g++.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.compile_tables.record import ROOT, benchmark, draws, linear_algebra

__all__ = ["Count", "parse_counts"]

WORK = ROOT / "build" / "compile-tables"
WORST = 1.3
LLVM = "14"  # version of LLVM of Debian 12's Oclgrind
_DIGEST = re.compile(r"_[0-9a-f]{12}")
_SMALL = 0.001
_DRAWS = 3000
_MATRICES = ((20, 16, 1), (1, 96, 32))  # number of matrices, rows, right-hand sides
_SCALES = {
    "add transposed": 0.01, "add row and column": 0.02, "sum of rows": 0.002, "sum of columns": 0.01, "softmax": 0.004,
    "logsumexp": 0.004, "layer norm": 0.004, "gemm 1024": 0.06, "gemm 20000 x 64 x 64": 0.01, "batched products": 0.03,
    "gemv": 0.03, "transpose": 0.02, "gather rows": 0.003, "scatter-add rows": 0.003, "argmax of rows": 0.002,
    "network 784-512-256-10, gradient": 0.03, "eight schools, gradient": 1.0,
}  # fmt: skip


class Count(NamedTuple):
    """Accesses of warps at one line, their transactions, and the least number of these."""

    kernel: str
    line: int
    space: str
    kind: str
    accesses: int
    cost: int
    ideal: int


def parse_counts(text: str) -> list[Count]:
    """Return the counts that the plug-in has written."""
    rows = (line.split("\t") for line in text.splitlines())
    return [Count(k, int(line), space, kind, *map(int, counts)) for k, line, space, kind, *counts in rows]


# --- inside the simulator ---


def _workloads() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the workloads of the benchmarks."""
    import pytensor

    workloads = benchmark("workloads").WORKLOADS  # the worker imports the same
    backend = benchmark("worker").PyTensor("")
    pytensor.config.opencl__placement = "device"
    for workload in workloads:
        yield workload.name, partial(_call, backend, workload)


def _call(backend: Any, workload: Any) -> None:
    import pytensor

    arrays = workload.make(np.random.default_rng(0), _SCALES.get(workload.name, _SMALL))
    if workload.name == "gemv":  # the length of its rows does not scale
        arrays = [arrays[0][:, :512], arrays[1][:512]]
    function = pytensor.function(*backend.graph(workload, arrays), mode="OPENCL")
    function(*arrays)


def _layers() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield convolutions and pooling."""
    from pytensor_cl.routines.conv.routine import ConvForward, ConvGradInput, ConvGradWeight
    from pytensor_cl.routines.gemm.routine import Gemm
    from pytensor_cl.routines.pool import MaxPool, MaxPoolScatter, SumPool, SumPoolGrad, Window
    from pytensor_cl.runtime.registry import get_context

    context = get_context()
    rng = np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return context.from_host(rng.normal(size=shape).astype("float32"))

    same = {"strides": (1, 1), "padding": ((1, 1), (1, 1))}
    x, w, dy = array(2, 16, 14, 14), array(64, 16, 3, 3), array(2, 64, 14, 14)
    yield "convolution, forward", lambda: ConvForward(context, "float32", 2, **same)(x, w)
    yield "convolution, input", lambda: ConvGradInput(context, "float32", 2, **same)(w, dy, (14, 14))
    yield "convolution, weight", lambda: ConvGradWeight(context, "float32", 2, **same)(x, dy, (3, 3))
    # Enough positions for a tile of 64 x 128 on each unit.
    x4, w4, dy4 = array(4, 4, 28, 28), array(64, 4, 3, 3), array(4, 64, 28, 28)
    yield "convolution in large tiles, forward", lambda: ConvForward(context, "float32", 2, **same)(x4, w4)
    turned = array(4, 64, 3, 3)
    yield (
        "convolution in large tiles, input",
        lambda: ConvGradInput(context, "float32", 2, **same)(turned, x4, (28, 28)),
    )
    yield "convolution in large tiles, weight", lambda: ConvGradWeight(context, "float32", 2, **same)(x4, dy4, (3, 3))
    windows = [Window(2, 2, 0, 0)] * 2
    image = array(2, 4, 32, 32)
    yield "max pooling", lambda: MaxPool(context, "float32", windows)(image)
    yield "average pooling", lambda: SumPool(context, "float32", windows)(image)
    small = array(2, 4, 16, 16)
    yield "max pooling, gradient", lambda: MaxPoolScatter(context, "float32", windows)(image, small)
    yield "average pooling, gradient", lambda: SumPoolGrad(context, "float32", windows)(small, (32, 32))
    a, b = array(256, 64), array(64, 256)
    for name, operands in {"": (a, b), ", A^T": (b.T, b), ", B^T": (a, a.T)}.items():
        yield f"product{name}", lambda operands=operands: Gemm(context, "float32")(*operands)


def simulate(only: str) -> None:
    """Run everything once; the simulator's plug-in writes what it has counted when the process ends."""
    from dataclasses import replace

    from pytensor_cl.runtime import device

    # As many units as a GPU has: the number decides how a problem is divided.
    describe = device._describe
    device._describe = lambda handle: replace(describe(handle), compute_units=20, local_memory=48 << 10)
    sources = (_workloads(), _layers(), draws(_DRAWS), linear_algebra(_MATRICES))
    for source in sources:
        for name, call in source:
            if re.search(only, name):
                print(name, flush=True)
                call()


# --- outside ---


def build(folder: Path) -> Path:
    """Compile the plug-in."""
    library = folder / "transactions.so"
    include = subprocess.run([f"llvm-config-{LLVM}", "--includedir"], capture_output=True, text=True, check=True)
    source = Path(__file__).with_suffix(".cpp")
    options = ["-std=c++17", "-O2", "-fno-rtti", "-shared", "-fPIC", f"-I{include.stdout.strip()}"]
    subprocess.run(["g++", *options, "-o", library, source, f"-lLLVM-{LLVM}", "-loclgrind"], check=True)
    return library


def run(folder: Path, only: str) -> list[Count]:
    """Simulate, and return the counts."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = folder / "transactions.txt"
    counts.unlink(missing_ok=True)
    environment = {**os.environ, "OCLGRIND_TRANSACTIONS": str(counts), "PYOPENCL_NO_CACHE": "1"}
    environment["PYTENSOR_FLAGS"] = "device=opencl:oclgrind,floatX=float32,cxx="
    # With the compiler's optimisation on, version 21.10 computes nonsense; it adds up the local memory of all kernels.
    simulator = ["oclgrind", "--local-mem-size", "65536", "--plugins", str(build(folder))]
    simulator += ["--build-options", "-cl-opt-disable -DWITHOUT_PREFETCH"]
    python = [sys.executable, "-m", "tools.compile_tables.transactions", "--simulate", "--only", only]
    subprocess.run([*simulator, *python], cwd=ROOT, env=environment, check=True)
    return parse_counts(counts.read_text())


def _ratio(counts: Iterable[Count]) -> float:
    found = list(counts)
    return sum(c.cost for c in found) / max(1, sum(c.ideal for c in found))


def rows(counts: Iterable[Count]) -> Iterator[list[str]]:
    """Yield a row for each template's kernel: the ratio of each space, and the lines that are worse than `WORST`."""
    kernels: defaultdict[str, list[Count]] = defaultdict(list)
    for count in counts:
        kernels[_DIGEST.sub("", count.kernel)].append(count)
    for name, found in sorted(kernels.items()):
        of = {space: [c for c in found if c.space == space] for space in ("global", "local")}
        cells = [f"{_ratio(some):.2f}" if some else "-" for some in of.values()]
        bad = [c for c in found if c.cost > WORST * c.ideal]
        yield [f"`{name}`", *cells, "; ".join(_said(c) for c in sorted(bad, key=lambda c: c.ideal - c.cost)[:4])]


def _said(count: Count) -> str:
    return f"{count.space} {count.kind} {count.cost / count.ideal:.1f} ({count.kernel[-12:]}:{count.line})"


_HEAD = """# Memory transactions of the kernels

<!-- written by python -m tools.compile_tables.transactions: do not edit -->

Made by `python -m tools.compile_tables.transactions --write docs/memory-transactions.md`, in the simulator Oclgrind
with small inputs of the benchmarks. Work-items form warps of 32. Global memory: sectors of 32 bytes that the accesses
of a warp touch, as a multiple of those that its distinct bytes would fill. Local memory: turns of 32 banks of 4 bytes,
as a multiple of the fewest. The last column has the lines of a kernel's text that are above 1.3, by the digest in its
name.

| kernel | global | local | above 1.3 |
|---|---|---|---|
"""


_REASONS = {
    "conv_simt": "gradients of weights: eight neighbours of x, 32 bytes, mostly begin within a sector (rows of 14 "
    "elements, padding): two sectors. The next step along k reads the rest of them.",
    "conv_simt_double_buffered": "eight weights of filters of 3 x 3 taps, 32 bytes, often begin within a sector, as "
    "rows of an image with padding do. The next step along k reads the rest of them.",
    "indexing_scatter_sorted_sum": "values are read in the order of their positions, which is that of the data.",
    "linalg_cholesky_group": "only the lower triangle is read and written: the first rows fill no sector. A warp has "
    "several rows of the triangle at a time, which share banks.",
    "linalg_lu_determinant": "elements of a diagonal are further apart than a sector.",
    "linalg_lu_panel": "columns of matrices with contiguous rows are searched for pivots, and scaled; sectors of them "
    "serve the steps that follow. Panels have any number of rows, which local memory has not.",
    "linalg_lu_singular": "elements of a diagonal are further apart than a sector.",
    "linalg_triangular_group": "only the lower triangle is read: the first rows fill no sector. Where right-hand sides "
    "are rows, as in Cholesky's panels, a work-item has a row, and sectors serve its next elements.",
    "random_stream": "the ziggurat method looks up tables at random places.",
    "rowwise_simt": "rows of six elements have one work-item each. Several for each row would need a reduction in "
    "local memory for each of the sums; the sectors serve the work-item's next elements.",
    "sort_radix_simt_count": "the counts of a chunk of many elements; the scan reads a digit's chunks side by side.",
    "sort_radix_simt_scatter": "elements go to the positions of their keys.",
    "sort_network_simt": "rows that are no multiple of 32 begin in any bank.",
}
"""Why lines are above `WORST`; the longest name that a kernel's begins with counts."""


def _reasons(counts: Iterable[Count]) -> Iterator[str]:
    bad = {_DIGEST.sub("", c.kernel) for c in counts if c.cost > WORST * c.ideal}
    for name, reason in _REASONS.items():
        if any(kernel.startswith(name) for kernel in bad):
            yield f"- `{name}`: {reason}\n"


def page(counts: Sequence[Count]) -> str:
    """Return the page, as Markdown."""
    kernels = [c for c in counts if not c.kernel.startswith("probe_")]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows(kernels))
    return _HEAD + table + "\nWhat is above 1.3, and stays so:\n\n" + "".join(_reasons(kernels))


def main() -> int:
    """Build the plug-in, simulate, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="write the page to this file")
    parser.add_argument("--counts", type=Path, help="the counts of an earlier run, instead of a new run")
    parser.add_argument("--only", default="", help="workloads whose names match this expression")
    options = parser.parse_args()
    if options.simulate:
        simulate(options.only)
        return 0
    missing = [name for name in ("oclgrind", "g++", f"llvm-config-{LLVM}") if shutil.which(name) is None]
    if missing:
        print(f"not found: {', '.join(missing)}. See --help for the packages", file=sys.stderr)
        return 2
    counts = parse_counts(options.counts.read_text()) if options.counts else run(WORK, options.only)
    text = page(counts)
    print(text)
    if options.write:
        options.write.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
