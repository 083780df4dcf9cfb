"""Sums of weighted elements along an axis against NumPy."""

import numpy as np
import pytest

from pytensor_cl.routines.resampling import MAX_UNROLLED_TAPS, WeightedTake

SCHEDULES = ("cpu", "simt")


def expected(x, axis, index, weight=None):
    """Return the sums that NumPy makes."""
    taken = np.take(x, np.maximum(index, 0), axis=axis)  # the taps and the results in place of the axis
    behind = (1,) * (-axis - 1)
    taken = np.where((index >= 0).reshape(index.shape + behind), taken, 0)
    if weight is not None:
        taken = taken * weight.reshape(index.shape + behind)
    return taken.sum(axis=x.ndim + axis, dtype=taken.dtype).astype(x.dtype)


def check(context, routine, x, index, weight=None, view=lambda a: a):
    """Compare with NumPy."""
    tables = [context.from_host(table) for table in (index, weight) if table is not None]
    (got,) = routine(view(context.from_host(x)), *tables)
    want = expected(view(x), routine.axis, index, weight)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "dtype, axis, has_weights",
    [("float32", -1, True), ("float64", -2, True), ("float32", -3, False), ("int16", -1, False)],
)
def test_sums(context, rng, schedule, dtype, axis, has_weights):
    if dtype == "float64" and not context.info.has_fp64:
        pytest.skip("no double precision")
    routine = WeightedTake(context, dtype, axis, has_weights=has_weights, has_gaps=True, schedule=schedule)
    for shape, taps, results in (
        ((3, 5, 40), 2, 9),
        ((3, 5, 7), MAX_UNROLLED_TAPS + 1, 33),
        ((40, 3, 2), 2, 0),
        ((0, 5, 3), 2, 4),
        ((2, 600, 50), 2, 700),
    ):
        x = rng.integers(-9, 9, shape).astype(dtype)
        index = rng.integers(-1, max(1, shape[axis]), (taps, results)).astype("int32")
        weight = rng.integers(-3, 4, (taps, results)).astype(dtype) if has_weights else None
        if not shape[axis]:
            index[:] = -1
        check(context, routine, x, index, weight) if x.size else routine_is_empty(context, routine, x, index)


def routine_is_empty(context, routine, x, index):
    """Check the shape of a result of an array without elements."""
    tables = [context.from_host(index)] + [context.from_host(index.astype(x.dtype))] * routine.has_weights
    (got,) = routine(context.from_host(x), *tables)
    shape = list(x.shape)
    shape[routine.axis] = index.shape[1]
    assert got.shape == tuple(shape)
    np.testing.assert_array_equal(np.asarray(got), np.zeros(shape, x.dtype))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["bool", "float16", "complex128", "uint8"])
def test_moves(context, rng, schedule, dtype):
    if dtype == "complex128" and not context.info.has_fp64:
        pytest.skip("no double precision")
    for axis in (-1, -2):
        options = {"has_weights": False, "has_gaps": True, "moves": True, "schedule": schedule}
        x = rng.integers(0, 2, (6, 20, 35)).astype(dtype)
        index = rng.integers(-1, 20, (1, 50)).astype("int32")
        check(context, WeightedTake(context, dtype, axis, **options), x, index)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_strides(context, rng, schedule):
    options = {"has_weights": True, "has_gaps": False, "schedule": schedule}
    x, index = rng.normal(size=(6, 8, 10)).astype("float32"), rng.integers(0, 3, (2, 11)).astype("int32")
    weight = rng.normal(size=(2, 11)).astype("float32")
    for axis in (-1, -2):
        routine = WeightedTake(context, "float32", axis, **options)
        check(context, routine, x, index, weight, lambda a: a[::-1, 1::2, ::3])
        check(context, routine, x, index, weight, lambda a: a.T)


def test_what_does_not_fit(context):
    routine = WeightedTake(context, "float32", -2, has_weights=False, has_gaps=False)
    x, index = context.from_host(np.zeros((2, 3), "float32")), context.from_host(np.zeros((1, 4), "int32"))
    with pytest.raises(ValueError, match="tables of shape"):
        routine(x[0], index)
    with pytest.raises(ValueError, match="tables of shape"):
        routine(x, index[0])
