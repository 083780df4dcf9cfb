"""Attention: PyTorch's values, gradients, border cases, arguments; on devices and in other modes."""

import json
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph

import pytensor_cl
from pytensor_cl import nn
from pytensor_cl.nn.attention import Attention, AttentionGrad
from pytensor_cl.ops.attention import GpuAttention, GpuAttentionGrad
from tests.helpers import assert_on_device, on_one_driver, opencl

TORCH = json.loads((Path(__file__).parent / "torch_attention.json").read_text())
IN_PYTHON = {"mode": "FAST_COMPILE", "on_unused_input": "ignore"}
sdpa = nn.scaled_dot_product_attention


def numbers(shape, phase):
    """The inputs of tools/torch_attention.py."""
    return np.cos(np.arange(np.prod(shape)) ** 2 + phase).reshape(shape) * 2 + phase


def arrays(dtype="float64", ndim=4):
    return [pt.tensor(name, dtype=dtype, shape=(None,) * ndim) for name in "qkv"]


def draw(rng, *shapes, dtype="float64"):
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


# Values


@pytest.mark.parametrize("key", [k for k in TORCH if TORCH[k]["case"][0] == "attention"])
def test_torch_values(key):
    (_, q_shape, kv_shape, mask_shape, options), wanted = TORCH[key]["case"], TORCH[key]
    values = [numbers(q_shape, 0.1), numbers(kv_shape, 0.2), numbers(kv_shape, 0.3)]
    mask = None if mask_shape is None else numbers(mask_shape, 0.4)
    mask = mask > 0 if options.pop("is_bool", False) else mask
    inputs = arrays()
    out = sdpa(*inputs, mask, **options)
    first = pytensor.grad((out * numbers(wanted["shape"], 0.5)).sum(), inputs)
    second = pytensor.grad(sum((g**2).sum() for g in first), inputs)
    found = pytensor.function(inputs, [out, *first, *second], **IN_PYTHON)(*values)
    for got, value in zip(found, wanted["values"], strict=True):
        np.testing.assert_allclose(got.ravel(), value, rtol=1e-10, atol=1e-10)


