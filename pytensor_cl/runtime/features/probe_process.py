"""The process in which probes run.

``python -m pytensor_cl.runtime.features.probe_process`` reads the device and the names of the probes from its input. It
writes each result at once, since a driver may end the process at the next probe. See `self_check`.
"""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.cpu_name import repair_cpu_name
from pytensor_cl.runtime.features.probe import Device, Probe, ProbeResult
from pytensor_cl.runtime.features.probes import PROBES

MARK = "pytensor_cl feature: "
"""Prefix of the lines with results: drivers print lines of their own."""


def _applies(handle: "cl.Device", probe: Probe) -> bool:
    if probe.of_cpus and not handle.type & cl.device_type.CPU:
        return False
    if probe.extension == "cl_khr_fp64" and _has_double(handle):
        return True
    return not probe.extension or probe.extension in handle.extensions.split()


def _has_double(handle: "cl.Device") -> bool:
    try:
        return bool(handle.double_fp_config)
    except cl.Error:  # unknown to old drivers
        return False


def _run(handle: "cl.Device", probe: Probe, device: Device | None = None) -> ProbeResult:
    try:
        return ProbeResult(probe.check(device or Device(handle), probe.text))
    except Exception as error:  # drivers raise anything
        text = " ".join(str(error).split())
        return ProbeResult(probe.fallback, f"{type(error).__name__}: {text[:300]}")


def run_probes(
    handle: "cl.Device", names: Sequence[str], together: bool, report: Callable[[str, ProbeResult], None]
) -> None:
    """Run probes on a device.

    `handle`: the pyopencl device; `names`: names of probes; `together`: build one program for all of them, which is
    faster. If it does not build, there are no results; `report`: called with each result.
    """
    probes = [p for p in PROBES if p.name in names]
    for probe in probes:
        if not _applies(handle, probe):
            report(probe.name, ProbeResult(probe.fallback))
    probes = [probe for probe in probes if _applies(handle, probe)]
    if not together:
        for probe in probes:  # each with a context of its own: a failed command may leave the queue useless
            report(probe.name, _run(handle, probe))
        return
    with suppress(Exception):  # after an error of the driver the probes are run one by one
        device = Device(handle)
        device.share("".join(p.text for p in probes))
        for probe in probes:
            report(probe.name, _run(handle, probe, device))


def identity_of(handle: "cl.Device") -> tuple[str, ...]:
    """Return the texts that identify a device, its driver and their versions."""
    platform = handle.platform
    texts = platform.name, platform.version, handle.name, handle.vendor, handle.version, handle.driver_version
    return (*(text.strip() for text in texts), " ".join(sorted(handle.extensions.split())))


def _find(identity: Sequence[str], number: int) -> "cl.Device":
    """Return the device of an identity; several may have the same one."""
    alike = []
    for platform in cl.get_platforms():
        with suppress(cl.Error):
            alike += [d for d in platform.get_devices() if list(identity_of(d)) == list(identity)]
    return alike[number]


def _no_core_files() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Run the probes that the input names."""
    _no_core_files()
    job = json.loads(sys.stdin.read())

    def report(name: str, result: ProbeResult) -> None:
        sys.stdout.write(f"\n{MARK}{json.dumps([name, *result])}\n")
        sys.stdout.flush()

    handle = _find(job["identity"], job["number"])
    repair_cpu_name(handle)
    report("", ProbeResult(None))  # the drivers are loaded
    run_probes(handle, job["names"], job["together"], report)


if __name__ == "__main__":
    main()
