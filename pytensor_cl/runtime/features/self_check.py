"""Probe the features of a device and its driver when the device is opened for the first time.

The probes run in a child process: some drivers end the process instead of rejecting a program. All run at once, in one
program. Those without a result, and those that failed, run again one by one, in as many processes as necessary. The
probe during which a process ends has failed.

The results are kept if they are the driver's own answers: values, errors of its compiler, and crashes. A probe that
failed for another reason fails for this process only: somebody ended its process, it took too long, or there was no
memory, no room on disk, or no other process.
"""

import json
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from pytensor_cl import kept_threads
from pytensor_cl.codegen.announcement import announce
from pytensor_cl.codegen.folders import free_bytes
from pytensor_cl.errors import UnusableDevice
from pytensor_cl.runtime import worker_processes
from pytensor_cl.runtime.cache_dirs import ROOM, compiler_folder
from pytensor_cl.runtime.device import DeviceEntry, DeviceInfo, discover
from pytensor_cl.runtime.features import early_check
from pytensor_cl.runtime.features.features import FeatureFile, Features
from pytensor_cl.runtime.features.probe import ProbeResult
from pytensor_cl.runtime.features.probe_process import MARK, identity_of, run_probes
from pytensor_cl.runtime.features.probes import PROBES
from pytensor_cl.runtime.progress import compiling

_FIRST, _NEXT = 90, 20
"""Seconds for loading the drivers, and for each probe."""

_COMMAND = worker_processes.command("features.probe_process")

_CRASH_NAMES = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGTRAP", "SIGSYS")
_CRASHES = {getattr(signal, name) for name in _CRASH_NAMES if hasattr(signal, name)}
"""Signals with which a driver ends a process. Others come from outside."""

_LACKS = ("MemoryError:", "OSError:", "BlockingIOError:", "OUT_OF_HOST_MEMORY", "OUT_OF_RESOURCES", "No space left")
"""Texts in the errors of a probe when the machine lacks something."""

_NOT_PROBED = "not probed: the probe may end the process, and no other process could be started"


def features_of(entry: DeviceEntry, cache_dir: str | None = None) -> Features:
    """Return the features of a device's driver: from the cache, or by probes.

    `cache_dir`: the package's cache folder; None is the user's.
    """
    return _features_of(entry, cache_dir)


@cache
def _features_of(entry: DeviceEntry, cache_dir: str | None) -> Features:
    identity = identity_of(entry.handle)
    file = FeatureFile(identity, cache_dir)
    known = file.read()
    if known is None and early_check.finish():
        known = file.read()
    if known is not None:
        return known
    check = _SelfCheck(entry, identity)
    with compiling("the self-check of a new driver", f"{entry.info.platform} {entry.info.driver}"):
        results = check.results()
    features = _collected(results, check.passing)
    if not features.passing:
        file.write(features)
    elif not features.problem:  # opening the device reports this
        _announce_repetition(entry, features)
    return features


def _announce_repetition(entry: DeviceEntry, features: Features) -> None:
    names = ", ".join(name.replace("_", " ") for name in features.missing)
    announce(
        f"pytensor-cl: the self-check of {entry.stable_spec} is repeated by the next process. This one does without: "
        f"{names} ({features.passing})",
        f"self-check of {entry.stable_spec}",
    )


def with_features(info: DeviceInfo, features: Features) -> DeviceInfo:
    """Return the properties of a device without those that it claims and does not have."""
    return replace(
        info,
        features=features,
        has_fp64=info.has_fp64 and features.fp64,
        has_fp16=info.has_fp16 and features.fp16,
        host_alignment=features.host_alignment if info.kind == "cpu" else 0,
    )


def check_usable(entry: DeviceEntry, features: Features) -> None:
    """Raise an error for a device on which kernels cannot run.

    Raises `UnusableDevice`: a feature without a substitute is missing; the message has its name and the driver.
    """
    info = entry.info
    if features.problem and features.passing:
        raise UnusableDevice(
            f"the self-check of {entry.stable_spec} {info.name} could not be finished: {features.passing}. "
            "The next process repeats it"
        )
    if features.problem:
        raise UnusableDevice(
            f"{entry.stable_spec} {info.name} failed its self-check (driver: {info.platform} {info.driver}): "
            f"{features.problem}. Update the driver, or choose another device: 'python -m pytensor_cl devices' lists "
            "them, 'python -m pytensor_cl doctor' shows each check"
        )


def _collected(results: dict[str, ProbeResult], passing: str = "") -> Features:
    """Return the features according to the results of probes."""
    values: dict[str, Any] = {name: result.value for name, result in results.items() if name != "plain"}
    values["vectors"] = tuple(values["vectors"])
    reasons = tuple((name, result.why) for name, result in results.items() if result.why)
    features = Features(**values, reasons=reasons, passing=passing if reasons else "")
    return replace(features, problem=_problem(features, dict(reasons)))


