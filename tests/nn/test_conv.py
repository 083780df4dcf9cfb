"""Convolution Ops on the host: values by direct summation, gradients by finite differences."""

import warnings
from itertools import product

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph

from pytensor_cl import nn

CONVS = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}
TRANSPOSED = {1: nn.conv1d_transpose, 2: nn.conv2d_transpose, 3: nn.conv3d_transpose}


@pytest.fixture(autouse=True)
def without_numba():
    """What `verify_grad` compiles by itself would take seconds each time."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


def direct(x, w, pads, strides, dilation, groups, flip):
    """Convolve by summing tap by tap and channel by channel."""
    ndim = x.ndim - 2
    w = np.flip(w, tuple(range(2, w.ndim))) if flip else w
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    counts = [max(0, (n - r) // s + 1) for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *counts), np.result_type(x, w))
    per_group = w.shape[0] // groups
    for o, c in product(range(w.shape[0]), range(w.shape[1])):
        channel = x[:, o // per_group * w.shape[1] + c]
        for tap in np.ndindex(*w.shape[2:]):
            at = tuple(
                slice(t * d, t * d + n * s, s) for t, d, n, s in zip(tap, dilation, counts, strides, strict=True)
            )
            if 0 not in counts:
                y[:, o] += w[(o, c, *tap)] * channel[(slice(None), *at)][(slice(None), *map(slice, counts))]
    assert ndim == len(counts)
    return y


def random_case(rng, ndim):
    """Parameters of a convolution and arrays that fit; lengths of one and zero among them."""
    groups = int(rng.choice([1, 1, 2, 3]))
    strides, dilation = (tuple(map(int, rng.integers(1, 4, ndim))) for _ in range(2))
    pads = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (ndim, 2)))
    extents = rng.integers(1, 4, ndim)
    lengths = rng.integers(1, 9, ndim)
    batch, per_group, features = rng.choice([0, 1, 2, 3]), rng.integers(1, 4), rng.integers(1, 4)
    x = rng.normal(size=(batch, per_group * groups, *lengths))
    w = rng.normal(size=(features * groups, per_group, *extents))
    options = {"border_mode": pads, "subsample": strides, "filter_dilation": dilation, "num_groups": groups}
    return x, w, options, bool(rng.integers(2))


def variables(ndim, *names):
    return [pt.tensor(n, shape=(None,) * (ndim + 2), dtype="float64") for n in names]


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_values(rng, ndim):
    for _ in range(20):
        x, w, options, flip = random_case(rng, ndim)
        sx, sw = variables(ndim, "x", "w")
        y = CONVS[ndim](sx, sw, **options, filter_flip=flip)
        f = pytensor.function([sx, sw], [y, y.shape], mode="FAST_COMPILE")
        got, shape = f(x, w)
        wanted = direct(
            x, w, options["border_mode"], *(options[n] for n in ("subsample", "filter_dilation", "num_groups")), flip
        )
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)
        assert tuple(shape) == wanted.shape


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_gradients(rng, ndim):
    op, cases = CONVS[ndim], (random_case(rng, ndim) for _ in range(100))
    x, w, options, flip = next(case for case in cases if 0 not in op(*case[:2], **case[2]).type.shape)

    def f(a, b):
        return op(a, b, **options, filter_flip=flip)

    def g(a, b):
        return pytensor.grad(pt.sqr(f(a, b)).sum(), [a, b])[0]

    with pytensor.config.change_flags(mode="FAST_COMPILE"):  # it compiles more than what gets its mode
        verify_grad(f, [x, w], rng=rng)
        verify_grad(g, [x, w], rng=rng)


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "CVM", "NUMBA"])
def test_modes(rng, mode, c_compiler):
    x, w = variables(2, "x", "w")
    cost = pt.sqr(nn.conv2d(x, w, border_mode="half", subsample=(2, 1))).sum()
    values = rng.normal(size=(2, 3, 7, 8)), rng.normal(size=(4, 3, 3, 3))
    linker = "cvm" if mode == "CVM" else None
    chosen = pytensor.compile.mode.Mode(linker=linker) if linker else mode
    got = pytensor.function([x, w], [cost, *pytensor.grad(cost, [x, w])], mode=chosen)(*values)
    y = direct(*values, ((1, 1), (1, 1)), (2, 1), (1, 1), 1, True)
    np.testing.assert_allclose(got[0], (y**2).sum())
    step = 1e-6
    moved = values[0].copy()
    moved[1, 2, 3, 4] += step
    slope = ((direct(moved, values[1], ((1, 1), (1, 1)), (2, 1), (1, 1), 1, True) ** 2).sum() - (y**2).sum()) / step
    np.testing.assert_allclose(got[1][1, 2, 3, 4], slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("mode", "length"), [("valid", 5), ("half", 9), ("full", 13), (1, 7), (((0, 3),), 8)])
def test_border_modes(rng, mode, length):
    x, w = pt.tensor("x", shape=(2, 1, 9)), pt.tensor("w", shape=(1, 1, 5))
    y = nn.conv1d(x, w, border_mode=mode)
    assert y.type.shape == (2, 1, length)
    value = rng.normal(size=(2, 1, 9)), rng.normal(size=(1, 1, 5))
    assert y.eval({x: value[0].astype(x.dtype), w: value[1].astype(w.dtype)}, mode="FAST_COMPILE").shape == (
        2,
        1,
        length,
    )


def test_equals_numpy_convolve(rng):
    x, w = rng.normal(size=12), rng.normal(size=5)
    for mode in ("valid", "full"):
        y = nn.conv1d(x[None, None], w[None, None], border_mode=mode).eval(mode="FAST_COMPILE")
        np.testing.assert_allclose(y[0, 0], np.convolve(x, w, mode))


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_transposed_is_the_gradient(rng, ndim):
    for number in range(4):
        strides, dilation = (tuple(map(int, rng.integers(1, 4, ndim))) for _ in range(2))
        extra = tuple(int(rng.integers(0, s)) for s in strides)
        x, w = rng.normal(size=(2, 4, *rng.integers(1, 5, ndim))), rng.normal(size=(4, 3, *rng.integers(1, 4, ndim)))
        options = {"filter_dilation": dilation, "num_groups": 2}
        z = TRANSPOSED[ndim](x, w, input_dilation=strides, output_padding=extra, **options)
        big = pt.tensor("big", shape=z.type.shape, dtype="float64")
        y = CONVS[ndim](big, w, subsample=strides, **options)
        assert y.type.shape[2:] == x.shape[2:]
        wanted = pytensor.grad((y * x).sum(), big)
        got, wanted = pytensor.function([big], [z, wanted], mode="FAST_COMPILE")(np.zeros(z.type.shape))
        np.testing.assert_allclose(got, wanted)
        if number:
            continue
        verify_grad(
            lambda a, b, o=options | {"input_dilation": strides, "output_padding": extra}: TRANSPOSED[ndim](a, b, **o),
            [x, w],
            rng=rng,
            mode="FAST_COMPILE",
        )


def test_numba_writes_no_warning(rng):
    x, w = variables(1, "x", "w")
    y = nn.pool_1d(nn.conv1d(x, w), 2).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = pytensor.function([x, w], pytensor.grad(y, w), mode="NUMBA")
        assert f(rng.normal(size=(2, 3, 9)), rng.normal(size=(4, 3, 2))).shape == (4, 3, 2)


def test_pushforward(rng):
    x, w = variables(1, "x", "w")
    dx, dw = variables(1, "dx", "dw")
    y = nn.conv1d(x, w, subsample=2)
    values = [rng.normal(size=s) for s in ((2, 3, 9), (4, 3, 2)) * 2]
    got = pytensor.function(
        [x, w, dx, dw], pytensor.gradient.pushforward(y, [x, w], [dx, dw], use_op_pushforward=True), mode="FAST_COMPILE"
    )(*values)
    a, b, da, db = values
    wanted = direct(da, b, ((0, 0),), (2,), (1,), 1, True) + direct(a, db, ((0, 0),), (2,), (1,), 1, True)
    np.testing.assert_allclose(got, wanted)


def test_what_makes_no_sense_is_refused():
    x, w = pt.tensor("x", shape=(None, 4, 9)), pt.tensor("w", shape=(6, 2, 3))
    for options in (
        {"subsample": 0},
        {"filter_dilation": (1, 1)},
        {"num_groups": 0},
        {"border_mode": -1},
        {"border_mode": "wide"},
        {"border_mode": (1, 1)},
        {},  # 4 channels, but kernels for 2
    ):
        with pytest.raises(ValueError):
            nn.conv1d(x, w, **options)
    with pytest.raises(TypeError, match="4-d array"):
        nn.conv2d(x, w)
    with pytest.raises(ValueError, match="output_padding"):
        nn.conv1d_transpose(x, w, output_padding=1)
    sx, sw = variables(1, "x", "w")
    f = pytensor.function([sx, sw], nn.conv1d(sx, sw), mode="FAST_COMPILE")
    with pytest.raises(ValueError, match="Shape mismatch"):
        f(np.ones((1, 4, 9)), np.ones((6, 2, 3)))


@pytest.mark.parametrize("ndim", [1, 2])
def test_symbolic_parameters(rng, ndim):
    """The values, shapes and gradients of parameters that are known."""
    step, spread, pad, after = (pt.lscalar(n) for n in ("step", "spread", "pad", "after"))
    x, w = variables(ndim, "x", "w")

    def results(step, spread, pads, mode):
        y = CONVS[ndim](x, w, border_mode=pads, subsample=step, filter_dilation=spread)
        z = TRANSPOSED[ndim](y, w, None, border_mode=mode, input_dilation=step)
        slopes = pytensor.grad(pt.sqr(y).sum() + (z**3).sum(), [x, w])
        return [y, y.shape, z, *slopes, pytensor.grad(pt.sqr(slopes[0]).sum(), w)]

    outputs = results(step, (1,) * (ndim - 1) + (spread,), ((pad, after),) * ndim, "half")
    f = pytensor.function([x, w, step, spread, pad, after], outputs, mode="FAST_COMPILE")
    values = [0.1 * rng.normal(size=s) for s in ((2, 3, *(7, 8)[:ndim]), (3, 3, *(3, 2)[:ndim]))]
    for numbers in ((1, 1, 0, 0), (2, 3, 2, 1), (3, 1, 1, 0)):
        s, d, a, b = numbers
        wanted = pytensor.function(
            [x, w], results(s, (1,) * (ndim - 1) + (d,), ((a, b),) * ndim, "half"), mode="FAST_COMPILE"
        )(*values)
        for got, value in zip(f(*values, *numbers), wanted, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-10)
    for wrong, name in (
        ((0, 1, 0, 0), "(subsample|input_dilation)"),
        ((1, -1, 0, 0), "dilation"),
        ((1, 1, 0, -1), "border_mode"),
    ):
        with pytest.raises(ValueError, match=f"{name}.*must"):
            f(*values, *wrong)


@pytest.mark.parametrize("mode", ["FAST_RUN", "NUMBA"])
def test_shape_of_a_wrong_symbolic_stride(mode, c_compiler):
    x, w, step = (*variables(1, "x", "w"), pt.lscalar("step"))
    shape = nn.conv1d(x, w, subsample=step, border_mode="half").shape
    f = pytensor.function([x, w, step], shape, mode=mode)
    values = np.ones((2, 3, 9)), np.ones((4, 3, 3))
    assert list(f(*values, 2)) == [2, 4, 5]
    with pytest.raises(ValueError, match="subsample must be a positive integer"):
        f(*values, 0)


BATCHES = {"images": ((3,), None), "filters": (None, (2, 1)), "both": ((3,), (2, 3)), "one": ((1, 2), (4, 2))}
"""Batch axes in front of x and of w; None for none."""


def batched_case(rng, groups, shapes, dtype="float64"):
    """Arrays with and without batch axes, their variables, and those outputs of a convolution that `vectorize` takes."""
    core = (2, 2 * groups, 6, 5), (3 * groups, 2, 3, 2)
    x, w = (pt.tensor(n, shape=(None,) * 4, dtype=dtype) for n in "xw")
    y = nn.conv2d(x, w, border_mode="half", subsample=(2, 1), num_groups=groups)
    outputs = [y, *pytensor.grad((y**3).sum(), [x, w])]
    values = [0.5 * rng.normal(size=(*(s or ()), *c)).astype(dtype) for s, c in zip(shapes, core, strict=True)]
    wide = [pt.tensor(shape=(None,) * v.ndim, dtype=dtype) for v in values]
    for v, s in zip(range(2), shapes, strict=True):
        if s and 1 in s:
            wide[v] = pt.tensor(shape=(*(n if n == 1 else None for n in s), *(None,) * 4), dtype=dtype)
    replaced = {old: new for old, new, s in zip((x, w), wide, shapes, strict=True) if s is not None}
    return [x, w], outputs, values, [replaced.get(v, v) for v in (x, w)], vectorize_graph(outputs, replaced)


def check_batches(f, single, values, shapes):
    """Compare with one call for each entry of the batch; gradients of what has no batch have one, too."""
    shape = np.broadcast_shapes(*(s for s in shapes if s is not None))
    wide = [
        v if s is None else np.broadcast_to(v, (*shape, *v.shape[len(s) :]))
        for v, s in zip(values, shapes, strict=True)
    ]
    results = f(*values)
    assert all(r.shape[: len(shape)] == shape for r in results)
    for at in np.ndindex(*shape):
        wanted = single(*(v if s is None else v[at] for v, s in zip(wide, shapes, strict=True)))
        for got, value in zip(results, wanted, strict=True):
            np.testing.assert_allclose(got[at], value, rtol=1e-4, atol=1e-4 * np.abs(value).max())


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("batch", BATCHES)
def test_batches(rng, batch, groups):
    inputs, outputs, values, wide, batched = batched_case(rng, groups, BATCHES[batch])
    assert not any("Blockwise" in str(v.owner.op) for v in batched)
    single = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    check_batches(pytensor.function(wide, batched, mode="FAST_COMPILE"), single, values, BATCHES[batch])


@pytest.mark.parametrize(("batch", "shape"), [("images", (0, 2, 6, 3, 6)), ("filters", (0, 2, 6, 3, 6))])
def test_empty_batches(rng, batch, shape):
    shapes = {"images": ((0,), None), "filters": (None, (0,))}[batch]
    *_, values, wide, batched = batched_case(rng, 2, shapes)
    assert pytensor.function(wide, batched[0], mode="FAST_COMPILE")(*values).shape == shape
    with pytest.raises(ValueError, match="empty batch"):  # filters with a gradient for each entry
        pytensor.function(wide, batched, mode="FAST_COMPILE")(*values)
