"""Device arrays, and arrays of other libraries, as arguments and as values of shared variables."""

import threading

import numpy as np
import pyopencl.array as cla
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.runtime.dlpack import opencl_device
from pytensor_cl.sharedvar import DeviceCell
from tests.device_apart import context_apart
from tests.helpers import assert_close, counted_traffic, on_one_driver, opencl

pytestmark = pytest.mark.usefixtures("on_device")
CALLS = 6  # the later ones are replayed


@pytest.fixture
def host(rng):
    return rng.normal(size=(30, 40)).astype("float32")


class Foreign:
    """An array of another library in OpenCL memory."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return opencl_device(self.array.context.device)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**{"dl_device": self.__dlpack_device__(), **options})


def resident(variable):
    """The device array of a shared variable."""
    (array,) = variable.container.storage.devices.values()
    return array


# Arguments


def test_results_share_no_memory_with_device_arguments(context, host):
    x = pt.fmatrix("x")
    f = opencl([x], [part.transfer(context.name) for part in (x, x[1:], x.T)])
    r = context.from_host(host)
    for _ in range(CALLS):
        whole, part, turned = f(r)
        for result, expected in ((whole, host), (part, host[1:]), (turned, host.T)):
            assert_close(np.asarray(result), expected)
            result.fill(0)
        np.testing.assert_array_equal(np.asarray(r), host)


def test_an_input_of_the_host_takes_device_arrays(context, host):
    x, y = pt.fmatrices("x", "y")
    w = pytensor.shared(np.zeros(40, "float32"), "w")
    f = opencl([x, y], [pt.exp(x).sum(0) * y[0] + w, x.shape[0] + y.shape[1]], updates={w: w + 1})
    r, other = context.from_host(host), cla.to_device(pytensor_cl.queue(context.name), host)
    calls = [((host, host), {}), ((r, host), {}), ((r,), {"y": other}), ((r[::-1, :], r.T.T), {}), ((other, r), {})]
    for args, named in calls:
        for k in range(CALLS):
            before = w.get_value()
            with counted_traffic() as traffic:
                result, lengths = f(*args, **named)
            assert_close(result, np.exp(host).sum(0) * host[-1 if args[0] is not r and "y" in named else 0] + before)
            assert lengths == 70
            assert traffic.up <= sum(value is host for value in args) or not k
    assert len(f.vm.device_variants) == 2  # one function for x, and one for both
    np.testing.assert_array_equal(r.to_host(), host)
    assert w.get_value()[0] == CALLS * len(calls)


@on_one_driver
@pytest.mark.parametrize("placement", ["auto", "host"])
def test_every_placement(context, host, placement):
    x, n = pt.fmatrix("x"), pt.fscalar("n")
    with pytensor.config.change_flags(opencl__placement=placement, opencl__select_backend=True):
        f = opencl([x, n], (x * n).sum(1))
    r, two = context.from_host(host), context.from_host(np.float32(2))
    for _ in range(CALLS):
        for value in (r, host):
            for number in (two, 2):
                assert_close(f(value, number), (host * 2).sum(1))


def test_what_pytensor_converts_is_converted(context, host):
    x = pt.dmatrix("x")
    f = opencl([x], x.sum(), allow_input_downcast=None)
    assert_close(f(context.from_host(host)), host.astype("float64").sum())
    i = pt.imatrix("i")
    g = opencl([i], i.sum())
    for value, message in ((context.from_host(host), "cannot store"), (context.from_host(np.zeros(3, "i4")), "dim")):
        with pytest.raises(TypeError, match=message):
            g(value)
    with pytest.raises(TypeError, match="Missing input"):
        g()
    with pytest.raises(TypeError, match="Too many parameter"):
        g(context.from_host(np.zeros((2, 3), "i4")), 1)
    with pytest.raises(TypeError, match="Unknown input: z"):
        g(z=context.from_host(np.zeros((2, 3), "i4")))


def test_an_array_of_another_device_is_refused(context, host):
    x = pt.fmatrix("x")
    f = opencl([x], x.sum())
    with context_apart() as other:
        array = other.from_host(host)
        with pytest.raises(TypeError, match=rf"argument x is in context 'apart'.*'{context.name}': pass np.asarray"):
            f(array)


def test_capsules_of_untrusted_libraries(context, host):
    x, d = pt.fmatrix("x"), pytensor_cl.GpuArrayType("float32", (None, None), context.name)("d")
    f, g = opencl([x], x.sum()), opencl([d], d.sum())
    foreign = Foreign(context.from_host(host))
    for function in (f, g):
        with pytest.raises(TypeError, match=r"argument [xd]: .*trust_opencl=True"):
            function(foreign)
        assert_close(function(pytensor_cl.from_dlpack(foreign, trust_opencl=True)), host.sum())


def test_arrays_of_the_host_of_other_libraries(context, host):
    jax = pytest.importorskip("jax")
    x, d = pt.fmatrix("x"), pytensor_cl.GpuArrayType("float32", (None, None), context.name)("d")
    f, g = opencl([x], x.sum(), trust_input=True), opencl([d], d.sum())
    for _ in range(CALLS):
        assert_close([f(jax.numpy.asarray(host)), g(jax.numpy.asarray(host))], [host.sum()] * 2)
        imported = pytensor_cl.from_dlpack(host, device=context.name)
        assert_close([f(imported), g(imported)], [host.sum()] * 2)


def test_results_and_arguments_are_not_written_by_later_calls(context, host):
    d = pytensor_cl.GpuArrayType("float32", (None, None), context.name)("d")
    w = pytensor_cl.shared(host, "w", target=context.name)
    f = opencl([d], pytensor_cl.gpu_from_host(d + w, context.name), updates={w: w * 2})
    r = context.from_host(host)
    views, results = [], []
    for k in range(CALLS):
        results.append(f(r))
        views.append(np.from_dlpack(results[-1], device="cpu"))
        wanted = [host * (1 + 2**j) for j in range(k + 1)]
        for seen in (views, results):
            for got, want in zip(seen, wanted, strict=True):
                assert_close(np.asarray(got), want)
    assert_close(r.to_host(), host)


def test_memory_of_the_host_is_read_where_it_is(context, host):
    """A write of the host between two calls is seen by the second one, if the device sees the host's memory."""
    d = pytensor_cl.GpuArrayType("float32", (None, None), context.name)("d")
    f = opencl([d], d.sum(1))
    is_shared, before = context.mappings.are_supported(), host.copy()
    r = pytensor_cl.from_dlpack(host, device=context.name, copy=False if is_shared else None)
    for _ in range(CALLS):
        host += 1
        assert_close(f(r), (host if is_shared else before).sum(1))


