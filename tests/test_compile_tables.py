"""The tool that compiles kernels for GPUs: what it records, what it reads from compilers, and the page."""

import os
import subprocess
import sys

import pytest

from tests.helpers import CHECKOUT
from tools.compile_tables.compilers import Compiler, Kernel, missing_tools, parse_notes, parse_ptxas
from tools.compile_tables.matrix import compile_all
from tools.compile_tables.occupancy import occupancy
from tools.compile_tables.programs import Program, read
from tools.compile_tables.report import page, summary
from tools.compile_tables.transactions import parse_counts, rows

PTXAS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'sum_0123456789ab_finish' for 'sm_80'
ptxas info    : Function properties for sum_0123456789ab_finish
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 360 bytes cmem[0]
ptxas info    : Compiling entry function 'sum_0123456789ab' for 'sm_80'
ptxas info    : Function properties for sum_0123456789ab
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 16 bytes cumulative stack size, 16896 bytes smem, 816 bytes cmem[0]
"""
NOTES = """
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .name:           x
        .size:           8
    .group_segment_fixed_size: 1024
    .name:           sum_0123456789ab
    .private_segment_fixed_size: 24
    .sgpr_count:     30
    .sgpr_spill_count: 2
    .symbol:         sum_0123456789ab.kd
    .vgpr_count:     96
    .vgpr_spill_count: 6
    .wavefront_size: 64
"""
TEXT = """
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void twice_0123456789ab(__global float *x) { x[get_global_id(0)] *= 2; }
"""


def test_registers_and_spills_are_read_from_ptxas():
    assert parse_ptxas(PTXAS) == {
        "sum_0123456789ab_finish": Kernel(registers=32),
        "sum_0123456789ab": Kernel(registers=128, spills=32, stack=16, local=16896),
    }


def test_registers_and_spills_are_read_from_the_notes_of_a_code_object():
    expected = Kernel(registers=96, scalar_registers=30, spills=6, scalar_spills=2, stack=24, local=1024)
    assert parse_notes(NOTES) == {"sum_0123456789ab": expected}


@pytest.mark.parametrize(
    ("target", "kernel", "group", "share"),
    [
        ("sm_80", Kernel(registers=32), 256, 1.0),
        ("sm_80", Kernel(registers=128), 256, 0.25),  # 65536 registers are 512 work-items
        ("sm_80", Kernel(registers=32, local=48 << 10), 128, 12 / 64),  # three work-groups of four warps
        ("gfx906", Kernel(registers=65), 256, 0.3),  # three wavefronts of 68 registers on each SIMD
        ("gfx90a", Kernel(registers=128), 256, 0.5),
        ("gfx1100", Kernel(registers=96), 256, 1.0),
    ],
)
def test_occupancy(target, kernel, group, share):
    assert occupancy(target, kernel, group) == pytest.approx(share)


def test_memory_transactions_are_added_up_by_kernel():
    text = "copy_0123456789ab\t7\tglobal\tload\t10\t320\t40\ncopy_ba9876543210\t8\tlocal\tstore\t10\t10\t10\n"
    ((name, shared, local, bad),) = rows(parse_counts(text))
    assert (name, shared, local) == ("`copy`", "8.00", "1.00")
    assert bad == "global load 8.0 (0123456789ab:7)"


def test_the_kernels_of_a_test_are_recorded_as_a_gpu_gets_them(tmp_path):
    environment = {**os.environ, "PYTENSOR_CL_RECORD": str(tmp_path), "PYTENSOR_CL_RECORD_DEVICE": "small"}
    plugin = ["-p", "tools.compile_tables.record", "--assert=plain", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command = [sys.executable, "-O", "-m", "pytest", *plugin, "tests/routines/indexing/test_diagonal.py"]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    programs, groups = read(tmp_path)
    assert programs, done.stdout + done.stderr
    assert {p.family for p in programs} >= {"elemwise_simt"}
    assert not [p.name for p in programs if "_cpu" in p.name or "double" in p.text]  # the device has no fp64
    assert all(p.devices == {"small"} and p.origins == {"tests/routines/indexing/test_diagonal.py"} for p in programs)
    assert [size for name, size in groups.items() if name.startswith("elemwise_simt")]


@pytest.mark.parametrize("target", ["sm_80", "gfx90a", "spirv"])
def test_a_kernel_becomes_a_row_of_the_page(target, tmp_path):
    missing = missing_tools([target, "front-end"])
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    program = Program("twice_0123456789ab", TEXT, {"full", "small"}, {"benchmark: a test"})
    results = compile_all([program], [target, "front-end"], Compiler(tmp_path), 1)
    assert not results.failures, list(summary(results))
    assert not results.spilled()
    text = page([program], {"twice_0123456789ab": 64}, results, [target], "Some compiler.")
    assert target == "spirv" or "| `twice` | a test | 64 | 0 |" in text


def test_what_a_device_lacks_fails(tmp_path):
    missing = missing_tools(["front-end"])
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    words = {"double": "double y = x[0]; x[0] = y;", "constant": "x[0] *= 1.5;", "half": "half y = x[0]; x[0] = y;"}
    for word, statement in words.items():
        program = Program(
            f"{word}_0123456789ab", TEXT.replace("x[get_global_id(0)] *= 2;", statement), {"small"}, set()
        )
        results = compile_all([program], ["front-end"], Compiler(tmp_path), 1)
        assert len(results.failures) == 2, word  # OpenCL C 1.2 and 3.0
