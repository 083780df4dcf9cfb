"""Matrix-vector products, dot products and rank-one updates against NumPy."""

import numpy as np
import pytest

from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.gemv import routine
from pytensor_cl.routines.gemv.routine import Dot, Gemv, Ger
from pytensor_cl.runtime.layout import Layout
from tests.routines.products import FLOATS, check, draw, maker

SIZES = [
    (0, 3), (3, 0), (1, 1), (1, 50), (50, 1), (4, 16), (5, 17), (7, 31), (16, 200), (200, 16), (97, 101),
    (33, 2048), (2049, 33), (3, 70_001), (70_001, 3), (20, 5000), (5000, 20),
    (10, 4), (9, 8), (11, 20), (6, 36),
]  # fmt: skip


@pytest.fixture
def make(context, schedule):
    return maker(context, schedule)


def sliced(context, x):
    """Put `x` into every third place of a larger array; a wrong address finds NaN."""
    big = np.full([3 * n + 2 for n in x.shape], np.nan if x.dtype.kind == "f" else 77, x.dtype)
    inside = tuple(slice(2, 3 * n + 1, 3) for n in x.shape)
    big[inside] = x
    return context.from_host(big)[inside]


def backwards(context, x):
    turn = (slice(None, None, -1),) * x.ndim
    return context.from_host(x[turn])[turn]


PLACEMENTS = {
    "rows": lambda context, x: context.from_host(x),
    "columns": lambda context, x: context.from_host(x.T).T,
    "backwards": backwards,
    "backwards columns": lambda context, x: backwards(context, x.T).T,
    "sliced": sliced,
}


