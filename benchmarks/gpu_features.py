"""Features that a GPU's driver has besides OpenCL C 1.2, such as inline PTX: each one in a process of its own.

usage: python benchmarks/gpu_features.py [OUT.json] [--device-type gpu]

A kernel that fails may end the context, after which the process can make no other. Needs pyopencl and NumPy only.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FLOAT, HALF, DOUBLE = (f"__kernel void k(__global {t} *x, __global int *y)" for t in ("float", "half", "double"))
ITEMS = 32  # work-items, in one group; x has a one in each float, y in each int
BYTES = 1 << 16
SHARED = "uint d = (uint)(size_t)"
TILE = "__local float t[128] __attribute__((aligned(16)));"
FP16 = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
FP64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"


class Feature(NamedTuple):
    """A kernel, and the first number that it leaves in x; None: any."""

    text: str
    expected: float | None = None
    options: tuple[str, ...] = ()


def _float(body: str) -> str:
    return f"{FLOAT} {{ const size_t i = get_global_id(0); {body} }}"


def _mma(shape: str, types: str, sums: int, a: int, b: int, kind: str) -> str:
    """Return a product of fragments that are full of ones: each sum is the length of the products."""
    number = "double" if kind == "f64" else "float"
    one, letter = ("1.0", "d") if kind == "f64" else (f"0x{'3f803f80' if kind == 'bf16' else '3f800000'}u", "r")
    names = [f"c{k}" for k in range(sums)]
    outputs = ", ".join(f'"+{"d" if kind == "f64" else "f"}"({name})' for name in names)
    lists = [",".join(f"%{k}" for k in range(sums)), ",".join([f"%{sums}"] * a), ",".join([f"%{sums}"] * b)]
    return (
        f"{FP64 if kind == 'f64' else ''}{FLOAT} {{ {number} {', '.join(f'{name} = 0' for name in names)}; "
        f'asm volatile("mma.sync.aligned.{shape}.row.col.{types} '
        f'{{{lists[0]}}}, {{{lists[1]}}}, {{{lists[2]}}}, {{{lists[0]}}};" : {outputs} : "{letter}"({one})); '
        f"x[get_global_id(0)] = {names[0]}; }}"
    )


def _copied(bits: str, count: int) -> str:
    return (
        f"{FLOAT} {{ {TILE} const size_t i = get_local_id(0); {SHARED}(t + {count} * i); "
        f'asm volatile("cp.async.{bits} [%0], [%1], {4 * count};" :: "r"(d), "l"(x + {count} * i) : "memory"); '
        f'asm volatile("cp.async.wait_all;" ::: "memory"); {BARRIER} x[i] = t[31 - i] + 1; }}'
    )


FEATURES = {
    "plain": Feature(_float("x[i] += 1;"), 2),
    "register limit": Feature(_float("x[i] += 1;"), 2, ("-cl-nv-maxrregcount=128",)),
    "verbose log": Feature(_float("x[i] += 1;"), 2, ("-cl-nv-verbose",)),
    "OpenCL C 3.0": Feature(_float("x[i] += 1;"), 2, ("-cl-std=CL3.0",)),
    "sub-groups": Feature(_float("x[i] = sub_group_reduce_add(x[i]);"), None, ("-cl-std=CL3.0",)),
    "generic pointers": Feature(
        _float("float t[2] = {5, 5}; float *p = t; if (!y[1]) p = x; x[i] = *p;"), 5, ("-cl-std=CL3.0",)
    ),
    "half arithmetic": Feature(f"{FP16}{HALF} {{ x[get_global_id(0)] = x[1] * x[1] + (half)1; }}"),
    "half without pragma": Feature(f"{HALF} {{ half a = x[0]; x[1] = a * a; }}"),
    "vload_half": Feature(f"{HALF} {{ vstore_half(vload_half(0, x) + 1.0f, 1, x); }}"),
    "48 KiB of local memory": Feature(
        _float(f"__local float t[12288]; t[i] = x[i]; {BARRIER} x[i] = t[i ^ 1] + 1;"), 2
    ),
    "64 KiB of local memory": Feature(
        _float(f"__local float t[16384]; t[i] = x[i]; {BARRIER} x[i] = t[i ^ 1] + 1;"), 2
    ),
    "__has_builtin": Feature(_float("\n#ifndef __has_builtin\n#error no\n#endif\nx[i] += 1;"), 2),
    "__builtin_prefetch": Feature(_float("__builtin_prefetch((const void *)x); x[i] += 1;"), 2),
    "pragma unroll": Feature(
        _float("float s = 0;\n#pragma unroll 4\nfor (int j = 0; j < 8; j++) s += y[j]; x[i] = s;"), 8
    ),
    "local atomics": Feature(
        _float(f"__local int c; if (!i) c = 0; {BARRIER} atomic_inc(&c); {BARRIER} x[i] = c;"), ITEMS
    ),
    "shfl.sync": Feature(
        _float('float b; asm volatile("shfl.sync.bfly.b32 %0, %1, 16, 31, -1;" : "=f"(b) : "f"(x[i])); x[i] += b;'),
        2,
    ),
    "vote.sync.ballot": Feature(
        _float(
            'uint b; asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, -1; }" '
            ': "=r"(b) : "r"((uint)i & 1)); x[i] = b == 0xAAAAAAAAu ? 5 : 6;'
        ),
        5,
    ),
    "match.any.sync": Feature(
        _float(
            'uint m; asm volatile("match.any.sync.b32 %0, %1, -1;" : "=r"(m) : "r"((uint)i & 3)); x[i] = popcount(m);'
        ),
        8,
    ),
    "bar.warp.sync": Feature(_float('asm volatile("bar.warp.sync -1;" ::: "memory"); x[i] += 1;'), 2),
    "ex2.approx": Feature(_float('float r; asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x[i])); x[i] = r;'), 2),
    "red.add.f32": Feature(
        _float('asm volatile("red.global.add.f32 [%0], %1;" :: "l"(x), "f"(1.0f) : "memory");'), 1 + ITEMS
    ),
    "red.add.v4.f32": Feature(
        _float('asm volatile("red.global.add.v4.f32 [%0], {%1,%1,%1,%1};" :: "l"(x), "f"(1.0f) : "memory");'), 1 + ITEMS
    ),
    "atom.add.f64": Feature(
        f"{FP64}{DOUBLE} {{ double r; "
        'asm volatile("atom.global.add.f64 %0, [%1], %2;" : "=d"(r) : "l"(x), "d"(1.0) : "memory"); }'
    ),
    "cp.async of 4 bytes": Feature(_copied("ca.shared.global", 1), 2),
    "cp.async of 16 bytes": Feature(_copied("cg.shared.global", 4), 2),
    "mma tf32": Feature(_mma("m16n8k8", "f32.tf32.tf32.f32", 4, 4, 2, "tf32"), 8),
    "mma bf16": Feature(_mma("m16n8k16", "f32.bf16.bf16.f32", 4, 4, 2, "bf16"), 16),
    "mma f64 m8n8k4": Feature(_mma("m8n8k4", "f64.f64.f64.f64", 2, 1, 1, "f64"), 4),
    "mma f64 m16n8k16": Feature(_mma("m16n8k16", "f64.f64.f64.f64", 4, 8, 4, "f64"), 16),
}


def run_one(name: str, kind: str) -> dict[str, Any]:
    """Build and run one kernel in this process."""
    import pyopencl as cl

    warnings.simplefilter("ignore")
    feature, wanted = FEATURES[name], getattr(cl.device_type, kind.upper())
    device = next(d for p in cl.get_platforms() for d in p.get_devices(wanted))
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    x, y = (cl.Buffer(context, cl.mem_flags.READ_WRITE, BYTES) for _ in range(2))
    try:
        program = cl.Program(context, feature.text).build(options=list(feature.options), cache_dir=False)
        cl.enqueue_fill_buffer(queue, x, np.float32(1), 0, BYTES)
        cl.enqueue_fill_buffer(queue, y, np.int32(1), 0, BYTES)
        kernel = cl.Kernel(program, "k")
        kernel.set_args(x, y)
        cl.enqueue_nd_range_kernel(queue, kernel, (ITEMS,), (ITEMS,))
        queue.finish()
        first = np.empty(1, np.float32)
        cl.enqueue_copy(queue, first, x, is_blocking=True)
    except cl.Error as error:
        return {"works": False, "error": " ".join(str(error).split())[-300:]}
    return {"works": feature.expected is None or float(first[0]) == feature.expected, "first": float(first[0])}


def in_a_process(name: str, kind: str) -> dict[str, Any]:
    """Run one kernel in a process of its own."""
    command = [sys.executable, __file__, "--one", name, "--device-type", kind]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"works": False, "error": f"the process ended without a result: {type(error).__name__}"}


def main() -> None:
    """Try each feature."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--one", choices=FEATURES, help="try this one, in this process")
    parser.add_argument("--device-type", default="gpu", choices=["gpu", "cpu", "all"])
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_one(options.one, options.device_type)), flush=True)
        os._exit(0)  # a driver whose context has failed may not end
    import pytensor_cl.runtime.opencl as cl  # finds drivers that no .icd file names, for the processes below too

    cl.get_platforms()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda name: in_a_process(name, options.device_type), FEATURES)
        found = dict(zip(FEATURES, results, strict=True))
    for name, result in found.items():
        print(f"{name:24} {'yes' if result['works'] else 'no':4} {result.get('error', '')[:120]}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
