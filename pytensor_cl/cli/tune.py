"""``tune``: searches the fastest kernel parameters of a device and stores them in the user's cache folder."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

from pytensor.configdefaults import config

from pytensor_cl.cli.text import print_json, table
from pytensor_cl.cli.tuning_search import Bench, Trial, candidates, improve
from pytensor_cl.cli.tuning_workloads import STAGES
from pytensor_cl.codegen.folders import make_private
from pytensor_cl.runtime.context import Context, Settings, open_context
from pytensor_cl.runtime.device import DeviceEntry, resolve
from pytensor_cl.runtime.tuning import TUNING_VERSION, checked, identity_of, shipped, tuning_digest, tuning_file

try:
    from tqdm import tqdm
except ImportError:  # a line for each candidate that was better does as well
    tqdm = None

__all__ = ["add_arguments", "run"]

ACCEPTED_RATIO = 0.99  # of the time with what is shipped: a stage that gains less keeps that


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--device", default="opencl", help="OpenCL device (default: the best one)")
    parser.add_argument("--budget", type=float, default=600, help="seconds at most, about (default: %(default)g)")
    parser.add_argument("--stage", action="append", choices=list(STAGES), help="tune this only; may be repeated")
    parser.add_argument("--restart", action="store_true", help="discard what earlier runs found")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _found_before(path: Path) -> dict[str, dict[str, Any]]:
    """Return the stages of an earlier run; none if the file cannot be used."""
    try:
        found: dict[str, dict[str, Any]] = json.loads(path.read_text())["stages"]
        for stage in found.values():
            checked(stage["parameters"])
            if not (isinstance(stage["finished"], bool) and all(len(trial) == 3 for trial in stage["tried"])):
                raise ValueError("not what 'tune' writes")
            stage["speed"] = None if stage["speed"] is None else float(stage["speed"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{path} cannot be used, a new one is begun: {type(error).__name__}: {error}", file=sys.stderr)
        return {}
    return found


class _State:
    """The results so far, written to disk after every step.

    Parameters
    ----------
    path
        The file.
    entry
        The device.
    restart
        Discard the results of earlier runs.
    """

    def __init__(self, path: Path, entry: DeviceEntry, restart: bool) -> None:
        self.path = path
        self.entry = entry
        self.stages: dict[str, dict[str, Any]] = {}
        if path.is_file() and not restart:
            self.stages = _found_before(path)

    def stage(self, name: str) -> dict[str, Any]:
        """Return the results of a stage: parameters that differ from the shipped ones, and the tried values."""
        return self.stages.setdefault(name, {"parameters": {}, "tried": [], "finished": False, "speed": None})

    def parameters(self) -> dict[str, int]:
        """Return the parameters of all stages."""
        return {name: value for stage in self.stages.values() for name, value in stage["parameters"].items()}

    def save(self) -> None:
        """Write the file atomically."""
        parameters = self.parameters()
        content = {
            "version": TUNING_VERSION,
            "about": identity_of(self.entry),
            "date": str(date.today()),
            "parameters": parameters,
            "digest": tuning_digest(parameters),
            "stages": self.stages,
        }
        make_private(self.path.parent)
        handle, draft = tempfile.mkstemp(prefix=self.path.name, suffix=".new", dir=self.path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=1)
        Path(draft).replace(self.path)


class _Lines:
    """A progress bar without a bar: prints messages only."""

    def update(self) -> None:
        """Do nothing."""

    def set_description(self, text: str) -> None:
        """Do nothing."""

    def write(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr)


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    if tqdm is None or not sys.stderr.isatty():
        yield _Lines()
        return
    with tqdm(total=total, unit="candidate") as bar:
        yield bar


def _todo(state: _State, stage: str, schedule: str) -> list[tuple[str, int]]:
    known = state.stage(stage)
    tried = {(name, value) for name, value, _ in known["tried"]}
    return [] if known["finished"] else [pair for pair in candidates(stage, schedule) if pair not in tried]


def _note(state: _State, stage: str, trial: Trial, values: dict[str, int]) -> None:
    known, base = state.stage(stage), shipped(state.entry)
    known["tried"].append([trial.name, trial.value, trial.ratio if trial.ratio < 1e9 else None])
    if trial.accepted:
        own = (name for name in values if name.startswith(f"{stage}."))
        known["parameters"] = {name: values[name] for name in own if values[name] != base[name]}
        known["tried"] = []  # another best: what lost to the last one may win
    state.save()


def _conclude(state: _State, stage: str, bench: Bench, values: dict[str, int]) -> None:
    """Compare with the shipped parameters; parameters without a gain are dropped."""
    known, base = state.stage(stage), {**values, **shipped(state.entry)}
    if known["parameters"]:
        found, plain = bench.calls({**base, **known["parameters"]}), bench.calls(base)
        ratio = bench.ratio(found, plain, 4) if found and plain else 1.0
        known["speed"] = 1 / ratio if ratio <= ACCEPTED_RATIO else 1.0
        known["parameters"] = known["parameters"] if ratio <= ACCEPTED_RATIO else {}
    known["finished"] = True
    state.save()


def _tune_stage(context: Context, state: _State, stage: str, deadline: float, bar: Any) -> None:
    """Tune one stage within the budget of time."""
    values = {**shipped(state.entry), **state.parameters()}
    bench = Bench(context, STAGES[stage]())
    while todo := _todo(state, stage, context.info.schedule):
        changed = False
        for trial in improve(bench, values, todo):
            _note(state, stage, trial, values)
            bar.update()
            if trial.accepted:
                changed = True
                bar.write(f"{trial.name} = {trial.value}: {1 / trial.ratio:.2f} times as fast")
            if perf_counter() > deadline:
                return
        if not changed:
            break
    _conclude(state, stage, bench, values)


def _tune(context: Context, state: _State, stages: Iterable[str], budget: float) -> None:
    stages = [stage for stage in stages if not state.stage(stage)["finished"]]
    total = sum(len(_todo(state, stage, context.info.schedule)) for stage in stages)
    start = perf_counter()
    with _progress(total) as bar:
        for k, stage in enumerate(stages):
            bar.set_description(stage)
            left = start + budget - perf_counter()
            _tune_stage(context, state, stage, perf_counter() + left / (len(stages) - k), bar)


def _report(state: _State) -> dict[str, Any]:
    stages = {name: {**known, "tried": len(known["tried"])} for name, known in state.stages.items()}
    return {"device": state.entry.stable_spec, "file": str(state.path), "stages": stages}


def _print_text(report: dict[str, Any]) -> None:
    rows = []
    for name, known in report["stages"].items():
        changed = ", ".join(f"{key.partition('.')[2]}={value}" for key, value in known["parameters"].items())
        speed = "" if known["speed"] is None else f"{known['speed']:.2f}"
        rows.append((name, "yes" if known["finished"] else "no", speed, changed or "as shipped"))
    print(table(("stage", "finished", "times as fast", "parameters"), rows, right=("times as fast",)))
    print(f"\nkept in {report['file']}")
    if not all(known["finished"] for known in report["stages"].values()):
        print("run the command again to go on where it ended")


def run(options: argparse.Namespace) -> int:
    """Tune a device; the exit code is 130 if the user interrupted it."""
    entry, cache_dir = resolve(options.device), config.opencl__cache_dir or None
    state = _State(tuning_file(entry, cache_dir), entry, options.restart)
    context = open_context(entry.stable_spec, "tune", Settings(cache_dir=cache_dir, tuned=False))
    code = 0
    try:
        _tune(context, state, options.stage or STAGES, options.budget)
    except KeyboardInterrupt:
        code = 130
    report = _report(state)
    if options.json:
        print_json(report)
    else:
        _print_text(report)
    return code
