"""Transfers as Ops: what users write, gradients, device inputs and outputs."""

import copy
import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytensor.typed_list
import pytest
from pytensor.compile.io import In, Out

import pytensor_cl
from pytensor_cl import GpuArray, GpuArrayType, gpu_from_host, host_from_gpu
from pytensor_cl.errors import ContextNotDefined
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu
from tests.helpers import another_context, assert_all_on_device, assert_close, assert_on_device, opencl, run_script


@pytest.fixture
def x():
    return pt.matrix("x", dtype="float32")


@pytest.fixture
def value(rng):
    return rng.normal(size=(3, 4)).astype("float32")


def transfers(f):
    return [
        type(node.op) for node in f.maker.fgraph.toposort() if isinstance(node.op, (GpuFromHost, HostFromGpu, GpuToGpu))
    ]


def test_transfer_to_a_context_and_back(context, x, value):
    on_device = x.transfer(context.name)
    assert on_device.type == GpuArrayType("float32", (None, None), context.name)
    assert on_device.transfer(context.name) is on_device
    assert isinstance(on_device.transfer("cpu").owner.op, HostFromGpu)
    f = opencl([x], [on_device, pt.exp(x).transfer(context.name), on_device.transfer("cpu") + 1])
    moved, computed, host = f(value)
    assert isinstance(moved, GpuArray) and isinstance(computed, GpuArray) and isinstance(host, np.ndarray)
    computed.sync()
    assert_close(moved, value)
    assert_close(computed, np.exp(value))
    assert_close(host, value + 1)


def test_target_none_is_the_default_context(context, x):
    assert x.transfer(None).type.context_name == context.name
    assert gpu_from_host(x).type.context_name == context.name


def test_gpu_from_host_takes_what_as_tensor_takes(context):
    f = opencl([], [gpu_from_host([1.0, 2.0]), gpu_from_host(np.int8(3)), host_from_gpu(gpu_from_host(np.eye(2)))])
    vector, scalar, eye = f()
    assert_close(vector, np.array([1.0, 2.0], vector.dtype))
    assert_close(scalar, np.int8(3))
    assert_close(eye, np.eye(2))


def test_unknown_contexts(context, x):
    with pytest.raises(ValueError, match="nowhere"):
        x.transfer("nowhere")
    with pytest.raises(ContextNotDefined, match=f"'nowhere'; defined are: .*{context.name}"):
        gpu_from_host(x, "nowhere")
    with pytest.raises(ContextNotDefined, match="nowhere"):
        opencl([x], GpuFromHost("nowhere")(x))


def test_transfers_refuse_other_types(context, x):
    with pytest.raises(TypeError):
        host_from_gpu(x)
    with pytest.raises(TypeError):
        GpuToGpu(context.name)(x)
    with pytest.raises(TypeError):
        gpu_from_host(pytensor.typed_list.TypedListType(pt.fmatrix)())


def test_round_trips_are_cut(context, x, value):
    f = opencl([x], host_from_gpu(gpu_from_host(x)) * 1)
    assert transfers(f) == []
    g = opencl([x], pt.exp(host_from_gpu(gpu_from_host(pt.exp(x)))))
    assert transfers(g) == [GpuFromHost, HostFromGpu]
    assert_close(g(value), np.exp(np.exp(value)))


def test_shape_of_a_device_variable_downloads_nothing(context, value):
    g = GpuArrayType("float32", (None, None))("g")
    f = opencl([g], [g.shape[0], g.shape[1] * 2])
    assert transfers(f) == []
    assert [int(n) for n in f(value)] == [3, 8]


def test_gradients_pass_through_transfers(context, x, value):
    cost = (host_from_gpu(gpu_from_host(host_from_gpu(gpu_from_host(x)) ** 3)) * 2).sum()
    f = opencl([x], pt.grad(cost, x))
    assert_on_device(f, GpuElemwise)
    assert_close(f(value), 6 * value**2)


