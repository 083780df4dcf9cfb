"""Slices that are set or added to in a copy, against NumPy."""

import numpy as np
import pytest

from pytensor_cl.routines.base import ndrange
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.indexing import slice_update
from pytensor_cl.routines.indexing.slice_update import SliceUpdate


def expected(x, writes):
    result = x.copy()
    for items, adds, value in writes:
        if adds:
            result[items] += value
        else:
            result[items] = value
    return result


pytestmark = pytest.mark.parametrize("schedule", SCHEDULES)


def check(context, schedule, x, writes, device=None):
    """Write arrays that have the shape of what the index selects, or are repeated to that."""
    device = context.from_host(x) if device is None else device
    values = []
    for items, _, value in writes:
        array = context.from_host(value)
        values.append(array.with_layout(array.layout.broadcast_to(x[items].shape)))
    assert SliceUpdate.takes(context, str(x.dtype), x.ndim, len(writes))
    routine = SliceUpdate(context, str(x.dtype), x.ndim, [adds for _, adds, _ in writes], schedule)
    output = context.empty(x.shape, x.dtype)
    routine.launch(output, device, [items for items, *_ in writes], values)
    np.testing.assert_array_equal(output.to_host(), expected(x, writes), strict=True)


def values_of(dtype, shape, rng):
    return (rng.random(shape) < 0.5) if dtype == "bool" else rng.integers(0, 50, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint64", "bool"])
def test_differences(context, schedule, rng, dtype):
    """Lengths about those of a vector and of a part of a row."""
    for n in (1, 2, 17, 2048, 2049, 20011):
        x = values_of(dtype, n, rng)
        check(context, schedule, x, [((slice(1, None),), True, x[1:]), ((slice(None, -1),), True, x[:-1])])
        check(context, schedule, x, [((slice(None),), False, x[:1]), ((slice(None, None, 3),), True, x[::3])])


def test_steps_beyond_32_bits(context, schedule, rng):
    x = values_of("float32", (3, 70), rng)
    for step in (10**12, -(10**12), 2**31, -(2**31)):
        row = slice(2, None, step)
        for adds in (False, True):
            check(context, schedule, x, [((slice(None), slice(None, None, step)), adds, x[:, :1])])
            check(context, schedule, x, [((row,), adds, x[:1])])
    adding = SliceUpdate(context, "float32", 2, [True], schedule)
    for step in (10**12, 2**31):
        for items in ((slice(None, None, step),), (slice(None), slice(None, None, step))):
            device, output = context.from_host(x)[items], context.empty(x[items].shape, "float32")
            adding.launch(output, device, [(slice(None),)], [device])
            np.testing.assert_array_equal(output.to_host(), 2 * x[items])


def test_dimensions(context, schedule, rng, monkeypatch):
    monkeypatch.setattr(slice_update, "MIN_ITEM_SLICED", 64)
    x = rng.normal(size=(13, 7, 21)).astype("float32")
    for items in (
        (slice(2, None),),
        (slice(None), slice(None, None, -2)),
        (slice(11, 1, -3), 4, slice(20, None, -1)),
        (-1, slice(2, 2), slice(1, 3)),
        (slice(None), slice(None), -21),
        (),
    ):
        value = rng.normal(size=x[items].shape).astype("float32")
        small = rng.normal(size=x[items].shape[-1:]).astype("float32")
        check(context, schedule, x, [(items, True, value)])
        check(context, schedule, x, [(items, False, small), ((slice(None, 5),), True, x[:5]), (items, True, value)])


def test_strides_of_the_array(context, schedule, rng):
    store = rng.normal(size=(40, 30)).astype("float32")
    device = context.from_host(store)
    one = device[:1, :1]
    for x, view in (
        (store[::-3, 2:9], device[::-3, 2:9]),
        (store.T, device.T),
        (np.broadcast_to(store[:1, :1], (6, 40)), one.with_layout(one.layout.broadcast_to((6, 40)))),
    ):
        rows = rng.normal(size=(3, x.shape[1])).astype("float32")
        check(
            context,
            schedule,
            np.ascontiguousarray(x),
            [((slice(1, 4),), True, rows), ((slice(2, 5),), False, rows)],
            view,
        )


def test_many_slices_and_long_indices(context, schedule, rng, monkeypatch):
    monkeypatch.setattr(ndrange, "INT_LIMIT", 100)
    x = rng.normal(size=(9, 30)).astype("float32")
    writes = [((slice(k, None), slice(None, 30 - k)), k % 2 == 0, x[k:, k:]) for k in range(6)]
    check(context, schedule, x, writes)


def test_no_dimensions(context, schedule):
    check(context, schedule, np.array(3.0), [((), True, np.array(4.0))])


def test_what_there_is_no_kernel_for(context, schedule):
    assert not SliceUpdate.takes(context, "float16", 1, 1)
    assert not SliceUpdate.takes(context, "complex64", 1, 1)
    many = context.info.max_parameter_size
    assert not SliceUpdate.takes(context, "float32", many, many)


def test_launches_share_a_kernel(context, schedule, monkeypatch):
    x, y, result = (
        context.from_host(np.zeros(8, "float32")),
        context.from_host(np.ones(4, "float32")),
        context.empty((8,), "float32"),
    )
    made, new = [], context.kernel
    monkeypatch.setattr(context, "kernel", lambda *source: made.append(new(*source)) or made[-1])
    update = SliceUpdate(context, "float32", 1, [True], schedule)
    for start in (0, 2, 2, 4):
        update.launch(result, x, [(slice(start, start + 4),)], [y])
        assert np.asarray(result).tolist() == [float(start <= k < start + 4) for k in range(8)]
    assert len(made) == 1