def test_a_view_of_an_argument_keeps_what_that_says_of_its_memory(context, host):
    x = pytensor_cl.GpuArrayType("float32", (None, None), context.name)("x")
    view = pytensor.Out(pytensor_cl.gpu_from_host(x.T, context.name), borrow=True)
    f = opencl([pytensor.In(x, borrow=True)], [view, pytensor_cl.gpu_from_host(pt.exp(x), context.name)])
    source = context.from_host(host)
    source.readonly, host.flags.writeable = True, False
    arrays = [pytensor_cl.from_dlpack(Foreign(source), trust_opencl=True)]
    if context.mappings.are_supported():
        arrays.append(pytensor_cl.from_dlpack(host, device=context.name, copy=False))
    for r in arrays:
        assert r.owner is not None
        for _ in range(CALLS):
            got, _ = f(r)
            assert got.buffer is r.buffer and got.readonly and got.owner is r.owner


def test_several_threads(context, host):
    x = pt.fmatrix("x")
    f = opencl([x], pt.exp(x).sum(0))
    r, failures = context.from_host(host), []

    def call():
        results = [f(r if k % 2 else host) for k in range(20)]
        failures.extend(k for k in range(20) if not np.allclose(results[k], np.exp(host).sum(0), rtol=1e-4))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# Constants


def test_a_constant_is_a_copy(context, host):
    r = context.from_host(host)
    x = pytensor_cl.GpuArrayType("float32", (None, None), context.name)("x")
    f = opencl([x], x + r)
    c = opencl([], pytensor.Out(pytensor_cl.gpu_from_host(r, context.name), borrow=True))
    zeros = context.from_host(np.zeros_like(host))
    for _ in range(CALLS):
        assert_close(np.asarray(f(zeros)), host)
        got = c()
        assert got.readonly and got.buffer.int_ptr != r.buffer.int_ptr
        with r.map("rw") as seen:
            seen += 1
    assert_close(np.asarray(got), host)


# Shared variables


