"""Matrix products against NumPy, on every driver, with both schedules."""

import numpy as np
import pytest

from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.gemm import schedule_cpu, schedule_simt
from pytensor_cl.routines.gemm.problem import GemmProblem, canonical_problem
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.routines.gemm.schedule_cpu import CpuSchedule, Tile
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel
from pytensor_cl.runtime.tuning import PARAMETERS
from tests.routines.products import FLOATS, check, draw, maker

SIZES = [
    (0, 3, 2), (3, 0, 2), (2, 3, 0), (1, 1, 1), (2, 1, 3), (12, 16, 32), (11, 15, 31), (13, 17, 33),
    (24, 7, 64), (5, 300, 3), (97, 101, 103), (64, 64, 64), (65, 16, 130), (1, 40, 50), (50, 40, 1),
]  # fmt: skip


@pytest.fixture
def make(context, schedule):
    return maker(context, schedule)


def scatter(context, x):
    """Put `x` into every second row and third column of a larger array; a wrong address finds the filler."""
    filler = np.nan if x.dtype.kind == "f" else 77
    big = np.full((2 * x.shape[0] + 1, 3 * x.shape[1] + 2), filler, x.dtype)
    big[1::2, 2::3][: x.shape[0], : x.shape[1]] = x
    return context.from_host(big)[1 : 2 * x.shape[0] : 2, 2 : 3 * x.shape[1] + 1 : 3]


PLACEMENTS = {
    "rows": lambda context, x: context.from_host(x),
    "columns": lambda context, x: context.from_host(x.T).T,
    "reversed": lambda context, x: context.from_host(x[::-1, ::-1])[::-1, ::-1],
    "reversed columns": lambda context, x: context.from_host(x.T[::-1])[::-1].T,
    "scattered": scatter,
}


