"""Updates of 50 tensors of a million float32 numbers in all: kernels, launches, and the share of a copy's bandwidth.

usage: python benchmarks/optimizers.py [opencl:pocl] [--rounds 30] [--tensors 50]

The bytes that count are those of parameters, gradients and moments that are read, and of parameters and moments that
are written, each once: 7 words an element for Adam. The copy moves as many bytes. The functions take turns; a figure is
the least of all rounds, of the clock and of the process's own time on all threads, which other programs disturb less.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pytensor
from pytensor.graph.basic import Variable

import pytensor_cl
from pytensor_cl import optimizers

ELEMENTS = 1_000_000


class Case(NamedTuple):
    """A function, and the words that it has to move for each element."""

    function: Callable[[], object]
    words: int


def variables(count: int) -> list:
    """Return shared variables of `ELEMENTS` numbers in all."""
    rng, size = np.random.default_rng(0), ELEMENTS // count
    return [pytensor.shared(rng.normal(size=size).astype("float32"), name=f"w{k}", shape=(size,)) for k in range(count)]


def compiled(updates: Mapping[Variable, Variable], outputs: list | None = None) -> Callable[[], object]:
    """Compile updates for the device."""
    return pytensor.function([], outputs, updates=updates, mode="OPENCL")


def cases(tensors: int) -> dict[str, Case]:
    """Return the functions by name, the copy first."""
    source = pytensor.shared(np.ones(ELEMENTS * 7 // 2, "float32"), shape=(ELEMENTS * 7 // 2,))
    target = pytensor.shared(source.get_value(), shape=source.type.shape)
    found = {"copy": Case(compiled({target: source * np.float32(1.5)}), 7)}
    for name, words in (("sgd", 3), ("momentum", 5), ("adam", 7)):
        params, grads = variables(tensors), variables(tensors)
        found[name] = Case(compiled(getattr(optimizers, name)(grads, params)), words)
    params = variables(tensors)
    grads, norm = optimizers.clip_by_global_norm(variables(tensors), 1.0)
    found["adam, clipped"] = Case(compiled(optimizers.adam(grads, params), [norm]), 8)
    found["adam, one tensor"] = Case(compiled(optimizers.adam(variables(1), variables(1))), 7)
    return found


def measure(found: dict[str, Case], rounds: int) -> None:
    """Print kernels, launches and the least times of each case."""
    clock, own = (dict.fromkeys(found, float("inf")) for _ in range(2))
    for _ in range(rounds + 1):
        for name, case in found.items():
            start, begun = time.perf_counter(), time.process_time()
            for _ in range(5):
                case.function()
            pytensor_cl.sync()
            clock[name] = min(clock[name], (time.perf_counter() - start) / 5)
            own[name] = min(own[name], (time.process_time() - begun) / 5)
    print(f"{'':<18}{'kernels':>8}{'launches':>9}{'clock':>10}{'own time':>10}{'share of copy: clock, own':>27}")
    for name, case in found.items():
        graph = pytensor_cl.explain(case.function).captured_graphs[-1]
        shares = [times["copy"] / found["copy"].words / (times[name] / case.words) for times in (clock, own)]
        print(
            f"{name:<18}{graph.kernels:>8}{graph.launches:>9}{clock[name] * 1e3:>7.2f} ms{own[name] * 1e3:>7.2f} ms"
            f"{shares[0]:>20.0%}{shares[1]:>7.0%}"
        )


def main() -> None:
    """Measure on a device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="opencl")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tensors", type=int, default=50)
    options = parser.parse_args()
    pytensor.config.opencl__placement, pytensor.config.opencl__select_backend = "device", False
    pytensor_cl.use(options.device)
    measure(cases(options.tensors), options.rounds)


if __name__ == "__main__":
    main()