def values_of(context, host):
    """A device array and one of pyopencl, and what sees their memory."""
    r = context.from_host(host)
    array = cla.to_device(pytensor_cl.queue(context.name), host)
    over = pytensor_cl.from_pyopencl(array)
    return (r, r), (array, over)


def test_values_of_shared_variables(context, host):
    for borrow in (False, True):
        for value, memory in values_of(context, host):
            w = pytensor.shared(np.zeros((30, 40), "float32"))
            assert isinstance(w.container.storage, DeviceCell)
            with counted_traffic() as traffic:
                w.set_value(value, borrow=borrow)
                s = pytensor_cl.shared(value, borrow=borrow)
                t = pytensor_cl.shared(np.zeros((30, 40), "float32"), target=context.name)
            assert traffic.both == (1, 0)
            t.set_value(value, borrow=borrow)
            kept = [resident(w), *(v.get_value(borrow=True, return_internal_type=True) for v in (s, t))]
            assert [a.buffer.int_ptr == memory.buffer.int_ptr for a in kept] == [borrow] * 3
            f = opencl([], [w.sum(0), s.sum(0), t.sum(0)])
            for k in range(4):
                wanted = (host + borrow * k).sum(0)
                assert_close(f(), [wanted] * 3)
                assert_close(w.get_value(), host + borrow * k)
                with memory.map("rw") as seen:
                    seen += 1


def test_updates_leave_a_borrowed_array_alone(context, host):
    for value, memory in values_of(context, host):
        w = pytensor.shared(np.zeros((30, 40), "float32"))
        w.set_value(value, borrow=True)
        f = opencl([], [], updates={w: w + 1})
        for k in range(CALLS):
            f()
            assert_close(memory.to_host(), host)
            assert_close(w.get_value(), host + k + 1)


def test_other_types_of_values(context, host):
    w = pytensor.shared(np.zeros((30, 40), "float64"))
    w.set_value(context.from_host(host))
    assert w.get_value().dtype == "float64" and not w.container.storage.devices
    with pytest.raises(TypeError, match="dimensions"):
        w.set_value(context.from_host(host[0].astype("float64")))


# Donation


def reuse_count(f):
    return sum(d.reuse_count for graph in f.vm.executor.graphs.values() for d in graph.donations)


def test_exported_memory_is_not_donated(context, host):
    w = pytensor.shared(host)
    f = opencl([], [], updates={w: w + 1})
    for _ in range(CALLS):
        f()
    before = reuse_count(f)
    f()
    assert reuse_count(f) == before + 1  # the old value's memory was used
    exports = [
        lambda a: a.__dlpack__(dl_device=opencl_device(context.device), max_version=(1, 0)),
        lambda a: a.to_pyopencl(),
        lambda a: a.to_buffer(),
        lambda a: pytensor_cl.from_dlpack(Foreign(a), trust_opencl=True),
    ]
    if context.mappings.are_supported():
        exports += [
            np.from_dlpack,
            lambda a: a.host_view(),
            lambda a: pytensor_cl.from_dlpack(np.from_dlpack(a), device=context.name),
        ]
    for export in exports:
        value, seen = w.get_value(), export(resident(w))
        f()  # reads the value where it was
        before = reuse_count(f)
        w.container.storage.device(context.name)
        kept = export(resident(w))
        value = resident(w).to_host()
        f()
        assert reuse_count(f) == before
        if isinstance(kept, np.ndarray | pytensor_cl.GpuArray):
            assert_close(np.asarray(kept), value)
        del kept, seen
        f()
        before = reuse_count(f)
        f()
        assert reuse_count(f) == before + 1


def test_foreign_memory_is_not_donated(context, host):
    w = pytensor.shared(np.zeros((30, 40), "float32"))
    f = opencl([], [], updates={w: w + 1})
    for _ in range(CALLS):
        f()
    wanted, source = host.copy(), context.from_host(host)
    arrays = [(pytensor_cl.from_dlpack(Foreign(source), trust_opencl=True), source)]
    if context.mappings.are_supported():
        arrays.append((pytensor_cl.from_dlpack(host, device=context.name, copy=False), host))
    for array, memory in arrays:
        w.set_value(array, borrow=True)
        for _ in range(3):
            f()
        assert_close(w.get_value(), wanted + 3)
        assert_close(np.asarray(memory), wanted)
