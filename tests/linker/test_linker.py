"""Functions of mode OPENCL: modes, updates, host Ops inside, errors, profile."""

import gc
import pickle
import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.linalg
from pytensor import OpFromGraph, scan
from pytensor.compile.mode import Mode, get_mode
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.special import log_softmax, softmax

import pytensor_cl
from pytensor_cl import GpuArray
from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemm import GpuDot, GpuGemm
from pytensor_cl.ops.reduction import GpuCAReduce
from pytensor_cl.runtime.memory.pool import WINDOW
from pytensor_cl.runtime.queue import Queue
from tests.helpers import (
    HostSort,
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


def on_host(inputs, outputs, *values):
    """Return what PyTensor gives on the CPU."""
    return pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*values)


def assert_like_host(inputs, outputs, values, *kinds, rtol=2e-5):
    """The outputs are right, twice, and the device Ops of these classes took part (wherever there is a kernel)."""
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl(inputs, outputs)
    assert_on_device(f, *kinds)
    for _ in range(2):
        for got, wanted in zip(f(*values), on_host(inputs, outputs, *values), strict=True):
            assert_close(got, wanted, rtol)
    return f


# Modes


def test_ways_to_choose_the_mode(context, x, value):
    outputs = pt.exp(x).sum(0)
    modes = [
        "opencl",
        Mode(linker="opencl", optimizer="fast_run"),
        Mode(OpenCLLinker(), RewriteDatabaseQuery(include=["fast_run"])),
        get_mode("OPENCL").clone(),
        get_mode("OPENCL").including("local_remove_all_assert").excluding("inplace"),
        get_mode("OPENCL").clone(link_kwargs={"allow_gc": False}),
    ]
    for mode in modes:
        f = pytensor.function([x], outputs, mode=mode)
        assert_all_on_device(f, GpuElemwise, GpuCAReduce)
        assert_close(f(value), np.exp(value).sum(0))
    with pytensor.config.change_flags(mode="OPENCL"):
        f = pytensor.function([x], outputs)
    assert_all_on_device(f, GpuElemwise, GpuCAReduce)


@pytest.mark.parametrize("optimizer", [None, "fast_compile", "None", "o1", "merge"])
def test_few_rewrites(context, x, value, optimizer):
    y = pt.vector("y", dtype="float32")
    outputs = [pt.exp(x - y).sum(1), pt.dot(x.T, x), x[::-1].reshape((-1,)), pt.mean(x), (x > 0) & (y < 1)]
    f = pytensor.function([x, y], outputs, mode=Mode(linker="opencl", optimizer=optimizer))
    expected = on_host([x, y], outputs, value, value[0])
    assert_on_device(f, GpuElemwise, GpuCAReduce)
    for got, wanted in zip(f(value, value[0]), expected, strict=True):
        assert_close(got, wanted)


def test_excluding_opencl_leaves_the_host(context, x, value):
    f = pytensor.function([x], pt.exp(x), mode=get_mode("OPENCL").excluding("opencl"))
    assert device_ops(f) == [] or isinstance(f.maker.linker, OpenCLLinker)
    assert_close(f(value), np.exp(value))


def test_linkers_of_pytensor_run_device_graphs(context, x, value):
    """`perform` of every device Op, for the VM, DebugMode and NanGuardMode."""
    query = RewriteDatabaseQuery(include=["fast_run", "opencl"], exclude=["cxx_only", "local_careduce_fusion"])
    i = pt.scalar("i", dtype="int64")
    outputs = [
        pt.exp(x).sum(0),
        (x @ x.T)[i],
        pt.tanh(x.T).reshape((-1,)) * 2,
        pt.exp(x) + pt.alloc(np.float32(2), 4, 3),
    ]
    expected = on_host([x, i], outputs, value, 1)
    for linker in ("py", "vm"):
        f = pytensor.function([x, i], outputs, mode=Mode(linker=linker, optimizer=query))
        assert any(isinstance(n.op, GpuElemwise) for n in f.maker.fgraph.apply_nodes)
        for got, wanted in zip(f(value, 1), expected, strict=True):
            assert_close(got, wanted)


