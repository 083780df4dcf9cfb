from itertools import product

import numpy as np
import pytest

from pytensor_cl.codegen.dtypes import SUPPORTED
from pytensor_cl.routines import cumop
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.cumop import CumOp, CumOpWithInitial
from pytensor_cl.runtime.layout import Layout
from tests.helpers import sweep

DTYPES = [dtype for dtype in SUPPORTED if dtype != "float16"]  # see tests/ops/test_special_dtypes.py
FEWER = ("bool", "int16", "uint64", "float32", "complex64")
CUMULATE = {"add": np.cumsum, "mul": np.cumprod}
TOLERANCE = {"float32": 2e-6, "float64": 1e-14, "complex64": 2e-6, "complex128": 1e-14}
VIEWS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, :, ::-1],
    "sliced": lambda x: x[1:, :, ::2],
    "column of one": lambda x: x[:, 0:1],
}


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def values(rng, shape, operation, dtype):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < (0.02 if operation == "add" else 0.98)
    if kind in "iu":
        return rng.integers(-3 if kind == "i" else 0, 4, shape).astype(dtype)
    if kind == "c":
        size, angle = values(rng, shape, operation, "float64"), rng.normal(size=shape)
        return (size * np.exp(1j * angle)).astype(dtype)
    if operation == "add":
        return rng.normal(size=shape).astype(dtype)
    return np.exp(rng.normal(size=shape) * 0.01).astype(dtype)


def check(got, host, operation, axis, message=""):
    """Against double precision, to the rounding of the partial results."""
    dtype = str(host.dtype)
    assert (got.dtype, got.shape) == (host.dtype, host.shape)
    wide = {"float32": "float64", "complex64": "complex128"}.get(dtype, dtype)
    want = CUMULATE[operation](host, axis=axis, dtype=wide)
    size = np.abs(want).max(initial=0) if dtype in TOLERANCE else 0
    tolerance = TOLERANCE.get(dtype, 0)
    np.testing.assert_allclose(got.to_host(), want, rtol=10 * tolerance, atol=tolerance * size, err_msg=message)


@sweep(
    ("schedule", "operation", "axis"),
    [*product(SCHEDULES, CUMULATE, (0, 1))],
    [("cpu", "add", 1), ("cpu", "mul", 0), ("simt", "add", 0)],
)
def test_every_dtype(context, rng, schedule, operation, axis):
    dtypes = DTYPES if (operation, axis) == ("add", 1) else FEWER
    routines = {dtype: CumOp(context, operation, dtype, 2, axis, schedule=schedule) for dtype in dtypes}
    context.build(source for routine in routines.values() for source in routine.sources())
    for dtype, routine in routines.items():
        host = values(rng, (137, 141), operation, dtype)
        check(routine(context.from_host(host))[0], host, operation, axis, dtype)


@pytest.mark.parametrize("operation, dtype", [("add", "float32"), ("mul", "int64")])
def test_axes_and_layouts(context, rng, schedule, operation, dtype):
    for axis in range(3):
        routine = CumOp(context, operation, dtype, 3, axis, schedule=schedule)
        for shape in [(5, 3, 70), (2, 33, 19), (1, 1, 1), (4, 1, 3), (0, 2, 3), (2, 3, 0), (2, 200, 20)]:
            host = values(rng, shape, operation, dtype)
            device = context.from_host(host)
            for name, view in VIEWS.items():
                check(routine(view(device))[0], view(host), operation, axis, f"{axis} {shape} {name}")


@pytest.mark.parametrize(
    "shape, axis",
    [
        ((300_001,), 0),
        ((3, 100_003), 1),
        ((100_003, 3), 0),
        ((20_011, 40), 0),
        ((3, 30_001, 5), 1),
        ((2, 3, 50_001), 2),
        ((20_000, 7), 1),
    ],
)
@pytest.mark.parametrize("operation, dtype", [("add", "float32"), ("mul", "uint8")])
def test_chunks(context, rng, schedule, shape, axis, operation, dtype):
    host = values(rng, shape, operation, dtype)
    if dtype == "uint8":
        host = host * 2 + 1  # odd: products do not become zero
    routine = CumOp(context, operation, dtype, len(shape), axis, schedule=schedule)
    device = context.from_host(host)
    check(routine(device)[0], host, operation, axis)
    back = (slice(None),) * axis + (slice(None, None, -1),)
    check(routine(device[back])[0], host[back], operation, axis)


