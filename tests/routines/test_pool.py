import numpy as np
import pytest

from pytensor_cl.nn import pool_host
from pytensor_cl.nn.windows import Window as HostWindow
from pytensor_cl.routines import pool as pool_routines
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.pool import (
    Bin,
    MaxPool,
    MaxPoolGather,
    MaxPoolIndices,
    MaxPoolScatter,
    SumPool,
    SumPoolGrad,
    Window,
)
from pytensor_cl.runtime.layout import Layout

SUMS = SumPool, SumPoolGrad
# Windows per pooled dimension; whether the last may reach out; shapes.
CASES = {
    "2 x 2": ([(2, 2, 0, 0)] * 2, False, [(2, 3, 8, 40), (1, 1, 1, 1), (3, 2, 2), (0, 2, 4, 4), (2, 0, 4), (5, 39)]),
    "3 x 3": ([(3, 2, 1, 1)] * 2, False, [(2, 9, 40), (1, 1, 1), (2, 1, 37), (1, 6, 17)]),
    "3 x 3, all places": ([(3, 1, 1, 1)] * 2, False, [(2, 5, 33), (1, 1, 2)]),
    "uneven": ([(2, 3, 1, 0), (4, 2, 3, 1)], True, [(2, 7, 30), (1, 1, 1), (1, 2, 41)]),
    "three dimensions": ([(2, 1, 0, 1), (1, 1, 0, 0), (5, 3, 2, 0)], True, [(2, 3, 4, 61), (3, 4, 1)]),
    "dilated": ([(2, 1, 1, 1, 2), (3, 2, 2, 3, 3)], True, [(2, 7, 40), (1, 2, 9), (0, 9, 9), (3, 1, 1)]),
    "dilated rows": ([(2, 1, 1, 0), (2, 1, 1, 2, 3)], False, [(3, 9, 33), (2, 2, 2)]),
    "dilated volumes": ([(1, 1, 0, 0), (2, 2, 0, 0, 2), (2, 1, 0, 0, 2)], False, [(2, 3, 9, 11)]),
    "gaps": ([(1, 2, 0, 0), (2, 4, 0, 0)], False, [(2, 5, 63)]),
    "every other": ([(1, 2, 0, 0)], True, [(3, 50), (7,)]),
    "one row": ([(70, 1, 0, 0)], True, [(2, 200), (3, 70), (69,)]),
}


# Numbers of bins; shapes whose lengths they divide or not.
BINS = {
    (3,): [(2, 9), (2, 7), (4, 2), (0, 5)],
    (2, 5): [(3, 4, 20), (3, 5, 13), (2, 1, 3)],
    (1, 2, 3): [(2, 3, 3, 7)],
    (1,): [(3, 37), (2, 16)],
}


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def geometry(windows, ceil):
    return pool_host.Sliding(
        tuple(HostWindow(k, s, *d, a, b) for k, s, a, b, *d in [(*w, 1)[:5] for w in windows]), ceil
    )


