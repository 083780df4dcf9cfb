import numpy as np
import pytest

from pytensor_cl.codegen.dtypes import SUPPORTED
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.sort import plan as sort_plan
from pytensor_cl.routines.sort import routine as module
from pytensor_cl.routines.sort.routine import ArgSort, Sort
from pytensor_cl.runtime.layout import Layout
from tests.conftest import DRIVERS
from tests.helpers import sweep

REAL = [dtype for dtype in SUPPORTED if np.dtype(dtype).kind != "c"]
EXPECTED = {Sort: np.sort, ArgSort: lambda x, axis: np.argsort(x, axis, kind="stable")}
VIEWS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, :, ::-1],
    "sliced": lambda x: x[1:, :, ::2],
}


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


@pytest.fixture
def radix_only(monkeypatch):
    """Rows of any length are sorted by digits, and cut into chunks, so that small arrays test what large ones take."""
    monkeypatch.setattr(sort_plan, "MAX_NETWORK_ROW", 0)
    monkeypatch.setattr(sort_plan, "MAX_NETWORK_ROW_OF_MANY", 0)
    monkeypatch.setattr(module, "MAX_NETWORK_ROW_OF_MANY", 0)
    monkeypatch.setattr(sort_plan, "MIN_ITEM_KEYS", 1)


