"""Pooling Ops on the host: values window by window, gradients by finite differences."""

import math

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph

from pytensor_cl import nn


@pytest.fixture(autouse=True)
def without_numba():
    """What `verify_grad` compiles by itself would take seconds each time."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


def direct(x, window, strides, pads, ceil, reduce, dilation=None):
    """Pool window by window; `reduce` gets the elements of a window, flattened, and how many count with padding."""
    ndim = len(window)
    dilation = dilation or (1,) * ndim
    lengths = x.shape[-ndim:]
    counts = []
    for n, k, s, (a, b), d in zip(lengths, window, strides, pads, dilation, strict=True):
        room = n + a + b - (k - 1) * d - 1
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= n + a:
            count -= 1
        counts.append(count if room >= 0 else 0)
    y = np.empty((*x.shape[:-ndim], *counts), x.dtype)
    for at in np.ndindex(*counts):
        starts = [i * s - a for i, s, (a, _) in zip(at, strides, pads, strict=True)]
        taps = [i + np.arange(k) * d for i, k, d in zip(starts, window, dilation, strict=True)]
        inside = [t[(t >= 0) & (t < n)] for t, n in zip(taps, lengths, strict=True)]
        padded = np.prod([(t < n + b).sum() for t, n, (_, b) in zip(taps, lengths, pads, strict=True)])
        seen = x[(..., *np.ix_(*inside))]
        y[(..., *at)] = reduce(seen.reshape(*x.shape[:-ndim], math.prod(seen.shape[-ndim:])), padded)
    return y


REDUCTIONS = {
    "max": lambda seen, padded: seen.max(-1, initial=-np.inf),
    "sum": lambda seen, padded: seen.sum(-1),
    "inc": lambda seen, padded: seen.sum(-1) / padded,
    "exc": lambda seen, padded: seen.sum(-1) / max(1, seen.shape[-1]),
}


POOLS = {1: nn.pool_1d, 2: nn.pool_2d, 3: nn.pool_3d}
MODES = {"max": "max", "sum": "sum", "inc": "average_inc_pad", "exc": "average_exc_pad"}


def pool(kind, x, window, **options):
    return POOLS[len(window)](x, window, mode=MODES[kind], **options)


def random_case(rng, ndim):
    window = tuple(map(int, rng.integers(1, 4, ndim)))
    strides = tuple(map(int, rng.integers(1, 4, ndim)))
    dilation = tuple(map(int, rng.integers(1, 4, ndim))) if rng.random() < 0.5 else (1,) * ndim
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    pads = tuple((int(rng.integers(0, r)), int(rng.integers(0, r))) for r in reach)
    lengths = [int(rng.integers(max(1, r - a), r - a + 8)) for r, (a, _) in zip(reach, pads, strict=True)]
    x = rng.normal(size=(int(rng.choice([0, 1, 2])), 3, *lengths))
    return x, window, {"stride": strides, "pad": pads, "dilation": dilation, "ignore_border": bool(rng.integers(2))}


def expected(kind, x, window, options):
    sliding = options["stride"], options["pad"], not options["ignore_border"]
    return direct(x, window, *sliding, REDUCTIONS[kind], options["dilation"])


@pytest.mark.parametrize("kind", list(REDUCTIONS))
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_values(rng, kind, ndim):
    for _ in range(12):
        x, window, options = random_case(rng, ndim)
        sx = pt.tensor("x", shape=(None,) * x.ndim, dtype="float64")
        y = pool(kind, sx, window, **options)
        got, shape = pytensor.function([sx], [y, y.shape], mode="FAST_COMPILE")(x)
        wanted = expected(kind, x, window, options)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12, err_msg=f"{x.shape} {window} {options}")
        assert tuple(shape) == wanted.shape


@pytest.mark.parametrize("kind", list(REDUCTIONS))
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_gradients(rng, kind, ndim):
    cases = (random_case(rng, ndim) for _ in range(100))
    x, window, options = next(c for c in cases if 0 < c[0].size < 300 and 0 not in expected(kind, *c).shape)

    def f(a):
        return pool(kind, a, window, **options)

    def g(a):
        return pytensor.grad((f(a) ** 3).sum(), a)

    with pytensor.config.change_flags(mode="FAST_COMPILE"):  # it compiles more than what gets its mode
        verify_grad(f, [x], rng=rng)
        verify_grad(g, [x], rng=rng)


@pytest.mark.parametrize(("length", "count"), [(0, 0), (1, 0), (2, 1), (4, 1), (5, 2), (6, 2), (7, 2), (8, 3)])
def test_a_last_window_that_reaches_out(length, count):
    x = pt.tensor("x", shape=(None, None, None), dtype="float64")
    value = np.arange(float(length)).reshape(1, 1, length)
    ys = [nn.pool_1d(x, 4, False, 3, mode=mode) for mode in ("max", "average_inc_pad")]
    largest, average, shape = pytensor.function([x], [*ys, ys[0].shape], mode="FAST_COMPILE")(value)
    assert largest.shape == average.shape == tuple(shape) == (1, 1, count)
    if count:
        assert largest[0, 0, -1] == length - 1
        assert average[0, 0, -1] == value[0, 0, 3 * (count - 1) :].mean()


def test_ties_go_to_the_first_and_padding_is_never_chosen():
    x = pt.tensor("x", shape=(None, None, None), dtype="float64")
    y = nn.pool_1d(x, 2, pad=1)
    f = pytensor.function([x], [y, pytensor.grad(y.sum(), x)], mode="FAST_COMPILE")
    got, slope = f(np.array([[[-np.inf, -np.inf, 3, 3]]]))
    np.testing.assert_array_equal(got, [[[-np.inf, 3, 3]]])
    np.testing.assert_array_equal(slope, [[[1, 0, 1, 1]]])
    got, slope = f(np.array([[[1, np.nan, 3, np.nan]]]))
    np.testing.assert_array_equal(got, [[[1, np.nan, np.nan]]])
    np.testing.assert_array_equal(slope, [[[1, 1, 0, 1]]])


def test_integers():
    x = pt.tensor("x", shape=(1, 1, 4), dtype="int8")
    assert nn.pool_1d(x, 2).eval({x: np.int8([[[-128, -128, 3, 2]]])}, mode="FAST_COMPILE").tolist() == [[[-128, 3]]]
    assert nn.pool_1d(x, 2, mode="average_exc_pad").type.dtype == pytensor.config.floatX


def test_what_makes_no_sense_is_refused():
    x = pt.tensor("x", shape=(2, 3, 9))
    for window, options in (
        ((0,), {}),
        (2, {"pad": 2}),
        (2, {"stride": 0}),
        ((1, 2), {}),
        (2, {"pad": (1, 1)}),
    ):
        with pytest.raises(ValueError):
            nn.pool_1d(x, window, **options)
    with pytest.raises(TypeError, match="2 dimension"):
        nn.pool_2d(pt.dvector(), (2, 2))


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_indices(rng, ndim):
    """They point at the largest elements, as `np.take_along_axis` of the flattened plane takes them."""
    for _ in range(6):
        x, window, options = random_case(rng, ndim)
        x = np.round(x)  # ties
        sx = pt.tensor("x", shape=(None,) * x.ndim, dtype="float64")
        value, indices = pool("max", sx, window, return_indices=True, **options)
        assert indices.dtype == "int64"
        got, places, shape = pytensor.function([sx], [value, indices, indices.shape], mode="FAST_COMPILE")(x)
        assert places.shape == got.shape == tuple(shape)
        if 0 in places.shape:
            continue
        flat, places = x.reshape(*x.shape[:2], -1), places.reshape(*x.shape[:2], -1)
        found = np.where(places < 0, -np.inf, np.take_along_axis(flat, places, -1))
        np.testing.assert_array_equal(found.reshape(got.shape), got)


def test_indices_of_ties_and_their_gradient():
    x = pt.tensor3("x")
    value, indices = nn.pool_1d(x, 3, return_indices=True)
    assert indices.eval({x: [[[1, 2, 2, 0, 0, 0]]]}, mode="FAST_COMPILE").tolist() == [[[1, 3]]]
    slope = pytensor.grad((value * (indices + 1)).sum(), x)
    assert slope.eval({x: [[[1, 2, 2, 0, 0, 0]]]}, mode="FAST_COMPILE").tolist() == [[[0, 2, 0, 4, 0, 0]]]


def test_a_dilated_window_over_the_padding_alone():
    """Taps at -1 and 2 of an array of length 2."""
    x = pt.tensor3("x", dtype="float64")
    options = {"stride": 9, "pad": 1, "dilation": 3}
    largest, places = nn.pool_1d(x, 2, return_indices=True, **options)
    average = nn.pool_1d(x, 2, mode="average_exc_pad", **options)
    results = [largest, places, average, pytensor.grad((largest + average).sum(), x)]
    got = pytensor.function([x], results, mode="FAST_COMPILE")(np.ones((1, 1, 2)))
    assert [g.tolist() for g in got] == [[[[-np.inf]]], [[[-1]]], [[[0.0]]], [[[0.0, 0.0]]]]


NUMPY = {"max": np.max, "sum": np.sum, "average_exc_pad": np.mean, "average_inc_pad": np.mean}


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize(
    ("shape", "size"), [((2, 3, 7), 3), ((2, 3, 4, 9), (2, 3)), ((5, 2, 3), (7,)), ((1, 4, 3, 5), (3, 2, 2))]
)
def test_adaptive(rng, mode, shape, size):
    sizes = size if isinstance(size, tuple) else (size,) * (len(shape) - 2)
    x, value = pt.tensor("x", shape=(None,) * len(shape), dtype="float64"), rng.normal(size=shape)
    y = nn.adaptive_pool(x, size, mode)
    got, length = pytensor.function([x], [y, y.shape], mode="FAST_COMPILE")(value)
    lead = len(shape) - len(sizes)
    assert got.shape == tuple(length) == (*shape[:lead], *sizes)
    assert y.type.shape[lead:] == sizes
    for at in np.ndindex(*sizes):
        bins = (slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(at, shape[lead:], sizes, strict=True))
        wanted = NUMPY[mode](value[(..., *bins)], tuple(range(lead, len(shape))))
        np.testing.assert_allclose(got[(..., *at)], wanted, rtol=1e-12)
    verify_grad(lambda a: nn.adaptive_pool(a, size, mode), [value], rng=rng, mode="FAST_COMPILE")
    if len(shape) == 3:
        slope = lambda a: pytensor.grad((nn.adaptive_pool(a, size, mode) ** 3).sum(), a)  # noqa: E731
        verify_grad(slope, [value], rng=rng, mode="FAST_COMPILE")


def test_adaptive_with_a_dimension_that_stays(rng):
    x, value = pt.tensor4("x", dtype="float64"), rng.normal(size=(2, 3, 6, 5))
    rows = nn.adaptive_pool(x, (2, None)).eval({x: value}, mode="FAST_COMPILE")
    np.testing.assert_array_equal(rows, value.reshape(2, 3, 2, 3, 5).max(3))
    columns = nn.adaptive_pool(x, (None, 1), "sum").eval({x: value}, mode="FAST_COMPILE")
    np.testing.assert_allclose(columns, value.sum(3, keepdims=True))


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "OPENCL"])
def test_adaptive_pooling_of_nothing(context, mode):
    x = pt.tensor3("x", dtype="float32")
    with pytensor.config.change_flags(opencl__placement="device"):
        f = pytensor.function([x], nn.adaptive_pool(x, 2), mode=mode)
    assert f(np.ones((0, 2, 3), "float32")).shape == (0, 2, 2)
    with pytest.raises(ValueError, match="pooling of nothing"):
        f(np.ones((1, 2, 0), "float32"))
    with pytest.raises(ValueError, match="pooling of nothing"):
        nn.adaptive_pool(pt.tensor(shape=(1, 2, 0)), 2)


@pytest.mark.parametrize("mode", NUMPY)
def test_global(rng, mode):
    x, value = pt.tensor5("x", dtype="float64"), np.round(rng.normal(size=(2, 3, 4, 2, 3)))
    y = nn.global_pool(x, mode)
    got, slope = pytensor.function([x], [y, pytensor.grad(y.sum(), x)], mode="FAST_COMPILE")(value)
    np.testing.assert_allclose(got, NUMPY[mode](value, (2, 3, 4)))
    if mode == "max":  # the first of several largest elements
        flat = value.reshape(6, -1)
        np.testing.assert_array_equal(slope.reshape(6, -1), np.eye(24)[flat.argmax(1)])
    assert nn.global_pool(x).owner.op == nn.global_pool(x, "average_inc_pad").owner.op


def test_types_of_second_gradients():
    """A zero of type floatX in one of them would be the type of all that depends on it."""
    with pytensor.config.change_flags(floatX="float64"):
        x = pt.tensor3("x", dtype="float32")
        for y in (nn.pool_1d(x, 2), nn.adaptive_pool(x, 2)):
            slope = pytensor.grad(pt.sqr(y).sum(), x)
            assert pytensor.grad(pt.sqr(slope).sum(), x).dtype == "float32"


def test_types_of_sums():
    for dtype, wanted in (("int8", "int64"), ("bool", "int64"), ("uint8", "uint64"), ("float16", "float16")):
        assert nn.pool_1d(pt.tensor(shape=(1, 1, 4), dtype=dtype), 2, mode="sum").dtype == wanted
        assert nn.adaptive_pool(pt.tensor(shape=(1, 1, 4), dtype=dtype), 2, mode="sum").dtype == wanted
    x = pt.tensor(shape=(1, 1, 4), dtype="int8")
    y = nn.pool_1d(x, 2, mode="sum")
    assert y.eval({x: np.int8([[[100, 100, -100, -100]]])}, mode="FAST_COMPILE").tolist() == [[[200, -200]]]


def batched_case(dtype="float64"):
    """Pools of a matrix with gradients, as they are and in batches: of everything, and of the gradient alone."""
    x, v, c = pt.matrix("x", dtype=dtype), pt.matrix("v", dtype=dtype), pt.scalar("c", dtype=dtype)
    ys = [nn.pool_2d(x, 2, stride=1, mode=mode) for mode in ("max", "average_inc_pad")] + [nn.adaptive_pool(x, (2, 3))]
    slopes = [pytensor.grad((y**3).sum() * c, x) for y in ys]
    more = [pytensor.grad((slope * v).sum(), x) for slope in slopes]
    places = nn.pool_2d(x, 2, return_indices=True)[1]
    outputs = [*ys, *slopes, *more, places]
    big = {a: pt.tensor(shape=(None, *(None,) * a.type.ndim), dtype=dtype) for a in (x, v, c)}
    every = [big[a] for a in (x, v, c)], vectorize_graph(outputs, big)
    some = [x, big[c]], vectorize_graph(slopes, {c: big[c]})
    return ([x, v, c], outputs), every, some, slice(len(ys), len(ys) + len(slopes))


def check_batches(single, every, some, slopes, rng, dtype="float64"):
    values = [rng.normal(size=s).astype(dtype) for s in ((3, 5, 7), (3, 5, 7), (3,))]
    for got, wanted in zip(every(*values), zip(*map(single, *values), strict=True), strict=True):
        np.testing.assert_allclose(got, np.stack(wanted), rtol=1e-4, atol=1e-5)
    x, v = values[0][0], values[1][0]
    for got, wanted in zip(
        some(x, values[2]), zip(*(single(x, v, c)[slopes] for c in values[2]), strict=True), strict=True
    ):
        np.testing.assert_allclose(got, np.stack(wanted), rtol=1e-4, atol=1e-5)


def test_batches(rng):
    *cases, slopes = batched_case()
    assert not any("Blockwise{" in str(v.owner.op) for _, outputs in cases for v in outputs)
    check_batches(*(pytensor.function(*case, mode="FAST_COMPILE") for case in cases), slopes, rng)
