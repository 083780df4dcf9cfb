"""Batches of Ops that have no batched form, as `vectorize_graph` makes them: nothing of them is left to the host."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.blockwise import Blockwise

import pytensor_cl
from pytensor_cl.ops.alloc import GpuAlloc
from pytensor_cl.ops.creation import GpuARange
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedIncSubtensor, GpuAdvancedSubtensor
from pytensor_cl.ops.indexing.ravel_multi_index import GpuRavelMultiIndex, GpuUnravelIndex
from pytensor_cl.ops.join import GpuJoin, GpuSplit
from pytensor_cl.ops.shape import GpuReshape
from pytensor_cl.rewriting.decompose.batch import repeated
from tests.helpers import assert_close, assert_on_device, host_ops, opencl

x, m, c = pt.fvector("x"), pt.fmatrix("m"), pt.ftensor3("c")
i, j = pt.lscalar("i"), pt.lscalar("j")
u, v, w = pt.lvector("u"), pt.lvector("v"), pt.lmatrix("w")
s, y = pt.fscalar("s"), pt.fvector("y")

BATCH = 3
SHAPES = {x: (9,), m: (4, 9), c: (4, 3, 9), i: (), j: (), u: (2,), v: (2,), w: (5, 2), s: (), y: (2,)}
LOW, HIGH = -3, 3
"""Indices that are right for each axis."""


@pytest.fixture(autouse=True)
def everything_on_the_device():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def batched(variable):
    """A batch of a variable."""
    return pt.tensor(f"batch of {variable.name}", dtype=variable.dtype, shape=(None,) * (variable.ndim + 1))


def function_of(cases):
    """Compile one function of many graphs, in each of which some variables stand for batches."""
    outputs = [vectorize_graph(out, {k: BATCHES[k] for k in many}) for out, many in cases]
    inputs = [*SHAPES, *BATCHES.values()]
    return inputs, outputs


BATCHES = {variable: batched(variable) for variable in SHAPES}


def values(rng, **given):
    """Values of all variables and of their batches."""
    found = []
    for shape_of in (lambda k: SHAPES[k], lambda k: (BATCH, *SHAPES[k])):
        for k in SHAPES:
            is_float = k.dtype == "float32"
            found.append(rng.normal(size=shape_of(k)) if is_float else rng.integers(LOW, HIGH, size=shape_of(k)))
            found[-1] = np.asarray(found[-1], k.dtype)
    for name, value in given.items():
        found[len(SHAPES) + [k.name for k in SHAPES].index(name)] = np.asarray(value)
    return found


GROUPS = {
    "arrays": (
        [GpuAdvancedSubtensor],
        [
            (x[v], [v]),
            (x[v], [x, v]),
            (m[:, v], [v]),
            (m[1:, v], [m, v]),
            (m[v, w], [m, v]),
            (m[w, u], [w, u]),
            (c[v, :, u], [c]),
            (c[v, :, u], [c, v]),
            (c[:, v, u], [u, v]),
            (c[:, w], [c, w]),
            (pt.take_along_axis(m, w[:4], 1), [m, w]),
        ],
    ),
    "numbers": (
        [GpuAdvancedSubtensor],
        [(x[i], [i]), (x[i], [x, i]), (m[:, i], [m, i]), (m[i, 1:], [i]), (c[i, :, j], [c, j])],
    ),
    "slices": (
        [GpuAdvancedSubtensor],
        [
            (x[i + 3 : i + 6], [i]),
            (m[:, i + 6 : i + 3 : -2], [m, i]),
            (m[i, j + 4 : j + 6], [m, i, j]),
            (c[:2, :, i - 6 : i - 4], [i]),
            (m[:, 20 + i : 30], [i]),
            (c[(j + 3) % 2 : (j + 3) % 2 + 1, 1:, i + 3 : i + 5], [i, j, c]),
        ],
    ),
    "changes": (
        [GpuAdvancedIncSubtensor],
        [
            (x[v].inc(y), [x, v]),
            (x[i].set(s), [x, i, s]),
            (x[i + 3 : i + 5].set(y), [x, i, y]),
            (m[:, i + 3 : i + 5].inc(y), [i, y]),
            (c[i, :, j + 3 : j + 5].inc(y), [c, i, j]),
        ],
    ),
    "flat": (
        [GpuUnravelIndex, GpuRavelMultiIndex],
        [
            (pt.unravel_index(v + 3, (3, 4))[1], [v]),
            (pt.ravel_multi_index((v + 3, u + 3), (9, 7)), [v]),
            (pt.ravel_multi_index((u + 3, v + 3), (9, 7), order="F"), [v]),
            (pt.ravel_multi_index((w, v), (2, 5), mode="wrap"), [w, v]),
        ],
    ),
}


@pytest.mark.parametrize("group", GROUPS)
def test_indices(context, group, rng):
    kinds, cases = GROUPS[group]
    inputs, outputs = function_of(cases)
    f = opencl(inputs, outputs, on_unused_input="ignore")
    assert_on_device(f, *kinds)
    assert not any(isinstance(op, Blockwise) for op in host_ops(f))
    arguments = values(rng)
    host = pytensor.function(inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore")
    for got, wanted in zip(f(*arguments), host(*arguments), strict=True):
        assert_close(got, wanted)


LENGTHS = [
    (pt.arange(i), [i]),
    (pt.arange(j, i, 2), [i, j]),
    (pt.arange(j + 5, j, -2), [j]),
    (pt.arange(s, s + 1.1, np.float32(0.25)), [s]),
    (pt.alloc(s, i, 2), [i, s]),
    (pt.alloc(x, i, 9), [i]),
    (x.reshape((i, -1)), [x, i]),
    (x.reshape((i, 3)), [i]),
]


@pytest.fixture
def of_lengths(context):
    """A function whose batches must agree."""
    inputs, outputs = function_of(LENGTHS)
    f = opencl(inputs, outputs, on_unused_input="ignore")
    assert_on_device(f, GpuARange, GpuAlloc, GpuReshape)
    assert not any(isinstance(op, Blockwise) for op in host_ops(f))
    return f, pytensor.function(inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore")


def test_lengths(of_lengths, rng):
    f, host = of_lengths
    for given in ({"i": [3, 3, 3], "j": [1, 2, 1]}, {"i": [3], "j": [2]}):
        arguments = values(rng, **given)
        if len(given["i"]) == 1:
            arguments = [a[:1] if n >= len(SHAPES) else a for n, a in enumerate(arguments)]
        for got, wanted in zip(f(*arguments), host(*arguments), strict=True):
            assert_close(got, wanted)


def test_lengths_that_differ(of_lengths, rng):
    with pytest.raises(ValueError, match="the results of a batch have different shapes"):
        of_lengths[0](*values(rng, i=[3, 1, 3], j=[0, 0, 0]))


def test_batches_that_differ(context, rng):
    """One is not repeated where it was not known to be one."""
    inputs, outputs = function_of([(x[v], [x, v]), (m[u, v], [u, v])])
    f = opencl(inputs, outputs, on_unused_input="ignore")
    for short in (x, u):
        arguments = values(rng)
        at = len(SHAPES) + list(SHAPES).index(short)
        arguments[at] = arguments[at][:1]
        with pytest.raises(ValueError, match="batch dimensions"):
            f(*arguments)


def test_indices_out_of_range(context, rng):
    inputs, outputs = function_of([(x[v], [x, v])])
    f = opencl(inputs, outputs, on_unused_input="ignore")
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 1 with size 9"):
        f(*values(rng, v=[[0, 1], [2, 9], [0, 0]]))


@pytest.mark.parametrize("rows", [None, 3])
def test_gradient(context, rows, rng):
    """The transpose of a gather of each row is a scatter into each row."""
    a, k = pt.tensor("a", dtype="float32", shape=(rows, None)), pt.lmatrix("k")
    picked = vectorize_graph(x[v], {x: a, v: k})
    slope = pt.grad((picked**2).sum(), a)
    f = opencl([a, k], slope)
    assert_on_device(f, GpuAdvancedSubtensor, GpuAdvancedIncSubtensor)
    data, places = rng.normal(size=(3, 5)).astype("float32"), np.array([[0, 1], [2, 2], [4, -1]])
    assert_close(f(data, places), pytensor.function([a, k], slope, mode="FAST_COMPILE")(data, places))


def test_gradient_of_a_join(context, rng):
    a, b = pt.matrix("a", dtype="float32"), pt.matrix("b", dtype="float32")
    first, second = pt.vector("first", dtype="float32"), pt.vector("second", dtype="float32")
    slopes = pt.grad((pt.concatenate([first, second]) ** 3).sum(), [first, second])
    f = opencl([a, b], vectorize_graph(slopes, {first: a, second: b}))
    assert_on_device(f, GpuSplit)
    assert not [op for op in host_ops(f) if isinstance(op, Blockwise)]
    values = [rng.normal(size=(4, n)).astype("float32") for n in (3, 2)]
    for got, value in zip(f(*values), values, strict=True):
        assert_close(got, 3 * value**2)


def test_join_of_a_batch_and_one_array(context, rng):
    first, second, a = pt.fmatrix("first"), pt.fmatrix("second"), pt.ftensor3("a")
    joined = pt.concatenate([first, second], axis=1)
    f = opencl([a, second], vectorize_graph(joined, {first: a}) * 2)
    assert_on_device(f, GpuJoin)
    assert not [op for op in host_ops(f) if isinstance(op, Blockwise)]
    many, one = rng.normal(size=(3, 4, 5)).astype("float32"), rng.normal(size=(4, 2)).astype("float32")
    assert_close(f(many, one), 2 * np.concatenate([many, np.broadcast_to(one, (3, 4, 2))], axis=2))
    with pytest.raises(ValueError):
        f(many, one[:3])


def test_remaining_nodes_have_a_reason(context):
    """A mask may select another number of elements from each batch."""
    mask = pt.tensor("mask", dtype="bool", shape=(None,))
    masks = pt.tensor("masks", dtype="bool", shape=(None, None))
    f = opencl([x, masks], vectorize_graph(pt.exp(x)[mask] * 2, {mask: masks}))
    (reason,) = [n.reason for n in pytensor_cl.explain(f).host_nodes if isinstance(n.op, Blockwise)]
    assert reason.startswith("what each batch takes may differ in shape")
    data, ones = np.arange(3, dtype="float32"), np.array([[True, False, True], [False, True, True]])
    assert_close(f(data, ones), np.float32([2 * np.exp(data)[row] for row in ones]))


def works_of(f):
    return [type(n.op).__name__ for n in pytensor_cl.explain(f).device_nodes if n.op.is_compute]


def test_a_shape_that_is_the_same_for_the_whole_batch_stays_on_the_host(context, rng):
    """`einsum` makes batches of shapes, which repeat one."""
    a, b, d = pt.fmatrix("a"), pt.fmatrix("b"), pt.fmatrix("d")
    f = opencl([a, b, d], pt.einsum("ij,kj,lj->ikl", a, b, d))
    given = [rng.normal(size=(n, 6)).astype("float32") for n in (3, 4, 5)]
    assert_close(f(*given), np.einsum("ij,kj,lj->ikl", *given), rtol=1e-5)
    assert works_of(f) == ["GpuMatmul", "GpuDot"]


def test_what_repeats_is_seen():
    n, k = pt.lscalar("n"), pt.lvector("k")
    table = pt.alloc(k, n, k.shape[0])
    picked = table[:, 1]
    assert repeated(k, 1) is None
    assert repeated(pt.stack([picked, k], axis=1), 1) is None
    assert repeated(table[1:], 1) is None and repeated(table.T, 1) is None
    for batch, want in (
        (table, [7, 8, 9]),
        (picked, 8),
        (table[:, ::2], [7, 9]),
        (pt.alloc(k[0], n, 2), [7, 7]),
        (pt.alloc(k[None], n, 3), [7, 8, 9]),
        (picked * 2 + pt.alloc(3, n), 19),
        (pt.join(1, picked[:, None], table, [[4]] * pt.ones((n, 1), dtype="int64")), [8, 7, 8, 9, 4]),
    ):
        one = repeated(batch, 1)
        assert one.type.ndim == batch.type.ndim - 1
        np.testing.assert_array_equal(
            one.eval({k: [7, 8, 9], n: 2}, mode="FAST_COMPILE", on_unused_input="ignore"), want
        )


def test_reshapes_that_differ_in_where_their_unknown_length_is(context, rng):
    """What has to be the same for the batch is the shape that results."""
    shapes = pt.lmatrix("shapes")
    out = vectorize_graph(pt.reshape(x * 2, i_shape := pt.lvector("shape"), ndim=2), {i_shape: shapes})
    f = opencl([x, shapes], out)
    assert_on_device(f, GpuReshape)
    value = rng.normal(size=6).astype("float32")
    want = np.broadcast_to(2 * value.reshape(2, 3), (3, 2, 3))
    assert_close(f(value, [[-1, 3], [2, -1], [2, 3]]), want)
    assert_close(f(value, [[2, 3]] * 3), want)
    assert f(value[:0], [[-1, 3], [0, 3]]).shape == (2, 0, 3)
    for wrong, message in (
        ([[-1, 3], [3, -1]], "different shapes"),
        ([[-1, 4], [-1, 4]], "cannot reshape"),
        ([[-1, -1], [-1, -1]], "cannot reshape"),
    ):
        with pytest.raises(ValueError, match=message):
            f(value, wrong)