def weights_of_heads(shared=4):
    shapes = ((8 + 4 * shared, 8), (8 + 4 * shared,), (8, 8), (8,))
    return [pytensor.shared(numbers(s, i / 10) / 3, name=f"w{i}", shape=s) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("key", [k for k in TORCH if TORCH[k]["case"][0] == "heads"])
def test_torch_multi_head_attention(key):
    (_, options), wanted = TORCH[key]["case"], TORCH[key]
    query, other = pt.dtensor3("query"), pt.dtensor3("other")
    x, y = numbers((2, 3, 8), 0.6), numbers((2, 5, 8), 0.7)
    weights = weights_of_heads()
    if options["is_self"]:
        key_mask = np.array([[True, True, False], [True, True, True]]) if options["has_mask"] else None
        out = nn.multi_head_attention(query, query, query, 4, *weights, key_mask=key_mask, is_causal=options["causal"])
    else:
        out = nn.multi_head_attention(query, other, other, 4, *weights)
    grads = pytensor.grad((out * numbers((2, 3, 8), 0.5)).sum(), weights)
    found = pytensor.function([query, other], [out, *grads], **IN_PYTHON)(x, y)
    for got, value in zip(found, wanted["values"], strict=True):
        np.testing.assert_allclose(got.ravel(), value, rtol=1e-10, atol=1e-10)


def test_shared_heads_of_multi_head_attention(rng):
    """Two heads that share a key are as heads with the same key."""
    x = pt.dtensor3("x")
    grouped, full = weights_of_heads(2), weights_of_heads()
    weight, bias = (v.get_value() for v in grouped[:2])
    rows = np.r_[0:8, np.repeat(np.arange(8, 16).reshape(2, 1, 4), 2, axis=1)[:, :, :2].ravel()]
    assert rows.size == 16
    two = np.r_[0:8, 8:10, 8:10, 10:12, 10:12, 12:14, 12:14, 14:16, 14:16]
    full[0].set_value(weight[two])
    full[1].set_value(bias[two])
    full[2].set_value(grouped[2].get_value())
    full[3].set_value(grouped[3].get_value())
    results = [
        nn.multi_head_attention(x, x, x, 4, *grouped, num_kv_heads=2),
        nn.multi_head_attention(x, x, x, 4, *full),
    ]
    a, b = pytensor.function([x], results, **IN_PYTHON)(rng.normal(size=(2, 3, 8)))
    np.testing.assert_allclose(a, b)


# Gradients


MASKED = {"attn_mask": np.array([[True, True, False], [False] * 3]), "is_causal": "lower_right", "enable_gqa": True}


def test_gradients(rng):
    values = draw(rng, (1, 2, 2, 2), (1, 1, 3, 2), (1, 1, 3, 2))
    verify_grad(lambda *inputs: sdpa(*inputs, **MASKED), values, rng=rng, mode="FAST_COMPILE")


def test_second_gradients_of_a_query_without_keys(rng):
    """PyTorch's values are those of other rows."""
    inputs = arrays()
    first = pytensor.grad((sdpa(*inputs, **MASKED) ** 2).sum(), inputs)
    second = pytensor.grad(sum((g**2).sum() for g in first), inputs)
    got = pytensor.function(inputs, second, **IN_PYTHON)(*draw(rng, (1, 2, 2, 2), (1, 1, 3, 2), (1, 1, 3, 2)))
    assert all(np.isfinite(x).all() for x in got)
    assert (got[0][:, :, 1] == 0).all() and (got[0][:, :, 0] != 0).all()


def test_gradient_of_a_mask(rng):
    values = draw(rng, (2, 2, 3, 2), (2, 2, 4, 2), (2, 2, 4, 2))

    def masked(mask):
        return sdpa(*map(pt.constant, values), mask[:, None], is_causal=True)

    verify_grad(masked, draw(rng, (2, 1, 4)), rng=rng, mode="FAST_COMPILE")


def test_gradients_are_connected_to_floats_only():
    q, k, v = arrays()
    mask = pt.tensor("mask", dtype="bool", shape=(1, 1, None, None))
    with pytest.raises(pytensor.gradient.DisconnectedInputError):
        pytensor.grad(sdpa(q, k, v, mask).sum(), mask)


# Modes


@on_one_driver
@pytest.mark.parametrize("mode", ["NUMBA", "FAST_COMPILE", "OPENCL", "JAX"])
def test_modes(context, rng, mode, on_device):
    """Values, rows without keys and empty arrays."""
    if mode == "JAX":
        pytest.importorskip("jax")
    shapes = [(2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)]
    q, k, v = (pt.dtensor4(n) if mode != "JAX" else pt.tensor(n, shape=s) for n, s in zip("qkv", shapes, strict=True))
    mask = pt.tensor("mask", dtype="bool", shape=(None, None))
    out = sdpa(q, k, v, mask, enable_gqa=True)
    f = pytensor.function([q, k, v, mask], [out, *pytensor.grad((out**2).sum(), [q, k, v])], mode=mode)
    values, attends = draw(rng, *shapes), np.ones((3, 5), bool)
    attends[1], attends[0, 2] = False, False
    got = f(*values, attends)
    key, value = (np.repeat(x, 2, axis=1) for x in values[1:])
    scores = np.where(attends, values[0] @ key.swapaxes(-1, -2) / 2, -np.inf)
    parts = np.exp(scores - np.where(attends.any(1, keepdims=True), scores.max(-1, keepdims=True), 0))
    total = parts.sum(-1, keepdims=True)
    wanted = parts / np.where(total == 0, 1, total) @ value
    np.testing.assert_allclose(got[0], wanted, rtol=1e-10, atol=1e-12)
    assert (got[0][:, :, 1] == 0).all() and (got[1][:, :, 1] == 0).all()  # no key: zeros
    assert all(np.isfinite(x).all() for x in got)
    if mode == "OPENCL":
        assert_on_device(f, GpuAttention, GpuAttentionGrad)
    for queries, keys in ((0, 3), (3, 0), (0, 0)) if mode != "JAX" else ():
        empty = draw(rng, (2, 4, queries, 4), (2, 2, keys, 4), (2, 2, keys, 5))
        got = f(*empty, np.ones((queries, keys), bool))
        assert [x.shape for x in got] == [(2, 4, queries, 5), *(x.shape for x in empty)]
        assert all((x == 0).all() for x in got)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_device(context, rng, dtype, on_device):
    q, k, v = arrays(dtype)
    out = sdpa(q, k, v, is_causal=True)
    weights = rng.normal(size=(2, 3, 20, 8)).astype(dtype)
    outputs = [out, *pytensor.grad((out * weights).sum(), [q, k, v])]
    f, g = opencl([q, k, v], outputs), pytensor.function([q, k, v], outputs, **IN_PYTHON)
    assert_on_device(f, GpuAttention, GpuAttentionGrad)
    values = draw(rng, *[(2, 3, 20, 8)] * 3, dtype=dtype)
    tolerance = {"float16": 1e-2, "float32": 2e-5, "float64": 1e-11}[dtype]
    for got, wanted in zip(f(*values), g(*values), strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def test_memory_is_linear(context, rng, on_device):
    """All that forward and backward pass allocate is less than a 16th of an array (L, S)."""
    length = 4096
    q, k, v = arrays("float32")
    out = sdpa(q, k, v, is_causal=True)
    f = opencl([q, k, v], pytensor.grad(out.sum(), [q, k, v]))
    values = draw(rng, *[(1, 1, length, 8)] * 3, dtype="float32")
    for _ in range(4):
        f(*values)
    (report,) = pytensor_cl.explain(f).captured_graphs
    assert 0 < report.peak_bytes < length * length * 4 / 16


# Dropout


@on_one_driver
@pytest.mark.parametrize("mode", ["NUMBA", "OPENCL"])
def test_dropout_is_the_same_in_each_mode(context, rng, mode, on_device):
    q, k, v = arrays()
    generator = pt.random.rng("generator")
    _, out = sdpa(q, k, v, dropout_p=0.4, is_causal=True, rng=generator)
    outputs = [out, *(pytensor.grad((out**2).sum(), [q, k, v]) if mode == "OPENCL" else ())]
    values = (*draw(rng, *[(2, 2, 30, 4)] * 3), np.random.default_rng(5))
    f, g = (pytensor.function([q, k, v, generator], outputs, mode=m) for m in (mode, "FAST_COMPILE"))
    for got, wanted in zip(f(*values), g(*values), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10)
    if mode == "OPENCL":
        assert_on_device(f, GpuAttention, GpuAttentionGrad)


def test_dropout_rate_and_gradient(rng):
    q, k = pt.zeros((2, 4, 200, 1)), pt.zeros((2, 4, 150, 1))
    generator = pt.random.shared_rng(seed=3)
    next_rng, out = sdpa(q, k, pt.eye(150)[None, None], dropout_p=0.3, rng=generator)
    f = pytensor.function([], out, updates={generator: next_rng}, **IN_PYTHON)
    first, second = f(), f()
    kept = first > 0
    np.testing.assert_allclose(first[kept], 1 / 150 / 0.7)
    assert abs(kept.mean() - 0.7) < 0.005  # five deviations of 240,000 draws
    assert abs((kept & (second > 0)).mean() - 0.49) < 0.005  # the next draw is another one
    assert np.unique(kept.reshape(-1, 150), axis=0).shape[0] == 1600  # rows differ

    def dropped(*inputs):
        return sdpa(*inputs, dropout_p=0.5, rng=pt.random.shared_rng(seed=1))[1]

    verify_grad(dropped, draw(rng, *[(1, 1, 3, 2)] * 3), rng=rng, mode="FAST_COMPILE")


def test_all_or_nothing_dropped(rng):
    q, k, v = arrays()
    generator = pt.random.shared_rng(seed=3)
    next_rng, whole = sdpa(q, k, v, dropout_p=1, rng=generator)
    _, none = sdpa(q, k, v, dropout_p=0, rng=next_rng)
    got = pytensor.function([q, k, v], [whole, none, sdpa(q, k, v)], **IN_PYTHON)(*draw(rng, *[(1, 1, 3, 2)] * 3))
    assert (got[0] == 0).all()
    np.testing.assert_array_equal(got[1], got[2])


def test_prediction_has_no_dropout():
    q, k, v = arrays()
    mask = pt.tensor("mask", dtype="bool", shape=(1, 1, None, None))
    _, out = sdpa(q, k, v, mask, 0.3, rng=pt.random.shared_rng(seed=1))
    predicted = out.owner.op.predict(out.owner)[0]
    assert predicted.owner.op.dropout == 0 and predicted.owner.inputs == [q, k, v, mask]
    assert sdpa(q, k, v).owner.op.predict(sdpa(q, k, v).owner) is None


# Shapes


@pytest.mark.parametrize("ndim", [2, 3, 5])
def test_leading_axes(rng, ndim):
    lead = (2, 3, 2)[: ndim - 2]
    inputs = arrays(ndim=ndim)
    mask = rng.random((*lead[:1], *(1,) * (ndim - 3), 4, 5)[-ndim:]) > 0.3
    mask[..., 0] = True
    out = sdpa(*inputs, mask, scale=pt.constant(0.3))
    assert out.type.ndim == ndim
    values = draw(rng, (*lead, 4, 6), (*lead, 5, 6), (*lead, 5, 7))
    got = pytensor.function(inputs, out, **IN_PYTHON)(*values)
    scores = np.where(mask, values[0] @ values[1].swapaxes(-1, -2) * 0.3, -np.inf)
    parts = np.exp(scores)
    np.testing.assert_allclose(got, parts / parts.sum(-1, keepdims=True) @ values[2], rtol=1e-10)


def test_one_key_for_all(rng):
    q, k = pt.tensor("q", shape=(2, 3, 4, 5)), pt.tensor("k", shape=(1, 1, 6, 5))
    values = draw(rng, (2, 3, 4, 5), (1, 1, 6, 5))
    out = sdpa(q, k, k)
    assert out.type.shape == (2, 3, 4, 5)
    results = [out, *pytensor.grad((out**2).sum(), [q, k])]
    got = pytensor.function([q, k], results, **IN_PYTHON)(*values)
    wide = [pt.tensor(n, shape=(2, 3, 6, 5)) for n in "kv"]
    out = sdpa(q, *wide)
    grads = pytensor.grad((out**2).sum(), [q, *wide])
    full = np.broadcast_to(values[1], (2, 3, 6, 5))
    wanted = pytensor.function([q, *wide], [out, *grads], **IN_PYTHON)(values[0], full, full)
    np.testing.assert_allclose(got[0], wanted[0])
    np.testing.assert_allclose(got[1], wanted[1])
    np.testing.assert_allclose(got[2][0, 0], (wanted[2] + wanted[3]).sum(axis=(0, 1)))


@pytest.mark.parametrize("is_gradient", [False, True])
def test_vectorize(rng, is_gradient):
    q, k, v = arrays()
    out = sdpa(q, k, v, rng.random((1, 1, 3, 4)) > 0.2, is_causal="lower_right")
    if is_gradient:
        out = pytensor.grad((out**2).sum(), k)
    batch, keys = pt.tensor("batch", shape=(None,) * 5), pt.tensor("keys", shape=(None,) * 5)
    many = vectorize_graph(out, {q: batch, k: keys})
    kinds = {type(node.op) for node in pytensor.graph.FunctionGraph(outputs=[many], clone=True).apply_nodes}
    assert Attention in kinds and (AttentionGrad in kinds) == is_gradient
    values = draw(rng, (3, 2, 1, 3, 4), (3, 2, 1, 4, 4), (2, 1, 4, 2))
    got = pytensor.function([batch, keys, v], many, **IN_PYTHON)(*values)
    one = pytensor.function([q, k, v], out, **IN_PYTHON)
    np.testing.assert_allclose(got, [one(a, b, values[2]) for a, b in zip(*values[:2], strict=True)])


# Arguments


def test_errors():
    q, k, v = arrays()
    with pytest.raises(TypeError, match="cast it first"):
        sdpa(pt.ltensor4("i"), k, v)
    with pytest.raises(TypeError, match="dimensions"):
        sdpa(q, pt.dtensor3("k"), v)
    with pytest.raises(TypeError, match="needs rng"):
        sdpa(q, k, v, dropout_p=0.5)
    with pytest.raises(TypeError, match="random generator"):
        sdpa(q, k, v, dropout_p=0.5, rng=3)
    with pytest.raises(TypeError, match="attn_mask must be bool"):
        sdpa(q, k, v, pt.lmatrix("m"))
    with pytest.raises(TypeError, match="more than"):
        sdpa(q, k, v, pt.tensor("m", shape=(1,) * 5))
    with pytest.raises(TypeError, match="scale"):
        sdpa(q, k, v, scale=pt.dvector("s"))
    with pytest.raises(ValueError, match="scale"):
        sdpa(q, k, v, scale=np.inf)
    with pytest.raises(ValueError, match="0 to 1"):
        sdpa(q, k, v, dropout_p=1.5)
    with pytest.raises(ValueError, match="upper_left"):
        sdpa(q, k, v, is_causal="lower")


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((1, 2, 3, 4), (1, 2, 5, 6), (1, 2, 5, 6)), "features"),
        (((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 6, 4)), "same length"),
        (((1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)), "enable_gqa"),
        (((2, 2, 3, 4), (3, 2, 5, 4), (3, 2, 5, 4)), "leading axes"),
    ],
)
def test_static_shapes_that_do_not_fit(shapes, text):
    with pytest.raises(ValueError, match=text):
        sdpa(*(pt.tensor(shape=s) for s in shapes))


