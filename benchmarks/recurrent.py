"""Recurrent layers on the device beside JAX (`lax.scan`) and PyTorch, by turns, each in processes of its own.

usage: python benchmarks/recurrent.py [device] [--layer lstm] [--rounds 15] [--turns 3] [--size 100,32,128,128 ...]
       [--jax-python PATH] [--torch-python PATH]

A size is T,N,I,H: steps, rows, lengths of an input and of a state. `forward` are the outputs; `gradients` are those of
their squared norm, of the input and of all parameters, float32. The bound is that of the multiplications and additions
at the rate that one product of 1024 x 1024 x 1024 reaches on the device. PATH is a Python with JAX, and one with
PyTorch; those that are not given are left out.
"""

import argparse
import json
import subprocess
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

SEED = 20261126
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
SIZES = "100,32,128,128", "35,20,200,200", "28,64,64,64"
CASES = "forward", "gradients"
PEER_NAMES = {"jax": "JAX", "torch": "PyTorch"}

Size = tuple[int, int, int, int]
Call = Callable[[], Any]


def arrays(layer: str, size: Size) -> list[np.ndarray]:
    """Return the input, weight_ih, weight_hh, bias_ih and bias_hh."""
    t, n, i, h = size
    rows = GATES[layer] * h
    rng = np.random.default_rng(SEED)
    shapes = (t, n, i), (rows, i), (rows, h), (rows,), (rows,)
    return [(rng.normal(size=shape) / (1 if k == 0 else h**0.5)).astype("float32") for k, shape in enumerate(shapes)]


def flops(layer: str, size: Size, case: str) -> float:
    """Return the multiplications and additions of the products."""
    t, n, i, h = size
    return 2.0 * t * n * GATES[layer] * h * (i + h) * (1 if case == "forward" else 3)


# Each of these returns a call of each case, in the process of the peer


def device_calls(layer: str, size: Size) -> list[Call]:
    """Return calls of functions that run on the device."""
    import pytensor
    import pytensor.tensor as pt
    from pytensor.configdefaults import config

    from pytensor_cl import nn

    values = arrays(layer, size)
    inputs = [pt.tensor(shape=(None,) * v.ndim, dtype="float32") for v in values]
    x, *parameters = inputs
    out, _ = getattr(nn, layer)(x, None, *parameters)
    calls = []
    for outputs in ([out], pytensor.grad((out**2).sum(), inputs)):
        with config.change_flags(opencl__placement="device"):
            shared = [pytensor.shared(v) for v in values]
            f = pytensor.function([], outputs, givens=dict(zip(inputs, shared, strict=True)), mode="OPENCL")
        f.trust_input = True
        calls.append(f)
    return calls


