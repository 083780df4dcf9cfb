"""Gathers, row functions and scatter-adds in one kernel, in compiled functions."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.grouped_rows import GpuGroupedRows
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedIncSubtensor, GpuAdvancedSubtensor
from pytensor_cl.ops.shape import GpuDimShuffle
from tests.helpers import assert_close, check_against_python, device_ops, normal, opencl

INDEXING = GpuAdvancedSubtensor, GpuAdvancedIncSubtensor


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel(context):
    if context.info.schedule != "cpu":
        pytest.skip("gathers and scatters are kernels of their own")
    with pytensor.config.change_flags(opencl__placement="device", floatX="float32"):
        yield


def check(inputs, outputs, *arguments, fused=1, apart=0):
    """Compare with the host; count the kernels, and the gathers and scatters that are kernels of their own."""
    f = check_against_python(inputs, outputs, (GpuGroupedRows,) * bool(fused), *arguments)
    ops = device_ops(f)
    assert sum(isinstance(op, GpuGroupedRows) for op in ops) == fused
    assert sum(isinstance(op, INDEXING) for op in ops) == apart
    return f


def values_of(rng, rows, count, groups):
    """Return values of a(rows, groups), b(rows, groups), scale(rows), x(count), y(count), index(count)."""
    return (
        normal(rng, rows, groups),
        normal(rng, rows, groups),
        np.exp(normal(rng, rows)),
        normal(rng, count),
        normal(rng, count),
        rng.integers(-groups, max(1, groups), count),
    )


def model():
    a, b, scale, x, y, i = (
        pt.fmatrix("a"),
        pt.fmatrix("b"),
        pt.fvector("scale"),
        pt.fvector("x"),
        pt.fvector("y"),
        pt.lvector("i"),
    )
    z = (y - (a[:, i] + b[:, i] * x)) / scale[:, None]
    density = (-0.5 * z**2 - pt.log(scale)[:, None]).sum(1)
    return [a, b, scale, x, y, i], density, pytensor.grad(density.sum(), [a, b, scale])


def test_hierarchical_model(context, rng):
    inputs, density, gradient = model()
    values = [values_of(rng, *sizes) for sizes in ((19, 60, 7), (16, 5, 40), (1, 1, 1), (3, 0, 2), (0, 4, 3))]
    f = check(inputs, [density, *gradient], *values)
    assert "2 gathered, 2 scattered" in str(next(op for op in device_ops(f) if isinstance(op, GpuGroupedRows)))
    check(inputs, [density], *values[:2])


def test_double_precision(context, rng):
    if not context.info.has_fp64:
        pytest.skip("no double precision")
    inputs = pt.dmatrix("a"), pt.dvector("x"), pt.ivector("i")
    a, x, i = inputs
    cost = pt.exp(a[:, i] * x).sum(1)
    given = rng.normal(size=(21, 9)), rng.normal(size=50), np.arange(50, dtype="int32") % 9
    f = check(inputs, [cost, pytensor.grad(cost.sum(), a)], given)
    np.testing.assert_allclose(f(*given)[0], np.exp(given[0][:, given[2]] * given[1]).sum(1), 1e-13)


def test_several_indices_and_tables(context, rng):
    a, b, c, x, i, j = (*pt.fmatrices("a", "b", "c"), pt.frow("x"), *pt.lvectors("i", "j"))
    mean = a[:, i] + b[:, j] * x + c[:, i]
    cost = pt.sqr(mean).sum(axis=1)
    given = (
        normal(rng, 20, 5),
        normal(rng, 20, 11),
        normal(rng, 20, 5),
        normal(rng, 1, 40),
        *rng.integers(-5, 5, (2, 40)),
    )
    check([a, b, c, x, i, j], [cost, *pytensor.grad(cost.sum(), [a, b, c])], given)
    other = *given[:2], normal(rng, 20, 6), *given[3:]  # one index of tables of two lengths
    check([a, b, c, x, i, j], [cost, *pytensor.grad(cost.sum(), [a, b, c])], other)


def test_single_nodes(context, rng):
    """An elementwise node or a reduction between a gather and a scatter-add."""
    a, m, i = pt.fmatrix("a"), pt.fmatrix("m"), pt.lvector("i")
    given = normal(rng, 17, 6), normal(rng, 17, 30), rng.integers(-6, 6, 30)
    check([a, m, i], [pt.exp(a[:, i]) * m], given)
    check([a, i], [a[:, i].sum(axis=1), a[:, i].max(axis=1)], (given[0], given[2]))
    check([a, m, i], [pt.inc_subtensor(a[:, i], pt.exp(m))], given)
    check([a, m, i], [pt.inc_subtensor(a[:, i], pt.exp(m)), pt.exp(m)], given)


def test_what_stays_as_it_is(context, rng):
    a, m, i = pt.fmatrix("a"), pt.fmatrix("m"), pt.lvector("i")
    given = normal(rng, 17, 30), normal(rng, 17, 30), rng.integers(-17, 16, 30)
    row = pt.frow("row")
    chained = pt.inc_subtensor(pt.inc_subtensor(a[:, i], pt.exp(m))[:, i + 1], pt.exp(m))
    check([a, m, i], [pt.exp(a[i[:17]] * m)], given, fused=0, apart=1)  # another axis
    check([a, m, i], [pt.set_subtensor(a[:, i], pt.exp(m))], given, fused=0, apart=1)
    check([a, i], [a[:, i]], given[::2], fused=0, apart=1)
    check([a, m, i], [a[:, i], pt.exp(a[:, i]) * m], given, fused=0, apart=1)  # the gathered array is a result
    check([a, m, i], [chained], given, fused=1, apart=1)  # the second needs the first
    check([row, m, i], [pt.exp(row[:, i] * m)], (normal(rng, 1, 17), *given[1:]), fused=0, apart=1)


def test_functions_of_tables(context, rng):
    """Effects that are not centred: a table is computed of a matrix and of numbers for each row."""
    mean, scale = pt.fvector("mean"), pt.fcol("scale")
    z, w, x, i = pt.fmatrix("z"), pt.fmatrix("w"), pt.frow("x"), pt.lvector("i")
    a, b = mean[:, None] + pt.exp(scale) * z, pt.tanh(w * z + 1)
    cost = pt.sqr(a[:, i] + b[:, i] * x).sum(axis=1)
    sizes = (19, 7, 60), (8, 30, 9), (3, 5, 40), (16, 4, 0), (0, 3, 4)
    values = [
        (
            normal(rng, rows),
            normal(rng, rows, 1),
            normal(rng, rows, groups),
            normal(rng, rows, groups),
            normal(rng, 1, count),
            rng.integers(-groups, groups, count),
        )
        for rows, groups, count in sizes
    ]
    inputs = [mean, scale, z, w, x, i]
    f = check(inputs, [cost], *values)
    assert len([op for op in device_ops(f) if not isinstance(op, GpuDimShuffle)]) == 2  # with exp(scale)
    check(inputs, [cost, *pytensor.grad(cost.sum(), [mean, scale, z, w])], *values)
    for wrong in range(2, 4):
        bad = list(values[0])
        bad[wrong] = bad[wrong][:, :-1]
        with pytest.raises(ValueError):
            f(*bad)
    both = check([mean, scale, z, i], [pt.sqr(a[:, i]).sum(1), a], *((*v[:3], v[5]) for v in values[:2]))
    assert sum(isinstance(op, GpuElemwise) for op in device_ops(both)) == 2  # the table is a result too


def test_tables_that_leave_no_room_for_arguments(context, rng):
    tables, i = [pt.fmatrix(f"t{k}") for k in range(20)], pt.lvector("i")
    given = *(normal(rng, 17, 6) for _ in tables), rng.integers(-6, 6, 30)
    has_room = context.info.max_parameter_size >= 2048
    check([*tables, i], [sum(t[:, i] for t in tables)], given, fused=int(has_room), apart=0 if has_room else 20)


def test_constant_index(context, rng):
    a, m = pt.fmatrix("a"), pt.fmatrix("m")
    places = rng.integers(-6, 6, 30)
    out = pt.inc_subtensor(pt.zeros_like(a)[:, places], pt.sqr(a[:, places] * m))
    f = check([a, m], [out], (normal(rng, 17, 6), normal(rng, 17, 30)))
    (node,) = [n for n in f.maker.fgraph.apply_nodes if isinstance(n.op, GpuGroupedRows)]
    assert not node.op.routine(node, context).is_checked
    with pytest.raises(IndexError, match="out of bounds for axis 1 with size 3"):
        f(normal(rng, 17, 3), normal(rng, 17, 30))


def test_index_out_of_range(context, rng):
    """The error names the node; shared variables keep their values; captured graphs too."""
    inputs, density, gradient = model()
    table = pytensor.shared(normal(rng, 19, 5), "table")
    given = values_of(rng, 19, 60, 5)
    a = inputs[0]
    f = opencl(inputs[1:], [density], updates=[(table, table + gradient[0])], givens={a: table})
    before = table.get_value()
    for wrong in (5, -6):
        bad = given[5].copy()
        bad[50] = wrong
        for _ in range(6):
            with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 1 with size 5") as caught:
                f(*given[1:5], bad)
            assert any("Raised by node GpuGroupedRows" in note for note in caught.value.__notes__)
            assert_close(table.get_value(), before)
    f(*given[1:])
    assert not np.array_equal(table.get_value(), before)


def test_replay(context, rng):
    """Captured graphs take new values and indices; each call is compared."""
    inputs, density, gradient = model()
    f, host = opencl(inputs, [density, *gradient]), pytensor.function(inputs, [density, *gradient], mode="FAST_COMPILE")
    for _ in range(8):
        given = values_of(rng, 19, 60, 7)
        for got, wanted in zip(f(*given), host(*given), strict=True):
            assert_close(got, wanted)
    assert "captured" in str(pytensor_cl.explain(f))


def test_shape_pickle_and_profile(context, rng):
    a, m, i = pt.fmatrix("a"), pt.fmatrix("m"), pt.lvector("i")
    given = normal(rng, 17, 6), normal(rng, 17, 30), rng.integers(-6, 6, 30)
    full, added = pt.exp(a[:, i] * m), pt.inc_subtensor(a[:, i], pt.exp(a[:, i] * m))
    f = opencl([a, m, i], [*full.shape, *added.shape])
    assert [int(n) for n in f(*given)] == [17, 30, 17, 6]
    assert not any(isinstance(op, GpuGroupedRows) for op in device_ops(f))
    f = check([a, m, i], [full, added, full.shape[1]], given)
    (op,) = [op for op in device_ops(f) if isinstance(op, GpuGroupedRows)]
    assert pickle.loads(pickle.dumps(op)) == op
    with pytensor_cl.profile(f) as p:
        f(*given)
    assert "GpuGroupedRows" in str(p)
