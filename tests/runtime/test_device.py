"""The device that a string means."""

import dataclasses
from functools import cache

import pytest

from pytensor_cl.errors import DeviceNotFound
from pytensor_cl.runtime import device
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.device import DeviceEntry, discover, resolve
from tests.helpers import run_script


def entry(spec, stable, kind="cpu", name="device", platform="platform"):
    info = dataclasses.replace(discover()[0].info, kind=kind, name=name, platform=platform, vendor="vendor")
    return DeviceEntry(spec, stable, info, None)


@pytest.fixture
def machine(monkeypatch):
    """A machine with two GPUs, an Intel CPU runtime and PoCL."""
    entries = (
        entry("opencl0:0", "opencl:intel:0", name="Xeon", platform="Intel(R) OpenCL"),
        entry("opencl1:0", "opencl:nvidia:0", "gpu", "H200", "NVIDIA CUDA"),
        entry("opencl1:1", "opencl:nvidia:1", "gpu", "A10", "NVIDIA CUDA"),
        entry("opencl2:0", "opencl:pocl:0", name="pthread-Xeon", platform="Portable Computing Language"),
    )
    monkeypatch.setattr(device, "discover", lambda: entries)
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)


NAMES = {
    "opencl0:0": "opencl0:0",
    "opencl1": "opencl1:0",
    "opencl1:1": "opencl1:1",
    " OpenCL1:01 ": "opencl1:1",
    "opencl:intel": "opencl0:0",
    "opencl:nvidia": "opencl1:0",
    "opencl:nvidia:1": "opencl1:1",
    "opencl:NVIDIA:1": "opencl1:1",
    "opencl:gpu": "opencl1:0",
    "opencl:gpu:1": "opencl1:1",
    "opencl:cpu": "opencl0:0",
    "opencl:cpu:1": "opencl2:0",
    "opencl:pocl": "opencl2:0",
    "opencl:a10": "opencl1:1",
    "opencl": "opencl1:0",
}


@pytest.mark.parametrize("name", NAMES)
def test_names(machine, name):
    assert resolve(name).spec == NAMES[name]


@pytest.mark.parametrize(
    "name",
    ["opencl9:0", "opencl0:7", "opencl:amd", "opencl:nvidia:2", "opencl:", "cuda0", "", "opencl:gpu:x", "opencl-1"],
)
def test_names_of_nothing(machine, name):
    with pytest.raises(DeviceNotFound, match="(?s)There are:.*opencl1:1  or  opencl:nvidia:1  A10"):
        resolve(name)


def test_default_device(machine, monkeypatch):
    monkeypatch.setenv("PYOPENCL_CTX", "2")
    assert resolve("opencl").spec == "opencl2:0"
    monkeypatch.setenv("PYOPENCL_CTX", "1:1")
    assert resolve("opencl").spec == "opencl1:1"
    monkeypatch.setenv("PYOPENCL_CTX", "portable")
    assert resolve("opencl").spec == "opencl1:0"


def test_pocl_is_the_default_without_a_gpu(monkeypatch):
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    entries = (entry("opencl0:0", "opencl:intel:0"), entry("opencl1:0", "opencl:pocl:0"))
    monkeypatch.setattr(device, "discover", lambda: entries)
    assert resolve("opencl").spec == "opencl1:0"


def test_no_driver_at_all(monkeypatch):
    monkeypatch.setattr(device, "discover", lambda: ())
    for name in ("opencl", "opencl0:0", "opencl:gpu"):
        with pytest.raises(DeviceNotFound, match="(?s)no OpenCL device at all.*pip install"):
            resolve(name)


class Empty:
    """A platform without devices."""

    version = "OpenCL 3.0"

    def __init__(self, name):
        self.name = self.vendor = name

    def get_devices(self):
        raise cl.RuntimeError("clGetDeviceIDs failed: DEVICE_NOT_FOUND")


def test_platforms_without_devices_are_named(monkeypatch):
    monkeypatch.setattr(device, "_platforms", lambda: [Empty("rusticl"), Empty("other")])
    monkeypatch.setattr(device, "_empty", [])
    monkeypatch.setattr(device, "discover", cache(device.discover.__wrapped__))
    rusticl, other = device.empty_platforms()
    assert "the platform rusticl has no device" in rusticl and "RUSTICL_ENABLE=radeonsi" in rusticl
    assert other == "the platform other has no device"
    with pytest.raises(DeviceNotFound, match="platform rusticl has no device.*RUSTICL_ENABLE"):
        resolve("opencl:gpu")


def test_without_pyopencl_there_is_one_line():
    script = """
        import contextlib, io, sys
        sys.modules["pyopencl"] = None
        import pytensor, pytensor.tensor as pt
        from pytensor_cl.cli import main
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            seen["code"] = main(["devices"])
        seen["out"] = out.getvalue()
        x = pt.fvector("x")
        try:
            pytensor.function([x], x + 1, mode="OPENCL")
        except Exception as error:
            seen["error"] = f"{type(error).__name__}: {error}"
    """
    seen, stderr = run_script(script)
    assert (seen["code"], stderr) == (1, "")
    listed = seen["out"].partition("\n\n")[0]  # drivers that do not work may follow
    for text in (listed.removeprefix("No OpenCL device was found.\n"), seen["error"]):
        assert len(text.splitlines()) == 1 and "pyopencl cannot be imported" in text
        assert "pip install pyopencl" in text and "drivers" not in text
    assert seen["error"].startswith("DeviceNotFound")


def test_facts(context):
    info = context.info
    assert info.kind in ("cpu", "gpu", "accelerator")
    assert info.schedule == ("cpu" if info.kind == "cpu" else "simt")
    assert dataclasses.replace(info, kind="gpu").schedule == "simt"
    assert info.compute_units >= 1 and info.max_allocation <= info.global_memory
    assert set(info.as_dict()) >= {"name", "has_fp64", "schedule"}
    assert resolve(context.entry.spec) is context.entry is resolve(context.entry.stable_spec)
