"""PoCL's cache: damaged files are removed before the driver reads them."""

import json

import pytest

from pytensor_cl.cli import main
from pytensor_cl.runtime.cache_dirs import compiler_folder
from pytensor_cl.runtime.pocl import cache as pocl_cache
from pytensor_cl.runtime.pocl.cache import damaged_files, repair
from tests.helpers import run_script

SCRIPT = """
    import numpy as np
    from pytensor_cl.runtime.context import open_context
    from pytensor_cl.runtime.pocl.cache import Repair
    from pytensor_cl.codegen.template import KernelSource
    context = open_context("opencl:{driver}")
    out = context.empty((3,), "float32")
    text = "__kernel void seven(__global float *x) {{ x[get_global_id(0)] = 7; }}"
    context.kernel(KernelSource("seven", text)).launch(context.queue, (3,), None, out.buffer)
    seen.update(values=out.to_host().tolist(), removed=Repair.removed)
"""
DAMAGE = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "garbage": lambda data: b"garbage" * 99,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """PoCL's cache with one program of one kernel."""
    from pytensor_cl.runtime.device import discover

    if not any("Portable Computing" in entry.info.platform for entry in discover()):
        pytest.skip("PoCL is not there")
    compute(tmp_path_factory.mktemp("probes"))  # which compiles the probes, if the driver has not been probed
    folder = tmp_path_factory.mktemp("kcache")
    compute(folder)
    return folder


def compute(folder):
    return run_script(SCRIPT.format(driver="pocl"), POCL_CACHE_DIR=str(folder))[0]


def test_the_command_line_shows_and_clears_the_cache(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    (tmp_path / "AB" / "CDEF").mkdir(parents=True)
    (tmp_path / "AB" / "CDEF" / "binary").write_bytes(b"x" * 1000)
    (tmp_path / "tempfile_x").write_bytes(b"x" * 10)
    (tmp_path / "other.txt").write_text("no part of the cache")
    for command, entries, nbytes in ((["cache"], 2, 1010), (["cache", "clear"], 2, 1010), (["cache"], 0, 0)):
        assert main([*command, "--json"]) == 0
        (found,) = (cache for cache in json.loads(capsys.readouterr().out) if cache["owner"] == "PoCL")
        assert (found["entries"], found["bytes"], found["writable"]) == (entries, nbytes, True)
    assert [path.name for path in tmp_path.iterdir()] == ["other.txt"]


def test_files_of_pocl_are_not_damaged(folder):
    assert {path.suffix for path in folder.rglob("*.*")} == {".so", ".bc"}
    assert list(damaged_files(folder)) == []


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_removed_before_the_driver_reads_them(folder, damage):
    files = [*folder.rglob("*.so"), *folder.rglob("*.bc")]
    assert len(files) == 2
    for file in files:
        file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert sorted(damaged_files(folder)) == sorted(files)
    assert compute(folder) == {"values": [7, 7, 7], "removed": 2}
    assert compute(folder) == {"values": [7, 7, 7], "removed": 0}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_found(folder, tmp_path, share):
    for suffix in (".so", ".bc"):
        data = next(folder.rglob(f"*{suffix}")).read_bytes()
        (tmp_path / "AB").mkdir(exist_ok=True)
        (tmp_path / "AB" / f"x{suffix}").write_bytes(data[: int(share * len(data))])
    assert len(list(damaged_files(tmp_path))) == 2 == repair(tmp_path)


def test_other_files_are_kept(tmp_path):
    thesis = tmp_path / "work" / "thesis.so"
    thesis.parent.mkdir()
    thesis.touch()
    assert repair(tmp_path) == 0 and thesis.exists()
    assert repair(tmp_path / "nowhere") == 0


def test_of_a_large_cache_a_part_is_checked(tmp_path, monkeypatch):
    for name in ("AB", "CD"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.so").touch()
    ticks = iter(range(9))
    monkeypatch.setattr(pocl_cache, "thread_time", lambda: next(ticks))
    assert len(list(damaged_files(tmp_path, 1.5))) == 1


def test_the_folder_is_the_drivers(monkeypatch, tmp_path):
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    assert compiler_folder() == tmp_path
    monkeypatch.setenv("POCL_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiler_folder() == tmp_path / "pocl" / "kcache"
