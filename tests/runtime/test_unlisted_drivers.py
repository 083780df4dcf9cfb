"""Drivers that no ``.icd`` file names."""

import os
import re
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest

from pytensor_cl.cli import devices, doctor
from pytensor_cl.cli.finding import Finding
from pytensor_cl.errors import DeviceNotFound
from pytensor_cl.runtime import device, unlisted_drivers
from pytensor_cl.runtime.icd import icd_folder
from pytensor_cl.runtime.names import bundled_folder
from pytensor_cl.runtime.unlisted_drivers import WHEELS, UnlistedDriver, find_unlisted, use_unlisted_drivers
from tests.helpers import run_script


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with an NVIDIA card, whose driver's folder is ``lib``, and a folder of .icd files."""
    for name in ("dev", "lib", "vendors", "cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "dev" / "nvidia3").touch()
    monkeypatch.setattr(unlisted_drivers, "DEVICES", tmp_path / "dev")
    monkeypatch.setattr(unlisted_drivers, "FOLDERS", (f"{tmp_path}/nowhere*", f"{tmp_path}/lib"))
    monkeypatch.setattr(unlisted_drivers, "LOADER_CACHE", tmp_path / "ld.so.cache")
    monkeypatch.setattr(unlisted_drivers, "NVIDIA_MODULE", tmp_path / "module")
    monkeypatch.setattr(unlisted_drivers, "WHEELS", {})
    monkeypatch.setattr(unlisted_drivers, "default_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(unlisted_drivers, "use_unlisted_drivers", cache(use_unlisted_drivers.__wrapped__))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.setenv("OPENCL_VENDOR_PATH", str(tmp_path / "vendors"))
    return tmp_path


def put(*paths):
    """Make files that are libraries for this interpreter by their first bytes."""
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(Path(sys.executable).read_bytes()[:64])


def libraries(machine):
    """Name and library of each driver that is found, relative to the machine."""
    return {d.name: os.path.relpath(d.library, machine) for d in find_unlisted(machine / "vendors")}


@pytest.mark.parametrize(
    "names, expected",
    [
        ((".580.159.04",), ".580.159.04"),
        ((".9.1", ".10.2"), ".10.2"),
        (("", ".1", ".580.159.04"), ".1"),
        (("", ".580.159.04"), ".580.159.04"),
        (("",), ""),
    ],
)
def test_the_file_that_is_taken(machine, names, expected):
    put(*(machine / "lib" / f"libnvidia-opencl.so{name}" for name in names))
    assert libraries(machine) == {"nvidia": f"lib/libnvidia-opencl.so{expected}"}


def test_places(machine, monkeypatch):
    put(*(machine / name / "libnvidia-opencl.so.1" for name in ("lib", "own", "cached")))
    assert libraries(machine) == {"nvidia": "lib/libnvidia-opencl.so.1"}
    (machine / "ld.so.cache").write_bytes(
        b"glibc-ld.so.cache1.1\3\0\0libz.so.1\0/lib/libz.so.1\0libnvidia-opencl.so.1\0"
        + os.fsencode(machine / "cached" / "libnvidia-opencl.so.1")
        + b"\0/gone/libnvidia-opencl.so.2\0"
    )
    assert libraries(machine) == {"nvidia": "cached/libnvidia-opencl.so.1"}
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{machine / 'own'}")
    assert libraries(machine) == {"nvidia": "own/libnvidia-opencl.so.1"}


def test_what_is_not_taken(machine):
    lib = machine / "lib"
    put(lib / "libnvidia-opencl.so.1.old", lib / "libamdocl64.so", lib / "libigdrcl.so")
    (lib / "libnvidia-opencl.so.2").write_bytes(b"\x7fELF\1\1\1" + bytes(60))  # for 32 bits
    assert libraries(machine) == {}  # no card of AMD's or Intel's
    (machine / "dev" / "kfd").touch()
    (machine / "dev" / "dri").mkdir()
    (machine / "dev" / "dri" / "renderD128").touch()
    assert libraries(machine) == {"amd": "lib/libamdocl64.so", "intel": "lib/libigdrcl.so"}
    (machine / "dev" / "nvidia3").unlink()
    put(lib / "libnvidia-opencl.so.1")
    assert "nvidia" not in libraries(machine)


@pytest.mark.parametrize("listed", ["a path", "a name", "a path that does not exist", "a name that does not load"])
def test_listed_drivers(machine, monkeypatch, listed):
    library = machine / "lib" / "libnvidia-opencl.so.1"
    put(library)
    if listed == "a name":
        monkeypatch.setenv("LD_LIBRARY_PATH", str(machine / "lib"))
    text = {"a path": str(library), "a path that does not exist": "/nowhere/libnvidia-opencl.so.1"}
    (machine / "vendors" / "nvidia.icd").write_text(text.get(listed, library.name) + "\n")
    assert bool(libraries(machine)) == ("does not" in listed)


def test_the_wheel_of_intels_runtime(machine, monkeypatch):
    (machine / "dev" / "nvidia3").unlink()
    metadata = machine / "site" / "intel_opencl_rt-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: intel-opencl-rt\nVersion: 1\n")
    (metadata / "RECORD").write_text("../lib/libintelocl.so,,\n../lib/libintelocl.so.1,,\n")
    monkeypatch.syspath_prepend(machine / "site")
    monkeypatch.setattr(unlisted_drivers, "WHEELS", WHEELS)
    assert libraries(machine) == {}  # uninstalled by hand
    put(machine / "lib" / "libintelocl.so", machine / "lib" / "libintelocl.so.1")
    assert libraries(machine) == {"intel-cpu": "lib/libintelocl.so"}
    unlisted_drivers.use_unlisted_drivers()
    (icd,) = Path(os.environ["OCL_ICD_VENDORS"]).glob("*.icd")
    assert icd.read_text() == f"{machine}/lib/libintelocl.so\n"
    unlisted_drivers.use_unlisted_drivers.cache_clear()  # as a child process
    assert [driver.name for driver in unlisted_drivers.use_unlisted_drivers()] == ["intel-cpu"]
    (machine / "vendors" / "intel-cpu.icd").write_text("/elsewhere/lib/libintelocl.so")  # the wheel's own
    assert libraries(machine) == {"intel-cpu": "lib/libintelocl.so"}
    (machine / "vendors" / "intel.icd").write_text(f"{machine}/lib/libintelocl.so")
    assert libraries(machine) == {}


def test_the_folder_of_a_conda_environment(machine, monkeypatch):
    monkeypatch.delenv("OPENCL_VENDOR_PATH")
    monkeypatch.setattr(sys, "prefix", str(machine))
    assert icd_folder() == Path("/etc/OpenCL/vendors")
    (machine / "conda-meta").mkdir()
    (machine / "conda-meta" / "python-3.12.json").touch()
    assert icd_folder() == Path("/etc/OpenCL/vendors")  # pyopencl is pip's, and its loader too
    (machine / "conda-meta" / "pyopencl-2026.1.json").touch()
    assert icd_folder() == machine / "etc/OpenCL/vendors"
    assert f"> {machine}/etc/OpenCL/vendors/amd.icd" in UnlistedDriver("amd", "/lib/libamdocl64.so").command


def test_the_folder_of_the_loader(machine):
    put(machine / "lib" / "libnvidia-opencl.so.1")
    other = machine / "vendors" / "other.icd"
    other.write_text("libother.so")
    (found,) = unlisted_drivers.use_unlisted_drivers()
    folder = Path(os.environ["OCL_ICD_VENDORS"])
    assert unlisted_drivers.is_own_folder(folder)
    assert {icd.name: icd.read_text() for icd in folder.glob("*.icd")} == {
        "other.icd": "libother.so",
        "pytensor-cl-nvidia.icd": f"{found.library}\n",
    }
    unlisted_drivers.use_unlisted_drivers.cache_clear()  # as a child process, which inherits the variable
    assert unlisted_drivers.use_unlisted_drivers() == (found,)
    assert os.environ["OCL_ICD_VENDORS"] == str(folder)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    unlisted_drivers.use_unlisted_drivers.cache_clear()
    (machine / "lib" / "libnvidia-opencl.so.1").unlink()
    assert unlisted_drivers.use_unlisted_drivers() == ()
    assert "OCL_ICD_VENDORS" not in os.environ


def test_a_child_process_of_one_whose_folder_was_removed(machine):
    put(machine / "lib" / "libnvidia-opencl.so.1")
    unlisted_drivers.use_unlisted_drivers()
    setting = os.environ["OCL_ICD_VENDORS"]
    shutil.rmtree(setting)  # as pytensor-cl cache clear does
    unlisted_drivers.use_unlisted_drivers.cache_clear()
    assert [driver.name for driver in unlisted_drivers.use_unlisted_drivers()] == ["nvidia"]
    assert os.environ["OCL_ICD_VENDORS"] == setting and Path(setting).is_dir()


def test_the_users_setting_wins(machine, monkeypatch):
    put(machine / "lib" / "libnvidia-opencl.so.1")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(machine / "vendors"))
    assert unlisted_drivers.use_unlisted_drivers() == ()
    assert os.environ["OCL_ICD_VENDORS"] == str(machine / "vendors")
    assert "OCL_ICD_VENDORS=" in unlisted_drivers.nvidia_problem()