@pytest.mark.parametrize("dtype", FLOATS)
def test_sizes(context, make, rng, dtype):
    for m, k in SIZES:
        a, x = draw(rng, dtype, m, k), draw(rng, dtype, k)
        for place in ("rows", "columns"):
            (got,) = make(Gemv, dtype)(PLACEMENTS[place](context, a), context.from_host(x))
            assert got.dtype == dtype
            check(got, 1, a, x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_strides(context, make, rng, dtype):
    for shape in ((37, 59), (9, 9000)):
        a, x = draw(rng, dtype, *shape), draw(rng, dtype, shape[1])
        for place_a in PLACEMENTS.values():
            for place_x in ("rows", "backwards", "sliced"):
                check(make(Gemv, dtype)(place_a(context, a), PLACEMENTS[place_x](context, x))[0], 1, a, x)


def test_zero_strides(context, make, rng):
    row, value = draw(rng, "float32", 1, 40), draw(rng, "float32", 1)
    a, x = context.from_host(row), context.from_host(value)
    a, x = a.with_layout(a.layout.broadcast_to((15, 40))), x.with_layout(x.layout.broadcast_to((40,)))
    check(make(Gemv, "float32")(a, x)[0], 1, np.tile(row, (15, 1)), np.tile(value, 40))
    check(make(Gemv, "float32")(a.T, x[:15])[0], 1, np.tile(row, (15, 1)).T, np.tile(value, 15))


@pytest.mark.parametrize("place", ["rows", "columns", "backwards"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_alpha_and_beta_are_read_on_the_host_or_the_device(context, make, rng, dtype, place):
    for m, k in ((21, 33), (2, 50_000), (6, 0)):
        y, a, x = draw(rng, dtype, m), draw(rng, dtype, m, k), draw(rng, dtype, k)
        host = [np.dtype(dtype).type(v) for v in (0.7, -1.3)]
        pair = context.from_host(np.array([9, *host], dtype))
        vector, matrix, right = sliced(context, y), PLACEMENTS[place](context, a), context.from_host(x)
        for alpha in (host[0], pair[1]):
            check(make(Gemv, dtype, has_alpha=True)(alpha, matrix, right)[0], host[0], a, x)
            for beta in (host[1], pair[2]):
                (got,) = make(Gemv, dtype, has_y=True)(vector, alpha, matrix, right, beta)
                check(got, host[0], a, x, host[1], y)


def test_beta_zero_ignores_nan_in_y(context, make, rng):
    for m, k in ((21, 33), (2, 50_000)):
        a, x = draw(rng, "float32", m, k), draw(rng, "float32", k)
        y = context.from_host(np.full(m, np.nan, "float32"))
        for beta in (np.float32(0), context.from_host(np.zeros((), "float32"))):
            gemv = make(Gemv, "float32", has_y=True)
            check(gemv(y, np.float32(2), context.from_host(a), context.from_host(x), beta)[0], 2, a, x)


@pytest.mark.parametrize("place", ["backwards", "sliced"])
def test_output_strides(context, make, rng, place):
    for m, k in ((21, 33), (3, 50_000)):
        a, x = draw(rng, "float32", m, k), draw(rng, "float32", k)
        out = PLACEMENTS[place](context, np.full(m, 5, "float32"))
        around = out.with_layout(out.layout._replace(shape=(out.layout.span[1],), strides=(1,), offset=0))
        before = np.asarray(around).copy()
        make(Gemv, "float32").launch((out,), (context.from_host(a), context.from_host(x)))
        check(out, 1, a, x)
        np.testing.assert_array_equal(np.asarray(around)[before != 5], before[before != 5])


def test_output_may_be_y(context, make, rng):
    for m, k in ((40, 30), (2, 50_000)):
        y, a, x = draw(rng, "float64", m), draw(rng, "float64", m, k), draw(rng, "float64", k)
        out = context.from_host(y)
        inputs = (out, np.float64(0.5), context.from_host(a), context.from_host(x), np.float64(2))
        make(Gemv, "float64", has_y=True).launch((out,), inputs)
        check(out, 0.5, a, x, 2, y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dot(context, make, rng, dtype):
    for n in (0, 1, 2, 15, 16, 17, 1000, 100_003):
        a, x, y = draw(rng, dtype, n, 6), draw(rng, dtype, n), draw(rng, dtype, n)
        dot, right = make(Dot, dtype), context.from_host(y)
        for place in ("rows", "backwards", "sliced"):
            left = PLACEMENTS[place](context, x)
            check(dot(left, right)[0], 1, x, y)
            check(dot(left, context.from_host(a))[0], 1, a.T, x)
            check(dot(context.from_host(a.T), left)[0], 1, a.T, x)


def test_float32_dot_of_many_elements_is_accurate(context, make):
    x = np.full(4_000_000, 0.1, "float32")
    device = context.from_host(x)
    (got,) = make(Dot, "float32")(device, device)
    np.testing.assert_allclose(float(got), np.float64(x[0]) ** 2 * x.size, rtol=1e-4)


def test_infinities_do_not_become_nan(context, make):
    x = np.ones(37, "float32")
    x[36] = np.inf
    a = np.zeros((7, 37), "float32")
    a[:, 36] = 1
    np.testing.assert_array_equal(make(Gemv, "float32")(context.from_host(a), context.from_host(x))[0], [np.inf] * 7)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_ger(context, make, rng, dtype):
    for m, n in ((0, 3), (1, 1), (13, 37), (300, 500), (2, 5000)):
        a, x, y = draw(rng, dtype, m, n), draw(rng, dtype, m), draw(rng, dtype, n)
        scale = np.dtype(dtype).type(3)
        expected = a + scale * np.outer(x, y)
        for alpha in (scale, context.from_host(np.array(scale))):
            for place in PLACEMENTS.values():
                (got,) = make(Ger, dtype)(place(context, a), alpha, sliced(context, x), backwards(context, y))
                np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-5)


def test_ger_writes_any_strides(context, make, rng):
    a, x, y = draw(rng, "float32", 13, 37), draw(rng, "float32", 13), draw(rng, "float32", 37)
    out = sliced(context, a)
    make(Ger, "float32").launch((out,), (out, np.float32(1), context.from_host(x), context.from_host(y)))
    np.testing.assert_allclose(np.asarray(out), a + np.outer(x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_integers_wrap(context, make, rng, dtype):
    for m, k in ((13, 77), (3, 40_000)):
        a, x, y = draw(rng, dtype, m, k), draw(rng, dtype, k), draw(rng, dtype, m)
        alpha, beta = np.dtype(dtype).type(3), np.dtype(dtype).type(7)
        expected = alpha * (a @ x) + beta * y
        for place in ("rows", "columns", "sliced"):
            inputs = (context.from_host(y), alpha, PLACEMENTS[place](context, a), context.from_host(x), beta)
            np.testing.assert_array_equal(np.asarray(make(Gemv, dtype, has_y=True)(*inputs)[0]), expected)


def test_shape_mismatch_names_the_shapes(context, make):
    a, x = (context.from_host(np.zeros(s, "float32")) for s in ((3, 4), (5,)))
    with pytest.raises(ValueError, match=r"A has shape \(3, 4\), x has shape \(5,\)"):
        make(Gemv, "float32")(a, x)
    with pytest.raises(ValueError, match=r"A has shape \(5,\), B has shape \(3, 4\)"):
        make(Dot, "float32")(x, a)
    with pytest.raises(ValueError, match=r"Shape mismatch: A has shape \(3, 4\)"):
        make(Ger, "float32")(a, np.float32(1), x, x)


def test_bool_is_not_supported(context):
    with pytest.raises(UnsupportedDtype):
        Gemv(context, "bool")


def test_float32_kernels_do_not_mention_double(context, make):
    for kind in (Gemv, Dot, Ger):
        assert all("double" not in s.source + "".join(s.preambles) for s in make(kind, "float32").sources())


# Sizes, placement of the matrix, and the kernel on schedule simt with whether it loads vectors.
SIMT_CASES = [
    ((5, 1), "rows", "col", False),
    ((1, 40), "rows", "rows", True),
    ((300, 32), "rows", "rows", True),
    ((129, 36), "rows", "rows", True),
    ((127, 31), "rows", "rows", False),
    ((1025, 3), "rows", "rows", False),
    ((70, 29), "sliced", "rows", False),
    ((2, 1200), "rows", "long", True),
    ((3, 1201), "rows", "long", False),
    ((3, 5000), "backwards", "long", True),
    ((1, 60_001), "rows", "long", True),
    ((9, 9001), "sliced", "long", False),
    ((32, 3000), "columns", "col", True),
    ((33, 3000), "columns", "col", False),
    ((260, 70), "columns", "col", True),
    ((4, 1), "columns", "col", True),
    ((3, 257), "columns", "col", False),
    ((8, 100), "backwards columns", "col", True),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("is_split", [False, True])
def test_simt_kernels(context, rng, monkeypatch, dtype, is_split):
    """Each kernel, with and without vectors, and with so many parts of k that the last launch has several groups."""
    monkeypatch.setattr(routine, "SPLIT_GROUPS_PER_UNIT", 1000)
    gemv = Gemv(context, dtype, schedule="simt", has_y=True)
    splits, split_simt = [], routine.split_simt

    def split(p, *args):
        found = split_simt(p, *args)
        parts = max(1, p.k // 32) if is_split and found.variant != "rows" else 1
        splits.append(found._replace(split_k=parts))
        return splits[-1]

    monkeypatch.setattr(routine, "split_simt", split)
    parts = 1
    for (m, k), place, variant, is_vector in SIMT_CASES:
        a, x, y = draw(rng, dtype, m, k), draw(rng, dtype, k), draw(rng, dtype, m)
        alpha, beta = np.dtype(dtype).type(3), np.dtype(dtype).type(-2)
        operands = context.from_host(y), alpha, PLACEMENTS[place](context, a), context.from_host(x), beta
        if place.startswith("backwards"):
            operands = (*operands[:3], backwards(context, x), beta)
        (got,) = gemv(*operands)
        assert (splits[-1].variant, splits[-1].is_vector) == (variant, is_vector), (m, k, place)
        parts = max(parts, splits[-1].split_k)
        if dtype == "int8":
            np.testing.assert_array_equal(np.asarray(got), alpha * (a @ x) + beta * y)
        else:
            check(got, alpha, a, x, beta, y)
    assert (parts > 300) == is_split


def test_simt_splits_of_a_large_device():
    """Tiles, vectors and parts of k on 132 compute units."""

    def split(m, k, row, col):
        p = routine._Problem(m, k, (0, 0, 0, 0), row, col, 1, 1, 1)
        return routine.split_simt(p, 4, 256, 132)

    assert split(400_000, 32, 32, 1) == ("rows", True, 8, 3125, 1)
    assert split(32, 400_000, 1, 32) == ("col", True, 8, 1, 528)
    assert split(16384, 4096, 4096, 1) == ("rows", True, 64, 1024, 1)
    assert split(1 << 18, 4096, 4096, 1) == ("rows", True, 32, 8192, 1)
    assert split(50, 20_000, 1, 50) == ("col", False, 32, 2, 122)
    assert split(1, 1 << 24, 0, 1) == ("long", True, 256, 1, 528)
    assert split(400_000, 1, 1, 1) == ("col", False, 32, 12_500, 1)
    assert split(4, 1 << 31, 1 << 31, 1).variant == "long"


def test_simt_kernels_check_alignment(context, rng):
    """Vectors are loaded where strides allow it, but not from addresses that do not."""
    base, x = draw(rng, "float32", 4000), context.from_host(draw(rng, "float32", 700))
    device, host = context.from_host(base), np.asarray(x)
    gemv = Gemv(context, "float32", schedule="simt")
    for m, k in ((50, 32), (2, 640)):
        for shift in range(4):
            a = base[shift : shift + m * k].reshape(m, k)
            matrix = device[shift : shift + m * k].with_layout(Layout((m, k), (k, 1), shift))
            check(gemv(matrix, x[3 - shift : 3 - shift + k])[0], 1, a, host[3 - shift : 3 - shift + k])
            check(gemv(matrix.T, x[:m])[0], 1, a.T, host[:m])


def test_simt_rows_that_are_equal_have_equal_products(context, rng):
    for k in (19, 32, 1000):
        a = np.repeat(draw(rng, "float32", 1, k), 300, axis=0)
        for place in ("rows", "columns"):
            gemv = Gemv(context, "float32", schedule="simt")
            (got,) = gemv(PLACEMENTS[place](context, a), context.from_host(draw(rng, "float32", k)))
            assert len(set(np.asarray(got))) == 1
