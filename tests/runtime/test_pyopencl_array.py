"""Arrays and buffers of pyopencl: without a copy both ways, or an error; never element by element."""

import gc
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytensor
import pytensor.tensor as pt
import pytest
from pyopencl.tools import ImmediateAllocator, MemoryPool

import pytensor_cl
import pytensor_cl.array as xp
from pytensor_cl.runtime.pyopencl_array import from_pyopencl
from pytensor_cl.runtime.registry import adopt_queue
from tests.helpers import assert_all_on_device, assert_close, counted_traffic, opencl

pytestmark = pytest.mark.usefixtures("on_device")


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


def test_commands_of_its_own_queue_run_first(context, queue):
    """The kernel that computes the argument may still be waiting: nothing waits for it, but later commands do."""
    gate = cl.UserEvent(context.cl_context)
    array = cla.zeros(queue, (200, 100), "float32")
    queue.finish()
    cl.enqueue_barrier(queue, wait_for=[gate])
    cl.enqueue_fill_buffer(queue, array.data, np.float32(2), 0, array.nbytes)  # no event of the array's
    value = from_pyopencl(context, array)
    copied = value.copy()
    assert gate.command_execution_status != cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert (copied.to_host() == 2).all() and (value.to_host() == 2).all()


def test_commands_of_its_events_run_first(context, queue):
    gate = cl.UserEvent(context.cl_context)
    array = cla.zeros(queue, 50, "float32")
    queue.finish()
    array.add_event(cl.enqueue_fill_buffer(queue, array.data, np.float32(3), 0, array.nbytes, wait_for=[gate]))
    queue.flush()
    array = array.with_queue(None)
    value = from_pyopencl(context, array).copy()
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert (value.to_host() == 3).all()


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
    with pytest.raises(TypeError, match="argument d: .*belongs to another OpenCL context"):
        function(cla.zeros(other, (3, 4), "float32"))


def test_an_empty_array(context, queue, function):
    assert_close(function(cla.zeros(queue, (0, 4), "float32")), np.zeros(4, "float32"))


def test_it_is_not_read_element_by_element(context, queue):
    """48 MB took minutes."""
    large = cla.zeros(queue, (3000, 4000), "float32")
    with pytest.raises(TypeError, match=r"pass x\.get\(\), or pytensor_cl.from_pyopencl"):
        context.from_host(large)
    m = pt.fmatrix("m")
    f = opencl([m], m.sum())
    with counted_traffic() as traffic:
        assert f(large) == f(m=large) == 0
    assert traffic.up == 0


def test_pyopencl_itself_is_not_changed(context, queue):
    """NumPy's conversion is slow, but it is the caller's."""
    assert not hasattr(cla.Array, "__array__")
    assert np.asarray(cla.zeros(queue, 2, "float32")).shape == (2,)


@pytest.mark.parametrize("placement", ["auto", "device"])
def test_a_trusting_function_takes_it_too(context, queue, placement):
    m, d = pt.fmatrix("m"), pytensor_cl.GpuArrayType("float32", shape=(None, None))("d")
    shape = (30, 40)
    host, array = np.ones(shape, "float32"), cla.to_device(queue, np.ones(shape, "float32"))
    with pytensor.config.change_flags(opencl__placement=placement):
        f = opencl([m], (pt.exp(m) + 1).sum(), trust_input=True)
        g = opencl([d], (pt.exp(d) + 1).sum(), trust_input=True)
    for given, function in ((host, f), (context.from_host(host), g)):
        for _ in range(6):  # the later calls are replayed
            for value in (array, given):
                np.testing.assert_allclose(function(value), host.size * (np.e + 1), rtol=1e-5)


# Exports


def test_an_export_is_over_the_same_memory_both_ways(context, rng):
    host = rng.normal(size=(6, 8)).astype("float32")
    r = context.from_host(host)
    part = r[1:, ::2]
    exported = part.to_pyopencl()
    assert exported.base_data.int_ptr == r.buffer.int_ptr and exported.strides == part.strides
    assert exported.queue == context.queue.handle
    r.to_pyopencl()[1:].fill(2)
    host[1:] = 2
    np.testing.assert_array_equal(r.to_host(), host)
    back = pytensor_cl.from_pyopencl(exported, copy=False)
    assert back.buffer.int_ptr == r.buffer.int_ptr and back.layout == part.layout
    np.testing.assert_array_equal(back.to_host(), host[1:, ::2])
    copied = pytensor_cl.from_pyopencl(exported, copy=True)
    assert copied.buffer.int_ptr != r.buffer.int_ptr


