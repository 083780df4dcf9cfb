"""`recognise` rewrites a copy of a graph, whose inputs are those of the graph."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import ancestors

from pytensor_cl.nn.recognise import recognise, register_recognition


@pytest.fixture
def square_root(monkeypatch):
    monkeypatch.setitem(recognise.__globals__, "_REWRITERS", [])

    @register_recognition
    @node_rewriter([pt.exp])
    def halve(fgraph, node):
        """exp(log(x) / 2) -> sqrt(x)."""
        half = node.inputs[0].owner
        if half is None or half.op != pt.true_div or half.inputs[0].owner.op != pt.log:
            return None
        return [pt.sqrt(half.inputs[0].owner.inputs[0])]


@pytest.mark.usefixtures("square_root")
def test_copy_is_rewritten_and_inputs_stay():
    x = pytensor.shared(np.array([4.0, 9.0]), name="x")
    root = pt.exp(pt.log(x) / 2)
    new = recognise(root)
    assert root.owner.op == pt.exp
    assert new.owner.op == pt.sqrt
    assert x in set(ancestors([new]))
    np.testing.assert_allclose(pytensor.grad(new.sum(), x).eval(), [0.25, 1 / 6])


@pytest.mark.usefixtures("square_root")
def test_sequence_and_input_as_output():
    x = pt.dvector("x")
    outputs = recognise([x, pt.exp(pt.log(x) / 2) + pt.exp(pt.log(x) / 2)])
    assert outputs[0] is x
    np.testing.assert_allclose(outputs[1].eval({x: [4.0]}), [4.0])
