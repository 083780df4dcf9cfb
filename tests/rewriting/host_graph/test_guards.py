"""Errors that NUMBA's function of a graph finds in its data, and the cost of looking for them."""

from itertools import product

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise

from pytensor_cl._compat.numba_backend import compile_with_numba
from pytensor_cl.rewriting.host_graph.axis_lengths import axis_lengths, length_conditions
from pytensor_cl.rewriting.host_graph.guards import add_guards, may_need_guard
from pytensor_cl.rewriting.host_graph.in_bounds import InBounds, in_bounds
from tests.helpers import ALL as SWEEP

table, other, x, y = (pt.vector(name, dtype="float64") for name in ("table", "other", "x", "y"))
rows = pt.matrix("rows", dtype="float64")
index, further = pt.lvector("index"), pt.lvector("further")
small, unsigned = pt.vector("small", dtype="int8"), pt.vector("unsigned", dtype="uint64")
where = pt.lmatrix("where")
FEW, MANY, PLACES = np.arange(4.0), np.arange(5.0) + 1, np.array([0, 3, -4, 1, 1])


def _slopes():
    z = y - (table[index] + pt.exp(other)[index] * x)
    cost = (z * z).sum() + (table**2).sum()
    return [cost, *pytensor.grad(cost, [table, other])]


SLOPES = _slopes()
ALL = {table: FEW, other: FEW / 4, x: MANY, y: MANY, index: PLACES}


def guarded(outputs):
    """Return NUMBA's function of a guarded graph, and the graph that was compiled."""
    inputs = [v for v in FunctionGraph(outputs=outputs, clone=False).inputs if v.name]
    graph = FunctionGraph(inputs, outputs, clone=True)
    add_guards(graph)
    call, compiled = compile_with_numba(graph, get_mode("OPENCL"))
    return lambda given: [np.asarray(r) for r in call(*[given[v] for v in inputs])], compiled


@pytest.fixture(scope="module")
def slopes():
    """Compiled once."""
    return guarded(SLOPES)


def check(outputs, given):
    """Compare with PyTensor's Python backend."""
    call, _ = guarded(outputs)
    wanted = pytensor.function(list(given), outputs, mode="FAST_COMPILE", on_unused_input="ignore")(*given.values())
    for got, result in zip(call(given), wanted, strict=True):
        np.testing.assert_allclose(got, result, rtol=1e-12)
    return call


def test_lookups_of_one_index_stay_one_loop(slopes):
    """A model with slopes that vary: NUMBA reads, adds up and scatters in the loop that it has without checks."""
    call, compiled = slopes
    wanted = pytensor.function(list(ALL), SLOPES, mode="NUMBA")
    for got, result in zip(call(ALL), wanted(*ALL.values()), strict=True):
        np.testing.assert_allclose(got, result, rtol=1e-12)
    fused = [sum(isinstance(n.op, FusedElemwise) for n in g.toposort()) for g in (compiled, wanted.maker.fgraph)]
    assert fused[0] == fused[1] > 0
    assert sum(isinstance(n.op, InBounds) for n in compiled.toposort()) == 1


@pytest.mark.parametrize("wrong", [4, -5, 2**40])
def test_index_beyond_a_table_of_many(slopes, wrong):
    call, _ = slopes
    with pytest.raises(IndexError):
        call({**ALL, index: np.array([0, 1, wrong, 1, 1])})


@pytest.mark.parametrize("name", ["x", "y", "index"])
@pytest.mark.parametrize("length", [0, 1, 4, 6])
def test_lengths_that_differ_in_a_loop(slopes, name, length):
    """Also where one of them is one, as the graph has no broadcast."""
    call, _ = slopes
    variable = next(v for v in ALL if v.name == name)
    with pytest.raises((ValueError, IndexError)):
        call({**ALL, variable: np.resize(ALL[variable], length)})


@pytest.mark.parametrize("shorter", ["table", "other"])
def test_the_shortest_table_counts(slopes, shorter):
    call, _ = slopes
    variable = next(v for v in ALL if v.name == shorter)
    with pytest.raises((IndexError, ValueError)):
        call({**ALL, variable: ALL[variable][:3]})


