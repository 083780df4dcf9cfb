"""Scan: loops run on the device, whatever kind of sequences, states and results they have."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.configdefaults import config
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.op import Scan
from pytensor.scan.utils import until

import pytensor_cl
from pytensor_cl.ops import scan_loop
from pytensor_cl.ops.scan import GpuScan
from tests.helpers import assert_close, assert_on_device, device_ops, host_ops, opencl, skip_without_double

STEPS, ROWS, COLUMNS = 7, 3, 5
x, h = pt.ftensor3("x"), pt.fmatrix("h")
w = pt.fmatrix("w")


@pytest.fixture(autouse=True)
def on_device(monkeypatch):
    """Loops of single numbers stay on the host, or become one kernel, otherwise."""
    monkeypatch.setattr(scan_loop, "known_program", lambda *_: "no kernel of the whole loop")
    with config.change_flags(opencl__placement="device"):
        yield


@pytest.fixture
def data(rng):
    """Values of the sequence, the state and the weights."""
    shapes = (STEPS, ROWS, COLUMNS), (ROWS, COLUMNS), (COLUMNS, COLUMNS)
    return [rng.normal(size=shape).astype("float32") / 2 for shape in shapes]


def scan(function, **options):
    """Return the results of `pytensor.scan` without updates."""
    return pytensor.scan(function, return_updates=False, **options)


def check(inputs, outputs, *arguments, calls=5, rtol=2e-5):
    """A function runs its loops on the device and agrees with PyTensor's Python Ops, in replays too."""
    f = opencl(inputs, outputs)
    skip_without_double(f)
    assert_on_device(f, GpuScan)
    assert not any(isinstance(op, Scan) for op in host_ops(f))
    host = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    wanted = host(*arguments)
    for _ in range(calls):
        for got, expected in zip(f(*arguments), wanted, strict=True):
            assert_close(got, expected, rtol=rtol)
    return f


def rnn(states=None):
    """Return the states of a recurrent layer."""
    return scan(lambda xt, ht, w: pt.tanh(xt + ht @ w), sequences=[x], outputs_info=[h], non_sequences=[w])


def kernels(f):
    """Number of kernels in a replay of the only captured graph."""
    (captured,) = f.vm.executor.graphs.values()
    return captured.kernels


# Buffers


def test_buffers_without_values_are_not_copied(context, data):
    """One kernel writes the first state to the buffer of all states."""
    assert kernels(check([x, h, w], [rnn()], *data)) == STEPS + 1


def test_a_matrix_of_all_steps_is_copied_once(context, data):
    """The rows of a transposed matrix are not contiguous."""
    states = scan(lambda xt, ht, w: pt.tanh(xt + ht @ w), sequences=[x], outputs_info=[h], non_sequences=[w.T])
    assert kernels(check([x, h, w], [states], *data)) == STEPS + 2
    one = scan(lambda ht, w: ht @ w, outputs_info=[h], non_sequences=[w.T], n_steps=2)
    assert kernels(check([h, w], [one], *data[1:])) == 2 + 1


def test_states_with_the_same_start(context, data):
    """Two loops, or two states of a loop, begin in one buffer, which neither may overwrite."""
    first = scan(lambda ht: ht * 2 + 1, outputs_info=[h], n_steps=4)
    second = scan(lambda ht, w: ht @ w, outputs_info=[h], non_sequences=[w], n_steps=4)
    longer = scan(lambda ht, w: ht - w[:ROWS], outputs_info=[h], non_sequences=[w], n_steps=5)
    check([h, w], [first, second, longer], *data[1:])


def test_a_gradient_of_a_state_that_is_read_again(context, data):
    states = rnn()
    gradients = pytensor.grad((states**2).sum() + states[-1].sum(), [x, h, w])
    check([x, h, w], [states, *gradients], *data, rtol=1e-4)


# Kinds of states and results


def test_sequence_and_state(context, data):
    f = check([x, h, w], [rnn()], *data)
    assert f.vm.executor.replay_count


def test_the_last_state_alone(context, data):
    check([x, h, w], [rnn()[-1]], *data)


