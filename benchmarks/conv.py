"""The convolutions of ResNet-50 against PyTorch's CPU build, each in a process of its own.

usage: python benchmarks/conv.py [--torch-python PATH] [--batch 1 16] [--pass forward input weight] [--threads 4]
                                 [--device opencl:pocl] [--clock wall|cpu] [--rounds 3]

The processes take turns, layer by layer and round by round; a figure is the best time of a call that waits for its
result. The GEMM of the table is one of 1024 x 1024 matrices, of this package, in the same round. On a machine that
others use, `--threads 1 --clock cpu` compares the processor time of one thread.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np


class Layer(NamedTuple):
    """A convolution of the network, and how often it occurs."""

    channels: int
    image: int
    filters: int
    taps: int
    stride: int
    padding: int
    count: int

    @property
    def positions(self) -> int:
        """Extent of the output."""
        return (self.image + 2 * self.padding - self.taps) // self.stride + 1

    def flops(self, batch: int) -> int:
        """Return twice the number of multiplications, those with padding included."""
        return 2 * batch * self.filters * self.channels * self.taps**2 * self.positions**2

    def arrays(self, batch: int) -> tuple[np.ndarray, ...]:
        """Return x, w and dy."""
        rng = np.random.default_rng(0)
        shapes = (
            (batch, self.channels, self.image, self.image),
            (self.filters, self.channels, self.taps, self.taps),
            (batch, self.filters, self.positions, self.positions),
        )
        return tuple(rng.standard_normal(shape, "float32") for shape in shapes)


LAYERS = [
    Layer(*row)
    for row in (
        (3, 224, 64, 7, 2, 3, 1),
        (64, 56, 64, 1, 1, 0, 1), (64, 56, 64, 3, 1, 1, 3), (64, 56, 256, 1, 1, 0, 4), (256, 56, 64, 1, 1, 0, 2),
        (256, 56, 128, 1, 1, 0, 1), (128, 56, 128, 3, 2, 1, 1), (128, 28, 512, 1, 1, 0, 4), (256, 56, 512, 1, 2, 0, 1),
        (512, 28, 128, 1, 1, 0, 3), (128, 28, 128, 3, 1, 1, 3),
        (512, 28, 256, 1, 1, 0, 1), (256, 28, 256, 3, 2, 1, 1), (256, 14, 1024, 1, 1, 0, 6),
        (512, 28, 1024, 1, 2, 0, 1), (1024, 14, 256, 1, 1, 0, 5), (256, 14, 256, 3, 1, 1, 5),
        (1024, 14, 512, 1, 1, 0, 1), (512, 14, 512, 3, 2, 1, 1), (512, 7, 2048, 1, 1, 0, 3),
        (1024, 14, 2048, 1, 2, 0, 1),
        (2048, 7, 512, 1, 1, 0, 2), (512, 7, 512, 3, 1, 1, 2),
    )
]  # fmt: skip
GEMM = 1024
SECONDS = 0.15  # time of a measurement


# --- the processes that compute ---


def opencl_calls(device: str) -> Callable[..., Callable[[], Any]]:
    """Return what makes calls of this package."""
    from pytensor_cl.routines.conv.routine import ConvForward, ConvGradInput, ConvGradWeight
    from pytensor_cl.routines.gemm.routine import Gemm
    from pytensor_cl.runtime.context import open_context

    context = open_context(device)
    gemm = Gemm(context, "float32")
    kinds = {"forward": (ConvForward, (0, 1)), "input": (ConvGradInput, (1, 2)), "weight": (ConvGradWeight, (0, 2))}

    def make(kind: str, layer: Layer | None, batch: int) -> Callable[[], Any]:
        routine, operands = gemm, [context.from_host(np.ones((GEMM, GEMM), "float32"))] * 2
        if layer is not None:
            cls, inputs = kinds[kind]
            padding = ((layer.padding,) * 2,) * 2
            routine = cls(context, "float32", 2, strides=(layer.stride,) * 2, padding=padding)
            arrays = layer.arrays(batch)
            extents = {"input": [(layer.image,) * 2], "weight": [(layer.taps,) * 2]}
            operands = [context.from_host(arrays[i]) for i in inputs] + extents.get(kind, [])

        def call() -> Any:
            (out,) = routine(*operands)
            context.queue.finish()
            return out

        return call

    return make


def torch_calls(threads: int) -> Callable[..., Callable[[], Any]]:
    """Return what makes calls of PyTorch."""
    import torch

    torch.set_num_threads(threads)

    def make(kind: str, layer: Layer | None, batch: int) -> Callable[[], Any]:
        if layer is None:
            a = torch.ones((GEMM, GEMM))
            return lambda: a @ a
        x, w, dy = map(torch.from_numpy, layer.arrays(batch))
        pair = [[v] * 2 for v in (layer.stride, layer.padding, 1)]
        if kind == "forward":
            return lambda: torch.conv2d(x, w, None, *pair)
        mask = [kind == "input", kind == "weight", False]
        backward = partial(torch.ops.aten.convolution_backward, dy, x, w, None, *pair, False, [0, 0], 1, mask)
        return lambda: backward()[0 if kind == "input" else 1]

    return make


def serve(make: Callable[..., Callable[[], Any]], clock: Callable[[], float]) -> None:
    """Answer requests, one a line, with the best time and a checksum of the results."""
    for line in sys.stdin:
        kind, index, batch = json.loads(line)
        call = make(kind, None if index is None else LAYERS[index], batch)
        check = float(np.abs(np.asarray(call())).mean())
        best, end = float("inf"), time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            start = clock()
            call()
            best = min(best, clock() - start)
        print(json.dumps((best, check)), flush=True)


# --- the process that compares ---


class Worker:
    """A process that computes for one backend."""

    def __init__(self, python: str, backend: str, options: argparse.Namespace) -> None:
        count = str(options.threads)
        variables = {"POCL_MAX_PTHREAD_COUNT": count, "OMP_NUM_THREADS": count}
        command = [python, __file__, "--backend", backend, "--threads", count]
        command += ["--device", options.device, "--clock", options.clock]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}
        )

    def request(self, kind: str, index: int | None = None, batch: int = 1) -> tuple[float, float]:
        """Return the time and the check of one request."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps((kind, index, batch)), file=self._process.stdin, flush=True)
        seconds, check = json.loads(self._process.stdout.readline())
        return seconds, check


