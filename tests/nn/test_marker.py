"""Markers become their inner graphs in every mode, in loops and in batches."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph

from pytensor_cl.nn.marker import Marker


class Centred(Marker):
    """x minus the mean of its last axis."""

    def build_inner_graph(self, x):
        return [x - x.mean(axis=-1, keepdims=True)]


X = 3 * np.arange(6, dtype="float32").reshape(2, 3) ** 2


@pytest.mark.parametrize("mode", ["OPENCL", "FAST_RUN", "NUMBA", "FAST_COMPILE"])
def test_marker_is_inlined(mode):
    x = pt.fmatrix("x")
    f = pytensor.function([x], Centred()(x) * 2, mode=mode)
    np.testing.assert_allclose(f(X), 2 * (X - X.mean(axis=1, keepdims=True)), rtol=1e-6)
    is_left = any(isinstance(node.op, Centred) for node in f.maker.fgraph.apply_nodes)
    assert not is_left


@pytest.mark.parametrize("mode", ["OPENCL", "FAST_RUN"])
def test_marker_in_a_loop(mode):
    x = pt.fmatrix("x")
    rows = pytensor.scan(lambda row: Centred()(row), sequences=[x], return_updates=False)
    f = pytensor.function([x], rows, mode=mode)
    np.testing.assert_allclose(f(X), X - X.mean(axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("mode", ["OPENCL", "FAST_RUN"])
def test_batch_of_a_marker(mode):
    row, x = pt.fvector("row"), pt.fmatrix("x")
    f = pytensor.function([x], vectorize_graph(Centred()(row), {row: x}), mode=mode)
    np.testing.assert_allclose(f(X), X - X.mean(axis=1, keepdims=True), rtol=1e-6)
