"""Cross entropy that users spell out becomes the function, and only where it is the same."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

from pytensor_cl import nn
from pytensor_cl.nn.cross_entropy import CrossEntropy

x, t, y, w = pt.dmatrix("x"), pt.dmatrix("t"), pt.lvector("y"), pt.dvector("w")
x3, y2 = pt.dtensor3("x3"), pt.lmatrix("y2")
x4, y3 = pt.dtensor4("x4"), pt.ltensor3("y3")
RNG = np.random.default_rng(5)
VALUES = {
    x: RNG.normal(size=(5, 5)),
    t: RNG.random((5, 5)),
    y: np.array([0, -1, 4, -5, 2]),
    w: RNG.random(5),
    x3: RNG.normal(size=(2, 3, 4)),
    y2: RNG.integers(-4, 4, (2, 3)),
    x4: RNG.normal(size=(2, 4, 3, 2)),
    y3: RNG.integers(0, 4, (2, 3, 2)),
}


def logs(x, axis=-1):
    return pt.special.log_softmax(x, axis=axis)


def chances(x, axis=-1):
    return pt.special.softmax(x, axis=axis)


FORMULAS = {
    "rows": lambda: -logs(x)[pt.arange(x.shape[0]), y].mean(),
    "rows of labels": lambda: -logs(x, 1)[pt.arange(y.shape[0]), y].sum(),
    "log of softmax": lambda: -pt.log(chances(x))[pt.arange(x.shape[0]), y].mean(),
    "Theano": lambda: -pt.mean(pt.log(chances(x, 1))[pt.arange(y.shape[0]), y]),
    "columns": lambda: -logs(x, 0)[y, pt.arange(x.shape[1])].mean(),
    "transposed": lambda: -logs(x.T, 0).T[pt.arange(x.shape[0]), y].mean(),
    "along axis": lambda: -pt.take_along_axis(logs(x), y[:, None], axis=1).mean(),
    "along axis of images": lambda: -pt.take_along_axis(logs(x4, 1), y3[:, None], axis=1).sum(),
    "sequences": lambda: -logs(x3).reshape((-1, x3.shape[-1]))[pt.arange(y2.size), y2.ravel()].mean(),
    "flat sequences": lambda: -logs(x3.reshape((-1, x3.shape[2])))[pt.arange(y2.size), y2.ravel()].mean(),
    "images": lambda: (
        -logs(x4, 1).transpose(0, 2, 3, 1).reshape((-1, x4.shape[1]))[pt.arange(y3.size), y3.ravel()].mean()
    ),
    "probabilities": lambda: -(t * logs(x)).sum(-1).mean(),
    "probabilities, all": lambda: -(t * pt.log(chances(x))).sum() / x.shape[0],
    "weights": lambda: -(w * logs(x)).sum(axis=1).sum(),
    "three factors": lambda: -(w * t * logs(x)).sum(axis=1).mean(),
}

OTHER_GRAPHS = {
    "another client": lambda: -logs(x)[pt.arange(x.shape[0]), y].mean() + logs(x).max(),
    "not every row": lambda: -logs(x)[pt.arange(x.shape[0] - 1), y[1:]].mean(),
    "rows by steps": lambda: -logs(x)[pt.arange(0, x.shape[0], 2), y[::2]].mean(),
    "constant rows": lambda: -logs(x)[pt.constant([0, 1, 2, 3, 4]), y].mean(),
    "rows of another array": lambda: -logs(x)[pt.arange(w.shape[0]), y].mean(),
    "rows of probabilities": lambda: -logs(x)[pt.arange(x.shape[0])].mean(),
    "several labels": lambda: -pt.take_along_axis(logs(x), y2[:1, :2].repeat(5, 0) * 0, axis=1).mean(),
    "other axis": lambda: -logs(x, 0)[pt.arange(x.shape[0]), y].mean(),
    "sum along another axis": lambda: -(t * logs(x)).sum(0).mean(),
    "all axes": lambda: -pt.special.log_softmax(x)[pt.arange(x.shape[0]), y].mean(),
    "sum of logarithms": lambda: -logs(x).sum(-1).mean(),
    "other classes": lambda: -logs(x3).reshape((-1, 2))[pt.arange(y2.size * 2), y2.ravel().repeat(2) * 0].mean(),
    "one factor": lambda: -(t[:, 0][:, None] * logs(x)).sum(1).mean(),
    "float16": lambda: -logs(x.astype("float16"))[pt.arange(x.shape[0]), y].mean(),
}


def is_found(outputs):
    return any(v.owner is not None and isinstance(v.owner.op, CrossEntropy) for v in ancestors([outputs]))


def values_of(cost):
    """A cost and its gradient with respect to its logits."""
    inputs = [v for v in VALUES if v in set(ancestors([cost]))]
    (logits,) = (v for v in inputs if v in (x, x3, x4))
    f = pytensor.function(inputs, [cost, pytensor.grad(cost, logits)], mode="FAST_COMPILE")
    return f(*(VALUES[v] for v in inputs))


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    cost = FORMULAS[name]()
    found = nn.recognise(cost)
    assert is_found(found) and found.type == cost.type
    for got, wanted in zip(values_of(found), values_of(cost), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", OTHER_GRAPHS)
def test_other_graph(name):
    cost = OTHER_GRAPHS[name]()
    assert not is_found(nn.recognise(cost))


def test_fewer_labels_than_rows():
    """``arange(y.shape[0])`` takes the first rows; the others have no gradient."""
    cost = -logs(x)[pt.arange(y.shape[0]), y].mean()
    outputs = [[c, pytensor.grad(c, x)] for c in (cost, nn.recognise(cost))]
    plain, found = (pytensor.function([x, y], o, mode="FAST_COMPILE") for o in outputs)
    for got, wanted in zip(found(VALUES[x], [3, 1]), plain(VALUES[x], [3, 1]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-15)


def test_label_out_of_bounds():
    f = pytensor.function([x, y], nn.recognise(FORMULAS["rows"]()), mode="FAST_COMPILE")
    for label in (5, -6):
        with pytest.raises(IndexError):
            f(VALUES[x], [0, 1, 2, 3, label])


def test_large_logits():
    """What the formula of logarithm and softmax loses is kept."""
    cost = nn.recognise(-pt.log(pt.exp(x) / pt.exp(x).sum(1, keepdims=True)).sum())
    assert not is_found(cost)  # no softmax is written
    found = nn.recognise(FORMULAS["log of softmax"]())
    value = pytensor.function([x, y], found, mode="FAST_COMPILE")([[0.0, 2000.0]], [0])
    assert value == 2000
