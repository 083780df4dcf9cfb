"""Rowwise kernels that read rows of tables where an index says."""

import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.indexing.table_lookup import TableLookup
from pytensor_cl.routines.rowwise.program import Map, Operand, Reduce, RowFunction
from pytensor_cl.routines.rowwise.routine import Rowwise
from tests.routines.rowwise.test_rowwise import F32, Code


def routine_of(context, schedule, dtype=F32, index_dtype="int64"):
    """The products of rows of a table with those of an array, and their sums."""
    operands = Operand("full", dtype), Operand("full", dtype), Operand("row", index_dtype)
    steps = Map(Code("i0 * i1", 2, dtype), (0, 1)), Reduce("add", 3, "float64", dtype)
    function = RowFunction(operands, steps, (4, 3), gathers=((0, 2),))
    flags = ((False, False),) * 2 + ((False,),)
    return Rowwise(context, function, 2, (1,), (False, False, True, True, False), flags, schedule)


def close(got, wanted):
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("dtype", "index_dtype"), [(F32, "int64"), ("float64", "uint8")])
def test_rows_of_a_table(context, rng, schedule, dtype, index_dtype):
    routine = routine_of(context, schedule, dtype, index_dtype)
    for rows, columns, length in (
        (90, 3, 7),
        (50, 5, 40),
        (70, 12, 2),
        (40, 16, 9),
        (33, 21, 5),
        (30, 40, 6),
        (7, 4, 3),
    ):
        table, x = rng.normal(size=(length, columns + 2)).astype(dtype), rng.normal(size=(rows, columns)).astype(dtype)
        index = rng.integers(0 if index_dtype == "uint8" else -length, length, size=rows).astype(index_dtype)
        device, x_device, i_device = (context.from_host(a) for a in (table, x, index))
        for part in (np.s_[:, :columns], np.s_[:, 2:], np.s_[::-1, 1:-1], np.s_[:, columns - 1 :: -1]):
            wanted = table[part][index] * x
            sums, products = routine(device[part], x_device, i_device)
            close(sums, wanted.sum(1))
            close(products, wanted)
    routine.check()
    assert {v.is_gathered for v, _ in routine._kernels} == ({True, False} if schedule == "cpu" else {False})


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nothing_and_one(context, rng, schedule):
    routine = routine_of(context, schedule)
    for rows, columns, length in ((0, 3, 4), (0, 3, 0), (5, 0, 4), (1, 1, 1), (1, 9, 1), (40, 1, 3)):
        table, x = rng.normal(size=(length, columns)).astype(F32), rng.normal(size=(rows, columns)).astype(F32)
        index = rng.integers(-length, max(length, 1), size=rows)
        wanted = table[index] * x if length else x
        sums, products = routine(*(context.from_host(a) for a in (table, x, index)))
        close(sums, wanted.sum(1))
        close(products, wanted)
    routine.check()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("columns", [5, 40, 0])
def test_an_index_that_is_out_of_range(context, schedule, columns):
    table, x = np.ones((4, columns), F32), np.ones((50, columns), F32)
    for wrong in (4, -5):
        routine = routine_of(context, schedule)
        index = np.zeros(50, "int64")
        index[37] = wrong
        routine(*(context.from_host(a) for a in (table, x, index)))
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds"):
            routine.check()
    routine = routine_of(context, schedule)
    with pytest.raises(IndexError, match="size 0"):
        routine(*(context.from_host(a) for a in (table[:0], x, index)))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("bounds", [None, (-3, 3)])
def test_rows_and_elements_by_the_same_index(context, rng, schedule, bounds):
    operands = Operand("full", F32), Operand("full", F32), Operand("row", "int64")
    lookup = Map(TableLookup(0, F32, "int64", bounds), (2,))  # such as an intercept of each group, beside its slopes
    steps = Map(Code("i0 * i1", 2, F32), (0, 1)), Reduce("add", 3, "float64", F32), lookup
    function = RowFunction(operands, (*steps, Map(Code("i0 + i1", 2, F32), (4, 5))), (6,), (F32,), ((0, 2),))
    flags = ((False, False),) * 2 + ((False,),)
    routine = Rowwise(context, function, 2, (1,), (False, False, True, True), flags, schedule)
    table, x, elements = (rng.normal(size=shape).astype(F32) for shape in ((4, 3), (90, 3), (4,)))
    index = rng.integers(-3, 4, size=90)
    arrays = [context.from_host(a) for a in (table, x, index, elements)]
    close(routine(*arrays)[0], (table[index] * x).sum(1) + elements[index])
    routine.check()
    assert {v.is_gathered for v, _ in routine._kernels} == {schedule == "cpu"}
    if bounds is None:
        index[50] = 4
        routine(*arrays[:2], context.from_host(index), arrays[3])
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            routine.check()
