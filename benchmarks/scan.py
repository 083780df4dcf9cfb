"""Loops: the device beside NUMBA, call by call in turns, and beside JAX, in processes of its own.

usage: python benchmarks/scan.py [device] [--steps 128] [--rows 64] [--width 256] [--rounds 15] [--only rnn]
       [--jax-python PATH] [--turns 3]

The first table is a recurrent layer: h = tanh(x + h W), its last state, and the gradient of its squared norm. Its bound
is the time of its products at the rate of one product of the same shape. PATH is a Python with jax: so many times, a
process times JAX, and then the same is timed on the device. The second table is an autoregression of two lags with
many steps, one and 256 of them at once.
"""

import argparse
import json
import subprocess
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

SEED = 20261125


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    start = perf_counter()
    call()
    return perf_counter() - start


def both_times(call: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of a call, and those of the processor."""
    start, used = perf_counter(), process_time()
    call()
    return perf_counter() - start, process_time() - used


def recurrent_layer() -> tuple[list[Any], list[tuple[str, list[Any]]]]:
    """Return the inputs, and the outputs to compare."""
    import pytensor
    import pytensor.tensor as pt

    x, h, w = pt.ftensor3("x"), pt.fmatrix("h"), pt.fmatrix("w")
    states = pytensor.scan(
        lambda row, state, w: pt.tanh(row + state @ w),
        sequences=[x],
        outputs_info=[h],
        non_sequences=[w],
        return_updates=False,
    )
    gradients = pytensor.grad((states**2).sum(), [h, w])
    return [x, h, w], [("states", [states]), ("last state", [states[-1]]), ("gradients", gradients)]


def autoregression() -> tuple[list[Any], list[tuple[str, list[Any]]]]:
    """Return the inputs, and the outputs to compare: the sum of squared innovations of an AR(2), and its gradient."""
    import pytensor
    import pytensor.tensor as pt

    y, a, b = pt.dmatrix("y"), pt.dvector("a"), pt.dvector("b")
    innovations = pytensor.scan(
        lambda older, old, now, a, b: now - a * old - b * older,
        sequences=[{"input": y, "taps": [-2, -1, 0]}],
        non_sequences=[a, b],
        return_updates=False,
    )
    simulated = pytensor.scan(
        lambda now, older, old, a, b: a * old + b * older + now,
        sequences=[y],
        outputs_info=[{"initial": y[:2], "taps": [-2, -1]}],
        non_sequences=[a, b],
        return_updates=False,
    )
    cost = (innovations**2).sum() + (simulated**2).sum()
    return [y, a, b], [("logp and gradient", [cost, *pytensor.grad(cost, [a, b])])]


def compiled(inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that runs on the device."""
    import pytensor
    from pytensor.configdefaults import config

    with config.change_flags(opencl__placement="device"):
        return pytensor.function(inputs, outputs, mode="OPENCL")


def compare(name: str, inputs: Sequence[Any], outputs: Sequence[Any], values: Sequence[Any], rounds: int) -> str:
    """Return a line of the table."""
    import pytensor

    device, numba = compiled(inputs, outputs), pytensor.function(inputs, outputs, mode="NUMBA")
    for _ in range(5):
        got = device(*values)
    expected = numba(*values)
    error = max(float(np.abs(np.asarray(a) - b).max() / np.abs(b).max()) for a, b in zip(got, expected, strict=True))
    times = [(timed(lambda: device(*values)), timed(lambda: numba(*values))) for _ in range(rounds)]
    ours, theirs = (median(column) * 1e3 for column in zip(*times, strict=True))
    best = min(row[0] for row in times) * 1e3
    return f"| {name} | {theirs:.2f} | {ours:.2f} | {best:.2f} | {theirs / ours:.2f} | {error:.0e} |"


def product_seconds(rows: int, width: int, rounds: int) -> float:
    """Return the seconds of one product of a step."""
    import pytensor.tensor as pt

    a, b = pt.fmatrix("a"), pt.fmatrix("b")
    product = compiled([a, b], a @ b)
    values = np.ones((rows, width), "float32"), np.ones((width, width), "float32")
    return min(timed(lambda: product(*values)) for _ in range(10 * rounds))


def layer_values(options: argparse.Namespace) -> list[np.ndarray]:
    """Return the inputs of the recurrent layer."""
    rng = np.random.default_rng(SEED)
    steps, rows, width = options.steps, options.rows, options.width
    shapes = (steps, rows, width), (rows, width), (width, width)
    return [(rng.normal(size=shape) / shape[-1] ** 0.5).astype("float32") for shape in shapes]


def jax_times(options: argparse.Namespace) -> list[list[tuple[float, float]]]:
    """Return the seconds of JAX's calls, and those of the processor: of the states, and of the gradients."""
    import jax
    import jax.numpy as jnp

    def states(x: Any, h: Any, w: Any) -> Any:
        def step(state: Any, row: Any) -> tuple[Any, Any]:
            new = jnp.tanh(row + state @ w)
            return new, new

        return jax.lax.scan(step, h, x)[1]

    values = layer_values(options)
    found = []
    for function in (jax.jit(states), jax.jit(jax.grad(lambda x, h, w: (states(x, h, w) ** 2).sum(), (1, 2)))):
        jax.block_until_ready(function(*values))

        def call(function: Any = function) -> None:
            jax.block_until_ready(function(*values))

        found.append([both_times(call) for _ in range(options.rounds)])
    return found


def beside_jax(options: argparse.Namespace) -> str:
    """Return a table: JAX in a process of its own, and the device, by turns."""
    inputs, cases = recurrent_layer()
    values = layer_values(options)
    names = [name for name, _ in cases if name != "last state"]
    calls: list[Callable[[], Any]] = []
    for name in names:
        function = compiled(inputs, dict(cases)[name])
        calls.append(lambda function=function: function(*values))
        for _ in range(5):
            calls[-1]()
    ours: list[list[Any]] = [[] for _ in names]
    theirs: list[list[Any]] = [[] for _ in names]
    sizes = [f"--{name}={getattr(options, name)}" for name in ("steps", "rows", "width", "rounds")]
    command = [options.jax_python, __file__, "--child", *sizes]
    for _ in range(options.turns):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        for own, found in zip(theirs, json.loads(done.stdout.splitlines()[-1]), strict=True):
            own += found
        for own, call in zip(ours, calls, strict=True):
            own += [both_times(call) for _ in range(options.rounds)]
    lines = ["| ms | median | fastest | processor time, fastest |", "|---|---|---|---|"]
    for name, *both in zip(names, theirs, ours, strict=True):
        for peer, times in zip(("JAX", "device"), both, strict=True):
            walls, used = zip(*times, strict=True)
            figures = " | ".join(f"{1e3 * f:.2f}" for f in (median(walls), min(walls), min(used)))
            lines.append(f"| {name}, {peer} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="opencl")
    numbers = ("steps", 128), ("rows", 64), ("width", 256), ("lags_steps", 10_000), ("rounds", 15), ("turns", 3)
    for name, default in numbers:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--only", choices=("rnn", "ar"), default="")
    parser.add_argument("--jax-python", default="")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(jax_times(options)))
        return
    import pytensor_cl

    pytensor_cl.use(options.device)
    if options.only != "ar":
        bound = options.steps * product_seconds(options.rows, options.width, options.rounds) * 1e3
        print(f"bound of the states: {bound:.2f} ms; of the gradients, with three products a step: {3 * bound:.2f} ms")
        if options.jax_python:
            print(beside_jax(options), flush=True)
    print("| | NUMBA, ms | device, ms | device, fastest | NUMBA / device | error |\n|---|---|---|---|---|---|")
    if options.only != "ar":
        inputs, cases = recurrent_layer()
        for name, outputs in cases:
            print(compare(name, inputs, outputs, layer_values(options), options.rounds), flush=True)
    if options.only != "rnn":
        inputs, cases = autoregression()
        for many in (1, 256):
            series = np.random.default_rng(SEED).normal(size=(options.lags_steps, many))
            for name, outputs in cases:
                line = compare(f"AR(2), {many}: {name}", inputs, outputs, [series, *np.full((2, many), 0.3)], 5)
                print(line, flush=True)


if __name__ == "__main__":
    main()
