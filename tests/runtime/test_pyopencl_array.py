"""Arrays of pyopencl as arguments: without a copy, or an error; never element by element."""

import gc
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.runtime.pyopencl_array import from_pyopencl
from tests.helpers import assert_all_on_device, assert_close, counted_traffic, opencl

pytestmark = pytest.mark.usefixtures("on_device")
REFUSED = (
    r"pass x\.get\(\), or let the function take it without a copy.*GpuArrayType\('float32', shape=\(None, None\)\)"
)


@pytest.fixture
def queue(context):
    return cl.CommandQueue(context.cl_context)


@pytest.fixture
def function(context):
    d = pytensor_cl.GpuArrayType("float32", shape=(None, None))("d")
    f = opencl([d], (pt.exp(d) + 1).sum(axis=0))
    assert_all_on_device(f)
    return f


VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[3:],
    "columns": lambda a: a[:, 2:],
    "steps": lambda a: a[1::2, ::-3],
    "transposed": lambda a: a.T,
}


@pytest.mark.parametrize("view", VIEWS)
def test_an_argument_is_used_where_it_is(context, queue, function, rng, view):
    host = rng.normal(size=(100, 60)).astype("float32")
    array = VIEWS[view](cla.to_device(queue, host))
    with counted_traffic() as traffic:
        for _ in range(6):  # the later calls are replayed
            got = function(array)
    assert traffic.up == 0
    assert_close(got, (np.exp(VIEWS[view](host)) + 1).sum(axis=0))


def test_commands_of_its_own_queue_have_ended(context, queue, function):
    """The kernel that computes the argument may still be waiting when the function is called."""
    gate = cl.UserEvent(context.cl_context)
    array = cla.zeros(queue, (200, 100), "float32")
    queue.finish()
    cl.enqueue_barrier(queue, wait_for=[gate])
    cl.enqueue_fill_buffer(queue, array.data, np.float32(2), 0, array.nbytes)  # no event of the array's
    queue.flush()
    finish, waited = cl.CommandQueue.finish, []

    def open_gate(self):
        waited.append(self)
        gate.set_status(cl.command_execution_status.COMPLETE)
        finish(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cl.CommandQueue, "finish", open_gate)
        value = from_pyopencl(context, array)
    assert waited and (value.to_host() == 2).all()


def test_the_array_lives_as_long_as_it_is_used(context, queue):
    array = cla.to_device(queue, np.ones((300, 200), "float32"))
    gone = weakref.ref(array)
    value = from_pyopencl(context, array)
    del array
    gc.collect()
    assert gone() is not None and value.to_host().sum() == 60_000
    del value
    context.queue.mark_submitted()
    context.queue.wait()
    gc.collect()
    assert gone() is None


def test_results_do_not_change_the_argument(context, queue, function):
    array = cla.to_device(queue, np.zeros((50, 40), "float32"))
    for _ in range(6):
        assert_close(function(array), np.full(40, 100, "float32"))
    assert not array.get().any()


def test_two_views_of_one_buffer_share_memory(context, queue):
    array = cla.to_device(queue, np.zeros((50, 40), "float32"))
    first, second = from_pyopencl(context, array), from_pyopencl(context, array)
    kind = pytensor_cl.GpuArrayType("float32", (None, None))
    assert kind.may_share_memory(first, second)
    assert not kind.may_share_memory(first, context.from_host(np.zeros((50, 40), "float32")))


def test_other_arrays_are_refused(context, queue, function):
    with pytest.raises(TypeError, match="dtype=float32"):
        function(cla.zeros(queue, (3, 4), "int32"))
    with pytest.raises(TypeError, match="Wrong number of dimensions"):
        function(cla.zeros(queue, 3, "float32"))
    elsewhere = cl.Context([context.device])
    other = cl.CommandQueue(elsewhere)
    with pytest.raises(TypeError, match="belongs to another OpenCL context: make its queue by"):
        function(cla.zeros(other, (3, 4), "float32"))


def test_an_empty_array(context, queue, function):
    assert_close(function(cla.zeros(queue, (0, 4), "float32")), np.zeros(4, "float32"))


def test_an_input_of_the_host_refuses_it_at_once(context, queue):
    """48 MB took minutes."""
    large = cla.zeros(queue, (3000, 4000), "float32")
    m = pt.fmatrix("m")
    f = opencl([m], m.sum())
    uses = (
        lambda: f(large),
        lambda: f(m=large),
        lambda: context.from_host(large),
    )
    for use in uses:
        with pytest.raises(TypeError, match=REFUSED):
            use()


def test_pyopencl_itself_is_not_changed(context, queue):
    """NumPy's conversion is slow, but it is the caller's."""
    assert not hasattr(cla.Array, "__array__")
    assert np.asarray(cla.zeros(queue, 2, "float32")).shape == (2,)


@pytest.mark.parametrize("placement", ["auto", "device"])
@pytest.mark.parametrize("shape", [(3, 4), (300, 400)])
def test_a_trusting_function_refuses_it_too(context, queue, placement, shape):
    m, d = pt.fmatrix("m"), pytensor_cl.GpuArrayType("float32", shape=(None, None))("d")
    host, array = np.ones(shape, "float32"), cla.to_device(queue, np.ones(shape, "float32"))
    with pytensor.config.change_flags(opencl__placement=placement):
        f = opencl([m], (pt.exp(m) + 1).sum(), trust_input=True)
        g = opencl([d], (pt.exp(d) + 1).sum(), trust_input=True)
    for given, function, message in (
        (host, f, REFUSED),
        (context.from_host(host), g, "convert a pyopencl.array.Array by"),
    ):
        for _ in range(6):  # the later calls are replayed
            with pytest.raises(TypeError, match=message):
                function(array)
            np.testing.assert_allclose(function(given), host.size * (np.e + 1), rtol=1e-5)
    np.testing.assert_allclose(g(d.type.filter(array)), host.size * (np.e + 1), rtol=1e-5)
