"""Random numbers: the device beside NumPy, call by call in turns, and JAX where it is installed.

usage: python benchmarks/draws.py [device] [--draws 4000000] [--rounds 15]

Each line has the median time of a call of NumPy's method and of the device's routine, which makes the same numbers and
leaves the Generator in the same state; the first call is compared with NumPy's.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from pytensor.tensor.random import basic

from pytensor_cl.routines.random.draw import Draw, HostDraw
from pytensor_cl.runtime.context import Context, open_context

SEED = 20261125
DISTRIBUTIONS: dict[str, tuple[float, ...]] = {
    "UniformRV": (0.0, 1.0),
    "NormalRV": (0.0, 1.0),
    "ExponentialRV": (1.0,),
    "IntegersRV": (0, 10),
    "BernoulliRV": (0.3,),
    "LogNormalRV": (0.0, 1.0),
    "LaplaceRV": (0.0, 1.0),
    "GumbelRV": (0.0, 1.0),
    "GammaRV": (2.5, 1.0),
    "BetaRV": (2.0, 3.0),
    "StudentTRV": (4.0, 0.0, 1.0),
    "PoissonRV": (4.0,),
    "BinomialRV": (10, 0.3),
}


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    start = perf_counter()
    call()
    return perf_counter() - start


def compare(context: Context, name: str, draws: int, rounds: int) -> str:
    """Return a line of the table."""
    kind, parameters = getattr(basic, name), DISTRIBUTIONS[name]
    op = kind(dtype="int64" if kind.dtype == "int64" else "float64")
    routine = Draw(context, name, op.dtype, HostDraw(op.rng_fn, None))
    mine, other = np.random.default_rng(SEED), np.random.default_rng(SEED)
    arrays = [np.asarray(p) for p in parameters]

    def on_device() -> Any:
        drawn = routine(mine, (draws,), *parameters)[1]
        context.queue.wait()
        return drawn

    def on_host() -> Any:
        return op.rng_fn(other, *arrays, (draws,))

    equal = np.mean(on_device().to_host() == on_host())
    times = [(timed(on_device), timed(on_host)) for _ in range(rounds)]
    device, host = (median(column) * 1e3 for column in zip(*times, strict=True))
    same = "yes" if mine.bit_generator.state == other.bit_generator.state else "no"
    return f"| `{name}` | {host:.2f} | {device:.2f} | {host / device:.1f} | {100 * equal:.1f} % | {same} |"


def with_jax(draws: int, rounds: int) -> str | None:
    """Return a line with the times of JAX's normal numbers, which are others; None where there is no JAX."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    draw = jax.jit(lambda key: jax.random.normal(key, (draws,), dtype="float64"))
    key = jax.random.key(SEED)
    draw(key).block_until_ready()
    seconds = median(timed(lambda: draw(key).block_until_ready()) for _ in range(rounds))
    return f"JAX, float64 normal: {seconds * 1e3:.2f} ms"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="opencl")
    parser.add_argument("--draws", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    context = open_context(options.device)
    print(f"{context.info.name}: {options.draws:,} draws, milliseconds\n")
    print("| | NumPy | device | times as fast | equal to the last bit | same state |\n|---|---|---|---|---|---|")
    for name in DISTRIBUTIONS:
        print(compare(context, name, options.draws, options.rounds), flush=True)
    found = with_jax(options.draws, options.rounds)
    if found:
        print(f"\n{found}")


if __name__ == "__main__":
    main()