def test_a_cache_folder_that_cannot_be_used(machine, monkeypatch):
    put(machine / "lib" / "libnvidia-opencl.so.1")
    (machine / "file").touch()
    monkeypatch.setattr(unlisted_drivers, "default_folder", lambda: machine / "file")
    assert unlisted_drivers.use_unlisted_drivers()
    assert unlisted_drivers.is_own_folder(os.environ["OCL_ICD_VENDORS"])


def test_why_there_is_no_platform(machine):
    assert "no libnvidia-opencl.so.1 was found" in unlisted_drivers.nvidia_problem()
    put(machine / "lib" / "libnvidia-opencl.so.1")
    assert f"{machine}/lib/libnvidia-opencl.so.1: " in unlisted_drivers.nvidia_problem()  # does not load
    (machine / "dev" / "nvidia3").unlink()
    assert unlisted_drivers.nvidia_problem() == ""
    (machine / "module").mkdir()
    assert "docker run --gpus all" in unlisted_drivers.nvidia_problem()


def test_the_cpu_does_not_compute_silently(monkeypatch, capsys):
    cpu = next(entry for entry in device.discover() if entry.info.kind == "cpu")
    said = []
    monkeypatch.setattr(device, "discover", lambda: (cpu,))
    monkeypatch.setattr(device, "nvidia_problem", lambda: "an NVIDIA GPU, but: a reason")
    monkeypatch.setattr(device, "unused_gpu", cache(device.unused_gpu.__wrapped__))
    monkeypatch.setattr(device, "announce", said.append)
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    device.resolve(cpu.stable_spec)  # the user's choice
    assert not said
    assert device.resolve("opencl") is cpu
    assert "the CPU computes" in said[0] and "a reason" in said[0]
    with pytest.raises(DeviceNotFound, match="a reason"):
        device.resolve("opencl:gpu")