@on_one_driver
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "OPENCL"])
def test_shapes_of_calls_that_do_not_fit(context, rng, mode, on_device):
    q, k, v = arrays()
    f = pytensor.function([q, k, v], sdpa(q, k, v), mode=mode)
    for shapes in (((1, 2, 3, 4), (1, 2, 5, 6), (1, 2, 5, 6)), ((1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))):
        with pytest.raises(ValueError):
            f(*draw(rng, *shapes))


def test_mask_that_does_not_fit():
    q, k = pt.tensor(shape=(1, 2, 3, 4)), pt.tensor(shape=(1, 2, 5, 4))
    with pytest.raises(ValueError, match="broadcast"):
        sdpa(q, k, k, pt.tensor(shape=(3, 4), dtype="bool"))


def test_errors_of_multi_head_attention():
    x, weights = pt.tensor("x", shape=(2, 3, 8)), weights_of_heads()
    with pytest.raises(ValueError, match="divide the features"):
        nn.multi_head_attention(x, x, x, 3, *weights)
    with pytest.raises(ValueError, match="must divide num_heads"):
        nn.multi_head_attention(x, x, x, 4, *weights, num_kv_heads=3)
    with pytest.raises(ValueError, match="rows"):
        nn.multi_head_attention(x, x, x, 4, *weights, num_kv_heads=2)
    with pytest.raises(TypeError, match="key_mask"):
        nn.multi_head_attention(x, x, x, 4, *weights, key_mask=np.ones((2, 3)))
    with pytest.raises(TypeError, match="three dimensions"):
        nn.multi_head_attention(pt.tensor(shape=(1, 2, 3, 8)), x, x, 4, *weights)


