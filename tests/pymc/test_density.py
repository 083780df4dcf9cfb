"""The log density of all chains, whose positions are one matrix, and its gradient, against PyMC's own functions."""

import warnings

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.elemwise import Elemwise

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from pytensor_cl.ops.elemwise import GpuElemwise  # noqa: E402
from pytensor_cl.pymc.density import ModelDensity  # noqa: E402
from pytensor_cl.pymc.hamiltonian import Hamiltonian, compile_function  # noqa: E402
from pytensor_cl.pymc.langevin import Langevin  # noqa: E402
from tests.helpers import assert_on_device, host_ops, on_one_driver  # noqa: E402

CHAINS = 5


def many_shapes():
    """Numbers, vectors, matrices, an angle, a variable without elements, and one whose gradient is a constant."""
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.5, 2)
        scale = pm.HalfNormal("scale", 1)
        table = pm.Normal("table", mean, scale, shape=(2, 3))
        pm.Flat("free", shape=2)
        angle = pm.VonMises("angle", 0.3, 2.0)
        pm.Normal("nothing", 0, 1, shape=0)
        pm.Dirichlet("share", [2.0, 3.0, 4.0])
        pm.Normal("y", table.sum(axis=0) + pm.math.sin(angle), 0.7, observed=[0.2, -0.4, 1.1])
    return model


def density_of(model, tempered=False):
    return ModelDensity(model, {k: np.shape(v) for k, v in model.initial_point().items()}, tempered=tempered)


@on_one_driver
def test_gradient_where_a_share_rounds_to_one(context, on_device):
    """At log odds of 40 the share is 1.0 in floating point; the density there is that of its complement, exp(-40)."""
    with pm.Model() as model:
        pm.Beta("share", 0.5, 0.25)
    density = density_of(model)
    position = pt.matrix("position", shape=(None, 1))
    function = compile_function([position], list(density(position)), {}, "OPENCL", "density")
    assert_on_device(function, GpuElemwise)
    log_odds = np.array([-700.0, -1, 30, 40, 700])
    _, gradient = function(log_odds[:, None])
    expected = 0.5 / (1 + np.exp(log_odds)) - 0.25 / (1 + np.exp(-log_odds))
    np.testing.assert_allclose(gradient[:, 0], expected, rtol=1e-10)


@on_one_driver
def test_gradient_of_many_shapes(context, on_device):
    """Columns of the gradient are those of the variables; `split` and `join` are inverse to each other."""
    model = many_shapes()
    density = density_of(model)
    assert density.size == 13
    assert np.flatnonzero(density.parameter_is_periodic).tolist() == [10]
    flat = np.random.default_rng(6).normal(size=(CHAINS, density.size))
    parts = list(density.split(flat, CHAINS))
    assert [part.shape for part in parts] == [(CHAINS, *shape) for shape in density.shapes]
    np.testing.assert_array_equal(density.join(parts), flat)
    position = pt.matrix("position", shape=(CHAINS, density.size))
    function = compile_function([position], list(density(position)), {}, "OPENCL", "density")
    log_density, gradient = function(flat)
    # PyTensor warns that the variable with a flat prior is not in the graph.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        logp, dlogp = model.compile_logp(mode="FAST_RUN"), model.compile_dlogp(mode="FAST_RUN")
    for i in range(CHAINS):
        point = {name: part[i] for name, part in zip(density.names, parts, strict=True)}
        np.testing.assert_allclose(log_density[i], logp(point), rtol=1e-10)
        np.testing.assert_allclose(gradient[i], dlogp(point), rtol=1e-9, atol=1e-12)
    assert_on_device(function, GpuElemwise)


def named_numbers(n):
    """Numbers with terms of several forms; some are in other terms too."""
    with pm.Model() as model:
        means = [pm.Normal(f"mean{i}", 0.1 * i, 0.5 + i) for i in range(n)]
        scales = [pm.HalfCauchy(f"scale{i}", 2 + i) for i in range(n)]
        pm.Normal("alone", means[0], 1)
        for i in range(n):
            pm.StudentT(f"child{i}", nu=4, mu=means[0], sigma=scales[i])
        for i in range(n):
            pm.Uniform(f"between{i}", i, 3.5 * i + 4)
        pm.Exponential("vector", 1.5, shape=2)
        pm.Normal("y", sum(means) * np.array([0.3, -1.0]), scales[1], observed=[0.4, 1.9])
    return model


