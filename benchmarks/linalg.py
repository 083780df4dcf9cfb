"""Factors of matrices and linear systems: functions on the device and of PyTensor's NUMBA backend, by turns.

usage: PYTENSOR_FLAGS=device=opencl:pocl python benchmarks/linalg.py [--rounds 7] [--dtype float64] [--against FOLDER]
       PYTENSOR_FLAGS=device=opencl:pocl python benchmarks/linalg.py --general [--dtype float64]

Each line is one function: many small matrices, or one large one. The figures are the medians of the rounds; "flops"
counts the operations of the textbook. With --against, functions on the device are compared with those of another
checkout of this repository, by turns in two processes; the figures are the shortest times of all rounds, for a machine
on which other programs run. With --general the functions are those of general matrices, also of PyTensor's C backend,
and the figures are the least times of the calls of 0.6 seconds for each.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
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


COMPARED = {
    "solve, 2,000 x 16 x 16": (lambda a, b: pt.linalg.solve(a, b), (2_000, 16, 1)),
    "triangular solve, 2,000 x 16 x 16": (lambda a, b: pt.linalg.solve_triangular(a, b, lower=True), (2_000, 16, 1)),
    "QR, 256 x 256": (lambda a, b: pt.linalg.qr(a)[0], (1, 256, 1)),
    "QR, 2,000 x 16 x 16": (lambda a, b: pt.linalg.qr(a)[0], (2_000, 16, 1)),
    "SVD, 500 x 16 x 16": (lambda a, b: pt.linalg.svd(a)[0], (500, 16, 1)),
    "Eigh, 500 x 16 x 16": (lambda a, b: pt.linalg.eigh(a)[1], (500, 16, 1)),
    "Cholesky, 256 x 256": (lambda a, b: pt.linalg.cholesky(a), (1, 256, 1)),
}
"""Functions of the comparison of two checkouts, with the count and lengths of their matrices."""


def _serve(dtype: str) -> None:
    """Print the package's folder; for each line of the input, run that function ten times, and print the least time."""
    functions = {}
    for name, (make, (count, n, m)) in COMPARED.items():
        shapes = (None,) * 3 if count > 1 else (None,) * 2
        matrix, right = (pt.tensor(letter, shape=shapes, dtype=dtype) for letter in "ab")
        x = np.random.default_rng(1).normal(size=(count, n, n))
        values = (x @ x.swapaxes(-1, -2) / n + np.eye(n)).astype(dtype), np.ones((count, n, m), dtype)
        given = values if count > 1 else (values[0][0], values[1][0])
        f = pytensor.function([matrix, right], make(matrix, right), mode="OPENCL", on_unused_input="ignore")
        functions[name] = f, given
        for _ in range(6):
            f(*given)
    print(sys.modules["pytensor_cl"].__file__, flush=True)
    for line in sys.stdin:
        f, given = functions[line.strip()]
        print(min(_seconds(f, given) for _ in range(10)), flush=True)


def _compare_checkouts(folder: Path, dtype: str, rounds: int) -> None:
    """Print the least times of this checkout and of another one, in microseconds."""
    checkouts = folder.resolve(), Path(__file__).resolve().parents[1]
    command = [sys.executable, "-P", __file__, "--serve", "--dtype", dtype]
    servers = [
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for checkout in checkouts
    ]
    for server, checkout in zip(servers, checkouts, strict=True):
        found = Path(server.stdout.readline().strip())
        assert found.is_relative_to(checkout), f"{found} is not in {checkout}"
    print("| function | other us | this us | ratio |\n|---|---|---|---|")
    for name in COMPARED:
        times: list[list[float]] = [[], []]
        for _ in range(rounds):
            for server, found_times in zip(servers, times, strict=True):
                server.stdin.write(f"{name}\n")
                server.stdin.flush()
                found_times.append(float(server.stdout.readline()))
        other, this = map(min, times)
        print(f"| {name} | {1e6 * other:,.0f} | {1e6 * this:,.0f} | {this / other:.2f} |", flush=True)
    for server in servers:
        server.stdin.close()
        server.wait()


GENERAL = {
    "Schur": (pt.linalg.schur, ((1, 4), (1, 32), (1, 256), (1_000, 8))),
    "Eig": (pt.linalg.eig, ((1, 4), (1, 32), (1_000, 8), (200, 16))),
    "discrete Lyapunov equation": (lambda a: pt.linalg.solve_discrete_lyapunov(a, pt.eye(a.shape[0])), ((1, 8),)),
}
"""Functions of general matrices, with counts and orders."""


def _compare_general(dtype: str) -> None:
    """Print the least times on the device, of NUMBA and of C, in microseconds."""
    rng = np.random.default_rng(1)
    print("| function | device us | NUMBA us | C us |\n|---|---|---|---|")
    for name, (make, sizes) in GENERAL.items():
        for count, n in sizes:
            a = pt.tensor("a", shape=(None,) * (3 if count > 1 else 2), dtype=dtype)
            value = (rng.normal(size=(count, n, n)[-a.type.ndim :]) / n).astype(dtype)
            with pytensor.config.change_flags(opencl__placement="device"):
                functions = [pytensor.function([a], make(a), mode=mode) for mode in ("OPENCL", "NUMBA", "CVM")]
            for f in 5 * functions:
                f(value)
            least = [np.inf] * len(functions)
            begin = perf_counter()
            while perf_counter() - begin < 0.6 * len(functions):
                for i, f in enumerate(functions):
                    least[i] = min(least[i], _seconds(f, [value]))
            times = " | ".join(f"{1e6 * seconds:,.0f}" for seconds in least)
            print(f"| {name}, {count:,} x {n} x {n} | {times} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout of this repository")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--general", action="store_true", help="functions of general matrices")
    options = parser.parse_args()
    if options.general:
        _compare_general(options.dtype)
        return
    if options.against is not None:
        _compare_checkouts(options.against, options.dtype, options.rounds)
        return
    if options.serve:
        with pytensor.config.change_flags(opencl__placement="device"):
            _serve(options.dtype)
        return
    print("| function | matrices | device ms | NUMBA ms | ratio | device GFLOP/s |")
    print("|---|---|---|---|---|---|")
    with pytensor.config.change_flags(opencl__placement="device"):
        for case in CASES:
            for size in SIZES:
                print(_compare(case, size, options.dtype, options.rounds), flush=True)


if __name__ == "__main__":
    main()