def test_gradient_of_a_device_variable_is_on_the_device(context, value):
    g = GpuArrayType("float32", (None, None))("g")
    gradient = pt.grad((pt.exp(g) * 2).sum(), g)
    assert gradient.type.context_name == context.name
    f = opencl([g], gradient)
    assert_all_on_device(f)
    assert transfers(f) == []
    result = f(context.from_host(value))
    assert isinstance(result, GpuArray)
    assert_close(result, 2 * np.exp(value))


def test_forward_derivatives_pass_through_transfers(context, x, value):
    from_host, tangent = gpu_from_host(x), pt.matrix("t", dtype="float32")
    f = opencl([x, tangent], pytensor.gradient.pushforward(from_host**2, x, tangent))
    assert_close(f(value, np.ones_like(value)), 2 * value)


def test_transfers_have_a_connection_pattern_and_shapes(context, x):
    node = gpu_from_host(x).owner
    assert node.op.connection_pattern(node) == [[True]]
    assert node.op.infer_shape(node, [(2, 3)]) == [(2, 3)]


def test_device_inputs_and_givens(context, x, value):
    g = GpuArrayType("float32", (None, None))("g")
    f = opencl([g], [x.sum(0), x * 2], givens={x: g})
    on_device = context.from_host(value)
    for argument in (value, on_device, on_device.T.copy().T, value[::-1][::-1]):
        total, double = f(argument)
        assert_close(total, value.sum(0))
        assert_close(double, value * 2)
    assert_close(on_device, value)
    with pytest.raises(TypeError):
        f(value.astype("float64")[0])


def test_an_input_that_is_an_output_is_copied(context, value):
    g = GpuArrayType("float32", (None, None))("g")
    f = opencl([g], [g, g.T.transfer(context.name), g[1:].transfer(context.name)])
    on_device = context.from_host(value)
    same, turned, part = f(on_device)
    assert len({id(a.buffer) for a in (on_device, same, turned, part)}) == 4
    for got, wanted in zip((same, turned, part), (value, value.T, value[1:]), strict=True):
        assert_close(got, wanted)


def test_results_do_not_change_with_later_calls(context, x, value):
    f = opencl([x], [pt.exp(x), pt.exp(x).transfer(context.name), x.T.transfer(context.name)])
    argument = value.copy()
    first = f(argument)
    argument[:] = 0
    f(argument + 1)
    for got, wanted in zip(first, (np.exp(value), np.exp(value), value.T), strict=True):
        assert_close(got, wanted)


def test_borrowed_inputs_and_outputs(context, x, value):
    f = opencl([In(x, borrow=True)], [Out(pt.exp(x), borrow=True), Out(pt.exp(x).transfer(context.name), borrow=True)])
    host, device = f(value)
    assert_close(host, np.exp(value))
    assert_close(device, np.exp(value))
    g = opencl([In(x, borrow=True, mutable=True)], Out(x * 2, borrow=True))
    assert_close(g(value.copy()), value * 2)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "uint64", "float32", "float64"])
def test_every_dtype_and_stride_is_kept(context, rng, dtype):
    kind = pt.TensorType(dtype, (None, None, None))
    x = kind()
    f = opencl([x], [x.transfer(context.name), x[::-1, :, ::2].transfer(context.name).transfer("cpu")])
    value = (rng.normal(size=(3, 4, 5)) * 3).astype(dtype)
    for argument in (
        value,
        value.T,
        value[::-2, :, 1:],
        value[:0],
        value[:, :, :0],
        np.broadcast_to(value[:1], (3, 4, 5)),
    ):
        whole, part = f(argument)
        assert_close(whole, argument)
        assert_close(part, argument[::-1, :, ::2])


def test_between_contexts(context, x, value):
    other = another_context(context)
    there = gpu_from_host(pt.exp(gpu_from_host(x)), other.name)
    assert there.transfer(other.name) is there
    back = GpuToGpu(context.name)(there)
    f = opencl([x], [there, back, pt.exp(there), GpuToGpu(other.name)(back)])
    results = f(value)
    kinds = [r.context.name if isinstance(r, GpuArray) else "cpu" for r in results]
    assert kinds == [other.name, context.name, "cpu", other.name]
    assert {node.context for node in pytensor_cl.explain(f).device_nodes} == {context.name, other.name}
    for got, wanted in zip(results, [np.exp(value), np.exp(value), np.exp(np.exp(value)), np.exp(value)], strict=True):
        assert_close(got, wanted)


