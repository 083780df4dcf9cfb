"""Dropout, forward and with its gradient, beside a copy of its array on the same device, and JAX where it is installed.

usage: python benchmarks/dropout.py [--elements 4000000] [--rounds 15]

The array is float32. Forward has to read and write it, and to draw a raw number of the generator for each element; the
gradient reads a mask of bytes, which forward writes, and reads and writes another array. ``uniform`` draws the same raw
numbers and writes them as float64. The cases take turns; a figure is the best of all rounds, and its share of the sum
of the copies and the mask that it is made of.
"""

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor_cl import nn
from pytensor_cl.runtime.registry import sync


def on_device(make: Callable[[Any, Any, Any], tuple[Any, list[Any]]], elements: int) -> Callable[[], Any]:
    """Return a call that computes on device arrays and leaves the results there.

    `make`: called with x, the gradient of the output and the generator; returns the next generator and the results.
    """
    array = np.ones((elements // 1000, 1000), "float32")
    x, dy, rng = pytensor.shared(array), pytensor.shared(array), pt.random.shared_rng(seed=1)
    after, results = make(x, dy, rng)
    places = [pytensor.shared(np.zeros(array.shape, r.type.dtype)) for r in results]
    updates = dict(zip(places, results, strict=True))
    f = pytensor.function([], [], updates=updates | ({rng: after} if after is not None else {}), mode="OPENCL")

    def call() -> None:
        f()
        sync()

    return call


def cases(elements: int) -> dict[str, Callable[[], Any]]:
    """Return the calls by their names."""

    def mask(x: Any, dy: Any, rng: Any) -> Any:
        _, y = nn.dropout(x, 0.3, rng)
        return y.owner.inputs[1].owner.outputs[0], [y.owner.inputs[1]]

    def uniform(x: Any, dy: Any, rng: Any) -> Any:
        after, u = rng.uniform(size=x.shape, dtype="float64")
        return after, [u]

    def forward(x: Any, dy: Any, rng: Any) -> Any:
        after, y = nn.dropout(x, 0.3, rng)
        return after, [y]

    def both(x: Any, dy: Any, rng: Any) -> Any:
        after, y = nn.dropout(x, 0.3, rng)
        return after, [y, pytensor.grad(None, x, known_grads={y: dy})]

    made = {
        "copy": on_device(lambda x, dy, rng: (None, [x + np.float32(1)]), elements),
        "uniform": on_device(uniform, elements),
        "mask": on_device(mask, elements),
        "forward": on_device(forward, elements),
        "forward and gradient": on_device(both, elements),
    }
    return made | jax_cases(elements)


def jax_cases(elements: int) -> dict[str, Callable[[], Any]]:
    """Return the same calls in JAX; none where it is not installed."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return {}
    x = jnp.ones((elements // 1000, 1000), "float32")

    def dropout(x: Any, key: Any) -> Any:
        return jnp.where(jax.random.bernoulli(key, 0.7, x.shape), x / 0.7, 0)

    def both(x: Any, dy: Any, key: Any) -> Any:
        y, gradient = jax.vjp(lambda x: dropout(x, key), x)
        return y, gradient(dy)[0]

    forward, forward_and_gradient, key = jax.jit(dropout), jax.jit(both), jax.random.key(1)
    return {
        "JAX forward": lambda: jax.block_until_ready(forward(x, key)),
        "JAX forward and gradient": lambda: jax.block_until_ready(forward_and_gradient(x, x, key)),
    }


def main() -> None:
    """Measure on the default device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    pytensor.config.opencl__placement = "device"
    found = cases(options.elements)
    best = dict.fromkeys(found, float("inf"))
    for _ in range(options.rounds + 1):
        for name, call in found.items():
            start = perf_counter()
            call()
            best[name] = min(best[name], perf_counter() - start)
    bounds = {"forward": best["copy"] + best["mask"], "forward and gradient": 2 * best["copy"] + best["mask"]}
    for name, seconds in best.items():
        bound = bounds.get(name)
        print(f"{name:<26} {seconds * 1e3:8.2f} ms" + (f" {bound / seconds:6.0%} of the bound" if bound else ""))


if __name__ == "__main__":
    main()
