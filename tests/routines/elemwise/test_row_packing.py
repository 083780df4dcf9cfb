"""Elementwise functions of short rows, several of which are taken for one."""

import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.elemwise.routine import Copy, Elemwise
from pytensor_cl.routines.elemwise.row_packing import Fold, find_fold
from tests.helpers import normal
from tests.routines.elemwise.test_elemwise import FUSED, expected_fused, wide_dtype

pytestmark = pytest.mark.parametrize("schedule", SCHEDULES)

DENSE, ROW, COLUMN, SAME = "dense", "row", "column", "same"


class Both:
    """An element function that returns its arguments."""

    preambles, operations = (), 2

    def __init__(self, dtype):
        self.input_dtypes = self.output_dtypes = (dtype, dtype)
        self.itemsize = np.dtype(dtype).itemsize

    @staticmethod
    def statements(lanes):
        return "o0 = i0; o1 = i1;"


def routine(context, schedule, *arrays, function=None):
    """An element function of arrays that may be repeated along what has length 1."""
    known = tuple(tuple(n == 1 for n in x.shape) for x in arrays)
    return Elemwise(
        context, function or FUSED[wide_dtype(context)], known, arrays[0].ndim, (False,) * len(arrays), schedule
    )


def fold_of(made, schedule):
    """Return how the only launch so far was folded."""
    (plan,) = made._plans._plans.values()
    assert hasattr(plan, "fold") == (schedule == "cpu")
    return plan.fold if schedule == "cpu" else None


@pytest.mark.parametrize(
    ("shape", "other", "roles"),
    [
        ((6007, 3), (1, 3), (DENSE, ROW)),
        ((6007, 3), (6007, 1), (DENSE, COLUMN)),
        ((1, 7), (3011, 1), (ROW, COLUMN)),
        ((1001, 40), (1001, 1), (DENSE, COLUMN)),
        ((203, 100), (1, 100), (DENSE, ROW)),
        ((803, 7, 3), (1, 7, 1), (DENSE, ROW)),
        ((2, 411, 21), (2, 411, 1), (DENSE, COLUMN)),
        ((700, 5, 8), (1, 1, 8), (DENSE, ROW)),
    ],
    ids=str,
)
def test_short_rows(context, schedule, rng, shape, other, roles):
    x, y = normal(rng, *shape), normal(rng, *other)
    made = routine(context, schedule, x, y)
    got = made(context.from_host(x), context.from_host(y))
    for one, want in zip(got, expected_fused(context, x, y), strict=True):
        np.testing.assert_allclose(one.to_host(), want, rtol=1e-5, atol=1e-5, strict=True)
    fold = fold_of(made, schedule)
    if fold and other[-1] != 8:
        assert fold.roles[:2] == roles


def test_an_output_in_place(context, schedule, rng):
    x, column = normal(rng, 4005, 9), normal(rng, 8010, 1)
    on_device, second = context.from_host(x), context.empty(x.shape, "float64")
    made = routine(context, schedule, x, column[::-2])
    made.launch((on_device, second), (on_device, context.from_host(column)[::-2]))
    for got, want in zip((on_device, second), expected_fused(context, x, column[::-2]), strict=True):
        np.testing.assert_allclose(got.to_host(), want, rtol=1e-5, atol=1e-5)
    fold_of(made, schedule)


def test_a_row_of_any_strides(context, schedule, rng):
    x, row = normal(rng, 4005, 9), normal(rng, 1, 30)
    made = routine(context, schedule, x, row[:, ::-3][:, 1:])
    got = made(context.from_host(x), context.from_host(row)[:, ::-3][:, 1:])
    for one, want in zip(got, expected_fused(context, x, row[:, ::-3][:, 1:]), strict=True):
        np.testing.assert_allclose(one.to_host(), want, rtol=1e-5, atol=1e-5)
    fold_of(made, schedule)


def test_transposed_arrays(context, schedule, rng):
    x, row = normal(rng, 4005, 9), normal(rng, 9, 1)
    made = routine(context, schedule, x.T, row)
    outputs = [context.empty(x.shape, t).T for t in ("float32", wide_dtype(context))]
    made.launch(outputs, (context.from_host(x).T, context.from_host(row)))
    for one, want in zip(outputs, expected_fused(context, x.T, row), strict=True):
        np.testing.assert_allclose(one.to_host(), want, rtol=1e-5, atol=1e-5)
    fold_of(made, schedule)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "int64", "complex64", "complex128"])
@pytest.mark.parametrize("other", [(1, 3), (7001, 1), (1001, 1)], ids=str)
def test_dtypes(context, schedule, rng, dtype, other):
    both = Both(dtype)
    x = rng.integers(0, 2, (other[0] if other[0] > 1 else 7001, 40 if other[0] == 1001 else 3)).astype(dtype)
    y = rng.integers(0, 2, other).astype(dtype)
    made = routine(context, schedule, x, y, function=both)
    first, second = made(context.from_host(x), context.from_host(y))
    np.testing.assert_array_equal(first.to_host(), x, strict=True)
    np.testing.assert_array_equal(second.to_host(), np.broadcast_to(y, x.shape), strict=True)
    fold_of(made, schedule)


def test_a_row_that_is_repeated(context, schedule, rng):
    x, output = normal(rng, 1, 5), context.empty((9001, 5), "float32")
    Copy(context, "float32", 2, schedule=schedule).launch((output,), (context.from_host(x),))
    np.testing.assert_array_equal(output.to_host(), np.broadcast_to(x, (9001, 5)))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((20000,), ((1,), (1,))),
        ((100, 40), ((40, 1), (0, 1), (40, 1))),  # too small
        ((1000, 40), ((41, 1), (0, 1), (40, 1))),  # with gaps
        ((1000, 40), ((40, 1), (0, 1), (41, 1))),
        ((10, 5000), ((5000, 1), (0, 1), (5000, 1))),  # long rows
        ((1000, 1000), ((0, 1), (1, 0), (1000, 1))),  # which are not read
        ((10, 2000, 3), ((6000, 3, 1), (3, 0, 1), (6000, 3, 1))),  # other rows each time
    ],
    ids=str,
)
def test_what_is_not_folded(context, schedule, shape, strides):
    assert find_fold(shape, strides, 16, 1) is None


def test_groups_are_whole_vectors(context, schedule):
    for width in (1, 3, 10, 40, 100, 129, 300):
        fold = find_fold((100_003, width), ((width, 1), (0, 1), (width, 1)), 16, 1)
        if width == 1:
            continue
        assert isinstance(fold, Fold) and fold.group * width % 16 == 0
        (whole, _, _), (rest, _, shifts) = fold.parts()
        assert whole[0] * whole[1] + rest[1] == 100_003 * width and shifts[0] == whole[0] * whole[1]