def test_waits_are_real_ones_as_long_as_an_export_lives(context):
    r = context.from_host(np.zeros((3, 4), "float32"))
    for _ in range(3):
        context.queue.wait()
    assert not context.queue.has_pending
    exported = r.to_pyopencl()
    derived = exported[1:] * 2  # it has the queue as well
    del exported
    for _ in range(3):
        context.queue.wait()
        assert context.queue.has_pending
    del derived
    gc.collect()
    assert context.queue.has_pending  # something may have been enqueued just before
    context.queue.wait()
    assert not context.queue.has_pending
    queue = pytensor_cl.queue(context.name)
    cl.enqueue_fill_buffer(queue, r.buffer, np.float32(5), 0, r.nbytes)
    del queue
    assert (r.to_host() == 5).all()


def test_an_export_to_another_queue_is_ordered(context, queue):
    r = context.from_host(np.zeros((40, 50), "float32"))
    gate = cl.UserEvent(context.cl_context)
    cl.enqueue_barrier(context.queue.handle, wait_for=[gate])
    context.queue.mark_submitted()
    cl.enqueue_fill_buffer(context.queue.handle, r.buffer, np.float32(7), 0, r.nbytes)
    exported = r.to_pyopencl(queue)
    buffer, offset = r[2:].to_buffer(queue)
    read = np.zeros(50, "float32")
    event = cl.enqueue_copy(queue, read, buffer, src_offset=offset, is_blocking=False)
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    assert (read == 7).all() and (exported.get(queue) == 7).all()
    with pytest.raises(ValueError, match="belongs to another OpenCL context"):
        r.to_pyopencl(cl.CommandQueue(elsewhere := cl.Context([context.device])))
    assert elsewhere


def test_a_read_only_array_is_not_exported(context):
    r = context.from_host(np.zeros(3, "float32"))
    r.readonly = True
    for export in (r.to_pyopencl, r[1:].to_pyopencl, r.to_buffer):
        with pytest.raises(ValueError, match="read-only"):
            export()


def test_many_exports_take_no_memory(context):
    r = context.from_host(np.zeros((30, 40), "float32"))
    before = sys.getrefcount(r.buffer), context.memory.statistics()
    for _ in range(3000):
        r[1:].to_pyopencl()
        r.to_buffer()
    assert (sys.getrefcount(r.buffer), context.memory.statistics()) == before


def test_asarray_takes_it_where_it_is(context, queue):
    array = cla.to_device(queue, np.arange(6, dtype="float32").reshape(2, 3))
    for options in ({}, {"copy": False}, {"device": context.name, "dtype": "float32"}):
        assert xp.asarray(array[:, 1:], **options).buffer.int_ptr == array.base_data.int_ptr
    assert xp.asarray(array, copy=True).buffer.int_ptr != array.base_data.int_ptr
    assert xp.asarray(array, dtype="int32").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert xp.from_pyopencl is pytensor_cl.from_pyopencl


# Buffers


