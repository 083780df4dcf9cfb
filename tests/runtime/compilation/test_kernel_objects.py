"""pyopencl's cache on disk is damaged: kernels are created all the same."""

import sqlite3
from contextlib import closing

import pytest

from tests.helpers import run_script

SCRIPT = """
    import numpy as np, pytensor, pytensor.tensor as pt, pytensor_cl
    pytensor_cl.use("opencl:{driver}")
    x = pt.fvector("x")
    with pytensor.config.change_flags(opencl__placement="device"):
        f = pytensor.function([x], [pt.exp(x).sum(), pt.cumsum(x)], mode="OPENCL")
    total, sums = f(np.zeros(1000, "float32"))
    seen.update(total=float(total), last=float(sums[-1]), on_device=len(pytensor_cl.explain(f).device_nodes))
"""


def overwrite(file):
    file.write_bytes(b"garbage " * 1000)


def truncate(file):
    file.write_bytes(file.read_bytes()[:5000])


def replace_by_a_folder(file):
    file.unlink()
    file.mkdir()


def damage_the_values(file):
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE dict SET key_value = ?", (b"garbage",))


@pytest.mark.parametrize("damage", [overwrite, truncate, replace_by_a_folder, damage_the_values])
def test_a_damaged_database_of_pyopencl_is_no_obstacle(context, tmp_path, damage):
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PYOPENCL_NO_CACHE": "false"}
    run_script(SCRIPT.format(driver=context.name), **environment)
    (file,) = (tmp_path / "pytools").glob("pdict-*-pyopencl-invoker-cache-*.sqlite")
    damage(file)
    for _ in range(2):
        seen, _ = run_script(SCRIPT.format(driver=context.name), **environment)
        assert (seen["total"], seen["last"]) == (1000, 0)
        assert seen["on_device"] >= 2
