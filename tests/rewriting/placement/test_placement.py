"""The nodes that go to a device, and the reasons of the others."""

import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytensor.xtensor as px
import pytest
from pytensor.tensor.linalg import qz
from pytensor.xtensor.type import xtensor

from pytensor_cl import GpuArrayType, explain, gpu_from_host
from pytensor_cl.errors import OnHostError, OnHostWarning
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.indexing.slice_update import GpuSubtensor
from pytensor_cl.ops.reduction import GpuCAReduce
from pytensor_cl.rewriting.placement import placement
from tests.helpers import (
    another_context,
    assert_all_on_device,
    assert_close,
    assert_on_device,
    device_ops,
    host_ops,
    host_sort,
    opencl,
)


@pytest.fixture
def x():
    return pt.matrix("x", dtype="float32")


@pytest.fixture
def value(rng):
    return rng.normal(size=(4, 3)).astype("float32")


def flags(**values):
    return pytensor.config.change_flags(**{f"opencl__{name}": v for name, v in values.items()})


def reasons(f):
    return {n.reason for n in explain(f).host_nodes}


def test_auto_takes_what_works_on_arrays(context, x, value):
    f = opencl([x], [pt.exp(x), x.sum(1)])
    assert_all_on_device(f, GpuElemwise, GpuCAReduce)
    assert_close(f(value)[0], np.exp(value))


def test_host_keeps_all(context, x, value):
    with flags(placement="host"):
        f = opencl([x], [pt.exp(x), x.sum(1)])
    assert device_ops(f) == [] and reasons(f) == {placement.FORCED}
    assert explain(f).transfers == ()
    for got, wanted in zip(f(value), (np.exp(value), value.sum(1)), strict=True):
        assert_close(got, wanted)


def test_host_keeps_transfers_that_the_user_wrote(context, x, value):
    with flags(placement="host"):
        f = opencl([x], pt.exp(x).transfer(context.name))
    assert device_ops(f) == []
    assert_close(f(value), np.exp(value))


def test_views_alone_are_not_worth_a_transfer(context, x, value):
    outputs = [x.T[::-1], x.reshape((-1,))]
    f = opencl([x], outputs)
    assert device_ops(f) == [] and placement.VIEWS in reasons(f)
    with flags(placement="device"):
        g = opencl([x], outputs)
    assert_on_device(g, GpuSubtensor)
    for fn in (f, g):
        turned, flat = fn(value)
        assert_close(turned, value.T[::-1])
        assert_close(flat, value.ravel())


def test_views_of_device_values_stay_there(context):
    g = GpuArrayType("float32", (None, None))("g")
    assert_on_device(opencl([g], g.T[1:].transfer(context.name)), GpuSubtensor)


def test_streaming_work_between_host_nodes_stays_on_the_host(context, x, value):
    f = opencl([x], host_sort(pt.exp(x), axis=0))
    assert device_ops(f) == [] and placement.UNPROFITABLE in reasons(f)
    with flags(placement="device"):
        g = opencl([x], host_sort(pt.exp(x), axis=0))
    assert_on_device(g, GpuElemwise)
    heavy = opencl([x], host_sort(pt.exp(x @ x.T), axis=0))
    assert_on_device(heavy, GpuElemwise)
    for fn in (f, g):
        assert_close(fn(value), np.sort(np.exp(value), axis=0))
    assert_close(heavy(value), np.sort(np.exp(value @ value.T), axis=0))


def test_what_the_user_moved_is_worked_on_where_it_is(context, x, value):
    f = opencl([x], host_sort(pt.exp(gpu_from_host(x)), axis=0))
    assert_on_device(f, GpuElemwise)
    assert_close(f(value), np.sort(np.exp(value), axis=0))


def test_shapes_and_settings_are_arithmetic_of_the_host(context, x, value):
    rate, n = pt.scalar("rate", dtype="float32"), pt.scalar("n", dtype="int64")
    f = opencl([x, rate, n], [pt.exp(x) * (rate * 2 + 1), x.sum() / (x.shape[0] * n)])
    report = explain(f)
    assert {h.reason for h in report.host_nodes} == {placement.SCALAR}
    assert {t.what for t in report.transfers if t.direction != "to host"} == {"x"}
    scaled, mean = f(value, 3, 2)
    assert_close(scaled, np.exp(value) * 7)
    assert_close(np.float32(mean), np.float32(value.sum() / 8))


def test_host_scalars_reach_kernels_by_value(context, x, value):
    s, one = pt.scalar("s", dtype="float32"), pt.tensor("one", dtype="float32", shape=(1, 1))
    f = opencl([x, s, one], pt.exp(x) * s + one * 2)
    assert {t.what for t in explain(f).transfers if t.direction != "to host"} <= {"x", "one"}
    assert_close(f(value, 3, [[2]]), np.exp(value) * 3 + 4)
    g = opencl([x], [pt.exp(x) / x.shape[0], x - x.shape[1]])
    assert [t.what for t in explain(g).transfers if t.direction != "to host"] == ["x"]
    assert_close(np.float32(g(value)[0]), np.exp(value) / 4)


def test_scalars_of_the_device_stay_on_the_device(context, x, value):
    f = opencl([x], pt.exp(x / x.sum()))
    assert_all_on_device(f, GpuElemwise, GpuCAReduce)
    assert [t.direction for t in explain(f).transfers] == [f"to {context.name}", "to host"]
    assert_close(f(value), np.exp(value / value.sum()))


