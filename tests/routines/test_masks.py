"""Selection and assignment by masks of any number of dimensions, against NumPy."""

from itertools import product

import numpy as np
import pytest

from pytensor_cl.routines.masks import AssignByMask, SelectByMask
from pytensor_cl.routines.nonzero import MaskAssign

SCHEDULES = ("cpu", "simt")
VIEWS = (lambda x: x, lambda x: x[::-1, ::2], lambda x: x.T[:, 1:, ::-1])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mask_ndim", range(4))
def test_masks_of_fewer_dimensions(context, rng, schedule, mask_ndim):
    host = rng.integers(0, 100, (6, 7, 5)).astype("int16")
    select = SelectByMask(context, "int16", 3, mask_ndim, schedule)
    values = {"value_dtype": "int16", "value_ndim": max(1, 4 - mask_ndim)}
    assign = AssignByMask(context, "int16", 3, mask_ndim, schedule=schedule, **values)
    for view, density in product(VIEWS, (0, 0.4, 1)):
        want, target = host.copy(), context.from_host(host)
        mask = rng.random(view(host).shape[:mask_ndim]) < density
        mask = np.asarray(mask)
        device = context.from_host(mask)
        got = select(view(target), device)
        np.testing.assert_array_equal(got.to_host(), view(host)[mask], strict=True)
        new = (1000 + np.arange(got.size)).reshape(got.shape).astype("int16")
        view(want)[mask] = new
        assign.update(view(target), context.from_host(new), device)
        np.testing.assert_array_equal(target.to_host(), want)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_arrays_without_dimensions(context, schedule):
    for chosen in (True, False):
        x, mask = np.float32(3), np.array(chosen)
        device = context.from_host(np.array(x))
        got = SelectByMask(context, "float32", 0, 0, schedule)(device, context.from_host(mask))
        np.testing.assert_array_equal(got.to_host(), np.array(x)[mask], strict=True)
        assign = AssignByMask(context, "float32", 0, 0, schedule=schedule, value_dtype="float32", value_ndim=0)
        assign.update(device, context.from_host(np.array(7, "float32")), context.from_host(mask))
        assert device.to_host() == (7 if chosen else 3)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["bool", "float16", "float64", "complex128"])
def test_assignment_in_place(context, rng, schedule, dtype):
    """Values that are cast, one value, values in the memory of the target, and gaps that stay as they are."""
    host = rng.integers(0, 2 if dtype == "bool" else 50, 700).astype(dtype)
    mask = rng.random(350) < 0.3
    mask[100:200], mask[220:240] = False, True
    device, want = context.from_host(host), host.copy()
    assign = MaskAssign(context, dtype, 1, accumulate=False, value_dtype="int32", value_ndim=1, schedule=schedule)
    new = rng.integers(0, 2, mask.sum()).astype("int32")
    buffer, view = device.buffer, device[::-2]
    want[::-2][mask] = new
    assign.update(view, context.from_host(new), context.from_host(mask))
    np.testing.assert_array_equal(device.to_host(), want)
    want[:350][mask] = 1
    assign.update(device[:350], context.from_host(np.ones(1, "int32")), context.from_host(mask))
    own = MaskAssign(context, dtype, 1, accumulate=False, value_dtype=dtype, value_ndim=1, schedule=schedule)
    want[:350][mask] = want[1 : 1 + mask.sum()].copy()
    own.update(device[:350], device[1 : 1 + mask.sum()], context.from_host(mask))
    np.testing.assert_array_equal(device.to_host(), want)
    assert device.buffer is buffer


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_values_that_do_not_fit(context, schedule):
    x = context.from_host(np.zeros((3, 4), "float32"))
    mask = context.from_host(np.array([True, False, True]))
    select = SelectByMask(context, "float32", 2, 1, schedule)
    with pytest.raises(IndexError, match="boolean index did not match indexed array along axis 0; size of axis is 3"):
        select(x, context.from_host(np.ones(4, bool)))
    with pytest.raises(IndexError, match="too many indices for array: array is 1-dimensional, but 2 were indexed"):
        SelectByMask(context, "float32", 1, 2, schedule)
    assign = AssignByMask(context, "float32", 2, 1, value_dtype="float32", value_ndim=1, schedule=schedule)
    with pytest.raises(ValueError, match="could not be broadcast to indexing result of shape"):
        assign.update(x, context.from_host(np.ones(3, "float32")), mask)
    whole = AssignByMask(context, "float32", 1, 1, value_dtype="float32", value_ndim=1, schedule=schedule)
    with pytest.raises(ValueError, match="value array of shape .3,. could not be broadcast"):
        whole.update(x[:, 0], context.from_host(np.ones(3, "float32")), mask)
    np.testing.assert_array_equal(x.to_host(), np.zeros((3, 4), "float32"))