# Calls


def test_shapes_change_from_call_to_call(context, x, rng):
    outputs = [pt.exp(x) - pt.exp(x).mean(0), x @ x.T, x.sum(), x[:, ::-1], x.reshape((-1,))]
    f, host = opencl([x], outputs), pytensor.function([x], outputs, mode="FAST_COMPILE")
    shapes = [(4, 3), (1, 1), (5, 3), (1, 7), (7, 1), (100, 33), (4, 3), (3, 0)]
    for shape in shapes:
        value = rng.normal(size=shape).astype("float32")
        for argument in (value, np.asfortranarray(value), value[:, ::-1]):
            for got, wanted in zip(f(argument), host(argument), strict=True):
                assert_close(got, wanted, 1e-4)


def test_an_argument_may_change_right_after_the_call(context, x, rng):
    f = opencl([x], [pt.exp(x).transfer(context.name)])
    value = rng.normal(size=(300, 300)).astype("float32")
    expected = np.exp(value)
    (result,) = f(value)
    value[:] = 0
    assert_close(result, expected)


def test_device_outputs_are_not_waited_for(context, x, value, monkeypatch):
    f = opencl([x], pt.exp(x).transfer(context.name))
    f(value)
    waits = []
    monkeypatch.setattr(Queue, "finish", lambda self: waits.append("finish"))
    monkeypatch.setattr(Queue, "read", lambda self, *args: waits.append("read"))
    result = f(value)
    monkeypatch.undo()
    assert waits == [] and isinstance(result, GpuArray)
    pytensor_cl.sync()
    assert_close(result, np.exp(value))


def test_results_of_the_host_are_numpy_arrays(context, x, value):
    s = pt.scalar("s", dtype="float32")
    f = opencl([x, s], [x.sum(), x.argmax(), s * 2, s + x.max(), x.shape[0], pt.constant(3.0), x, s])
    for result in f(value, 2):
        assert type(result) is np.ndarray and result.flags.writeable


def test_results_are_fresh_arrays(context, x, value):
    f = opencl([x], [pt.exp(x), x, x.T, pt.constant(np.ones(3, "float32"))])
    results = f(value)
    first = [r.copy() for r in results]
    for result in results:
        result[...] = -1
    for got, wanted in zip(f(value), first, strict=True):
        assert_close(got, wanted)
    assert_close(value, first[1])


@pytest.mark.parametrize("allow_gc", [True, False])
def test_allow_gc(context, x, value, allow_gc):
    f = pytensor.function([x], [pt.exp(x).sum(0), pt.tanh(x @ x.T)], mode=Mode(OpenCLLinker(allow_gc), "fast_run"))
    for _ in range(2):
        total, product = f(value)
    assert_close(total, np.exp(value).sum(0))
    assert_close(product, np.tanh(value @ value.T))
    inner = [v for n in f.maker.fgraph.toposort() for v in n.outputs if v not in f.maker.fgraph.outputs]
    held = [v for v in inner if f.vm.storage_map[v][0] is not None]
    assert bool(held) is not allow_gc
    f.free()
    assert_close(f(value)[0], np.exp(value).sum(0))


def test_memory_goes_back_to_the_pool(context, x, rng):
    f = opencl([x], [pt.exp(x) @ x.T, (x * 2).transfer(context.name)])
    value = rng.normal(size=(64, 64)).astype("float32")
    for _ in range(4):  # step by step, captured, replayed
        f(value)
    gc.collect()
    before = context.memory.statistics()
    for _ in range(5):
        f(value)
    gc.collect()
    after = context.memory.statistics()
    assert after.active_bytes <= before.active_bytes and after.managed_bytes <= before.managed_bytes + value.nbytes