@on_one_driver
@pytest.mark.parametrize("tempered", [False, True])
def test_named_numbers(context, tempered):
    """Values and gradients are PyMC's, with the observed part to a power."""
    model = named_numbers(3)
    density = density_of(model, tempered)
    # Each child has another scale, which is a variable.
    assert [block.stop - block.start for block in density._blocks] == [3, 3, 1, 1, 1, 1, 3, 1]
    power = 0.3 if tempered else 1.0
    with model:
        total = model.varlogp + power * model.datalogp
    flat = np.random.default_rng(8).normal(size=(CHAINS, density.size))
    position = pt.matrix("position", shape=flat.shape)
    if tempered:
        density.temperature.set_value(np.asarray(power))
    outputs = [*density(position), density.observed(position)] if tempered else list(density(position))
    log_density, gradient, *observed = compile_function([position], outputs, {}, "OPENCL", "density")(flat)
    reference = model.compile_fn([total, model.datalogp, *pt.grad(total, model.value_vars)], mode="FAST_COMPILE")
    for i, parts in enumerate(zip(*density.split(flat, CHAINS), strict=True)):
        value, likelihood, *slopes = reference(dict(zip(density.names, parts, strict=True)))
        np.testing.assert_allclose(log_density[i], value, rtol=1e-6)
        np.testing.assert_allclose(gradient[i], np.concatenate([np.ravel(v) for v in slopes]), rtol=1e-6, atol=1e-9)
        if tempered:
            np.testing.assert_allclose(observed[0][i], likelihood, rtol=1e-6)


@on_one_driver
def test_named_numbers_are_a_vector(context, on_device):
    """The step of a model of 40 numbers has no more nodes than that of a model of one vector, and two for its constants."""
    with pm.Model() as model:
        for i in range(40):
            pm.Normal(f"x{i}", 0.1 * i, 1.0 + i)
    with pm.Model() as vector:
        pm.Normal("x", 0.1 * np.arange(40), 1 + np.arange(40.0))
    named, joint = (Hamiltonian(density_of(m), CHAINS, 1, "OPENCL").step.maker.fgraph for m in (model, vector))
    assert len(named.apply_nodes) <= len(joint.apply_nodes) + 2


@on_one_driver
@pytest.mark.parametrize("kind", [Hamiltonian, Langevin])
def test_state_is_one_matrix(context, kind):
    """The functions of a model with twelve numbers have as many shared variables as those of a model with one vector."""

    def functions(model):
        chains = kind(density_of(model), CHAINS, 1, "OPENCL")
        compiled = [chains.advance] if kind is Langevin else [chains._begin, chains.step, chains._finish]
        return chains, [(len(f.maker.inputs), len(f.maker.outputs)) for f in compiled]

    with pm.Model() as named:
        for i in range(12):
            pm.Normal(f"x{i}", float(i), 1.0 + i)
    with pm.Model() as vector:
        pm.Normal("x", np.arange(12.0), 1 + np.arange(12.0))
    (chains, counts), (other, expected) = functions(named), functions(vector)
    assert counts == expected
    flat = np.random.default_rng(2).normal(size=(CHAINS, 12))
    # The logarithm of a Python number is that of float32.
    np.testing.assert_allclose(chains.set_positions(list(flat.T)), other.set_positions([flat]), rtol=1e-7)
    np.testing.assert_allclose(chains._gradient.get_value(), other._gradient.get_value(), rtol=1e-12)
    np.testing.assert_array_equal(np.stack(chains.positions(), axis=1), flat)


@on_one_driver
def test_each_number_of_a_block_is_taken_once(context):
    """Trajectories get the numbers of the generator one after the other, two more in each chain than parameters."""
    with pm.Model() as model:
        pm.Normal("x", shape=3)
    chains = Hamiltonian(density_of(model), 64, np.random.SeedSequence(4), "OPENCL")
    chains.set_positions([np.zeros((64, 3))])
    length = len(chains.noise)
    drawn = np.random.default_rng(np.random.SeedSequence(4)).normal(size=(2 * length, 64, 5))
    for k in range(length + 2):
        chains.begin(0.0)
        np.testing.assert_array_equal(chains._momentum.get_value(), drawn[k, :, :3])
        np.testing.assert_allclose(
            chains._threshold.get_value(), 0.5 * np.square(drawn[k, :, 3:]).sum(axis=1), rtol=1e-14
        )
    assert chains.noise.used == 2


@on_one_driver
def test_moves(context):
    """`try_step` leaves the chains where they are, and gives the acceptance that a trajectory of one step has."""
    with pm.Model() as model:
        pm.Normal("x", [1.0, -2.0], [0.5, 3.0])
    chains = Hamiltonian(density_of(model), 400, 1, "OPENCL")
    functions = chains._begin, chains.step, chains._finish
    assert not any(isinstance(op, Elemwise) for f in functions for op in host_ops(f))  # Numba would compile each
    start = np.random.default_rng(3).normal(size=(400, 2))
    chains.set_positions([start])
    tried = chains.try_step(1.0)
    np.testing.assert_array_equal(chains.positions()[0], start)
    moved = chains.trajectory(1.0, 1)
    np.testing.assert_array_equal((chains.positions()[0] != start).all(axis=1), moved.accepted)
    assert abs(tried.mean() - moved.acceptance.mean()) < 5 * np.hypot(tried.std(), moved.acceptance.std()) / 20
    assert abs(moved.accepted.mean() - moved.acceptance.mean()) < 5 * 0.5 / 20
    end = chains.positions()[0]
    positions, gradients = chains.flat_state()
    np.testing.assert_array_equal(positions, end)
    np.testing.assert_allclose(gradients, -(end - [1.0, -2.0]) / np.square([0.5, 3.0]), rtol=1e-10)
