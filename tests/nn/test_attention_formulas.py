"""Attention that a user has spelled out is recognised, and nothing else is."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph import FunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs

from pytensor_cl import nn
from pytensor_cl.nn.attention import Attention, AttentionGrad
from pytensor_cl.ops.attention import GpuAttention, GpuAttentionGrad
from tests.helpers import assert_close, assert_on_device, device_ops, on_one_driver, opencl

Q, K, V = (pt.tensor4(n, dtype="float32") for n in "qkv")
BOOL = pt.tensor("attends", dtype="bool", shape=(None, 1, None, None))
ADDED = pt.tensor("added", dtype="float32", shape=(1, 1, None, None))
SCALE = pt.fscalar("scale")
VALUES = {
    "q": lambda rng: rng.normal(size=(2, 3, 5, 4)),
    "k": lambda rng: rng.normal(size=(2, 3, 7, 4)),
    "v": lambda rng: rng.normal(size=(2, 3, 7, 6)),
    "attends": lambda rng: np.arange(70).reshape(2, 1, 5, 7) % 3 > 0,
    "added": lambda rng: rng.normal(size=(1, 1, 5, 7)),
    "scale": lambda rng: 0.7,
    "a": lambda rng: rng.normal(size=(5, 4)),
    "b": lambda rng: rng.normal(size=(7, 4)),
}
A, B = pt.fmatrix("a"), pt.fmatrix("b")
KT = K.swapaxes(-1, -2)


def softmax(x):
    return pt.special.softmax(x, axis=-1)


def spelled_softmax(x):
    parts = pt.exp(x - x.max(axis=-1, keepdims=True))
    return parts / parts.sum(axis=-1, keepdims=True)


FORMULAS = {
    "plain": softmax(Q @ KT) @ V,
    "divided": softmax(Q @ KT / np.float32(2)) @ V,
    "multiplied": softmax(np.float32(0.3) * (Q @ KT) * np.float32(2)) @ V,
    "scaled query": softmax((Q * np.float32(0.3)) @ KT) @ V,
    "root of the features": softmax(Q @ KT / pt.sqrt(Q.shape[-1]).astype("float32")) @ V,
    "symbolic scale": softmax(Q @ KT * SCALE) @ V,
    "where": softmax(pt.where(BOOL, Q @ KT * SCALE, -np.inf)) @ V,
    "where not": softmax(pt.where(~BOOL, -np.inf, Q @ KT)) @ V,
    "added": softmax(Q @ KT * SCALE + ADDED) @ V,
    "two added": softmax(ADDED + Q @ KT + ADDED**2) @ V,
    "added and chosen": softmax(pt.where(BOOL, Q @ KT + ADDED, -np.inf)) @ V,
    "transposed scores": softmax((K @ Q.swapaxes(-1, -2)).swapaxes(-1, -2)) @ V,
    "transposed result": V.swapaxes(-1, -2) @ softmax(Q @ KT).swapaxes(-1, -2),
    "spelled softmax": spelled_softmax(Q @ KT) @ V,
    "matrices": softmax(A @ B.T) @ B,
}
OTHERS = {
    "another axis": pt.special.softmax(Q @ KT, axis=-2) @ V,
    "probabilities are used": softmax(Q @ KT) @ V + softmax(Q @ KT).sum(),
    "scores are used": softmax(Q @ KT) @ V + (Q @ KT).sum(),
    "-1e9 for masked keys": softmax(pt.where(BOOL, Q @ KT, np.float32(-1e9))) @ V,
    "mask of a larger batch": softmax((A[None, None] @ B.T[None, None]) + pt.tensor4("m", dtype="float32")) @ V,
    "no sum": pt.exp(Q @ KT) @ V,
    "another function": softmax(pt.maximum(Q @ KT, 0)) @ V,
    "dropped": (softmax(Q @ KT) * ADDED) @ V,
    "integers": softmax(pt.lmatrix() @ pt.lmatrix()) @ pt.lmatrix(),
    "scaled by rows": softmax(Q @ KT * ADDED) @ V,
}


def ops_of(variable):
    return [type(node.op) for node in FunctionGraph(outputs=[variable], clone=True).apply_nodes]


def arguments(out, rng):
    inputs = list(explicit_graph_inputs([out]))
    return inputs, [np.asarray(VALUES[v.name](rng), v.type.dtype) for v in inputs]


@pytest.mark.parametrize("key", FORMULAS)
def test_recognised(rng, key):
    out = FORMULAS[key]
    new = nn.recognise(out)
    kinds = ops_of(new)
    assert kinds.count(Attention) == 1
    assert new.type == out.type
    inputs, values = arguments(out, rng)
    got, wanted = pytensor.function(inputs, [new, out], mode="FAST_COMPILE")(*values)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("key", OTHERS)
def test_not_recognised(key):
    assert Attention not in ops_of(nn.recognise(OTHERS[key]))


def test_gradient_of_what_was_recognised(context, rng, on_device):
    out = nn.recognise(FORMULAS["where"])
    inputs, values = arguments(out, rng)
    outputs = [out, *pytensor.grad((out**2).sum(), [Q, K, V, SCALE])]
    f = opencl(inputs, outputs)
    assert_on_device(f, GpuAttention, GpuAttentionGrad)
    plain = FORMULAS["where"]
    wanted = [plain, *pytensor.grad((plain**2).sum(), [Q, K, V, SCALE])]
    for got, value in zip(f(*values), pytensor.function(inputs, wanted, mode="FAST_COMPILE")(*values), strict=True):
        assert_close(got, value, rtol=1e-4)


def test_recognised_when_compiled(context, rng, on_device):
    out = FORMULAS["added"]
    inputs, values = arguments(out, rng)
    f = opencl(inputs, out)
    assert_on_device(f, GpuAttention)
    assert_close(f(*values), pytensor.function(inputs, out, mode="FAST_COMPILE")(*values), rtol=1e-4)


@on_one_driver
def test_not_when_the_gradient_reads_the_probabilities(context, on_device):
    """Half of it would compute the scores twice."""
    out = FORMULAS["plain"]
    f = opencl([Q, K, V], [out, *pytensor.grad(out.sum(), [Q, K, V])])
    assert not {GpuAttention, GpuAttentionGrad} & {type(op) for op in device_ops(f)}


def test_function_of_pytensor_ml(rng):
    layers = pytest.importorskip("pytensor_ml.layers")
    q, k, v = (
        pt.tensor(n, shape=(None, heads, 6, 4), dtype="float32") for n, heads in zip("qkv", (4, 2, 2), strict=True)
    )
    out = layers.scaled_dot_product_attention(q, k, v, is_causal=True)
    new = nn.recognise(out)
    assert Attention in ops_of(new) and AttentionGrad in ops_of(pytensor.grad(new.sum(), q))
    values = [rng.normal(size=(2, heads, 6, 4)).astype("float32") for heads in (4, 2, 2)]
    got, wanted = pytensor.function([q, k, v], [new, out], mode="FAST_COMPILE")(*values)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