def test_memory_of_large_results_is_pooled_while_calls_return_them(context, on_device, x):
    large, small = opencl([x], pt.exp(x)), opencl([x], x + 1)
    value, number = np.zeros((700, 700), "float32"), np.zeros((2, 2), "float32")
    for f in (small, large):
        for _ in range(4):  # captured; which frees idle buffers
            f(value if f is large else number)
    before = context.memory.statistics()
    for _ in range(WINDOW):
        large(value)
        small(number)
    assert context.memory.statistics() == before and before.held_blocks
    for _ in range((2 + context.memory.buffers.max_idle_windows) * WINDOW):
        small(number)
    assert context.memory.statistics().managed_bytes <= before.managed_bytes - value.nbytes


def test_no_inputs_no_outputs_no_nodes(context, x):
    assert opencl([], [])() == []
    assert opencl([x], [], on_unused_input="ignore")(np.zeros((2, 2), "float32")) == []
    assert_close(opencl([], pt.constant(2.5))(), np.asarray(2.5, pt.constant(2.5).dtype))
    assert not opencl([], None)()


def test_named_and_unused_inputs(context):
    x, y = pt.vector("x", dtype="float32"), pt.scalar("y", dtype="float32")
    f = opencl([x, y], [x * y, x.sum() + y])
    assert_close(f(y=2, x=np.ones(3, "float32"))[0], np.full(3, 2, "float32"))
    assert_close(f(np.ones(3, "float32"), y=3)[1], np.float32(6))
    unused = opencl([x, y], pt.exp(x), on_unused_input="ignore")
    assert_close(unused(np.zeros(3, "float32"), 1), np.ones(3, "float32"))


def test_trusted_input(context, x, value):
    f = opencl([x], pt.exp(x), trust_input=True)
    assert_close(f(value), np.exp(value))
    assert_close(f(value[::-1]), np.exp(value[::-1]))


@pytest.mark.parametrize("argument", [2.0, 2, [1.0]], ids=repr)
@pytest.mark.parametrize("output", [lambda x, s: x.sum() * s, lambda x, s: pt.exp(s), lambda x, s: pt.exp(x) * s])
def test_trusted_input_that_is_no_array(context, x, value, output, argument):
    """PyTensor's own backends raise AttributeError, too."""
    s = pt.scalar("s", dtype="float32")
    f = opencl([x, s], output(x, s), on_unused_input="ignore")
    want = f(value, np.float32(2))
    f.trust_input = True
    with pytest.raises(AttributeError, match="argument s is of class .* with trust_input=True"):
        f(value, argument)
    assert_close(f(value, np.array(2, "float32")), want)


# Host Ops inside