@pytest.mark.parametrize("dtype, run", [("float32", 16), ("float64", 8), ("int8", 16), ("complex128", 8)])
def test_tiles_and_totals_on_simt(context, rng, monkeypatch, dtype, run):
    """Lengths around those of a work-item, of a tile and of chunks, and more chunks than a group has work-items."""
    monkeypatch.setattr(cumop, "BUSY_GROUPS_PER_UNIT", 400)
    monkeypatch.setattr(cumop, "MIN_CHUNK_ELEMENTS", 64)
    monkeypatch.setattr(cumop, "MIN_SHARED_ELEMENTS", 1 << 15)
    group = CumOp(context, "add", dtype, 1, 0, schedule="simt")._group
    tile = group * run
    lengths = (
        1,
        run - 1,
        run,
        run + 1,
        tile - 1,
        tile,
        tile + 1,
        2 * tile,
        3 * tile + group + 5,
        (1 << 15) + 1,
        50_003,
    )
    chunks = set()
    for axis, shapes in ((0, [(n,) for n in lengths]), (0, [(3001, 33), (1700, 40)]), (1, [(3, 40_009)])):
        routine = CumOp(context, "add", dtype, len(shapes[0]), axis, schedule="simt")
        plans, make = [], routine._plan
        monkeypatch.setattr(
            routine, "_plan", lambda *args, plans=plans, make=make: plans.append(make(*args)) or plans[-1]
        )
        for shape in shapes:
            host = values(rng, shape, "add", dtype)
            check(routine(context.from_host(host))[0], host, "add", axis, str(shape))
            chunks.add((plans[-1].split.pattern, plans[-1].split.chunks))
            assert (plans[-1].before is not None) == (plans[-1].split.chunks > 1)
    assert max(n for pattern, n in chunks if pattern == "rows") > group
    assert max(n for pattern, n in chunks if pattern == "columns") > 8


def test_long_sums_stay_accurate(context, schedule):
    host = np.full((1 << 21,), 0.1, "float32")
    got = CumOp(context, "add", "float32", 1, 0, schedule=schedule)(context.from_host(host))[0].to_host()
    want = np.cumsum(host, dtype="float64")
    assert np.abs(got / want - 1).max() < 5e-5
    assert np.abs(np.cumsum(host) / want - 1).max() > 1e-3  # one after another


def test_long_indices_on_simt(context, rng, monkeypatch):
    monkeypatch.setattr(CumOp, "_index", lambda self, problem: "long")
    host = values(rng, (5, 70_001), "add", "int32")
    for axis in (0, 1):
        check(CumOp(context, "add", "int32", 2, axis, schedule="simt")(context.from_host(host))[0], host, "add", axis)


def test_infinities_and_nan(context, schedule):
    host = np.ones((40, 3), "float32")
    host[20, 0], host[25, 0], host[30, 1], host[35, 2] = np.inf, -np.inf, np.nan, -np.inf
    for axis, x in ((0, host), (1, host.T)):
        (got,) = CumOp(context, "add", "float32", 2, axis, schedule=schedule)(context.from_host(x))
        with np.errstate(invalid="ignore"):
            want = np.cumsum(x, axis)
        np.testing.assert_array_equal(got.to_host(), want)


@pytest.mark.parametrize("shape", [(12, 30), (3, 40_000)])
def test_output_with_strides(context, rng, schedule, shape):
    host = values(rng, shape, "add", "int32")
    for axis in (0, 1):
        out = context.from_host(np.full((2 * shape[0], shape[1]), -7, "int32"))
        CumOp(context, "add", "int32", 2, axis, schedule=schedule).launch(
            (out[::-2, ::-1],), (context.from_host(host),)
        )
        np.testing.assert_array_equal(out.to_host()[::-2, ::-1], np.cumsum(host, axis, dtype="int32"))
        assert (out.to_host()[::-1][1::2] == -7).all()


def test_broadcast_input(context, rng, schedule):
    host = values(rng, (6, 1, 40), "add", "float32")
    device = context.from_host(host)
    wide = device.with_layout(device.layout.broadcast_to((6, 5, 40)))
    for axis in range(3):
        (got,) = CumOp(context, "add", "float32", 3, axis, schedule=schedule)(wide)
        check(got, np.broadcast_to(host, (6, 5, 40)), "add", axis)


def test_wrong_number_of_dimensions(context):
    with pytest.raises(ValueError, match="2 dimensions"):
        CumOp(context, "add", "float32", 2, 0).layout(Layout.contiguous((3,)))


def test_initial_element(context, rng, schedule):
    for operation, dtype in (("add", "int16"), ("mul", "float32"), ("add", "complex64")):
        for axis in (0, 1):
            routine = CumOpWithInitial(context, operation, dtype, 2, axis, schedule=schedule)
            for shape in ((3, 5), (130, 70), (0, 4)):
                host = values(rng, shape, operation, dtype)
                got = routine(context.from_host(host)[::-1])[0].to_host()
                first, rest = np.split(got, [1], axis=axis)
                assert (first == (operation == "mul")).all() and got.dtype == dtype
                want = CUMULATE[operation](host[::-1], axis=axis, dtype=dtype)
                np.testing.assert_allclose(rest, want, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="2 dimensions"):
        routine.layout(Layout.contiguous((3,)))
