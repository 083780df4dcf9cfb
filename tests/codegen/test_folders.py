"""Folders of caches: who may use them, and what replaces them."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytensor_cl.codegen import announcement, folders, temporary
from pytensor_cl.codegen.folders import expected_problem, free_bytes, make_private, may_be_read, problem_of
from pytensor_cl.codegen.temporary import abandoned_folders, temporary_folder, usable_folder

TOO_LONG = "x" * 300
"""A name that is no name, so that a path with it cannot be looked at, not even by root."""


@pytest.fixture
def unannounced(monkeypatch):
    """A process that has made no temporary folder, and no line of it."""
    lines = []
    monkeypatch.setattr(temporary, "_made", temporary._Made())
    monkeypatch.setattr(temporary, "announce", lambda line, subject=None: lines.append(line))
    return lines


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277])
def test_folders_are_private_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        make_private(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700


def test_folders_that_exist_keep_their_mode(tmp_path):
    tmp_path.chmod(0o755)
    make_private(tmp_path / "a")
    assert mode(tmp_path) == 0o755


@pytest.mark.parametrize("bits", [0o720, 0o702, 0o777])
def test_a_folder_that_others_may_write_is_not_used(tmp_path, bits, unannounced, monkeypatch):
    group = SimpleNamespace(gr_name="staff", gr_mem=[])
    monkeypatch.setattr("grp.getgrgid", lambda number: group)
    tmp_path.chmod(bits)
    assert "other users may write to it" in problem_of(tmp_path)
    assert expected_problem(tmp_path) == problem_of(tmp_path)
    assert not may_be_read(tmp_path)
    instead = usable_folder(tmp_path)
    assert instead.parent == temporary_folder() and mode(instead.parent) == 0o700
    (line,) = unannounced
    assert str(tmp_path) in line and "chmod 700" in line and "\n" not in line
    tmp_path.chmod(0o700)
    assert not problem_of(tmp_path)


@pytest.mark.parametrize(("members", "is_used"), [([], True), (["me"], True), (["me", "you"], False)])
def test_a_group_of_one_user_is_that_user(tmp_path, monkeypatch, members, is_used):
    """Folders that other programs have made with a umask of 002."""
    monkeypatch.setattr("pwd.getpwuid", lambda number: SimpleNamespace(pw_name="me"))
    monkeypatch.setattr("grp.getgrgid", lambda number: SimpleNamespace(gr_name="me", gr_mem=members))
    tmp_path.chmod(0o775)
    assert (problem_of(tmp_path) == "") == is_used
    tmp_path.chmod(0o777)
    assert problem_of(tmp_path)


def test_a_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, 65534)
    else:
        user = os.geteuid()
        monkeypatch.setattr(folders.os, "geteuid", lambda: user + 1)
    assert problem_of(tmp_path) == expected_problem(tmp_path) == "it belongs to another user"


def test_a_folder_that_cannot_be_looked_at_is_not_used(tmp_path):
    folder = tmp_path / TOO_LONG / "pytensor_cl"
    assert problem_of(folder) == expected_problem(folder) == "File name too long"
    assert not may_be_read(folder)
    assert free_bytes(folder) == 0


def test_a_folder_that_is_full_can_be_read(tmp_path, monkeypatch, unannounced):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders.tempfile, "TemporaryFile", full)
    assert usable_folder(tmp_path) == tmp_path
    assert "No space left on device" in unannounced[0]


def test_room_is_that_of_the_nearest_folder(tmp_path):
    status = os.statvfs(tmp_path)
    assert free_bytes(tmp_path / "not" / "there") == pytest.approx(status.f_bavail * status.f_frsize, rel=0.05)


def test_a_temporary_folder_has_the_room_that_is_wanted(tmp_path, monkeypatch, unannounced):
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    monkeypatch.setattr(temporary, "_places", lambda: (small, large))
    monkeypatch.setattr(temporary, "free_bytes", lambda path: 10 if small in (path, path.parent) else 1000)
    assert temporary_folder().parent == small
    assert temporary_folder(100).parent == large
    assert temporary_folder(100) == temporary_folder(100)
    assert temporary_folder(10_000) == Path(os.devnull) / "cache"


def test_what_killed_processes_leave_is_removed(tmp_path, monkeypatch):
    """A process that runs keeps its folder."""
    script = """if True:
        import os, sys
        from pytensor_cl.codegen.announcement import announce
        from pytensor_cl.codegen.temporary import temporary_folder
        folder = temporary_folder()
        announce("a line")
        print(folder, flush=True)
        sys.stdin.read()
    """
    own = {**os.environ, "TMPDIR": str(tmp_path), announcement.TREE: "", "PYTEST_XDIST_WORKER": ""}
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(temporary.tempfile, "tempdir", str(tmp_path))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", script], env=own, text=True, **pipes) as process:
        made = Path(process.stdout.readline().strip())
        assert made.is_dir() and made not in list(abandoned_folders())
        assert len(list(tmp_path.glob("pytensor-cl-[0-9]*"))) == 1 and announcement.abandoned_trees() == []
        process.kill()
    assert made in list(abandoned_folders()) and len(announcement.abandoned_trees()) == 1
    done = subprocess.run([sys.executable, "-c", script], env=own, text=True, input="", capture_output=True, check=True)
    assert not made.exists() and not Path(done.stdout.strip()).exists()
    assert list(tmp_path.iterdir()) == []