def test_results_without_a_state(context, data):
    check([x, w], [scan(lambda xt, w: (xt @ w) @ xt.T, sequences=[x], non_sequences=[w])], data[0], data[2])


def test_results_that_are_inputs(context, data):
    """A shift register, the sequence itself, and a constant."""

    def step(xt, first, second):
        return xt + first, first, xt, pt.ones((2,), "float32")

    outputs = scan(step, sequences=[x], outputs_info=[h, h * 2, None, None])
    check([x, h], [v[-3:] for v in outputs], *data[:2])


def test_two_states_that_change_places(context, data):
    check([h], scan(lambda a, b: (b, a + 1), outputs_info=[h, h * 2], n_steps=STEPS), data[1])


@pytest.mark.parametrize("taps", [[-2, -1], [-3, -1], [-4]])
@pytest.mark.parametrize("part", [slice(None), slice(-1, None), slice(-2, None)])
def test_states_with_taps(context, data, taps, part):
    initial = pt.ftensor3("initial")
    states = scan(
        lambda xt, *older: xt + sum(older) * 0.5, sequences=[x], outputs_info=[{"initial": initial, "taps": taps}]
    )
    check([x, initial], [states[part]], data[0], data[0][: -min(taps)])


def test_sequences_with_taps(context, data):
    states = scan(
        lambda before, now, after, ht: before * now - after + ht,
        sequences=[{"input": x, "taps": [-1, 0, 1]}],
        outputs_info=[h],
    )
    check([x, h], [states], *data[:2])


def test_truncated_traces(context, data):
    """Buffers shorter than the number of steps are written more than once around."""
    for kept in (1, 2, 3, STEPS - 1):
        check([x, h, w], [rnn()[-kept:]], *data, calls=2)


def test_backwards(context, data):
    check([x, h], [scan(lambda xt, ht: xt + ht * 2, sequences=[x], outputs_info=[h], go_backwards=True)], *data[:2])


def last_first(f):
    """Return how many results the loops of a function store backwards."""
    return sum(len(op.last_first) for op in device_ops(f) if isinstance(op, GpuScan))


def test_results_that_are_read_backwards(context, data):
    """The loop stores them backwards; whoever reads them forwards gets a view."""
    squares, states = scan(lambda xt, ht: (xt * ht, xt - ht), sequences=[x], outputs_info=[None, h], go_backwards=True)
    f = check([x, h], [squares[::-1], states], *data[:2])
    assert last_first(f) == 1
    assert f(data[0][:0], data[1])[0].shape[0] == 0
    assert last_first(check([x, h], [squares[::-1] + 1, squares[::-1].sum(axis=1), squares - 2], *data[:2])) == 1
    for others in ([squares, states[::-1]], [squares[::-2]], [squares[::-1, 0]], [squares[3::-1]]):
        assert last_first(check([x, h], others, *data[:2])) == 0
    gradient = pytensor.grad((rnn() ** 2).sum(), x)
    assert last_first(check([x, h, w], [gradient], *data, rtol=1e-4)) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool", "uint8"])
def test_dtypes(context, rng, dtype):
    sequence, state = pt.matrix("sequence", dtype=dtype), pt.vector("state", dtype=dtype)
    combine = (lambda a, b: a ^ b) if dtype == "bool" else (lambda a, b: a + b * b)
    states = scan(combine, sequences=[sequence], outputs_info=[state])
    check([sequence, state], [states], rng.integers(0, 2, (4, 3)).astype(dtype), rng.integers(0, 2, 3).astype(dtype))


def test_single_numbers(context, rng):
    v, s = pt.fvector("v"), pt.fscalar("s")
    states = scan(lambda vt, st, s: vt + st * s, sequences=[v], outputs_info=[pt.zeros((), "float32")], non_sequences=s)
    check([v, s], [states], rng.normal(size=6).astype("float32"), np.float32(0.5))


def test_new_numbers_do_not_make_new_graphs(context, rng):
    v, s = pt.fvector("v"), pt.fscalar("s")
    states = scan(lambda vt, st, s: vt + st * s, sequences=[v], outputs_info=[pt.zeros((), "float32")], non_sequences=s)
    f = opencl([v, s], states)
    values = rng.normal(size=6).astype("float32")
    for k in range(6):
        f(values, np.float32(k))
    assert len(f.vm.executor.graphs) == 1


