"""Dropout: the same mask in every mode, exact at both ends, in loops, batches and PyMC's updates."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import DisconnectedInputError, verify_grad
from pytensor.graph.replace import vectorize_graph

from pytensor_cl import nn
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.random import GpuRandomVariable
from pytensor_cl.routines.random.draw import Draw
from tests.helpers import assert_on_device, on_one_driver, opencl

X = np.linspace(1, 2, 300 * 40, dtype="float32").reshape(300, 40)


def noise(seed=1):
    """A generator of a graph."""
    return pt.random.shared_rng(seed=seed, name="noise")


def kept(shape, p, seed=1, generator=None):
    """NumPy's mask."""
    return (generator or np.random.default_rng(seed)).random(shape) >= p


def check(got, x, p, mask):
    """Compare outputs, or gradients, with NumPy's."""
    scale = np.asarray(1 / (1 - p), x.dtype)
    np.testing.assert_allclose(got, np.where(mask, x * scale, 0), rtol=1e-6)
    assert got.dtype == x.dtype


@pytest.fixture
def forced(monkeypatch):
    """Run on the device whatever the number of draws is; fail where NumPy draws."""
    monkeypatch.setattr(Draw, "_by_host", lambda *_: pytest.fail("NumPy has drawn"))
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def test_values_and_gradient_on_the_device(context, forced):
    x, rng, p = pt.fmatrix("x"), noise(), pt.dscalar("p")
    after, y = nn.dropout(x, p, rng)
    slope = pytensor.grad(pt.sqr(y).sum(), x)
    f = opencl([x, p], [y, slope], updates={rng: after})
    assert_on_device(f, GpuRandomVariable, GpuElemwise)
    own = np.random.default_rng(1)
    for probability in (0.3, 0.75, 0.0, 1.0):
        got, gradient = f(X, probability)
        if probability == 1:
            kept(X.shape, 1, generator=own)
            assert not got.any() and not gradient.any()
            continue
        mask = kept(X.shape, probability, generator=own)
        check(got, X, probability, mask)
        check(gradient, 2 * got, probability, mask)
    assert rng.get_value().bit_generator.state == own.bit_generator.state


@on_one_driver
@pytest.mark.parametrize("mode", ["OPENCL", "NUMBA", "FAST_RUN", "FAST_COMPILE"])
def test_same_mask_in_every_mode(context, mode):
    x, rng = pt.fmatrix("x"), noise()
    after, y = nn.dropout(x, 0.3, rng)
    f = pytensor.function([x], y, updates={rng: after}, mode=mode)
    own = np.random.default_rng(1)
    for _ in range(2):
        check(f(X), X, 0.3, kept(X.shape, 0.3, generator=own))


def test_jax():
    pytest.importorskip("jax")
    x, rng = pt.fmatrix("x"), noise()
    with pytest.warns(UserWarning, match="noise"):  # JAX takes a copy of the generator
        f = pytensor.function([x], nn.dropout(x, 0.5, rng)[1], mode="JAX")
    y = np.asarray(f(X))
    assert np.isin(y, np.stack([0 * X, 2 * X])).all() and 0.4 < (y > 0).mean() < 0.6


def test_with_philox(context):
    with pytensor.config.change_flags(opencl__placement="device", opencl__random="philox"):
        x, rng = pt.fmatrix("x"), noise()
        _, y = nn.dropout(x, 0.5, rng)
        f = opencl([x], y)
        assert_on_device(f, GpuRandomVariable)
        got = f(X)
    np.testing.assert_array_equal(got[got > 0], 2 * X[got > 0])
    assert 0.45 < (got > 0).mean() < 0.55


def test_shared_axes(context, forced):
    x, rng = pt.ftensor3("x"), noise()
    _, y = nn.dropout(x, 0.5, rng, shared_axes=(-1, 1))
    f = opencl([x], y)
    values = np.ones((5000, 2, 3), "float32")
    check(f(values), values, 0.5, np.broadcast_to(kept((5000, 1, 1), 0.5), values.shape))


@pytest.mark.parametrize("shape", [(), (0, 3), (4, 0)])
def test_shapes_without_many_elements(shape):
    x, rng = pt.tensor("x", dtype="float16", shape=(None,) * len(shape)), noise()
    after, y = nn.dropout(x, 0.5, rng)
    f = pytensor.function([x], y, updates={rng: after}, mode="FAST_COMPILE")
    got = f(np.ones(shape, "float16"))
    assert got.shape == shape and got.dtype == "float16"


def test_nan_stays_only_where_it_is_kept():
    x, rng = pt.dvector("x"), noise()
    y = pytensor.function([x], nn.dropout(x, 0.5, rng)[1], mode="FAST_COMPILE")(np.full(100, np.nan))
    np.testing.assert_array_equal(np.isnan(y), kept(100, 0.5))


