"""Estimates of calls: inferred shapes, counted work, and which backend is estimated to be fastest."""

from dataclasses import replace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.special import softmax

from pytensor_cl.linker.selection import vm as selecting_vm
from pytensor_cl.linker.selection.estimate import C_PRICES, DEVICE_PRICES, NUMBA_PRICES, Estimator, ShapeInference
from pytensor_cl.runtime.registry import get_context

pytestmark = pytest.mark.usefixtures("c_compiler")

x, y, i = pt.fvector("x"), pt.fvector("y"), pt.lvector("i")
m, n, t = pt.fmatrix("m"), pt.fmatrix("n"), pt.ftensor3("t")


def shape(inputs, result, given):
    """Return the shape that is inferred for a result."""
    return ShapeInference(FunctionGraph(inputs, [result], clone=False)).infer(given)[result]


def work(inputs, result, given):
    return ShapeInference(FunctionGraph(inputs, [result], clone=False)).work(given)


def estimated(inputs, result, given, info=None, nodes=()):
    return Estimator(FunctionGraph(inputs, [result], clone=False), info, nodes)(given)


@pytest.mark.parametrize(
    ("inputs", "result", "given"),
    [
        ([x, y], pt.exp(x) + y * 2, [(5,), (5,)]),
        ([x, m], x + m, [(5,), (3, 5)]),
        ([x, y], pt.outer(x, y) + 1, [(5,), (7,)]),
        ([m], m.T, [(3, 5)]),
        ([m], m.sum(axis=0), [(3, 5)]),
        ([m], m.max(axis=-1, keepdims=True), [(3, 5)]),
        ([m], m.mean(), [(3, 5)]),
        ([m], pt.argmax(m, axis=1), [(3, 5)]),
        ([m, n], m @ n, [(3, 5), (5, 7)]),
        ([m, x], m @ x, [(3, 5), (5,)]),
        ([x, m], x @ m, [(3,), (3, 5)]),
        ([x, y], x @ y, [(3,), (3,)]),
        ([t], pt.matmul(t, t.dimshuffle(0, 2, 1)), [(2, 3, 5)]),
        ([m, i], m[i], [(3, 5), (8,)]),
        ([m, i, n], pt.inc_subtensor(m[i], n), [(3, 5), (8,), (8, 5)]),
        ([x], pt.sort(x), [(9,)]),
        ([m], softmax(m, axis=1), [(3, 5)]),
        ([m], pt.cumsum(m, axis=0), [(3, 5)]),
        ([x, m], pt.zeros_like(m)[1:-1, ::2] + x[0], [(5,), (7, 5)]),
        ([x, m], pt.alloc(x[0], m.shape[0] * 2, x.shape[0] + 1), [(5,), (7, 5)]),
        ([x], pt.arange(x.shape[0], 0, -2), [(5,)]),
        ([x, m], pt.eye(x.shape[0], m.shape[1]), [(5,), (7, 4)]),
        ([m], m.reshape((m.shape[1], -1, 1)), [(3, 5)]),
        ([m, n], pt.join(1, m, n), [(3, 5), (3, 4)]),
        ([t], pt.linalg.det(t), [(2, 5, 5)]),
        ([t, m], pt.linalg.solve_triangular(t, m, b_ndim=2), [(3, 5, 5), (5, 2)]),
        ([t, i], t[:, i, 1:], [(3, 5, 4), (7,)]),
        ([t, i], t[i, :, i], [(3, 5, 4), (3,)]),
        ([m], pt.logaddexp(m, 0), [(3, 5)]),
        ([m], pt.einsum("ij,kj->ik", m, m), [(3, 5)]),
    ],
)
def test_shapes(inputs, result, given):
    values = [np.zeros(s, v.type.dtype) for v, s in zip(inputs, given, strict=True)]
    with pytensor.config.change_flags(cxx=""):  # it would compile inner graphs
        expected = result.eval(dict(zip(inputs, values, strict=True)), mode=Mode("py", "fast_compile"))
    assert shape(inputs, result, given) == expected.shape


@pytest.mark.parametrize(
    ("result", "size", "first"),
    [
        (x + 1, 10, "c"),
        (pt.exp(x), 100, "c"),
        (x.sum(), 100, "c"),
        (x.sum(), 100_000, "numba"),
        (pt.cumsum(x), 10_000, "numba"),
        (pt.exp(x), 10_000_000, "device"),
        (pt.sort(x), 1_000_000, "device"),
        (softmax(x), 100_000, "device"),
    ],
)
def test_the_first_backend(context, result, size, first):
    info = replace(get_context(context.name).info, kind="cpu", compute_units=2)
    found = estimated([x], result, [(size,)], info)
    sides = {side: getattr(found, side) for side in ("device", "numba", "c")}
    assert min(sides, key=sides.get) == first


