"""``cache``: only what the owners of a cache wrote is counted and removed."""

import json

import pytest

from pytensor_cl.cli import main
from pytensor_cl.codegen import temporary
from pytensor_cl.codegen.checked_files import CheckedFolder
from pytensor_cl.codegen.rendered import get_or_render, rendered_folder
from pytensor_cl.runtime.compilation.binaries import programs_folder

KEY = "0123456789abcdef" * 2


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A user's cache folder with entries, and things that are no entries."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "my files"))
    kernels = tmp_path / "pyopencl" / "pyopencl-compiler-cache-v2-py3" / KEY
    pocl = tmp_path / "my files" / "AB" / "CDEF"
    for folder in (kernels, pocl):
        folder.mkdir(parents=True)
        (folder / "binary").write_bytes(b"x" * 1000)
    (tmp_path / "my files" / "tempfile_x").write_bytes(b"x" * 10)
    (tmp_path / "my files" / "thesis.txt").write_text("years of work")
    return tmp_path


def report(capsys):
    return {cache["owner"]: cache for cache in json.loads(capsys.readouterr().out)}


def test_info(folders, capsys):
    assert main(["cache", "--json"]) == 0
    found = report(capsys)
    assert (found["pyopencl"]["entries"], found["pyopencl"]["bytes"]) == (1, 1000)
    assert found["pyopencl"]["writable"]


def test_clear_removes_entries_and_nothing_else(folders, capsys):
    assert main(["cache", "clear"]) == 0
    assert "removed" in capsys.readouterr().out
    assert main(["cache", "info", "--json"]) == 0
    assert all(cache["entries"] == 0 for cache in report(capsys).values())
    assert (folders / "my files" / "thesis.txt").read_text() == "years of work"


def test_what_pytensor_cl_keeps_is_counted_and_removed(folders, capsys):
    get_or_render(b"key", lambda: "text")
    CheckedFolder(programs_folder(None), 1000).write(b"key", b"binary")
    (rendered_folder() / f"{KEY}.abc.tmp").touch()
    assert main(["cache", "clear", "--json"]) == 0
    found = report(capsys)
    assert [found[f"pytensor-cl, {what}"]["entries"] for what in ("texts", "programs")] == [2, 1]
    assert not rendered_folder().exists() and not programs_folder(None).exists()


def test_clear_leaves_nothing(folders, capsys, monkeypatch):
    monkeypatch.delenv("POCL_CACHE_DIR")
    monkeypatch.setattr(temporary, "_places", lambda: (folders / "tmp",))
    files = (
        f"pytensor_cl/rendered/{KEY}",
        f"pytensor_cl/programs/{KEY}.x.tmp",
        f"pytensor_cl/features/{KEY}",
        f"pytensor_cl/features/{KEY}.x.tmp",
        "pytensor_cl/names.json",
        "pytensor_cl/names.json.x.tmp",
        "pytensor_cl/pruned",
        f"pytensor_cl/drivers/{KEY}/pytensor-cl-nvidia.icd",
        "pytensor_cl/drivers/new-x/made-by-pytensor-cl",
        "pocl/kcache/AB/CDEF/program.bc",
        "pocl/kcache/tempfile_x",
        "pytools/pdict-v5-pyopencl-invoker-cache-v1.sqlite",
        "tmp/pytensor-cl-cache-abc/lock",
    )
    for name in files:
        (folders / name).parent.mkdir(parents=True, exist_ok=True)
        (folders / name).write_bytes(b"x")
    (folders / "pocl" / "kcache" / "AB" / "GHIJ").mkdir()
    assert main(["cache", "clear"]) == 0
    assert sorted(path.name for path in folders.iterdir()) == ["my files", "tmp"]
    assert list((folders / "tmp").iterdir()) == []


def test_folders_that_cannot_be_looked_at(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("x" * 300)))
    monkeypatch.delenv("POCL_CACHE_DIR", raising=False)
    for command in (["cache"], ["cache", "clear"]):
        assert main(command) == 0
        assert capsys.readouterr().out.count(": File name too long") == 1
    assert main(["cache", "--json"]) == 0
    assert {cache["problem"] for cache in report(capsys).values()} == {"File name too long"}


def test_folders_that_do_not_exist_are_empty(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    monkeypatch.delenv("POCL_CACHE_DIR", raising=False)
    assert main(["cache", "--json"]) == 0
    assert all(cache["bytes"] == 0 and cache["writable"] for cache in report(capsys).values())
