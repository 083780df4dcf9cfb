"""Resizing of images and their neighbourhoods, with gradients, as a share of the bandwidth of a copy, and JAX.

usage: python benchmarks/resampling.py [--rounds 10]

Images of shape (16, 64, 56, 56), float32, grow to 112 x 112. The bytes that count are those of the two passes, one
along each axis: each reads what the one before has written. A kernel for both axes at once would move 55 % of them.
Neighbourhoods are of 3 x 3 pixels, one around each pixel but at the border. The cases take turns; a figure is the best
of all rounds. JAX's `jax.image.resize` computes the same where images grow, but for cubic interpolation, whose
parameter is another one.
"""

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pytensor
from pytensor.graph.basic import Variable

from pytensor_cl import nn
from pytensor_cl.runtime.registry import sync

SHAPE = (16, 64, 56, 56)
GROWN = (16, 64, 112, 112)
HALFWAY = (16, 64, 112, 56)


class Case(NamedTuple):
    """A call, and the bytes that it has to move."""

    call: Callable[[], Any]
    moved: int


def on_device(result: Variable) -> Callable[[], Any]:
    """Return a call that computes a variable of device arrays and leaves it there."""
    ndim = result.type.ndim
    place = pytensor.shared(np.zeros((1,) * ndim, "float32"), shape=(None,) * ndim)
    f = pytensor.function([], [], updates={place: result}, mode="OPENCL")

    def call() -> None:
        f()
        sync()

    return call


def size(*shapes: tuple[int, ...]) -> int:
    """Return the bytes of arrays."""
    return sum(4 * int(np.prod(shape)) for shape in shapes)


def cases() -> dict[str, Case]:
    """Return the calls by their names."""
    rng = np.random.default_rng(0)
    x = pytensor.shared(rng.normal(size=SHAPE).astype("float32"), shape=SHAPE)
    dy = pytensor.shared(rng.normal(size=GROWN).astype("float32"), shape=GROWN)
    found = {"copy": Case(on_device(dy + np.float32(1)), size(GROWN, GROWN))}
    passes = size(SHAPE, HALFWAY, HALFWAY, GROWN)
    for mode in ("nearest", "bilinear", "bicubic"):
        y = nn.resize(x, 112, mode=mode)
        found[mode] = Case(on_device(y), passes)
        found[f"{mode}, gradient"] = Case(on_device(pytensor.grad(None, x, known_grads={y: dy})), passes)
    rows = nn.images2neibs(x, (3, 3), (1, 1))
    d_rows = pytensor.shared(np.ones((16 * 64 * 54 * 54, 9), "float32"), shape=(16 * 64 * 54 * 54, 9))
    back = pytensor.grad(None, x, known_grads={rows: d_rows})
    found["neighbourhoods"] = Case(on_device(rows), size(SHAPE, d_rows.type.shape))
    found["neighbourhoods, gradient"] = Case(on_device(back), size(SHAPE, d_rows.type.shape))
    return found | jax_cases(passes)


def jax_cases(moved: int) -> dict[str, Case]:
    """Return the calls of JAX; none where it is not installed."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return {}
    x, dy = jnp.ones(SHAPE, "float32"), jnp.ones(GROWN, "float32")
    found = {}
    for ours, mode in (("nearest", "nearest"), ("bilinear", "linear"), ("bicubic", "cubic")):

        def resize(x: Any, mode: str = mode) -> Any:
            return jax.image.resize(x, GROWN, mode)

        forward = jax.jit(resize)
        gradient = jax.jit(lambda x, dy, resize=resize: jax.vjp(resize, x)[1](dy)[0])
        found[f"JAX {ours}"] = Case(lambda f=forward: jax.block_until_ready(f(x)), moved)
        found[f"JAX {ours}, gradient"] = Case(lambda f=gradient: jax.block_until_ready(f(x, dy)), moved)
    return found


def main() -> None:
    """Measure on the default device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    pytensor.config.opencl__placement = "device"
    found = cases()
    best = dict.fromkeys(found, float("inf"))
    for _ in range(options.rounds + 1):
        for name, case in found.items():
            start = perf_counter()
            case.call()
            best[name] = min(best[name], perf_counter() - start)
    copied = found["copy"].moved / best["copy"]
    for name, case in found.items():
        rate = case.moved / best[name]
        print(f"{name:<24} {best[name] * 1e3:8.2f} ms {rate / 1e9:7.1f} GB/s {rate / copied:6.0%}")


if __name__ == "__main__":
    main()
