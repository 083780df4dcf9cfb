"""Time of functions of large device arrays, beside NumPy and JAX.

usage: python benchmarks/arrays.py [device] [name ...]

The libraries are called by turns, each with arrays of its own, and the least time counts, in milliseconds, until the
result is there. JAX's functions are compiled (``jit``) in the column "jax", and called one by one in "jax eager". A
name, such as ``sum``, takes the cases that begin with it.
"""

import sys
from collections.abc import Callable
from time import perf_counter
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pytensor_cl.array as xp
from pytensor_cl import use

ROUNDS = 7
SIZE, ROWS, COLUMNS = 1 << 24, 4096, 4096

Arrays = dict[str, Any]
Case = Callable[[Any, Arrays], Any]


def _softmax(m: Any, a: Arrays) -> Any:
    x = a["matrix"]
    e = m.exp(x - m.max(x, axis=1, keepdims=True))
    return e / m.sum(e, axis=1, keepdims=True)


CASES: dict[str, Case] = {
    "add": lambda m, a: a["x"] + a["y"],
    "chain": lambda m, a: m.exp(-a["x"] * a["x"]) * 2 + 1,
    "sum": lambda m, a: m.sum(a["x"]),
    "sum axis 0": lambda m, a: m.sum(a["matrix"], axis=0),
    "sum axis 1": lambda m, a: m.sum(a["matrix"], axis=1),
    "max axis 0": lambda m, a: m.max(a["matrix"], axis=0),
    "mean axis 1": lambda m, a: m.mean(a["matrix"], axis=1),
    "var": lambda m, a: m.var(a["x"]),
    "var axis 0": lambda m, a: m.var(a["matrix"], axis=0),
    "var axis 1": lambda m, a: m.var(a["matrix"], axis=1),
    "softmax": _softmax,
    "argmax axis 1": lambda m, a: m.argmax(a["matrix"], axis=1),
    "transpose": lambda m, a: a["matrix"].T + 0,
    "cumulative sum": lambda m, a: m.cumulative_sum(a["x"]),
    "take": lambda m, a: a["x"][a["index"]],
    "mask": lambda m, a: a["x"][a["mask"]],
    "where": lambda m, a: m.where(a["mask"], a["x"], a["y"]),
    "matmul": lambda m, a: a["square"] @ a["square"],
    "sort": lambda m, a: m.sort(a["million"]),
    "argsort": lambda m, a: m.argsort(a["million"]),
    "fft": lambda m, a: m.fft.fft(a["complex"]),
    "median": lambda m, a: m.median(a["million"]),
}


def arrays_of(convert: Callable[[np.ndarray], Any]) -> Arrays:
    """Return the operands as arrays of a library."""
    rng = np.random.default_rng(0)
    x, y = rng.random((2, SIZE), "float32")
    million = rng.random(1 << 20, "float32")
    host = {
        "x": x,
        "y": y,
        "matrix": x.reshape(ROWS, COLUMNS),
        "index": rng.integers(0, SIZE, SIZE // 4),
        "mask": x > 0.5,
        "square": rng.random((1024, 1024), "float32"),
        "million": million,
        "complex": (million + 1j).astype("complex64"),
    }
    return {name: convert(array) for name, array in host.items()}


def _calls(case: Case, arrays: dict[str, Arrays]) -> dict[str, Callable[[], Any]]:
    """Return the calls of a case, which return when the result is there."""

    def waits_for_jax(call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: call().block_until_ready()

    def compiled(a: Arrays) -> Any:
        return case(jnp, a)

    jitted = jax.jit(compiled)
    own: ModuleType = xp
    return {
        "ours": lambda: case(own, arrays["ours"]).sync(),
        "numpy": lambda: case(np, arrays["numpy"]),
        "jax eager": waits_for_jax(lambda: case(jnp, arrays["jax"])),
        "jax": waits_for_jax(lambda: jitted(arrays["jax"])),
    }


def least(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the least time of each call in milliseconds; NaN of one that the library refuses."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = perf_counter()
            try:
                call()
            except jax.errors.NonConcreteBooleanIndexError:  # the shape depends on values
                best[name] = float("nan")
                continue
            best[name] = min(best[name], (perf_counter() - start) * 1e3)
    return best


def main() -> None:
    """Print a line for each case."""
    device, *names = sys.argv[1:] or ["opencl:pocl"]
    use(device)
    jax.config.update("jax_enable_x64", True)
    arrays = {"ours": arrays_of(xp.asarray), "numpy": arrays_of(np.asarray), "jax": arrays_of(jnp.asarray)}
    print(f"{'':16}{'ours':>10}{'numpy':>10}{'jax eager':>11}{'jax':>10}   best of the others / ours")
    for name, case in CASES.items():
        if names and not any(name.startswith(n) for n in names):
            continue
        times = least(_calls(case, arrays))
        others = np.nanmin([times[n] for n in times if n != "ours"])
        columns = f"{times['ours']:10.2f}{times['numpy']:10.2f}{times['jax eager']:11.2f}{times['jax']:10.2f}"
        print(f"{name:16}{columns}{others / times['ours']:9.2f}", flush=True)


if __name__ == "__main__":
    main()
