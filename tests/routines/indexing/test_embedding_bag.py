"""Reductions of rows that an index picks, against NumPy."""

import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.indexing.embedding_bag import EmbeddingBag

REDUCE = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def make(context, table, index, axes=(1,), operation="add", acc_dtype=None, **options):
    dtypes = str(table.dtype), acc_dtype or str(table.dtype), str(table.dtype)
    kind = str(index.dtype), index.ndim
    return EmbeddingBag(context, operation, dtypes, table.ndim, kind, axes, **options)


def check(context, table, index, axes=(1,), operation="add", views=None, **options):
    routine = make(context, table, index, axes, operation, **options)
    device, at = views or (context.from_host(table), context.from_host(index))
    (result,) = routine(device, at)
    routine.check()
    wide = table.astype("float64") if table.dtype == "float32" else table
    want = REDUCE[operation].reduce(wide[index], axes)
    rtol = {"float32": 1e-5, "float64": 1e-13}.get(str(table.dtype), 0)
    np.testing.assert_allclose(result.to_host(), want.astype(table.dtype), rtol=rtol, atol=rtol)
    return routine


def is_apart(routine):
    return [not plan.work_items for plan in routine._plans._plans.values()]


def test_columns(context, schedule, rng):
    for columns in (1, 2, 3, 16, 21, 32, 61, 100):
        table = rng.normal(size=(11, columns)).astype("float32")
        index = rng.integers(-11, 11, (30, 7))
        routine = check(context, table, index, schedule=schedule, acc_dtype="float64")
        assert is_apart(routine) == [False]


@pytest.mark.parametrize("operation", REDUCE)
def test_operations_and_dtypes(context, rng, operation, schedule):
    index = rng.integers(-9, 9, (5, 3)).astype("int16")
    for dtype in ("float64", "int8", "uint64", "float32"):
        table = rng.integers(0, 4, (9, 20)).astype(dtype)
        table = table * rng.normal(size=20) if dtype == "float64" else table
        check(context, table, index, operation=operation, schedule=schedule)


def test_axes(context, schedule, rng):
    table, index = rng.normal(size=(9, 2, 5)).astype("float32"), rng.integers(-9, 9, (4, 6, 3)).astype("int32")
    for axes in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)):
        check(context, table, index, axes, schedule=schedule)
    for count in (1, 30):
        check(context, table, index[0, 0, :1].repeat(count), (0,), schedule=schedule)


def test_strides(context, rng, schedule):
    store, many = rng.normal(size=(30, 40)).astype("float32"), rng.integers(-5, 5, (20, 12))
    device, at = context.from_host(store), context.from_host(many)
    for of in (lambda x: x[::-2, 3:24], lambda x: x.T[:9], lambda x: x[:5, :1], lambda x: x[:5, ::3]):
        for pick in (lambda i: i[::-3, 1::2], lambda i: i.T, lambda i: i[:, :1]):
            check(context, of(store), pick(many), views=(of(device), pick(at)), schedule=schedule)


def test_many_rows_for_few_bags(context, rng, schedule):
    """Work-items have bags to themselves, so that few are gathered and reduced in parts."""
    table, index = rng.integers(0, 9, (50, 8)).astype("float32"), rng.integers(0, 50, (1, 40000))
    if context.info.compute_units > 1:
        assert is_apart(check(context, table, index, schedule=schedule)) == [True]


def test_no_fp64_sums_are_exact_too(context, rng, schedule):
    table, index = rng.normal(size=(90, 20)).astype("float32"), rng.integers(0, 90, (3, 500))
    routine = make(context, table, index, acc_dtype="float64", schedule=schedule)
    narrow = make(context, table, index, acc_dtype="float64", schedule=schedule)
    narrow._reduction = type(narrow._reduction)(
        context, "add", "float32", "float64", "float32", 3, (1,), has_fp64=False, schedule=schedule
    )
    assert "double" not in narrow._source().source
    device, at = context.from_host(table), context.from_host(index)
    got, want = (r(device, at)[0].to_host() for r in (narrow, routine))
    np.testing.assert_allclose(got, want, rtol=3e-7, atol=1e-6)


def test_long_sums_in_float32_are_added_in_parts(context, rng, schedule):
    table, index = rng.random((90, 3)).astype("float32"), rng.integers(0, 90, (300, 10000))
    assert is_apart(check(context, table, index, schedule=schedule)) == [True]


def test_nothing(context, schedule):
    table = np.ones((4, 3), "float32")
    for shape in ((0, 5), (5, 0)):
        check(context, table, np.zeros(shape, "int64"), schedule=schedule)
    check(context, table[:, :0], np.zeros((2, 3), "int64"), schedule=schedule)
    with pytest.raises(ValueError, match="zero-size"):
        check(context, table, np.zeros((5, 0), "int64"), operation="maximum", schedule=schedule)


@pytest.mark.parametrize(("shape", "given"), [((5, 3), 5), ((5, 3), -6), ((5, 40), 2**40), ((0, 3), 1), ((5, 0), 7)])
def test_bad_indices(context, schedule, shape, given):
    table, index = np.ones(shape, "float32"), np.array([[0, given], [0, 0]])
    routine = make(context, table, index, schedule=schedule)
    wrong = given if shape[0] else "."
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 0 with size {shape[0]}"):
        routine(context.from_host(table), context.from_host(index))
        routine.check()
    known = make(context, table, index, bounds=(min(0, given), max(0, given)), schedule=schedule)
    assert not known.is_checked
    with pytest.raises(IndexError, match="out of bounds"):
        known(context.from_host(table), context.from_host(index))
