"""``doctor``."""

import json

import numpy as np
import pytest

from pytensor_cl.cli import device_checks, doctor, main
from pytensor_cl.cli.finding import Finding
from pytensor_cl.codegen.rendered import get_or_render, rendered_folder
from pytensor_cl.runtime.driver_hooks import DefaultDriverHooks


@pytest.fixture
def quick(monkeypatch):
    """Skip what takes long and is tested by itself."""
    monkeypatch.setattr(doctor, "check_device", lambda context: iter([Finding("ok", "speed", "fast", 1.0)]))


def sections(text):
    return {section["title"]: section["findings"] for section in json.loads(text)["sections"]}


def statuses(findings):
    return {finding["subject"]: finding["status"] for finding in findings}


def test_every_driver_computes_right(context, capsys):
    assert main(["doctor", "--device", context.entry.stable_spec, "--json"]) == 0
    *_, findings = sections(capsys.readouterr().out).values()
    found = statuses(findings)
    assert all(found[name] == "ok" for name in ("exp, contiguous", "exp, strided", "sum of rows", "matrix product"))
    rates = [finding["value"] for finding in findings if "GB/s" in finding["text"]]
    assert len(rates) == 3 and all(rate > 0 for rate in rates)


@pytest.mark.usefixtures("quick")
def test_text_has_every_section_and_a_summary(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert all(title in text for title in ("Drivers", "Installation", "Environment", "Caches", "0 failed"))


@pytest.mark.usefixtures("quick")
def test_settings_that_matter_are_shown_and_checked(monkeypatch, capsys):
    monkeypatch.setenv("POCL_DEBUG", "all")
    monkeypatch.setenv("PYOPENCL_CTX", "0")
    assert main(["doctor", "--json"]) == 0
    found = statuses(sections(capsys.readouterr().out)["Environment"])
    assert found["POCL_DEBUG"] == "warn"
    assert found["PYOPENCL_CTX"] == "ok"


class _Hooks(DefaultDriverHooks):
    """Hooks of a driver that keeps a damaged file in a folder."""

    name = "a driver"
    repaired_files = 3

    def __init__(self, folder):
        self._folder = folder

    def cache_folder(self):
        return self._folder, ("*",)

    def damaged_files(self):
        return iter((self._folder / "program",))


@pytest.mark.usefixtures("quick")
def test_damaged_caches_are_counted_and_the_command_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    hooks = _Hooks(tmp_path / "driver")
    monkeypatch.setattr("pytensor_cl.cli.cache_folders.all_hooks", lambda: [hooks])
    monkeypatch.setattr("pytensor_cl.cli.doctor.all_hooks", lambda: [hooks])
    for text in ("first", "second"):
        get_or_render(text.encode(), lambda: "text")
    next(rendered_folder().iterdir()).write_text("garbage")
    assert main(["doctor", "--json"]) == 0
    found = {f["subject"]: f for f in sections(capsys.readouterr().out)["Caches"]}
    for owner in ("pytensor-cl, texts", "a driver"):
        assert found[owner]["status"] == "warn"
        assert "1 damaged files" in found[owner]["text"] and "pytensor-cl cache clear" in found[owner]["text"]
    assert "3 damaged files were removed from a driver's cache" in found["repaired"]["text"]
    assert found["pytensor-cl, programs"]["status"] == "ok"


def test_a_device_that_breaks_off_fails_and_the_report_goes_on(monkeypatch, capsys):
    def check_device(context):
        yield Finding("ok", "first", "fine")
        raise RuntimeError("driver fell over")

    monkeypatch.setattr(doctor, "check_device", check_device)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "RuntimeError: driver fell over" in text and "failed" in text.splitlines()[-1]


@pytest.mark.usefixtures("quick")
def test_without_a_device_the_error_names_packages_to_install(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "discover", lambda: ())
    assert main(["doctor"]) == 1
    assert "pip install" in capsys.readouterr().out


@pytest.mark.parametrize(("got", "status"), [(1.0, "ok"), (1.1, "FAIL"), (np.nan, "FAIL"), (np.inf, "FAIL")])
def test_wrong_results_fail(got, status):
    finding = device_checks._agreement("x", np.array([1.0, got]), np.ones(2), 1e-6)
    assert finding.status == status
