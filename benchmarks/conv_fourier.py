"""Convolutions by Fourier transforms against sums over taps, on one device: where the one becomes faster.

usage: python benchmarks/conv_fourier.py [--device opencl:pocl] [--dtype float32] [--pass forward input weight]
                                         [--clock wall|cpu] [--rounds 3]

Both ways take turns; a figure is the best time of a call that waits for its result. `chosen` is what the shapes choose.
On a machine that others use, POCL_MAX_PTHREAD_COUNT=1 and `--clock cpu` compare the processor time of one thread.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pytensor_cl.routines.conv import fourier
from pytensor_cl.routines.conv.engine import Engine
from pytensor_cl.routines.conv.plan import Problem, simplify
from pytensor_cl.routines.conv.routine import ConvForward, ConvGradInput, ConvGradWeight
from pytensor_cl.runtime.context import Context, open_context
from pytensor_cl.runtime.layout import Layout

# Images, channels, extent, output channels, taps, dimensions, groups; padded so that the extent stays.
CASES = (
    (1, 1, 100_000, 1, 65, 1, 1), (1, 1, 100_000, 1, 257, 1, 1), (1, 1, 100_000, 1, 1025, 1, 1),
    (1, 1, 100_000, 1, 4097, 1, 1), (16, 16, 1024, 16, 17, 1, 1), (16, 16, 4096, 16, 65, 1, 1),
    (4, 16, 4096, 16, 257, 1, 1), (16, 64, 1024, 64, 33, 1, 1),
    (16, 16, 64, 16, 7, 2, 1), (16, 16, 64, 16, 11, 2, 1), (4, 64, 64, 64, 11, 2, 1), (1, 3, 224, 64, 11, 2, 1),
    (1, 3, 224, 16, 21, 2, 1), (1, 16, 128, 16, 33, 2, 1), (16, 32, 64, 32, 13, 2, 32), (16, 32, 64, 32, 31, 2, 32),
    (1, 1, 512, 1, 21, 2, 1), (1, 1, 512, 1, 65, 2, 1), (2, 8, 32, 8, 7, 3, 1),
)  # fmt: skip
KINDS = {"forward": ConvForward, "input": ConvGradInput, "weight": ConvGradWeight}
SECONDS = 0.2  # time of a measurement


def _is_possible(p: Problem, itemsize: int, rate: float) -> bool:
    return fourier.best_tilings(p, itemsize) is not None


def _calls(context: Context, kind: str, dtype: str, case: tuple[int, ...]) -> tuple[dict[str, Callable[[], Any]], str]:
    """Return what makes calls of both ways, and the name of the method that is chosen."""
    images, channels, extent, filters, taps, ndim, groups = case
    rng = np.random.default_rng(0)
    shapes = {
        "x": (images, channels, *(extent,) * ndim),
        "w": (filters, channels // groups, *(taps,) * ndim),
        "dy": (images, filters, *(extent,) * ndim),
    }
    x, w, dy = (context.from_host(rng.standard_normal(shape).astype(dtype)) for shape in shapes.values())
    arguments = {"forward": (x, w), "input": (w, dy, (extent,) * ndim), "weight": (x, dy, (taps,) * ndim)}[kind]
    parameters = {"groups": groups, "padding": ((taps // 2,) * 2,) * ndim}
    calls, profitable = {}, fourier.is_profitable
    for way in ("direct", "fourier"):
        routine = KINDS[kind](context, dtype, ndim, **parameters)
        routine.engine = Engine(context, dtype, routine.schedule, direct=way == "direct")
        calls[way] = lambda routine=routine: routine(*arguments)[0]
    fourier.is_profitable = _is_possible
    results = [np.asarray(call()) for call in calls.values()]
    fourier.is_profitable = profitable
    assert np.abs(results[0] - results[1]).max() <= 1e-4 * np.abs(results[0]).max(), case
    layouts = (*(a.layout for a in arguments[:2]), Layout.contiguous(results[0].shape))
    x, w, y = (layouts[1], layouts[0], layouts[2]) if kind == "input" else layouts
    return calls, routine.engine.method(simplify(routine.problems(x, w, y)[0])).name


def _best(call: Callable[[], Any], finish: Callable[[], Any], clock: Callable[[], float]) -> float:
    best, end = float("inf"), time.perf_counter() + SECONDS
    while best == float("inf") or time.perf_counter() < end:
        start = clock()
        call()
        finish()
        best = min(best, clock() - start)
    return best


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="opencl:pocl")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--pass", dest="kinds", nargs="+", default=["forward"], choices=KINDS)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    context = open_context(options.device)
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    print(f"{'images x channels, extent -> filters, taps':50s} {'pass':8s} direct ms  fourier ms  ratio  chosen")
    for case in CASES:
        for kind in options.kinds:
            calls, chosen = _calls(context, kind, options.dtype, case)
            best = dict.fromkeys(calls, float("inf"))
            for _ in range(options.rounds):
                for way, call in calls.items():
                    best[way] = min(best[way], _best(call, context.queue.finish, clock))
            images, channels, extent, filters, taps, ndim, groups = case
            text = f"{images} x {channels}, {extent}^{ndim} -> {filters}, {taps}^{ndim}" + f" / {groups}" * (groups > 1)
            direct, by_transforms = best["direct"] * 1e3, best["fourier"] * 1e3
            print(
                f"{text:50s} {kind:8s} {direct:9.2f} {by_transforms:11.2f} {direct / by_transforms:6.2f}  {chosen}",
                flush=True,
            )


if __name__ == "__main__":
    main()
