"""Normalisation forward and backward, beside JAX and the same formula without a marker; and the share of the bound.

usage: python benchmarks/normalization.py [opencl:pocl] [--rounds 20] [--only "layer norm"]

A case returns the result and the gradients of input, weight and bias; everything stays on the device. The gradient of
the result is the result with its first axis reversed, so that it has to be complete before the backward pass begins, as
in a network. The bound is the time in which a copy moves five arrays: x read twice, its result and the gradient of x
written, the result's gradient read. The functions take turns; a figure is the least of all rounds, of the clock and of
the process's own time on all threads, which other programs disturb less. Ratios are those of the own times.
"""

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt

import pytensor_cl
from pytensor_cl import nn

CASES = {
    "layer norm": [(4096, 512), (512, 4096), (32, 65536)],
    "rms norm": [(4096, 512), (32, 65536)],
    "batch norm": [(64, 32, 28, 28), (256, 1024)],
    "group norm": [(64, 32, 28, 28)],
}
GROUPS = 8
EPSILON = np.float32(1e-5)


def formula(module, kind: str, x, weight, bias):
    """Return the formula as a user writes it, in PyTensor (`module` is pt) or JAX."""
    if kind == "group norm":
        rows = x.reshape((x.shape[0], GROUPS, -1))
        centred = rows - rows.mean(axis=2, keepdims=True)
        normal = (centred / module.sqrt(rows.var(axis=2, keepdims=True) + EPSILON)).reshape(x.shape)
        return normal * weight.reshape((1, -1, 1, 1)) + bias.reshape((1, -1, 1, 1))
    if kind == "rms norm":
        return x / module.sqrt(module.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight
    axes = (-1,) if kind == "layer norm" else (0, *range(2, x.ndim))
    shape = (1, -1, *[1] * (x.ndim - 2))
    normal = (x - x.mean(axis=axes, keepdims=True)) / module.sqrt(x.var(axis=axes, keepdims=True) + EPSILON)
    return normal * weight.reshape(shape) + bias.reshape(shape)


def marked(kind: str, x, weight, bias):
    """Return the function of `pytensor_cl.nn`."""
    if kind == "layer norm":
        return nn.layer_norm(x, weight=weight, bias=bias, eps=float(EPSILON))
    if kind == "rms norm":
        return nn.rms_norm(x, weight=weight, eps=float(EPSILON))
    if kind == "group norm":
        return nn.group_norm(x, GROUPS, weight, bias, eps=float(EPSILON))
    return nn.batch_normalization_train(x, weight, bias, "spatial", epsilon=float(EPSILON))[0]


def data(kind: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return x, weight and bias."""
    rng = np.random.default_rng(0)
    channels = shape[-1] if kind in ("layer norm", "rms norm") else shape[1]
    return [rng.normal(size=s).astype("float32") for s in (shape, (channels,), (channels,))]


def on_device(build: Callable, kind: str, arrays: list[np.ndarray]) -> Callable[[], object]:
    """Compile a case for the device; its results are shared variables."""
    x, weight, bias = (pytensor.shared(a, shape=a.shape) for a in arrays)
    y = build(kind, x, weight, bias)
    wrt = [x, weight] if kind == "rms norm" else [x, weight, bias]
    results = [y, *pytensor.grad(None, wrt, known_grads={y: y[::-1]})]
    targets = [pytensor.shared(np.zeros(v.type.shape, "float32"), shape=v.type.shape) for v in results]
    return pytensor.function([], [], updates=dict(zip(targets, results, strict=True)), mode="OPENCL")


def with_jax(kind: str, arrays: list[np.ndarray]) -> Callable[[], object]:
    """Compile a case with JAX."""
    x, weight, bias = map(jnp.asarray, arrays)

    @jax.jit
    def case(x, weight, bias):
        y, pullback = jax.vjp(lambda x, w, b: formula(jnp, kind, x, w, b), x, weight, bias)
        return y, pullback(y[::-1])

    return lambda: jax.block_until_ready(case(x, weight, bias))


def copy_of(arrays: list[np.ndarray]) -> Callable[[], object]:
    """Return a copy that moves five times as many bytes as x has."""
    size = arrays[0].size * 5 // 2
    source, target = (pytensor.shared(np.ones(size, "float32"), shape=(size,)) for _ in range(2))
    return pytensor.function([], [], updates={target: source * np.float32(1.5)}, mode="OPENCL")


def measure(kind: str, shape: tuple[int, ...], rounds: int) -> None:
    """Print the least time of each function."""
    arrays = data(kind, shape)
    functions = {
        "nn": on_device(marked, kind, arrays),
        "formula": on_device(lambda *a: formula(pt, *a), kind, arrays),
        "jax": with_jax(kind, arrays),
        "bound": copy_of(arrays),
    }
    clock, own = (dict.fromkeys(functions, float("inf")) for _ in range(2))
    for _ in range(rounds + 5):
        for name, function in functions.items():
            start, begun = time.perf_counter(), time.process_time()
            function()
            pytensor_cl.sync()
            clock[name] = min(clock[name], time.perf_counter() - start)
            own[name] = min(own[name], time.process_time() - begun)
    figures = "".join(f"{clock[n] * 1e3:>7.2f}{own[n] * 1e3:>6.2f}" for n in functions)
    graph = pytensor_cl.explain(functions["nn"]).captured_graphs
    kernels = graph[-1].kernels if graph else 0
    ratios = "".join(f"{ratio:>9.2f}" for ratio in (own["jax"] / own["nn"], own["nn"] / own["bound"]))
    print(f"{kind + ' ' + 'x'.join(map(str, shape)):<26}{figures}{kernels:>8}{ratios}", flush=True)


def main() -> None:
    """Measure on a device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="opencl")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="run the cases whose names contain this")
    options = parser.parse_args()
    pytensor.config.opencl__placement, pytensor.config.opencl__select_backend = "device", False
    pytensor_cl.use(options.device)
    heads = "".join(f"{name:>13}" for name in ("nn", "formula", "jax", "bound"))
    print(f"{'clock, own time in ms':<26}{heads}{'kernels':>8}{'jax/nn':>9}{'nn/bound':>9}")
    for kind, shapes in CASES.items():
        for shape in shapes:
            if options.only in f"{kind} {'x'.join(map(str, shape))}":
                measure(kind, shape, options.rounds)


if __name__ == "__main__":
    main()
