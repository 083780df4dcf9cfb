"""Factors of matrices and linear systems: functions on the device and of PyTensor's NUMBA backend, by turns.

usage: PYTENSOR_FLAGS=device=opencl:pocl python benchmarks/linalg.py [--rounds 7] [--dtype float64]

Each line is one function: many small matrices, or one large one. The figures are the medians of the rounds; "flops"
counts the operations of the textbook.
"""

import argparse
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt


class Case(NamedTuple):
    """A function of a batch of matrices A (count, n, n) and of right-hand sides B (count, n, m)."""

    name: str
    function: Callable[[Any, Any], Any]
    flops: Callable[[int, int], float]


CASES = (
    Case("Cholesky", lambda a, b: pt.linalg.cholesky(a), lambda n, m: n**3 / 3),
    Case("triangular solve", lambda a, b: pt.linalg.solve_triangular(a, b, lower=True), lambda n, m: n * n * m),
    Case("solve", lambda a, b: pt.linalg.solve(a, b), lambda n, m: 2 * n**3 / 3 + 2 * n * n * m),
    Case("log determinant", lambda a, b: pt.linalg.slogdet(a)[1], lambda n, m: 2 * n**3 / 3),
)
SIZES = ((10_000, 4, 1), (2_000, 16, 1), (500, 64, 1), (1, 256, 256), (1, 1024, 1), (1, 1024, 1024), (1, 2048, 2048))


def _seconds(function: Callable[..., Any], values: Sequence[np.ndarray]) -> float:
    begin = perf_counter()
    function(*values)
    return perf_counter() - begin


def _compare(case: Case, size: tuple[int, int, int], dtype: str, rounds: int) -> str:
    count, n, m = size
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, n, n))
    a = (x @ x.swapaxes(-1, -2) / n + np.eye(n)).astype(dtype)
    b = rng.normal(size=(count, n, m)).astype(dtype)
    shapes = (None,) * 3 if count > 1 else (None,) * 2
    values = (a, b) if count > 1 else (a[0], b[0])
    matrix, right = (pt.tensor(name, shape=shapes, dtype=dtype) for name in "ab")
    outputs = case.function(matrix, right)
    functions = {
        mode: pytensor.function([matrix, right], outputs, mode=mode, on_unused_input="ignore")
        for mode in ("OPENCL", "NUMBA")
    }
    results = {mode: [f(*values) for _ in range(4)][-1] for mode, f in functions.items()}
    np.testing.assert_allclose(
        results["OPENCL"], results["NUMBA"], rtol=1e-2 if dtype == "float32" else 1e-6, atol=1e-3
    )
    times: dict[str, list[float]] = {mode: [] for mode in functions}
    for _ in range(rounds):
        for mode, f in functions.items():
            times[mode].append(_seconds(f, values))
    device, host = (median(times[mode]) for mode in ("OPENCL", "NUMBA"))
    rate = count * case.flops(n, m) / device / 1e9
    shape = f"{count:,} x {n} x {n}" + (f", {m} columns" if "solve" in case.name else "")
    return f"| {case.name} | {shape} | {1e3 * device:.3f} | {1e3 * host:.3f} | {host / device:.2f} | {rate:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="float64")
    options = parser.parse_args()
    print("| function | matrices | device ms | NUMBA ms | ratio | device GFLOP/s |")
    print("|---|---|---|---|---|---|")
    with pytensor.config.change_flags(opencl__placement="device"):
        for case in CASES:
            for size in SIZES:
                print(_compare(case, size, options.dtype, options.rounds), flush=True)


if __name__ == "__main__":
    main()
