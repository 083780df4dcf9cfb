"""Pooling Ops on the host: values window by window, gradients by finite differences."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad

from pytensor_cl import nn


@pytest.fixture(autouse=True)
def without_numba():
    """What `verify_grad` compiles by itself would take seconds each time."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


def direct(x, window, strides, pads, ceil, reduce):
    """Pool window by window; `reduce` gets the elements of a window and how many count with padding."""
    ndim = len(window)
    lengths = x.shape[-ndim:]
    counts = []
    for n, k, s, (a, b) in zip(lengths, window, strides, pads, strict=True):
        room = n + a + b - k
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= n + a:
            count -= 1
        counts.append(count if room >= 0 else 0)
    y = np.empty((*x.shape[:-ndim], *counts), x.dtype)
    for at in np.ndindex(*counts):
        starts = [i * s - a for i, s, (a, _) in zip(at, strides, pads, strict=True)]
        inside = tuple(slice(max(0, i), min(n, i + k)) for i, k, n in zip(starts, window, lengths, strict=True))
        padded = np.prod([min(i + k, n + b) - i for i, k, n, (_, b) in zip(starts, window, lengths, pads, strict=True)])
        y[(..., *at)] = reduce(x[(..., *inside)], tuple(range(-ndim, 0)), padded)
    return y


REDUCTIONS = {
    "max": lambda seen, axes, padded: seen.max(axes),
    "inc": lambda seen, axes, padded: seen.sum(axes) / padded,
    "exc": lambda seen, axes, padded: seen.mean(axes),
}


POOLS = {1: nn.pool_1d, 2: nn.pool_2d, 3: nn.pool_3d}
MODES = {"max": "max", "inc": "average_inc_pad", "exc": "average_exc_pad"}


def pool(kind, x, window, **options):
    return POOLS[len(window)](x, window, mode=MODES[kind], **options)


def random_case(rng, ndim):
    window = tuple(map(int, rng.integers(1, 4, ndim)))
    strides = tuple(map(int, rng.integers(1, 4, ndim)))
    pads = tuple((int(rng.integers(0, k)), int(rng.integers(0, k))) for k in window)
    lengths = [int(rng.integers(max(1, k - a), 9)) for k, (a, _) in zip(window, pads, strict=True)]
    x = rng.normal(size=(int(rng.choice([0, 1, 2])), 3, *lengths))
    return x, window, {"stride": strides, "pad": pads, "ignore_border": bool(rng.integers(2))}


def expected(kind, x, window, options):
    return direct(x, window, options["stride"], options["pad"], not options["ignore_border"], REDUCTIONS[kind])


@pytest.mark.parametrize("kind", ["max", "inc", "exc"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_values(rng, kind, ndim):
    for _ in range(12):
        x, window, options = random_case(rng, ndim)
        sx = pt.tensor("x", shape=(None,) * x.ndim, dtype="float64")
        y = pool(kind, sx, window, **options)
        got, shape = pytensor.function([sx], [y, y.shape], mode="FAST_COMPILE")(x)
        wanted = expected(kind, x, window, options)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, err_msg=f"{x.shape} {window} {options}")
        assert tuple(shape) == wanted.shape


@pytest.mark.parametrize("kind", ["max", "inc", "exc"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_gradients(rng, kind, ndim):
    cases = (random_case(rng, ndim) for _ in range(100))
    x, window, options = next(c for c in cases if 0 not in c[0].shape and 0 not in expected(kind, *c).shape)

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
