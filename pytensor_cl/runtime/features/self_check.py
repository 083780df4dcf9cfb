"""Ask a device, when it is first opened, what its driver can do.

The questions are asked in a child process: some drivers end the process instead of refusing a program. All are asked
at once, of one program. Those that were not answered, or failed, are asked again one by one, by as many processes as it
takes. A process that ends has answered the question that it was working on.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from pytensor_cl.errors import UnusableDevice
from pytensor_cl.runtime.device import DeviceEntry, DeviceInfo, discover
from pytensor_cl.runtime.features.features import FeatureFile, Features
from pytensor_cl.runtime.features.probes import MARK, PROBES, Answer, ask, identity_of
from pytensor_cl.runtime.progress import compiling

__all__ = ["adapt", "features_of", "refuse"]

_FIRST, _NEXT = 90, 20
"""Seconds until a process has loaded the drivers, and for each answer."""

_COMMAND = (sys.executable, "-P", "-m", "pytensor_cl.runtime.features.probes")

_UNASKED = "not asked: it may end the process, and no other process could be started"


def features_of(entry: DeviceEntry, cache_dir: str | None = None) -> Features:
    """Return the features of a device's driver: from the cache, or by asking.

    Parameters
    ----------
    entry
        The device.
    cache_dir
        The package's cache folder; None is the user's.
    """
    return _features_of(entry, cache_dir)


@cache
def _features_of(entry: DeviceEntry, cache_dir: str | None) -> Features:
    identity = identity_of(entry.handle)
    file = FeatureFile(identity, cache_dir)
    known = file.read()
    if known is not None:
        return known
    inquiry = _Inquiry(entry, identity)
    with compiling("the self-check of a new driver", f"{entry.info.platform} {entry.info.driver}"):
        features = _collected(inquiry.answers())
    if inquiry.is_lasting:
        file.write(features)
    return features


def adapt(info: DeviceInfo, features: Features) -> DeviceInfo:
    """Return the facts of a device, less what it claims and does not do."""
    return replace(
        info,
        features=features,
        has_fp64=info.has_fp64 and features.fp64,
        has_fp16=info.has_fp16 and features.fp16,
        host_alignment=features.host_alignment if info.kind == "cpu" else 0,
    )


def refuse(entry: DeviceEntry, features: Features) -> None:
    """Raise an error for a device on which kernels cannot run.

    Raises
    ------
    UnusableDevice
        Something failed that has no substitute; says what, and with which driver.
    """
    if features.problem:
        info = entry.info
        raise UnusableDevice(
            f"{entry.stable_spec} {info.name} failed its self-check (driver: {info.platform} {info.driver}): "
            f"{features.problem}. Update the driver, or choose another device: 'python -m pytensor_cl devices' lists "
            "them, 'python -m pytensor_cl doctor' shows each check"
        )


def _collected(answers: dict[str, Answer]) -> Features:
    """Return the features that answers tell of."""
    values: dict[str, Any] = {name: answer.value for name, answer in answers.items() if name != "plain"}
    values["vectors"] = tuple(values["vectors"])
    reasons = tuple((name, answer.why) for name, answer in answers.items() if answer.why)
    features = Features(**values, reasons=reasons)
    return replace(features, problem=_problem(features, dict(reasons)))


def _problem(features: Features, reasons: dict[str, str]) -> str:
    """Return what failed that has no substitute."""
    if "plain" in reasons:
        return f"plain arithmetic ({reasons['plain']})"
    if not features.atomics:
        return f"32-bit atomic functions ({reasons.get('atomics', '')})"
    if not (features.local_memory or features.has_cpu_schedule):
        return f"local memory and barriers ({reasons.get('local_memory', '')})"
    return ""


def _can_start() -> bool:
    """Whether there is a Python interpreter to start."""
    return "python" in Path(sys.executable or "").name.lower() and not getattr(sys, "frozen", False)


class _Inquiry:
    """Questions to a device.

    Attributes
    ----------
    is_lasting
        Whether the answers would be the same another time: nothing ran out of time.
    """

    def __init__(self, entry: DeviceEntry, identity: tuple[str, ...]) -> None:
        self._entry, self._identity = entry, identity
        self._names = [probe.name for probe in PROBES]
        self.is_lasting = True

    def answers(self) -> dict[str, Answer]:
        """Return an answer to every question, in the order of the questions."""
        try:
            if not _can_start():
                raise OSError("no interpreter")
            found = self._asked_of_processes()
        except OSError:
            found = self._asked_here()
        return {name: found[name] for name in self._names}

    def _asked_of_processes(self) -> dict[str, Answer]:
        told, _ = self._process(self._names, together=True)
        found = {name: answer for name, answer in told.items() if not answer.why}
        left = [name for name in self._names if name not in found]
        while left:
            told, end = self._process(left, together=False)
            found |= told
            left = [name for name in left if name not in told]
            if left:
                found[left[0]] = Answer(_otherwise(left[0]), end)
                del left[0]
        return found

    def _process(self, names: Sequence[str], together: bool) -> tuple[dict[str, Answer], str]:
        """Return the answers of a process, and how it ended."""
        job = {"identity": self._identity, "number": _alike(self._entry), "names": list(names), "together": together}
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": paths},
            ) as process,
        ):
            try:
                told, is_late = _listen(process, json.dumps(job).encode())
            finally:
                process.kill()  # one that has ended is not harmed
            if is_late:
                return told, f"no answer within {_NEXT if told else _FIRST} s"
            status = process.wait()
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return told, ": ".join((f"the process ended with {how}", *last))

    def _asked_here(self) -> dict[str, Answer]:
        """Ask in this process all that has never ended one."""
        self.is_lasting = False
        found = {probe.name: Answer(probe.otherwise, _UNASKED) for probe in PROBES if probe.is_risky}
        ask(self._entry.handle, [n for n in self._names if n not in found], False, found.__setitem__)
        return found


def _alike(entry: DeviceEntry) -> int:
    """Return how many devices that are like this one come before it."""
    identity, number = identity_of(entry.handle), 0
    for other in discover():
        if other.handle == entry.handle:
            break
        number += identity_of(other.handle) == identity
    return number


def _otherwise(name: str) -> Any:
    return next(probe.otherwise for probe in PROBES if probe.name == name)


def _listen(process: "subprocess.Popen[bytes]", job: bytes) -> tuple[dict[str, Answer], bool]:
    """Return the answers of a process, and whether it took too long for one."""
    lines: SimpleQueue[bytes | None] = SimpleQueue()

    def read() -> None:
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError):  # the process may have ended
            process.stdin.write(job)
            process.stdin.close()
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    Thread(target=read, daemon=True).start()
    told: dict[str, Answer] = {}
    while True:
        try:
            line = lines.get(timeout=_NEXT if told else _FIRST)
        except Empty:
            return told, True
        if line is None:
            return told, False
        told.update(_told(line))


def _told(line: bytes) -> dict[str, Answer]:
    """Return the answer in a line that a process wrote; one that was cut has none."""
    text = line.decode(errors="replace")
    if not text.startswith(MARK):
        return {}
    try:
        name, value, why = json.loads(text.removeprefix(MARK))
    except ValueError:
        return {}
    return {name: Answer(value, why)}
