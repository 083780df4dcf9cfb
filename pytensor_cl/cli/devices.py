"""``devices``: lists the devices."""

import argparse
import re
import textwrap
from collections.abc import Sequence

from pytensor.configdefaults import config

from pytensor_cl.cli.drivers import Driver, registered_drivers
from pytensor_cl.cli.text import paint, print_json, print_table, size
from pytensor_cl.runtime.device import (
    DeviceEntry,
    DeviceInfo,
    discover,
    empty_platforms,
    resolve,
    unlisted_drivers,
    unused_gpu,
    why_no_device,
)
from pytensor_cl.runtime.features.features import Features
from pytensor_cl.runtime.features.self_check import features_of, with_features

_HEADER = ("device", "by name", "name", "driver", "OpenCL", "units", "memory", "fp64", "fp16", "self-check")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def _row(entry: DeviceEntry) -> tuple[object, ...]:
    info = _info(entry)
    version = re.search(r"\d+\.\d+", info.version)
    driver = f"{info.platform} {info.driver}"
    yes_no = ("no", "yes")
    return (
        entry.spec,
        entry.stable_spec,
        info.name,
        driver,
        version[0] if version else info.version,
        info.compute_units,
        size(info.global_memory),
        yes_no[info.has_fp64],
        yes_no[info.has_fp16],
        _feature_summary(info.features),
    )


def _info(entry: DeviceEntry) -> DeviceInfo:
    """Return the facts of a device, including its driver's features."""
    return with_features(entry.info, features_of(entry, config.opencl__cache_dir or None))


def _feature_summary(features: Features) -> str:
    if features.problem:
        return "FAILED"
    return f"ok, without {len(features.missing)}" if features.missing else "ok"


def _remarks(entry: DeviceEntry) -> list[str]:
    """Return the result of a device's self-check as text."""
    features = _info(entry).features
    if features.problem:
        return [f"{entry.spec} cannot be used: {features.problem}"]
    names = ", ".join(name.replace("_", " ") for name in features.missing)
    lines = [f"{entry.spec} does without: {names}; 'python -m pytensor_cl doctor' shows why"] if names else []
    return [*lines, f"{entry.spec}: {features.warning}"] if features.warning else lines


def _as_dict(entry: DeviceEntry) -> dict[str, object]:
    return {"device": entry.spec, "by_name": entry.stable_spec, **_info(entry).as_dict()}


def _found() -> dict[str, object]:
    """Return what JSON has of drivers that no ``.icd`` file names, and of a GPU that is no device."""
    drivers = [{**d._asdict(), "command": d.command} for d in unlisted_drivers()]
    return {"unlisted_drivers": drivers, "unused_gpu": unused_gpu()}


def _print_text(entries: Sequence[DeviceEntry], broken: Sequence[Driver]) -> None:
    if entries:
        rows = [_row(entry) for entry in entries]
        colours = {"FAILED": "red", "ok": "green", "no": "yellow"}
        print_table(_HEADER, rows, ("units", "memory"), colours=colours, wrapped=("name", "driver"))
        for remark in (line for entry in entries for line in _remarks(entry)):
            print(f"\n{remark}")
        for line in empty_platforms():
            print(f"\n{line[0].upper()}{line[1:]}.")
        if unused_gpu():
            print(f"\n{paint(unused_gpu(), 'yellow')}")
        print(f"\nUse one:  PYTENSOR_FLAGS=device={resolve('opencl').stable_spec},floatX=float32 python script.py")
    else:
        print(f"No OpenCL device was found.\n{textwrap.fill(why_no_device(), 100)}")
    for found in unlisted_drivers():
        print(f"\n{found}")
    if broken:
        print(f"\n{paint('Drivers that do not work:', 'yellow')}")
    for driver in broken:
        print(f"  {driver.icd}: {driver.problem}")


def run(options: argparse.Namespace) -> int:
    """List devices and broken drivers; the exit code is 1 if there is no device."""
    entries = discover()
    drivers = registered_drivers()
    if options.json:
        print_json({"devices": [_as_dict(e) for e in entries], "drivers": [d._asdict() for d in drivers], **_found()})
    else:
        _print_text(entries, [driver for driver in drivers if driver.problem])
    return 0 if entries else 1
