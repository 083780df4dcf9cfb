"""Loops over time in one kernel: values, gradients and batches against PyTensor's CPU backend, on both schedules."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scan.op import Scan
from pytensor.scan.utils import until

from pytensor_cl.ops.scan_loop import GpuScanLoop
from pytensor_cl.runtime.device import DeviceInfo
from tests.helpers import assert_close, device_ops, opencl

STEPS = 23


@pytest.fixture(autouse=True)
def _forced_schedule(schedule, monkeypatch):
    monkeypatch.setattr(DeviceInfo, "schedule", property(lambda self: schedule))


def scan(step, **options):
    """A scan without updates."""
    return pytensor.scan(step, return_updates=False, **options)


def loops(f):
    """Return how many loops of a function are one kernel each; no other Scan is left."""
    left = [node.op for node in f.maker.fgraph.apply_nodes]
    assert not any(isinstance(getattr(op, "core_op", op), Scan) for op in left)
    return sum(isinstance(op, GpuScanLoop) for op in device_ops(f))


def check(inputs, outputs, values, count):
    """Values agree with PyTensor's Python Ops, step by step and replayed, and loops were one kernel each (None: any number)."""
    f = opencl(inputs, outputs)
    assert loops(f) >= 1 if count is None else loops(f) == count
    host = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    wanted = host(*values)
    for _ in range(5):
        for got, expected in zip(f(*values), wanted, strict=True):
            assert_close(got, expected)
    return f


def check_with_gradient(inputs, logp, values, count=2):
    """Check a log density with its gradient, alone and for a batch of parameters, which are the 0-d inputs."""
    is_parameter = [v.type.ndim == 0 or v.type.shape[0] is not None for v in inputs]
    parameters = [v for v, chosen in zip(inputs, is_parameter, strict=True) if chosen]
    outputs = [logp, *pt.grad(logp, parameters)]
    check(inputs, outputs, values, count)
    for size in (2, 19):
        batch = [pt.tensor(dtype=v.dtype, shape=(None, *v.type.shape)) for v in parameters]
        batched = vectorize_graph(outputs, dict(zip(parameters, batch, strict=True)))
        others = [v for v, chosen in zip(inputs, is_parameter, strict=True) if not chosen]
        scales = [np.linspace(0.8, 1, size).reshape((-1,) + (1,) * v.type.ndim).astype(v.dtype) for v in parameters]
        f = opencl([*others, *batch], batched)
        assert loops(f) == count
        alone = opencl(inputs, outputs)
        given = dict(zip(inputs, values, strict=True))
        many = [given[v] * scale for v, scale in zip(parameters, scales, strict=True)]
        got = f(*(given[v] for v in others), *many)
        for member in range(size):
            chosen = dict(zip(parameters, (value[member] for value in many), strict=True))
            wanted = alone(*(chosen.get(v, given[v]) for v in inputs))
            for result, expected in zip(got, wanted, strict=True):
                assert_close(result[member], expected)


def floating(dtype, *names):
    """Scalars of a dtype."""
    return [pt.scalar(name, dtype=dtype) for name in names]


