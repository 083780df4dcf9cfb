"""Sizes of NDRanges and types of indices, where arrays are too large to be made: nothing is launched."""

from dataclasses import replace

import numpy as np
import pytensor.scalar as ps
import pytest

from pytensor_cl.codegen.emitter import unroll_of
from pytensor_cl.errors import CompilationError
from pytensor_cl.routines.base.limits import INT_LIMIT
from pytensor_cl.routines.base.ndrange import (
    WorkGroupLimits,
    index_type,
    local_memory,
    ndrange,
    work_group_size,
)
from pytensor_cl.routines.base.routine import DeviceTables
from pytensor_cl.routines.creation import ARange
from pytensor_cl.routines.elemwise.routine import Cast
from pytensor_cl.routines.fft import tables as fft_tables
from pytensor_cl.routines.fft.tables import Table, device_table
from pytensor_cl.routines.gemm.routine import Gemm
from pytensor_cl.routines.indexing import gather_scatter
from pytensor_cl.routines.indexing.gather_fused import GatherFused
from pytensor_cl.routines.indexing.gather_scatter import Scatter
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel
from pytensor_cl.scalar.base import element_function
from tests.routines.rowwise.test_rowwise import MOMENTS

UNITS = 160
STEP = 32 * UNITS * 256
"""Size of the NDRange on a device of so many compute units: the last index goes so far past the end."""


@pytest.fixture
def large_device(context, monkeypatch):
    """A context whose device has many compute units, and which launches nothing."""
    monkeypatch.setattr(context, "info", replace(context.info, compute_units=UNITS))
    monkeypatch.setattr(Kernel, "launch", lambda *_: None)
    return context


def repeated(context, dtype, *shape):
    """An array of one element that is repeated: it has any shape."""
    return context.empty((1,), dtype).with_layout(Layout(shape, (0,) * len(shape)))


def settled(routine, plan):
    """Plan for the work-groups that the compiled kernels run with."""
    return routine.limits.with_fitting_groups(plan, routine._kernels.clear)


def test_index_type():
    assert (index_type(INT_LIMIT - 1), index_type(INT_LIMIT)) == ("int", "long")
    assert (index_type(INT_LIMIT - 10, 9), index_type(INT_LIMIT - 10, 10)) == ("int", "long")


def test_work_group_size(context):
    info = replace(context.info, max_work_group_size=200, local_memory=16 << 10)
    assert work_group_size(info, 256) == 128
    assert work_group_size(info, 64) == 64
    assert work_group_size(info, 256, bytes_per_item=200) * 200 <= local_memory(info)
    assert work_group_size(info, 256, bytes_per_item=200) == 64
    assert work_group_size(info, 256, bytes_per_item=200, fixed_bytes=8 << 10) == 32
    assert work_group_size(info, 256, bytes_per_item=1 << 20) == 1


def test_ndrange(context, monkeypatch):
    kernel = Kernel(context.kernel(any_source(context)).handle)
    monkeypatch.setattr(context, "info", replace(context.info, compute_units=3, max_work_group_size=128))
    monkeypatch.setattr(Kernel, "max_work_group_size", lambda *_: 100)
    assert ndrange(context, kernel, 10_000_000) == ((32 * 3 * 64,), (64,))
    assert ndrange(context, kernel, 65) == ((128,), (64,))
    assert ndrange(context, kernel, 1, 16) == ((16,), (16,))


def any_source(context):
    return ARange(context, "int32", "simt").sources()[0]


def test_kernels_that_run_with_no_work_group_at_all(context, monkeypatch):
    limits, source = WorkGroupLimits(context), any_source(context)
    monkeypatch.setattr(Kernel, "max_work_group_size", lambda *_: 0)
    with pytest.raises(CompilationError, match="more registers or local memory than the device has"):
        limits.with_fitting_groups(lambda: limits.kernel(source, None, 64), lambda: None)


@pytest.mark.parametrize("size, index", [(2**31 - STEP - 1, "int"), (2**31 - STEP, "long"), (2**31 - 2**16, "long")])
def test_arange(large_device, size, index):
    """The index goes past the end by the size of the NDRange."""
    routine = ARange(large_device, "int8", "simt")
    routine.launch(repeated(large_device, "int8", size), 0, 1)
    assert list(routine._kernels) == [index]


