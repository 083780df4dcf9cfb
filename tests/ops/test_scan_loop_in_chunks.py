"""Loops whose steps are affine maps of the states, in chunks of time: against steps in turn, on both schedules."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan

import pytensor_cl
from pytensor_cl.ops.scan_loop import GpuScanLoop
from pytensor_cl.routines.scan_loop import limits
from pytensor_cl.routines.scan_loop.chunks import chunks_of, wanted_chunks
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.scalar.loop_step import loop_program
from tests.helpers import assert_close, opencl

PARALLEL = "parallel over time"
STEPS = 203  # chunks of different lengths


@pytest.fixture(autouse=True)
def _forced(request, context, schedule, monkeypatch):
    """Both schedules divide short series. Loops of float64 are on the host where the device has none."""
    if request.node.callspec.params.get("dtype") != "float32" and not context.info.has_fp64:
        pytest.skip("the device has no float64")
    monkeypatch.setattr(DeviceInfo, "schedule", property(lambda self: schedule))
    monkeypatch.setattr(limits, "CHUNK_STEPS_CPU", 8)
    monkeypatch.setattr(limits, "CHUNK_STEPS_SIMT", 16)
    monkeypatch.setattr(limits, "LEAST_STEPS_SIMT", 128)
    monkeypatch.setattr(limits, "CHUNKS_PER_UNIT_SIMT", 64)


def scan(step, **options):
    """A scan without updates."""
    return pytensor.scan(step, return_updates=False, **options)


def methods(f):
    """Return how the calls of a function have run its loops."""
    return [n.methods for n in pytensor_cl.explain(f).device_nodes if isinstance(n.op, GpuScanLoop)]


def check(inputs, outputs, values, loops=1):
    """Values agree with PyTensor's Python Ops, step by step and replayed, and all loops were divided."""
    f = opencl(inputs, outputs)
    wanted = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*values)
    for _ in range(4):
        for got, expected in zip(f(*values), wanted, strict=True):
            assert_close(got, expected)
    assert methods(f) == [(PARALLEL,)] * loops
    return f


def test_autoregression_with_gradients(context, rng):
    """The gradient's loop adds up parameters' gradients; a batch of few series is divided too."""
    noise = pt.dvector("noise")
    parameters = a, b, start = pt.dscalars("a", "b", "start")
    x = scan(
        lambda e, before, last, a, b: a * last + b * before + e,
        sequences=[noise],
        outputs_info=[{"initial": pt.stack([start, start * 2]), "taps": [-2, -1]}],
        non_sequences=[a, b],
    )
    outputs = [-pt.sqr(x).sum() / 2, *pt.grad(-pt.sqr(x).sum() / 2, [*parameters, noise]), x]
    values = rng.normal(size=STEPS), 0.7, -0.2, 0.3
    alone = check([noise, *parameters], outputs, values, 2)
    batch = pt.dvectors("as", "bs", "starts")
    batched = vectorize_graph(outputs[:4], dict(zip(parameters, batch, strict=True)))
    many = [np.array([0.9, 1.1]) * value for value in values[1:]]
    f = opencl([noise, *batch], batched)
    got = f(values[0], *many)
    assert methods(f) == [(PARALLEL,)] * 2
    for member in range(2):
        wanted = alone(values[0], *(v[member] for v in many))
        for result, expected in zip(got, wanted[:4], strict=True):
            assert_close(result[member], expected)


def test_each_kind_of_operation(context, rng):
    """Divisions, products of matrices, choices, casts, several arrays of states; outputs need not be affine."""
    e, chosen = pt.dmatrix("e"), pt.bvector("chosen")
    w = pt.tensor("w", dtype="float64", shape=(2, 2))
    start = pt.tensor("start", dtype="float64", shape=(2,))

    def step(e, chosen, x, level, w):
        new = w @ x + pt.switch(chosen, e, x[::-1] / 4)
        level = level - (new[0] - 1) / (1 + pt.sqr(e[1]))
        return new, level, pt.tanh(new * level).sum()

    x, level, squashed = scan(
        step,
        sequences=[pt.specify_shape(e, (None, 2)), chosen],
        outputs_info=[start, pt.constant(0.5, dtype="float64"), None],
        non_sequences=[w],
    )
    values = (
        rng.normal(size=(STEPS, 2)),
        rng.integers(0, 2, STEPS).astype("int8"),
        np.array([[0.6, 0.3], [-0.2, 0.5]]),
        rng.normal(size=2),
    )
    check([e, chosen, w, start], [x, level, squashed], values)
    check([e, chosen, w, start], [x[-1], level[-3:], squashed[-1]], values)


