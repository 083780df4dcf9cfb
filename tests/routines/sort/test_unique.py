from itertools import product

import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.sort import unique as module
from pytensor_cl.routines.sort.unique import Unique

ALL = {"return_index": True, "return_inverse": True, "return_counts": True}


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def numpy_unique(host, axis, wanted):
    """The outputs of NumPy with the inverse in one dimension, as PyTensor has it."""
    found = np.unique(host, axis=axis, **wanted)
    found = [*found] if isinstance(found, tuple) else [found]
    return [found[0], *(a.ravel() for a in found[1:])]


def check(context, host, axis, wanted, schedule, routine=None):
    routine = routine or Unique(context, str(host.dtype), host.ndim, axis, schedule=schedule, **wanted)
    for got, want in zip(routine(context.from_host(host)), numpy_unique(host, axis, wanted), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(got.to_host(), want)


def holes(rng, shape, dtype="float32"):
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], dtype)
    return np.where(rng.random(shape) < 0.3, rng.choice(special, shape), rng.integers(-50, 50, shape).astype(dtype))


def test_every_dtype(context, rng, schedule):
    for dtype in ("float16", "float32", "bool", "int8", "uint64"):
        host = holes(rng, 300, dtype) if np.dtype(dtype).kind == "f" else rng.integers(0, 99, 300).astype(dtype)
        check(context, host, None, ALL, schedule)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_outputs(context, rng, schedule, axis):
    host = rng.integers(0, 3, (40, 4), "int32")
    for flags in product((False, True), repeat=3):
        check(context, host, axis, dict(zip(ALL, flags, strict=True)), schedule)


def test_lengths(context, rng, schedule):
    wanted = {"return_counts": True}
    kinds = {n: Unique(context, "float32", 1, None, schedule=schedule, **kind) for n, kind in enumerate((wanted, ALL))}
    for n in (0, 1, 2, 3, 255, 1025, 30_000):
        for host in (holes(rng, n), np.zeros(n, "float32"), rng.normal(size=n).astype("float32")):
            check(context, host, None, wanted, schedule, kinds[0])
            check(context, host, None, ALL, schedule, kinds[1])


def test_slices(context, rng, schedule):
    for axis in range(3):
        routine = Unique(context, "float32", 3, axis, schedule=schedule, **ALL)
        for shape in [(9, 2, 3), (2, 30, 1), (1, 1, 50), (0, 2, 3), (3, 2, 0), (1, 1, 1)]:
            host = rng.integers(0, 2, shape).astype("float32") * -1
            check(context, host, axis, ALL, schedule, routine)


def test_slices_with_nan_are_all_different(context, schedule):
    host = np.array([[1, np.nan], [np.nan, 2], [1, np.nan], [0, 1], [-0.0, 1], [1, 0]], "float32")
    check(context, host, 0, ALL, schedule)


def test_layouts(context, rng, schedule):
    host = rng.integers(0, 4, (6, 5, 8), "int16")
    device = context.from_host(host)
    for axis in (None, 1):
        routine = Unique(context, "int16", 3, axis, schedule=schedule, **ALL)
        for view in (lambda v: v.T, lambda v: v[::-1, ::2, ::-1], lambda v: v[2:4], lambda v: v[:1, :1, :1]):
            for got, want in zip(routine(view(device)), numpy_unique(view(host), axis, ALL), strict=True):
                np.testing.assert_array_equal(got.to_host(), want)


def test_places_beyond_32_bits(context, rng, schedule, monkeypatch):
    monkeypatch.setattr(module, "INT_LIMIT", 0)
    check(context, holes(rng, 500), None, ALL, schedule)


@pytest.mark.parametrize("flags", [{}, ALL])
def test_each_nan_counts(context, rng, schedule, flags):
    for dtype in ("float16", "float64"):
        host = holes(rng, 300, dtype)
        routine = Unique(context, dtype, 1, schedule=schedule, equal_nan=False, **flags)
        outputs = routine(context.from_host(host))
        wanted = np.unique(host, equal_nan=False, **flags)
        for got, want in zip(outputs, wanted if flags else (wanted,), strict=True):
            np.testing.assert_array_equal(got.to_host(), want, strict=True)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex(context, rng, schedule, dtype):
    """Values, where they come first, their numbers and counts fit together, with each NaN by itself or all as one."""
    host = rng.integers(-5, 5, (20, 12)).astype(dtype)
    host.imag = holes(rng, (20, 12))
    host[~np.isfinite(host)] = rng.choice([complex(np.nan, 1), complex(2, np.nan)], (~np.isfinite(host)).sum())
    for x in (host, host[::-1, ::2], np.round(host.real).astype(dtype)):
        for equal_nan in (True, False):
            routine = Unique(context, dtype, 2, schedule=schedule, equal_nan=equal_nan, **ALL)
            values, first, inverse, counts = (a.to_host() for a in routine(context.from_host(x)))
            want, _, _, wanted_counts = np.unique(x, equal_nan=equal_nan, **ALL)
            known = ~np.isnan(want)
            np.testing.assert_array_equal(values[known], want[known])
            assert np.isnan(values[~known]).all() and values.shape == want.shape
            np.testing.assert_array_equal(counts, wanted_counts)
            np.testing.assert_array_equal(x.ravel()[first], values)
            back, flat = values[inverse], x.ravel()
            np.testing.assert_array_equal(np.where(np.isnan(flat), 0, flat), np.where(np.isnan(back), 0, back))
    rows = rng.integers(0, 2, (30, 2)).astype(dtype) * 1j
    check(context, rows, 0, ALL, schedule)


def test_wrong_number_of_dimensions(context):
    with pytest.raises(ValueError, match="2 dimensions"):
        Unique(context, "float32", 2)(context.from_host(np.zeros(3, "float32")))
