from itertools import product

import numpy as np
import pytest

from pytensor_cl.codegen.dtypes import SUPPORTED
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.creation import ARange, Bartlett, Eye, Linspace, Triangle, arange_length

RANGES = {
    "i": [(0, 10, 1), (3, 100, 7), (90, -40, -3), (5, 5, 1), (5, 4, 1), (0, 1, 1), (-100, 100, 3), (0, 0.9, 0.25)],
    "u": [(0, 10, 1), (3, 100, 7), (90, 3, -3), (5, 5, 1), (5, 4, 1), (0, 1, 1), (0, 200, 3), (0, 0.9, 0.25)],
    "f": [
        (0, 10, 1),
        (0.1, 5, 0.1),
        (1e8, 1e8 + 500, 0.7),
        (-1, -9, -0.03),
        (0, 1, 2),
        (0.5, 0.5, 1),
        (0.1, 999, 1 / 3),
    ],
}


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


@pytest.mark.parametrize("dtype", [dtype for dtype in SUPPORTED if np.dtype(dtype).kind not in "bc"])
def test_arange_is_numpys(context, schedule, dtype):
    routine = ARange(context, dtype, schedule=schedule)
    for ends in RANGES[np.dtype(dtype).kind]:
        (got,) = routine(*map(np.asarray, ends))
        want = np.arange(*ends, dtype=dtype)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(got.to_host(), want, err_msg=str(ends))


@pytest.mark.parametrize("dtype", ["float32", "int16", "int64"])
def test_long_aranges_and_strides(context, schedule, dtype):
    routine = ARange(context, dtype, schedule=schedule)
    np.testing.assert_array_equal(
        routine(7, 100_000, 1)[0].to_host(), np.arange(100_000, dtype="int64")[7:].astype(dtype)
    )
    out = context.from_host(np.zeros(99, dtype))
    routine.launch(out[::-3], 5, 2)
    np.testing.assert_array_equal(out.to_host()[::-3], 5 + 2 * np.arange(33))
    assert np.count_nonzero(out.to_host()) == 33


def test_random_lengths(rng):
    for start, stop, step in rng.normal(size=(500, 3)).round(1).tolist():
        if step:
            assert arange_length(start, stop, step) == len(np.arange(start, stop, step)), (start, stop, step)
    assert arange_length(0, 1e-320, 1e10) == len(np.arange(0, 1e-320, 1e10))
    assert arange_length(0, 1e-320, -1e10) == len(np.arange(0, 1e-320, -1e10))


@pytest.mark.parametrize(
    "ends, error", [((0, 5, 0), ZeroDivisionError), ((0, np.inf, 1.0), ValueError), ((0, np.nan, 1.0), ValueError)]
)
def test_arange_of_no_length(context, ends, error):
    with pytest.raises(error):
        np.arange(*ends)
    for raised_by_a_cpu_backend in (error, OverflowError, ValueError):
        with pytest.raises(raised_by_a_cpu_backend):
            ARange(context, "float32")(*ends)


def test_a_range_that_no_memory_holds(context):
    with pytest.raises(OverflowError, match="overflow while computing length"):
        ARange(context, "float64")(1.0, 2.0, 1e-300)


def test_eye(context, schedule):
    routines = {dtype: Eye(context, dtype, schedule=schedule) for dtype in SUPPORTED}
    context.build(source for routine in routines.values() for source in routine.sources())
    sizes = [
        (4, 4, 0),
        (3, 7, 2),
        (7, 3, -2),
        (7, 3, 2),
        (3, 7, -2),
        (3, 3, 5),
        (3, 3, -3),
        (0, 3, 0),
        (2, 0, 1),
        (1, 1, 0),
    ]
    for (dtype, routine), (n, m, k) in product(routines.items(), sizes):
        (got,) = routine(n, m, k)
        np.testing.assert_array_equal(got.to_host(), np.eye(n, m, k, dtype), err_msg=str((n, m, k)), strict=True)


def test_eye_of_negative_size(context):
    with pytest.raises(ValueError, match="negative dimensions"):
        Eye(context, "float32")(-1, 2, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bartlett(context, schedule, dtype):
    routine = Bartlett(context, dtype, schedule)
    for n in (-3, 0, 1, 2, 3, 10, 40_001):
        (got,) = routine(n)
        wanted = np.bartlett(n)
        assert (got.dtype, got.shape) == (np.dtype(dtype), wanted.shape)
        tolerance = 0 if dtype == "float64" else 1e-7
        np.testing.assert_allclose(got.to_host(), wanted, rtol=0, atol=tolerance)


def test_linspace_is_numpys(context, schedule):
    """Equal to the bit where the device has double precision, and the stop itself at the end."""
    kinds = [(dtype, True) for dtype in ("float16", "float32", "float64", "int8", "complex64")] + [("float64", False)]
    for dtype, endpoint in kinds:
        routine = Linspace(context, dtype, endpoint=endpoint, schedule=schedule)
        ends = [(0, 1), (-3.7, 12.1), (5, 5), (100, -100), (1e-3, 7)]
        ends += (
            [(0.3 + 2j, -1j)] if dtype == "complex64" else [(0, 1e30)] if dtype[0] == "f" and dtype != "float16" else []
        )
        for (start, stop), number in product(ends, (0, 1, 2, 77)):
            (got,) = routine(start, stop, number)
            want = np.linspace(start, stop, number, endpoint=endpoint, dtype=dtype)
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_array_equal(got.to_host(), want, err_msg=f"{dtype} {start} {stop} {number}")
    with pytest.raises(ValueError, match="Number of samples, -1, must be non-negative"):
        routine(0, 1, -1)


@pytest.mark.parametrize("is_lower", [True, False])
def test_triangles(context, rng, schedule, is_lower):
    function = np.tril if is_lower else np.triu
    for dtype in ("bool", "float16", "complex128", "int64"):
        routine = Triangle(context, dtype, 3, is_lower=is_lower, schedule=schedule)
        host = rng.integers(1, 5, (3, 17, 40)).astype(dtype)
        for view in (lambda x: x, lambda x: x.T, lambda x: x[:, ::-2, 1:], lambda x: x[:, :1], lambda x: x[:0]):
            for k in (0, -20, 10**12):
                got = routine(view(context.from_host(host)), k)[0].to_host()
                np.testing.assert_array_equal(got, function(view(host), min(k, 1000)), strict=True)
    device, want = context.from_host(host), host.copy()
    routine.launch((device[1:, ::2],), (device[1:, ::2], 1))
    want[1:, ::2] = function(want[1:, ::2], 1)
    np.testing.assert_array_equal(device.to_host(), want)
    with pytest.raises(ValueError, match="a triangle of 3 dimensions"):
        routine(context.from_host(host[0]), 0)
