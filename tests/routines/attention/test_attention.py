"""Attention and its gradients against NumPy: schedules, dtypes, masks, strides, empty arrays, dropout, memory."""

from dataclasses import replace

import numpy as np
import pytest

from pytensor_cl.routines.attention import routine
from pytensor_cl.routines.attention.routine import Attention, AttentionGrad, Form
from pytensor_cl.runtime.layout import Layout
from tests.small_device import small_device

# Shapes N, H, Hk, L, S, E, Ev; alignment of the causal mask; shape of the mask; its dtype. Few kernels compute them.
CASES = {
    "small": ((1, 2, 2, 5, 7, 8, 6), None, None, None),
    "blocks": ((2, 2, 2, 100, 170, 64, 64), None, None, None),
    "grouped": ((2, 4, 2, 50, 130, 16, 20), "upper_left", (2, 1, 50, 130), "bool"),
    "added mask": ((1, 6, 2, 97, 210, 40, 33), "lower_right", (1, 1, 97, 210), "float"),
    "more queries": ((1, 3, 3, 210, 97, 5, 7), "lower_right", None, None),
    "keys": ((2, 3, 3, 1, 300, 64, 64), "lower_right", (2, 1, 1, 300), "bool"),
    "mask of queries": ((1, 3, 3, 60, 90, 8, 8), "lower_right", (1, 3, 60, 1), "float"),
    "wide": ((1, 2, 1, 70, 67, 132, 76), "lower_right", None, None),
    "no query": ((1, 2, 2, 0, 5, 3, 6), None, None, None),
    "no key": ((1, 2, 2, 3, 0, 3, 6), None, None, None),
    "no feature": ((1, 2, 2, 3, 5, 0, 6), None, None, None),
}


def words(x):
    """The finaliser of MurmurHash3."""
    x = (x ^ (x >> np.uint64(16))) * np.uint64(0x85EBCA6B) % np.uint64(2**32)
    x = (x ^ (x >> np.uint64(13))) * np.uint64(0xC2B2AE35) % np.uint64(2**32)
    return x ^ (x >> np.uint64(16))


def kept(seed, shape, rate):
    """Factors of the probabilities, from the definition of the hash in kernels/attention/dropout.mako."""
    n, h, i, j = (np.arange(size, dtype="uint64") for size in shape)
    first = words((n[:, None, None] * np.uint64(shape[1]) + h[:, None]) ^ np.uint64(seed[0]))
    low = words((first + i * np.uint64(0x9E3779B9)) % np.uint64(2**32))
    high = words(low ^ np.uint64(seed[1]))
    return (words(words(j ^ low[..., None]) ^ high[..., None]) >= round(rate * 2**32)) / (1 - rate)