def values(rng, shape, dtype):
    """Numbers from all the range of the dtype; floats with NaN of both signs, infinities, zeros of both signs."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, kind, endpoint=True)
    host = (rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(kind)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1], kind)
    return np.where(rng.random(shape) < 0.3, rng.choice(special, shape), host)


def check(routine, device, host, message=""):
    (got,) = routine(device)
    want = EXPECTED[type(routine)](host, routine.axis)
    assert got.dtype == want.dtype, message
    np.testing.assert_array_equal(got.to_host(), want, err_msg=message)


@pytest.mark.parametrize("kind", EXPECTED)
def test_every_dtype(context, rng, schedule, kind):
    every = kind is Sort and schedule == "cpu" and context.name == DRIVERS[0]
    dtypes = REAL if every else ("bool", "int16", "uint64", "float32")
    routines = {dtype: kind(context, dtype, 2, 1, schedule=schedule) for dtype in dtypes}
    context.build(source for routine in routines.values() for source in routine.sources())
    for dtype, routine in routines.items():
        host = values(rng, (19, 37), dtype)
        check(routine, context.from_host(host), host, dtype)


@pytest.mark.parametrize("by_digits", [False, True])
def test_descending(context, rng, schedule, by_digits, request):
    """Equal elements stay in their order; NaN, which is the last ascending, is the first."""
    if by_digits:
        request.getfixturevalue("radix_only")
    for dtype in ("int64", "float32") if by_digits else ("bool", "uint8", "float16"):
        host = values(rng, (2, 37), dtype)
        host = np.round(host, 1) if host.dtype.kind == "f" else host
        order = 36 - np.argsort(host[:, ::-1], axis=1, stable=True)[:, ::-1]
        device = context.from_host(host)
        (got,) = ArgSort(context, dtype, 2, 1, is_descending=True, schedule=schedule)(device)
        np.testing.assert_array_equal(got.to_host(), order, err_msg=dtype)
        (got,) = Sort(context, dtype, 2, 1, is_descending=True, schedule=schedule)(device)
        np.testing.assert_array_equal(got.to_host(), np.sort(host, axis=1)[:, ::-1], err_msg=dtype)


DIGITS = [(Sort, "uint8"), (Sort, "int16"), (ArgSort, "float32"), (Sort, "float64"), (ArgSort, "int64")]


@sweep(
    ("schedule", "kind", "dtype"),
    [(schedule, *case) for schedule in SCHEDULES for case in DIGITS],
    [("cpu", ArgSort, "float32"), ("simt", Sort, "float64")],
)
def test_digits(context, rng, schedule, radix_only, kind, dtype):
    for axis, shape in ((1, (2, 5000)), (0, (1025, 3))):
        routine = kind(context, dtype, 2, axis, schedule=schedule)
        host = values(rng, shape, dtype)
        check(routine, context.from_host(host), host, f"{shape}")
        check(routine, context.from_host(host)[::-1, ::-1], host[::-1, ::-1], f"{shape} reversed")


@pytest.mark.parametrize("kind", EXPECTED)
def test_digits_that_are_all_the_same(context, rng, schedule, radix_only, kind):
    routine = kind(context, "int64", 1, 0, schedule=schedule)
    few = rng.integers(-3, 4, 3000)
    rare = np.where(rng.random(3000) < 0.01, few << 40, few)
    for host in (few, rare, rare + (1 << 50), few << 20, few << 60, np.full(3000, -7), few[:1]):
        check(routine, context.from_host(host), host)


@pytest.mark.parametrize("kind", EXPECTED)
def test_larger_digits(context, rng, schedule, radix_only, monkeypatch, kind):
    monkeypatch.setattr(module, "MIN_LONG_ROW", 0)
    host = values(rng, 5000, "float32")
    check(kind(context, "float32", 1, 0, schedule=schedule), context.from_host(host), host)


def test_places_beyond_32_bits(context, rng, schedule, radix_only, monkeypatch):
    monkeypatch.setattr(module, "UINT_LIMIT", 0)
    host = values(rng, (2, 3000), "float32")
    check(ArgSort(context, "float32", 2, 1, schedule=schedule), context.from_host(host), host)


@pytest.mark.parametrize("kind", EXPECTED)
def test_lengths(context, rng, schedule, kind):
    routine = kind(context, "float32", 1, 0, schedule=schedule)
    for n in (0, 1, 2, 3, 4, 5, 31, 32, 33, 255, 257, 1000, 1023, 1024, 1025, 2048, 2049, 100_000):
        host = values(rng, n, "float32")
        check(routine, context.from_host(host), host, f"{n}")


@pytest.mark.parametrize("kind", EXPECTED)
def test_order_of_the_input(context, rng, schedule, kind):
    routine = kind(context, "float32", 1, 0, schedule=schedule)
    for n in (100, 2000, 40_000):
        host = np.arange(n, dtype="float32")
        for x in (host, host[::-1], np.zeros_like(host), host // 50, host % 7, np.where(host % 2 > 0, 0.0, -host)):
            x = x.astype("float32")
            check(routine, context.from_host(x), x)


def check_layouts(context, rng, routine, shapes):
    for shape in shapes:
        host = rng.integers(-9, 9, shape, "int32")
        device = context.from_host(host)
        for name, view in VIEWS.items():
            check(routine, view(device), view(host), f"{routine.axis} {shape} {name}")


@pytest.mark.parametrize("kind", EXPECTED)
def test_axes_and_layouts(context, rng, schedule, kind):
    for axis in range(3):
        routine = kind(context, "int32", 3, axis, schedule=schedule)
        check_layouts(context, rng, routine, [(5, 3, 70), (2, 33, 19), (1, 1, 1), (0, 2, 3), (2, 3, 0)])


def test_axes_and_layouts_of_digits(context, rng, schedule, radix_only, monkeypatch):
    monkeypatch.setattr(module, "GROUP_ITEMS", 64)
    monkeypatch.setattr(module, "ITEM_ELEMENTS", 2)  # so that a row has several tiles
    for axis, shape in enumerate([(300, 2, 3), (2, 300, 3), (2, 3, 300)]):
        routine = ArgSort(context, "int32", 3, axis, schedule=schedule)
        check_layouts(context, rng, routine, [shape])


def test_random_arrays(context, rng, schedule):
    routines = {
        (k, n, a): k(context, "float32", n, a, schedule=schedule) for k in EXPECTED for n in (1, 2, 3) for a in range(n)
    }
    for (_, ndim, _), routine in routines.items():
        for _ in range(8):
            shape = tuple(np.exp(rng.uniform(0, 8 / ndim, ndim)).astype(int))
            cut = tuple(slice(None, None, step) for step in rng.choice([-2, -1, 1, 3], ndim))
            host = values(rng, shape, "float32")
            check(routine, context.from_host(host)[cut], host[cut], f"{shape} {cut}")


def test_many_dimensions(context, rng, schedule):
    host = values(rng, (2, 3, 1, 2, 3, 4), "int16").transpose(5, 1, 3, 0, 2, 4)
    for axis in (0, 3, 5):
        check(Sort(context, "int16", 6, axis, schedule=schedule), context.from_host(host), host)


def test_rows_of_many(context, rng, schedule):
    for shape in [(40, 3000), (3000, 40), (2003, 3), (1003, 2), (301, 1)]:
        host = values(rng, shape, "float32")
        for kind in EXPECTED:
            check(kind(context, "float32", 2, 1, schedule=schedule), context.from_host(host), host)


def test_negative_zero_comes_before_zero(context, schedule, radix_only):
    host = np.array([0.0, -0.0, 1, 0, -0.0, -1] * 700, "float32")
    (got,) = Sort(context, "float32", 1, 0, schedule=schedule)(context.from_host(host))
    assert (np.diff(np.signbit(got.to_host()).astype(int)) <= 0).all()


@pytest.mark.parametrize("shape", [(12, 30), (3, 40_000)])
def test_output_with_strides(context, rng, schedule, shape):
    host = values(rng, shape, "int32")
    for axis in (0, 1):
        out = context.from_host(np.full((2 * shape[0], shape[1]), -7, "int32"))
        Sort(context, "int32", 2, axis, schedule=schedule).launch((out[::-2, ::-1],), (context.from_host(host),))
        np.testing.assert_array_equal(out.to_host()[::-2, ::-1], np.sort(host, axis))
        assert (out.to_host()[::-1][1::2] == -7).all()


def test_broadcast_input(context, rng, schedule):
    host = values(rng, (6, 1, 40), "float32")
    device = context.from_host(host)
    wide = device.with_layout(device.layout.broadcast_to((6, 5, 40)))
    for axis in range(3):
        for kind in EXPECTED:
            check(kind(context, "float32", 3, axis, schedule=schedule), wide, np.broadcast_to(host, (6, 5, 40)))


def test_wrong_number_of_dimensions(context):
    with pytest.raises(ValueError, match="2 dimensions"):
        Sort(context, "float32", 2, 0).layout(Layout.contiguous((3,)))


@pytest.mark.parametrize("kind", EXPECTED)
def test_no_double_precision_is_needed(context, schedule, kind, monkeypatch):
    seen = []
    routine = kind(context, "float32", 1, 0, schedule=schedule)
    monkeypatch.setattr(routine, "_kernel", lambda source, *rest: seen.append(source))
    for n in (100, 10_000):
        routine._plan(Layout.contiguous((n,)), (1,))
    assert len(set(seen)) == 2
    assert all("double" not in source.source for source in seen)
