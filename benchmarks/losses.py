"""Cross entropy and its gradient beside JAX, and beside the same formula without the kernel.

usage: python benchmarks/losses.py [opencl:pocl] [--rounds 30]

Logits are float32, the labels int64; the mean loss and its gradient stay on the device. The candidates take turns; a
figure is the best of all rounds. The bound is a copy of the logits on the device: the kernel reads and writes as much.
JAX is left out if it is not installed.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

import pytensor_cl
from pytensor_cl import nn
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.runtime.registry import default_context_name, get_context

SHAPES = ((64, 10), (65536, 10), (4096, 1000), (1024, 50257), (8, 21, 256, 256))


def spelt_out(x: Any, y: Any) -> Any:
    """Return the loss of labels as users write it."""
    rows = pt.moveaxis(x, 1, -1).reshape((-1, x.shape[1]))
    return -pt.special.log_softmax(rows, axis=1)[pt.arange(rows.shape[0]), y.ravel()].mean()


def compiled(loss: Callable[[Any, Any], Any], x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    """Return a function of the loss that stores the gradient in a shared variable."""
    data, labels, slope = (pytensor.shared(v) for v in (x, y, np.zeros_like(x)))
    value = loss(data, labels)
    return pytensor.function([], value, updates={slope: pytensor.grad(value, data)}, mode="OPENCL")


def jax_function(x: np.ndarray, y: np.ndarray) -> Callable[[], Any] | None:
    """Return the same by JAX; None without it."""
    try:
        import jax
    except ImportError:
        return None

    def loss(logits: Any, labels: Any) -> Any:
        surprise = -jax.nn.log_softmax(logits, axis=1)
        return jax.numpy.take_along_axis(surprise, labels[:, None], axis=1).mean()

    function, data, labels = jax.jit(jax.value_and_grad(loss)), jax.numpy.asarray(x), jax.numpy.asarray(y)
    return lambda: jax.block_until_ready(function(data, labels))


def candidates(shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names and functions that take turns."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=shape).astype("float32")
    y = generator.integers(0, shape[1], (shape[0], *shape[2:]))
    context = get_context(default_context_name())
    copy, source = Copy(context, "float32", len(shape)), context.from_host(x)

    def bound() -> None:
        copy(source)
        context.queue.finish()

    yield "copy", bound
    yield "kernel", compiled(nn.softmax_cross_entropy, x, y)
    yield "formula", compiled(spelt_out, x, y)
    peer = jax_function(x, y)
    if peer is not None:
        yield "JAX", peer


def main() -> None:
    """Print the best time of each candidate for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="opencl")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    pytensor_cl.use(options.device)
    pytensor.config.opencl__placement = "device"
    for shape in SHAPES:
        found = dict(candidates(shape))
        best = dict.fromkeys(found, float("inf"))
        for _ in range(options.rounds * (1 if np.prod(shape) > 1 << 16 else 100)):
            for name, function in found.items():
                start = time.perf_counter()
                function()
                best[name] = min(best[name], time.perf_counter() - start)
        print(shape, ", ".join(f"{name} {seconds * 1e3:.3f} ms" for name, seconds in best.items()), flush=True)


if __name__ == "__main__":
    main()
