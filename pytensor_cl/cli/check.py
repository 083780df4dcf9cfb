"""``check``: Theano's check program, on a device and in PyTensor's default mode."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.cli import start_up_hook
from pytensor_cl.cli.run import with_device
from pytensor_cl.cli.text import paint, print_json, print_table
from pytensor_cl.runtime.device import DeviceEntry, resolve

# A script that does not mention this package; do not change its text.
PROGRAM = """\
import time, numpy, pytensor
from pytensor import function, config, shared, tensor
vlen, iters = 10 * 30 * 768, 1000
rng = numpy.random.RandomState(22)
x = shared(numpy.asarray(rng.rand(vlen), config.floatX))
f = function([], tensor.exp(x))
print(f.maker.fgraph.toposort())
t0 = time.time()
for i in range(iters):
    r = f()
print("Looping %d times took" % iters, time.time() - t0, "seconds"); print("Result is", r)
if numpy.any([isinstance(n.op, tensor.elemwise.Elemwise) and "Gpu" not in type(n.op).__name__ for n in f.maker.fgraph.toposort()]):
    print("Used the cpu")
else:
    print("Used the gpu")
"""  # noqa: E501
_TOLERANCE = 1e-5  # the results are printed with eight digits


class Outcome(NamedTuple):
    """The output of a run of the check program."""

    seconds: float
    values: list[float]  # the numbers of its abridged result
    used_gpu: bool  # whether it prints ``Used the gpu``
    graph: str  # the nodes of its function


class CheckFailed(Exception):
    """The check program failed; the message is its output."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--device", default="opencl", help="OpenCL device (default: the best one)")
    parser.add_argument("--iters", type=int, default=1000, help="calls per run (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, in turn (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _environment(device: str) -> dict[str, str]:
    """Return this process's environment with flags for `device` and float32, without a mode."""
    ours = ("device", "contexts", "floatX", "mode", "linker")
    items = (item.strip() for item in os.environ.get("PYTENSOR_FLAGS", "").split(","))
    kept = [item for item in items if item and item.partition("=")[0].strip() not in ours]
    return {**os.environ, "PYTENSOR_FLAGS": with_device(",".join([*kept, "floatX=float32"]), device)}


def _parse(text: str) -> Outcome:
    took = re.search(r"took (\S+) seconds", text)
    result = re.search(r"Result is \[([^\]]*)\]", text)
    if not (took and result):
        raise CheckFailed(text)
    values = [float(word) for word in result[1].split() if word != "..."]
    return Outcome(float(took[1]), values, "Used the gpu" in text, text.splitlines()[0])


def _execute(command: list[str], device: str) -> Outcome:
    """Run the check program in an interpreter of its own.

    Raises `CheckFailed`: it failed, or printed something else than the check program does.
    """
    done = subprocess.run(command, env=_environment(device), capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckFailed(f"{done.stdout}{done.stderr}")
    return _parse(done.stdout)


def _take_turns(device: str, iters: int, repeats: int, *, hooked: bool) -> tuple[list[Outcome], list[Outcome]]:
    """Run device and default mode alternately, so that other load affects both."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "check.py"
        script.write_text(PROGRAM if iters == 1000 else PROGRAM.replace("1000", str(iters)))
        plain = [sys.executable, str(script)]
        on_device = plain if hooked else [sys.executable, "-m", "pytensor_cl", "run", str(script)]
        pairs = [(_execute(on_device, device), _execute(plain, "cpu")) for _ in range(repeats)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _largest_difference(a: list[float], b: list[float]) -> float:
    if len(a) != len(b):
        return float("inf")
    return float(np.max(np.abs(np.divide(a, b) - 1)))  # NaN where either is NaN, which agrees with nothing


def _report(entry: DeviceEntry, device: list[Outcome], default: list[Outcome]) -> dict[str, Any]:
    best = [min(outcome.seconds for outcome in runs) for runs in (device, default)]
    difference = _largest_difference(device[0].values, default[0].values)
    return {
        "device": entry.stable_spec,
        "name": entry.info.name,
        "platform": entry.info.platform,
        "device_seconds": [outcome.seconds for outcome in device],
        "default_seconds": [outcome.seconds for outcome in default],
        "ratio": best[1] / best[0],
        "largest_difference": difference,
        "graph": device[0].graph,
        "used_gpu": all(outcome.used_gpu for outcome in device),
        "agree": difference <= _TOLERANCE,
    }


def _print_text(report: dict[str, Any]) -> None:
    print(f"{report['device']} {report['name']} ({report['platform']})")
    print(f"exp of 230,400 float32, {report['iters']} calls, graph {report['graph']}\n")
    runs = zip(report["device_seconds"], report["default_seconds"], strict=True)
    header = ("run", "on the device", "default mode")
    rows = [(i, f"{a:.4f} s", f"{b:.4f} s") for i, (a, b) in enumerate(runs, 1)]
    print_table(header, rows, right=header)
    print(f"\nbest against best: the device is {report['ratio']:.2f} times as fast")
    if not report["start_up_hook"]:
        print("the start-up hook is not installed: the program ran by 'python -m pytensor_cl run'")
    agree = "results agree" if report["agree"] else f"results DIFFER by {report['largest_difference']:.1e}"
    print(paint(agree, "green" if report["agree"] else "red"))
    print(paint("Used the gpu", "green") if report["used_gpu"] else paint("Used the cpu", "red"))


def run(options: argparse.Namespace) -> int:
    """Run the check program; the exit code is 0 if the device was used and both results agree."""
    entry, hooked = resolve(options.device), start_up_hook.is_installed()
    try:
        device, default = _take_turns(entry.stable_spec, options.iters, options.repeats, hooked=hooked)
    except CheckFailed as failure:
        print(f"the check program failed:\n{failure}", file=sys.stderr)
        return 1
    report = _report(entry, device, default) | {"iters": options.iters, "start_up_hook": hooked}
    if options.json:
        print_json(report)
    else:
        _print_text(report)
    return 0 if report["used_gpu"] and report["agree"] else 1