# Numbers of steps


def test_no_steps(context, data):
    f = opencl([x, h, w], rnn())
    assert_on_device(f, GpuScan)
    n = pt.lscalar("n")
    states = scan(lambda ht, w: pt.tanh(ht @ w), outputs_info=[h], non_sequences=[w], n_steps=n)
    g, host = opencl([h, w, n], states), pytensor.function([h, w, n], states, mode="FAST_COMPILE")
    for count in (3, 0, 1, 0):
        assert_close(g(*data[1:], count), host(*data[1:], count))


def test_a_number_of_steps_that_differs(context, data):
    n = pt.lscalar("n")
    states = scan(lambda ht, w: pt.tanh(ht @ w), outputs_info=[h], non_sequences=[w], n_steps=n)
    f, host = opencl([h, w, n], states), pytensor.function([h, w, n], states, mode="FAST_COMPILE")
    assert_on_device(f, GpuScan)
    for count in (2, 5, 2, 2, 2, 5, 5, 9):
        assert_close(f(*data[1:], count), host(*data[1:], count))


def test_a_sequence_that_is_too_short(context, data):
    n = pt.lscalar("n")
    states = scan(lambda xt, ht: xt + ht, sequences=[x], outputs_info=[h], n_steps=n)
    f = opencl([x, h, n], states)
    assert_on_device(f, GpuScan)
    with pytest.raises(ValueError, match="required number of steps"):
        f(*data[:2], STEPS + 1)
    assert_close(f(*data[:2], STEPS)[-1], data[0].sum(0) + data[1])


# Conditions


def test_while(context, data):
    limit = pt.fscalar("limit")

    def step(xt, ht, limit):
        new = pt.abs(xt) + ht
        return new, until(new.sum() > limit)

    states = scan(step, sequences=[x], outputs_info=[pt.zeros_like(h)], non_sequences=[limit])
    outputs = [states, states[-1], states.shape[0]]
    f = opencl([x, h, limit], outputs)
    assert_on_device(f, GpuScan)
    host = pytensor.function([x, h, limit], outputs, mode="FAST_COMPILE")
    for value in (1, 20, 1e6, 20, 20, 20):
        for got, wanted in zip(f(*data[:2], value), host(*data[:2], value), strict=True):
            assert_close(got, wanted)


def test_while_with_only_a_result(context, data):
    outputs = scan(lambda xt: (xt * 2, until(xt.sum() > 1e9)), sequences=[x])
    check([x], [outputs], data[0])


# Values of the host


def test_indices_that_are_states(context, data):
    """A counter that is an index stays on the host."""
    states = scan(
        lambda k, ht, x: (k + 1, ht + x[k]), outputs_info=[pt.zeros((), "int64"), h], non_sequences=[x], n_steps=STEPS
    )
    check([x, h], list(states), *data[:2])


def test_indices_that_are_sequences(context, data):
    states = scan(
        lambda k, ht, x: ht * 0.5 + x[k] * (k + 1.0).astype("float32"),
        sequences=[pt.arange(x.shape[0])],
        outputs_info=[h],
        non_sequences=[x],
    )
    check([x, h], [states], *data[:2])


def test_random_numbers(context):
    """The generator is a state without a trace; draws are those of the CPU backends."""
    rng = pytensor.shared(np.random.default_rng(7))

    def step(state, generator):
        next_generator, draws = pt.random.normal(size=(4,), rng=generator).owner.outputs
        return state + draws, next_generator

    state, last = scan(step, outputs_info=[pt.zeros((4,)), rng], n_steps=5)
    f = opencl([], state, updates={rng: last})
    skip_without_double(f)
    assert_on_device(f, GpuScan)
    generator = np.random.default_rng(7)
    for _ in range(4):
        assert_close(f(), np.cumsum(generator.normal(size=(5, 4)), axis=0), rtol=1e-12)


