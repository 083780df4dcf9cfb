"""Graphs of prediction: no dropout, running statistics, and nothing else changed."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.conditional.op import LazyIfElse
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.random.type import RandomType

from pytensor_cl import nn
from pytensor_cl.nn.dropout import Dropout
from pytensor_cl.nn.marker import Marker


class Centred(Marker):
    """x minus its mean, and a running mean: a stand-in for batch normalisation."""

    states = ((1, 1),)

    def build_inner_graph(self, x, running):
        mean = x.mean(axis=0)
        return [x - mean, 0.9 * running + 0.1 * mean]

    def predict(self, node):
        x, running = node.inputs
        return [x - running, None]


class Twice(Marker):
    """Dropout and a factor, as a marker that has another one inside."""

    def build_inner_graph(self, x, mask):
        return [2 * Dropout()(x, mask, pt.constant(0.5))]


X = pt.dmatrix("x")
ROWS = np.arange(6.0).reshape(3, 2)


def shared(name, *shape):
    """A shared variable."""
    return pytensor.shared(np.full(shape, 2.0), name=name)


def noise():
    """A generator of a graph."""
    return pt.random.shared_rng(seed=1, name="noise")


def has_draws(outputs):
    """Return whether a generator, or a draw, is in a graph."""
    nodes = {v.owner for v in ancestors(outputs) if v.owner}
    return any(isinstance(n.op, RNGConsumerOp) for n in nodes) or any(
        isinstance(v.type, RandomType) for v in graph_inputs(outputs)
    )


def compute(outputs, *values, inputs=(X,), mode="FAST_COMPILE"):
    """Compile and call."""
    return pytensor.function(list(inputs), outputs, mode=mode)(*values)


@pytest.mark.parametrize("mode", ["OPENCL", "FAST_COMPILE"])
def test_dropout_leaves_the_graph(mode):
    w, rng = shared("w", 2, 2), noise()
    after, h = nn.dropout(X @ w, 0.5, rng)
    _, y = nn.dropout(pt.exp(-h), 0.9, after, shared_axes=0)
    predicted = nn.inference(y)
    assert not has_draws([predicted]) and w in graph_inputs([predicted])
    np.testing.assert_allclose(compute(predicted, ROWS, mode=mode), np.exp(-ROWS @ w.get_value()))
    assert isinstance(nn.inference([y]), list)
    assert nn.inference(X) is X


def test_running_statistics_of_two_applications():
    mean = shared("mean", 2)
    first, after = Centred()(X, mean)
    second, after = Centred()(3 * first, after)
    predicted, kept = nn.inference([second, after])
    assert kept is mean
    np.testing.assert_allclose(compute(predicted, ROWS), 3 * (ROWS - 2) - 2)
    w = shared("w", 2)
    assert nn.parameters(w * predicted) == [w, mean]  # statistics are no states any more


def test_other_draws_stay_and_take_the_generator_of_dropout():
    rng = noise()
    after, h = nn.dropout(X, 0.5, rng)
    after, z = after.normal(size=(3, 2))
    predicted = nn.inference(h + z)
    updates = nn.state_updates(predicted)
    assert list(updates) == [rng]
    own = np.random.default_rng(1)
    np.testing.assert_allclose(compute(predicted, ROWS), ROWS + own.normal(size=(3, 2)))


def test_mask_that_is_used_elsewhere_stays():
    _, y = nn.dropout(X, 0.5, noise())
    mask = y.owner.inputs[1]
    mine = X * mask
    predicted, product = nn.inference([y, mine])
    assert predicted is X and product is mine


def test_loops():
    x, rng, mean, w = pt.dtensor3("x"), noise(), shared("mean", 2), shared("w", 2)

    def step(rows, state, running, generator, w):
        after, dropped = nn.dropout(rows * w, 0.5, generator)
        centred, running = Centred()(dropped, running)
        return state + centred, running, after

    outputs_info = [pt.zeros_like(x[0]), mean, rng]
    states, _, after = pytensor.scan(step, [x], outputs_info, non_sequences=[w], strict=True, return_updates=False)
    predicted, kept = nn.inference([states, after])
    assert kept is rng and not has_draws([predicted])
    values = np.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_allclose(compute(predicted, values, inputs=[x]), (2 * values - 2).cumsum(axis=0))
    frozen = nn.inference(states, freeze=True)
    assert not any(isinstance(v, SharedVariable) for v in graph_inputs([frozen]))
    np.testing.assert_allclose(compute(frozen, values, inputs=[x]), (2 * values - 2).cumsum(axis=0))
    slope = pytensor.grad(predicted.sum(), x)  # there is no generator left in the loop
    np.testing.assert_allclose(compute(slope, values, inputs=[x])[:, 0, 0], [4, 2])


def test_loop_without_markers_stays():
    rows = pytensor.scan(lambda row: row + 1, [X], return_updates=False)
    assert nn.inference(rows) is rows
    loop = pytensor.scan(lambda row: row + 1, [nn.dropout(X, 0.5, noise())[1]], return_updates=False)
    np.testing.assert_allclose(compute(nn.inference(loop), ROWS), ROWS + 1)


def test_graphs_inside():
    x, generator = pt.dmatrix(), pt.random.rng()
    inner = OpFromGraph([x, generator], [2 * nn.dropout(x, 0.5, generator)[1]])
    predicted = nn.inference(inner(X, noise()))
    assert not has_draws([predicted])
    np.testing.assert_allclose(compute(predicted, ROWS), 2 * ROWS)
    _, y = nn.dropout(X, 0.5, noise())
    outer = nn.inference(Twice()(X, y.owner.inputs[1]))
    assert not has_draws([outer])
    np.testing.assert_allclose(compute(outer, ROWS), 2 * ROWS)


def test_branches():
    x, generator, condition = pt.dmatrix(), pt.random.rng(), pt.bscalar("condition")
    branches = [OpFromGraph([x, generator], [nn.dropout(x, p, generator)[1] * k]) for p, k in ((0.5, 1), (0.9, 2))]
    (y,) = LazyIfElse(*branches, [X.type]).make_node(condition, X, noise()).outputs
    f = pytensor.function([condition, X], nn.inference(y), mode="FAST_COMPILE")
    np.testing.assert_allclose(f(1, ROWS), ROWS)
    np.testing.assert_allclose(f(0, ROWS), 2 * ROWS)


def test_frozen_values_stay_as_they_were():
    w, mean = shared("w", 2), shared("mean", 2)
    y, _ = Centred()(X * w, mean)
    frozen, live = nn.inference(y, freeze=True), nn.inference(y)
    f = pytensor.function([X], [frozen, live], mode="FAST_COMPILE")
    w.set_value(np.zeros(2))
    np.testing.assert_allclose(f(ROWS)[0], 2 * ROWS - 2)
    np.testing.assert_allclose(f(ROWS)[1], 0 * ROWS - 2)


def test_batch_of_nodes():
    row, rows = pt.dmatrix("row"), pt.dtensor3("rows")
    _, y = nn.dropout(row, 0.5, noise())
    predicted = nn.inference(vectorize_graph(y, {row: rows}))
    assert predicted is rows
    centred, _ = Centred()(row, shared("mean", 2))
    with pytest.raises(ValueError, match="vectorize the graph of `inference`"):
        nn.inference(vectorize_graph(centred, {row: rows}))
