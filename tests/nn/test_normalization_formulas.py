"""`recognise` finds normalisation in a user's own graph, and nothing else."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

from pytensor_cl import nn
from pytensor_cl.nn.standardize import Normalization

X, Z, T = pt.dmatrix("x"), pt.dmatrix("z"), pt.dtensor4("t")
W, B = pt.dvector("w"), pt.dvector("b")
VALUES = {X: (5, 5), Z: (5, 5), T: (2, 5, 3, 2), W: 5, B: 5}
EPS = 1e-3


def markers(graph):
    return [v.owner for v in ancestors([graph]) if v.owner is not None and isinstance(v.owner.op, Normalization)]


def centred(x, axis):
    return x - x.mean(axis, keepdims=True)


def std(x, axis, eps=EPS, **options):
    return pt.sqrt(x.var(axis, keepdims=True, **options) + eps)


FOUND = {
    "layer": (centred(X, -1) / std(X, -1), (1,), ""),
    "layer, scale and shift": (centred(X, -1) / std(X, -1) * W + B, (1,), "scale shift"),
    "scale first": (B + W * (centred(X, 1) / std(X, 1)), (1,), "scale shift"),
    "batch, scale": ((X - X.mean(0)) / pt.sqrt(X.var(0) + EPS) * W, (0,), "scale"),
    "batch, shift": ((X - X.mean(0)) / pt.sqrt(EPS + X.var(0)) + B, (0,), "shift"),
    "dimensions added": ((X - X.mean(1)[:, None]) / pt.sqrt(X.var(1)[:, None] + EPS), (1,), ""),
    "power": (centred(X, 1) * (X.var(1, keepdims=True) + EPS) ** -0.5, (1,), ""),
    "reciprocal": (centred(X, 1) * pt.reciprocal(std(X, 1)), (1,), ""),
    "one over": ((1 / std(X, 1)) * centred(X, 1), (1,), ""),
    "own variance": (centred(X, 1) / (pt.mean(centred(X, 1) ** 2, axis=1, keepdims=True) + EPS) ** 0.5, (1,), ""),
    "images": (
        centred(T, (0, 2, 3)) / std(T, (0, 2, 3)) * W.reshape((1, -1, 1, 1)) + B.dimshuffle("x", 0, "x", "x"),
        (0, 2, 3),
        "scale shift",
    ),
    "root mean square": (X / pt.sqrt(pt.mean(X**2, axis=-1, keepdims=True) + EPS) * W, (1,), "scale rms"),
    "product": (X * (1 / pt.sqrt(pt.mean(X * X, axis=0, keepdims=True) + EPS)), (0,), "rms"),
}

LEFT = {
    "epsilon outside of the root": centred(X, 1) / (pt.sqrt(X.var(1, keepdims=True)) + EPS),
    "epsilon inside and outside": centred(X, 1) / (std(X, 1) + EPS),
    "no epsilon": centred(X, 1) / pt.sqrt(X.var(1, keepdims=True)),
    "negative epsilon": centred(X, 1) / std(X, 1, -EPS),
    "symbolic epsilon": centred(X, 1) / std(X, 1, B[0]),
    "ddof": centred(X, 1) / std(X, 1, ddof=1),
    "other axes": centred(X, 0) / std(X, 1),
    "fewer axes": centred(T, (2, 3)) / std(T, 3),
    "mean along the other axis of a square": (X - X.mean(1)) / std(X, 1),
    "variance along the other axis of a square": centred(X, 1) / pt.sqrt(X.var(1) + EPS),
    "mean of other data": (X - Z.mean(1, keepdims=True)) / std(X, 1),
    "variance of other data": centred(X, 1) / std(Z, 1),
    "not centred": X / std(X, 1),
    "sum of squares": X / pt.sqrt(pt.sum(X**2, axis=1, keepdims=True) + EPS),
    "mean cube": X / pt.sqrt(pt.mean(X**3, axis=1, keepdims=True) + EPS),
    "other power": centred(X, 1) * (X.var(1, keepdims=True) + EPS) ** -1.5,
    "square of the deviation": centred(X, 1) / (X.var(1, keepdims=True) + EPS),
}


def evaluate(graph):
    rng = np.random.default_rng(0)
    values = {v: rng.normal(size=size) for v, size in VALUES.items()}
    f = pytensor.function(list(values), graph, mode="FAST_COMPILE", on_unused_input="ignore")
    return f(*values.values())


@pytest.mark.parametrize("name", FOUND)
def test_recognised(name):
    graph, axes, parts = FOUND[name]
    new = nn.recognise(graph)
    (node,) = {id(n): n for n in markers(new)}.values()
    assert markers(graph) == []
    assert new is node.outputs[0]
    op = node.op
    assert (op.axes, op.epsilon, op.is_centred) == (axes, EPS, "rms" not in parts)
    assert (op.has_scale, op.has_shift) == ("scale" in parts, "shift" in parts)
    np.testing.assert_allclose(evaluate(new), evaluate(graph), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LEFT)
def test_not_recognised(name):
    assert markers(nn.recognise(LEFT[name])) == []


def test_scale_stays_outside_where_the_normalised_values_are_read_twice():
    normal = centred(X, 1) / std(X, 1)
    new = nn.recognise([normal * W, normal])
    assert [n.op.has_scale for v in new for n in markers(v)] == [False, False]


def test_factor_of_each_element_is_no_scale():
    new = nn.recognise(centred(X, 1) / std(X, 1) * Z)
    assert [n.op.has_scale for n in markers(new)] == [False]


@pytest.mark.parametrize("name", ["layer, scale and shift", "images", "root mean square"])
def test_gradient(name):
    graph, *_ = FOUND[name]
    x = T if name == "images" else X
    old, new = (pytensor.grad(pt.sum(pt.sin(g)), [x, W]) for g in (graph, nn.recognise(graph)))
    for got, wanted in zip(evaluate(new), evaluate(old), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)