# Rotary positions


@pytest.mark.parametrize("is_interleaved", [False, True])
def test_rotary(rng, is_interleaved):
    x = pt.dtensor3("x")
    (value,) = draw(rng, (2, 5, 6))
    places = np.array([3, 0, 1, 7, 2])
    got = pytensor.function([x], nn.rotary(x, places, interleaved=is_interleaved), **IN_PYTHON)(value)
    order = np.r_[0, 2, 4, 1, 3, 5] if is_interleaved else np.arange(6)
    pairs = value[..., order][..., :3] + 1j * value[..., order][..., 3:]
    turned = pairs * np.exp(1j * places[:, None] * 10000.0 ** (-np.arange(3) / 3))
    wanted = np.empty_like(value)
    wanted[..., order] = np.concatenate([turned.real, turned.imag], axis=-1)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_rotary_depends_on_distances_only(rng):
    q, k = pt.dmatrix("q"), pt.dmatrix("k")
    scores = [(nn.rotary(q, pt.arange(4) + n) @ nn.rotary(k, pt.arange(4) + n).T) for n in (0, 100)]
    a, b = pytensor.function([q, k], scores, **IN_PYTHON)(*draw(rng, (4, 6), (4, 6)))
    np.testing.assert_allclose(a, b, rtol=1e-8)


def test_rotary_of_float32_far_away():
    """Angles in float32 would be off by 0.004 at this position."""
    x = pt.fmatrix("x")
    got = pytensor.function([x], nn.rotary(x, np.array([100_003])), **IN_PYTHON)(np.array([[1, 0]], "float32"))
    assert got.dtype == "float32"
    np.testing.assert_allclose(got, [[np.cos(100_003), np.sin(100_003)]], rtol=1e-6)


def test_errors_of_rotary():
    with pytest.raises(ValueError, match="even"):
        nn.rotary(pt.tensor(shape=(3, 5)))
    with pytest.raises(ValueError, match="base"):
        nn.rotary(pt.dmatrix(), base=0.0)
    with pytest.raises(TypeError, match="input must be floats"):
        nn.rotary(pt.lmatrix())