def test_indices_that_differ_from_step_to_step(context, rng):
    """A learner's values of actions; indices are sequences, negative ones too, the same in all steps, or an argmax."""
    start, table = pt.vector("start", dtype="float32", shape=(3,)), pt.matrix("table", dtype="float32", shape=(3, 4))
    (rate,) = floating("float32", "rate")
    i, j, k = pt.lvector("i"), pt.bvector("j"), pt.lscalar("k")

    def step(i, j, values, table, rate, k):
        values = pt.set_subtensor(values[i], values[i] + rate * (table[i, j] - values[i]))
        values = pt.inc_subtensor(values[pt.argmax(values)], table[1, j])
        return (values * np.float32(0.9) + table[:, j] + table[k, -1]) / 2

    states = scan(step, sequences=[i, j], outputs_info=[start], non_sequences=[table, rate, k])
    cost = (states**2).sum()
    inputs, parameters = [start, table, rate, i, j, k], [start, table, rate]
    steps = rng.integers(-3, 3, STEPS), rng.integers(-4, 4, STEPS).astype("int8"), 2
    values = [rng.normal(size=3).astype("float32"), rng.normal(size=(3, 4)).astype("float32"), np.float32(0.3), *steps]
    f = check(inputs, [states, *pt.grad(cost, parameters)], values, 2)
    for position, wrong in ((3, 3), (3, -4), (4, 4)):
        bad = [np.array(v) for v in values]
        bad[position][-1] = wrong
        with pytest.raises(IndexError, match="out of bounds"):
            f(*bad)
    rates, actions = pt.vector(dtype="float32"), pt.lmatrix()
    many = opencl([start, table, rates, actions, j, k], vectorize_graph(cost, {rate: rates, i: actions}))
    assert loops(many) == 1
    choices = rng.integers(0, 3, (5, STEPS))
    alone = pytensor.function(inputs, cost, mode="FAST_COMPILE")
    given = np.linspace(0.1, 0.5, 5, dtype="float32")
    wanted = [alone(*values[:2], r, c, *values[4:]) for r, c in zip(given, choices, strict=True)]
    assert_close(many(*values[:2], given, choices, *values[4:]), np.array(wanted))


