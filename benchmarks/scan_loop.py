"""Loops in one kernel beside NUMBA, call by call in turns: log density and gradient of time series, alone and batched.

usage: python benchmarks/scan_loop.py [--steps 10000] [--batch 256] [--rounds 15] [--chunks]

Each line has the median time of a call of PyTensor's NUMBA function and of the device's, for one series; and for a
batch of parameters the time of one call for all on the device, and of NUMBA's calls one after the other.

The bound for one series is the latency of the operations of which each waits for the one before: `chain` cycles for
each step, forward and backward. The bound for a batch is the memory: each array of (batch, steps) float64 is read or
written once at the bandwidth that was measured.

With ``--chunks``: one series with its steps in turn and in chunks of time, by turns, for several lengths; the least
time of each.
"""

import argparse
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.configdefaults import config
from pytensor.graph.replace import vectorize_graph

import pytensor_cl  # noqa: F401 (registers the mode)
from pytensor_cl.routines.scan_loop import limits

SEED = 20261125


class Model(NamedTuple):
    """A log density of a series, with its parameters."""

    name: str
    data: Any  # the series
    parameters: Sequence[Any]  # variables of the gradient, which differ between the members of a batch
    values: Sequence[float]
    logp: Any  # the log density
    chain: int  # cycles of the operations of a step that wait for each other, forward and backward together


def _scan(step: Callable[..., Any], **options: Any) -> Any:
    return pytensor.scan(step, return_updates=False, **options)


def autoregression() -> Model:
    """Return AR(2)."""
    noise, a, b, start = pt.dvector("noise"), pt.dscalar("a"), pt.dscalar("b"), pt.dscalar("start")
    x = _scan(
        lambda e, before, last, a, b: a * last + b * before + e,
        sequences=[noise],
        outputs_info=[{"initial": pt.stack([start, start]), "taps": [-2, -1]}],
        non_sequences=[a, b],
    )
    return Model("AR(2)", noise, [a, b, start], [0.5, -0.3, 0.1], -pt.sqr(x).sum() / 2, 24)


def garch() -> Model:
    """Return GARCH(1, 1)."""
    y = pt.dvector("y")
    omega, alpha, beta, first = parameters = [pt.dscalar(n) for n in ("omega", "alpha", "beta", "first")]
    variance = _scan(
        lambda before, v, omega, alpha, beta: omega + alpha * before**2 + beta * v,
        sequences=[y[:-1]],
        outputs_info=[first],
        non_sequences=[omega, alpha, beta],
    )
    variance = pt.concatenate([first[None], variance])
    logp = (-pt.log(variance) / 2 - y**2 / variance / 2).sum()
    return Model("GARCH(1,1)", y, parameters, [0.1, 0.2, 0.7, 1.0], logp, 24)


def compiled(inputs: Sequence[Any], outputs: Sequence[Any], mode: str) -> Any:
    """Compile for the device alone, or for NUMBA."""
    with config.change_flags(opencl__placement="device", opencl__select_backend=False):
        return pytensor.function(inputs, outputs, mode=mode, trust_input=True)


def in_turns(calls: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the median time of each call in seconds."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(6):
            call()
    for _ in range(rounds):
        for call, own in zip(calls, times, strict=True):
            start = perf_counter()
            call()
            own.append(perf_counter() - start)
    return [median(own) for own in times]


def compare(model: Model, steps: int, batch: int, rounds: int) -> str:
    """Return a line of the table."""
    rng = np.random.default_rng(SEED)
    series = rng.normal(size=steps)
    outputs = [model.logp, *pt.grad(model.logp, list(model.parameters))]
    inputs = [model.data, *model.parameters]
    host, device = compiled(inputs, outputs, "NUMBA"), compiled(inputs, outputs, "OPENCL")
    values = [np.float64(v) for v in model.values]
    given = [series, *map(np.asarray, values)]
    for got, wanted in zip(device(*given), host(*given), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8)
    alone = in_turns([lambda: host(*given), lambda: device(*given)], rounds)

    members = [pt.dvector() for _ in model.parameters]
    batched = vectorize_graph(outputs, dict(zip(model.parameters, members, strict=True)))
    many = compiled([model.data, *members], batched, "OPENCL")
    scales = np.linspace(0.9, 1, batch)
    arrays = [v * scales for v in values]

    def one_by_one() -> None:
        for k in range(batch):
            host(series, *(np.asarray(array[k]) for array in arrays))

    together = in_turns([one_by_one, lambda: many(series, *arrays)], max(3, rounds // 5))
    bound = model.chain * steps / 3e9
    return (
        f"{model.name:<11} {1e6 * alone[0]:9.0f} {1e6 * alone[1]:9.0f} {alone[0] / alone[1]:6.1f} {1e6 * bound:7.0f}"
        f" {1e3 * together[0]:9.1f} {1e3 * together[1]:9.1f} {together[0] / together[1]:6.1f}"
    )


def in_chunks(model: Model, steps: int) -> str:
    """Return a line of the table of steps in turn and in chunks of time."""
    rng = np.random.default_rng(SEED)
    outputs = [model.logp, *pt.grad(model.logp, list(model.parameters))]
    given = [rng.normal(size=steps), *map(np.asarray, map(np.float64, model.values))]
    functions = []
    for least in (steps + 1, 8):
        names = ("CHUNK_STEPS_CPU", "CHUNK_STEPS_SIMT", "LEAST_STEPS_SIMT")
        with mock.patch.multiple(limits, **dict.fromkeys(names, least)):
            functions.append(compiled([model.data, *model.parameters], outputs, "OPENCL"))
            for _ in range(6):  # captured
                functions[-1](*given)
    best = [np.inf, np.inf]
    for _ in range(200 + 2_000_000 // steps):
        for k, function in enumerate(functions):
            start = perf_counter()
            function(*given)
            best[k] = min(best[k], perf_counter() - start)
    return f"{model.name:<11} {steps:9} {1e6 * best[0]:9.0f} {1e6 * best[1]:9.0f} {best[0] / best[1]:6.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--chunks", action="store_true")
    options = parser.parse_args()
    if options.chunks:
        print(f"{'':11} {'steps':>9} {'in turn':>9} {'chunks':>9} {'ratio':>6}")
        for model in (autoregression(), garch()):
            for steps in (4096, 16384, 65536, 262144, 1048576):
                print(in_chunks(model, steps), flush=True)
        return
    print(f"{'':11} {'one: us':>9} {'us':>9} {'':6} {'bound':>7} {options.batch:>5}: ms {'ms':>9}")
    print(f"{'':11} {'NUMBA':>9} {'device':>9} {'ratio':>6} {'us':>7} {'NUMBA':>9} {'device':>9} {'ratio':>6}")
    for model in (autoregression(), garch()):
        print(compare(model, options.steps, options.batch, options.rounds), flush=True)


if __name__ == "__main__":
    main()
