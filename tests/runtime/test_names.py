"""Names of platforms: the wheel's PoCL has one of its own, ties are broken by version, and a change is reported."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from pytensor_cl.runtime import device, names
from pytensor_cl.runtime.device import DeviceEntry, discover, resolve
from pytensor_cl.runtime.names import (
    PlatformName,
    first_device_numbers,
    library_of,
    platform_name,
    report_change_of_device,
    sort_key,
    unversioned_name,
)

POCL = "Portable Computing Language"


@pytest.fixture
def platform(monkeypatch):
    """Makes a platform whose driver is a file."""
    libraries = {}
    monkeypatch.setattr(names, "library_of", lambda platform: libraries[id(platform)])

    def make(reported_name, version, library, vendor=""):
        made = SimpleNamespace(name=reported_name, version=version, vendor=vendor)
        libraries[id(made)] = library
        return made

    return make


def wheel():
    return str(names.bundled_folder() / "libpocl-21062cec.so")


def test_the_wheels_pocl_is_identified_by_its_file(platform):
    assert platform_name(platform(POCL, "OpenCL 3.0 PoCL 3.0-rc2  Linux", wheel())).name == "pocl"
    assert platform_name(platform(POCL, "OpenCL 3.0 PoCL 3.0-rc2  Linux", "/usr/lib/libpocl.so.2")).name == "pocl-3.0"
    assert (
        platform_name(platform(POCL, "OpenCL 3.0 PoCL 3.1+debian  Linux", "/usr/lib/libpocl.so.2")).name == "pocl-3.1"
    )
    assert platform_name(platform(POCL, "OpenCL 3.0", "/usr/lib/libpocl.so.2")).name == "pocl-unknown"


def test_without_the_file_the_version_identifies_the_driver(platform, monkeypatch):
    monkeypatch.setattr(names, "version", lambda package: "3.0")
    assert platform_name(platform(POCL, "OpenCL 3.0 PoCL 3.0-rc2  Linux", "")).name == "pocl"
    assert platform_name(platform(POCL, "OpenCL 3.0 PoCL 3.1+debian  Linux", "")).name == "pocl-3.1"

    def missing(package):
        raise names.PackageNotFoundError

    monkeypatch.setattr(names, "version", missing)
    assert platform_name(platform(POCL, "OpenCL 3.0 PoCL 3.0-rc2  Linux", "")).name == "pocl-3.0"


def test_other_platforms(platform):
    assert platform_name(platform("Intel(R) OpenCL", "OpenCL 3.1 LINUX", "/x.so")).name == "intel"
    assert platform_name(platform("A b/C", "OpenCL 1.2", "")).name == "a-b-c"
    assert unversioned_name("pocl-3.1") == "pocl" and unversioned_name("a-b-c") == "a-b-c" == sort_key("a-b-c")[0]


def test_the_drivers_file_is_found():
    for entry in discover():
        library = library_of(entry.handle.platform)
        assert library.startswith("/") and ".so" in library
        assert (names.bundled_folder() in type(names.bundled_folder())(library).parents) == (
            entry.stable_spec.split(":")[1] == "pocl"
        )


def test_what_is_no_platform_has_no_file(monkeypatch):
    assert library_of(SimpleNamespace(int_ptr=16)) == ""
    monkeypatch.setattr(names.sys, "platform", "win32")
    assert library_of(SimpleNamespace(int_ptr=16)) == ""


def test_ties_are_broken_by_version_whatever_the_loaders_order():
    old = PlatformName("intel", "Intel(R) OpenCL", "OpenCL 3.0 2023.9.1", "/a.so")
    new = PlatformName("intel", "Intel(R) OpenCL", "OpenCL 3.0 2023.16.7", "/b.so")
    assert first_device_numbers([old, new], [2, 3]) == [3, 0] and first_device_numbers([new, old], [3, 2]) == [0, 3]


def entry(spec, stable, kind="cpu", handle=None):
    info = dataclasses.replace(discover()[0].info, kind=kind, name=spec, platform="p", vendor="v")
    return DeviceEntry(spec, stable, info, handle)


@pytest.fixture
def machine(monkeypatch):
    def install(*stable):
        entries = tuple(entry(f"opencl{k}:0", name) for k, name in enumerate(stable))
        monkeypatch.setattr(device, "discover", lambda: entries)

    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    return install


WITH = ("opencl:pocl-3.1:0", "opencl:intel:0", "opencl:pocl:0", "opencl:pocl-10.0:0")
WITHOUT = ("opencl:pocl-3.1:0", "opencl:intel:0", "opencl:pocl-10.0:0")


@pytest.mark.parametrize("turn", range(4))
def test_names_do_not_depend_on_the_loaders_order(machine, turn):
    machine(*WITH[turn:], *WITH[:turn])
    entry = {"opencl": "pocl", "opencl:pocl": "pocl", "opencl:pocl-3.1": "pocl-3.1", "opencl:cpu": "intel"}
    entry |= {"opencl:cpu:1": "pocl", "opencl:cpu:2": "pocl-10.0", "opencl:cpu:3": "pocl-3.1"}
    assert {spec: resolve(spec).stable_spec.split(":")[1] for spec in entry} == entry
    with pytest.raises(device.DeviceNotFound):
        resolve("opencl:pocl:1")


def test_without_the_wheels_the_name_is_the_newest_pocl(machine):
    for listed in (WITHOUT, WITHOUT[::-1]):
        machine(*listed)
        assert resolve("opencl:pocl").stable_spec == resolve("opencl").stable_spec == "opencl:pocl-10.0:0"


@pytest.fixture
def stderr_of(tmp_path, monkeypatch, capsys):
    """Return what a new process writes to stderr for the meaning of a name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def note(spec, entry):
        report_change_of_device.cache_clear()
        for _ in range(2):
            report_change_of_device(spec, entry.info.name)
        return capsys.readouterr().err

    yield note
    report_change_of_device.cache_clear()


def test_a_name_for_another_device_is_reported_once(stderr_of):
    one, other = entry("one", "opencl:pocl:0"), entry("other", "opencl:pocl-3.1:0")
    assert stderr_of("opencl:pocl", one) == stderr_of("opencl:pocl", one) == ""
    assert stderr_of("opencl:cpu", other) == ""
    line = stderr_of("opencl:pocl", other)
    assert line.count("\n") == 1 and "opencl:pocl is now other" in line and "it was one" in line
    assert stderr_of("opencl:pocl", other) == ""


@pytest.mark.parametrize("text", ["", "{", "[]", '{"opencl:pocl": 1}', "\xff"])
def test_a_damaged_file_of_names_is_made_again(stderr_of, tmp_path, text):
    file = tmp_path / "pytensor_cl" / "names.json"
    file.parent.mkdir()
    file.write_bytes(text.encode("latin-1"))
    assert stderr_of("opencl:pocl", entry("one", "opencl:pocl:0")) == ""
    assert list(json.loads(file.read_text())) == ["opencl:pocl"]


def test_without_a_folder_no_change_is_reported(stderr_of, tmp_path):
    (tmp_path / "pytensor_cl").write_text("a file")
    assert "is now" not in stderr_of("opencl:pocl", entry("one", "opencl:pocl:0"))
    assert stderr_of("opencl:pocl", entry("two", "opencl:pocl:0")) == ""


def test_numbers_of_the_loader_are_not_stored(monkeypatch):
    noted = []
    monkeypatch.setattr(device, "report_change_of_device", lambda spec, entry: noted.append(spec))
    resolve(discover()[0].spec)
    assert noted == []
    resolve(discover()[0].stable_spec)
    assert noted == [discover()[0].stable_spec]