def reference(q, k, v, grad, form, mask=None, seed=None):
    """Result, logs of the sums, and gradients, in float64."""
    dtype = q.dtype
    q, k, v, grad = (x.astype("float64") for x in (q, k, v, grad))
    (n, heads, queries, features), (_, shared, keys, _) = q.shape, k.shape
    k, v = (np.repeat(x, heads // shared, axis=1) for x in (k, v))
    scale = 1 / np.sqrt(max(features, 1)) if form.scale is None else form.scale
    scores = q @ k.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if form.causal:
        offset = keys - queries if form.causal == "lower_right" else 0
        scores = np.where(np.arange(keys) <= np.arange(queries)[:, None] + offset, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    parts = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = parts.sum(axis=-1, keepdims=True)
    is_empty = total == 0
    sums = np.where(is_empty, 0, np.log(np.where(is_empty, 1, total)) + np.where(is_empty, 0, largest))[..., 0]
    p = parts / np.where(is_empty, 1, total)
    factors = 1 if seed is None else kept(seed, scores.shape, form.dropout)
    out = p * factors @ v
    correction = (out * grad).sum(axis=-1)
    ds = p * (grad @ v.swapaxes(-1, -2) * factors - correction[..., None])
    grouped = (n, shared, heads // shared, keys, -1)
    dk, dv = ds.swapaxes(-1, -2) @ q * scale, (p * factors).swapaxes(-1, -2) @ grad
    dk, dv = (x.reshape((*grouped[:-1], x.shape[-1])).sum(axis=2) for x in (dk, dv))
    return [x.astype(dtype) for x in (out, sums, correction, ds @ k * scale, dk, dv)]


def draw(rng, case, dtype="float32"):
    """Inputs of a case: query, key, value, gradient of the result, mask; and the form."""
    (n, heads, shared, queries, keys, features, values), causal, mask_shape, mask_kind = CASES[case]
    shapes = ((n, heads, queries, features), (n, shared, keys, features), (n, shared, keys, values))
    arrays = [rng.normal(size=s).astype(dtype) for s in (*shapes, (n, heads, queries, values))]
    mask = None
    if mask_kind == "bool":
        mask = rng.random(mask_shape) > 0.4
        mask[:, :, :1] = mask_shape[2] == 1  # the first query has no key
    elif mask_kind:
        mask = rng.normal(size=mask_shape).astype(dtype)
        mask[..., -1] = -np.inf if mask_shape[3] > 1 else 0
    form = Form(causal, heads != shared, None if mask is None else mask.dtype.name)
    return arrays, mask, form


def check(context, schedule, arrays, mask, form, seed=None, tolerance=3e-5):
    """Compare the routines with NumPy."""
    q, k, v, grad = arrays
    out, sums, correction, *gradients = reference(q, k, v, grad, form, mask, seed)
    forward, backward = (kind(context, q.dtype, form, schedule=schedule) for kind in (Attention, AttentionGrad))
    context.build((*forward.sources(), *backward.sources()))
    given = [context.from_host(x) for x in (q, k, v, mask, seed) if x is not None]
    got = forward(*given)
    for found, wanted in zip(got, (out, sums), strict=True):
        np.testing.assert_allclose(found.to_host(), wanted, rtol=tolerance, atol=tolerance)
    got = backward(*given, *(context.from_host(x) for x in (sums, correction, grad)))
    for found, wanted in zip(got, gradients, strict=True):
        np.testing.assert_allclose(found.to_host(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES)
def test_values(context, rng, schedule, case):
    check(context, schedule, *draw(rng, case))


@pytest.mark.parametrize("case", ["blocks", "wide"])
def test_wide_indices(context, rng, monkeypatch, case):
    monkeypatch.setattr(routine, "index_type", lambda reach: "long")
    check(context, "simt", *draw(rng, case))


def test_tiles_suit_the_device_and_the_problem(context):
    """Tall tiles where there is one for each compute unit, for kernels that hold few sums."""
    tiles = {}
    for dtype in ("float32", "float64"):
        attention = Attention(context, dtype, Form(), schedule="simt")
        info = replace(context.info, compute_units=132, max_work_group_size=1024, local_memory=48 << 10)
        for kind, depth, rows in (
            ("forward", 64, 1024),
            ("forward", 64, 512),
            ("forward", 128, 1024),
            ("value_gradient", 64, 1024),
            ("key_gradient", 64, 1024),
        ):
            attention.limits.info = info
            tiles[dtype, kind, depth, rows] = attention._simt_tile(kind, depth, rows, 16)
            attention.limits.info = replace(info, max_work_group_size=64)
            assert attention._simt_tile(kind, depth, rows, 16) == (32, 32, 4)
            attention.limits.info = replace(info, local_memory=8 << 10)
            smaller = {"float32": (16, 16, 4), "float64": (8, 8, 4)}[dtype]
            assert attention._simt_tile(kind, depth, rows, 16) == smaller
    singles = [tiles.pop(key) for key in list(tiles) if key[0] == "float32"]
    assert [tile.own for tile in singles] == [64, 32, 32, 64, 32]
    assert {tile.other for tile in singles} == {64}
    assert set(tiles.values()) == {(32, 32, 4)}


@pytest.mark.parametrize("case", ["grouped", "added mask", "wide"])
def test_double(context, rng, schedule, case):
    check(context, schedule, *draw(rng, case, "float64"), tolerance=1e-11)


@pytest.mark.parametrize("case", ["grouped", "more queries"])
def test_dropout(context, rng, schedule, case):
    arrays, mask, form = draw(rng, case)
    seed = np.array([2**31 - 5, 12345])
    check(context, schedule, arrays, mask, form._replace(dropout=0.3), seed)


@pytest.mark.parametrize("case", ["grouped", "more queries"])
def test_gradients_in_two_launches(context, rng, case, monkeypatch):
    """Gradients take two launches where there are fewer heads than compute units."""
    monkeypatch.setattr(AttentionGrad, "_fills_device", lambda self, heads: False)
    arrays, mask, form = draw(rng, case)
    check(context, "cpu", arrays, mask, form)


def test_strides(context, rng, schedule):
    q, k, v = (rng.normal(size=(2, 40, 3, 8)).astype("float32") for _ in range(3))
    form = Form()
    attention = Attention(context, "float32", form, schedule=schedule)
    views = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
    given = [x.with_layout(_turned(x.layout)) for x in map(context.from_host, (q, k, v))]
    parts = (np.s_[..., ::-1], np.s_[:, :, ::-2], np.s_[:, :, 1::2])
    views, given = ([x[part] for x, part in zip(xs, parts, strict=True)] for xs in (views, given))
    wanted = reference(*views, np.zeros((2, 3, 40, 8), "float32"), form)[0]
    np.testing.assert_allclose(attention(*given)[0].to_host(), wanted, rtol=3e-5, atol=3e-5)


def _turned(layout):
    (n, length, heads, features), (a, b, c, d) = layout.shape, layout.strides
    return Layout((n, heads, length, features), (a, c, b, d), layout.offset)


def test_nan_where_it_belongs(context, rng, schedule):
    (q, k, v, _), _, _ = draw(rng, "blocks")
    k[0, 0, 3] = np.nan
    mask = np.ones((1, 1, 100, 170), bool)
    mask[..., 3] = False
    form = Form("lower_right", mask="bool")  # the kernel of another test
    attention = Attention(context, "float32", form, schedule=schedule)
    given = [context.from_host(x) for x in (q, k, v)]
    out = attention(*given, context.from_host(mask))[0].to_host()
    assert np.isfinite(out).all()  # a masked score has no influence
    mask[:, :, 5] = True
    out = attention(*given, context.from_host(mask))[0].to_host()
    assert np.isnan(out[0, 0, 5]).all()
    assert np.isfinite(out[0, 1:]).all() and np.isfinite(out[0, 0, 6:]).all()


def test_large_scores(context, rng, schedule):
    (q, k, v, grad), mask, form = draw(rng, "blocks", "float64")
    check(context, schedule, [100 * q, k, v, grad], mask, form, tolerance=1e-9)


def test_dtypes_in_one_program(context, rng):
    kinds = [Attention(context, dtype, Form(dropout=0.5), schedule="cpu") for dtype in ("float32", "float64")]
    kinds.append(Attention(context, "float32", Form(dropout=0.5), schedule="simt"))
    context.build([source for kind in kinds for source in kind.sources()])


def test_small_device(context, rng):
    """Work-groups and tiles become smaller."""
    with small_device(context, max_work_group_size=16) as launched:
        check(context, "simt", *draw(rng, "small"))
    assert len(launched) >= 4


def test_shapes_that_do_not_fit(context):
    attention = Attention(context, "float32", Form())
    q, k = Layout.contiguous((1, 4, 5, 8)), Layout.contiguous((1, 2, 7, 8))
    for shapes in ((q, k, k), (q, q, k), (k, Layout.contiguous((1, 2, 7, 9)), k)):
        with pytest.raises(ValueError, match="Shape mismatch"):
            attention.layout(*shapes)
    grouped = Attention(context, "float32", Form(grouped=True))
    assert grouped.layout(q, k, k)[0].shape == (1, 4, 5, 8)
    with pytest.raises(ValueError, match="heads"):
        grouped.layout(Layout.contiguous((1, 3, 5, 8)), k, k)
    masked = Attention(context, "float32", Form(mask="bool"))
    with pytest.raises(ValueError, match="mask"):
        masked.layout(k, k, k, Layout.contiguous((1, 1, 7, 6)))
