"""PoCL's cache: damaged files are removed before the driver reads them."""

import json
import os
import time

import pytest

from pytensor_cl.cli import main
from pytensor_cl.runtime.cache_dirs import compiler_folder
from pytensor_cl.runtime.pocl import cache as pocl_cache
from pytensor_cl.runtime.pocl.cache import damaged_files, prune, repair
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


def entry(folder, name, nbytes, hours):
    """Make a program's folder that was used some hours ago."""
    made = folder / name
    (made / "kernel").mkdir(parents=True)
    (made / "last_accessed").touch()
    (made / "kernel" / "kernel.so").write_bytes(b"x" * nbytes)
    for path in (*made.rglob("*"), made):
        os.utime(path, (time.time() - 3600 * hours,) * 2)


def test_the_cache_is_bounded(tmp_path):
    """What was used longest ago is removed first, and nothing that is in use."""
    for name, nbytes, hours in (("AB/C", 400, 30), ("AB/D", 400, 20), ("EF/G", 400, 10), ("EF/H", 400, 0)):
        entry(tmp_path, name, nbytes, hours)
    entry(tmp_path, "IJ/K", 0, 50)  # of a process that was killed
    entry(tmp_path, "LM/N", 0, 0)
    for name, hours in (("tempfile_old", 5), ("tempfile_new", 0), ("other", 50)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - 3600 * hours,) * 2)
    assert prune(tmp_path, 2000) == 1600
    assert not (tmp_path / "IJ").exists() and (tmp_path / "LM" / "N").exists()
    assert prune(tmp_path, 1500) == 800
    assert sorted(p.parent.name for p in tmp_path.rglob("kernel")) == ["G", "H", "N"]
    assert prune(tmp_path, 100) == 400  # H is in use
    assert sorted(path.name for path in tmp_path.iterdir()) == ["EF", "LM", "other", "tempfile_new"]


def test_the_cache_is_cut_once_a_day(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "kcache"))
    cut = []
    monkeypatch.setattr(pocl_cache, "prune", cut.append)
    for _ in range(2):
        pocl_cache._prune_daily()
    assert cut == [tmp_path / "kcache"]
    os.utime(tmp_path / "pytensor_cl" / "pruned", (0, 0))
    pocl_cache._prune_daily()
    assert len(cut) == 2


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
