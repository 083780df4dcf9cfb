"""Arrays on a device and their views."""

import numpy as np
import pytest

from pytensor_cl.errors import OutOfDeviceMemory


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


def test_indices_out_of_range(array):
    for items in (4, (0, 5), (0, 0, -7), (0, 0, 0, 0)):
        with pytest.raises(IndexError):
            array[items]


def test_numpy_protocol(array, value):
    np.testing.assert_array_equal(np.asarray(array), value)
    assert np.asarray(array, "float64").dtype == "float64"
    np.testing.assert_allclose(np.mean(array), value.mean(), rtol=1e-5)


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