def test_slices_are_cut_before_they_are_moved(context, x, value):
    i = pt.scalar("i", dtype="int64")
    f = opencl([x, i], pt.dot(host_sort(x, axis=0)[i : i + 2], x.T))
    assert reasons(f) == {placement.SCALAR, placement.SLICE, "no OpenCL kernel for HostSort yet"}
    assert_close(f(value, 1), np.sort(value, axis=0)[1:3] @ value.T)


def test_slices_by_computed_bounds_go_to_the_device(context, x, value):
    i = pt.scalar("i", dtype="int64")
    with flags(on_host="raise"):
        f = opencl([x, i], pt.exp(x[i : i + 2]).sum())
    assert reasons(f) == {placement.SCALAR}
    assert_on_device(f, GpuElemwise, GpuSubtensor, GpuCAReduce)
    assert_close(f(value, 1), np.exp(value[1:3]).sum())


def test_readers_of_an_updated_shared_variable_are_on_the_device(context):
    s = pytensor.shared(np.float32(0))
    x = pt.vector("x", dtype="float32")
    f = opencl([x], s * 2 + 1, updates={s: s + pt.exp(x).sum()})
    assert_all_on_device(f, GpuElemwise, GpuCAReduce)
    assert_close(f(np.zeros(3, "float32")), np.float32(1))
    assert_close(f(np.zeros(3, "float32")), np.float32(7))


def test_shared_counters_stay_on_the_host(context):
    count = pytensor.shared(np.int64(0))
    f = opencl([], None, updates={count: count + 1})
    assert device_ops(f) == []
    f(), f()
    assert_close(count.get_value(), np.int64(2))


def test_missing_kernels_have_a_reason(context, x):
    with flags(placement="device"):
        f = opencl([x], [qz(x, x)[0], host_sort(pt.exp(x))])
    found = set(reasons(f))
    assert "no OpenCL kernel for HostSort yet" in found
    assert any(r.endswith("OpenCL kernel for QZ yet") for r in found)


def test_scalar_ops_without_a_kernel_do_not_keep_their_neighbours_on_the_host(context, x, value):
    with flags(placement="device"):
        f = opencl([x], pt.exp(pt.psi(pt.exp(x) + 1) * 2) - 1)
    assert len([op for op in device_ops(f) if isinstance(op, GpuElemwise)]) >= 1
    from scipy.special import psi

    assert_close(f(value), np.exp(psi(np.exp(value) + 1) * 2) - 1, 1e-4)


def test_on_host_raise_and_warn(context, x):
    with flags(on_host="raise"):
        with pytest.raises(OnHostError, match="stays on the host: no OpenCL kernel for HostSort yet"):
            opencl([x], host_sort(pt.exp(x)))
        opencl([x], pt.exp(x).sum())
    with flags(on_host="warn"), pytest.warns(OnHostWarning, match="no OpenCL kernel for HostSort yet") as noted:
        pytensor.function([x], host_sort(pt.exp(x)), mode="OPENCL")
    assert [w.filename for w in noted] == [__file__]
    with flags(on_host="allow"), warnings.catch_warnings():
        warnings.simplefilter("error", OnHostWarning)
        opencl([x], host_sort(pt.exp(x)))


def test_on_host_does_not_report_shape_arithmetic(context, x, value):
    n = pt.scalar("n", dtype="int64")
    outputs = [pt.exp(x).reshape((x.shape[1], -1)), pt.exp(x[n:]) / x.shape[0], pt.alloc(pt.exp(x), n, *x.shape).sum()]
    with flags(on_host="raise"):
        f = opencl([x, n], outputs)
    assert_close(f(value, 2)[0], np.exp(value).reshape(3, 4))


def test_nodes_of_two_contexts(context, value):
    other = another_context(context)
    a, b = (GpuArrayType("float32", (None, None), c.name)(c.name) for c in (context, other))
    f = opencl([a, b], [a @ a.T, b @ b.T, (a @ a.T) @ b])
    assert {n.context for n in explain(f).device_nodes} == {context.name, other.name}
    square = value @ value.T
    for got, wanted in zip(f(value, value), (square, square, square @ value), strict=True):
        assert_close(got, wanted)


def test_a_plan_for_every_policy_gives_the_same_values(context, x, value):
    outputs = [
        host_sort(pt.exp(x), axis=0).sum(0),
        x.T[1:] * x.mean(),
        pt.argmax(x, axis=1) + x.shape[0],
        x[pt.argmin(x, axis=0)],
    ]
    expected = pytensor.function([x], outputs, mode="FAST_COMPILE")(value)
    for policy in ("auto", "device", "host"):
        with flags(placement=policy):
            results = opencl([x], outputs)(value)
        for got, wanted in zip(results, expected, strict=True):
            assert_close(got, wanted)


def test_named_dimensions_keep_nothing_on_the_host(context):
    x = xtensor("x", dims=("a", "b"), shape=(30, 40), dtype="float32")
    f = opencl([x], (px.math.exp(x) * 2 + 1).sum("a"))
    assert device_ops(f) != [] and all("XTensor" in str(op) for op in host_ops(f))
    value = np.random.default_rng(1).normal(size=(30, 40)).astype("float32")
    assert_close(f(value), (np.exp(value) * 2 + 1).sum(0))
