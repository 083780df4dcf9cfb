"""Locks of the cache that killed processes left."""

import os

import pytest

from pytensor_cl.runtime import stale_lock
from pytensor_cl.runtime.program import ProgramCache
from pytensor_cl.template import KernelSource

TEXT = "__kernel void {0}(__global float *x) {{ x[get_global_id(0)] = 1; }}"


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    return path


def build(context, folder, name):
    programs = ProgramCache(context.cl_context, [], str(folder))
    return programs.kernel(KernelSource(name, TEXT.format(name)), name)


def test_an_old_lock_is_removed(context, lock):
    os.utime(lock, (0, 0))
    build(context, lock.parent, "old")
    assert not lock.exists()


def test_a_new_lock_is_waited_for(context, lock, monkeypatch):
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            lock.unlink()  # whoever held it

    monkeypatch.setattr(stale_lock.time, "sleep", wait)
    build(context, lock.parent, "new")
    assert len(waits) == 3


def test_no_folder_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(stale_lock, "user_folder", lambda: tmp_path / "nothing")
    stale_lock.drop_stale_locks(None)
    stale_lock.drop_stale_locks(str(tmp_path))


def test_the_folder_of_pyopencl_is_looked_at(tmp_path, monkeypatch):
    lock = tmp_path / "pyopencl" / "pyopencl-compiler-cache-v2-py3" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (0, 0))
    monkeypatch.setattr(stale_lock, "user_folder", lambda: tmp_path)
    stale_lock.drop_stale_locks(None)
    assert not lock.exists()