def test_shared_variables(context, data):
    weights = pytensor.shared(data[2])
    states = scan(lambda xt, ht, w: pt.tanh(xt + ht @ w), sequences=[x], outputs_info=[h], non_sequences=[weights])
    f = opencl([x, h], states[-1], updates={weights: weights * 0.5})
    g = pytensor.function([x, h, w], rnn()[-1], mode="FAST_COMPILE")
    assert_on_device(f, GpuScan)
    for k in range(5):
        assert_close(f(*data[:2]), g(*data[:2], data[2] * 0.5**k))


# Derivatives, nested loops and batches


def test_gradients(context, data):
    cost = (rnn() ** 2).sum()
    check([x, h, w], pytensor.grad(cost, [x, h, w]), *data, rtol=1e-4)


def test_gradients_of_taps(context, data):
    initial = pt.ftensor3("initial")
    states = scan(
        lambda xt, a, b, w: pt.tanh(xt + a @ w - b),
        sequences=[x],
        outputs_info=[{"initial": initial, "taps": [-2, -1]}],
        non_sequences=[w],
    )
    cost = (states[-1] ** 2).sum() + states[2].sum()
    check([x, initial, w], pytensor.grad(cost, [x, initial, w]), data[0], data[0][:2], data[2], rtol=1e-4)


def test_truncated_gradients(context, data):
    states = scan(
        lambda xt, ht, w: pt.tanh(xt + ht @ w),
        sequences=[x],
        outputs_info=[h],
        non_sequences=[w],
        truncate_gradient=3,
    )
    check([x, h, w], pytensor.grad(states.sum(), [x, h, w]), *data, rtol=1e-4)


def test_jacobian_and_hessian(context, rng):
    v, m = pt.dvector("v"), pt.dmatrix("m")
    states = scan(lambda s, m: pt.tanh(m @ s), outputs_info=[v], non_sequences=[m], n_steps=3)
    values = rng.normal(size=4), rng.normal(size=(4, 4))
    check([v, m], [pytensor.gradient.jacobian(states[-1], v)], *values, rtol=1e-10)
    check([v, m], [pytensor.gradient.hessian((states[-1] ** 2).sum(), v)], *values, rtol=1e-9)


def test_nested(context, data):
    def outer(xt, ht, w):
        inner = scan(lambda a, w: pt.tanh(a @ w), outputs_info=[xt + ht], non_sequences=[w], n_steps=3)
        return inner[-1] + inner[0]

    states = scan(outer, sequences=[x], outputs_info=[h], non_sequences=[w])
    f = check([x, h, w], [states], *data)
    assert f.vm.executor.replay_count
    check([x, h, w], pytensor.grad((states**2).sum(), [x, h, w]), *data, rtol=1e-4, calls=2)


def test_vectorized(context, data):
    batch = np.stack([data[1], data[1] * 2])
    hs = pt.ftensor3("hs")
    (states,) = vectorize_graph([rnn()], {h: hs})
    f = opencl([x, hs, w], states)
    assert_on_device(f, GpuScan)
    host = pytensor.function([x, h, w], rnn(), mode="FAST_COMPILE")
    wanted = np.stack([host(data[0], one, data[2]) for one in batch])
    for _ in range(4):
        assert_close(f(data[0], batch, data[2]), wanted)


def test_vectorized_gradients(context, data):
    """One loop computes the gradients of all batches; weights and the sequence are those of all."""
    cost = (rnn() ** 2).sum()
    batch = np.stack([data[1], data[1] * 2, -data[1]])
    hs = pt.ftensor3("hs")
    outputs = vectorize_graph(pytensor.grad(cost, [h, w]), {h: hs})
    f = opencl([x, hs, w], outputs)
    assert_on_device(f, GpuScan)
    host = pytensor.function([x, h, w], pytensor.grad(cost, [h, w]), mode="FAST_COMPILE")
    wanted = [host(data[0], one, data[2]) for one in batch]
    for _ in range(4):
        for k, got in enumerate(f(data[0], batch, data[2])):
            assert_close(got, np.stack([values[k] for values in wanted]), rtol=1e-4)


