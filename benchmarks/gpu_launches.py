"""Time captured graphs on a GPU with small kernels merged into one launch, and with each kernel launched on its own.

usage: PYTENSOR_FLAGS=device=opencl:gpu python benchmarks/gpu_launches.py OUT.json [name ...] [--seconds 60]

The functions are those of `tools.launch_counts`; names choose the functions whose names contain one of them. A line has
microseconds of a call in a row of calls, by turns, and seconds of the first calls until one is replayed, merged and
not. Every result of the one is compared with that of the other.
"""

import argparse
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytensor

from pytensor_cl.runtime.registry import get_context
from tools.launch_counts import cases

FIRST_CALLS = 4  # the third is captured
ROUNDS = 9
SECONDS_IN_A_ROW = 0.02


def _arrays(result: Any) -> list[np.ndarray]:
    found = result if isinstance(result, list | tuple) else [] if result is None else [result]
    return [np.asarray(value) for value in found]


def _row(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    get_context("dev0").queue.wait()
    return (time.perf_counter() - start) / count


def measure(make: Callable[[], Any]) -> dict[str, Any]:
    """Return what the report says of a function."""
    launcher, calls, found = get_context("dev0").launcher, {}, {}
    results = {}
    for name, merges in (("single", False), ("merged", True)):  # so the second compiles only what is merged
        launcher.merges = merges
        start = time.perf_counter()
        function, arguments = make()
        calls[name] = lambda function=function, arguments=arguments: function(*arguments)
        seconds = []
        for _ in range(FIRST_CALLS):
            result = calls[name]()
            seconds.append(time.perf_counter() - start)
        results[name] = _arrays(result)
        found[f"{name}_first_s"] = seconds
    for one, other in zip(results["single"], results["merged"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    counts = {name: max(3, int(SECONDS_IN_A_ROW / _row(call, 3))) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            samples[name].append(_row(call, counts[name]))
    return found | {f"{name}_us": 1e6 * median(values) for name, values in samples.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    end, report = time.monotonic() + options.seconds, {}
    pytensor.config.opencl__placement = "device"
    for name, make in cases():
        if options.names and not any(part in name for part in options.names):
            continue
        if time.monotonic() > end:
            print(f"no time for {name} and those after it")
            break
        try:
            report[name] = found = measure(make)
            print(
                f"{name:<44} {found['single_us']:8.1f} us  merged {found['merged_us']:8.1f} us "
                f"{found['single_us'] / found['merged_us']:5.2f}  first calls {found['single_first_s'][-1]:.2f} s, "
                f"then {found['merged_first_s'][-1]:.2f} s",
                flush=True,
            )
        except Exception as error:  # a line of the report
            traceback.print_exc()
            report[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
