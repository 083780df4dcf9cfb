"""DLPack both ways: pointers where nothing is copied, flags, versions, lifetimes."""

import gc
import sys
import weakref

import numpy as np
import pyopencl as cl
import pytest

import pytensor_cl
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.runtime.dlpack import opencl_device
from tests.device_apart import context_apart
from tests.helpers import run_script

DTYPES = ("bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "complex64")
VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[2:],
    "columns": lambda a: a[:, ::3],
    "transposed": lambda a: a.T,
    "one": lambda a: a[1:2, 3:4],
    "scalar": lambda a: a[1, 2, ...],
    "empty": lambda a: a[:, 4:4],
}


def address(array):
    return array.__array_interface__["data"][0]


def seen(r):
    """The address of a device array's first element, where the host sees it."""
    return address(r.host_view())


def references(r):
    """Return how many there are to an array's buffer."""
    return sys.getrefcount(r.buffer)


class Foreign:
    """An object of another library, with an array's capsules of OpenCL memory, or with one capsule alone."""

    def __init__(self, array, capsule=None):
        self.array, self.capsule = array, capsule

    def __dlpack_device__(self):
        return opencl_device(self.array.context.device)

    def __dlpack__(self, **options):
        return self.capsule or self.array.__dlpack__(**{"dl_device": self.__dlpack_device__(), **options})


