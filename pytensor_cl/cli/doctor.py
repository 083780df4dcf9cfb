"""``doctor``: checks the installation, the results of kernels, and their speed."""

import argparse
import os
import platform
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytensor.configdefaults import config

from pytensor_cl.cli import start_up_hook
from pytensor_cl.cli.cache_folders import CacheFolder, cache_folders
from pytensor_cl.cli.device_checks import check_device
from pytensor_cl.cli.drivers import registered_drivers, searched_places
from pytensor_cl.cli.finding import Finding
from pytensor_cl.cli.text import paint, print_json, print_row, size
from pytensor_cl.runtime.context import Settings, open_context
from pytensor_cl.runtime.device import (
    DeviceEntry,
    discover,
    empty_platforms,
    resolve,
    unlisted_drivers,
    unused_gpu,
    why_no_device,
)
from pytensor_cl.runtime.drivers import all_hooks
from pytensor_cl.runtime.features.features import Features
from pytensor_cl.runtime.features.self_check import features_of
from pytensor_cl.runtime.unlisted_drivers import is_own_folder

_COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}

# Environment variables that are shown, with the reason for a warning, if any.
_VARIABLES = {
    "PYTENSOR_FLAGS": "",
    "PYTENSORRC": "",
    "OCL_ICD_VENDORS": "",
    "OPENCL_VENDOR_PATH": "",
    "OCL_ICD_FILENAMES": "the loader inside pyopencl's wheels ignores it: use OCL_ICD_VENDORS",
    "PYOPENCL_CTX": "",
    "PYOPENCL_BUILD_OPTIONS": "these options reach every kernel",
    "PYOPENCL_COMPILER_OUTPUT": "",
    "PYOPENCL_NO_CACHE": "kernels are compiled again in every process, unless the driver has a cache",
    "POCL_CACHE_DIR": "",
    "POCL_KERNEL_CACHE": "0 makes PoCL compile every kernel again in every process",
    "POCL_DEVICES": "",
    "POCL_MAX_PTHREAD_COUNT": "PoCL uses no more cores than this",
    "POCL_AFFINITY": "",
    "POCL_DEBUG": "slows PoCL down",
    "XDG_CACHE_HOME": "",
    "NO_COLOR": "",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--device", help="examine this device only (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _drivers() -> Iterator[Finding]:
    entries = discover()  # before the folder of the loader is looked at
    for place, text in searched_places():
        yield Finding("ok", "looked at", f"{place} ({text})")
    for driver in registered_drivers():
        status = "warn" if driver.problem else "ok"
        text = driver.problem or driver.library
        yield Finding(status, Path(driver.icd).name, f"{text} (named in {driver.icd})")
    for found in unlisted_drivers():
        yield Finding("ok", "found", str(found))
    for entry in entries:
        yield Finding("ok", entry.spec, f"{entry.info.name} ({entry.info.platform}), also {entry.stable_spec}")
    if not entries:
        yield Finding("FAIL", "devices", f"none: {why_no_device()}")
        return
    for line in empty_platforms():
        yield Finding("warn", "devices", line)
    if unused_gpu():
        yield Finding("warn", "devices", unused_gpu())


def _installed(package: str) -> Finding:
    try:
        return Finding("ok", package, version(package))
    except PackageNotFoundError:
        return Finding("warn", package, "not installed, imported from a folder on the path")


def _hook() -> Finding:
    if start_up_hook.is_installed():
        return Finding("ok", "start-up hook", "PYTENSOR_FLAGS=device=opencl... works in any script")
    text = "not installed: scripts need 'python -m pytensor_cl run', or to import pytensor_cl first"
    return Finding("warn", "start-up hook", text)


def _installation() -> Iterator[Finding]:
    yield Finding("ok", "Python", f"{platform.python_version()} on {platform.platform()}")
    yield from map(_installed, ("pytensor-cl", "pytensor", "pyopencl", "numpy"))
    yield _hook()


def _environment() -> Iterator[Finding]:
    for name, warning in _VARIABLES.items():
        value = os.environ.get(name)
        if value is not None and not (name == "OCL_ICD_VENDORS" and is_own_folder(value)):
            text = f"{value!r}: {warning}" if warning else repr(value)
            yield Finding("warn" if warning else "ok", name, text)


def _cache(folder: CacheFolder) -> Finding:
    problem = folder.problem()
    if problem:
        return Finding("warn", folder.owner, f"{folder.path} is not used: {problem}")
    text = f"{folder.path}, {size(folder.size())}"
    damaged = list(folder.damaged())
    if damaged:
        text += f", {len(damaged)} damaged files, which are made again: 'pytensor-cl cache clear' empties all caches"
    return Finding("warn" if damaged else "ok", folder.owner, text)


def _caches() -> Iterator[Finding]:
    yield from map(_cache, cache_folders())
    for hooks in all_hooks():
        if hooks.repaired_files:
            text = f"{hooks.repaired_files} damaged files were removed from {hooks.name}'s cache when it was loaded"
            yield Finding("warn", "repaired", text)


def _features(features: Features) -> Iterator[Finding]:
    """Yield the features of a device's driver, with the reasons of missing ones."""
    reasons = dict(features.reasons)
    for name, value in features.as_dict().items():
        if name in ("problem", "passing", "reasons"):
            continue
        shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else str(value)
        why = f": {reasons[name]}" if name in reasons else ""
        yield Finding("warn" if why else "ok", name.replace("_", " "), f"{shown}{why}")
    if features.warning:
        yield Finding("warn", "self-check", features.warning)
    if features.passing:
        yield Finding("warn", "self-check", f"{features.passing}; the next process repeats it")
    if features.problem:
        yield Finding("FAIL", "self-check", features.problem)


def _device(entry: DeviceEntry) -> Callable[[], Iterator[Finding]]:
    def findings() -> Iterator[Finding]:
        try:
            settings = Settings(cache_dir=config.opencl__cache_dir or None)
            yield from _features(features_of(entry, settings.cache_dir))
            yield from check_device(open_context(entry.stable_spec, "doctor", settings))
        except Exception as error:  # drivers raise anything; the next device must still be examined
            yield Finding("FAIL", "broken off", f"{type(error).__name__}: {error}")

    return findings


def _sections(device: str | None) -> dict[str, Callable[[], Iterator[Finding]]]:
    sections = {
        "Drivers": _drivers,
        "Installation": _installation,
        "Environment": _environment,
        "Caches": _caches,
    }
    entries = [resolve(device)] if device else discover()
    return sections | {f"{e.spec} {e.info.name} ({e.info.platform})": _device(e) for e in entries}


def _print_finding(finding: Finding) -> None:
    if print_row((finding.status, finding.subject, finding.text), (4, 20), _COLOURS):
        return
    status = paint(f"{finding.status:<4}", _COLOURS[finding.status])
    print(f"  {status}  {finding.subject:<18}  {finding.text}", flush=True)


def _shown(title: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings of a section; each is printed when it is known, because some take seconds."""
    print(paint(title, "bold"))
    for finding in findings:
        _print_finding(finding)
        yield finding


def run(options: argparse.Namespace) -> int:
    """Check the installation and each device; the exit code is 1 if a check failed."""
    sections = _sections(options.device)
    show = (lambda _, findings: findings) if options.json else _shown
    report = {title: list(show(title, findings())) for title, findings in sections.items()}
    statuses = [finding.status for found in report.values() for finding in found]
    failed, warned = statuses.count("FAIL"), statuses.count("warn")
    if options.json:
        listed = [{"title": title, "findings": [f._asdict() for f in found]} for title, found in report.items()]
        print_json({"failed": failed, "warned": warned, "sections": listed})
    else:
        print(f"\n{failed} failed, {warned} to look at, {statuses.count('ok')} ok")
    return 1 if failed else 0
