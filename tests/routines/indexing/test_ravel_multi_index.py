"""Flat indices and indices along each dimension against NumPy."""

import numpy as np
import pytest

from pytensor_cl.routines.indexing.ravel_multi_index import RavelMultiIndex, UnravelIndex

SCHEDULES = ("cpu", "simt")


def ravel(context, arrays, dims, mode="raise", order="C", schedule=None):
    kinds = [a.dtype.name for a in arrays], [a.ndim for a in arrays]
    routine = RavelMultiIndex(context, *kinds, mode, order, schedule)
    (got,) = routine(*map(context.from_host, arrays), np.array(dims))
    if routine.is_checked:
        routine.check()
    return np.asarray(got)


def unravel(context, flat, dims, order="C", schedule=None):
    routine = UnravelIndex(context, flat.dtype.name, flat.ndim, len(dims), order, schedule)
    got = routine(context.from_host(flat), np.array(dims))
    routine.check()
    return got


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_ravel(context, rng, schedule, order, mode):
    low, high = (0, 5) if mode == "raise" else (-30, 30)
    for shape in ((), (0,), (9000,), (3, 4)):
        arrays = [rng.integers(low, high, shape).astype(d) for d in ("int64", "int8", "int32")]
        got = ravel(context, arrays, (5, 6, 7), mode, order, schedule)
        np.testing.assert_array_equal(got, np.ravel_multi_index(arrays, (5, 6, 7), mode, order), strict=True)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_unravel(context, rng, schedule, order):
    for dims in ((7,), (5, 6, 7), (2**20, 2**20, 3)):
        size = int(np.prod(dims))
        for shape in ((), (0,), (9000,), (3, 4)):
            flat = rng.integers(0, size, shape)
            for got, wanted in zip(
                unravel(context, flat, dims, order, schedule), np.unravel_index(flat, dims, order), strict=True
            ):
                np.testing.assert_array_equal(np.asarray(got), wanted)


def test_strides_and_broadcasting(context, rng):
    i, j = rng.integers(0, 4, (6, 1)), rng.integers(0, 4, 8)
    routine = RavelMultiIndex(context, ["int64"] * 2, [2, 1])
    (got,) = routine(context.from_host(i)[::-1], context.from_host(j)[::2], (4, 4))
    np.testing.assert_array_equal(np.asarray(got), np.ravel_multi_index((i[::-1], j[::2]), (4, 4)))
    back = UnravelIndex(context, "int64", 2, 2)(got.T, (4, 4))
    np.testing.assert_array_equal(np.asarray(back[0]), np.broadcast_to(i[::-1], (6, 4)).T)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("wrong", [-1, 4])
def test_out_of_range(context, schedule, wrong):
    index = np.array([0, 1, wrong])
    with pytest.raises(ValueError, match="invalid entry in coordinates array"):
        ravel(context, [index, index * 0], (4, 4), schedule=schedule)
    flat = np.array([0, 1, 4 * wrong])
    with pytest.raises(ValueError, match=f"index {4 * wrong} is out of bounds for array with size 16"):
        unravel(context, flat, (4, 4), schedule=schedule)


def test_extents_that_do_not_fit(context):
    one = np.zeros(1, "int64")
    with pytest.raises(ValueError, match="shape has zero entries"):
        ravel(context, [one, one], (0, 4))
    with pytest.raises(ValueError, match="larger than the maximum possible size"):
        ravel(context, [one, one], (2**40, 2**40))
    with pytest.raises(ValueError, match="sequence of length 3"):
        ravel(context, [one, one], (2, 2, 2))
    with pytest.raises(ValueError, match="could not be broadcast together"):
        ravel(context, [np.zeros(3, "int64"), np.zeros(2, "int64")], (2, 2))
    with pytest.raises(ValueError, match="dimensions are too large"):
        unravel(context, one, (2**40, 2**40))
    with pytest.raises(ValueError, match="index 0 is out of bounds for array with size 0"):
        unravel(context, one, (0, 4))
