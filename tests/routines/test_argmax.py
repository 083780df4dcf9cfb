import itertools

import numpy as np
import pytest

from pytensor_cl.codegen.dtypes import SUPPORTED, is_complex
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.argmax import Argmax, Argmin
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.reduction import plan as reduction_plan
from pytensor_cl.runtime.layout import Layout

VIEWS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, :, ::-1],
    "sliced": lambda x: x[1:, :, ::2],
    "column of one": lambda x: x[:, 0:1],
}
SUBSETS = [axes for n in range(4) for axes in itertools.combinations(range(3), n)]

DTYPES = [dtype for dtype in SUPPORTED if not is_complex(dtype)]
BOTH = ((Argmax, np.argmax), (Argmin, np.argmin))


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def values(rng, shape, dtype):
    """Few different values, so that many are equal; some NaN."""
    host = rng.integers(0, 5, shape).astype(dtype)
    if host.dtype.kind == "f" and rng.random() < 0.5:
        host[rng.random(shape) < 2 / max(host.size, 1)] = np.nan
    return host


def expected(host, axes, function=np.argmax):
    """Return PyTensor's own result: the reduced axes last, and flattened."""
    outer = [d for d in range(host.ndim) if d not in axes]
    count = np.prod([host.shape[d] for d in axes], dtype=int)
    return function(host.transpose(*outer, *axes).reshape(*(host.shape[d] for d in outer), count), axis=-1)


@pytest.mark.parametrize("axis", [0, 1])
def test_every_dtype(context, rng, schedule, axis):
    routines = {dtype: Argmax(context, dtype, 2, (axis,), schedule=schedule) for dtype in DTYPES}
    context.build(source for routine in routines.values() for source in routine.sources())
    for dtype, routine in routines.items():
        host = values(rng, (137, 141), dtype)
        (got,) = routine(context.from_host(host))
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got.to_host(), np.argmax(host, axis), err_msg=dtype)


def test_least_of_every_dtype(context, rng, schedule):
    """The lowest value of a dtype counts, which has no negation that is greater."""
    kinds = ("bool", "uint8", "int64", "float16", "float32")
    routines = {dtype: Argmin(context, dtype, 2, (1,), schedule=schedule) for dtype in kinds}
    context.build(source for routine in routines.values() for source in routine.sources())
    for dtype, routine in routines.items():
        host = values(rng, (37, 141), dtype)
        low = False if dtype == "bool" else -np.inf if host.dtype.kind == "f" else np.iinfo(dtype).min
        host[3, 70] = host[3, 80] = low
        got = routine(context.from_host(host))[0].to_host()
        np.testing.assert_array_equal(got, np.argmin(host, 1), err_msg=dtype)
    for kind in (Argmax, Argmin):
        with pytest.raises(UnsupportedDtype, match=f"no {kind.name} kernel of complex64"):
            kind(context, "complex64", 1)


def test_least_of_every_pattern(context, rng, schedule):
    """Patterns of two passes, of columns, of short rows and of rows, with views."""
    shapes = (((300_001,), (0,)), ((20_011, 40), (0,)), ((101, 1, 3), (1, 2)), ((5, 3, 70), (0, 2)))
    for shape, axes in shapes:
        host = values(rng, shape, "float32")
        routine = Argmin(context, "float32", len(shape), axes, schedule=schedule)
        device = context.from_host(host)
        for view in (lambda x: x, lambda x: x[::-1, ...]):
            np.testing.assert_array_equal(routine(view(device))[0].to_host(), expected(view(host), axes, np.argmin))
    with pytest.raises(ValueError, match="attempt to get argmin of an empty sequence"):
        routine.layout(Layout.contiguous((3, 2, 0)))


def test_axes_and_layouts(context, rng, schedule):
    for axes in SUBSETS:
        routine = Argmax(context, "float32", 3, axes, schedule=schedule)
        for shape in [(5, 3, 70), (2, 33, 19), (1, 1, 1), (4, 1, 3), (3, 4, 100)]:
            host = values(rng, shape, "float32")
            device = context.from_host(host)
            for name, view in VIEWS.items():
                if view(host).size:
                    got = routine(view(device))[0].to_host()
                    np.testing.assert_array_equal(got, expected(view(host), axes), err_msg=f"{axes} {shape} {name}")


