"""Chains that are lost: how they are found, kept out of statistics, and started again; and where chains start."""

import numpy as np
import pytest

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

import pytensor.tensor as pt  # noqa: E402

from pytensor_cl.pymc import sample  # noqa: E402
from pytensor_cl.pymc.adaptation import MassMatrix, usual_chains  # noqa: E402
from pytensor_cl.pymc.initial import approach  # noqa: E402
from pytensor_cl.pymc.lost import LostChainMonitor, find_lost, lost_chains  # noqa: E402
from pytensor_cl.pymc.parts import Parts, chain_squares, moments  # noqa: E402
from tests.helpers import on_one_driver  # noqa: E402
from tests.pymc import hard_models  # noqa: E402


def normal(chains, draws, size, rng):
    """Draws of a normal distribution, and statistics."""
    q = rng.normal(size=(chains, draws, size))
    return q, {"lp": -0.5 * (q**2).sum(axis=2), "acceptance_rate": np.full((chains, draws), 0.8)}


def test_no_chain_is_lost_in_one_distribution(rng):
    """Normal, exponential and heavy tails, independent draws and chains that move slowly, a funnel."""
    for chains, draws, size in ((8, 10, 1), (128, 5, 20), (2000, 20, 3), (500, 200, 50)):
        q, stats = normal(chains, draws, size, rng)
        assert not find_lost(q, stats).size
        slow = np.cumsum(0.05 * rng.normal(size=q.shape), axis=1) + q[:, :1]
        stats["lp"] = -0.5 * (slow**2).sum(axis=2)
        assert not find_lost(slow, stats).size
    for draws in (rng.standard_cauchy((1000, 30, 2)), rng.standard_t(0.7, (1000, 30, 2))):
        # One parameter after the other: the log densities are those of Student's t, up to constants.
        power = 1.0 if draws.max() < 1e6 else 0.85
        stats["lp"], stats["acceptance_rate"] = -power * np.log1p(draws**2).sum(axis=2), np.full((1000, 30), 0.8)
        assert not find_lost(draws, stats).size
    # In the neck of a funnel the density is large, and deviations are small.
    v = 3 * rng.normal(size=(1000, 1)) + 0.3 * rng.normal(size=(1000, 20))
    x = np.exp(v / 2)[..., None] * rng.normal(size=(1000, 20, 6))
    stats["lp"] = -(v**2) / 18 - 3 * v - 0.5 * (x**2).sum(axis=2) * np.exp(-v)
    stats["acceptance_rate"] = np.full(v.shape, 0.8)
    assert not find_lost(np.concatenate([v[..., None], x], axis=2), stats).size


def test_two_chains_of_many_parameters_are_not_lost(rng):
    """They have no upper half with a deviation, and differ by chance; but one that is far away is lost."""
    for _ in range(10):
        q = np.empty((2, 20, 1000))
        q[:, 0] = rng.normal(size=(2, 1000))
        for i in range(1, 20):
            q[:, i] = 0.98 * q[:, i - 1] + np.sqrt(1 - 0.98**2) * rng.normal(size=(2, 1000))
        stats = {"lp": -0.5 * (q**2).sum(axis=2), "acceptance_rate": np.full((2, 20), 0.8)}
        assert not find_lost(q, stats).size
    stats["lp"][1] -= 1e5
    np.testing.assert_array_equal(find_lost(q, stats), [1])


def test_a_chain_that_does_not_move_is_named(rng):
    """Unless that was by chance. It does not start again if its density is as large as others'."""
    q, stats = normal(64, 20, 3, rng)
    q[[5, 9]] = q[[5, 9], :1]
    stats["acceptance_rate"][5] = 1e-6
    np.testing.assert_array_equal(find_lost(q, stats), [5])
    assert not lost_chains(stats["lp"].mean(axis=1), q.std(axis=1)).any()
    stats["lp"][5] -= 20
    np.testing.assert_array_equal(
        np.flatnonzero(lost_chains(stats["lp"].mean(axis=1), (q - q[:, :1]).std(axis=1))), [5]
    )


@pytest.mark.parametrize("share", [0.02, 0.6])
def test_modes_are_compared_by_their_mass(rng, share):
    """A mode that is lower by 50 is not lost if it is wide enough; one of the same width is."""
    chains, size = 200, 20
    there = np.arange(chains) < share * chains
    for width, lost in ((np.exp(50 / size), False), (1.0, True)):
        q, stats = normal(chains, 30, size, rng)
        q[there] = 100 + width * q[there]
        stats["lp"][there] -= 50
        expected = np.flatnonzero(there) if lost else np.zeros(0, int)
        np.testing.assert_array_equal(find_lost(q, stats), expected)