def jax_calls(layer: str, size: Size) -> list[Call]:
    """Return calls of compiled functions of JAX."""
    import jax
    import jax.numpy as jnp

    def tanh(state: Any, x: Any, p: Any) -> Any:
        h = jnp.tanh(x + p)
        return (h,), h

    def gru(state: Any, x: Any, p: Any) -> Any:
        (xr, xz, xn), (pr, pz, pn) = jnp.split(x, 3, axis=1), jnp.split(p, 3, axis=1)
        z = jax.nn.sigmoid(xz + pz)
        n = jnp.tanh(xn + jax.nn.sigmoid(xr + pr) * pn)
        h = n + z * (state[0] - n)
        return (h,), h

    def lstm(state: Any, x: Any, p: Any) -> Any:
        i, f, g, o = jnp.split(x + p, 4, axis=1)
        c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    cell = {"rnn": tanh, "gru": gru, "lstm": lstm}[layer]

    def outputs(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            return cell(state, row, state[0] @ w_hh.T + b_hh)

        zero = jnp.zeros((x.shape[1], w_hh.shape[1]), x.dtype)
        return jax.lax.scan(step, (zero, zero)[: 2 if layer == "lstm" else 1], x @ w_ih.T + b_ih)[1]

    values = [jnp.asarray(v) for v in arrays(layer, size)]
    gradient = jax.grad(lambda *inputs: (outputs(*inputs) ** 2).sum(), tuple(range(5)))
    compiled = [jax.jit(f) for f in (outputs, gradient)]
    return [lambda f=f: jax.block_until_ready(f(*values)) for f in compiled]


def torch_calls(layer: str, size: Size) -> list[Call]:
    """Return calls of PyTorch's module."""
    import torch

    torch.set_num_threads(2)
    i, h = size[2:]
    module = getattr(torch.nn, {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}[layer])(i, h)
    x, *parameters = (torch.tensor(v) for v in arrays(layer, size))
    with torch.no_grad():
        for own, value in zip(module.parameters(), parameters, strict=True):
            own.copy_(value)
    x.requires_grad_()

    def forward() -> Any:
        with torch.no_grad():
            return [module(x)[0].numpy()]

    def gradients() -> Any:
        loss = (module(x)[0] ** 2).sum()
        return [v.numpy() for v in torch.autograd.grad(loss, [x, *module.parameters()])]

    return [forward, gradients]


def measured(calls: Sequence[Call], rounds: int) -> list[list[float]]:
    """Return the seconds of calls of each case."""
    found = []
    for call in calls:
        for _ in range(5):
            call()
        times = []
        for _ in range(rounds):
            start = perf_counter()
            call()
            times.append(perf_counter() - start)
        found.append(times)
    return found


def peer_times(peer: str, python: str, options: argparse.Namespace, size: str) -> list[list[float]]:
    """Return the seconds of a peer's calls, timed in a process of its own."""
    command = [python, __file__, "--child", peer, "--layer", options.layer, "--rounds", str(options.rounds)]
    done = subprocess.run([*command, "--size", size], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def large_product() -> Call:
    """Return a call of a large product on the device."""
    import pytensor
    import pytensor.tensor as pt
    from pytensor.configdefaults import config

    a = pytensor.shared(np.ones((1024, 1024), "float32"))
    with config.change_flags(opencl__placement="device"):
        f: Call = pytensor.function([], pt.dot(a, a).sum(), mode="OPENCL")
    return f


def report(options: argparse.Namespace, size: str, product: Call) -> str:
    """Return the lines of a size."""
    numbers = tuple(map(int, size.split(",")))
    calls = device_calls(options.layer, numbers)  # type: ignore[arg-type]
    peers = {p: python for p in PEER_NAMES if (python := getattr(options, f"{p}_python"))}
    times: dict[str, list[list[float]]] = {p: [[], []] for p in ("device", *peers)}
    products: list[float] = []
    for _ in range(options.turns):
        turn = {p: peer_times(p, python, options, size) for p, python in peers.items()}
        turn["device"] = measured(calls, options.rounds)
        products += measured([product], options.rounds)[0]
        for name, found in turn.items():
            for own, new in zip(times[name], found, strict=True):
                own += new
    lines, rate = [], 2 * 1024**3 / min(products) / 1e9
    for k, case in enumerate(CASES):
        bound = flops(options.layer, numbers, case) / rate / 1e6  # type: ignore[arg-type]
        figures = " | ".join(
            f"{1e3 * min(times[p][k]):.2f} ({1e3 * median(times[p][k]):.2f})" if p in times else "-"
            for p in ("device", *PEER_NAMES)
        )
        lines.append(f"| {options.layer} {size}, {case} | {bound:.2f} ({rate:.0f} GFLOP/s) | {figures} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="opencl")
    parser.add_argument("--layer", choices=GATES, default="lstm")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--size", action="append")
    for peer in PEER_NAMES:
        parser.add_argument(f"--{peer}-python", default="")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = options.size or SIZES
    if options.child:
        numbers = tuple(map(int, sizes[0].split(",")))
        print(
            json.dumps(
                measured(
                    {"jax": jax_calls, "torch": torch_calls}[options.child](options.layer, numbers), options.rounds
                )
            )
        )
        return
    import pytensor_cl

    pytensor_cl.use(options.device)
    product = large_product()
    print("| ms, fastest (median) | bound | device | JAX | PyTorch |\n|---|---|---|---|---|")
    for size in sizes:
        print(report(options, size, product), flush=True)


if __name__ == "__main__":
    main()