def test_vectorized_sequences_and_results(context, data):
    """A batch of sequences; a result that is the same for all batches."""
    states = scan(lambda xt, ht: (ht + xt, pt.zeros_like(xt[0]) + 1), sequences=[x], outputs_info=[h, None])
    xs = pt.tensor4("xs", dtype="float32")
    outputs = vectorize_graph(list(states), {x: xs})
    f = opencl([xs, h], outputs)
    host = pytensor.function([x, h], states, mode="FAST_COMPILE")
    batch = np.stack([data[0], data[0] * 2])
    wanted = [host(one, data[1]) for one in batch]
    for _ in range(4):
        for k, got in enumerate(f(batch, data[1])):
            assert_close(got, np.stack([values[k] for values in wanted]))


def test_products_of_all_steps_are_one_product(context, data):
    """The product of the inputs of a recurrent layer, and the gradients of its weights, are outside of the loop."""
    u = pt.fmatrix("u")
    states = scan(lambda xt, ht, w, u: pt.tanh(xt @ u + ht @ w), sequences=[x], outputs_info=[h], non_sequences=[w, u])
    arguments = *data, data[2] * 0.5
    f = check([x, h, w, u], [states], *arguments)
    (loop,) = (n for n in pytensor_cl.explain(f).device_nodes if isinstance(n.op, GpuScan))
    assert str(loop.op).count("Gemm") + str(loop.op).count("Dot") == 1
    g = check([x, h, w, u], pytensor.grad((states**2).sum(), [h, w, u]), *arguments, rtol=1e-4)
    loops = [n.op for n in pytensor_cl.explain(g).device_nodes if isinstance(n.op, GpuScan)]
    assert [str(op).count("Gemm") + str(op).count("Dot") for op in loops] == [1, 1]


# Errors, and reports


def test_errors_of_a_step(context, data):
    """An index that is out of bounds, found by a kernel; shapes that do not fit, found by the host."""
    k = pt.lmatrix("k")
    picked = scan(lambda kt, h: h[kt], sequences=[k], non_sequences=[h])
    f = opencl([k, h], picked)
    assert_on_device(f, GpuScan)
    good, bad = np.array([[0, 1], [2, 0]]), np.array([[0, 1], [3, 0]])
    for _ in range(4):
        assert_close(f(good, data[1]), data[1][good])
        with pytest.raises(IndexError):
            f(bad, data[1])
    g = opencl([x, h, w], rnn())
    with pytest.raises(ValueError):
        g(*data[:2], data[2][:-1])


def test_a_state_that_changes_its_shape(context, data):
    v = pt.fvector("v")
    f = opencl([v], scan(lambda s: pt.concatenate([s, s]), outputs_info=[v], n_steps=3))
    with pytest.raises(ValueError):
        f(np.ones(2, "float32"))


def test_explain_looks_into_the_steps(context, data):
    f = opencl([x, h, w], rnn())
    report = pytensor_cl.explain(f)
    assert {n.place for n in report.inner_nodes} == {report.device_nodes[0].context}
    assert "tanh" in " ".join(str(n.op) for n in report.inner_nodes)
    assert "loop 1" in str(report) and "why it is not one kernel" in str(report)
    k = pt.lvector("k")
    g = opencl([k, x], scan(lambda kt, x: x[kt] * 2, sequences=[k], non_sequences=[x]))
    on_host = [n.reason for n in pytensor_cl.explain(g).inner_nodes if n.place == "host"]
    assert all(on_host)


def test_loops_of_single_numbers_stay_on_the_host_in_auto(context, rng):
    v = pt.fvector("v")
    states = scan(lambda vt, st: vt + st * 0.5, sequences=[v], outputs_info=[pt.zeros((), "float32")])
    with config.change_flags(opencl__placement="auto"):
        f = opencl([v], states)
        reasons = [n.reason for n in pytensor_cl.explain(f).host_nodes if isinstance(n.op, Scan)]
    assert reasons in ([], ["each step computes with single numbers, which NUMBA's compiled loop does faster"])
    values = rng.normal(size=5).astype("float32")
    assert_close(f(values), pytensor.function([v], states, mode="FAST_COMPILE")(values))