def correlated_modes(size, correlation, distance):
    """Two normal distributions of equal mass: a correlated one at zero, and an independent one at some distance."""
    covariance = np.full((size, size), correlation) + (1 - correlation) * np.eye(size)
    return covariance, -0.5 * np.linalg.slogdet(covariance)[1], np.linalg.inv(covariance), distance


def test_a_mode_that_is_not_correlated_is_not_lost(rng):
    """Its log density is lower by half the logarithm of the other's determinant, and its mass is the same."""
    covariance, height, precision, distance = correlated_modes(30, 0.999, 100.0)
    chains, states = 200, 100
    q = rng.normal(size=(chains, states, 30))
    q[:100] = q[:100] @ np.linalg.cholesky(covariance).T
    gradient = -q
    gradient[:100] = -q[:100] @ precision
    log_density = 0.5 * (q * gradient).sum(axis=2)
    log_density[:100] += height
    q[100:] += distance
    stats = {"lp": log_density, "acceptance_rate": np.full((chains, states), 0.8)}
    assert find_lost(q, stats).size == 100  # what the deviations alone say
    chains_there = StillChains(q[:, -1])
    monitor = LostChainMonitor(chains_there, 30)
    for t in range(states):
        chains_there.parts.see(q[:, t], gradient[:, t], log_density[:, t])
    assert monitor.restart_lost() == 0
    assert not find_lost(q, stats, monitor.excess).size
    # The excess is a bound: that of the normal distribution, and what the diagonal of the precision adds.
    exact = 0.5 * np.log(np.diag(precision)).sum()
    assert exact - 3 < monitor.excess < exact + 8
    # A chain that is lower by more than that is lost.
    log_density[150] -= exact + 60
    for t in range(states):
        chains_there.parts.see(q[:, t], gradient[:, t], log_density[:, t])
    assert monitor.restart_lost() == 1
    assert monitor.restarted == {150}


def test_densities_that_are_not_finite_are_lost():
    log_density = np.array([-1.0, -1.1, -0.9, -np.inf, np.nan, -1.0])
    found = lost_chains(log_density, np.ones((6, 2)))
    np.testing.assert_array_equal(found, [False, False, False, True, True, False])


class StillChains:
    """Chains at given positions, which remember where they were moved."""

    def __init__(self, here, parts=1):
        self.here, self.chains, self.moved, self.parts = here, len(here), None, Parts(parts)

    def positions(self):
        return [self.here[:, 0], self.here[:, 1:]]

    def set_positions(self, positions):
        self.moved = np.column_stack(positions)


@pytest.mark.parametrize("parts", [1, 4])
def test_lost_chains_start_again_from_others(rng, parts):
    """Positions of lost chains are those of others, also of another part; those of all others stay."""
    chains = StillChains(np.zeros((40, 3)), parts)
    monitor = LostChainMonitor(chains, 3)
    for _ in range(6):
        here = chains.here = rng.normal(size=(40, 3))
        here[[3, 17]] += 1000
        chains.parts.see(here, -here, -0.5 * (here**2).sum(axis=1))
    assert monitor.restart_lost() == 2
    assert monitor.restarted == {3, 17}
    others = np.delete(np.arange(40), [3, 17])
    np.testing.assert_array_equal(chains.moved[others], here[others])
    assert all((chains.moved[index] == here[others]).all(axis=1).any() for index in (3, 17))
    assert monitor.restart_lost() == 0  # what they did before is forgotten


def test_usual_chains(rng):
    """All chains of a normal distribution, and not one whose gradient or position is far outside."""
    for size in (1, 3, 100):
        q = rng.normal(size=(4000, size))
        centre, mass = np.zeros(size), np.ones(size)
        assert usual_chains(chain_squares(q, -q, centre, mass)).all()
        gradient = -q
        q[0] += 1000
        gradient[1] *= 1e9
        gradient[2] = np.nan
        np.testing.assert_array_equal(
            np.flatnonzero(~usual_chains(chain_squares(q, gradient, centre, mass))), [0, 1, 2]
        )


def test_one_gradient_does_not_set_the_mass_matrix(rng):
    mass = MassMatrix(3)
    scale = np.array([0.01, 1.0, 30.0])
    for _ in range(4):
        q = scale * rng.normal(size=(400, 3))
        gradient = -q / scale**2
        gradient[7, 1] = 1e15
        usual = usual_chains(chain_squares(q, gradient, np.zeros(3), mass.inverse_mass))
        assert not usual[7]
        mass.update(moments(q[usual], gradient[usual], None))
    np.testing.assert_allclose(mass.estimate(), scale**2, rtol=0.15)