def test_scan(context, x, value):
    h = scan(lambda row, state: pt.tanh(row + state), sequences=[x], outputs_info=[pt.zeros(3)], return_updates=False)
    weight = pt.matrix("w", dtype="float32")
    cost = (h[-1].astype("float32") @ weight).sum() * pt.exp(x).sum()
    assert_like_host([x, weight], [cost, pt.grad(cost, x)], (value, value.T @ value), GpuCAReduce, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:The `mode` argument of `scan`:FutureWarning")
@pytest.mark.parametrize("mode", ["OPENCL", get_mode("OPENCL").excluding("fusion")], ids=["name", "object"])
def test_scan_that_is_given_our_mode(context, x, value, mode):
    """No node inside goes to the device, in a loop inside a loop neither."""

    def inner(state, row):
        return scan(lambda e, total: pt.exp(e) + total, row, state.sum(), mode=mode, return_updates=False)[-1] + state

    h = scan(lambda row, state: inner(state, row), [x], pt.zeros(3, "float32"), mode=mode, return_updates=False)
    f = opencl([x], h[-1] * pt.exp(x).sum(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "Scan runs in Python, NUMBA cannot compile it"
        got = f(value * 0.1)
    state = np.zeros(3)
    for row in value * 0.1:
        state = state + np.exp(row).sum() + state.sum()
    assert_close(got, (state * np.exp(value * 0.1).sum(0)).astype("float32"), rtol=1e-5)
    assert_on_device(f, GpuCAReduce)


@pytest.mark.filterwarnings("ignore:The `mode` argument of `scan`:FutureWarning")
@pytest.mark.parametrize("outer", ["FAST_COMPILE", pytensor.compile.mode.Mode("py", None)], ids=["fast", "plain"])
def test_scan_that_is_given_our_mode_in_a_function_of_another(context, x, value, outer):
    states = scan(lambda row: pt.exp(row), [x], mode="OPENCL", return_updates=False)
    np.testing.assert_allclose(pytensor.function([x], states, mode=outer)(value), np.exp(value), rtol=1e-6)


def test_ifelse(context, x, value):
    c = pt.scalar("c", dtype="int8")
    outputs = [ifelse(c, pt.exp(x), pt.tanh(x)), ifelse(pt.gt(x.sum(), 0), x.sum(0), x.max(0))]
    for condition in (0, 1):
        assert_like_host([x, c], outputs, (value, condition))


@pytest.mark.usefixtures("on_device")
def test_op_from_graph_is_as_stable_as_what_is_in_it(context):
    a, row = pt.fmatrix(), pt.fvector()
    exps = pt.exp(a)
    f = opencl([a], OpFromGraph([a], [exps / exps.sum(1, keepdims=True)])(a))
    big = np.array([[1000, 1001], [-1, 0]], "float32")
    assert_close(f(big), np.broadcast_to(np.array([0.26894143, 0.7310586], "float32"), (2, 2)))
    assert_all_on_device(f)
    logs = opencl([row], OpFromGraph([row], [pt.log(1 + pt.exp(row))])(row))
    assert_close(logs(big[0]), big[0])
    assert_all_on_device(logs)


def test_op_from_graph(context, x, value):
    a = pt.matrix(dtype="float32")
    op = OpFromGraph([a], [pt.exp(a) * 2, a.sum(0)])
    nested = OpFromGraph([a], [op(a)[0] + 1])
    f = assert_like_host([x], [op(x)[0], op(x)[1], nested(x), pt.grad(nested(x).sum(), x)], (value,), GpuElemwise)
    assert not any(isinstance(op, OpFromGraph) for op in host_ops(f))


def test_softmax_and_its_gradient(context, x, value):
    outputs = [softmax(x, axis=1), log_softmax(x, axis=0), pt.logsumexp(x, axis=1), softmax(x)]
    outputs += [pt.grad(softmax(x, axis=1)[:, 0].sum(), x), pt.grad(log_softmax(x, axis=1)[0, 0], x)]
    assert_like_host([x], outputs, (value,), GpuElemwise, GpuCAReduce)


def test_linear_algebra_on_both_sides(context, x, value):
    matrix = pt.dot(x.T, x) + pt.eye(3, dtype="float32")
    factor = cholesky(matrix)
    outputs = [pt.log(pt.diag(factor)).sum(), pt.linalg.inv(matrix) @ x.T, pt.linalg.solve(matrix, x.T), factor]
    outputs.append(abs(pt.linalg.qr(matrix, pivoting=True)[1]))
    f = assert_like_host([x], outputs, (value,), rtol=1e-3)
    assert any("QR" in str(op) for op in host_ops(f))
    assert any(isinstance(op, GpuDot | GpuGemm) for op in device_ops(f))


def test_random_variables(context, x, value):
    def build(mode):
        generator = pytensor.shared(np.random.default_rng(5))
        following, draw = pt.random.normal(x, 1, size=x.shape, rng=generator, dtype="float32").owner.outputs
        return pytensor.function([x], [draw, pt.exp(draw) + x], updates={generator: following}, mode=mode)

    f, host = build("OPENCL"), build("FAST_COMPILE")
    first, _ = f(value)
    host_first, _ = host(value)
    assert_close(first, host_first)
    for got, wanted in zip(f(value), host(value), strict=True):
        assert_close(got, wanted)
        assert not np.array_equal(got, first)


@pytest.mark.parametrize("allow_gc", [True, False])
def test_results_of_host_ops_are_the_callers_own(context, x, value, allow_gc):
    def rows(table):
        """A loop that computes into an array that it allocates; its result is a part of that."""
        return scan(lambda row, last: pt.tanh(last + row), [table], pt.zeros(3, "float32"), return_updates=False)

    count = pytensor.shared(np.zeros((1, 3), "float32"))
    with pytensor.config.change_flags(allow_gc=allow_gc):
        f = opencl([x], [rows(x), rows(x)[::-1].T, pt.cumsum(x, axis=0)[1:]], updates={count: rows(x)[:1]})
    kept, updated = [], []
    for k in range(6):
        kept.append(f(value + k))
        updated.append(count.get_value(borrow=True))
    copies = [[np.array(r) for r in results] for results in kept]
    for k in range(6):
        for got, wanted, earlier in zip(f(value + k), copies[k], kept[k], strict=True):
            assert_close(got, wanted)
            assert_close(earlier, wanted)
        assert_close(updated[k], copies[k][0][:1])


def test_random_generators_are_as_they_were_before_a_call_that_fails(context, x, value):
    generator, numpy = pytensor.shared(np.random.default_rng(5)), np.random.default_rng(5)
    following, draw = pt.random.normal(size=x.shape, rng=generator, dtype="float32").owner.outputs
    f = opencl([x, y := pt.fmatrix("y")], pt.exp(x + y) * host_sort(draw), updates={generator: following})
    with pytest.raises(ValueError):
        f(value, value[:1])
    for _ in range(6):  # some of them are captured
        assert_close(f(value, value), np.exp(2 * value) * np.sort(numpy.normal(size=value.shape).astype("float32")))
        with pytest.raises(ValueError):
            f(value, value[:1])


def test_host_ops_between_device_ops(context, x, value):
    ordered = host_sort(pt.exp(x), axis=0)
    outputs = [
        ordered @ ordered.T,
        host_sort(x @ x.T, axis=1),
        pt.cumsum(pt.exp(x), axis=0).sum(),
        pt.concatenate([x, pt.exp(x)]),
    ]
    outputs += [
        pt.set_subtensor(pt.exp(x)[1:], 0),
        x[pt.argmax(x, axis=0)],
        pt.where(x > 0, x, host_sort(x, axis=1)),
        pt.repeat(x, 2),
    ]
    assert_like_host([x], outputs, (value,), GpuElemwise)


def test_in_place_host_ops_do_not_touch_arguments_or_shared_values(context, value):
    x, s = pt.matrix("x", dtype="float32"), pytensor.shared(value.copy())
    outputs = [
        pt.set_subtensor(x[0], 5),
        pt.inc_subtensor(s[1], 1),
        pt.set_subtensor(pt.exp(x)[0], s[1]),
        pt.exp(s) + x,
    ]
    f = opencl([x], outputs)
    expected = on_host([x], outputs, value.copy())
    kept = value.copy()
    for _ in range(2):
        for got, wanted in zip(f(value), expected, strict=True):
            assert_close(got, wanted)
        assert_close(value, kept)
        assert_close(s.get_value(), kept)


def test_constants_of_every_kind(context, value, rng):
    x = pt.matrix("x", dtype="float32")
    w = rng.normal(size=(3, 5)).astype("float32")
    outputs = [
        x @ w,
        x * w[:, 0],
        x + np.float32(2),
        x[np.array([2, 0])],
        x > np.zeros((1, 3), "int8"),
        x.sum() * np.ones((2, 2)),
    ]
    assert_like_host([x], outputs, (value,), GpuElemwise)


# Errors


@pytest.fixture
def verbose():
    """By default PyTensor does not name the node, on any linker."""
    with pytensor.config.change_flags(exception_verbosity="high"):
        yield


def assert_names(error, op):
    """PyTensor's note on an error names a node of that Op as the cause."""
    [line] = [line for line in str(error).splitlines() if "Apply node that caused the error" in line]
    assert op in line


def test_a_failing_node_is_named_and_nothing_is_lost(context, x, value, verbose):
    s = pytensor.shared(value.copy(), name="s")
    y = pt.matrix("y", dtype="float32")
    f = opencl([x, y], pt.dot(pt.exp(x), y), updates={s: s * 2})
    for _ in range(2):
        with pytest.raises(ValueError) as caught:
            f(value, value)
        assert_names(caught.value, "GpuDot22")
    assert_close(s.get_value(), value)
    assert_close(f(value, value.T), np.exp(value) @ value.T)
    assert_close(s.get_value(), value * 2)


def test_a_failing_host_node_is_named(context, x, value, verbose):
    s = pytensor.shared(np.float32(1))
    checked = pt.basic.as_tensor(pytensor.raise_op.Assert("too large")(pt.exp(x), pt.all(x < 100)))
    f = opencl([x], checked.sum(0), updates={s: s + 1})
    with pytest.raises(AssertionError, match="too large") as caught:
        f(value + 1000)
    assert_names(caught.value, "Assert")
    assert_close(s.get_value(), np.float32(1))
    assert_close(f(value), np.exp(value).sum(0))
    assert_close(s.get_value(), np.float32(2))


def test_an_error_while_profiling_is_named_too(context, x, value, verbose):
    f = opencl([x], x @ x, profile=True)
    with pytest.raises(ValueError) as caught:
        f(value)
    assert_names(caught.value, "GpuDot22")
    f.profile = None


# Profile, copies


def test_profile(context, x, value):
    f = opencl([x], [pt.exp(x) @ x.T, host_sort(x, axis=0)], profile=True)
    for _ in range(3):
        f(value)
    profile = f.profile
    nodes = {str(node.op): seconds for (_, node), seconds in profile.apply_time.items()}
    assert any("Gpu" in name for name in nodes) and all(seconds > 0 for seconds in nodes.values())
    assert profile.fct_callcount == 3 and set(profile.apply_callcount.values()) == {3}
    assert "Gpu" in _summary(profile)


def _summary(profile):
    import io

    out = io.StringIO()
    profile.summary(file=out)
    return out.getvalue()


def test_linkers_and_functions_hold_no_handles(context, x, value):
    f = opencl([x], pt.exp(x))
    assert isinstance(pickle.loads(pickle.dumps(f.maker.linker)), OpenCLLinker)
    assert isinstance(pickle.loads(pickle.dumps(get_mode("OPENCL"))).linker, OpenCLLinker)
    again = pickle.loads(pickle.dumps(f))
    assert_close(again(value), np.exp(value))


def test_failed_call_leaves_a_shared_variable_that_a_host_op_updates_in_place(context):
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    s = pytensor.shared(np.zeros(4, "float32"), name="s")
    with pytensor.config.change_flags(opencl__placement="host"):
        f = pytensor.function([x, y], x @ y, updates={s: pt.set_subtensor(s[1], x[0, 0])}, mode="OPENCL")
    good, bad = np.ones((2, 3), "float32"), np.ones((2, 2), "float32")
    with pytest.raises(ValueError, match="mismatch|Incompatible|aligned"):
        f(good, bad)
    np.testing.assert_array_equal(s.get_value(), np.zeros(4))
    f(good, good.T)
    np.testing.assert_array_equal(s.get_value(), [0, 1, 0, 0])


def test_errors_name_their_node_without_a_flag(context):
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    f = pytensor.function([x, y], pt.exp(x) @ y, mode="OPENCL")
    ones = np.ones((2, 3), "float32")
    with pytest.raises(ValueError, match="mismatch") as caught:
        f(ones, ones)
    assert any("GpuDot22" in note and "(2, 3)" in note for note in caught.value.__notes__)


def test_uploads_are_copied_where_a_host_op_works_in_place(context, rng):
    """A borrowed array must not change before the device has read it."""
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    ordered = host_sort(x, axis=1)
    outputs = [pt.dot(ordered, y), HostSort(0, inplace=True)(ordered)]
    f = pytensor.function([x, y], outputs, mode="OPENCL", accept_inplace=True)
    value, ones = rng.uniform(0.3, 0.6, (1000, 1000)).astype("float32"), np.ones((1000, 3), "float32")
    for _ in range(5):
        np.testing.assert_allclose(f(value, ones)[0], np.sort(value, axis=1) @ ones, rtol=1e-4)


def aligned(values):
    """Copy to where every driver would use it without a copy."""
    memory = np.empty(values.nbytes + 4096, "uint8")
    start = -memory.ctypes.data % 4096
    result = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    result[...] = values
    return result


class Shifted(Op):
    """Adds a number on the host, to a new array that drivers can use where it is."""

    __props__ = ("by",)

    def __init__(self, by):
        self.by = by

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = aligned(inputs[0] + np.float32(self.by))


def slow(x):
    for _ in range(20):
        x = pt.sin(x)
    return x


def test_an_argument_that_is_read_after_the_last_wait_may_change(context, rng):
    x, z = pt.fmatrix("x"), pt.fvector("z")
    w = pytensor.shared(np.zeros((2, 2), "float32"))
    ordered = host_sort(pt.exp(z))
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([x, z], ordered, updates={w: slow(x) + ordered})
    value, row = aligned(rng.normal(size=(1000, 1000)).astype("float32")), rng.normal(size=1000).astype("float32")
    expected = pytensor.function([x], slow(x))(value) + np.sort(np.exp(row))
    for _ in range(5):
        argument = aligned(value)
        f(argument, row)
        argument[...] = 1000
        np.testing.assert_allclose(w.get_value(), expected, rtol=1e-4, atol=1e-5)


def test_results_of_the_host_are_kept_until_kernels_have_read_them(context, rng):
    x = pt.fvector("x")
    first = slow(Shifted(1)(x))
    outputs = [first.sum(), Shifted(7)(x).sum()]
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([x], outputs)
    value = rng.normal(size=1 << 21).astype("float32")
    expected = pytensor.function([x], outputs[0])(value)
    for _ in range(5):
        np.testing.assert_allclose(f(value)[0], expected, rtol=1e-3)


def test_a_host_op_in_place_leaves_what_kernels_read_later(context, rng):
    x = pt.fmatrix("x")
    m = x @ x.T + pt.diag(pt.arange(5, 205, dtype="float32"))
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([x], abs(pt.linalg.qr(m, mode="r", pivoting=True)[0]) + m * 2)
    assert any(n.op.destroy_map for n in f.maker.fgraph.apply_nodes)
    value = rng.uniform(0, 0.05, (200, 200)).astype("float32")
    product = value @ value.T + np.diag(np.arange(5, 205))
    expected = np.abs(scipy.linalg.qr(product, mode="r", pivoting=True)[0]) + product * 2
    for _ in range(5):
        np.testing.assert_allclose(f(value), expected, rtol=1e-4, atol=1e-4)


def test_a_branch_that_is_its_argument_is_a_copy_of_it(context, rng):
    x, c = pt.fvector("x"), pt.bscalar("c")
    w = pytensor.shared(np.zeros(2, "float32"))
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([x, c], pt.exp(x).sum(), updates={w: ifelse(c, x, pt.cumsum(pt.exp(x)))})
    value = rng.normal(size=100_000).astype("float32")
    for _ in range(5):
        argument = aligned(value)
        f(argument, 1)
        argument[...] = 1000
        np.testing.assert_array_equal(w.get_value(), value)


def test_uploads_are_finished_when_the_only_download_is_empty(context):
    x = pt.fvector("x")
    f = pytensor.function([x], [pt.exp(x * 0.5).transfer(context.name), pt.exp(x)[0:0] * 2], mode="OPENCL")
    for _ in range(5):
        value = np.ones(1_000_000, "float32")
        result, _ = f(value)
        value[:] = 0
        np.testing.assert_allclose(np.asarray(result), np.exp(0.5), rtol=1e-5)
