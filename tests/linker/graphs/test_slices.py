"""Minibatches that are slices: one captured graph serves them all."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import explain
from pytensor_cl.linker.graphs.buffers import BufferBinding
from pytensor_cl.linker.graphs.slices import SliceBinding, split_offset
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.parts import parts_of
from tests.helpers import normal, opencl

pytestmark = pytest.mark.usefixtures("on_device")

CALLS = WARMUP_CALLS + 4


def captured_graphs(f):
    return list(f.vm.executor.graphs.values())


def assert_close(got, expected):
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("start", [0, 1, 31, 32, 33, 100])
@pytest.mark.parametrize("strides", [(5, 1), (-5, 1), (1, 7), (0, -1)])
def test_parts_begin_where_they_may(start, strides):
    layout = Layout((3, 4), strides, start + 50)
    begin, inner = split_offset(layout, 4, 128)
    assert begin % 128 == 0 and inner.span[0] in range(32)
    assert inner._replace(offset=inner.offset + begin // 4) == layout
    assert split_offset(layout._replace(shape=(0, 4)), 4, 128) == (0, Layout((0, 4), strides, 0))


def test_kernels_get_the_slice_again_after_that_of_another_array(context):
    array, other = (context.empty((64,), "float32") for _ in range(2))
    source, binding = BufferBinding(), BufferBinding()
    bound = []
    binding.add_argument(SimpleNamespace(set_buffer=lambda index, buffer: bound.append(buffer)), 0)
    slices = SliceBinding(binding, source, array.layout, 4, 128)
    for value in (array, other, array, array):
        if value is array:
            source.bind_array(array)
        else:
            source.bind(other.buffer)
        slices.rebind(0)
        assert bound[-1] is binding.buffer
    assert len(bound) == 3


def test_one_captured_graph_serves_all_minibatches(context, rng):
    columns = context.memory.arena.alignment // 32  # 8 rows begin where a buffer may
    data, targets = pytensor.shared(normal(rng, 64, 32)), pytensor.shared(normal(rng, 64, columns))
    w = pytensor.shared(normal(rng, 32, columns) / 6)
    batch = pt.iscalar("batch")
    rows = slice(batch * 8, (batch + 1) * 8)
    loss = ((pt.tanh(data[rows] @ w) - targets[rows]) ** 2).mean()
    f = opencl([batch], loss, updates={w: w - np.float32(0.1) * pytensor.grad(loss, w)})
    value, x, y = w.get_value(), data.get_value(), targets.get_value()
    for k in range(6 * CALLS):
        at = slice(k * 5 % 8 * 8, k * 5 % 8 * 8 + 8)
        h = np.tanh(x[at] @ value)
        assert_close(f(k * 5 % 8), ((h - y[at]) ** 2).mean())
        value -= np.float32(0.1) * x[at].T @ (2 * (h - y[at]) * (1 - h**2) / h.size)
        if k == 4 * CALLS:
            x = normal(rng, 64, 32)
            data.set_value(x)
    assert f.vm.executor.replay_count == 6 * CALLS - WARMUP_CALLS - 1 and len(captured_graphs(f)) == 1
    assert len(explain(f).captured_graphs) == 1


def test_slices_that_never_come_again(context, rng):
    """Beginnings at 32 kinds of address, the remainders by the alignment; the first call of each is captured."""
    factor = context.memory.arena.alignment // 128
    step, count = 11 * factor, 5000 * factor  # a row has 12 bytes
    data, start = pytensor.shared(normal(rng, count, 3)), pt.lscalar("start")
    f = opencl(
        [start], [pt.tanh(data[start : start + 7] * 2), data[start : start + 7].sum(0) + start.astype("float32")]
    )
    x = data.get_value()
    for k in range(400):
        first, second = f(k * step)
        assert_close(first, np.tanh(x[k * step : k * step + 7] * 2))
        assert_close(second, x[k * step : k * step + 7].sum(0) + np.float32(k * step))
    assert len(captured_graphs(f)) == 32 and f.vm.executor.replay_count >= 400 - 3 * 32
    for k in (count - 7, count - 1, count, count + 1000, -3, -7, -8):  # shorter ones, and none at all
        for _ in range(2):
            assert_close(f(k)[0], np.tanh(x[k : k + 7] * 2))


def test_arguments_and_other_indices(context, rng):
    x, i, j = pt.fmatrix("x"), pt.lscalar("i"), pt.lscalar("j")
    f = opencl([x, i, j], [pt.exp(x[i]) + x.T[j : j + 2, 0].sum(), x[i - 1 : i + 1][::-1].sum() * j])
    for k in range(120):
        value, row = normal(rng, 40, 320), 1 + k % 39
        first, second = f(value, row, k % 4)
        assert_close(first, np.exp(value[row]) + value.T[k % 4 : k % 4 + 2, 0].sum())
        assert_close(second, value[row - 1 : row + 1].sum() * (k % 4))
    assert f.vm.executor.replay_count > 20


def test_slices_that_are_results_or_updated(context, rng):
    data, start = pytensor.shared(normal(rng, 40, 32), "data"), pt.lscalar("start")
    view = opencl([start], data[start : start + 4].transfer(context.name))
    change = opencl([start], data[start : start + 4].sum(), updates={data: data + np.float32(1)})
    total = opencl([start], [data[start : start + 4], data[start : start + 4] * 2], updates={data: data * 1})
    kept, x = [], data.get_value()
    for k in range(4 * CALLS):
        at = slice(k % 30, k % 30 + 4)
        kept.append((view(k % 30), x[at].copy()))
        assert_close(change(k % 30), x[at].sum())
        x = x + 1
        first, second = total(k % 30)
        assert_close(first, x[at])
        assert_close(second, 2 * x[at])
    for got, wanted in kept:
        assert_close(got.to_host(), wanted)
    assert_close(data.get_value(), x)


def test_errors_are_those_of_other_calls(context, rng):
    data, i = pytensor.shared(normal(rng, 40, 32)), pt.lscalar("i")
    f = opencl([i], pt.exp(data[i]) * 2)
    for k in range(CALLS):
        assert_close(f(k), 2 * np.exp(data.get_value()[k]))
    for _ in range(2):
        with pytest.raises(IndexError, match="out of bounds"):
            f(40)
    assert_close(f(39), 2 * np.exp(data.get_value()[39]))
    assert len(captured_graphs(f)) == 1


def test_data_that_is_replaced_goes(context, rng):
    data, i = pytensor.shared(normal(rng, 40, 32)), pt.lscalar("i")
    f = opencl([i], pt.exp(data[8 * i : 8 * i + 8]).sum())
    for k in range(CALLS):
        f(k % 5)
    array = data.container.storage.device(context.name)
    old, parts = weakref.ref(array), weakref.ref(parts_of(array.buffer))
    assert len(parts()) >= 2
    del array
    x = normal(rng, 40, 32)
    data.set_value(x)
    gc.collect()
    assert old() is None and parts() is None
    assert_close(f(3), np.exp(x[24:32]).sum())
