"""Places of the elements that are not zero, and masks as indices, in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import DeepCopyOp
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.shape import Shape_i

from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedIncSubtensor, GpuAdvancedSubtensor
from pytensor_cl.ops.nonzero import GpuNonzero
from tests.helpers import assert_all_on_device, check_against_python, host_ops, opencl, sweep


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@sweep(("dtype",), [("bool",), ("float16",), ("int32",), ("float32",), ("complex64",)], [("float16",), ("float32",)])
def test_nonzero(context, rng, dtype):
    x = pt.tensor3("x", dtype=dtype)
    value = rng.integers(0, 2, (4, 5, 6)).astype(dtype)
    f = check_against_python(
        [x], pt.nonzero(x), (GpuNonzero,), (value,), (value.T,), (value[:0],), (np.zeros_like(value),)
    )
    assert_all_on_device(f)


def test_other_forms(context, rng):
    x = pt.matrix("x", dtype="float32")
    value = rng.normal(size=(7, 9)).astype("float32")
    outputs = [
        *pt.where(x > 0),
        pt.flatnonzero(x > 0),
        pt.nonzero(x, return_matrix=True),
        pt.nonzero_values(x),
        pt.extra_ops.compress(x[0] > 0, x, axis=1),
    ]
    check_against_python([x], outputs, (GpuNonzero,), (value,), (value[::-1, ::2],), (np.abs(value),), (value[:, :0],))


def test_the_count_is_the_shape_of_what_follows(context, rng):
    x = pt.vector("x", dtype="float32")
    (places,) = pt.nonzero(x > 0)
    outputs = [places.shape[0], pt.exp(x[places]).sum(), pt.zeros((places.shape[0], 2)) + places[:, None]]
    value = rng.normal(size=50).astype("float32")
    check_against_python([x], outputs, (GpuNonzero,), (value,), (-np.abs(value),), (value[:0],))


def test_a_gradient_through_the_places(context, rng):
    x = pt.matrix("x", dtype="float32")
    cost = pt.sqr(x[pt.nonzero(x > 0)]).sum()
    check_against_python([x], [pytensor.grad(cost, x)], (GpuNonzero,), (rng.normal(size=(6, 7)).astype("float32"),))


def test_no_dimensions_are_refused_when_the_graph_is_made():
    with pytest.raises(ValueError, match="non-scalar"):
        pt.nonzero(pt.scalar("x"))


MASKED = (GpuAdvancedSubtensor,)
SET = (GpuAdvancedIncSubtensor,)


class Masked:
    """Arrays, masks of some of their dimensions, and values for all of them."""

    def __init__(self, rng, dtype="float32"):
        self.x, self.c = pt.matrix("x", dtype=dtype), pt.tensor3("c", dtype=dtype)
        self.m, self.mm = pt.vector("m", dtype="bool"), pt.matrix("mm", dtype="bool")
        self.inputs = [self.x, self.c, self.m, self.mm]
        shapes = (6, 7), (6, 7, 6)
        arrays = [rng.integers(0, 90, shape).astype(dtype) for shape in shapes]
        self.values = *arrays, rng.random(6) < 0.5, rng.random((6, 7)) < 0.5

    def check(self, outputs, kinds):
        flipped = [v[::-1] for v in self.values]
        none = *self.values[:2], *(np.zeros_like(v) for v in self.values[2:])
        f = check_against_python(self.inputs, [*outputs, *self.inputs], kinds, self.values, flipped, none)
        assert {type(op) for op in host_ops(f)} <= {DeepCopyOp, ScalarFromTensor, Shape_i}


@sweep(("dtype",), [("float16",), ("complex64",), ("bool",)], [("float32",)])
def test_masks(context, rng, dtype):
    g = Masked(rng, dtype)
    x, c, m, mm = g.inputs
    fixed = np.array([True, False, True, True, False, True])
    outputs = [
        *(x[m], x[mm], x[m, 1:3], x.T[:, m], x[m, 2], x[m, pt.zeros(1, dtype="int64")]),
        *(c[mm], c[m, :, 2], c[m, 1:, m.sum() :], c[:, :, m], c.T[:, mm.T], c[1:][:, 0][:, m], c[mm, -1]),
        *(x[fixed], c[:, 2, fixed], c[np.array([[True, False] * 3 + [True]] * 6)]),
    ]
    g.check(outputs, MASKED)


@sweep(("dtype",), [("float32",), ("int64",)], [("float32",)])
def test_setting_and_adding(context, rng, dtype):
    g = Masked(rng, dtype)
    x, c, m, mm = g.inputs
    outputs = [
        *(x[mm].set(3), x[mm].inc(x[mm] * 2), x[mm].set(x.T[mm.T]), x[mm].inc(x[0, :1].sum()), x.T[mm.T].set(4)),
        *(x[m].set(x[m][::-1]), x[m, 1:3].inc(5), c[mm].set(c[mm, 0][:, None]), c[:, :, m].inc(c[:, :, m] * 2)),
        *(x[mm].inc(x[mm] * 2, ignore_duplicates=True), x[m].set(c[0, 0, :1])),
        x[np.array([True, False, True, True, False, True])].inc(1),
    ]
    g.check(outputs, SET)


def test_values_of_another_dtype(context, rng):
    g = Masked(rng, "float64")
    y = pt.cast(g.x, "int8")
    outputs = [g.x[g.mm].set(y[g.mm]), g.x[g.mm].inc(y[g.mm]), g.c[g.mm].inc(y[g.mm][:, None]), g.x[g.mm].set(y[0, 0])]
    g.check(outputs, SET)


def test_gradients_of_what_masks_select(context, rng):
    g = Masked(rng)
    x, c, m, mm = g.inputs
    costs = [pt.sqr(y).sum() for y in (x[mm], x[m], c[:, :, m], c[mm], x[x > 40])]
    g.check([pytensor.grad(cost, c if c in pytensor.graph.ancestors([cost]) else x) for cost in costs], SET)


def test_masks_of_another_shape(context):
    x, m, y = pt.matrix("x", dtype="float32"), pt.matrix("m", dtype="bool"), pt.vector("y", dtype="float32")
    value, one = np.zeros((3, 4), "float32"), np.zeros(1, "float32")
    for output in (x[m], x[m].set(y), x[None][:, m], x[None][:, m].inc(y)):
        f = opencl([x, m, y], output, on_unused_input="ignore")
        assert_all_on_device(f)
        with pytest.raises(
            IndexError, match=r"axis [01]; size of axis is 3 but size of corresponding boolean axis is 2"
        ):
            f(value, np.ones((2, 4), "bool"), one)
    f = opencl([x, m, y], x[m].set(y))
    with pytest.raises(ValueError, match=r"could not be broadcast to indexing result of shape \(12,\)"):
        f(value, np.ones((3, 4), "bool"), np.zeros(5, "float32"))
    assert f(value, np.ones((3, 4), "bool"), np.ones(12, "float32")).sum() == 12
