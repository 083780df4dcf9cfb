import itertools

import numpy as np
import pytest

from pytensor_cl.codegen.dtypes import SUPPORTED
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.indexing.diagonal import FillDiagonal, diagonal
from pytensor_cl.runtime.layout import Layout

OFFSETS = (-9, -3, -1, 0, 1, 2, 9)


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def test_diagonals_are_numpys():
    for shape in [(3, 3, 4), (1, 5, 2), (0, 3, 2), (4, 2, 0)]:
        host = np.arange(np.prod(shape)).reshape(shape)
        for offset, (axis1, axis2) in itertools.product(OFFSETS, itertools.permutations(range(3), 2)):
            layout = diagonal(Layout.contiguous(shape), offset, axis1, axis2)
            want = host.diagonal(offset, axis1, axis2)
            assert layout.shape == want.shape
            got = [layout.subscript(index).offset for index in np.ndindex(*layout.shape)]
            assert got == want.ravel().tolist()


def test_fill(context, rng, schedule):
    routines = {dtype: FillDiagonal(context, dtype, 2, schedule=schedule) for dtype in SUPPORTED}
    context.build(source for routine in routines.values() for source in routine.sources())
    shapes = [(5, 5), (3, 70), (70, 3), (1, 1), (0, 4), (4, 0)]
    for (dtype, routine), shape in itertools.product(routines.items(), shapes):
        value = np.dtype(dtype).type(1)
        host = rng.integers(2, 9, shape).astype(dtype)
        want = host.copy()
        np.fill_diagonal(want[:, : shape[0]], value)
        device = context.from_host(host)
        for given in (value, context.from_host(value)):
            np.testing.assert_array_equal(routine(device, given)[0].to_host(), want)
        np.testing.assert_array_equal(device.to_host(), host)


def test_offsets_and_strides(context, rng, schedule):
    routine = FillDiagonal(context, "float32", 2, schedule=schedule)
    host = rng.normal(size=(6, 10)).astype("float32")
    device = context.from_host(host)
    for offset, view in itertools.product(OFFSETS, (lambda x: x, lambda x: x.T, lambda x: x[::-2, 1::3])):
        want = view(host).copy()
        want[np.eye(*want.shape, offset, dtype=bool)] = 7
        (got,) = routine(view(device), np.float32(7), np.int64(offset))
        np.testing.assert_array_equal(got.to_host(), want)


def test_more_dimensions(context, rng, schedule):
    routine = FillDiagonal(context, "int64", 3, schedule=schedule)
    for n in (4, 1, 0):
        host = rng.integers(0, 9, (n, n, n))
        want = host.copy()
        np.fill_diagonal(want, -1)
        np.testing.assert_array_equal(routine(context.from_host(host), np.int64(-1))[0].to_host(), want)
    with pytest.raises(ValueError, match="must be of equal length"):
        routine(context.from_host(np.ones((2, 2, 3), "int64")), np.int64(0))