def values(rng, shape, dtype="float32"):
    """Few different values: ties."""
    x = rng.integers(0 if dtype[0] in "ub" else -4, 5, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[rng.random(shape) < 0.1] = np.nan
        x[rng.random(shape) < 0.1] = -np.inf
    return x


def check(routine, wanted, *inputs):
    (got,) = routine(*inputs)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got.to_host(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_largest(context, rng, schedule, case):
    windows, ceil, shapes = CASES[case]
    g = geometry(windows, ceil)
    windows = [Window(*w) for w in windows]
    routines = [
        kind(context, "float32", windows, ceil, other=other, schedule=schedule)
        for kind, other in (
            (MaxPool, None),
            (MaxPoolGather, "int32"),
            (MaxPoolScatter, "float32"),
            (MaxPoolIndices, None),
        )
    ]
    context.build(source for routine in routines for source in routine.sources())
    for shape in shapes:
        x, v = values(rng, shape), values(rng, shape, "int32")
        dy = rng.normal(size=pool_host.pooled(shape, g)).astype("float32")
        device = context.from_host(x)
        check(routines[0], pool_host.max_pool(x, g), device)
        check(routines[1], pool_host.max_gather(x, v, g), device, context.from_host(v))
        check(routines[2], pool_host.max_scatter(x, dy, g), device, context.from_host(dy))
        check(routines[3], pool_host.max_indices(x, g), device)


@pytest.mark.parametrize("mode", ["sum", "average_inc_pad", "average_exc_pad"])
@pytest.mark.parametrize("case", CASES)
def test_averages(context, rng, schedule, case, mode):
    windows, ceil, shapes = CASES[case]
    g = geometry(windows, ceil)
    windows = [Window(*w) for w in windows]
    pool, grad = (
        kind(context, "float32", windows, ceil, mode=mode, schedule=schedule) for kind in (SumPool, SumPoolGrad)
    )
    context.build((*pool.sources(), *grad.sources()))
    for shape in shapes:
        x, dy = rng.normal(size=shape).astype("float32"), rng.normal(size=pool_host.pooled(shape, g)).astype("float32")
        lengths = shape[len(shape) - len(windows) :]
        check(pool, pool_host.sum_pool(x, g, mode), context.from_host(x))
        check(grad, pool_host.sum_grad(dy, lengths, g, mode), context.from_host(dy), lengths)


@pytest.mark.parametrize("numbers", BINS)
def test_bins(context, rng, schedule, numbers):
    g, bins = pool_host.Bins(numbers), [Bin(n) for n in numbers]
    kinds = (MaxPool, None), (MaxPoolIndices, None), (MaxPoolGather, "int32"), (MaxPoolScatter, "float32")
    largest, indices, gather, scatter = (
        kind(context, "float32", bins, other=other, schedule=schedule) for kind, other in kinds
    )
    pool, grad = (kind(context, "float32", bins, mode="average_exc_pad", schedule=schedule) for kind in SUMS)
    for shape in BINS[numbers]:
        x, v = values(rng, shape), values(rng, shape, "int32")
        y, dy = (rng.normal(size=s).astype("float32") for s in (shape, pool_host.pooled(shape, g)))
        device, gradient = context.from_host(x), context.from_host(dy)
        check(largest, pool_host.max_pool(x, g), device)
        check(indices, pool_host.max_indices(x, g), device)
        check(gather, pool_host.max_gather(x, v, g), device, context.from_host(v))
        check(scatter, pool_host.max_scatter(x, dy, g), device, gradient)
        lengths = shape[len(shape) - len(numbers) :]
        check(pool, pool_host.sum_pool(y, g, "average_exc_pad"), context.from_host(y))
        check(grad, pool_host.sum_grad(dy, lengths, g, "average_exc_pad"), gradient, lengths)
    with pytest.raises(ValueError, match="pooling of nothing"):
        largest.layout(Layout.contiguous((2, *(0,) * len(numbers))))


def test_every_dtype(context, rng, schedule):
    windows, ceil, _ = CASES["2 x 2"]
    g = geometry(windows, ceil)
    windows = [Window(*w) for w in windows]
    dtypes = ["bool", "int8", "uint16", "int32", "uint64", "float64"]
    routines = {}
    for dtype in dtypes:
        routines[dtype] = [
            kind(context, dtype, windows, ceil, other=other, schedule=schedule)
            for kind, other in ((MaxPool, None), (MaxPoolScatter, "float64"))
        ]
    context.build(s for pair in routines.values() for routine in pair for s in routine.sources())
    for dtype, (pool, scatter) in routines.items():
        x, dy = values(rng, (2, 6, 36), dtype), rng.normal(size=(2, 3, 18))
        check(pool, pool_host.max_pool(x, g), context.from_host(x))
        check(scatter, pool_host.max_scatter(x, dy, g), context.from_host(x), context.from_host(dy))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("window", [(3, 2, 1, 1), (3, 1, 1, 0), (2, 2, 0, 0)])
def test_gradients_from_rows(context, rng, schedule, monkeypatch, window, dtype):
    monkeypatch.setattr(pool_routines, "MIN_ROWS_GRADIENT_ELEMENTS", 0)
    windows, g = [Window(*window)] * 2, geometry([window] * 2, False)
    other = dtype if dtype[0] == "f" else "float32"
    scatter = MaxPoolScatter(context, dtype, windows, other=other, schedule=schedule)
    spread = SumPoolGrad(context, other, windows, mode="average_exc_pad", schedule=schedule)
    for shape in ((5, 21, 47), (2, 3, 16), (3, 40, 5), (1, 2, 33)):
        x, dy = values(rng, shape, dtype), rng.normal(size=pool_host.pooled(shape, g)).astype(other)
        check(scatter, pool_host.max_scatter(x, dy, g), context.from_host(x), context.from_host(dy))
        check(spread, pool_host.sum_grad(dy, shape[1:], g, "average_exc_pad"), context.from_host(dy), shape[1:])
    is_kept = any(variant.kind == "max_grad_rows" for variant in scatter._kernels)
    assert is_kept == (schedule == "cpu")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinities_and_nan(context, schedule, dtype):
    host = np.ones((3, 12, 80), dtype)
    host[0, 3, 7], host[0, 5, 7], host[1, 2, 30], host[2, 6, 11:13] = (
        np.inf,
        -np.inf,
        np.nan,
        (np.finfo(dtype).max,) * 2,
    )
    host[1, :, 60:] = -np.inf
    for extent in (2, 3):
        g = geometry([(extent, 2, 0, 0)] * 2, False)
        pool = MaxPool(context, dtype, [Window(extent, 2, 0, 0)] * 2, schedule=schedule)
        np.testing.assert_array_equal(pool(context.from_host(host))[0].to_host(), pool_host.max_pool(host, g))


VIEWS = {
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, :, ::-1],
    "sliced": lambda x: x[1:, :, 1::2],
    "column of one": lambda x: x[:, 0:1],
}


def test_strides(context, rng, schedule):
    g, windows = geometry([(2, 1, 1, 0)] * 2, False), [Window(2, 1, 1, 0)] * 2
    pool, grad = (kind(context, "float32", windows, schedule=schedule) for kind in (MaxPool, MaxPoolScatter))
    host = values(rng, (5, 6, 30))
    device = context.from_host(host)
    for view in VIEWS.values():
        check(pool, pool_host.max_pool(view(host), g), view(device))
        dy = rng.normal(size=view(host).shape).astype("float32")
        check(grad, pool_host.max_scatter(view(host), dy, g), view(device), context.from_host(dy))
    wide = device.with_layout(device[:, :1].layout.broadcast_to((5, 4, 30)))
    check(pool, pool_host.max_pool(np.broadcast_to(host[:, :1], (5, 4, 30)), g), wide)
    out = context.from_host(np.full((10, 6, 30), 7, "float32"))
    pool.launch((out[::-2, :, ::-1],), (device,))
    np.testing.assert_array_equal(out.to_host()[::-2, :, ::-1], pool_host.max_pool(host, g))
    assert (out.to_host()[::-1][1::2] == 7).all()


def test_long_indices(context, rng, schedule, monkeypatch):
    monkeypatch.setattr("pytensor_cl.routines.pool.STEPPED_INT_LIMIT", 1)
    windows, ceil, _ = CASES["3 x 3"]
    g, x = geometry(windows, ceil), values(rng, (2, 9, 40))
    dy = rng.normal(size=pool_host.pooled(x.shape, g)).astype("float32")
    scatter = MaxPoolScatter(context, "float32", [Window(*w) for w in windows], schedule=schedule)
    check(scatter, pool_host.max_scatter(x, dy, g), context.from_host(x), context.from_host(dy))


def test_gradients_are_the_same_each_time(context, rng, schedule):
    x, dy = (context.from_host(rng.normal(size=s).astype("float32")) for s in ((8, 40, 40), (8, 38, 38)))
    scatter = MaxPoolScatter(context, "float32", [Window(3, 1, 0, 0)] * 2, schedule=schedule)
    first = scatter(x, dy)[0].to_host()
    for _ in range(3):
        np.testing.assert_array_equal(scatter(x, dy)[0].to_host(), first)


def test_large_windows_stay_accurate(context, schedule):
    host = np.full((1, 1000, 1000), 0.1, "float32")
    pool = SumPool(context, "float32", [Window(1000, 1000, 0, 0)] * 2, schedule=schedule)
    assert abs(float(pool(context.from_host(host))[0].to_host()[0, 0, 0]) / np.float32(0.1) - 1) < 1e-5


def test_what_makes_no_sense_is_refused(context):
    for windows in (
        [],
        [Window(2, 1, 0, 0)] * 4,
        [Window(0, 1, 0, 0)],
        [Window(2, 0, 0, 0)],
        [Window(2, 1, 2, 0)],
        [Bin(0)],
    ):
        with pytest.raises(ValueError):
            MaxPool(context, "float32", windows)
    two = [Window(2, 2, 0, 0)] * 2
    with pytest.raises(ValueError, match="2 dimensions"):
        MaxPool(context, "float32", two).layout(Layout.contiguous((3,)))
    with pytest.raises(ValueError, match="Shape mismatch"):
        MaxPoolGather(context, "float32", two).layout(Layout.contiguous((3, 3)), Layout.contiguous((3, 4)))
    with pytest.raises(ValueError, match="Shape mismatch"):
        MaxPoolScatter(context, "float32", two).layout(Layout.contiguous((4, 4)), Layout.contiguous((2, 1)))
    with pytest.raises(ValueError, match="Shape mismatch"):
        SumPoolGrad(context, "float32", two).layout(Layout.contiguous((2, 2)), (4, 6))
