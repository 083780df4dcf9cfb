"""Loops: the device beside NUMBA, call by call in turns, and JAX where it is installed.

usage: python benchmarks/scan.py [device] [--steps 128] [--rows 64] [--width 256] [--rounds 15]

The first table is a recurrent layer: h = tanh(x + h W), its last state, and the gradient of its squared norm. Its bound
is the time of its products at the rate of one product of the same shape. The second table is an autoregression of two
lags with many steps, one and 256 of them at once.
"""

import argparse
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.configdefaults import config

SEED = 20261125


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    start = perf_counter()
    call()
    return perf_counter() - start


def recurrent_layer() -> tuple[list[Any], list[tuple[str, list[Any]]]]:
    """Return the inputs, and the outputs to compare."""
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


def compare(name: str, inputs: Sequence[Any], outputs: Sequence[Any], values: Sequence[Any], rounds: int) -> str:
    """Return a line of the table."""
    with config.change_flags(opencl__placement="device"):
        device = pytensor.function(inputs, outputs, mode="OPENCL")
    numba = pytensor.function(inputs, outputs, mode="NUMBA")
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
    a, b = pt.fmatrix("a"), pt.fmatrix("b")
    with config.change_flags(opencl__placement="device"):
        product = pytensor.function([a, b], a @ b, mode="OPENCL")
    values = np.ones((rows, width), "float32"), np.ones((width, width), "float32")
    return min(timed(lambda: product(*values)) for _ in range(10 * rounds))


def with_jax(values: Sequence[np.ndarray], rounds: int) -> str | None:
    """Return a line with the times of JAX; None where there is no JAX."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None

    def states(x: Any, h: Any, w: Any) -> Any:
        def step(state: Any, row: Any) -> tuple[Any, Any]:
            new = jnp.tanh(row + state @ w)
            return new, new

        return jax.lax.scan(step, h, x)[1]

    forward = jax.jit(states)
    backward = jax.jit(jax.grad(lambda x, h, w: (states(x, h, w) ** 2).sum(), (1, 2)))
    found = []
    for function in (forward, backward):
        jax.block_until_ready(function(*values))
        found.append(median(timed(lambda f=function: jax.block_until_ready(f(*values))) for _ in range(rounds)))
    return f"JAX: states {found[0] * 1e3:.2f} ms, gradients {found[1] * 1e3:.2f} ms"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="opencl")
    for name, default in (("steps", 128), ("rows", 64), ("width", 256), ("lags_steps", 10_000), ("rounds", 15)):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    options = parser.parse_args()
    import pytensor_cl

    pytensor_cl.use(options.device)
    rng = np.random.default_rng(SEED)
    steps, rows, width = options.steps, options.rows, options.width
    shapes = (steps, rows, width), (rows, width), (width, width)
    values = [(rng.normal(size=shape) / shape[-1] ** 0.5).astype("float32") for shape in shapes]
    bound = steps * product_seconds(rows, width, options.rounds) * 1e3
    print(f"bound of the states: {bound:.2f} ms; of the gradients, with three products a step: {3 * bound:.2f} ms")
    print("| | NUMBA, ms | device, ms | device, fastest | NUMBA / device | error |\n|---|---|---|---|---|---|")
    inputs, cases = recurrent_layer()
    for name, outputs in cases:
        print(compare(name, inputs, outputs, values, options.rounds), flush=True)
    print(with_jax(values, options.rounds) or "JAX is not installed")
    inputs, cases = autoregression()
    for many in (1, 256):
        series = rng.normal(size=(options.lags_steps, many))
        for name, outputs in cases:
            line = compare(f"AR(2), {many}: {name}", inputs, outputs, [series, *np.full((2, many), 0.3)], 5)
            print(line, flush=True)


if __name__ == "__main__":
    main()