CASES = {
    "narrow integers": ([table[small]], {table: FEW, small: np.array([1, -4], dtype="int8")}, small, [4, -5]),
    "unsigned": ([table[unsigned]], {table: FEW, unsigned: np.array([1, 3], dtype="uint64")}, unsigned, [4, 2**63]),
    "a matrix of places": ([table[where]], {table: FEW, where: PLACES[:4].reshape(2, 2).T}, where, [4, -5]),
    "rows and columns": (
        [rows[index, further]],
        {rows: np.arange(12.0).reshape(3, 4), index: np.array([2, -3]), further: np.array([3, -4])},
        index,
        [3, -4],
    ),
    "columns": ([rows[:, index]], {rows: np.arange(12.0).reshape(3, 4), index: np.array([3, -4])}, index, [4, -5]),
    "a table of places": (
        [table[further[index]]],
        {table: FEW, further: np.array([3, 2, -4]), index: np.array([0, 2])},
        index,
        [3, -4],
    ),
    "what a lookup found": (
        [table[index][further] + table[further]],
        {table: FEW, index: np.array([1, 2]), further: np.array([0, 1])},
        further,
        [2, -3],
    ),
    "written": (
        [pt.inc_subtensor(table[index], x)],
        {table: FEW, index: np.array([0, 0]), x: MANY[:2]},
        index,
        [4, -5],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_indices(name):
    outputs, given, wrong, values = CASES[name]
    call = check(outputs, given)
    for value in values:
        bad = given[wrong].copy()
        bad.reshape(-1)[-1] = np.asarray(value).astype(bad.dtype)
        if bad.reshape(-1)[-1] == value:
            with pytest.raises(IndexError):
                call({**given, wrong: bad})


def test_constant_places_need_one_comparison():
    outputs = [table[np.array([0, 3, -4])] * 2]
    call = check(outputs, {table: FEW})
    with pytest.raises(IndexError):
        call({table: FEW[:3]})


PLACES_OF = list(product(["uint8", "uint64", "int8"], [[0, 2], [[3]], []]))


@pytest.mark.parametrize(("dtype", "values"), PLACES_OF if SWEEP else PLACES_OF[::4])
def test_constant_places_of_any_dtype(dtype, values):
    check([table[pt.constant(np.array(values, dtype=dtype))]], {table: FEW})


def test_an_index_that_is_a_maximum_of_nothing():
    """The maximum of no unsigned integers would be zero to NUMBA, which is an index."""
    places = pt.matrix("places", dtype="uint8")
    call = check([rows[places.max(axis=0)]], {rows: np.eye(3), places: np.array([[0], [2]], dtype="uint8")})
    with pytest.raises(ValueError, match="zero-size array"):
        call({rows: np.eye(3), places: np.empty((0, 1), dtype="uint8")})


def test_no_places():
    check([table[index].sum()], {table: FEW, index: PLACES[:0]})
    check([table[index].sum()], {table: FEW[:0], index: PLACES[:0]})


def test_rows_to_write_are_not_broadcast_unasked():
    call = check([pt.inc_subtensor(table[index], x)], {table: FEW, index: np.array([0, 1, 1]), x: MANY[:3]})
    with pytest.raises(ValueError, match="lengths differ"):
        call({table: FEW, index: np.array([0, 1, 1]), x: MANY[:1]})


def test_maximum_of_nothing():
    outputs = [pt.max(pt.exp(x) + y), pt.min(rows, axis=0)]
    given = {x: MANY, y: MANY, rows: np.arange(6.0).reshape(2, 3)}
    call = check(outputs, given)
    with pytest.raises(ValueError, match="zero-size array"):
        call({**given, x: MANY[:0], y: MANY[:0]})
    with pytest.raises(ValueError, match="zero-size array"):
        call({**given, rows: np.empty((0, 3))})
    assert call({**given, rows: np.empty((2, 0))})[1].shape == (0,)


def test_checks_in_python():
    """Whoever runs the Op elsewhere gets the same."""
    f = pytensor.function([index], in_bounds(index, 3, 2), mode="FAST_COMPILE")
    np.testing.assert_array_equal(f(np.array([1, -2])), [1, -2])
    for wrong in (2, -3):
        with pytest.raises(IndexError):
            f(np.array([0, wrong]))


def test_lengths():
    """The operands of an array tell its length, through views, operands and lookups."""
    looked_up = x[None, :] * pt.exp(table)[index]
    assert len(length_conditions(looked_up, 1, index, 0)) == 1
    assert len(length_conditions(looked_up, 1, table, 0)) == 2
    assert not length_conditions(pt.zeros_like(other + 1), 0, other, 0)
    assert not length_conditions(pt.zeros(other.shape), 0, other, 0)
    assert not length_conditions(rows.T[index], 1, rows, 0)
    assert not length_conditions(table[where], 1, where, 1)
    assert length_conditions(table[table > 0], 0, table, 0)
    assert not length_conditions(pt.inc_subtensor(table[index], x), 0, table, 0)
    assert [n.data for n in axis_lengths(pt.zeros(3), 0)] == [3]
    told = axis_lengths(looked_up, 1)
    assert [int(n.eval({x: MANY, index: PLACES[:3]}, on_unused_input="ignore")) for n in told] == [3, 5]


LEFT_OUT = [
    pt.switch(pt.constant(1) > 0, table, x),
    pt.second(x, table),
    0 * x + table,
    x - x + table,
    pt.zeros_like(x) + table,
]


@pytest.mark.parametrize("number", range(len(LEFT_OUT)) if SWEEP else [1, 4])
def test_operands_that_rewrites_leave_out(number):
    """The length of what is left counts, or the least of all."""
    call = check([LEFT_OUT[number][index]], {x: MANY, table: MANY, index: np.array([1, 4])})
    with pytest.raises((IndexError, ValueError)):
        call({x: MANY, table: FEW, index: np.array([1, 4])})


def test_values_that_seem_to_fit_but_for_a_rewrite():
    values = x + pt.zeros(index.shape)
    call = check([pt.inc_subtensor(table[index], values)], {table: FEW, index: PLACES[:2], x: MANY[:2]})
    for wrong in (1, 3):
        with pytest.raises(ValueError, match="lengths differ"):
            call({table: FEW, index: PLACES[:2], x: MANY[:wrong]})


@pytest.mark.parametrize(
    ("result", "needed"),
    [
        (pt.exp(x) + y, False),
        (rows.sum(axis=0) / x, False),
        (x[1:] * 2, False),
        (x // 2.0, False),
        (pt.specify_shape(rows, (None, 3)).max(axis=1), False),
        (table[index], True),
        (pt.inc_subtensor(table[index], x), True),
        (rows.max(axis=1), True),
        (index // further, True),
        (pt.logaddexp(x, y), False),
    ],
)
def test_what_gets_a_check_may_need_one(result, needed):
    fgraph = FunctionGraph(outputs=[result], clone=True)
    before = len(fgraph.apply_nodes)
    assert any(map(may_need_guard, fgraph.apply_nodes)) == needed
    add_guards(fgraph)
    assert needed or len(fgraph.apply_nodes) == before
