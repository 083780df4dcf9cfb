"""NumPy arrays over the memory of device arrays, and mapped arrays."""

import gc
import pickle
import sys

import numpy as np
import pyopencl as cl
import pytest

import pytensor_cl
from tests.device_apart import context_apart

VIEWS = {
    "whole": lambda a: a,
    "backwards": lambda a: a[::-1, 1::2],
    "transposed": lambda a: a.T,
    "scalar": lambda a: a[1, 2, ...],
    "empty": lambda a: a[3:3],
}


@pytest.fixture
def host(rng):
    return rng.normal(size=(5, 7)).astype("float32")


@pytest.mark.usefixtures("host_sees_memory")
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_the_memory(context, host, view):
    r = context.from_host(host)
    seen, wanted = VIEWS[view](r).host_view(), VIEWS[view](host)
    np.testing.assert_array_equal(seen, wanted)
    assert seen.strides == wanted.strides or wanted.size < 2
    assert not seen.flags.writeable
    shown = memoryview(seen)
    assert shown.readonly and shown.tolist() == wanted.tolist()
    cl.enqueue_fill_buffer(pytensor_cl.queue(context.name), r.buffer, np.float32(3), 0, r.nbytes)
    r.sync()
    assert (seen == 3).all()
    writable = VIEWS[view](r).host_view(writeable=True)
    writable[...] = 4
    assert (VIEWS[view](r).to_host() == 4).all()
    assert not memoryview(writable).readonly and np.asarray(writable) is writable


@pytest.mark.usefixtures("host_sees_memory")
def test_a_view_of_an_imported_array(context, host):
    r = pytensor_cl.from_dlpack(host, device=context.name, copy=False)
    seen = r[1:].host_view()
    assert seen.__array_interface__["data"][0] == host[1:].__array_interface__["data"][0]
    buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=host)
    np.testing.assert_array_equal(pytensor_cl.from_buffer(buffer, (5, 7), "float32").host_view(), host)


@pytest.mark.usefixtures("host_sees_memory")
def test_a_view_keeps_the_memory(context):
    r = context.from_host(np.full(5000, 3, "float32"))
    before = sys.getrefcount(r.buffer)
    seen = r[10:].host_view()[5:].reshape(-1)
    assert sys.getrefcount(r.buffer) > before
    handle = r.buffer.int_ptr
    del r
    gc.collect()
    assert handle not in [a.buffer.int_ptr for a in [context.empty((5000,), "float32") for _ in range(4)]]
    assert (seen == 3).all()


def test_arrays_that_must_not_be_written(context, host):
    r = context.from_host(host)
    wide = r[:1].with_layout(r[:1].layout.broadcast_to((5, 7)))
    r.readonly = True
    for array, message in ((r, "read-only"), (r.T, "read-only"), (wide, "broadcast")):
        writes = [lambda a=array: a.map("w").__enter__()]
        if context.mappings.are_supported():
            np.testing.assert_array_equal(array.host_view(), array.to_host())
            writes.append(lambda a=array: a.host_view(writeable=True))
        for write in writes:
            with pytest.raises(ValueError, match=message):
                write()
        with array.map("r") as seen:
            np.testing.assert_array_equal(seen, array.to_host())


@pytest.mark.usefixtures("host_sees_memory")
def test_conversion_by_numpy(context, host):
    r = context.from_host(host)
    snapshot = np.asarray(r)
    r.host_view(writeable=True)[...] = 0
    np.testing.assert_array_equal(snapshot, host)
    seen = np.asarray(r, copy=False)
    assert not seen.flags.writeable
    r.host_view(writeable=True)[...] = 5
    assert (seen == 5).all()
    assert np.asarray(r, "float64").dtype == "float64"
    with pytest.raises(ValueError, match="does not become float64 without a copy"):
        np.array(r, "float64", copy=False)


def test_a_pickle_of_an_array_over_foreign_memory(context, host):
    r = pytensor_cl.from_dlpack(host, device=context.name)
    loaded = pickle.loads(pickle.dumps(r[1:]))
    host[...] = 0
    assert loaded.context is context and loaded.owner is None and loaded.to_host().any()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("apart", [False, True])
def test_map(context, host, view, apart):
    if not apart:
        check_map(context, host, VIEWS[view])
    else:
        with context_apart() as other:
            check_map(other, host, VIEWS[view])


def check_map(context, host, view):
    r = context.from_host(host)
    with view(r).map("r") as mapped:
        np.testing.assert_array_equal(mapped, view(host))
        assert not mapped.flags.writeable
    for mode in ("rw", "w"):
        with view(r).map(mode) as mapped:
            mapped[...] = 2
        with pytest.raises(ValueError, match="read-only"):
            mapped[...] = 3
        wanted = host.copy()
        view(wanted)[...] = 2
        np.testing.assert_array_equal(r.to_host(), wanted)
    with pytest.raises(ZeroDivisionError), view(r).map() as mapped:
        mapped[...] = 4
        raise ZeroDivisionError
    assert (view(r).to_host() == 4).all()
    with pytest.raises(ValueError, match="is one of 'r', 'w', 'rw', not 'x'"), r.map("x"):
        pass


def test_a_device_with_a_memory_of_its_own():
    with context_apart() as context:
        r = context.from_host(np.zeros(4, "float32"))
        with pytest.raises(ValueError, match=r"memory of its own.*np\.asarray\(r\).*r\.map\(\)"):
            r.host_view()
        with pytest.raises(ValueError, match=r"write np\.asarray\(r\)"):
            np.array(r, copy=False)
        assert np.asarray(r).tolist() == [0] * 4