def test_gradients_pass_between_contexts(context, value):
    other = another_context(context)
    g = GpuArrayType("float32", (None, None))("g")
    cost = (GpuToGpu(other.name)(g) ** 2).sum()
    gradient = pt.grad(cost, g)
    assert gradient.type.context_name == context.name
    assert_close(opencl([g], gradient)(value), 2 * value)


def test_nodes_run_where_their_inputs_are(context, value):
    other = another_context(context)
    here, there = (GpuArrayType("float32", (None, None), c.name)(c.name) for c in (context, other))
    f = opencl([here, there], [pt.exp(here).sum(), pt.tanh(there).T, gpu_from_host(here + there, other.name)])
    where = {str(getattr(n.op, "host", n.op)): n.context for n in pytensor_cl.explain(f).device_nodes}
    assert next(c for op, c in where.items() if "Tanh" in op or "tanh" in op) == other.name
    total, turned, both = f(context.from_host(value), other.from_host(value))
    assert both.context is other
    assert_close(total, np.exp(value).sum(dtype="float32"))
    assert_close(turned, np.tanh(value).T)
    assert_close(both, value * 2)
    with pytest.raises(TypeError, match="context"):
        f(other.from_host(value), context.from_host(value))


def test_a_node_runs_where_its_result_is_wanted(context, x, value):
    other = another_context(context)
    f = opencl([x], pt.exp(x * 2).transfer(other.name))
    assert {n.context for n in pytensor_cl.explain(f).device_nodes} == {other.name}
    assert_close(f(value), np.exp(value * 2))


def test_functions_pickle_and_copy(context, x, value):
    f = opencl([x], [pt.exp(x).transfer(context.name), pt.exp(x).sum(0)])
    for again in (pickle.loads(pickle.dumps(f)), copy.copy(f), copy.deepcopy(f), f.copy()):
        device, host = again(value)
        assert isinstance(device, GpuArray)
        assert_close(device, np.exp(value))
        assert_close(host, np.exp(value).sum(0))


def test_two_contexts_on_two_devices_of_one_driver():
    script = """
        import numpy as np, pytensor, pytensor.tensor as pt, pytensor_cl
        x = pt.matrix("x", dtype="float32")
        b = pytensor_cl.gpu_from_host(x, "b")
        a, b = pt.exp(pytensor_cl.gpu_from_host(x, "a")), b @ b.T
        f = pytensor.function([x], [b @ a, b.transfer("b"), pt.dot(a.T, b).transfer("a")], mode="OPENCL")
        v = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
        s, d, p = f(v)
        seen["contexts"] = sorted({n.context for n in pytensor_cl.explain(f).device_nodes})
        seen["kinds"] = [type(s).__name__, d.context.name, p.context.name]
        e, t = np.exp(v), v @ v.T
        seen["right"] = [bool(np.allclose(g, w, rtol=1e-4, atol=1e-4)) for g, w in ((s, t @ e), (d, t), (p, e.T @ t))]
        seen["devices"] = len({str(n.entry.spec) for n in map(pytensor_cl.runtime.registry.get_context, "ab")})
        pytensor_cl.sync()
    """
    if not any(":pocl:" in entry.stable_spec for entry in pytensor_cl.devices()):
        pytest.skip("needs PoCL")
    flags = "contexts=a->opencl:pocl:0;b->opencl:pocl:1"
    seen, stderr = run_script(script, flags, POCL_DEVICES="pthread pthread")
    assert seen["contexts"] == ["a", "b"] and seen["right"] == [True] * 3
    assert seen["kinds"] == ["ndarray", "b", "a"] and seen["devices"] == 2
    assert stderr.count("Mapped name a to") == 1 and stderr.count("Mapped name b to") == 1
