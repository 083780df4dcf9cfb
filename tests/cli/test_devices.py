"""``devices``."""

import json

import pytest

from pytensor_cl.cli import devices, doctor, main
from pytensor_cl.cli.finding import Finding
from pytensor_cl.runtime.device import discover, resolve


@pytest.fixture
def no_devices(monkeypatch):
    monkeypatch.setattr(devices, "discover", lambda: ())


def test_table_has_a_line_per_device_with_the_strings_to_paste(capsys):
    assert main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "device",
        "by",
        "name",
        "name",
        "driver",
        "OpenCL",
        "units",
        "memory",
        "fp64",
        "fp16",
        "self-check",
    ]
    for line, entry in zip(lines[1:], discover(), strict=False):
        assert line.split()[:2] == [entry.spec, entry.stable_spec]
        assert entry.info.name in line


def test_json_names_resolve_to_the_devices(capsys):
    assert main(["devices", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [resolve(d["device"]).info.name for d in report["devices"]] == [e.info.name for e in discover()]
    assert [resolve(d["by_name"]).spec for d in report["devices"]] == [e.spec for e in discover()]
    assert all(d["compute_units"] >= 1 and d["global_memory"] > 0 for d in report["devices"])


@pytest.mark.usefixtures("no_devices")
def test_without_a_device_the_message_names_packages_to_install(capsys):
    assert main(["devices"]) == 1
    text = capsys.readouterr().out
    assert "No OpenCL device was found" in text
    assert "pip install pocl-binary-distribution" in text


@pytest.mark.usefixtures("no_devices")
def test_without_a_device_json_is_empty(capsys):
    assert main(["devices", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["devices"] == []


def test_a_platform_without_devices_is_shown(monkeypatch, capsys):
    text = "the platform rusticl has no device: RUSTICL_ENABLE"
    for module in (devices, doctor):
        monkeypatch.setattr(module, "empty_platforms", lambda: (text,))
    main(["devices"])
    assert text[1:] in capsys.readouterr().out
    assert Finding("warn", "devices", text) in list(doctor._drivers())


def test_a_driver_that_does_not_load_is_shown_with_the_reason(tmp_path, monkeypatch, capsys):
    (tmp_path / "ghost.icd").write_text("libghost-of-a-driver.so\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    main(["devices"])
    text = capsys.readouterr().out
    assert "Drivers that do not work" in text
    assert "ghost.icd: libghost-of-a-driver.so: cannot open shared object file" in text
