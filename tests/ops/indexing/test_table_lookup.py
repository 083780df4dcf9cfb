"""Elements of tables that elementwise nodes and reductions look up, in compiled functions."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.shape import Shape_i

import pytensor_cl
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from pytensor_cl.ops.rowwise import GpuRowwise
from tests.helpers import assert_all_on_device, assert_close, check_against_python, device_ops, host_ops, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device", floatX="float32"):
        yield


def check(inputs, outputs, *arguments, gathers=0):
    """Compare with the host, and count the gathers that are left."""
    f = check_against_python(inputs, outputs, (GpuRowwise,), *arguments)
    assert sum(isinstance(op, GpuAdvancedSubtensor) for op in device_ops(f)) == gathers
    return f


def groups(rng, n, length, dtype="int64"):
    low = 0 if dtype.startswith("u") else -length
    return rng.integers(low, length, size=n).astype(dtype)


def normal(rng, *shape, dtype="float32"):
    return rng.normal(size=shape).astype(dtype)


def test_hierarchical_model(context, rng):
    alpha, beta, x, y, group = (
        pt.fvector("alpha"),
        pt.fvector("beta"),
        pt.fvector("x"),
        pt.fvector("y"),
        pt.lvector("g"),
    )
    error = y - (alpha[group] + beta[group] * x)
    logp = -(error**2).sum() / 2 - (alpha**2).sum()
    values = [
        (normal(rng, j), normal(rng, j), normal(rng, n), normal(rng, n), groups(rng, n, j))
        for n, j in ((40000, 300), (7, 2), (1, 1), (0, 3))
    ]
    inputs = [alpha, beta, x, y, group]
    f = check(inputs, [logp], *values)
    assert [type(op) for op in device_ops(f)].count(GpuRowwise) == len(device_ops(f)) == 2
    first = pytensor.grad(logp, [alpha, beta])
    f = check(inputs, [logp, *first], *values)
    assert all(isinstance(op, Shape_i) for op in host_ops(f))
    again = pytensor.grad((first[1] ** 2).sum() + (first[0] * first[1]).sum(), [alpha, x])
    check(inputs, again, *values[:2], gathers=1)  # two kernels read beta[group]


def test_tables_fit_beside_what_the_kernel_keeps_to_itself(context, rng):
    """Values that no memory holds take no room among the arguments; a row value of float64 changes no lanes."""
    a, b, log_sd, x, y, group = pt.fvector(), pt.fvector(), pt.fscalar(), pt.fvector(), pt.fvector(), pt.lvector()
    z = (y - a[group] - b[group] * x) * pt.exp(-log_sd)
    logp = -0.5 * ((z**2).sum() + (a**2).sum() + (b**2).sum()) - x.shape[0] * log_sd
    inputs = [a, b, log_sd, x, y, group]
    values = [
        (normal(rng, 5), normal(rng, 5), np.float32(0.3), normal(rng, n), normal(rng, n), groups(rng, n, 5))
        for n in (1, 15, 20000)
    ]
    f = check(inputs, [logp, *pytensor.grad(logp, [a, b, log_sd])], *values)
    (large,) = [op for op in device_ops(f) if isinstance(op, GpuRowwise) and op.function.tables]
    assert large.function.itemsize == 4


def test_one_elementwise_node(context, rng):
    a, b, i, j, x = pt.fvector("a"), pt.dvector("b"), pt.lvector("i"), pt.ivector("j"), pt.fvector("x")
    values = normal(rng, 9), normal(rng, 11, dtype="float64"), groups(rng, 333, 9), groups(rng, 333, 9, "int32")
    f = check([a, b, i, j], [a[i] + a[j] * b[i], pt.exp(b[i]) > a[j]], values)  # a with two indices, i of two tables
    assert len(device_ops(f)) == 1 and "take" in str(device_ops(f)[0])
    f = check([a, i, x], [a[i] * x + i], (values[0], values[2], normal(rng, 333)))  # i is an operand as well
    assert len(device_ops(f)) == 1
    f = check([a, i], [a[i].sum(), a[i].max()], (values[0], values[2]))
    assert len(device_ops(f)) == 1
    f = check([a, i], [a[i].sum()], (values[0], values[2]), (values[0], values[2][:0]))
    assert len(device_ops(f)) == 1


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "int64"])
def test_index_dtypes(context, rng, dtype):
    table, i, x = pt.fvector("table"), pt.vector("i", dtype=dtype), pt.fvector("x")
    f = check([table, i, x], [table[i] * x], (normal(rng, 100), groups(rng, 77, 100, dtype), normal(rng, 77)))
    assert len(device_ops(f)) == 1


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint16", "int64", "bool"])
def test_table_dtypes(context, rng, dtype):
    table, i, x = pt.vector("table", dtype=dtype), pt.lvector("i"), pt.fvector("x")
    values = rng.integers(0, 2 if dtype == "bool" else 100, size=30).astype(dtype)
    f = check([table, i, x], [table[i] * x], (values, groups(rng, 77, 30), normal(rng, 77)))
    assert len(device_ops(f)) == 1


def test_what_has_no_code_or_other_readers_is_gathered(context, rng):
    a, i, x = pt.fvector("a"), pt.lvector("i"), pt.fvector("x")
    half, m = pt.vector("h", dtype="float16"), pt.fmatrix("m")
    mask = pt.vector("mask", dtype="bool")
    values, square = (normal(rng, 8), groups(rng, 20, 8), normal(rng, 20)), normal(rng, 7, 9)
    for inputs, outputs, given in (
        ([a, i, x], [a[i], (a[i] * x).sum()], values),
        (
            [m, i, a],
            [pt.exp(m * a[i]), m.sum()],
            (square, groups(rng, 9, 8), values[0]),
        ),  # would be looked up for each row
        ([m, i, x], [(m[i] * x[:, None]).sum()], (normal(rng, 8, 3), *values[1:])),
        ([half, i, x], [(half[i] + x).sum()], (values[0].astype("float16"), *values[1:])),
        ([a, mask], [pt.exp(a[mask] ** 2).sum()], (values[0], values[0] > 0)),
    ):
        f = check_against_python(inputs, outputs, (GpuAdvancedSubtensor,), given)
        assert not any("take" in str(op) for op in device_ops(f))


def test_dimensions_and_views(context, rng):
    table, x, i = pt.fvector("table"), pt.fmatrix("x"), pt.lvector("i")
    k = pt.lmatrix("k")
    t, square = normal(rng, 12), normal(rng, 30, 40)
    of_rows, of_columns = (table[i][:, None] * x).sum(axis=1), pt.exp(table[i] * x).sum(axis=1)
    f = check([table, i, x], [of_rows], (t, groups(rng, 30, 12), square))
    assert len(device_ops(f)) <= 2  # and a view
    check([table, i, x], [of_columns, (table[i] * x).sum(axis=0)], (t, groups(rng, 40, 12), square), gathers=1)
    f = check([table, k, x], [table[k] + x.T], (t, groups(rng, (40, 30), 12), square))
    softmax = pt.special.softmax(table[k] + x, axis=1)
    check([table, k, x], [softmax], (t, groups(rng, (30, 40), 12), square))
    check([table, k], [table[k[::-1, ::2]] ** 2, table[::-2][k[:, :1] // 3] + 1], (t, groups(rng, (40, 30), 12)))


def test_index_out_of_range(context, rng):
    table = pytensor.shared(normal(rng, 5), "table")
    count = pytensor.shared(np.float32(0), "count")
    i, x = pt.lvector("i"), pt.fvector("x")
    out = (table[i] * x).sum()
    f = opencl([i, x], [out], updates=[(count, count + out), (table, table + 1)])
    good, ones = np.array([0, -5, 4]), np.ones(3, "float32")
    before = table.get_value()
    for wrong in (5, -6):
        for _ in range(6):  # recorded calls as well
            with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 0 with size 5") as caught:
                f(np.array([0, wrong, 4]), ones)
            assert any("Raised by node GpuRowwise" in note for note in caught.value.__notes__)
            assert_close(table.get_value(), before)
        for _ in range(5):
            expected = table.get_value()[good].sum()
            assert_close(f(good, ones)[0], np.float32(expected))
        before = table.get_value()
    assert np.isfinite(count.get_value())
    with pytest.raises(ValueError):
        f(good, ones[:2])


def test_empty_tables_and_indices(context):
    table, i, x = pt.fvector("table"), pt.lvector("i"), pt.fvector("x")
    f = opencl([table, i, x], [table[i] + x])
    empty, none = np.zeros(0, "float32"), np.zeros(0, "int64")
    assert f(empty, none, empty)[0].shape == (0,)
    with pytest.raises(IndexError, match="index 0 is out of bounds for axis 0 with size 0"):
        f(empty, np.zeros(1, "int64"), np.zeros(1, "float32"))
    assert f(np.ones(2, "float32"), none, empty)[0].shape == (0,)


def test_constant_index(context, rng):
    table, x = pt.fvector("table"), pt.fvector("x")
    places = groups(rng, 50, 6)
    f = check([table, x], [table[places] * x], (normal(rng, 6), normal(rng, 50)))
    (node,) = [n for n in f.maker.fgraph.apply_nodes if isinstance(n.op, GpuRowwise)]
    assert not node.op.routine(node, context).is_checked
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 3"):
        f(normal(rng, 3), normal(rng, 50))


def test_many_tables(context, rng):
    tables, i, x = [pt.fvector(f"t{k}") for k in range(40)], pt.lvector("i"), pt.fvector("x")
    values = [normal(rng, 5) for _ in tables]
    places, factor = groups(rng, 40, 5), normal(rng, 40)
    f = opencl([*tables, i, x], [sum(t[i] for t in tables) * x])
    assert_all_on_device(f)
    assert_close(f(*values, places, factor)[0], np.float32(sum(values)[places] * factor))


def test_shape_pickle_profile_and_recording(context, rng):
    table, i, x = pt.fvector("table"), pt.lvector("i"), pt.fvector("x")
    values = normal(rng, 6), groups(rng, 50, 6), normal(rng, 50)
    f = check([table, i, x], [(table[i] * x).shape[0], (table[i] * x).sum()], values)
    out = opencl([table, i, x], [pt.sqrt(table[i] ** 2) * x])
    again = pickle.loads(pickle.dumps(out.maker.fgraph.toposort()[-2].op))
    assert again == out.maker.fgraph.toposort()[-2].op
    with pytensor_cl.profile(out) as p:
        out(*values)
    assert "take" in str(p)
    for k in range(8):
        given = values[0], np.roll(values[1], k), values[2] + k
        assert_close(out(*given)[0], np.abs(given[0])[given[1]] * given[2])
    assert f is not out


def test_rows_of_matrices(context, rng):
    """Regressions with coefficients for each group, and products of factors."""
    u, v, x, y = pt.fmatrix("u"), pt.fmatrix("v"), pt.fmatrix("x"), pt.fvector("y")
    i, j = pt.lvector("i"), pt.ivector("j")
    error = (x * u[i]).sum(1) - y
    cost = (error**2).sum()
    for k in (5, 16, 37):
        values = normal(rng, 30, k), normal(rng, 70, k), normal(rng, 70), groups(rng, 70, 30)
        f = check([u, x, y, i], [cost], values)
        assert [type(op) for op in device_ops(f)].count(GpuRowwise) == 2
        check([u, x, y, i], [cost, pytensor.grad(cost, u)], values)
        both = ((u[i] * v[j]).sum(1) - y) ** 2
        values = normal(rng, 30, k), normal(rng, 20, k), *values[2:], groups(rng, 70, 20, "int32")
        check([u, v, y, i, j], [both.sum(), *pytensor.grad(both.sum(), [u, v])], values)
    f = check([u, i], [(u[i] ** 2).sum(1), u[i]], (values[0], values[3]), gathers=1)  # another node reads the rows
    with pytest.raises(IndexError, match="index 30 is out of bounds"):
        opencl([u, i], (u[i] ** 2).sum(1))(values[0], np.full(70, 30))
    assert pickle.loads(pickle.dumps(f))(values[0], values[3])[1].shape == (70, 37)
