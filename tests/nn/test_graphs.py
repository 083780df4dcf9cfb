"""Parameters and states of graphs."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

from pytensor_cl import nn
from pytensor_cl.nn.marker import Marker


class RunningMean(Marker):
    """x minus its mean, and a running mean: a stand-in for batch normalisation."""

    states = ((1, 1),)

    def build_inner_graph(self, x, running):
        mean = x.mean(axis=0)
        return [x - mean, 0.9 * running + 0.1 * mean]


def shared(name, *shape, dtype="float64"):
    """A shared variable."""
    return pytensor.shared(np.ones(shape, dtype), name=name)


def noise():
    """A generator of a graph."""
    return pt.random.shared_rng(seed=1, name="noise")


X = pt.dmatrix("x")


def test_parameters_in_order_of_use():
    w1, b1, w2, b2 = shared("w1", 3, 4), shared("b1", 4), shared("w2", 4, 2), shared("b2", 2)
    mean, rows = shared("mean", 4), shared("rows", 2, dtype="int64")
    _, h = nn.dropout(pt.tanh(X @ w1 + b1), 0.5, noise())
    centred, _ = RunningMean()(h, mean)
    logits = (centred @ w2 + b2)[rows]
    assert nn.parameters(logits) == [w1, b1, w2, b2]
    assert nn.parameters([(w2**2).sum(), logits]) == [w2, w1, b1, b2]
    assert nn.parameters(X) == []


def test_parameters_of_a_loop():
    w, h0 = shared("w", 3, 3), shared("h0", 3)
    states = pytensor.scan(lambda x, h: pt.tanh(x + h @ w), [X], [h0], return_updates=False)
    assert set(nn.parameters(states[-1])) == {w, h0}


def test_chain_of_applications():
    mean = shared("mean", 4)
    first, after_first = RunningMean()(X, mean)
    second, after_second = RunningMean()(pt.exp(first), after_first)
    assert nn.state_updates(second) == {mean: after_second}
    assert nn.state_updates(first) == {mean: after_first}


def test_same_statistics_read_twice():
    mean = shared("mean", 4)
    first, _ = RunningMean()(X, mean)
    second, _ = RunningMean()(pt.exp(first), mean)
    with pytest.raises(ValueError, match=r"read the same state, mean of type .*independently"):
        nn.state_updates(second)


def test_draws_of_all_kinds_are_followed():
    rng = noise()
    after_normal, z = rng.normal(size=(3,))
    after_mask, y = nn.dropout(X + z, 0.5, after_normal)
    assert nn.state_updates([y.sum(), z]) == {rng: after_mask}
    with pytest.raises(ValueError, match="independently"):
        nn.state_updates(nn.dropout(y, 0.5, rng)[1])


def test_states_that_are_no_shared_variables():
    mean, rng = pt.dvector("mean"), pt.random.rng("rng")
    y, _ = RunningMean()(nn.dropout(X, 0.5, rng)[1], mean)
    assert nn.state_updates(y) == {}


def test_state_that_is_an_expression():
    mean = shared("mean", 4)
    with pytest.raises(ValueError, match="computed from the shared variable mean"):
        nn.state_updates(RunningMean()(X, 2 * mean)[0])


@pytest.mark.parametrize("n_rows", [0, 3])
def test_states_of_a_loop(n_rows):
    x, mean, rng = pt.dtensor3("x"), shared("mean", 4), noise()

    def step(rows, running, generator):
        after, dropped = nn.dropout(rows, 0.5, generator)
        y, running = RunningMean()(dropped, running)
        return running, y, after

    _, y, after = pytensor.scan(step, [x], [mean, None, rng], return_updates=False)
    updates = nn.state_updates(y)
    assert set(updates) == {mean, rng} and updates[rng] is after
    f = pytensor.function([x], y, updates=updates, mode="FAST_COMPILE")
    f(np.ones((n_rows, 2, 4)))
    expected, own = np.ones(4), np.random.default_rng(1)
    for _ in range(n_rows):
        expected = 0.9 * expected + 0.1 * (2.0 * (own.random((2, 4)) >= 0.5)).mean(axis=0)
    np.testing.assert_allclose(mean.get_value(), expected)
    assert rng.get_value().bit_generator.state == own.bit_generator.state


def test_loop_that_does_not_hand_on_its_state():
    x, rng = pt.dtensor3("x"), noise()
    rows = pytensor.scan(lambda row: nn.dropout(row, 0.5, rng)[1], [x], return_updates=False)
    with pytest.raises(ValueError, match="make the state one of outputs_info"):
        nn.state_updates(rows)

    def step(row, generator):
        after, once = nn.dropout(row, 0.5, generator)
        return nn.dropout(once, 0.5, after)[1], after

    rows, _ = pytensor.scan(step, [x], [None, rng], return_updates=False)
    with pytest.raises(ValueError, match="last next value"):
        nn.state_updates(rows)


def test_states_inside_of_a_function_of_a_graph():
    x, generator, rng = pt.dvector(), pt.random.rng("inner"), noise()
    after, dropped = nn.dropout(x, 0.5, generator)
    after_outer, y = OpFromGraph([x, generator], [after, dropped])(X[0], rng)
    assert nn.state_updates(y) == {rng: after_outer}
    hidden = OpFromGraph([x, generator], [dropped])(X[0], rng)
    with pytest.raises(ValueError, match="does not return"):
        nn.state_updates(hidden)


def test_what_is_no_graph():
    with pytest.raises(TypeError, match="outputs must be a variable"):
        nn.parameters([1.0])