@pytest.mark.parametrize("size, index", [(2**31 - STEP - 1, "int"), (2**31 - STEP, "long")])
def test_pick(large_device, size, index):
    x, y = (ps.get_scalar_type("float32")() for _ in range(2))
    function = element_function(ps.Composite([x, y], [x - y]), ["float32"] * 2, ["float32"])
    routine = GatherFused(large_device, function, ((False,),) * 2, (False, False), [("int64", 1)], schedule="simt")
    inputs = repeated(large_device, "float32", 9), repeated(large_device, "float32", 9)
    routine._planned((*inputs, repeated(large_device, "int64", size)))
    assert list(routine._kernels) == [routine._source(index)]


@pytest.mark.parametrize("m, n, index", [(2**30, 100, "int"), (2**31 - 1, 100, "long"), (100, 2**31 - 1, "long")])
def test_gemm(large_device, m, n, index):
    """The row or the column of a tile goes past the end by a tile, whatever the strides are."""
    routine = Gemm(large_device, "float32", schedule="simt")
    layouts = Layout((m, 8), (0, 1)), Layout((8, n), (1, 0)), None, Layout.contiguous((m, n))
    settled(routine, lambda: routine._plan(*layouts, ()))
    assert {chosen for _, chosen in routine._sources} == {index}


@pytest.mark.parametrize("rows, index", [(10, "int"), (300_000_000, "int"), (2**30, "long")])
def test_partial_results_of_rows(large_device, rows, index):
    """Rows that are not cut into chunks have none, so that their places cannot be too large for C integers."""
    routine = Rowwise(large_device, MOMENTS, 2, (1,), [False, True, True], ((False, False),), "simt")
    layouts = [Layout.contiguous((rows, 3)), *[Layout.contiguous((rows,))] * 2]
    (step,) = settled(routine, lambda: routine._plan(layouts)).steps
    ((variant, _),) = routine._kernels
    assert variant.index_type == index
    assert step.global_size[1] == 1


def scatter(context, **options):
    of = {"accumulate": True, "value_dtype": "float32", "value_ndim": 2, "schedule": "simt"}
    return Scatter(context, "float32", 2, [0], [("int64", 1)], **of, **options)


def test_scatter_of_wide_rows(large_device):
    """Tiles of a row are the second dimension of the NDRange, of which GPUs take 65,535 work-groups."""
    columns = 100_000_000
    index = large_device.from_host(np.zeros(3, "int64"))
    routine, layouts = scatter(large_device), (Layout.contiguous((4, columns)), Layout.contiguous((3, columns)))
    plan = settled(routine, lambda: routine._plan(*layouts, [index]))
    assert plan.way.write.global_size[1] == 65_535


def test_scatter_with_fewer_work_groups_than_tiles(context, rng, monkeypatch):
    monkeypatch.setattr(gather_scatter, "MAX_GROUPS", 2)
    x, i = rng.normal(size=(4, 5000)).astype("float32"), np.array([1, -1, 1])
    y = rng.normal(size=(3, 5000)).astype("float32")
    (got,) = scatter(context)(*map(context.from_host, (x, y, i)))
    np.add.at(x, i, y)
    np.testing.assert_array_equal(got.to_host(), x)


def test_device_tables(context):
    tables, made = DeviceTables(100), []

    def make(count):
        made.append(count)
        return (context.empty((count,), "int8"),)

    for key, count in (("a", 40), ("b", 50), ("a", 40), ("c", 30), ("a", 40), ("d", 500), ("d", 500), ("a", 40)):
        (array,) = tables.lookup(key, lambda count=count: make(count))
        assert array.size == count
    assert made == [40, 50, 30, 500, 40]  # "b" went for "c", and the others for "d", which went for "a"
    assert len(tables) == 1


def test_tables_of_transforms_go_with_the_context(context, monkeypatch):
    monkeypatch.setattr(context, "tables", {})
    monkeypatch.setattr(fft_tables, "KEPT_BYTES", 10_000)
    first = device_table(context, "float32", Table("half_turns", (100,)))
    assert device_table(context, "float32", Table("half_turns", (100,))) is first
    for n in range(200, 230):
        device_table(context, "float32", Table("half_turns", (n,)))
    assert len(context.tables["fft"]) <= 10_000 // (8 * 200)
    assert device_table(context, "float32", Table("half_turns", (100,))) is not first


def test_long_functions_are_not_unrolled():
    x = ps.get_scalar_type("float32")()
    y = x
    for k in range(30):
        y = (y + np.float32(k)) * x
    long = element_function(ps.Composite([x], [y]), ["float32"], ["float32"])
    short = element_function(ps.Composite([x], [x * x]), ["float32"], ["float32"])
    assert long.operations > 24 >= short.operations
    assert (unroll_of(long.operations), unroll_of(short.operations)) == (1, 4)
    assert Cast("float32", "float32").operations == 1