@pytest.mark.parametrize(
    "shape, axes",
    [
        ((300_001,), (0,)),
        ((3, 100_003), (1,)),
        ((100_003, 3), (0,)),
        ((20_011, 40), (0,)),
        ((37, 3, 5_001), (0, 2)),
        ((20_000, 7), (1,)),
    ],
)
def test_chunks(context, rng, schedule, shape, axes):
    host = rng.normal(size=shape).astype("float32").round(1)
    for x in (host, np.sort(host, axis=axes[0]), np.zeros_like(host)):
        (got,) = Argmax(context, "float32", len(shape), axes, schedule=schedule)(context.from_host(x))
        np.testing.assert_array_equal(got.to_host(), expected(x, axes))


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
def test_short_rows(context, rng, dtype):
    """A vector of results at a time."""
    routine = Argmax(context, dtype, 3, (1, 2), schedule="cpu")
    for shape in ((101, 1, 3), (37, 2, 5), (1030, 1, 16), (41, 3, 5), (70, 4, 16)):
        host = values(rng, shape, dtype)
        for view in (lambda x: x, lambda x: x[::-1, :, ::-1], lambda x: x[..., 1:], np.zeros_like):
            array = context.from_host(view(host)) if view is np.zeros_like else view(context.from_host(host))
            np.testing.assert_array_equal(routine(array)[0].to_host(), expected(view(host), (1, 2)))
    assert any(pattern == "short" for pattern, *_ in routine._kernels)


@pytest.mark.parametrize("group", [1, 8, 64])
def test_work_groups_of_other_sizes(context, rng, group):
    host = values(rng, (21, 130), "int32")
    for axes in [(0,), (1,), (0, 1)]:
        (got,) = Argmax(context, "int32", 2, axes, schedule="simt", group=group)(context.from_host(host))
        np.testing.assert_array_equal(got.to_host(), expected(host, axes))


def test_long_indices_on_simt(context, rng, monkeypatch):
    monkeypatch.setattr(reduction_plan, "fits_int", lambda problem: False)
    host = values(rng, (5, 70_001), "float32")
    for axes in [(0,), (1,), (0, 1)]:
        (got,) = Argmax(context, "float32", 2, axes, schedule="simt")(context.from_host(host))
        np.testing.assert_array_equal(got.to_host(), expected(host, axes))


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_vectors_along_rows_on_gpus(context, rng, dtype):
    routine = Argmax(context, dtype, 2, (1,), schedule="simt")
    lanes = routine._load_lanes
    for length in (lanes, 128, 508, 512, 516, 1000, 1001):
        host = values(rng, (7, length + 2 * lanes), dtype)
        host[0] = host[0, 0]
        whole = context.from_host(host)
        for start in (0, lanes, 1):
            view = np.s_[:, start : start + length]
            np.testing.assert_array_equal(routine(whole[view])[0].to_host(), expected(host[view], (1,)))
    assert {(pattern.along, pattern.lanes) for pattern, *_ in routine._kernels} == {(True, 1), (True, lanes)}


def test_special_values(context, schedule):
    nan, inf = np.nan, np.inf
    rows = [
        [-inf, nan, inf, nan],
        [-inf, -inf, -inf, -inf],
        [nan, inf, inf, 0],
        [0.0, -0.0, 0.0, -1],
        [-inf, 1, inf, inf],
    ]
    for dtype in ("float32", "float64"):
        host = np.tile(np.array(rows, dtype), (1, 40))
        for x in (host, host[:, ::-1], host.T):
            for axis in (0, 1):
                for kind, function in BOTH:
                    (got,) = kind(context, dtype, 2, (axis,), schedule=schedule)(context.from_host(x))
                    np.testing.assert_array_equal(got.to_host(), function(x, axis))


def test_output_with_strides(context, rng, schedule):
    host = values(rng, (12, 30), "float32")
    out = context.from_host(np.full((24,), -7, "int64"))
    Argmax(context, "float32", 2, (1,), schedule=schedule).launch((out[::-2],), (context.from_host(host),))
    np.testing.assert_array_equal(out.to_host()[::-2], np.argmax(host, 1))
    assert (out.to_host()[::-1][1::2] == -7).all()


def test_broadcast_and_no_dimensions(context, rng, schedule):
    host = values(rng, (6, 1, 40), "float32")
    device = context.from_host(host)
    wide = device.with_layout(device.layout.broadcast_to((6, 5, 40)))
    for axes in SUBSETS:
        (got,) = Argmax(context, "float32", 3, axes, schedule=schedule)(wide)
        np.testing.assert_array_equal(got.to_host(), expected(np.broadcast_to(host, (6, 5, 40)), axes))
    (got,) = Argmax(context, "float32", 0, schedule=schedule)(context.from_host(np.float32(3)))
    assert got.to_host() == 0


def test_of_nothing(context, schedule):
    routine = Argmax(context, "float32", 2, (1,), schedule=schedule)
    assert routine(context.from_host(np.ones((0, 3), "float32")))[0].shape == (0,)
    for shape in ((3, 0), (0, 0)):
        with pytest.raises(ValueError, match="attempt to get argmax of an empty sequence"):
            routine.layout(Layout.contiguous(shape))
    with pytest.raises(ValueError, match="2 dimensions"):
        routine.layout(Layout.contiguous((3,)))