@pytest.mark.parametrize(
    ("function", "shape_of_matrices", "is_first"),
    [
        (pt.linalg.cholesky, (16, 16), False),
        (pt.linalg.cholesky, (10_000, 16, 16), True),
        (pt.linalg.det, (10_000, 4, 4), True),
        (lambda a: pt.linalg.eigh(a)[0], (300, 300), False),
        (lambda a: pt.linalg.eigh(a)[0], (5_000, 16, 16), True),
        (lambda a: pt.linalg.svd(a, compute_uv=False), (300, 300), False),
        (lambda a: pt.linalg.qr(a)[1], (5_000, 16, 16), True),
    ],
)
def test_whether_the_device_is_first_for_matrices(context, function, shape_of_matrices, is_first):
    a = pt.tensor("a", shape=(None,) * len(shape_of_matrices), dtype="float64")
    info = replace(get_context(context.name).info, kind="cpu", compute_units=2)
    found = estimated([a], function(a), [shape_of_matrices], info)
    assert (found.device < min(found.numba, found.c)) == is_first


@pytest.mark.parametrize("reduction", [pt.sum, pt.max, pt.min, pt.prod, pt.all, pt.any, pt.argmax])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_each_reduction_has_a_price(context, reduction, axis):
    info = get_context(context.name).info
    small, large = (estimated([m], reduction(m, axis=axis), [(n, n)], info) for n in (2, 2000))
    assert all(b > 3 * a for a, b in zip(small[:3], large[:3], strict=True))


def test_each_amount_has_a_price():
    for prices in (NUMBA_PRICES, C_PRICES):
        assert all(price > 0 for price in prices)
    assert all(price > 0 for price in DEVICE_PRICES[3:])  # its nodes are those of the device graph


def test_unknown_lengths_are_accepted():
    assert shape([x, i], x[: i[0]], [(9,), (3,)]) == (9,)
    assert len(shape([x], x[x > 0], [(9,)])) == 1


def test_what_shapes_are_computed_with_is_no_work():
    centred = work([m], m - m.sum(axis=0) / m.shape[0], [(30, 5)])
    assert (centred.nodes, centred.functions, centred.flops) == (3, 0, 0)  # a sum and two loops
    assert 4 * 150 < centred.words < 7 * 150


def test_a_loop_of_element_wise_nodes_moves_what_it_reads_and_its_result():
    found = work([x, y], pt.exp(x) * y + x, [(100,), (100,)])
    assert found.nodes == 1
    assert found.words == (100 + 100 + 100 + 100) + 2 * 100  # what it moves, and two operations of arithmetic
    assert found.functions == 100


def test_steps_of_a_loop_are_counted():
    ys = pytensor.scan(lambda a, before: pt.tanh(a + before), sequences=[x], outputs_info=[y[0]], return_updates=False)
    found = work([x, y], ys, [(50,), (3,)])
    assert 50 <= found.inner_nodes <= 300
    assert found.nodes > work([x, y], x + y[0], [(50,), (3,)]).nodes + 1  # those of a step are compiled, too


def test_products_count_operations():
    assert work([m, n], m @ n, [(3, 5), (5, 7)])._asdict().items() >= {"products": 1, "flops": 2 * 3 * 5 * 7}.items()


def test_what_the_host_does_beside_the_device_counts(context):
    info = get_context(context.name).info
    f = pytensor.function([x], pt.exp(x).sum(), mode="OPENCL")
    nodes = f.maker.fgraph.toposort()
    with_nodes, without = (estimated([x], pt.exp(x).sum(), [(10,)], info, some) for some in (nodes, ()))
    assert with_nodes.device > without.device


def test_what_takes_c_long_to_build_does_not_go_first(context):
    result = x.sum()
    for k in range(8):
        result = result + pt.cumsum(x * (k + 2.0))[k]
    assert estimated([x], result, [(4,)], get_context(context.name).info).work.nodes > 6
    with pytensor.config.change_flags(opencl__select_backend=True):
        f = pytensor.function([x], result, mode="OPENCL")
    f(np.ones(9, "float32"))
    assert f.vm.signatures[0].backend != selecting_vm.C


def test_chains_of_elementwise_nodes_are_one():
    result = pt.exp(-x * x) * pt.tanh(x) + pt.log(1 + x * x) * pt.sin(x)
    assert work([x], result, [(4,)]).nodes == 1


def test_estimates_for_gpus_count_transfers(context):
    gpu = replace(get_context(context.name).info, kind="gpu", compute_units=64, shares_host_memory=False)
    assert estimated([x, y], x + y, [(10**6,)] * 2, gpu).device > 1e-3
    assert estimated([m, n], m @ n, [(4096, 4096)] * 2, gpu).device < 1
    sort = estimated([x], pt.sort(x), [(10**6,)], gpu)
    assert sort.device < min(sort.numba, sort.c)
