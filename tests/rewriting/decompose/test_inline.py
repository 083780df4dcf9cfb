"""OpFromGraph in batches: its inner graph runs on the device with more dimensions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.shape import Shape_i
from scipy import special

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.reduction import GpuCAReduce
from tests.helpers import assert_on_device, host_ops, opencl


def test_batched_logsumexp_and_its_gradient(context, on_device, rng):
    x, batch = pt.dmatrix("x"), pt.dtensor3("batch")
    value = pt.logsumexp(x, axis=1)
    f = opencl([batch], vectorize_graph([value, pt.grad(value.sum(), x)], {x: batch}))
    assert_on_device(f, GpuCAReduce)
    assert {type(op) for op in host_ops(f)} <= {Shape_i}
    data = rng.normal(0, 300, size=(3, 4, 5))
    got, slopes = f(data)
    np.testing.assert_allclose(got, special.logsumexp(data, axis=2), rtol=1e-12)
    np.testing.assert_allclose(slopes, special.softmax(data, axis=2), rtol=1e-10, atol=1e-300)


def test_outputs_that_do_not_depend_on_the_batch(context, on_device, rng):
    x, y, batch = pt.dvector("x"), pt.dvector("y"), pt.dmatrix("batch")
    op = OpFromGraph([x, y], [pt.exp(x) + y, 2 * pt.exp(y), pt.arange(3.0)])
    outputs = vectorize_graph(op(x, y), {x: batch})
    f = opencl([batch, y], outputs)
    assert_on_device(f, GpuElemwise)
    assert not [op for op in host_ops(f) if isinstance(op, Blockwise)]
    many, one = rng.normal(size=(4, 5)), rng.normal(size=5)
    wanted = pytensor.function([batch, y], outputs, mode="FAST_COMPILE")(many, one)
    for got, want in zip(f(many, one), wanted, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_length_inside_a_batch(context, on_device, rng):
    x, batch = pt.dvector("x"), pt.dmatrix("batch")
    op = OpFromGraph([x], [x / Shape_i(0)(x) + pt.arange(x.shape[0])])
    f = opencl([batch], vectorize_graph(op(x), {x: batch}))
    assert_on_device(f, GpuElemwise)
    assert not [node for node in host_ops(f) if isinstance(node, Blockwise)]
    data = rng.normal(size=(3, 4))
    np.testing.assert_allclose(f(data), data / 4 + np.arange(4), rtol=1e-12)