def _problem(features: Features, reasons: dict[str, str]) -> str:
    """Return the name of a missing feature without a substitute, and the reason; empty if there is none."""
    if "plain" in reasons:
        return f"plain arithmetic ({reasons['plain']})"
    if not features.atomics:
        return f"32-bit atomic functions ({reasons.get('atomics', '')})"
    if not (features.local_memory or features.has_cpu_schedule):
        return f"local memory and barriers ({reasons.get('local_memory', '')})"
    return ""


class _SelfCheck:
    """The probes of one device.

    `passing`: why a probe has failed without being the driver's answer; empty if none has.
    """

    def __init__(self, entry: DeviceEntry, identity: tuple[str, ...]) -> None:
        self._entry, self._identity = entry, identity
        self._names = [probe.name for probe in PROBES]
        self.passing = ""

    def results(self) -> dict[str, ProbeResult]:
        """Return the results of all probes, in their order."""
        try:
            if not worker_processes.can_start():
                raise OSError("no interpreter")
            found = self._run_in_processes()
        except OSError:
            found = self._run_in_this_process()
        self._note_lacks([result.why for result in found.values() if result.why])
        return {name: found[name] for name in self._names}

    def _note_lacks(self, reasons: Sequence[str]) -> None:
        """Find out whether probes failed because the machine lacked something."""
        if not reasons or self.passing:
            return
        full = next((f for f in (compiler_folder(), Path(tempfile.gettempdir())) if free_bytes(f) < ROOM), None)
        if full is not None:
            self.passing = f"there is no space left in {full}"
        else:
            self.passing = next((why for why in reasons if any(text in why for text in _LACKS)), "")

    def _run_in_processes(self) -> dict[str, ProbeResult]:
        results, _ = self._process(self._names, together=True)
        found = {name: result for name, result in results.items() if not result.why}
        left = [name for name in self._names if name not in found]
        self.passing = ""  # a failed feature is probed again
        while left:
            results, end = self._process(left, together=False)
            found |= results
            left = [name for name in left if name not in results]
            if left:
                found[left[0]] = ProbeResult(_fallback_of(left[0]), end)
                del left[0]
            if left and not results:  # the drivers cannot be loaded
                self.passing = self.passing or end
                found |= {name: ProbeResult(_fallback_of(name), end) for name in left}
                break
        return found

    def _process(self, names: Sequence[str], together: bool) -> tuple[dict[str, ProbeResult], str]:
        """Return the results of a process, and a message about its end."""
        job = {"identity": self._identity, "number": _alike(self._entry), "names": list(names), "together": together}
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=worker_processes.environment(),
            ) as process,
        ):
            try:
                results, timed_out = _read_results(process, json.dumps(job).encode())
            finally:
                process.kill()  # no effect if it has ended
            if timed_out:
                self.passing = f"no result within {_NEXT if results else _FIRST} s"
                return results, self.passing
            status = process.wait()
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        end = ": ".join((f"the process ended with {how}", *last))
        if status < 0 and -status not in _CRASHES:
            self.passing = end
        return results, end

    def _run_in_this_process(self) -> dict[str, ProbeResult]:
        """Run in this process the probes that have never ended a process."""
        self.passing = _NOT_PROBED
        found = {probe.name: ProbeResult(probe.fallback, _NOT_PROBED) for probe in PROBES if probe.is_risky}
        run_probes(self._entry.handle, [n for n in self._names if n not in found], False, found.__setitem__)
        return found


def _alike(entry: DeviceEntry) -> int:
    """Return the number of devices of the same identity before this one."""
    identity, number = identity_of(entry.handle), 0
    for other in discover():
        if other.handle == entry.handle:
            break
        number += identity_of(other.handle) == identity
    return number


def _fallback_of(name: str) -> Any:
    return next(probe.fallback for probe in PROBES if probe.name == name)


def _read_results(process: "subprocess.Popen[bytes]", job: bytes) -> tuple[dict[str, ProbeResult], bool]:
    """Return the results of a process, and whether it exceeded the time limit."""
    lines: SimpleQueue[bytes | None] = SimpleQueue()

    def read() -> None:
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError):  # the process may have ended
            process.stdin.write(job)
            process.stdin.close()
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    kept_threads.start(read, "pytensor-cl self-check")
    results: dict[str, ProbeResult] = {}
    while True:
        try:
            line = lines.get(timeout=_NEXT if results else _FIRST)
        except Empty:
            return results, True
        if line is None:
            return results, False
        results.update(_parse(line))


def _parse(line: bytes) -> dict[str, ProbeResult]:
    """Return the result in a line of a process's output; none if the line is truncated."""
    text = line.decode(errors="replace")
    if not text.startswith(MARK):
        return {}
    try:
        name, value, why = json.loads(text.removeprefix(MARK))
    except ValueError:
        return {}
    return {name: ProbeResult(value, why)}