def test_a_buffer_as_an_array(context, queue, rng):
    host = rng.integers(0, 99, (4, 6)).astype("int32")
    buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=host)
    whole = pytensor_cl.from_buffer(buffer, (4, 6), "int32")
    part = pytensor_cl.from_buffer(buffer, (3, 2), np.int32, strides=(24, -8), offset=48 - 12 - 4)
    assert whole.buffer is buffer and not whole.readonly and whole.context is context
    np.testing.assert_array_equal(whole.to_host(), host)
    np.testing.assert_array_equal(part.to_host(), host[1:, 2::-2])
    assert pytensor_cl.from_buffer(buffer, 24, "int32").shape == (24,)
    assert pytensor_cl.from_buffer(buffer, (0, 3), "float32", offset=96).to_host().shape == (0, 3)
    back, offset = part.to_buffer()
    assert back is buffer and offset == 32
    constant = cl.Buffer(context.cl_context, cl.mem_flags.READ_ONLY, 24)
    assert pytensor_cl.from_buffer(constant, 6, "float32").readonly
    assert pytensor_cl.from_buffer(buffer, 6, "float32", readonly=True)[2:].readonly


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((5, 6), {}, "needs the bytes from 0 to 120 of a buffer that has 96"),
        (24, {"offset": 4}, "needs the bytes from 4 to 100"),
        (2, {"strides": (-4,)}, "needs the bytes from -4"),
        (2, {"strides": (3,)}, "must be multiples of the 4 bytes"),
        (2, {"offset": 2}, "must be multiples of the 4 bytes"),
        ((2, 2), {"strides": (4,)}, "cannot have shape"),
        (-1, {}, "cannot have shape"),
    ],
)
def test_an_array_outside_of_its_buffer(context, shape, options, message):
    buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, 96)
    with pytest.raises(ValueError, match=message):
        pytensor_cl.from_buffer(buffer, shape, "float32", **options)


def test_a_buffer_of_another_context(context):
    elsewhere = cl.Context([context.device])
    buffer = cl.Buffer(elsewhere, cl.mem_flags.READ_WRITE, 96)
    with pytest.raises(ValueError, match=r"pytensor_cl\.use\(queue, 'dev1'\)"):
        pytensor_cl.from_buffer(buffer, 4, "float32")
    array = cla.zeros(queue := cl.CommandQueue(elsewhere), 4, "float32")
    with pytest.raises(BufferError, match="belongs to another OpenCL context"):
        pytensor_cl.from_pyopencl(array, copy=False)
    assert pytensor_cl.from_pyopencl(array + 2).tolist() == [2, 2, 2, 2]
    assert queue
    with pytest.raises(TypeError, match="takes a pyopencl.Buffer"):
        pytensor_cl.from_buffer(np.zeros(3), 3, "float32")
    with pytest.raises(TypeError, match=r"takes a pyopencl\.array\.Array"):
        pytensor_cl.from_pyopencl(np.zeros(3))


def test_memory_of_a_users_pool_is_kept_by_arrays_and_their_exports(context, queue):
    pool = MemoryPool(ImmediateAllocator(queue))
    value = from_pyopencl(context, cla.zeros(queue, 1000, "float32", allocator=pool))
    exported = value[10:].to_pyopencl()
    assert pool.active_blocks == 1
    del value
    gc.collect()
    context.queue.wait()
    assert pool.active_blocks == 1
    del exported
    gc.collect()
    context.queue.wait()
    context.queue.wait()
    assert pool.active_blocks == 0


# Queues of the user


def test_a_queue_of_the_user(context, rng):
    queue = cl.CommandQueue(owning := cl.Context([context.device]))
    name = f"adopted_{context.name}"
    assert pytensor_cl.use(queue, name) == name
    assert pytensor_cl.queue(name) == queue
    host = rng.normal(size=(5, 6)).astype("float32")
    array = cla.to_device(queue, host)
    r = pytensor_cl.from_pyopencl(array, copy=False)
    assert r.context.name == name and r.buffer.int_ptr == array.base_data.int_ptr
    d = pytensor_cl.GpuArrayType("float32", (None, None), name)("d")
    f = opencl([d], pt.exp(d) + 1)
    for _ in range(5):
        assert_close(f(array), np.exp(host) + 1)
    assert r.context.queue.has_pending  # the user may have enqueued something
    assert owning


def test_queues_that_are_refused(context):
    ordered = cl.CommandQueue(owning := cl.Context([context.device]))
    with pytest.raises(ValueError, match="is another one already: choose another name"):
        pytensor_cl.use(ordered, context.name)
    with pytest.raises(ValueError, match="in use as"):
        pytensor_cl.use(pytensor_cl.queue(context.name), "again")
    mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if context.device.queue_properties & mode:
        with pytest.raises(ValueError, match="out of order"):
            pytensor_cl.use(cl.CommandQueue(owning, properties=mode), "unordered")
    several = SimpleNamespace(devices=[context.device, context.device])
    fake = SimpleNamespace(properties=0, context=several, device=context.device)
    with pytest.raises(ValueError, match="has 2 devices"):
        adopt_queue(fake, "several")
