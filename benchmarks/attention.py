"""Attention, forward and forward with gradients, as a share of the rate of matrix products, and beside PyTorch.

usage: python benchmarks/attention.py [opencl:pocl] [--rounds 20] [--torch PYTHON]

8 heads, 64 features, float32. Operations are those of the products: 4 L S E for a head forward, 2.5 times as many
backward; the bound is their number over the rate of a matrix product of 1024 x 1024 x 1024. The functions take turns
with each other, and with PyTorch in an interpreter of its own, which waits while they run. A figure is the best of all
rounds.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Iterator

import numpy as np

from pytensor_cl.routines.attention.routine import Attention, AttentionGrad, Form
from pytensor_cl.routines.gemm.routine import Gemm
from pytensor_cl.runtime.context import Context, open_context

SHAPES = ((1, 512), (8, 512), (1, 4096))  # batch, length
HEADS, FEATURES = 8, 64
GEMM = 1024
TORCH = """
import json, sys, time, torch
from torch.nn.functional import scaled_dot_product_attention as attention
torch.set_num_threads(int(sys.argv[1]))
for line in sys.stdin:
    batch, length, has_gradient = json.loads(line)
    q, k, v, g = (torch.randn(batch, 8, length, 64, requires_grad=has_gradient) for _ in range(4))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        out = attention(q, k, v)
        if has_gradient:
            torch.autograd.grad(out, (q, k, v), g.detach())
        best = min(best, time.perf_counter() - start)
    print(best, flush=True)
"""


def cases(context: Context) -> Iterator[tuple[str, Callable[[], object], float, tuple[int, int, bool]]]:
    """Yield name, call, operations, and what PyTorch needs to do the same."""
    generator = np.random.default_rng(0)
    for batch, length in SHAPES:
        shape = (batch, HEADS, length, FEATURES)
        q, k, v, grad = (context.from_host(generator.normal(size=shape).astype("float32")) for _ in range(4))
        forward, backward = (kind(context, "float32", Form()) for kind in (Attention, AttentionGrad))
        correction = context.from_host(np.zeros(shape[:-1], "float32"))
        count = 4.0 * batch * HEADS * length * length * FEATURES

        def run(q=q, k=k, v=v, forward=forward):
            return forward(q, k, v)

        def both(q=q, k=k, v=v, grad=grad, correction=correction, forward=forward, backward=backward):
            _, sums = forward(q, k, v)
            return backward(q, k, v, sums, correction, grad)

        yield f"{batch} x {length}, forward", run, count, (batch, length, False)
        yield f"{batch} x {length}, with gradients", both, 3.5 * count, (batch, length, True)


def timed(context: Context, call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    call()
    context.queue.finish()
    return time.perf_counter() - start


def measure(context: Context, rounds: int, python: str | None) -> None:
    """Print the best time of each case."""
    a = context.from_host(np.random.default_rng(0).normal(size=(GEMM, GEMM)).astype("float32"))
    gemm, found = Gemm(context, "float32"), list(cases(context))
    best = dict.fromkeys(["gemm", *(name for name, *_ in found)], float("inf"))
    peer = dict.fromkeys(best, float("inf"))
    torch = None
    if python:
        command = [python, "-c", TORCH, str(context.info.compute_units)]
        torch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for _ in range(rounds):
        best["gemm"] = min(best["gemm"], timed(context, lambda: gemm(a, a)))
        for name, call, _, request in found:
            best[name] = min(best[name], *(timed(context, call) for _ in range(3)))
            if torch is not None and torch.stdin is not None and torch.stdout is not None:
                torch.stdin.write(json.dumps(request) + "\n")
                torch.stdin.flush()
                peer[name] = min(peer[name], float(torch.stdout.readline()))
    if torch is not None:
        torch.communicate()
    rate = 2 * GEMM**3 / best["gemm"]
    print(f"{context.info.name}: matrix product {rate / 1e9:.0f} GFLOP/s")
    for name, _, count, _ in found:
        line = f"{name:28} {best[name] * 1e3:8.2f} ms {count / best[name] / rate:6.2f} of the bound's rate"
        print(
            line
            + (f"   PyTorch {peer[name] * 1e3:8.2f} ms, {peer[name] / best[name]:.2f} times as long" if python else "")
        )


def main() -> None:
    """Time on each device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="*", default=["opencl:pocl"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--torch", help="an interpreter with PyTorch")
    options = parser.parse_args()
    for device in options.devices:
        measure(open_context(device), options.rounds, options.torch)


if __name__ == "__main__":
    main()
