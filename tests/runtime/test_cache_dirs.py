"""A user whose cache folder cannot be written to."""

import os
from pathlib import Path

import pytest

from pytensor_cl.codegen.folders import default_folder, user_folder
from pytensor_cl.codegen.rendered import rendered_folder
from tests.helpers import run_script

SCRIPT = """
    import os, numpy as np, pytensor, pytensor.tensor as pt, pytensor_cl
    pytensor_cl.use("opencl:{driver}")
    x = pt.fvector("x")
    with pytensor.config.change_flags(opencl__select_backend=False):
        f = pytensor.function([x], [pt.exp(x).sum(), pt.cumsum(x)], mode="OPENCL")
    total, sums = f(np.zeros(1000, "float32"))
    seen.update(total=float(total), last=float(sums[-1]), on_device=len(pytensor_cl.explain(f).device_nodes))
    seen["pocl"] = os.environ.get("POCL_CACHE_DIR")
"""


def test_without_a_cache_folder_the_device_works_all_the_same(context, tmp_path):
    """The folder may not even be looked at, as that of another user; this one not by root either."""
    folder = tmp_path / ("x" * 300)
    own = {"XDG_CACHE_HOME": str(folder), "POCL_CACHE_DIR": "", "PYOPENCL_NO_CACHE": "false"}
    seen, stderr = run_script(SCRIPT.format(driver=context.name), f"opencl__cache_dir={default_folder()}", **own)
    assert (seen["total"], seen["last"]) == (1000, 0)
    assert stderr.count("File name too long") == 1 and len(stderr.splitlines()) == 2  # the other one names the device
    assert seen["on_device"] >= 2
    assert not Path(seen["pocl"]).exists()  # gone with the process


def test_a_folder_that_others_may_write_is_left_alone(context, tmp_path):
    """One line says so, and a private folder takes its place, which is gone with the process."""
    tmp_path.chmod(0o777)
    for name in ("pytensor_cl", "pocl/kcache", "pyopencl", "pytools"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name).chmod(0o777)
    script = (
        SCRIPT.format(driver=context.name)
        + """
    from pytensor_cl.codegen.temporary import temporary_folder
    seen["folder"] = str(temporary_folder())
    """
    )
    flags = f"opencl__cache_dir={default_folder()}"  # where the self-check's results are
    seen, stderr = run_script(script, flags, XDG_CACHE_HOME=str(tmp_path), POCL_CACHE_DIR="")
    assert (seen["total"], seen["last"]) == (1000, 0)
    assert stderr.count("is not used: other users may write to it") == 1
    assert len(stderr.splitlines()) == 2  # the other one is that of the device
    assert seen["pocl"] == seen["folder"] + "/pocl" and not Path(seen["folder"]).exists()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_cache_of_programs_that_cannot_be_written_to_is_left_alone(context, tmp_path):
    (tmp_path / "file").write_text("")
    seen, _ = run_script(SCRIPT.format(driver=context.name), flags=f"opencl__cache_dir={tmp_path / 'file'}")
    assert (seen["total"], seen["last"]) == (1000, 0)


def test_a_user_without_a_home_keeps_nothing(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does for such a user
    assert user_folder() == Path(os.devnull) / "cache"
    with pytest.raises(OSError):
        rendered_folder().mkdir(parents=True)
