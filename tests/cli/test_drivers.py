"""Why drivers do not load."""

import ctypes.util

import pytest

from pytensor_cl.cli.drivers import registered_drivers


def problems(folder):
    """The reason of each .icd file of `folder`, by name."""
    return {d.icd.rpartition("/")[2]: d.problem for d in registered_drivers() if d.icd.startswith(str(folder))}


@pytest.fixture
def vendors(tmp_path, monkeypatch):
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    return tmp_path


def test_missing_library(vendors):
    (vendors / "a.icd").write_text("/nowhere/libdriver.so")
    assert "cannot open shared object file" in problems(vendors)["a.icd"]


def test_file_that_is_no_shared_library(vendors):
    (vendors / "text.so").write_text("not a library")
    (vendors / "a.icd").write_text("text.so")
    assert problems(vendors)["a.icd"]


def test_library_that_is_no_driver(vendors):
    (vendors / "a.icd").write_text(ctypes.util.find_library("m"))
    assert problems(vendors)["a.icd"].startswith("not an OpenCL driver")


def test_empty_and_unreadable_files(vendors):
    (vendors / "empty.icd").write_text("\n")
    (vendors / "binary.icd").write_bytes(b"\xff\xfe\xff")
    (vendors / "folder.icd").mkdir()
    found = problems(vendors)
    assert "empty" in found["empty.icd"]
    assert "cannot be read" in found["binary.icd"]
    assert "cannot be read" in found["folder.icd"]


def test_vendors_folder_that_does_not_exist(monkeypatch, tmp_path):
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "nowhere"))
    (driver,) = registered_drivers()
    assert "does not exist" in driver.problem


def test_a_single_icd_file(monkeypatch, tmp_path):
    (tmp_path / "one.icd").write_text("libghost-of-a-driver.so")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "one.icd"))
    (driver,) = registered_drivers()
    assert driver.library == "libghost-of-a-driver.so"
    assert driver.problem


def test_drivers_that_offer_devices_have_no_problem():
    assert any(driver.problem is None for driver in registered_drivers())
