"""Arrays on a device and their views."""

from dataclasses import replace

import numpy as np
import pytest

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.device_copy import Copies


@pytest.fixture
def value(rng):
    return rng.normal(size=(4, 5, 6)).astype("float32")


@pytest.fixture
def array(context, value):
    return context.from_host(value)


def test_attributes_are_those_of_numpy(array, value):
    for name in ("shape", "strides", "dtype", "ndim", "size", "itemsize", "nbytes"):
        assert getattr(array, name) == getattr(value, name)
    assert len(array) == 4
    with pytest.raises(TypeError, match="0-d"):
        len(array[0, 0, 0])


ITEMS = (
    0,
    -1,
    slice(None, None, -1),
    (slice(1, 3), 2),
    (Ellipsis, 1),
    (1, Ellipsis),
    (Ellipsis, slice(None, None, -2)),
    (slice(4, 1, -2), slice(0, 0), slice(None)),
    (3, 4, 5),
    Ellipsis,
)


@pytest.mark.parametrize("items", ITEMS, ids=str)
def test_views(array, value, items):
    view, expected = array[items], value[items]
    assert view.buffer is array.buffer and view.shape == np.shape(expected)
    np.testing.assert_array_equal(view.to_host(), expected)
    np.testing.assert_array_equal(view.T.to_host(), np.transpose(expected))
    np.testing.assert_array_equal(view.copy().to_host(), expected)
    assert view.copy().buffer is not array.buffer


@pytest.mark.parametrize("count", [(1 << 20) - 1, 1 << 20, (1 << 20) + 67, (1 << 24) + 1])
def test_copies_of_large_arrays(context, rng, count):
    value = rng.integers(0, 255, count + 5, "uint8")
    view = context.from_host(value)[5:]
    np.testing.assert_array_equal(view.copy().to_host(), value[5:])


def reshaped(x, *shape):
    return x.with_layout(x.layout.reshape(shape)) if isinstance(x, GpuArray) else x.reshape(shape)


STRIDED = (
    lambda x: x[::10],
    lambda x: x[::-1].T,
    lambda x: x[5:, ::-3],
    lambda x: reshaped(x, 2, 3, 2, 5, 2, 3, 2, 2, 2, 3)[:, ::-1, :, ::2, :, ::2, :, :, ::-1, ::2],
    lambda x: x[3:3],
)


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_copies_are_dense(context, rng, schedule):
    """Whatever the strides, with the memory of the elements alone."""
    copies = Copies(
        context.queue, context.programs, replace(context.info, kind={"cpu": "cpu", "simt": "gpu"}[schedule])
    )
    for dtype in ("int8", "float16", "float32", "complex128"):
        value = rng.integers(0, 100, (60, 144)).astype(dtype)
        array = context.from_host(value)
        for view in STRIDED:
            source, want = view(array), view(value)
            target = context.empty((3, *source.shape), dtype)[1]
            if source.size:
                copies.gather(target, source)
                np.testing.assert_array_equal(target.to_host(), want)
            copied = source.copy()
            assert copied.layout.is_contiguous and (copied.dtype, copied.shape) == (want.dtype, want.shape)
            assert copied.buffer.size <= max(64, 2 * want.nbytes)
            np.testing.assert_array_equal(copied.to_host(), want)
    alone = context.from_host(np.float32(3))
    wide = alone.with_layout(alone.layout.broadcast_to((4, 5))).copy()
    assert wide.layout.is_contiguous and (wide.to_host() == 3).all()


def test_downloads_of_a_few_elements_of_many(context, rng, monkeypatch):
    """They are gathered on the device, where the host cannot read its memory."""
    monkeypatch.setattr("pytensor_cl.runtime.context._LARGE_SPAN", 1000)
    value = rng.normal(size=20_000).astype("float32")
    array = context.from_host(value)
    monkeypatch.setattr(context.mappings, "view", lambda array: None)
    gathered = []
    monkeypatch.setattr(context, "copy", lambda a, copy=context.copy: gathered.append(a.shape) or copy(a))
    for view in (lambda x: x[::-1000], lambda x: x[7::2], lambda x: x[::3]):
        np.testing.assert_array_equal(view(array).to_host(), view(value))
    assert gathered == [(20,), (6667,)]


def test_indices_out_of_range(array):
    for items in (4, (0, 5), (0, 0, -7), (0, 0, 0, 0)):
        with pytest.raises(IndexError):
            array[items]


def test_numpy_protocol(array, value):
    np.testing.assert_array_equal(np.asarray(array), value)
    assert np.asarray(array, "float64").dtype == "float64"
    np.testing.assert_allclose(np.mean(array), value.mean(), rtol=1e-5, atol=1e-6)


def test_conversion_of_one_element(context):
    one = context.from_host(np.asarray(3.5, "float32"))
    assert (float(one), int(one), bool(one)) == (3.5, 3, True)
    with pytest.raises(TypeError):
        float(context.from_host(np.zeros(2)))


def test_repr_reads_nothing(context, array, monkeypatch):
    monkeypatch.setattr(type(context), "download", None)
    assert repr(array) == f"GpuArray(shape=(4, 5, 6), dtype=float32, context={context.name!r})"


def test_too_large_an_array(context):
    limit = context.info.max_allocation
    before = context.memory.statistics()
    with pytest.raises(OutOfDeviceMemory, match="could not allocate") as caught:
        context.empty((limit + 1,), "int8")
    assert isinstance(caught.value, MemoryError)
    assert context.memory.statistics() == before
    assert context.empty((10,), "int8").to_host().shape == (10,)
