"""Compile the kernels of schedule simt with the compilers of NVIDIA, AMD and SPIR-V; fail where one spills registers.

usage: python -m tools.compile_tables [--quick] [--targets sm_80 ...] [--write PAGE] [--jobs N] [--keep] [--only NAME]

1. The tests and the benchmarks run once for each kind of GPU in `record.DEVICES` with a driver that computes nothing;
   each distinct kernel's text is kept.
2. Each text is read by clang as OpenCL C 1.2 and 3.0 without what the device lacks (fp64, fp16), and compiled
   - for NVIDIA (sm_70, sm_80, sm_90): clang's nvptx64 with libclc and NVIDIA's libdevice, then ``ptxas -v``;
   - for AMD (gfx906, gfx90a, gfx1100): clang's amdgcn with libclc, linked by lld with no symbol undefined; the figures
     are those of the code object's metadata;
   - as SPIR-V: clang, llvm-spirv, spirv-val.
   These libraries have every built-in that is used; a missing one would be an undefined symbol for ptxas or lld.
   Outcomes are kept in build/compile-tables, by the digest of text, options and versions of the compilers.
3. A page has the registers, private and local memory, and the occupancy of each kernel.

The exit status is 1 if a kernel does not compile or spills registers to memory (but for `matrix.KNOWN`), and 2 if a
tool is missing. Scalar registers that AMD's compiler keeps in lanes of vector registers do not count: no memory is
touched.

Needed: Debian's clang-19, lld-19, llvm-19, libclc-19; for SPIR-V clang-15, llvm-spirv-15, spirv-tools; ptxas and
libdevice of the wheel nvidia-cuda-nvcc-cu12. Environment variables name other programs: CLANG, LD_LLD, LLVM_READELF,
PTXAS, CLANG_SPIRV, LLVM_SPIRV, SPIRV_VAL, and LIBCLC (a folder), LIBDEVICE (a file).
"""

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.compile_tables import programs as found_programs
from tools.compile_tables.compilers import TARGETS, Compiler, missing_tools, versions
from tools.compile_tables.matrix import compile_all
from tools.compile_tables.programs import Program, collect, read
from tools.compile_tables.record import COMPILED, ROOT
from tools.compile_tables.report import page, summary

WORK = ROOT / "build" / "compile-tables"
QUICK = ("sm_80", "gfx90a", "front-end")
SHARE = 4  # a quick run takes one in this many of the tests of routines
SAMPLE = 3  # and one in this many of the texts


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one device of each vendor, and a sample of the kernels")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, help="what to compile for")
    parser.add_argument("--devices", nargs="+", choices=COMPILED, default=list(COMPILED), help="what to record for")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument("--keep", action="store_true", help="compile what the last run has recorded")
    parser.add_argument("--only", default="", help="compile kernels whose names match this expression")
    parser.add_argument("--benchmarks", action="store_true", help="record and compile only the benchmarks")
    parser.add_argument("--work", type=Path, default=WORK, help="folder for recorded texts and results")
    return parser.parse_args()


def _recorded(options: argparse.Namespace) -> tuple[list[Program], dict[str, int]]:
    """Return the programs, recorded now or by the last run."""
    folder = options.work / ("quick" if options.quick else "recorded")
    if not (options.keep and folder.is_dir()):
        shutil.rmtree(folder, ignore_errors=True)
        for device in ("full", "small") if options.quick else options.devices:
            tests = [] if options.benchmarks else [f"tests/{found_programs.TESTS[0]}"] if options.quick else None
            collect(folder, device, SHARE if options.quick else 1, tests)
    programs, groups = read(folder)
    chosen = [p for p in programs if re.search(options.only, p.name) and (p.benchmarks or not options.benchmarks)]
    return _sample(chosen) if options.quick else chosen, groups


def _sample(programs: Sequence[Program]) -> list[Program]:
    """Return every third text of each template, and the first: the order is that of digests."""
    families: dict[str, list[Program]] = {}
    for program in programs:
        families.setdefault(program.family, []).append(program)
    return [program for family in families.values() for program in family[::SAMPLE]]


def main() -> int:
    """Record, compile, write."""
    options = _parse()
    targets = options.targets or (QUICK if options.quick else TARGETS)
    missing = missing_tools(targets)
    if missing:
        print(f"not found: {', '.join(missing)}. See --help for the packages", file=sys.stderr)
        return 2
    start = time.monotonic()
    programs, groups = _recorded(options)
    print(f"{len(programs)} texts after {time.monotonic() - start:.0f} s", flush=True)
    results = compile_all(programs, targets, Compiler(options.work / "outcomes"), options.jobs)
    if options.write:
        options.write.write_text(page(programs, groups, results, targets, versions()))
    for line in summary(results):
        print(line)
    print(f"{time.monotonic() - start:.0f} s")
    return 1 if results.failures or results.spilled() else 0


if __name__ == "__main__":
    sys.exit(main())