def test_gradients_of_any_order(rng):
    generator = noise()

    def function(x):
        return nn.dropout(x**3, 0.4, generator)[1] ** 2

    verify_grad(function, [rng.normal(size=(3, 4))], rng=rng, mode="FAST_COMPILE")
    verify_grad(
        lambda x: pytensor.grad(pt.sum(function(x)), x), [rng.normal(size=(3, 4))], rng=rng, mode="FAST_COMPILE"
    )


def test_there_is_no_gradient_of_p():
    x, p, generator = pt.dvector("x"), pt.dscalar("p"), noise()
    with pytest.raises(DisconnectedInputError):
        pytensor.grad(nn.dropout(x, p, generator)[1].sum(), p)


@pytest.mark.parametrize("mode", ["OPENCL", "FAST_COMPILE", "NUMBA"])
@on_one_driver
def test_in_a_recurrent_step_of_symbolic_shape(context, mode):
    x, rng = pt.dtensor3("x"), noise()

    def step(row, state, generator):
        after, dropped = nn.dropout(row, 0.5, generator)
        return state + dropped, after

    states, after = pytensor.scan(step, [x], [pt.zeros_like(x[0]), rng], return_updates=False)
    updates = nn.state_updates(states)
    assert updates == {rng: after}
    with pytensor.config.change_flags(opencl__placement="device" if mode == "OPENCL" else "auto"):
        f = pytensor.function([x], states, updates=updates, mode=mode)
    values, own = np.ones((4, 3, 2)), np.random.default_rng(1)
    for _ in range(2):
        dropped = 2 * np.stack([kept((3, 2), 0.5, generator=own) for _ in values])
        np.testing.assert_allclose(f(values), dropped.cumsum(axis=0))
    assert rng.get_value().bit_generator.state == own.bit_generator.state


def test_gradient_of_a_loop_with_masks_that_are_drawn_before_it():
    x, rng = pt.dtensor3("x"), noise()
    _, masks = nn.dropout(pt.ones_like(x), 0.5, rng)
    states = pytensor.scan(lambda row, m, h: h + m * row, [x, masks], [pt.zeros_like(x[0])], return_updates=False)
    f = pytensor.function([x], pytensor.grad(states[-1].sum(), x), mode="FAST_COMPILE")
    np.testing.assert_allclose(f(np.ones((4, 3, 2))), 2.0 * kept((4, 3, 2), 0.5))


def test_batches():
    row, p, rng = pt.dvector("row"), pt.dscalar("p"), noise()
    _, y = nn.dropout(row, p, rng)
    rows, many = pt.dmatrix("rows"), pt.dvector("many")
    ones = np.ones((40, 50))
    batched = vectorize_graph(y, {row: rows})
    got = pytensor.function([rows, p], batched, mode="FAST_COMPILE")(ones, 0.5)
    check(got, ones, 0.5, kept((40, 50), 0.5))
    each = vectorize_graph(y, {p: many})
    slope = pytensor.grad(each.sum(), row)
    probabilities = np.linspace(0, 0.9, 40)
    got, gradient = pytensor.function([row, many], [each, slope], mode="FAST_COMPILE")(ones[0], probabilities)
    check(got, ones, probabilities[:, None], kept((40, 50), probabilities[:, None]))
    np.testing.assert_allclose(gradient, got.sum(axis=0))
    both = vectorize_graph(y, {row: rows, p: many})
    got = pytensor.function([rows, many], both, mode="FAST_COMPILE")(ones, probabilities)
    check(got, ones, probabilities[:, None], kept((40, 50), probabilities[:, None]))


def test_pymc_collects_the_update():
    pymc = pytest.importorskip("pymc")
    rng = noise()
    after, y = nn.dropout(pt.dvector("x"), 0.5, rng)
    assert pymc.pytensorf.collect_default_updates(y) == {rng: after}


@pytest.mark.parametrize("mode", ["OPENCL", "FAST_COMPILE", "NUMBA"])
@pytest.mark.parametrize("p", [-0.1, 1.5, np.nan])
def test_symbolic_p_that_is_no_probability(mode, p):
    x, probability = pt.dvector("x"), pt.dscalar("p")
    f = pytensor.function([x, probability], nn.dropout(x, probability, noise())[1], mode=mode)
    with pytest.raises(ValueError, match="p must be a probability"):
        f(np.ones(3), p)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"p": 1.5}, ValueError, "p must be a probability.*1.5"),
        ({"p": [0.5]}, TypeError, "p must be a number"),
        ({"p": True}, TypeError, "p must be a number"),
        ({"rng": None}, TypeError, r"pt\.random\.shared_rng\(seed=\.\.\.\)"),
        ({"rng": 3}, TypeError, "needs a random generator"),
        ({"input": pt.imatrix()}, TypeError, "int32: cast it first"),
        ({"input": pt.zmatrix()}, TypeError, "complex128: cast it first"),
        ({"shared_axes": 2}, ValueError, "2 dimensions"),
        ({"shared_axes": (0.5,)}, TypeError, "shared_axes must be integers"),
    ],
)
def test_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        nn.dropout(**{"input": pt.dmatrix(), "rng": noise(), **arguments})
