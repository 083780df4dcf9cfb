"""Permutations of rows against NumPy."""

import numpy as np
import pytest

from pytensor_cl.routines.indexing.permute_row_elements import PermuteRowElements

SCHEDULES = ("cpu", "simt")


def routine(context, x, index, inverse=False, schedule=None):
    known = [tuple(n == 1 for n in a.shape) for a in (x, index)]
    return PermuteRowElements(context, x.dtype.name, index.dtype.name, known, inverse, schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["int8", "complex128"])
def test_both_ways(context, rng, schedule, dtype):
    for lead_x, lead_y in (((), ()), ((4,), (1,)), ((1,), (4,)), ((2, 1), (2, 3)), ((0,), (1,))):
        x = rng.integers(0, 99, (*lead_x, 9)).astype(dtype)
        index = rng.permuted(np.broadcast_to(np.arange(9), (*lead_y, 9)), axis=-1)
        lead = np.broadcast_shapes(lead_x, lead_y)
        wide, where = np.broadcast_to(x, (*lead, 9)), np.broadcast_to(index, (*lead, 9))
        device = context.from_host(x), context.from_host(index)
        forward, back = (routine(context, x, index, inverse, schedule)(*device)[0] for inverse in (False, True))
        np.testing.assert_array_equal(np.asarray(forward), np.take_along_axis(wide, where, -1), strict=True)
        np.testing.assert_array_equal(np.asarray(back), np.take_along_axis(wide, np.argsort(where), -1), strict=True)


def test_strides_and_negative_indices(context, rng):
    x, index = rng.normal(size=(7, 10)), rng.integers(-3, 3, (5, 7))
    both = context.from_host(x).T[::2], context.from_host(index)[:, ::-1]
    (got,) = routine(context, *both)(*both)
    np.testing.assert_array_equal(np.asarray(got), np.take_along_axis(x.T[::2], index[:, ::-1], -1))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("inverse", [False, True])
def test_out_of_range(context, schedule, inverse):
    x, index = context.from_host(np.zeros(3)), context.from_host(np.array([0, 4, 1]))
    permute = routine(context, x, index, inverse, schedule)
    permute(x, index)
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 3"):
        permute.check()


def test_shapes_that_do_not_fit(context):
    x, index = context.from_host(np.zeros((2, 3))), context.from_host(np.zeros((4, 3), int))
    with pytest.raises(ValueError, match="Dimension mismatch: 2, 4"):
        routine(context, x, index)(x, index)
    one = context.from_host(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="Dimension mismatch: 1, 4"):
        routine(context, x, index)(one, index)
