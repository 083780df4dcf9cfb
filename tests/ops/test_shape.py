"""DimShuffle, Reshape and SpecifyShape in compiled functions: views where the strides allow."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.extra_ops import cpu_contiguous
from pytensor.tensor.reshape import SplitDims

from pytensor_cl import GpuArrayType
from pytensor_cl.ops.shape import (
    GpuCheckAndRaise,
    GpuCpuContiguous,
    GpuDimShuffle,
    GpuJoinDims,
    GpuReshape,
    GpuSpecifyShape,
    GpuSplitDims,
    target_shape,
)
from tests.helpers import assert_close, assert_on_device, opencl


@pytest.fixture
def value(rng):
    return rng.normal(size=(4, 1, 6)).astype("float32")


@pytest.fixture
def x(context):
    return pt.tensor("x", dtype="float32", shape=(None, 1, None))


def check(inputs, outputs, kinds, *arguments):
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl(inputs, outputs)
    assert_on_device(f, *kinds)
    expected = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*arguments)
    for got, wanted in zip(f(*arguments), expected, strict=True):
        assert_close(got, wanted)
    return f


def test_dimshuffle(x, value):
    outputs = [
        x.dimshuffle(2, 0),
        x.dimshuffle("x", 0, 2, "x", 1),
        x.T,
        pt.exp(x).squeeze(),
        pt.exp(x.dimshuffle(2, 1, 0)).T,
    ]
    outputs += [pt.moveaxis(x, 0, -1), pt.expand_dims(pt.exp(x), 0), pt.swapaxes(pt.tanh(x), 0, 2)]
    check([x], outputs, [GpuDimShuffle], value)
    check([x], outputs, [GpuDimShuffle], value[:0])


def test_reshape(x, value):
    n = pt.scalar("n", dtype="int64")
    shape = pt.vector("shape", dtype="int64")
    e = pt.exp(x)
    outputs = [
        e.reshape((-1,)),
        e.reshape((2, -1, 3)),
        e.reshape((24, 1)),
        e.T.reshape((8, 3)),
        e[::-1].reshape((-1, 2)),
    ]
    outputs += [
        e.reshape((n, -1)),
        e.reshape(shape, ndim=2),
        e.flatten(2),
        e.reshape((x.shape[2], x.shape[0])),
        e[1, 0, 2].reshape((1, 1)),
    ]
    f = check([x, n, shape], outputs, [GpuReshape], value, 8, [3, 8])
    for argument in (value[::-1], np.asfortranarray(value), value[:, :, ::-1]):
        assert_close(f(argument, 8, [3, 8])[0], np.exp(argument).reshape(-1))


def test_reshape_of_nothing(context):
    x = pt.matrix("x", dtype="float32")
    e = pt.exp(x)
    f = opencl([x], [e.reshape((0, 7)), e.T.reshape((5, 0, 2)), e.reshape((-1,)), e[::-1, ::2].reshape((3, -1))])
    for value in (np.zeros((0, 4), "float32"), np.zeros((4, 0), "float32")):
        assert [r.shape for r in f(value)] == [(0, 7), (5, 0, 2), (0,), (3, 0)]


def test_views_share_memory_and_copies_do_not(context):
    g = GpuArrayType("float32", (None, None))("g")
    f = opencl([g], [(g * 2).reshape((-1,)).transfer(context.name), (g * 2).T.reshape((-1,)).transfer(context.name)])
    value = np.arange(6, dtype="float32").reshape(2, 3)
    flat, turned = f(value)
    assert_close(flat, 2 * value.ravel())
    assert_close(turned, 2 * value.T.ravel())
    assert turned.buffer is not flat.buffer


def test_specify_shape(x, value):
    f = check([x], [pt.specify_shape(pt.exp(x), (4, None, 6)) * 2], [GpuSpecifyShape], value)
    with pytest.raises(AssertionError, match="SpecifyShape"):
        f(value[:3])


def test_gradients(x, value):
    cost = (
        (pt.exp(x).reshape((3, -1)).T ** 2).sum()
        + x.dimshuffle(2, 0).sum()
        + pt.tanh(pt.specify_shape(x, (4, 1, 6))).sum()
    )
    check([x], [pt.grad(cost, x)], [GpuReshape], value)


def test_target_shape():
    assert target_shape(12, [3, -1], 2) == (3, 4)
    assert target_shape(0, [0, 5], 2) == (0, 5)
    assert target_shape(1, [], 0) == ()
    for size, shape, ndim in ((12, [5, -1], 2), (12, [5, 2], 2), (0, [0, -1], 2), (12, [-1, -1], 2), (6, [2, 3], 3)):
        with pytest.raises(ValueError, match=r"cannot reshape|incorrect length"):
            target_shape(size, shape, ndim)


def test_joined_and_split_dimensions(context, rng):
    """PyTensor's rewrites make Reshape of them; without those they are here."""
    x, shape = pt.tensor3("x", dtype="float32"), pt.vector("shape", dtype="int64", shape=(2,))
    joined = [pt.join_dims(v, start, count) for v in (x, x.T) for start, count in ((0, 3), (0, 2), (1, 2), (1, 0))]
    split = [SplitDims(1)(x, shape), SplitDims(1)(x.T, shape)]
    value = rng.normal(size=(4, 6, 5)).astype("float32")
    f = pytensor.function(
        [x, shape], [2 * v for v in joined + split], mode=get_mode("OPENCL").excluding("canonicalize")
    )
    assert_on_device(f, GpuJoinDims, GpuSplitDims)
    host = pytensor.function([x, shape], [2 * v for v in joined + split], mode="FAST_COMPILE")
    for values in ((value, [2, 3]), (value, [-1, 2]), (value[:1, :2, :1], [1, 2])):
        for got, wanted in zip(f(*values), host(*values), strict=True):
            assert_close(got, wanted)
    assert [v.shape for v in f(value[:0], [6, 1])[-2:]] == [(0, 6, 1, 5), (5, 6, 1, 0)]  # NumPy cannot join these
    with pytest.raises(ValueError, match="cannot reshape"):
        f(value, [4, 2])


def test_contiguous(x, value):
    outputs = [cpu_contiguous(pt.exp(x)), cpu_contiguous(pt.exp(x).T), cpu_contiguous(pt.exp(x)[::-1, :, ::2])]
    check([x], outputs, (GpuCpuContiguous,), value)
    gradient = pytensor.grad(pt.sqr(cpu_contiguous(x.T)).sum(), x)
    check([x], [gradient, cpu_contiguous(x).shape[2]], (), value)


def test_a_shape_that_differs(x, value):
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([x], pt.exp(pt.specify_shape(pt.exp(x), (4, 1, 7))))
    assert_on_device(f, GpuSpecifyShape)
    with pytest.raises(AssertionError, match="SpecifyShape: Got shape"):
        f(value)


def test_checks_wait_for_the_condition_and_not_for_the_value(context):
    x = pt.fmatrix("x")
    checked = CheckAndRaise(ValueError, "nothing but positive numbers")(pt.exp(x), pt.all(x > 0), x.shape[0] > 1)
    with pytensor.config.change_flags(opencl__on_host="raise"):
        f = opencl([x], [checked * 2, pytensor.grad(checked.sum(), x)])
    assert_on_device(f, GpuCheckAndRaise)
    good = np.ones((30, 40), "float32")
    for got in f(good):
        assert got.shape == good.shape
    for bad in (-good, good[:1]):
        with pytest.raises(ValueError, match="nothing but positive"):
            f(bad)
    assert_close(f(good)[0], np.exp(good) * 2)