def test_approach_leaves_points_in_the_bulk_where_they_are(rng):
    deviation = np.array([1e-3, 1.0, 500.0])
    start = deviation * rng.normal(size=(12, 3))
    found = approach(lambda q: (-0.5 * ((q / deviation) ** 2).sum(1), -q / deviation**2), start, 11.5)
    np.testing.assert_array_equal(found, start)


def test_approach_moves_points_that_are_far_away(rng):
    """Scales that differ by 10^6, a rate of exp(40), a slope without curvature, and gradients that are not finite."""
    deviation = np.array([1e-3, 1.0, 1000.0])

    def normal(q):
        return -0.5 * ((q / deviation) ** 2).sum(axis=1), -q / deviation**2

    start = 100 * deviation * rng.normal(size=(12, 3))
    assert normal(start)[0].max() < -500
    found = normal(approach(normal, start, 11.5))[0]
    assert found.min() > -12  # as much as is enough
    assert found.max() < -0.5  # and not the mode

    x = np.linspace(0, 40, 60)
    y = np.round(np.exp(0.5 + 0.05 * x))

    def poisson(q):
        rate = np.exp(q[:, :1] + q[:, 1:] * x)
        gradient = np.stack([(y - rate).sum(axis=1), ((y - rate) * x).sum(axis=1)], axis=1)
        return (y * (q[:, :1] + q[:, 1:] * x) - rate).sum(axis=1), gradient

    best = poisson(np.array([[0.5, 0.05]]))[0]
    start = rng.uniform(-1, 1, (12, 2))
    assert poisson(start)[0].min() < -1e10
    assert poisson(approach(poisson, start, 11.0))[0].min() > best - 60

    def slope(q):
        far = np.abs(q)
        return -far[:, 0], -np.sign(q)

    assert np.abs(approach(slope, np.array([[1e5], [-3e4], [2.0]]), 11.0)).max() < 100
    bad = np.array([[1.0], [2.0]])
    np.testing.assert_array_equal(approach(lambda q: (np.zeros(2), np.full_like(q, np.nan)), bad, 11.0), bad)


def two_modes():
    """Modes at 0 and 30; the second one has exp(-60) of the mass. Half of the chains begin on each side."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=2, initval=np.array([17.0, 0.0]))
        pm.Potential("modes", pt.logaddexp(-0.5 * x[0] ** 2, -60 - 0.5 * (x[0] - 30) ** 2) - 0.5 * x[1] ** 2)
    return model


@on_one_driver
@pytest.mark.parametrize("sampler", ["chees", "nuts", "meads"])
def test_restart_in_the_warm_up(context, sampler):
    """Chains in a mode without mass start again in the other one, which is said; the draws are right from the first one."""
    with pytest.warns(UserWarning, match="chains were lost in the warm-up"):
        found = sample(
            two_modes(), sampler=sampler, chains=256, draws=10, tune=40, random_seed=3, progressbar=False
        ).posterior
    assert 0 < found.attrs["restarted_chains"] < 256
    assert list(found.attrs["lost_chains"]) == []
    first = found.x.values[:, 0]
    assert np.abs(first.mean(axis=0)).max() < 4.5 / np.sqrt(256 / 2)  # some chains are copies
    assert np.abs(first.var(axis=0) - 1).max() < 4.5 * np.sqrt(2 / (256 / 2))


@on_one_driver
def test_lost_chains_are_named_at_the_end(context):
    """Without a warm-up no chain starts again; those that are lost are named."""
    with pytest.warns(UserWarning, match="chains are lost"):
        found = sample(two_modes(), chains=64, draws=20, tune=0, random_seed=3, progressbar=False).posterior
    assert found.attrs["restarted_chains"] == 0
    far = np.flatnonzero(found.x.values[:, -1, 0] > 15)
    np.testing.assert_array_equal(found.attrs["lost_chains"], far)
    assert 0 < far.size < 64


@on_one_driver
@pytest.mark.parametrize(("name", "sampler"), [("counts", "meads"), ("counts", "chees"), ("regression", "nuts")])
def test_posterior_of_a_hard_model(context, name, sampler):
    """No chain is lost, and the moments are the exact ones."""
    model, exact = hard_models.MODELS[name]()
    found = sample(model, sampler=sampler, chains=128, draws=30, tune=100, random_seed=2, progressbar=False).posterior
    assert list(found.attrs["lost_chains"]) == []
    assert found.attrs["nested_rhat_max"] < 1.08
    assert hard_models.worst_difference(found, exact) < 4.5
