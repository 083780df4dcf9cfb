"""Choices against NumPy."""

import numpy as np
import pytest

from pytensor_cl.routines.indexing.take_along_axis import Choose

SCHEDULES = ("cpu", "simt")


def compute(context, index, choices, mode="raise", schedule=None):
    kinds = choices.dtype.name, index.dtype.name, index.ndim, choices.ndim, mode
    routine = Choose(context, *kinds, schedule=schedule)
    (got,) = routine(context.from_host(index), context.from_host(choices))
    routine.check()
    return np.asarray(got)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mode, dtype", [("raise", "float16"), ("wrap", "float32"), ("clip", "complex128")])
def test_modes_and_broadcasting(context, rng, schedule, dtype, mode):
    low, high = (0, 5) if mode == "raise" else (-12, 13)
    for shape, rest in (((7,), (7,)), ((), (3, 4)), ((3, 1), (4,)), ((5, 3, 4), (3, 1)), ((0, 3), (3,)), ((4,), ())):
        index = rng.integers(low, high, shape)
        choices = rng.integers(0, 2, (5, *rest)).astype(dtype)
        got = compute(context, index, choices, mode, schedule)
        np.testing.assert_array_equal(got, np.choose(index, choices, mode=mode), strict=True)


@pytest.mark.parametrize("index", ["int8", "uint32", "bool"])
def test_dtypes_of_the_index(context, rng, index):
    where, choices = rng.integers(0, 2, 9000).astype(index), rng.normal(size=(2, 9000))
    np.testing.assert_array_equal(compute(context, where, choices), np.choose(where, choices))


def test_strides(context, rng):
    index, choices = rng.integers(0, 4, (6, 8)), rng.integers(0, 99, (6, 8, 4))
    routine = Choose(context, "int64", "int64", 2, 3)
    (got,) = routine(context.from_host(index).T[::-1], context.from_host(choices).T[:, :, ::-1])
    np.testing.assert_array_equal(np.asarray(got), np.choose(index.T[::-1], choices.T[:, :, ::-1]))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("wrong", [-1, 3])
def test_out_of_range(context, schedule, wrong):
    with pytest.raises(ValueError, match="invalid entry in choice array"):
        compute(context, np.array([0, wrong, 1]), np.zeros((3, 3)), schedule=schedule)


def test_shapes_that_do_not_fit(context):
    with pytest.raises(ValueError, match="shape mismatch"):
        compute(context, np.zeros(3, int), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="0-length sequence"):
        compute(context, np.zeros(3, int), np.zeros((0, 3)))