@pytest.mark.parametrize("dtype", FLOATS)
def test_sizes(context, make, rng, dtype):
    for m, k, n in SIZES:
        a, b = draw(rng, dtype, m, k), draw(rng, dtype, k, n)
        (got,) = make(Gemm, dtype)(context.from_host(a), context.from_host(b))
        assert got.dtype == dtype
        check(got, 1, a, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_strides(context, make, rng, dtype):
    a, b = draw(rng, dtype, 29, 35), draw(rng, dtype, 35, 70)
    for place_a in PLACEMENTS.values():
        for place_b in PLACEMENTS.values():
            check(make(Gemm, dtype)(place_a(context, a), place_b(context, b))[0], 1, a, b)


def test_zero_strides(context, make, rng):
    row, column = draw(rng, "float32", 1, 20), draw(rng, "float32", 20, 1)
    a, b = context.from_host(row), context.from_host(column)
    a, b = a.with_layout(a.layout.broadcast_to((15, 20))), b.with_layout(b.layout.broadcast_to((20, 40)))
    check(make(Gemm, "float32")(a, b)[0], 1, np.tile(row, (15, 1)), np.tile(column, 40))


@pytest.mark.parametrize("shape", [(14, 20, 35), (20, 30, 1), (1, 30, 20), (7, 0, 5)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_alpha_and_beta_are_read_on_the_host_or_the_device(context, make, rng, dtype, shape):
    m, k, n = shape
    c, a, b = draw(rng, dtype, m, n), draw(rng, dtype, m, k), draw(rng, dtype, k, n)
    host = [np.dtype(dtype).type(v) for v in (0.7, -1.3)]
    pair = context.from_host(np.array([9, *host], dtype))
    device = [pair[1], pair[2]]
    operands = [PLACEMENTS["scattered"](context, x) for x in (c, a, b)]
    for alpha in (host[0], device[0]):
        check(make(Gemm, dtype, has_alpha=True)(alpha, *operands[1:])[0], host[0], a, b)
        for beta in (host[1], device[1]):
            (got,) = make(Gemm, dtype, has_c=True)(operands[0], alpha, *operands[1:], beta)
            check(got, host[0], a, b, host[1], c)


@pytest.mark.parametrize("shape", [(14, 20, 35), (20, 30, 1)])
def test_beta_zero_ignores_nan_in_c(context, make, rng, shape):
    m, k, n = shape
    a, b = draw(rng, "float32", m, k), draw(rng, "float32", k, n)
    c = context.from_host(np.full((m, n), np.nan, "float32"))
    for beta in (np.float32(0), context.from_host(np.zeros((), "float32"))):
        gemm = make(Gemm, "float32", has_c=True)
        check(gemm(c, np.float32(2), context.from_host(a), context.from_host(b), beta)[0], 2, a, b)


@pytest.mark.parametrize("shapes", [((33,), 14), ((1, 33), 14), ((14, 1), 14), ((), 14), ((14, 33), 1)])
def test_c_and_the_product_broadcast(context, make, rng, shapes):
    shape, m = shapes
    c, a, b = draw(rng, "float32", *shape), draw(rng, "float32", m, 9), draw(rng, "float32", 9, 33)
    one = np.float32(1)
    (got,) = make(Gemm, "float32", has_c=True)(*map(context.from_host, (c,)), one, *map(context.from_host, (a, b)), one)
    rows = got.shape[0]
    check(got, 1, np.broadcast_to(a, (rows, 9)), b, 1, np.broadcast_to(c, (rows, 33)))


@pytest.mark.parametrize("place", PLACEMENTS)
@pytest.mark.parametrize("n", [40, 1])
def test_output_strides(context, make, rng, place, n):
    a, b = draw(rng, "float32", 30, 20), draw(rng, "float32", 20, n)
    out = PLACEMENTS[place](context, np.full((30, n), 5, "float32"))
    around = out.with_layout(out.layout._replace(shape=(out.layout.span[1],), strides=(1,), offset=0))
    before = np.asarray(around).copy()
    make(Gemm, "float32").launch((out,), (context.from_host(a), context.from_host(b)))
    check(out, 1, a, b)
    make(Gemm, "float32").launch((out,), (context.from_host(np.full_like(a, 0)), context.from_host(b)))
    after = np.asarray(around)
    np.testing.assert_array_equal(after[before != 5], before[before != 5])


def test_output_may_be_c(context, make, rng):
    c, a, b = draw(rng, "float64", 30, 70), draw(rng, "float64", 30, 300), draw(rng, "float64", 300, 70)
    out = context.from_host(c)
    inputs = (out, np.float64(0.5), context.from_host(a), context.from_host(b), np.float64(2))
    make(Gemm, "float64", has_c=True).launch((out,), inputs)
    check(out, 0.5, a, b, 2, c)


def test_blocks_and_work_items_meet_without_gaps(context, rng, schedule, monkeypatch):
    monkeypatch.setitem(context.tuning, "gemm.block_rows", 24)
    monkeypatch.setitem(context.tuning, "gemm.depth_bytes", 128)
    routine = Gemm(context, "float32", has_c=True, schedule=schedule)
    c, a, b = draw(rng, "float32", 101, 151), draw(rng, "float32", 101, 99), draw(rng, "float32", 99, 151)
    inputs = (context.from_host(c), np.float32(2), context.from_host(a), context.from_host(b), np.float32(3))
    for grid in ((1, 1, 1), (2, 3, 1), (7, 20, 2)):
        monkeypatch.setattr(schedule_cpu, "grid", lambda *_, grid=grid: grid)
        routine._plans = type(routine._plans)()
        check(routine(*inputs)[0], 2, a, b, 3, c)


@pytest.mark.parametrize("packed", [(1, 1), (1, 1000), (1000, 1)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_operands_in_place_or_packed(context, rng, dtype, packed, monkeypatch):
    for name, value in zip(("PACK_A_MIN_COLUMNS", "PACK_B_MIN_ROWS", "CACHE_WAY_BYTES"), (*packed, 8), strict=True):
        monkeypatch.setattr(schedule_cpu, name, value)
    routine = Gemm(context, dtype, schedule="cpu")
    for m, k, n in ((16, 20, 48), (17, 3, 64), (31, 33, 97)):
        a, b = draw(rng, dtype, m, k), draw(rng, dtype, k, n)
        for place in ("rows", "columns", "scattered"):
            check(routine(PLACEMENTS[place](context, a), PLACEMENTS[place](context, b))[0], 1, a, b)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tile", PARAMETERS["gemm.tile"].choices)
def test_every_tile_of_the_tuner(context, rng, dtype, tile, monkeypatch):
    """Panels are packed four rows at a time, tiles have as many as they have."""
    monkeypatch.setitem(context.tuning, "gemm.tile", tile)
    monkeypatch.setitem(context.tuning, "gemm.block_rows", 24)
    for name in ("PACK_A_MIN_COLUMNS", "PACK_B_MIN_ROWS"):
        monkeypatch.setattr(schedule_cpu, name, 1)
    monkeypatch.setattr(schedule_cpu, "CACHE_WAY_BYTES", 8)
    routine = Gemm(context, dtype, schedule="cpu")
    for m, k, n in ((31, 40, 97), (50, 7, 33), (64, 33, 130), (31, 20, 50)):
        a, b = draw(rng, dtype, m, k), draw(rng, dtype, k, n)
        for place in ("rows", "columns"):
            check(routine(PLACEMENTS[place](context, a), PLACEMENTS[place](context, b))[0], 1, a, b)


@pytest.fixture
def sharing(context, monkeypatch):
    """Pack B of every product once for all work-items; tell the launches."""
    monkeypatch.setattr(CpuSchedule, "shares_b", lambda self, p, rows: not p.batch)
    monkeypatch.setattr(schedule_cpu, "CACHE_WAY_BYTES", 8)  # A is packed where there are many columns
    monkeypatch.setattr(schedule_cpu, "PACK_A_MIN_COLUMNS", 100)
    monkeypatch.setitem(context.tuning, "gemm.block_rows", 24)
    launched, launch = [], Kernel.launch

    def note(kernel, *arguments):
        launched.append(kernel.handle.function_name.rpartition("_")[2])
        launch(kernel, *arguments)

    monkeypatch.setattr(Kernel, "launch", note)
    return launched


@pytest.mark.parametrize("depth", [4096, 128])
@pytest.mark.parametrize("dtype", FLOATS)
def test_panels_that_all_work_items_share(context, rng, dtype, depth, sharing, monkeypatch):
    monkeypatch.setitem(context.tuning, "gemm.depth_bytes", depth)
    monkeypatch.setattr(CpuSchedule, "prefers_panels", lambda self, problem: True)
    routine = Gemm(context, dtype, schedule="cpu")
    for m, k, n in ((64, 64, 64), (70, 101, 203), (9, 33, 5), (31, 7, 400), (1000, 50, 26), (2, 3, 2)):
        a, b = draw(rng, dtype, m, k), draw(rng, dtype, k, n)
        for place in ("rows", "columns", "scattered", "reversed columns"):
            sharing.clear()
            check(routine(PLACEMENTS[place](context, a), PLACEMENTS[place](context, b))[0], 1, a, b)
            assert [name == "panels" for name in sharing] == [True, False]


@pytest.mark.usefixtures("sharing")
def test_shared_panels_with_all_scalars_and_an_addend(context, rng, monkeypatch):
    monkeypatch.setitem(context.tuning, "gemm.depth_bytes", 128)
    routine = Gemm(context, "float32", has_c=True, schedule="cpu")
    c, a, b = draw(rng, "float32", 70, 203), draw(rng, "float32", 70, 101), draw(rng, "float32", 101, 203)
    turned = context.from_host(np.ascontiguousarray(b.T)).T
    inputs = (context.from_host(c), np.float32(2), context.from_host(a), turned, np.float32(3))
    check(routine(*inputs)[0], 2, a, b, 3, c)


@pytest.mark.parametrize("dtype", ["int16", "int64"])
def test_shared_panels_of_integers(context, rng, dtype, sharing):
    routine = Gemm(context, dtype, schedule="cpu")
    a, b = draw(rng, dtype, 70, 33), draw(rng, dtype, 101, 33)
    found = routine(context.from_host(a), context.from_host(b).T)[0]
    np.testing.assert_array_equal(np.asarray(found), a @ b.T)
    assert [name == "panels" for name in sharing] == [True, False]


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_needed_later_is_fetched(context, rng, dtype, monkeypatch):
    monkeypatch.setattr(schedule_cpu, "PREFETCHED_BYTES", 0)
    monkeypatch.setitem(context.tuning, "gemm.items_per_unit", 1)
    routine = BatchedGemm(context, dtype, has_alpha=True, schedule="cpu")
    for batch, m, k, n in (((), 40, 50, 130), ((9,), 24, 33, 100), ((2, 5), 17, 8, 50), ((3,), 100, 3, 48)):
        a, b = draw(rng, dtype, *batch, m, k), draw(rng, dtype, *batch, k, n)
        swapped = (*range(len(batch)), len(batch) + 1, len(batch))
        columns = [context.from_host(np.ascontiguousarray(x.transpose(swapped))) for x in (a, b)]
        turned = [x.with_layout(x.layout.transpose(swapped)) for x in columns]
        for left in (context.from_host(a), turned[0]):
            for right in (context.from_host(b), turned[1]):
                check(routine(np.dtype(dtype).type(2), left, right)[0], 2, a, b)


@pytest.mark.parametrize("dtype", [*FLOATS, "int16"])
def test_long_sums_are_split(context, rng, dtype, schedule, monkeypatch):
    monkeypatch.setitem(context.tuning, "gemm.grain", 64)
    monkeypatch.setattr(schedule_cpu, "SPLIT_K_DEPTH", 40)
    monkeypatch.setattr(schedule_simt, "SIMT_SPLIT_K_DEPTH", 40)
    routine = Gemm(context, dtype, has_c=True, schedule=schedule)
    for m, k, n in ((5, 333, 7), (20, 320, 17), (2, 700, 40)):
        c, a, b = draw(rng, dtype, m, n), draw(rng, dtype, m, k), draw(rng, dtype, k, n)
        alpha, beta = np.dtype(dtype).type(3), np.dtype(dtype).type(2)
        for place in ("rows", "columns", "scattered"):
            inputs = [PLACEMENTS[place](context, x) for x in (c, a, b)]
            (got,) = routine(inputs[0], alpha, *inputs[1:], beta)
            if np.dtype(dtype).kind == "f":
                check(got, 3, a, b, 2, c)
            else:
                np.testing.assert_array_equal(np.asarray(got), alpha * (a @ b) + beta * c)
    assert all(plan.passes.final is not None for plan in routine._plans._plans.values())


@pytest.mark.parametrize("depth", [4096, 128])
@pytest.mark.parametrize("dtype", FLOATS)
def test_tiles_at_the_edges(context, rng, schedule, dtype, depth, monkeypatch):
    monkeypatch.setitem(context.tuning, "gemm.depth_bytes", depth)  # sums in one block, and in several
    routine = Gemm(context, dtype, schedule=schedule)
    a, b = draw(rng, dtype, 19, 70), draw(rng, dtype, 70, 150)
    for m, n in zip((1, 3, 4, 5, 8, 9, 12, 13, 16, 19), (5, 8, 10, 17, 20, 24, 33, 50, 101, 150), strict=True):
        left, right = (context.from_host(x) for x in (a, b))
        around = context.from_host(np.full((m + 2, n + 2), 7, dtype))
        routine.launch((around[1:-1, 1:-1],), (left[:m], right[:, 150 - n :]))
        got = np.asarray(around)
        check(got[1:-1, 1:-1], 1, a[:m], b[:, 150 - n :])
        assert (got[[0, -1]] == 7).all()
        assert (got[:, [0, -1]] == 7).all()


def test_rows_of_b_that_share_sets_of_the_caches_are_packed():
    schedule = CpuSchedule(Tile(8, 3, 16), 4, 64, 2, {}, can_share_b=True, stores_partial_sums=True)
    for n, k, is_packed in ((1024, 1024, True), (1024, 64, False), (1008, 1024, False), (1000, 8, True)):
        problem = GemmProblem(1024, n, k, (), (k, 1), (n, 1), (0, 0), (n, 1))
        assert schedule.prefers_panels(problem) == is_packed


@pytest.mark.parametrize("dtype", FLOATS)
def test_thin_products_are_turned(context, rng, dtype):
    routine = Gemm(context, dtype, has_c=True, schedule="cpu")
    alpha, beta = np.dtype(dtype).type(3), np.dtype(dtype).type(2)
    for (m, k, n), place in (((256, 40, 10), "columns"), ((3, 100, 130), "columns"), ((70, 9, 3), "scattered")):
        c, a, b = draw(rng, dtype, m, n), draw(rng, dtype, m, k), draw(rng, dtype, k, n)
        inputs = [PLACEMENTS[place](context, x) for x in (a, b)]
        (got,) = routine(context.from_host(c), alpha, *inputs, beta)
        check(got, 3, a, b, 2, c)
    strides = (1, 256), (10, 1), (10, 1), (10, 1)
    product = GemmProblem(256, 10, 256, (), *strides)
    schedule = CpuSchedule(Tile(8, 3, 16), 4, 64, 2, {}, can_share_b=False, stores_partial_sums=True)
    assert schedule.swap_operands(product).m == 10
    assert schedule.swap_operands(product._replace(a=(256, 1))) == product._replace(a=(256, 1))


def test_equal_layouts_share_a_plan_but_not_their_offsets(context, make, rng):
    a, b = draw(rng, "float32", 4, 9, 9), draw(rng, "float32", 9, 9)
    gemm = make(Gemm, "float32")
    device, right = context.from_host(a), context.from_host(b)
    gemm(device[0], right)
    plans = len(gemm._plans)
    for i in range(4):
        check(gemm(device[i], right)[0], 1, a[i], b)
    assert len(gemm._plans) == plans


BATCHES = [
    ((3, 4, 5), (3, 5, 6)), ((3, 4, 5), (5, 6)), ((4, 5), (3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)),
    ((0, 4, 5), (5, 6)), ((7, 1, 5), (7, 5, 6)), ((7, 1, 5), (5, 6)), ((7, 4, 5), (7, 5, 1)), ((4, 5), (5, 6)),
    ((2, 3, 4, 5), (2, 3, 5, 33)), ((2, 1, 2, 1, 2, 1, 4, 5), (3, 1, 3, 1, 2, 5, 6)), ((50, 3, 3), (50, 3, 3)),
    ((3, 4, 0), (3, 0, 6)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_batches_broadcast(context, make, rng, dtype):
    for left, right in BATCHES:
        a, b = draw(rng, dtype, *left), draw(rng, dtype, *right)
        check(make(BatchedGemm, dtype)(context.from_host(a), context.from_host(b))[0], 1, a, b)


def test_batches_have_any_strides(context, make, rng):
    a, b = draw(rng, "float32", 5, 4, 6), draw(rng, "float32", 6, 3, 5)
    left, right = context.from_host(a)[::-2, :, ::-1], context.from_host(b)
    right = right.with_layout(right.layout.transpose((2, 0, 1)))[::2]
    check(make(BatchedGemm, "float32")(left, right)[0], 1, a[::-2, :, ::-1], b.transpose(2, 0, 1)[::2])


def test_a_matrix_times_itself(context, make, rng):
    a = draw(rng, "float32", 21, 21)
    device = context.from_host(a)
    check(make(Gemm, "float32")(device, device)[0], 1, a, a)


def test_rows_of_many_matrices_become_one_product():
    a, b, o = Layout.contiguous((8, 9, 4, 5)), Layout.contiguous((5, 6)), Layout.contiguous((8, 9, 4, 6))
    merged = canonical_problem(a, b.broadcast_to((8, 9, 5, 6)), o, o)
    assert (merged.m, merged.n, merged.k, merged.batch) == (288, 6, 5, ())


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_integers_wrap(context, make, rng, dtype):
    for m, k, n in ((13, 21, 37), (20, 64, 2), (3, 0, 4)):
        a, b, c = draw(rng, dtype, m, k), draw(rng, dtype, k, n), draw(rng, dtype, m, n)
        alpha, beta = np.dtype(dtype).type(3), np.dtype(dtype).type(7)
        with np.errstate(over="ignore"):
            expected = alpha * (a @ b) + beta * c
        inputs = [PLACEMENTS["columns"](context, x) for x in (c, a, b)]
        (got,) = make(Gemm, dtype, has_c=True)(inputs[0], alpha, *inputs[1:], beta)
        np.testing.assert_array_equal(np.asarray(got), expected)


def test_integers_wrap_in_batches(context, make, rng):
    dtype = "int16"
    for left, right in BATCHES[:9]:
        a, b = (rng.integers(-(1 << 15), 1 << 15, shape).astype(dtype) for shape in (left, right))
        (got,) = make(BatchedGemm, dtype)(context.from_host(a), context.from_host(b))
        np.testing.assert_array_equal(got.to_host(), a @ b, strict=True)


def test_shape_mismatch_names_the_shapes(context, make):
    a, b = (context.from_host(np.zeros(s, "float32")) for s in ((3, 4), (5, 6)))
    with pytest.raises(ValueError, match=r"Shape mismatch: A has shape \(3, 4\), B has shape \(5, 6\)"):
        make(Gemm, "float32")(a, b)
    with pytest.raises(ValueError, match=r"B has shape \(2, 4, 6\)"):
        make(BatchedGemm, "float32")(*(context.from_host(np.zeros(s, "float32")) for s in ((3, 3, 4), (2, 4, 6))))
    scalar = a.layout.subscript((0, 0))
    with pytest.raises(ValueError, match=r"C has shape \(3, 7\)"):
        make(Gemm, "float32", has_c=True).layout(Layout.contiguous((3, 7)), scalar, a.layout, b[:4].layout, scalar)


def test_bool_is_not_supported(context):
    with pytest.raises(UnsupportedDtype):
        Gemm(context, "bool")


def test_float32_kernels_do_not_mention_double(context, make):
    for flags in ({}, {"has_alpha": True}, {"has_c": True}):
        assert all("double" not in s.source + "".join(s.preambles) for s in make(Gemm, "float32", **flags).sources())


@pytest.mark.parametrize("items", [1, 2, 3, 8, 64])
def test_grid_covers_the_work_items_and_no_more(items):
    strides = (1, 1)
    for m, n, batch in ((1000, 1000, ()), (5, 5000, ()), (5000, 5, ()), (5, 5, (3,)), (100, 100, (40, 2))):
        product = GemmProblem(m, n, 10, batch, strides, strides, strides, strides)
        x, y, z = schedule_cpu.grid(product, Tile(8, 3, 16), items, 4)
        assert 1 <= x <= -(-n // 16)
        assert 1 <= y <= -(-m // 8)
        assert z == min(items, int(np.prod(batch, dtype=int)))


@pytest.mark.parametrize("items", [1, 2, 7, 64])
def test_grid_of_shared_panels_reads_little_and_uses_all_work_items(items):
    strides = (1, 1)
    for m, n in ((256, 512), (1000, 24), (8, 5000), (3, 3)):
        x, y, z = schedule_cpu.shared_b_grid(
            GemmProblem(m, n, 10, (), strides, strides, strides, strides), Tile(4, 3, 8), items, 4
        )
        assert 1 <= x <= -(-n // 24)
        assert 1 <= y <= -(-m // 4)
        assert x * y <= items
        assert z == 1
        assert items < 16 or m * n < 10_000 or x * y >= 16


@pytest.mark.parametrize("n, k", [(5, 3), (64, 64), (130, 40), (300, 70)])
def test_products_of_which_the_lower_triangle_is_used(context, rng, n, k):
    """Tiles above the diagonal are left as they are; the output may be the transpose of a C-contiguous array."""
    a = rng.normal(size=(2, n, k))
    expected = 1 - a @ a.swapaxes(-1, -2)
    given = context.from_host(a)
    flipped = given.with_layout(given.layout.transpose((0, 2, 1)))
    gemm = BatchedGemm(context, "float64", has_c=True, is_lower=True, schedule="cpu")
    for order in ((0, 1, 2), (0, 2, 1)):
        target = context.from_host(np.ones((2, n, n)))
        out = target.with_layout(target.layout.transpose(order))
        gemm.launch((out,), (out, np.float64(-1), given, flipped, np.float64(1)))
        got = np.asarray(out)
        np.testing.assert_allclose(np.tril(got), np.tril(expected), atol=1e-10)
        if n > 2 * max(gemm.tile.nr, gemm.tile.mr):
            assert (got[:, 0, -1] == 1).all()
