"""Repetition of elements against NumPy."""

import numpy as np
import pytest

from pytensor_cl.routines.repeat import Repeat

SCHEDULES = ("cpu", "simt")


def check(context, routine, host, repeats, axis, view=lambda a: a):
    got = routine(view(context.from_host(host)), context.from_host(repeats))[0]
    np.testing.assert_array_equal(np.asarray(got), np.repeat(view(host), repeats, axis), strict=True)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "complex128"])
def test_dtypes(context, rng, schedule, dtype):
    for shape, axis in (((0,), 0), ((1,), 0), ((900,), 0), ((3, 0), 1), ((7, 33), 0), ((7, 33), 1), ((3, 4, 20), 1)):
        routine = Repeat(context, dtype, len(shape), axis, schedule=schedule)
        host = rng.integers(0, 2, shape).astype(dtype)
        for most in (1, 3, 20):
            repeats = rng.integers(0, most, shape[axis])
            check(context, routine, host, repeats, axis)
            check(context, routine, host, repeats[::-1], axis, lambda a: a[::-1])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_long_and_uneven(context, rng, schedule):
    routine = Repeat(context, "float32", 1, 0, schedule=schedule)
    host = np.arange(5000, dtype="float32")
    check(context, routine, host, rng.integers(0, 30, 5000), 0)
    check(context, routine, host[:3], np.array([1, 100_000, 2]), 0)
    check(context, routine, host, (np.arange(5000) % 1024 == 5) * 40, 0)
    check(
        context,
        Repeat(context, "float32", 2, 0, schedule=schedule),
        host.reshape(2, -1).repeat(9, 1),
        np.array([2, 1]),
        0,
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_strides(context, rng, schedule):
    host = rng.integers(0, 9, (6, 8, 5))
    routine = Repeat(context, "int64", 3, 1, schedule=schedule)
    check(context, routine, host, rng.integers(0, 4, 4), 1, lambda a: a[::-1, 1::2])
    check(context, routine, host, rng.integers(0, 4, 8), 1, lambda a: a.T)
    check(context, routine, host, np.array([3]), 1)


def test_what_numpy_refuses(context):
    x = context.from_host(np.zeros(3, "float32"))
    routine = Repeat(context, "float32", 1, 0)
    with pytest.raises(ValueError, match="repeats may not contain negative values"):
        routine(x, context.from_host(np.array([3, -1, 2])))
    with pytest.raises(ValueError, match=r"could not be broadcast together with shape \(3,\) \(2,\)"):
        routine(x, context.from_host(np.array([3, 1])))