def recurrence(dtype):
    """The inputs and the states of ``x = a * x + b`` with series of both."""
    a, b, start = pt.vector("a", dtype=dtype), pt.vector("b", dtype=dtype), pt.scalar("start", dtype=dtype)
    return [a, b, start], scan(lambda a, b, x: a * x + b, sequences=[a, b], outputs_info=[start])


def one_by_one(a, b, start):
    """The states in float64."""
    states = [np.float64(start)]
    with np.errstate(all="ignore"):
        for factor, term in zip(a.astype("float64"), b.astype("float64"), strict=True):
            states.append(factor * states[-1] + term)
    return np.array(states[1:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_growth(context, rng, dtype):
    """Stable series, unit roots and slow growth are as exact as steps in turn."""
    inputs, x = recurrence(dtype)
    f = opencl(inputs, x)
    eps = np.finfo(dtype).eps
    ones = np.ones(STEPS)
    for a in (
        0.0 * ones,
        0.9 * ones,
        -ones,
        ones,
        1.02 * ones,
        rng.uniform(0.5, 1.3, STEPS),
        rng.choice([0, 1, 1.2], STEPS),
    ):
        values = a.astype(dtype), rng.normal(size=STEPS).astype(dtype), np.dtype(dtype).type(3)
        wanted = one_by_one(*values)
        # The rounding error of a step is at most eps times the sum of its terms, and grows as the states do.
        scale = one_by_one(abs(values[0]), abs(values[1]), values[2])
        bound = one_by_one(abs(values[0]), 4 * eps * scale, np.zeros(()))
        for _ in range(2):
            assert (abs(f(*values) - wanted) <= bound).all()
    assert methods(f) == [(PARALLEL,)]


def test_steps_in_turn_where_maps_lose_digits(context, rng):
    """Maps that grow out of bounds, or have what is no number, are not used: results are those of steps in turn."""
    inputs, x = recurrence("float64")
    f = opencl(inputs, x)
    ones = np.ones(STEPS)
    trace = rng.integers(1, 9, STEPS + 1).astype("float64")
    holes = rng.normal(size=STEPS)
    holes[[60, 61, 150]] = np.inf, 0, np.nan
    stopped = np.where(np.arange(STEPS) == 90, 0.0, 1.5)
    cases = [
        (2 * ones, trace[1:] - 2 * trace[:-1], trace[0]),  # the states stay small
        (0.5 * ones, holes, 1.0),
        (holes, ones, 1.0),
        (0.5 * ones, ones, np.inf),
        (stopped, ones, 1e300),
        (1e200 * ones, 0 * ones, 0.0),
        (np.where(np.arange(STEPS) < 12, 2.0**-90, 1.0), 0 * ones, 2.0**1000),  # elements of maps are set to zero
    ]
    wanted = [one_by_one(np.asarray(a), np.asarray(b), start) for a, b, start in cases]
    np.testing.assert_array_equal(wanted[0], trace[1:])
    for (a, b, start), expected in zip(cases, wanted, strict=True):
        np.testing.assert_allclose(f(a, b, start), expected, rtol=1e-12)
    assert methods(f) == [(PARALLEL,)]


def test_maps_that_grow_within_a_chunk(context):
    """Products of matrices are larger than the state, and small again at the end of a chunk: their digits are lost."""
    w, start = pt.tensor("w", dtype="float64", shape=(None, 2, 2)), pt.tensor("start", dtype="float64", shape=(2,))
    f = opencl([w, start], scan(lambda w, x: w @ x, sequences=[w], outputs_info=[start]))
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    powers = np.where(np.arange(STEPS) % 12 < 6, 4.0, -4.0)
    steps = np.stack([turn @ np.diag([2**p, 2**-p]) @ turn.T for p in powers])
    states = [turn[:, 1]]  # without the direction in which the products grow first
    for step in steps:
        states.append(step @ states[-1])
    np.testing.assert_allclose(f(steps, turn[:, 1]), states[1:], atol=1e-6)
    assert methods(f) == [(PARALLEL,)]


def test_square_roots(context, rng):
    """The volatility of a GARCH process, whose squares are affine; it may begin with a sign, or become no number."""
    y, omega, beta, start = pt.dvector("y"), *pt.dscalars("omega", "beta", "start")
    states, before = scan(
        lambda y, x, omega, beta: [pt.sqrt(omega + 0.3 * y**2 + beta * x**2), x * y],
        sequences=[y],
        outputs_info=[start, None],
        non_sequences=[omega, beta],
    )
    f = opencl([y, omega, beta, start], [states, before])
    noise = rng.normal(size=STEPS)
    for values in ((0.1, 0.9, -0.5), (0.1, 1.01, 2.0), (0.1, -0.2, 0.3), (-0.3, 1.0, 9.0), (-3.0, 0.5, 2.0)):
        wanted = [values[2]]
        with np.errstate(invalid="ignore"):
            for value in noise:
                wanted.append(np.sqrt(values[0] + 0.3 * value**2 + values[1] * wanted[-1] ** 2))
        got = f(noise, *values)
        np.testing.assert_allclose(got[0], wanted[1:], rtol=1e-9)
        np.testing.assert_allclose(got[1], wanted[:-1] * noise, rtol=1e-9)
    assert methods(f) == [(PARALLEL,)]


def test_members_of_a_batch_are_in_turn_one_by_one(context, rng):
    """A member whose map grows has no effect on the others."""
    inputs, x = recurrence("float64")
    many = pt.dmatrix("many")
    (batched,) = vectorize_graph([x], {inputs[0]: many})
    f = opencl([many, *inputs[1:]], batched)
    a = np.array([3.0, 0.9])[:, None] * np.ones(STEPS)
    b = rng.normal(size=STEPS)
    got = f(a, b, 1.0)
    assert methods(f) == [(PARALLEL,)]
    for member in range(2):
        np.testing.assert_allclose(got[member], one_by_one(a[member], b, 1.0), rtol=1e-9)


def ancestor_nodes(output):
    """The nodes that an output depends on."""
    return (v.owner for v in ancestors([output]) if v.owner is not None)


def linear(step, **options):
    """Return what a step of a Scan is as an affine map."""
    (node,) = (n for n in ancestor_nodes(scan(step, **options)) if isinstance(n.op, Scan))
    program = loop_program(node.op, [v.type for v in node.inputs])
    return program.step.linear(program.arrays, 1)


def test_steps_that_are_not_affine_maps(context):
    e, v = pt.dvector("e"), pt.dscalar("v")
    two = pt.tensor("two", dtype="float64", shape=(2,))
    for step in (
        lambda e, x: x * x,
        lambda e, x: e / x,
        lambda e, x: pt.switch(x > 0, x, e),
        lambda e, x: pt.maximum(x, e),
        lambda e, x: pt.sqrt(x + pt.sqr(e)),
        lambda e, x: x**2 / 2 + e,
        lambda e, x: pt.cast(pt.cast(x, "int64"), "float64") + e,
    ):
        assert "affine" in linear(step, sequences=[e], outputs_info=[v])
    assert "compares" in linear(lambda e, x: pt.stack([x[0], e * pt.argmax(x)]), sequences=[e], outputs_info=[two])
    assert "dtype" in linear(lambda e, k: k + 1, sequences=[e], outputs_info=[pt.lscalar("k")])
    assert "no states" in linear(lambda e: e + 1, sequences=[e])


def test_the_reason_is_told(context, rng):
    """explain says why the steps of a long series run in turn."""
    e, s, many = pt.dvector("e"), pt.dscalar("s"), pt.tensor("many", dtype="float64", shape=(9,))
    x = scan(lambda e, x: pt.tanh(x) + e, sequences=[e], outputs_info=[s])
    f = opencl([e, s], x)
    assert_close(f(np.ones(STEPS), 0.1)[:2], [np.tanh(0.1) + 1, np.tanh(np.tanh(0.1) + 1) + 1])
    assert methods(f) == [("in turn: a step is not an affine function of its states",)]
    wide = scan(lambda e, x: pt.concatenate([x[1:], x[:1]]) * 0.5 + e, sequences=[e], outputs_info=[many])
    f = opencl([e, many], wide)
    f(np.ones(STEPS), np.ones(9))
    assert "more than" in methods(f)[0][0]
    assert "in turn" in str(pytensor_cl.explain(f))


def test_when_time_is_divided(context, schedule):
    """A few series of many steps; all steps have their chunk."""
    for lanes in (1,) if schedule == "simt" else (8, 16):
        assert wanted_chunks(context.info, schedule, lanes, 63, 1) == 0
        assert wanted_chunks(context.info, schedule, lanes, 1 << 20, 1 << 20) == 0
        for steps in (203, 1000, 1 << 20):
            wanted = wanted_chunks(context.info, schedule, lanes, steps, 2)
            assert 8 <= wanted <= 32 * context.info.compute_units and wanted % lanes == 0
            for free in (steps, steps - 2) if lanes > 1 else (steps,):
                chunks = chunks_of(wanted, lanes, 64 // lanes, steps, free)
                assert (chunks.number - 1) * chunks.steps <= free
                last = steps - (chunks.number - 1) * chunks.steps
                assert 0 <= last <= (chunks.steps if lanes == 1 else 2 * wanted + 64 // lanes * wanted)