def test_a_state_that_moves_on_by_one(context, rng):
    """Holt and Winters: the gradient divides the seasons at a length that the graph computes."""
    seasons = pt.vector("seasons", dtype="float32", shape=(3,))
    y, (rate,) = pt.fvector("y"), floating("float32", "rate")

    def step(y, level, seasons, rate):
        new = rate * (y - seasons[0]) + (1 - rate) * level
        return new, pt.concatenate([seasons[1:], (y - new)[None]]), level + seasons[0]

    outputs = [pt.constant(np.float32(0)), seasons, None]
    *_, forecast = scan(step, sequences=[y], outputs_info=outputs, non_sequences=[rate])
    cost = ((y - forecast) ** 2).sum()
    values = [rng.normal(size=STEPS).astype("float32"), rng.normal(size=3).astype("float32"), np.float32(0.3)]
    check([y, seasons, rate], [cost, *pt.grad(cost, [seasons, rate])], values, 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_autoregression(context, rng, dtype):
    noise = pt.vector("noise", dtype=dtype)
    a, b, start = floating(dtype, "a", "b", "start")
    x = scan(
        lambda e, before, last, a, b: a * last + b * before + e,
        sequences=[noise],
        outputs_info=[{"initial": pt.stack([start, start * 2]), "taps": [-2, -1]}],
        non_sequences=[a, b],
    )
    values = rng.normal(size=STEPS).astype(dtype), *np.array([0.5, -0.2, 0.3], dtype)
    check_with_gradient([noise, a, b, start], -pt.sqr(x).sum() / 2, values)


def test_garch(context, rng):
    y = pt.dvector("y")
    omega, alpha, beta, first = floating("float64", "omega", "alpha", "beta", "first")
    variance = scan(
        lambda before, v, omega, alpha, beta: omega + alpha * before**2 + beta * v,
        sequences=[y[:-1]],
        outputs_info=[first],
        non_sequences=[omega, alpha, beta],
    )
    variance = pt.concatenate([first[None], variance])
    logp = (-pt.log(variance) / 2 - y**2 / variance / 2).sum()
    check_with_gradient([y, omega, alpha, beta, first], logp, (rng.normal(size=STEPS), 0.2, 0.3, 0.4, 0.5))


def test_stochastic_volatility(context, rng):
    y, innovations = pt.dvector("y"), pt.dvector("innovations")
    mean, persistence, scale = floating("float64", "mean", "persistence", "scale")
    h = scan(
        lambda e, h, mean, persistence, scale: mean + persistence * (h - mean) + scale * e,
        sequences=[innovations],
        outputs_info=[mean],
        non_sequences=[mean, persistence, scale],
    )
    logp = (-h / 2 - pt.sqr(y) * pt.exp(-h) / 2).sum()
    values = rng.normal(size=STEPS), rng.normal(size=STEPS), -0.5, 0.9, 0.3
    check_with_gradient([y, innovations, mean, persistence, scale], logp, values)


def test_logistic_map_keeps_the_last_values_only(context, rng):
    """The trace is as long as what is used of it."""
    r, start, steps = pt.dscalar("r"), pt.dvector("start"), pt.lscalar("steps")
    x = scan(lambda x, r: r * x * (1 - x), outputs_info=[start], non_sequences=[r], n_steps=steps)
    f = check([r, start, steps], [x[-1]], (3.3, rng.random(21), 17), 1)
    assert_close(f(3.3, [0.3], 1), [[3.3 * 0.3 * 0.7]])
    check([r, start, steps], [x[-3:]], (3.3, rng.random(5), 17), 1)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32", "bool"])
def test_cumulative_forms_of_integers(context, rng, dtype):
    x, start = pt.vector("x", dtype=dtype), pt.scalar("start", dtype=dtype)
    operation = {"bool": pt.bitwise_xor}.get(dtype, lambda a, b: a * 3 + b)
    total = scan(lambda e, s: pt.cast(operation(s, e), dtype), sequences=[x], outputs_info=[start])
    check([x, start], [total, total[-1]], (rng.integers(0, 2, STEPS).astype(dtype), np.dtype(dtype).type(1)), 1)


@pytest.mark.parametrize("lengths", [(19, 19, 19), (19, 19, 7), (7, 19, 1)])
def test_independent_axes_of_equal_length_are_one(context, rng, lengths):
    """The work of states that do not depend on each other is the sum of their lengths, not the product."""
    x, y, z = pt.dmatrices("x", "y", "z")
    states = scan(
        lambda x, y, z, a, b, c: [x + a / 2, y - b / 3, z * c],
        sequences=[x, y, z],
        outputs_info=[x[0], y[0], z[0]],
    )
    cost = sum(pt.sqr(state).sum() for state in states)
    values = [rng.normal(size=(STEPS, n)) for n in lengths]
    f = check([x, y, z], [*states, *pt.grad(cost, [x, y, z])], values, 2)
    nodes = [node for node in f.maker.fgraph.apply_nodes if isinstance(node.op, GpuScanLoop)]
    routines = [node.op.routine(node, context) for node in nodes]
    # Axes of each state come in the order of the states.
    merged = [sorted(r.merged_axes(dict(enumerate(lengths))).values()) for r in routines if r.program.axes == 3]
    assert merged
    assert all(found == sorted(set(lengths)) for found in merged)


def test_outputs_that_are_not_states(context, rng):
    x, s = pt.dvector("x"), pt.dscalar("s")

    def step(e, last):
        new = pt.tanh(last + e)
        return new, pt.gt(new, 0), pt.switch(new > e, new, e)

    outputs = scan(step, sequences=[x], outputs_info=[s, None, None])
    check([x, s], [*outputs, outputs[2][-3:]], (rng.normal(size=STEPS), 0.1), 1)


def test_no_steps(context):
    x, s = pt.dvector("x"), pt.dscalar("s")
    total = scan(lambda e, total: total * 0.5 + e, sequences=[x], outputs_info=[s])
    f = check([x, s], [total, pt.grad(total.sum() + s, s)], (np.zeros(0), 1.0), None)
    assert f(np.ones(3), 1.0)[0].shape == (3,)


def test_a_loop_whose_steps_are_rows(context, rng):
    """Every dimension of a step is shared out to work-items and lanes."""
    x, w, s = pt.dmatrix("x"), pt.dvector("w"), pt.dvector("s")
    out = scan(lambda e, h, w: pt.tanh(e + w * h), sequences=[x], outputs_info=[s], non_sequences=[w])
    for n in (1, 3, 40):
        values = rng.normal(size=(STEPS, n)), rng.normal(size=n), rng.normal(size=n)
        outputs = [out, pt.grad(out.sum(), w), pt.grad(pt.sqr(out).sum(), s)]
        check([x, w, s], outputs, values, None)


def test_two_dimensions_of_which_a_sequence_has_one(context, rng):
    """A sequence for each row, the same for all columns."""
    x, s = pt.tensor("x", dtype="float64", shape=(None, None, 1)), pt.dmatrix("s")
    out = scan(lambda e, h: pt.sin(h) + e, sequences=[x], outputs_info=[s])
    check([x, s], [out, out[-1]], (rng.normal(size=(STEPS, 4, 1)), rng.normal(size=(4, 21))), 1)
    check([x, s], [out, out[-1]], (rng.normal(size=(STEPS, 21, 1)), rng.normal(size=(21, 4))), 1)


def test_a_batch_without_members(context):
    x, s = pt.dvector("x"), pt.dscalar("s")
    total = scan(lambda e, total: total * 0.5 + e, sequences=[x], outputs_info=[s])
    batch = pt.dvector("batch")
    (many,) = vectorize_graph([total], {s: batch})
    f = opencl([x, batch], many)
    assert loops(f) == 1
    assert f(np.ones(3), np.zeros(0)).shape == (0, 3)
    assert_close(f(np.ones(3), np.zeros(2)), [[1, 1.5, 1.75]] * 2)


def test_hidden_markov_model(context, rng):
    states = 3
    emissions = pt.dmatrix("emissions")
    transition = pt.tensor("transition", dtype="float64", shape=(states, states))
    first = pt.tensor("first", dtype="float64", shape=(states,))
    alpha = scan(
        lambda e, alpha, transition: e + pt.logsumexp(alpha[:, None] + transition, axis=0),
        sequences=[pt.specify_shape(emissions, (None, states))],
        outputs_info=[first],
        non_sequences=[transition],
    )
    values = (
        -rng.random((STEPS, states)),
        np.log(rng.dirichlet(np.ones(states), states)),
        np.log(rng.dirichlet(np.ones(states))),
    )
    check_with_gradient([emissions, transition, first], pt.log(pt.exp(alpha[-1]).sum()), values)


def test_viterbi(context, rng):
    """Argmax, maximum and an output of integers."""
    emissions = pt.tensor("emissions", dtype="float64", shape=(None, 4))
    transition = pt.tensor("transition", dtype="float64", shape=(4, 4))

    def step(e, best, transition):
        scores = best[:, None] + transition
        return e + scores.max(axis=0), pt.argmax(scores, axis=0)

    best, back = scan(step, sequences=[emissions], outputs_info=[pt.zeros(4), None], non_sequences=[transition])
    check([emissions, transition], [best, back], (rng.normal(size=(STEPS, 4)), rng.normal(size=(4, 4))), 1)


def kalman(y, transition, noise, scale):
    """Log density of a state-space model of two states of which one is observed."""
    observed = np.array([1.0, 0.0])

    def step(y, mean, covariance, transition, noise, scale):
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + noise
        error = y - observed @ mean
        variance = observed @ covariance @ observed + scale
        gain = covariance @ observed / variance
        logp = -(pt.log(variance) + error**2 / variance) / 2
        covariance = covariance - gain[:, None] * (observed @ covariance)[None, :]
        return mean + gain * error, covariance, logp

    states = [pt.zeros(2), pt.eye(2), None]
    _, _, logp = scan(step, sequences=[y], outputs_info=states, non_sequences=[transition, noise, scale])
    return logp.sum()


def test_kalman_filter(context, rng):
    y, scale = pt.dvector("y"), pt.dscalar("scale")
    transition, noise = (pt.tensor(name, dtype="float64", shape=(2, 2)) for name in ("transition", "noise"))
    values = rng.normal(size=STEPS), np.array([[0.9, 0.2], [0.0, 0.7]]), 0.1 * np.eye(2), 0.5
    check_with_gradient([y, transition, noise, scale], kalman(y, transition, noise, scale), values)


def test_lengths_that_do_not_fit(context):
    x, w, s = pt.dmatrix("x"), pt.dvector("w"), pt.dvector("s")
    f = opencl([x, w, s], scan(lambda e, h, w: e + w * h, sequences=[x], outputs_info=[s], non_sequences=[w]))
    assert loops(f) == 1
    with pytest.raises(ValueError, match="lengths"):
        f(np.ones((4, 3)), np.ones(2), np.ones(3))
    assert f(np.ones((4, 3)), np.ones(3), np.ones(3)).shape == (4, 3)


def test_numbers_of_steps_that_do_not_fit(context):
    """The exceptions are those of PyTensor's Python backend."""
    x, s, n = pt.dmatrix("x"), pt.dvector("s"), pt.lscalar("n")
    f = opencl([x, s, n], scan(lambda e, h: e + h, sequences=[x], outputs_info=[s], n_steps=n))
    assert loops(f) == 1
    with pytest.raises(ValueError, match="required number of steps"):
        f(np.ones((4, 3)), np.ones(3), 5)
    with pytest.raises(IndexError, match="negative"):
        f(np.ones((4, 3)), np.ones(3), -1)


def test_pickle(context):
    x, s = pt.dvector("x"), pt.dscalar("s")
    f = opencl([x, s], scan(lambda e, total: total * 0.5 + e, sequences=[x], outputs_info=[s]))
    again = pickle.loads(pickle.dumps(f))
    assert loops(again) == 1
    assert_close(again(np.ones(3), 0.0), [1, 1.5, 1.75])


def test_while(context, rng):
    """The kernel ends early; the outputs have as many rows as steps were run."""
    x, s, limit = pt.dvector("x"), pt.dscalar("s"), pt.dscalar("limit")
    total, doubled = scan(
        lambda e, last, limit: ((last + e, e * 2), until(last + e > limit)),
        sequences=[x],
        outputs_info=[s, None],
        non_sequences=[limit],
    )
    outputs = [total, doubled, total[-1], doubled[-1], total.shape[0]]
    f = opencl([x, s, limit], outputs)
    assert loops(f) >= 1
    host = pytensor.function([x, s, limit], outputs, mode="FAST_COMPILE")
    for steps, bound in ((1, 0.5), (9, 0.0), (9, 3.5), (9, 9.0), (9, 1e9), (9, 3.5), (9, 3.5), (9, 1.5)):
        for got, wanted in zip(f(np.ones(steps), 0.0, bound), host(np.ones(steps), 0.0, bound), strict=True):
            assert_close(got, wanted)


@pytest.mark.parametrize("part", [-1, slice(-3, None), slice(None)])
def test_while_of_which_few_rows_are_read(context, rng, part):
    a, s, limit = pt.dscalar("a"), pt.dvector("s"), pt.lscalar("limit")
    states, _ = scan(
        lambda before, last, k, a: ((a * last + before, k + 1), until(pt.ge(k, limit))),
        outputs_info=[{"initial": pt.stack([s, s * 2]), "taps": [-2, -1]}, pt.zeros((), "int64")],
        non_sequences=[a],
        n_steps=12,
    )
    f = opencl([a, s, limit], states[part])
    assert loops(f) == 1
    host = pytensor.function([a, s, limit], states, mode="FAST_COMPILE")
    for size in (1, 3, 21):
        for stop in (4, 5, 6, 11, 20):
            values = 0.3, rng.normal(size=size), stop
            assert_close(f(*values), host(*values)[part])


def test_the_last_row_of_no_steps(context, on_device):
    e, s = pt.dvector("e"), pt.dscalar("s")
    states, doubled = scan(lambda e, last: ((last + e, e * 2), until(e > 9)), sequences=[e], outputs_info=[s, None])
    f = opencl([e, s], doubled[-1])
    assert loops(f) == 1
    assert f([1.0, 2.0], 0.5) == 4
    with pytest.raises(IndexError):
        f(np.zeros(0), 0.5)
    g = opencl([e, s], [states, doubled])
    assert [v.shape for v in g(np.zeros(0), 0.5)] == [(0,), (0,)]


def test_gradient_of_a_while_loop(context, rng):
    a, s = pt.dscalar("a"), pt.dscalar("s")
    states = scan(lambda h, a: (pt.tanh(a * h) + 1, until(h > 1.2)), outputs_info=[s], non_sequences=[a], n_steps=20)
    check([a, s], [states, *pt.grad(states[-1], [a, s])], (0.5, 0.1), None)


def test_loops_without_arrays_are_on_the_device_when_forced(context):
    s, r, k = pt.dscalar("s"), pt.dscalar("r"), pt.lscalar("k")
    last = scan(lambda h, r: h * r + 1, outputs_info=[s], non_sequences=[r], n_steps=10)[-1]
    counted = scan(lambda k: k * 3 + 1, outputs_info=[k], n_steps=5)[-1]
    stopped = scan(lambda h, r: (h * r, until(h < 0.2)), outputs_info=[s], non_sequences=[r], n_steps=10)[-1]
    with pytensor.config.change_flags(opencl__placement="device"):
        check([s, r, k], [last, counted, stopped], (1.0, 0.5, 2), 3)


def test_refused_nodes_have_a_reason(context):
    """A batch of loops with a condition, a step that is too large, a length that is not known."""
    s, many = pt.dscalar("s"), pt.dvector("many")
    v, m = pt.dvector("v"), pt.dmatrix("m")
    doubled = scan(lambda total: (total * 2, until(total > 9)), outputs_info=[s], n_steps=8)[-1]
    (doubled,) = vectorize_graph([doubled], {s: many})
    large = pt.tensor("large", dtype="float64", shape=(40, 40))
    start = pt.tensor("start", dtype="float64", shape=(40,))
    product = scan(lambda h, w: pt.tanh(w @ h), outputs_info=[start], non_sequences=[large], n_steps=4)
    unknown = scan(lambda h, w: pt.tanh(w @ h), outputs_info=[v], non_sequences=[m], n_steps=4)
    for inputs, output in (([many], doubled), ([start, large], product), ([v, m], unknown)):
        f = opencl(inputs, output)
        assert not any(isinstance(op, GpuScanLoop) for op in device_ops(f))


def test_members_of_a_batch_have_their_numbers_of_steps(context):
    """They run one by one on the host, and fail where the CPU fails."""
    n, s = pt.lscalar("n"), pt.dvector("s")
    total = scan(lambda total: total * 0.5 + 1, outputs_info=[s], n_steps=n)[-1]
    batch = pt.lvector("batch")
    (short,) = rewrite_graph([total], include=("canonicalize", "specialize", "scan_save_mem"), clone=True)
    for output in (total, short):
        (many,) = vectorize_graph([output], {n: batch})
        f = opencl([batch, s], many)
        host = pytensor.function([batch, s], many, mode="FAST_COMPILE")
        for counts in ([2, 2], [2, 3]):
            try:
                wanted = host(counts, [1, 4.0])
            except ValueError:
                with pytest.raises(ValueError):
                    f(counts, [1, 4.0])
            else:
                assert_close(f(counts, [1, 4.0]), wanted)


def test_rows_that_are_not_read_are_not_stored(context, rng):
    """The traces of a gradient have one row, and initial values need no array with room for the other rows."""
    x, a, s = pt.dvector("x"), pt.dscalar("a"), pt.dscalar("s")
    total = scan(lambda e, h, a: pt.tanh(a * h + e), sequences=[x], outputs_info=[s], non_sequences=[a])
    batch, starts = pt.dvector("batch"), pt.dvector("starts")
    outputs = vectorize_graph([pt.grad(total.sum(), a), total[-2:], total], {a: batch, s: starts})
    f = opencl([x, batch, starts], outputs)
    found = [op for op in device_ops(f) if isinstance(op, GpuScanLoop)]
    assert len(found) == 2 and any(1 in op.kept for op in found) and any(op.starts for op in found)
    host = pytensor.function([x, batch, starts], outputs, mode="FAST_COMPILE")
    for steps in (1, 2, 20):
        values = rng.normal(size=steps), rng.normal(size=11), rng.normal(size=11)
        for got, wanted in zip(f(*values), host(*values), strict=True):
            assert_close(got, wanted)
