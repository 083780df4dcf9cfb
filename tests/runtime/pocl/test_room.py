"""A disk that is full: PoCL would end the process, so it is not asked to compile."""

import os
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

import pytensor_cl
from pytensor_cl.errors import OutOfDiskSpace
from pytensor_cl.linker.selection import backends
from pytensor_cl.ops.cumop import GpuCumOp
from pytensor_cl.runtime import cache_dirs
from tests.helpers import assert_close, assert_on_device, opencl


@pytest.fixture
def lines(monkeypatch):
    """Return what is written to stderr."""
    lines = []
    monkeypatch.setattr(cache_dirs, "announce", lambda line: lines.append(line))
    return lines


@pytest.fixture
def left(monkeypatch):
    """Return a function that sets the bytes which are left in PoCL's folder."""
    before = cache_dirs.free_bytes

    def set_left(nbytes):
        full = cache_dirs.compiler_folder()
        monkeypatch.setattr(cache_dirs, "free_bytes", lambda path: nbytes if path == full else before(path))

    return set_left


@pytest.mark.parametrize("kib", [0, 80, 200])
def test_a_temporary_folder_elsewhere_takes_the_place_of_a_full_one(lines, left, monkeypatch, tmp_path, kib):
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    left(kib << 10)
    cache_dirs.configure_caches.__wrapped__()
    instead = Path(os.environ["POCL_CACHE_DIR"])
    assert instead != tmp_path and cache_dirs.free_bytes(instead) >= cache_dirs.ROOM
    (line,) = lines
    assert str(tmp_path) in line and f"has {kib} KiB of space left" in line and str(instead.parent) in line


def test_a_folder_with_room_is_used(lines, left, monkeypatch, tmp_path):
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    left(cache_dirs.ROOM)
    cache_dirs.configure_caches.__wrapped__()
    assert os.environ["POCL_CACHE_DIR"] == str(tmp_path) and lines == []


@pytest.fixture
def pocl(context):
    """PoCL's context; other drivers report a full disk."""
    if "Portable" not in context.info.platform:
        pytest.skip("another driver")


def test_where_no_disk_has_room_nothing_is_compiled(pocl, lines, left, on_device):
    left(80 << 10)
    x = pt.matrix("x", dtype="float32")
    with pytest.raises(OutOfDiskSpace, match="has 80 KiB of space left") as caught:
        opencl([x], pt.cumsum(x + 0.125, axis=0))
    assert len(str(caught.value).splitlines()) == 1
    assert len(lines) == 1 and "space" in lines[0]


def test_with_auto_the_call_goes_to_the_host(pocl, lines, left, rng, monkeypatch):
    """And comes back to the device when there is room."""

    def numba(*_):  # which would compile for seconds
        return (lambda value: (np.cumsum(value * np.float32(0.375), axis=0),)), FunctionGraph([], [])

    monkeypatch.setattr(backends, "compile_with_numba", numba)
    x = pt.matrix("x", dtype="float32")
    values = rng.normal(size=(3000, 1000)).astype("float32")
    with pytensor.config.change_flags(opencl__select_backend=True, opencl__placement="auto"):
        f = opencl([x], pt.cumsum(x * 0.375, axis=0))
    assert_on_device(f, GpuCumOp)
    left(80 << 10)
    assert_close(f(values), np.cumsum(values * np.float32(0.375), axis=0))
    (why,) = [row for row in str(pytensor_cl.explain(f)).splitlines() if "OutOfDiskSpace" in row]
    assert "host" in why
    assert lines and "80 KiB of space left" in lines[0] and "the host computes" in lines[0]
