"""Elements picked from elementwise results, in compiled functions."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.tensor.special import log_softmax

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.indexing.gather_fused import GpuFusedGather
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from tests.helpers import assert_close, check_against_python, device_ops, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device", floatX="float32"):
        yield


def check(inputs, outputs, *arguments):
    return check_against_python(inputs, outputs, (GpuFusedGather,), *arguments)


def is_picked(inputs, *outputs):
    """Return whether a GpuFusedGather occurs in what is compiled."""
    return GpuFusedGather in {type(op) for op in device_ops(opencl(inputs, list(outputs)))}


def picks(rng, shape, count, dtype="float32"):
    """An array, and indices of some of its elements."""
    return rng.normal(size=shape).astype(dtype), *(rng.integers(-n, n, size=count) for n in shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy_of_picked_classes(context, rng, dtype):
    z, b, y = pt.matrix("z", dtype=dtype), pt.vector("b", dtype=dtype), pt.lvector("y")
    cost = -log_softmax(z + b, axis=1)[pt.arange(y.shape[0]), y].sum()
    values = rng.normal(size=(37, 11)).astype(dtype), rng.normal(size=11).astype(dtype), rng.integers(0, 11, size=37)
    f = check([z, b, y], [cost, *pytensor.grad(cost, [z, b])], values, (values[0] + 300, *values[1:]))
    (op,) = [op for op in device_ops(f) if isinstance(op, GpuFusedGather)]
    assert str(op).startswith("GpuFusedGather{") and "exp" not in str(op)  # the sum of the exponentials is there
    assert GpuAdvancedSubtensor not in {type(op) for op in device_ops(f)}


def test_the_whole_is_not_stored(context, rng):
    z, y = pt.fmatrix("z"), pt.lvector("y")
    f = check(
        [z, y], [log_softmax(z, axis=1)[pt.arange(y.shape[0]), y]], (picks(rng, (20, 9), 20)[0], np.arange(20) % 9)
    )
    shapes = [v.type.broadcastable for n in f.maker.fgraph.apply_nodes for v in n.outputs if isinstance(n.op, GpuOp)]
    assert shapes and (False, False) not in shapes


def test_dimensions_and_numbers(context, rng):
    x, i, j, k = pt.ftensor3("x"), pt.lvector("i"), pt.lvector("j"), pt.lvector("k")
    s, at = pt.fscalar("s"), pt.lscalar("at")
    value, *index = picks(rng, (5, 6, 7), 8)
    rest = np.float32(1.5), np.int64(-2)
    outputs = pt.exp(x * s)[i, j, k], pt.cos(x)[i, j, at], (x + x[:, 0].dimshuffle(0, "x", 1))[i[:, None], j, k]
    check([x, i, j, k, s, at], list(outputs), (value, *index, *rest), (value[:, ::-1], *index, *rest))


def test_only_one_output_of_several_is_picked(context, rng):
    x, i, j = pt.fmatrix("x"), pt.lvector("i"), pt.lvector("j")
    twice = pt.exp(x) * 2
    f = check([x, i, j], [pt.sin(twice)[i, j], pt.cos(twice)], picks(rng, (8, 9), 5))
    assert all(len(n.outputs) == 1 for n in f.maker.fgraph.apply_nodes if isinstance(n.op, GpuElemwise))


def test_outputs_of_one_composite_are_picked_one_by_one(context, rng):
    x, y, i, j = pt.fmatrix("x"), pt.fmatrix("y"), pt.lvector("i"), pt.lvector("j")
    e = pt.exp(x + 2 * y)
    values = [rng.normal(size=(6, 7)).astype("float32") for _ in range(2)]
    f = check([x, y, i, j], [pt.log1p(e)[i, j], (e * y)[j, i], e], (*values, np.arange(5), np.arange(-5, 0)))
    assert sum(isinstance(op, GpuFusedGather) for op in device_ops(f)) == 2


def test_long_functions(context, rng):
    x, i = pt.fmatrix("x"), pt.lvector("i")
    y = x
    for _ in range(40):
        y = pt.sin(y) + x
    f = check([x, i], [y[i, i]], (rng.normal(size=(6, 7)).astype("float32"), np.arange(6)))
    assert len(str(next(op for op in device_ops(f) if isinstance(op, GpuFusedGather)))) < 200


def test_what_is_stored_anyway_or_may_be_repeated_is_gathered(context):
    x, i, j = pt.fmatrix("x"), pt.lvector("i"), pt.lvector("j")
    mask = pt.matrix("mask", dtype="bool")
    e = pt.exp(x)
    assert is_picked([x, i, j], e[i, j])
    assert not is_picked([x, i, j], e[i, j], e)
    assert not is_picked([x, i, j], e[i, j], e.sum())
    assert not is_picked([x, i], e[i])
    assert not is_picked([x, i], e[:, i])
    assert not is_picked([x, i, j], e[i[:, None], j])
    assert not is_picked([x, mask], e[mask])
    assert not is_picked([x, i, j], pt.dot(x, x)[i, j])


def test_errors_are_those_of_the_host(context, rng):
    x, c, i, j = pt.fmatrix("x"), pt.fmatrix("c"), pt.lvector("i"), pt.lvector("j")
    f = check([x, c, i, j], [(x * c)[i, j]], (*picks(rng, (4, 5), 0)[:1] * 2, *picks(rng, (4, 5), 3)[1:]))
    ones = np.ones((4, 5), "float32")
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 1 with size 5"):
        f(ones, ones, [0, 1], [2, 5])
    with pytest.raises(ValueError, match="dimension mismatch"):
        f(ones, ones[:3], [0, 1], [2, 3])
    with pytest.raises(ValueError, match="Runtime broadcasting"):
        f(ones, ones[:1], [0], [2])
    assert_close(f(ones, 2 * ones, [0, 1], [2, 3])[0], np.full(2, 2, "float32"))


def test_constant_index_and_more_picks_than_elements(context, rng):
    x, i = pt.fmatrix("x"), pt.lvector("i")
    value = rng.normal(size=(3, 4)).astype("float32")
    f = check([x, i], [pt.exp(x)[i, np.arange(3)], pt.sin(x)[i, i]], (value, np.array([2, 0, 1])))
    assert_close(f(value, np.full(3, 1))[1], np.full(3, np.sin(value[1, 1])))
    g = check([x, i], [pt.sin(x)[i, i]], (value, np.tile([0, 2, 1], 9)), (value, np.arange(0)))
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0"):
        g(value, np.full(30, 3))


def test_shape_pickle_and_the_tag_of_the_pass(context, rng):
    x, i, j = pt.fmatrix("x"), pt.lvector("i"), pt.lvector("j")
    picked = pt.exp(x)[i, j]
    f = opencl([x, i, j], [picked, picked.shape[0]])
    values = picks(rng, (4, 5), 3)
    for got, want in zip(pickle.loads(pickle.dumps(f))(*values), f(*values), strict=True):
        np.testing.assert_array_equal(got, want)
    g = pytensor.function([x, i, j], picked, mode=get_mode("OPENCL").excluding("opencl_fuse_gather"))
    assert GpuFusedGather not in {type(op) for op in device_ops(g)}
    assert_close(f(*values)[0], g(*values))