def compare(workers: dict[str, Worker], kind: str, batch: int, rounds: int) -> None:
    """Print the table of one pass over the network."""
    print(f"\n{kind}, batch {batch}\n{'layer':28s}      ms  GFLOP/s  % of GEMM      torch ms  torch/this")
    totals = dict.fromkeys(workers, 0.0)
    for index, layer in enumerate(LAYERS):
        best = dict.fromkeys((*workers, "gemm"), float("inf"))
        for _ in range(rounds):
            checks = []
            for name, worker in workers.items():
                seconds, check = worker.request(kind, index, batch)
                best[name] = min(best[name], seconds)
                checks.append(check)
            assert max(checks) - min(checks) <= 1e-3 * max(checks), (layer, checks)
            best["gemm"] = min(best["gemm"], workers["opencl"].request("gemm")[0])
        rate, peak = layer.flops(batch) / best["opencl"] / 1e9, 2 * GEMM**3 / best["gemm"] / 1e9
        text = f"{layer.channels}x{layer.image}^2 -> {layer.filters}, {layer.taps}x{layer.taps} / {layer.stride}"
        text = f"{text:28s}{best['opencl'] * 1e3:8.3f} {rate:8.1f} {100 * rate / peak:9.0f}%"
        if "torch" in best:
            text += f"{best['torch'] * 1e3:13.3f} {best['torch'] / best['opencl']:9.2f}"
        print(text, flush=True)
        totals = {name: totals[name] + layer.count * best[name] for name in workers}
    print("whole network:", ", ".join(f"{name} {total * 1e3:.1f} ms" for name, total in totals.items()))


def main() -> None:
    """Compare, or serve as one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--pass", dest="kinds", nargs="+", default=["forward"], choices=["forward", "input", "weight"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="opencl:pocl")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", choices=["opencl", "torch"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.backend:
        make = opencl_calls(options.device) if options.backend == "opencl" else torch_calls(options.threads)
        serve(make, time.perf_counter if options.clock == "wall" else time.process_time)
        return
    workers = {"opencl": Worker(sys.executable, "opencl", options)}
    if options.torch_python:
        workers["torch"] = Worker(options.torch_python, "torch", options)
    for kind in options.kinds:
        for batch in options.batch:
            compare(workers, kind, batch, options.rounds)


if __name__ == "__main__":
    main()