def test_devices_and_doctor_say_what_was_found(monkeypatch, capsys):
    driver = UnlistedDriver("nvidia", "/lib/libnvidia-opencl.so.580")
    for module in (devices, doctor):
        monkeypatch.setattr(module, "unlisted_drivers", lambda: (driver,))
        monkeypatch.setattr(module, "unused_gpu", lambda: "a reason")
    devices._print_text(device.discover()[:1], [])
    text = capsys.readouterr().out
    line = "echo /lib/libnvidia-opencl.so.580 > /etc/OpenCL/vendors/nvidia.icd"
    assert line in text and "a reason" in text
    findings = list(doctor._drivers())
    assert any(finding.subject == "found" and line in finding.text for finding in findings)
    assert Finding("warn", "devices", "a reason") in findings
    found = devices._found()
    assert found["unlisted_drivers"][0]["library"] == driver.library and found["unused_gpu"] == "a reason"


@pytest.mark.skipif(not (bundled_folder() or Path("-")).is_dir(), reason="PoCL's wheel is the stand-in")
def test_a_stand_in_answers(machine):
    """A driver that only this package names is loaded, in a process that has no .icd file for it."""
    (library,) = bundled_folder().glob("libpocl-*.so")
    (machine / "lib" / "libnvidia-opencl.so.580.1").symlink_to(library)
    seen, log = run_script(
        f"""
        from pathlib import Path
        import pyopencl  # by the user, before
        from pytensor_cl.runtime import unlisted_drivers as module
        module.DEVICES, module.FOLDERS = Path({str(machine / "dev")!r}), ({str(machine / "lib")!r},)
        module.LOADER_CACHE, module.WHEELS = Path("/nowhere"), {{}}
        from pytensor_cl.runtime import device
        seen["names"] = [driver.name for driver in device.unlisted_drivers()]
        seen["platforms"] = [platform.name for platform in pyopencl.get_platforms()]
        seen["icd"] = module.library_problem(device.unlisted_drivers()[0].library, Path("/"))
        """,
        OPENCL_VENDOR_PATH=str(machine / "vendors"),
        OCL_ICD_VENDORS="",
        OCL_ICD_DEBUG="15",
        XDG_CACHE_HOME=str(machine / "cache"),
    )
    assert seen["names"] == ["nvidia"] and seen["icd"] is None
    assert "Portable Computing Language" in seen["platforms"]
    loaded = re.search(
        rf"Loading ICD '{re.escape(str(machine / 'lib' / 'libnvidia-opencl.so.580.1'))}'.*?ICD\[\d\] loaded", log, re.S
    )
    assert loaded, log
