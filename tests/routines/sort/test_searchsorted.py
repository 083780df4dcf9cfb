import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.sort.searchsorted import SearchSorted
from pytensor_cl.runtime.layout import Layout

PAIRS = [
    ("float32", "float32"),
    ("float64", "float32"),
    ("float16", "float16"),
    ("bool", "bool"),
    ("uint8", "int8"),
    ("int32", "float32"),
    ("int64", "uint64"),
    ("uint64", "uint64"),
]


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def numbers(rng, shape, dtype):
    """Few distinct numbers; floats with NaN, infinities and zeros of both signs."""
    kind = np.dtype(dtype)
    host = rng.integers(0 if kind.kind in "bu" else -40, 2 if kind.kind == "b" else 41, shape).astype(kind)
    if kind.kind != "f":
        return host
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], kind)
    return np.where(rng.random(shape) < 0.2, rng.choice(special, shape), host)


def check(routine, context, side, rows, values, sorter=None):
    arrays = [rows, values] if sorter is None else [rows, values, sorter]
    (got,) = routine(*map(context.from_host, arrays))
    want = np.searchsorted(rows, values, side, sorter)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got.to_host(), want)


@pytest.mark.parametrize("side", ["left", "right"])
def test_dtypes_and_lengths(context, rng, schedule, side):
    routines = {pair: SearchSorted(context, pair, 1, side, schedule=schedule) for pair in PAIRS}
    context.build(source for routine in routines.values() for source in routine.sources())
    for pair, routine in routines.items():
        for n in (0, 1, 2, 3, 4, 7, 8, 100, 1025):
            check(routine, context, side, np.sort(numbers(rng, n, pair[0])), numbers(rng, 300, pair[1]))


@pytest.mark.parametrize("side", ["left", "right"])
def test_sorter(context, rng, schedule, side):
    routine = SearchSorted(context, ("float32", "float32"), 1, side, "int16", schedule=schedule)
    for n in (0, 1, 5, 400):
        rows = numbers(rng, n, "float32")
        check(routine, context, side, rows, numbers(rng, 99, "float32"), np.argsort(rows).astype("int16"))
    routine.check()


def test_sorter_out_of_range(context, schedule):
    routine = SearchSorted(context, ("float32", "float32"), 1, "left", "int64", schedule=schedule)
    rows, values = (context.from_host(np.arange(4, dtype="float32")) for _ in range(2))
    for wrong in (4, -1):
        routine(rows, values, context.from_host(np.full(4, wrong)))
        with pytest.raises(ValueError, match="Sorter index out of range"):
            routine.check()
        routine.check()


def test_layouts(context, rng, schedule):
    rows, values = np.sort(numbers(rng, 200, "float32")), numbers(rng, (6, 5, 7), "float32")
    device, searched = context.from_host(rows), context.from_host(values)
    routine = SearchSorted(context, ("float32", "float32"), 3, schedule=schedule)
    for view in (lambda v: v.T, lambda v: v[::-1, ::2, ::-1], lambda v: v[:0], lambda v: v[:1, :1, :1]):
        (got,) = routine(device[::3], view(searched))
        np.testing.assert_array_equal(got.to_host(), np.searchsorted(rows[::3], view(values)))
    wide = searched[:, :1].with_layout(searched[:, :1].layout.broadcast_to((6, 4, 7)))
    (got,) = routine(device, wide)
    np.testing.assert_array_equal(got.to_host(), np.searchsorted(rows, np.broadcast_to(values[:, :1], (6, 4, 7))))
    out = context.from_host(np.zeros((7, 5, 12), "int64"))
    routine.launch((out[:, :, ::-2].T,), (device, searched))
    np.testing.assert_array_equal(out.to_host()[:, :, ::-2].T, np.searchsorted(rows, values))


def test_a_number_in_many_dimensions(context, schedule):
    rows = context.from_host(np.arange(9.0, dtype="float32"))
    (got,) = SearchSorted(context, ("float32", "float32"), 0, schedule=schedule)(rows, np.float32(4.5))
    assert int(got) == 5
    routine = SearchSorted(context, ("float32", "float32"), 6, schedule=schedule)
    values = np.arange(64, dtype="float32").reshape((2,) * 6).transpose(3, 1, 5, 0, 2, 4)[::-1]
    check(routine, context, "left", np.arange(0, 64, 3, dtype="float32"), values)


def test_batches(context, rng, schedule):
    rows, values = np.sort(rng.normal(size=(3, 1, 20))), rng.normal(size=(4, 5, 6))
    routine = SearchSorted(context, ("float64", "float64"), 2, schedule=schedule)
    (got,) = routine(context.from_host(rows[:, 0]), context.from_host(values[:3]))
    want = [np.searchsorted(row[0], v) for row, v in zip(rows, values, strict=False)]
    np.testing.assert_array_equal(got.to_host(), want)
    (got,) = routine(context.from_host(rows), context.from_host(values))
    want = [[np.searchsorted(row[0], v) for v in values] for row in rows]
    np.testing.assert_array_equal(got.to_host(), want)


def test_what_does_not_fit(context):
    routine = SearchSorted(context, ("float32", "float32"), 1, "left", "int64")
    with pytest.raises(ValueError, match=r"sorter\.size must equal a\.size"):
        routine.layout(Layout.contiguous((3,)), Layout.contiguous((2,)), Layout.contiguous((4,)))
