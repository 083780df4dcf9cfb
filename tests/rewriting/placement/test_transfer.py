"""Cutting transfers out of graphs."""

import numpy as np
import pytest
from pytensor import tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape, Shape_i

from pytensor_cl import GpuArrayType, gpu_from_host, host_from_gpu
from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu
from pytensor_cl.rewriting.placement.transfer import cut_transfers
from tests.helpers import another_context, assert_close, opencl


@pytest.fixture
def g(context):
    return GpuArrayType("float32", (None, 3))("g")


@pytest.fixture
def x(context):
    return pt.tensor("x", dtype="float32", shape=(None, 3))


def after(inputs, outputs):
    """The Ops that are left when the transfers of a graph are cut, and the outputs."""
    fgraph = FunctionGraph(inputs, outputs, clone=False)
    cut_transfers(fgraph)
    fgraph.check_integrity()
    return [type(node.op) for node in fgraph.toposort()], fgraph.outputs


def test_up_and_down(x):
    assert after([x], [host_from_gpu(gpu_from_host(x))]) == ([], [x])


def test_down_and_up(g, context):
    assert after([g], [GpuFromHost(context.name)(host_from_gpu(g))]) == ([], [g])


def test_down_and_up_elsewhere(g, context):
    other = another_context(context)
    ops, _ = after([g], [GpuFromHost(other.name)(host_from_gpu(g))])
    assert ops == [GpuToGpu]


def test_to_where_it_is(g, context):
    assert after([g], [GpuToGpu(context.name)(g)]) == ([], [g])


def test_chains_are_cut_to_nothing(x, context):
    y = x
    for _ in range(4):
        y = host_from_gpu(GpuFromHost(context.name)(y))
    assert after([x], [y]) == ([], [x])


def test_shapes_need_no_download(g):
    ops, [length] = after([g], [Shape_i(0)(host_from_gpu(g))])
    assert ops == [Shape_i] and length.owner.inputs[0] is g


def test_shapes_of_what_a_device_holds(g):
    ops, [shape] = after([g], [Shape()(host_from_gpu(g))])
    assert HostFromGpu not in ops and shape.type.shape == (2,)
    assert all(length.owner.inputs[0] is g for length in shape.owner.inputs)


def test_other_clients_keep_their_transfer(x, context):
    up = gpu_from_host(x)
    ops, outputs = after([x], [up, host_from_gpu(up)])
    assert ops == [GpuFromHost] and outputs == [up, x]


def test_static_shapes_are_kept(context):
    loose, fixed = pt.matrix(dtype="float32"), GpuArrayType("float32", (None, 3))
    typed = fixed.host_type.filter_variable(host_from_gpu(gpu_from_host(loose)))
    f = opencl([loose], [typed.sum(0), typed * 2])
    assert_close(f(np.ones((2, 3), "float32"))[0], np.full(3, 2, "float32"))
    with pytest.raises(AssertionError, match="SpecifyShape"):
        f(np.ones((2, 4), "float32"))


def test_one_upload_for_all_readers(x, context):
    f = opencl([x], [pt.exp(x), x.sum(0), gpu_from_host(x), x @ x.T])
    kinds = [type(node.op) for node in f.maker.fgraph.toposort()]
    assert kinds.count(GpuFromHost) == 1 and kinds.count(HostFromGpu) == 3