class Legacy:
    """An object that knows the first version of the protocol alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


# Exports to the host


@pytest.mark.usefixtures("host_sees_memory")
@pytest.mark.parametrize("view", VIEWS)
def test_an_export_is_over_the_same_memory(context, rng, view):
    for dtype in DTYPES:
        host = rng.integers(0, 2, (5, 7)).astype(dtype)
        r, wanted = VIEWS[view](context.from_host(host)), VIEWS[view](host)
        assert r.__dlpack_device__() == (1, 0)
        for options in ({}, {"copy": False}, {"device": "cpu"}):
            got = np.from_dlpack(r, **options)
            assert got.dtype == dtype and got.flags.writeable and (address(got) == seen(r) or not wanted.size)
            np.testing.assert_array_equal(got, wanted)
        copied = np.from_dlpack(r, copy=True)
        assert address(copied) != seen(r) or not wanted.size
        np.testing.assert_array_equal(copied, wanted)


@pytest.mark.usefixtures("host_sees_memory")
def test_both_sides_write(context):
    r = context.from_host(np.zeros((3, 4), "float32"))
    got = np.from_dlpack(r[1:])
    got[0] = 5
    assert r.to_host()[1].tolist() == [5] * 4
    cl.enqueue_fill_buffer(pytensor_cl.queue(context.name), r.buffer, np.float32(7), 0, r.nbytes)
    r.sync()
    assert (got == 7).all()


@pytest.mark.usefixtures("host_sees_memory")
def test_negative_strides_are_copied(context):
    """PyTorch ends the process on them."""
    r = context.from_host(np.arange(12, dtype="int32").reshape(3, 4))[::-1]
    got = np.from_dlpack(r)
    assert got.strides == (16, 4) and address(got) != seen(r)
    np.testing.assert_array_equal(got, r.to_host())
    with pytest.raises(BufferError, match=r"r\.host_view\(\)"):
        np.from_dlpack(r, copy=False)
    one = r[:1, ::-1][:, :1]  # strides of one element do not matter
    assert address(np.from_dlpack(one, copy=False)) == seen(one)


@pytest.mark.usefixtures("host_sees_memory")
def test_read_only_arrays_stay_so(context):
    r = context.from_host(np.zeros((3, 4), "float32"))
    wide = r[:1].with_layout(r[:1].layout.broadcast_to((5, 4)))
    r.readonly = True
    for array in (r, r[1:], wide):
        got = np.from_dlpack(array)
        assert not got.flags.writeable and address(got) == seen(array)
        with pytest.raises(BufferError, match="readonly"):
            array.__dlpack__()
        assert "dltensor" in repr(array.__dlpack__(copy=True))


def test_versions(context):
    r = context.from_host(np.zeros(3, "float32"))
    for version, name in ((None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"), ((2, 0), "")):
        for device in ((1, 0), opencl_device(context.device)):
            assert f'"{name}' in repr(r.__dlpack__(max_version=version, dl_device=device))
    with pytest.raises(BufferError, match=r"cannot be exported to the DLPack device \(2, 0\)"):
        r.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="has no stream"):
        r.__dlpack__(dl_device=(1, 0), stream=1)


def test_memory_of_an_export_is_not_reused(context):
    exports = [np.from_dlpack, lambda a: a.host_view(), lambda a: a.__dlpack__()]
    for export in [lambda a: Foreign(a).__dlpack__(), *(exports if context.mappings.are_supported() else [])]:
        r = context.from_host(np.full(5000, 3, "float32"))
        handle, got = r.buffer.int_ptr, export(r)
        del r
        gc.collect()
        others = [context.empty((5000,), "float32") for _ in range(4)]
        assert handle not in [a.buffer.int_ptr for a in others]
        assert not isinstance(got, np.ndarray) or (got == 3).all()
        del got, others
        gc.collect()
        others = [context.empty((5000,), "float32") for _ in range(8)]
        assert handle in [a.buffer.int_ptr for a in others]


def test_many_exports_take_no_memory(context):
    """Consumed or not, whichever side is dropped first."""
    r = context.from_host(np.zeros((30, 40), "float32"))
    before, is_shared = (references(r), context.memory.statistics()), context.mappings.are_supported()
    for _ in range(2500):
        np.from_dlpack(r[1:], device="cpu")
        r.__dlpack__(max_version=(1, 0), dl_device=(1, 0))
        Foreign(r).__dlpack__(max_version=(1, 0))
        if is_shared:
            pytensor_cl.from_dlpack(r.host_view())
    gc.collect()
    assert (references(r), context.memory.statistics()) == before
    assert len(context.imports.ranges) < 200


# Imports from the host


@pytest.mark.usefixtures("host_sees_memory")
@pytest.mark.parametrize("view", VIEWS)
def test_an_import_is_over_the_same_memory(context, rng, view):
    for dtype in DTYPES:
        host = rng.integers(0, 2, (5, 7)).astype(dtype)
        array = VIEWS[view](host)
        r = pytensor_cl.from_dlpack(array, device=context.name, copy=False)
        assert r.context is context and r.dtype == dtype and r.shape == array.shape and not r.readonly
        assert seen(r) == address(array) or not array.size
        np.testing.assert_array_equal(r.to_host(), array)
        copied = pytensor_cl.from_dlpack(array, device=context.name, copy=True)
        np.testing.assert_array_equal(copied.to_host(), array)
        if array.size:
            host[...] = ~host if dtype == "bool" else host + 1
            np.testing.assert_array_equal(r.to_host(), array)
            assert not np.array_equal(copied.to_host(), array)


@pytest.mark.usefixtures("host_sees_memory")
def test_kernels_write_memory_of_the_host(context):
    host = np.zeros((40, 50), "float32")
    r = pytensor_cl.from_dlpack(host[3:], device=context.name)
    cl.enqueue_fill_buffer(context.queue.handle, r.buffer, np.float32(4), r.layout.offset * 4, 4 * 100)
    context.queue.mark_submitted()
    r.sync()
    assert (host[3:5] == 4).all() and not host[:3].any() and not host[5:].any()


@pytest.mark.usefixtures("host_sees_memory")
def test_memory_that_is_imported_twice_has_one_buffer(context):
    host = np.arange(60.0).reshape(6, 10)
    whole = pytensor_cl.from_dlpack(host, device=context.name)
    for part in (host, host[2:], host[:, 3:], np.from_dlpack(host)[1:3], host.T[::-1]):
        again = pytensor_cl.from_dlpack(part, device=context.name, copy=False)
        assert again.buffer is whole.buffer and again.owner is whole.owner
        np.testing.assert_array_equal(again.to_host(), part)
    del whole, again
    # A slice has the buffer of all of a NumPy array, so that overlapping slices are no matter.
    first, second = (pytensor_cl.from_dlpack(p, device=context.name, copy=False) for p in (host[:4], host[2:]))
    assert first.buffer is second.buffer


@pytest.mark.usefixtures("host_sees_memory")
def test_memory_of_which_a_part_is_in_use(context):
    host = np.arange(100.0)
    kept = pytensor_cl.from_dlpack(Legacy(host[:60]), device=context.name, copy=False)
    with pytest.raises(BufferError, match="a part of the memory belongs to another array"):
        pytensor_cl.from_dlpack(Legacy(host[40:]), device=context.name, copy=False)
    copied = pytensor_cl.from_dlpack(Legacy(host[40:]), device=context.name)
    assert seen(copied) != address(host[40:])
    del kept
    gc.collect()
    again = pytensor_cl.from_dlpack(Legacy(host[40:]), device=context.name, copy=False)
    assert seen(again) == address(host[40:])


@pytest.mark.usefixtures("host_sees_memory")
def test_memory_of_an_array_itself_is_that_array(context):
    r = context.from_host(np.arange(20_000, dtype="float32").reshape(100, 200))
    for back in (np.from_dlpack(r), r.host_view(writeable=True), np.from_dlpack(np.from_dlpack(r[3:])[:, 5:])):
        again = pytensor_cl.from_dlpack(back, device=context.name, copy=False)
        assert again.buffer is r.buffer and seen(again) == address(back)
    view = pytensor_cl.from_dlpack(r)
    assert view.buffer is r.buffer and view is not r
    assert pytensor_cl.from_dlpack(r, copy=True).buffer is not r.buffer


@pytest.mark.usefixtures("host_sees_memory")
def test_read_only_memory(context):
    host = np.zeros((30, 40), "float32")
    host.flags.writeable = False
    r = pytensor_cl.from_dlpack(host, device=context.name, copy=False)
    assert r.readonly and r[2:].T.readonly and seen(r) == address(host)
    assert pytensor_cl.from_dlpack(Legacy(np.zeros(3)), device=context.name).readonly  # it has no flag
    assert not pytensor_cl.from_dlpack(host, device=context.name, copy=True).readonly
    assert not r.copy().readonly


@pytest.mark.usefixtures("host_sees_memory")
def test_memory_is_kept_until_kernels_have_run(context):
    gate = cl.UserEvent(context.cl_context)
    host = np.full(5000, 2.0)
    gone = weakref.ref(host)
    r = pytensor_cl.from_dlpack(host, device=context.name, copy=False)
    del host
    cl.enqueue_barrier(context.queue.handle, wait_for=[gate])
    copied = r.copy()
    del r
    gc.collect()
    is_held = gone() is not None
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert (copied.to_host() == 2).all() and is_held
    context.queue.wait()
    gc.collect()
    assert gone() is None


def test_what_cannot_be_imported(context):
    name = context.name
    odd = np.zeros(41, "int8")[1:].view("float32")
    swapped = np.arange(3, dtype=">f4")
    fields = np.zeros(4, [("a", "f4"), ("b", "i1")])["a"]
    for array, message in ((swapped, "byte order"), (fields, "no multiples of the 4 bytes")):
        with pytest.raises(BufferError, match=message if context.mappings.are_supported() else "cannot use memory"):
            pytensor_cl.from_dlpack(array, device=name, copy=False)
        np.testing.assert_array_equal(pytensor_cl.from_dlpack(array, device=name).to_host(), array)
    np.testing.assert_array_equal(pytensor_cl.from_dlpack(odd, device=name).to_host(), odd)
    with pytest.raises(UnsupportedDtype, match="datetime64"):
        pytensor_cl.from_dlpack(np.zeros(3, "datetime64[s]"), device=name)
    with pytest.raises(TypeError, match="list has no __dlpack__"):
        pytensor_cl.from_dlpack([1, 2])


def test_capsules_at_the_end_of_the_process_and_in_other_threads(context):
    """What is left then is given back by code that needs no Python."""
    script = f"""
        import threading, numpy as np, pytensor_cl
        from pytensor_cl.runtime.dlpack import opencl_device
        from pytensor_cl.runtime.registry import get_context
        pytensor_cl.use("opencl:{context.name}", "dev0")
        context = get_context("dev0")
        kept = []
        for _ in range(3):
            r = context.from_host(np.ones(5000))
            device = opencl_device(context.device)
            kept += [r.__dlpack__(dl_device=r.__dlpack_device__()), r.__dlpack__(dl_device=device)]
            kept += [np.from_dlpack(r, device="cpu"), r.host_view() if context.mappings.are_supported() else None]
            kept += [pytensor_cl.from_dlpack(np.ones(5000)), r.to_pyopencl(), pytensor_cl.queue()]
        cycle = [kept[:7]]
        cycle.append(cycle)
        thread = threading.Thread(target=kept.__delitem__, args=(slice(7, 14),))
        thread.start()
        thread.join()
        seen["kept"] = len(kept)
    """
    seen, errors = run_script(script)
    assert seen["kept"] == 14 and "Traceback" not in errors


# OpenCL memory


@pytest.mark.parametrize("view", VIEWS)
def test_capsules_of_opencl_memory(context, rng, view):
    host = rng.normal(size=(5, 7)).astype("float32")
    r = VIEWS[view](context.from_host(host))
    for array in (r, r[..., ::-1] if r.ndim else r):
        got = pytensor_cl.from_dlpack(Foreign(array), trust_opencl=True)
        # An empty array names no context: it is on the default one of the device type.
        assert not r.size or (got.context is context and got.buffer.int_ptr == r.buffer.int_ptr)
        assert got.layout.offset == array.layout.offset or not r.size
        np.testing.assert_array_equal(got.to_host(), array.to_host())
    with pytest.raises(BufferError, match="trust_opencl=True"):
        pytensor_cl.from_dlpack(Foreign(r))


def test_a_capsule_is_consumed_once(context):
    r = context.from_host(np.zeros((3, 4), "float32"))
    before = references(r)
    for version in (None, (1, 0)):
        device = opencl_device(context.device)
        capsule = r.__dlpack__(dl_device=device, max_version=version)
        got = pytensor_cl.from_dlpack(Foreign(r, capsule), trust_opencl=True)
        with pytest.raises(BufferError, match="was consumed before"):
            pytensor_cl.from_dlpack(Foreign(r, capsule), trust_opencl=True)
        del capsule
        assert references(r) > before
        del got
        gc.collect()
        context.queue.mark_submitted()
        context.queue.wait()
        assert references(r) == before
    with pytest.raises(BufferError, match="of device type 1, and not of OpenCL memory"):
        pytensor_cl.from_dlpack(Foreign(r, r.__dlpack__(dl_device=(1, 0))), trust_opencl=True)
    with pytest.raises(BufferError, match="no DLPack capsule"):
        pytensor_cl.from_dlpack(Foreign(r, object()), trust_opencl=True)


def test_the_flag_for_read_only_opencl_memory(context):
    r = context.from_host(np.zeros(3, "float32"))
    r.readonly = True
    assert pytensor_cl.from_dlpack(Foreign(r), trust_opencl=True).readonly
    with pytest.raises(BufferError, match="readonly"):
        r.__dlpack__(dl_device=opencl_device(context.device))


def test_a_stream_is_a_queue(context):
    r, other = context.from_host(np.zeros(300, "float32")), cl.CommandQueue(context.cl_context)
    gate = cl.UserEvent(context.cl_context)
    cl.enqueue_barrier(context.queue.handle, wait_for=[gate])
    cl.enqueue_fill_buffer(context.queue.handle, r.buffer, np.float32(6), 0, r.nbytes)
    device = opencl_device(context.device)
    assert r.__dlpack__(dl_device=device, stream=-1)
    assert r.__dlpack__(dl_device=device, stream=other)  # does not wait
    read = np.zeros(300, "float32")
    event = cl.enqueue_copy(other, read, r.buffer, is_blocking=False)
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    assert (read == 6).all()
    for stream, message in (
        (7, "is None, -1 or a"),
        (cl.CommandQueue(elsewhere := cl.Context([context.device])), "other"),
    ):
        with pytest.raises(BufferError, match=message):
            r.__dlpack__(dl_device=device, stream=stream)
    assert elsewhere


def test_a_device_with_a_memory_of_its_own():
    with context_apart() as context:
        host = np.arange(35, dtype="float32").reshape(5, 7)
        r = context.from_host(host)
        device = opencl_device(context.device)
        assert r.__dlpack_device__() == device and device[0] == 4
        other = cl.CommandQueue(context.cl_context)
        for options in ({"dl_device": device}, {"dl_device": device, "stream": -1}, {"stream": other}):
            capsule = r.__dlpack__(max_version=(1, 0), **options)
            got = pytensor_cl.from_dlpack(Foreign(r, capsule), trust_opencl=True)
            assert got.buffer.int_ptr == r.buffer.int_ptr
        got = pytensor_cl.from_dlpack(Foreign(r[1:]), trust_opencl=True)
        assert got.buffer.int_ptr == r.buffer.int_ptr
        np.testing.assert_array_equal(got.to_host(), host[1:])
        for options in ({}, {"stream": -1}, {"copy": True}, {"max_version": (1, 0)}):
            for array in (r, r[:0]):
                with pytest.raises(BufferError, match=r"in OpenCL memory of .*np.from_dlpack\(r, device='cpu'\)"):
                    array.__dlpack__(**options)
        with pytest.raises(BufferError, match=r"r.__dlpack__\(dl_device=r.__dlpack_device__\(\)\)"):
            np.from_dlpack(r)
        assert pytensor_cl.from_dlpack(r, copy=False).buffer is r.buffer
        for options in ({}, {"copy": True}):
            np.testing.assert_array_equal(np.from_dlpack(r[:, ::2], device="cpu", **options), host[:, ::2])
        with pytest.raises(BufferError, match="cannot be exported without a copy"):
            np.from_dlpack(r, device="cpu", copy=False)
        with pytest.raises(BufferError, match="cannot use memory of the host"):
            pytensor_cl.from_dlpack(host, device=context.name, copy=False)
        np.testing.assert_array_equal(pytensor_cl.from_dlpack(host, device=context.name).to_host(), host)


# Other libraries


@pytest.mark.usefixtures("host_sees_memory")
def test_jax(context):
    jax = pytest.importorskip("jax")
    host = np.arange(12, dtype="float32").reshape(3, 4)
    r = context.from_host(host)
    got = jax.dlpack.from_dlpack(r)
    np.testing.assert_array_equal(got, host)
    back = pytensor_cl.from_dlpack(jax.numpy.asarray(host) + 1, device=context.name)
    assert back.readonly  # arrays of JAX do not change
    np.testing.assert_array_equal(back.to_host(), host + 1)
    with pytest.raises(BufferError, match="dtype"):
        pytensor_cl.from_dlpack(jax.numpy.ones(3, "bfloat16"), device=context.name)


@pytest.mark.parametrize("name", ["torch", "jax.dlpack"])
def test_memory_that_the_host_does_not_see_is_refused(name):
    """PyTorch would end the process."""
    library = pytest.importorskip(name)
    with context_apart() as context:
        r = context.from_host(np.arange(12, dtype="float32").reshape(3, 4))
        with pytest.raises((BufferError, TypeError)):
            library.from_dlpack(r)
        got = library.from_dlpack(np.from_dlpack(r, device="cpu"))
        np.testing.assert_array_equal(np.asarray(got), r.to_host())


@pytest.mark.usefixtures("host_sees_memory")
def test_torch(context, rng):
    torch = pytest.importorskip("torch")
    host = rng.normal(size=(4, 6)).astype("float32")
    r = context.from_host(host)
    t = torch.from_dlpack(r)
    assert t.data_ptr() == seen(r)
    t[0] = 9
    assert r.to_host()[0].tolist() == [9] * 6
    part = torch.from_dlpack(r[1:, ::2])
    assert part.stride() == (6, 2) and part.data_ptr() == seen(r[1:])
    assert torch.from_dlpack(r[::-1]).tolist() == r.to_host()[::-1].tolist()
    assert torch.from_dlpack(r[:0]).shape == (0, 6)
    x = torch.arange(24.0).reshape(4, 6)
    whole = pytensor_cl.from_dlpack(x, device=context.name, copy=False)
    for tensor in (x, x[1:], x[:, 2:], x.T):
        got = pytensor_cl.from_dlpack(tensor, device=context.name, copy=False)
        assert seen(got) == tensor.data_ptr() and got.buffer is whole.buffer and not got.readonly
    x += 1
    del x, tensor
    assert got.to_host()[0].tolist() == [1, 7, 13, 19]
    with pytest.raises(BufferError, match="dtype"):
        pytensor_cl.from_dlpack(torch.ones(3, dtype=torch.bfloat16), device=context.name)
