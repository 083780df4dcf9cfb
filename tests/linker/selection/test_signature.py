"""The inputs that make the signature of a call, and the shapes that share one."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.linker.selection.signature import bucket, distinguishing_inputs

x, y, z, i = pt.fvector("x"), pt.fvector("y"), pt.fvector("z"), pt.lvector("i")
m, n, row = pt.fmatrix("m"), pt.fmatrix("n"), pt.frow("row")
fixed = pt.tensor("fixed", dtype="float32", shape=(4,))


@pytest.mark.parametrize(
    ("inputs", "graph", "positions"),
    [
        ([x], pt.exp(x), [0]),
        ([x, y], x + y, [0]),
        ([x, y, z], pt.exp(x) * 2 + (y - z), [0]),
        ([x, y], x[1:] + y, [0, 1]),
        ([x, y], x.sum() + y.sum(), [0, 1]),
        ([x, i], x[i], [0, 1]),
        ([m, n, row], m + n + row, [0, 2]),
        ([m, n], m @ n, [0, 1]),
        ([m, n], m + n.T, [0]),
        ([x, m], x + m, [0, 1]),
        ([fixed, x], fixed.sum() + x, [1]),
    ],
)
def test_positions(inputs, graph, positions):
    assert distinguishing_inputs(FunctionGraph(inputs, [graph], clone=False), set()) == positions


def test_shared_variables_are_chosen_where_no_argument_determines_the_shape():
    w = pytensor.shared(np.zeros(3, "float32"))
    graph = FunctionGraph([w, x, y], [w * x, y[::2]], clone=False)
    assert distinguishing_inputs(graph, {w}) == [1, 2]
    assert distinguishing_inputs(FunctionGraph([w], [w * 2], clone=False), {w}) == [0]


@pytest.mark.parametrize(
    ("first", "second", "are_equal"),
    [
        ([(1000, 1)], [(1, 1000)], False),
        ([(512, 3)], [(1023, 2)], True),
        ([(512,)], [(511,)], False),
        ([(0,)], [(1,)], False),
        ([()], [()], True),
        ([(3,), (5,)], [(3,), (9,)], False),
    ],
)
def test_each_dimension_has_a_bucket(first, second, are_equal):
    assert (bucket(first) == bucket(second)) == are_equal
