"""Functions of picked elements against NumPy."""

import numpy as np
import pytest
from pytensor import scalar as ps

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.indexing.gather_fused import GatherFused
from pytensor_cl.scalar.base import element_function

INDEX = ("int64", 1)


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def difference(dtype="float32", kind=ps.sub):
    """``x - y`` as an element function."""
    x, y = (ps.get_scalar_type(dtype)() for _ in range(2))
    return element_function(ps.Composite([x, y], [kind(x, y)]), [dtype] * 2, [dtype])


def pick(context, schedule, function, arrays, index, known=None):
    """Run the routine on what NumPy holds; 0-d arrays and numbers go by value."""
    by_value = [np.ndim(a) == 0 for a in arrays]
    types = [None if np.ndim(i) == 0 else (str(i.dtype), i.ndim) for i in index]
    flags = [() if value else known or [n == 1 for n in a.shape] for a, value in zip(arrays, by_value, strict=True)]
    routine = GatherFused(context, function, flags, by_value, types, schedule=schedule)
    inputs = [a if np.ndim(a) == 0 else on_device(context, a) for a in (*arrays, *index)]
    (result,) = routine(*inputs)
    routine.check()
    (layout,) = routine.layout(*(getattr(a, "layout", a) for a in inputs))
    assert layout.shape == result.shape
    return result.to_host()


def on_device(context, array):
    """Upload an array, with its strides if they are not those of a new one."""
    if array.flags.c_contiguous:
        return context.from_host(array)
    base = context.from_host(np.ascontiguousarray(array[::-1, ::-1].T))
    rows, columns = base.layout.shape
    return base.with_layout(
        base.layout.subscript((slice(rows - 1, None, -1), slice(columns - 1, None, -1))).transpose((1, 0))
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "int64", "complex64"])
def test_dtypes(context, schedule, rng, dtype):
    x, y = (rng.integers(0, 50, size=(9, 13)).astype(dtype) for _ in range(2))
    i, j = rng.integers(-9, 9, size=7), rng.integers(-13, 13, size=7).astype("int32")
    got = pick(context, schedule, difference(dtype), [x, y], [i, j])
    np.testing.assert_array_equal(got, (x - y)[i, j], strict=True)


def test_broadcasting_strides_and_numbers(context, schedule, rng):
    x, row, column = (rng.normal(size=shape).astype("float32") for shape in [(40, 30), (1, 30), (40, 1)])
    crossed = np.asarray(rng.normal(size=(30, 40)).astype("float32"))[::-1, ::-1].T
    i, j = rng.integers(0, 40, size=600), rng.integers(0, 30, size=600)
    f = difference()
    for a, b in [(x, row), (column, x), (column, row), (x, crossed), (crossed, column)]:
        np.testing.assert_array_equal(pick(context, schedule, f, [a, b], [i, j]), (a - b)[i, j], strict=True)
    got = pick(context, schedule, f, [x, np.float32(2)], [i, j])
    np.testing.assert_array_equal(got, (x - np.float32(2))[i, j], strict=True)
    np.testing.assert_array_equal(pick(context, schedule, f, [x, row], [i, -1]), (x - row)[i, -1], strict=True)


def test_shapes_of_the_index(context, schedule, rng):
    x, y = (rng.normal(size=(6, 1, 5)).astype("float32") for _ in range(2))
    for shapes in [((2, 1), (1, 3), (3,)), ((4,), (1,), (4,)), ((0,), (1,), (0,)), ((1,), (1,), (1,))]:
        i, j, k = (rng.integers(0, n, size=shape) for n, shape in zip(x.shape, shapes, strict=True))
        got = pick(context, schedule, difference(), [x, y], [i, j, k])
        np.testing.assert_array_equal(got, (x - y)[i, j, k], strict=True)


def test_more_picks_than_elements(context, schedule, rng):
    x, y = (rng.normal(size=(3, 4)).astype("float32") for _ in range(2))
    i, j = rng.integers(0, 3, size=50), rng.integers(0, 4, size=50)
    np.testing.assert_array_equal(pick(context, schedule, difference(), [x, y], [i, j]), (x - y)[i, j], strict=True)
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 1 with size 4"):
        pick(context, schedule, difference(), [x, y], [i, j + (j == 3)])


def test_errors(context, schedule, rng):
    x, y = (rng.normal(size=(9, 4)).astype("float32") for _ in range(2))
    i, f = np.arange(3), difference()
    for index, axis, at in [([i + 7, i], 0, 9), ([i, i - 6], 1, -6), ([i, 4], 1, 4)]:
        with pytest.raises(IndexError, match=f"index {at} is out of bounds for axis {axis}"):
            pick(context, schedule, f, [x, y], index)
    with pytest.raises(IndexError, match="could not be broadcast"):
        pick(context, schedule, f, [x, y], [i, np.arange(2)])
    with pytest.raises(IndexError, match="out of bounds"):
        pick(context, schedule, f, [x[:0], y[:0]], [i, i])
    with pytest.raises(ValueError, match="dimension mismatch"):
        pick(context, schedule, f, [x, y[:5]], [i, i])
    with pytest.raises(ValueError, match="Runtime broadcasting"):
        pick(context, schedule, f, [x, y[:1]], [i, i], known=(False, False))


def test_many_picks_on_many_work_items(context, schedule, rng):
    x = rng.normal(size=(5000, 7)).astype("float32")
    column = rng.normal(size=(5000, 1)).astype("float32")
    i, j = np.arange(5000), rng.integers(0, 7, size=5000)
    got = pick(context, schedule, difference(), [x, column], [i, j])
    np.testing.assert_array_equal(got, (x - column)[i, j], strict=True)
