"""Rowwise kernels that look elements up in tables."""

import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.indexing.table_lookup import TableLookup
from pytensor_cl.routines.rowwise.program import Map, Operand, Reduce, RowFunction
from pytensor_cl.routines.rowwise.routine import Rowwise
from tests.routines.rowwise.test_rowwise import F32, FULL, step

INDEX = Operand("full", "int64")
LOOK = Map(TableLookup(0, F32, "int64"), (1,), 10, "take")
PRODUCT = RowFunction((FULL, INDEX), (LOOK, step("i0 * i1", 0, 2)), (3,), (F32,))
ROWS = RowFunction(
    (FULL, INDEX),
    (LOOK, step("i0 * i1", 0, 2), Reduce("add", 3, "float64", F32), step("i0 - i1", 3, 4)),
    (4, 5),
    (F32,),
)


def routine_of(context, function, ndim, axes, schedule, broadcast=None):
    forms = (False,) * (len(function.operands) + len(function.outputs))
    return Rowwise(context, function, ndim, axes, forms, broadcast or ((False,) * ndim,) * 2, schedule)


def arrays(rng, context, shape, length=23):
    """Numbers, indices and a table, on the host and on the device."""
    x, table = rng.normal(size=shape).astype(F32), rng.normal(size=length).astype(F32)
    host = x, rng.integers(-length, length, size=shape), table
    return host, [context.from_host(a) for a in host]


def close(got, wanted):
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_reductions(context, rng, schedule):
    routine = routine_of(context, PRODUCT, 1, (0,), schedule)
    for n in (0, 1, 15, 17, 1000, 70001):
        (x, i, table), given = arrays(rng, context, (n,))
        close(routine(*given)[0], x * table[i])
    routine.check()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("axis", [0, 1])
def test_rows(context, rng, schedule, axis):
    routine = routine_of(context, ROWS, 2, (axis,), schedule)
    for shape in ((70, 33), (3, 5), (2, 40000), (0, 4), (4, 0)):
        (x, i, table), given = arrays(rng, context, shape)
        total, rest = routine(*given)
        wanted = x * table[i]
        close(total, wanted.sum(axis, keepdims=True))
        close(rest, wanted - wanted.sum(axis, keepdims=True))
    routine.check()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_layouts(context, rng, schedule):
    routine = routine_of(context, PRODUCT, 2, (0, 1), schedule)
    for view in (np.s_[::-1, ::-1], np.s_[::2, 1::3], np.s_[:, ::-1]):
        (x, i, table), given = arrays(rng, context, (40, 51))
        layouts = [a.layout.subscript(view) for a in given[:2]] + [given[2].layout.subscript((slice(None, None, -1),))]
        views = [a.with_layout(layout) for a, layout in zip(given, layouts, strict=True)]
        close(routine(*views)[0], x[view] * table[::-1][i[view]])
    (x, i, table), given = arrays(rng, context, (40, 51))
    strided = given[2].with_layout(given[2].layout.subscript((slice(1, None, 3),)))
    i %= len(table[1::3])
    across = context.from_host(i[:1])
    repeated = routine_of(context, PRODUCT, 2, (0, 1), schedule, ((False, False), (True, False)))
    close(repeated(given[0], across, strided)[0], x * table[1::3][i[:1]])
    one = strided.with_layout(strided.layout.subscript((slice(2, 3),)).broadcast_to((9,)))
    close(routine(given[0], context.from_host(i % 9), one)[0], x * table[1::3][2])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("axis", [0, 1])
def test_index_of_each_row(context, rng, schedule, axis):
    operands = FULL, Operand("row", "int64")
    steps = LOOK, step("i0 * i1", 0, 2), Reduce("add", 3, "float64", F32)
    flags = (False, False), tuple(d == axis for d in range(2))
    routine = routine_of(context, RowFunction(operands, steps, (4,), (F32,)), 2, (axis,), schedule, flags)
    for shape in ((50, 30), (3, 5)):
        (x, i, table), given = arrays(rng, context, shape)
        i = i.take([0], axis)
        close(routine(given[0], context.from_host(i), given[2])[0], (x * table[i]).sum(axis, keepdims=True))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_index_out_of_range(context, rng, schedule):
    routine = routine_of(context, ROWS, 2, (1,), schedule)
    for wrong in (23, -24, 2**62, -(2**63)):
        (_, i, _), given = arrays(rng, context, (5, 19))
        i[3, 18] = wrong
        routine(given[0], context.from_host(i), given[2])
        with pytest.raises(IndexError, match=f"^index {wrong} is out of bounds for axis 0 with size 23$"):
            routine.check()
    routine(*given)
    routine.check()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nothing_to_compute(context, rng, schedule):
    flags = (False, False), (False, True)
    routine = routine_of(context, PRODUCT, 2, (0, 1), schedule, flags)
    x, empty = context.from_host(np.ones((3, 0), F32)), context.from_host(np.ones(0, F32))
    table, index = context.from_host(np.ones(4, F32)), context.from_host(np.array([[0], [-4], [4]]))
    assert routine(x, index, table)[0].shape == (3, 0)
    with pytest.raises(IndexError, match="index 4 is out of bounds"):
        routine.check()
    with pytest.raises(IndexError, match="index 0 is out of bounds for axis 0 with size 0"):
        routine(context.from_host(np.ones((3, 2), F32)), index, empty)
    none = context.from_host(np.ones((0, 2), F32)), context.from_host(np.ones((0, 1), "int64"))
    assert routine(*none, empty)[0].shape == (0, 2)
    routine.check()


def test_known_bounds_need_no_check(context, rng):
    look = LOOK._replace(function=TableLookup(0, F32, "int64", (-23, 22)))
    routine = routine_of(context, RowFunction((FULL, INDEX), (look, *PRODUCT.steps[1:]), (3,), (F32,)), 1, (0,), None)
    assert not routine.is_checked and "report_error" not in routine.sources()[0].source
    (x, i, table), given = arrays(rng, context, (100,))
    close(routine(*given)[0], x * table[i])
    with pytest.raises(IndexError, match="index 22 is out of bounds for axis 0 with size 22"):
        routine(*given[:2], context.from_host(table[1:]))
