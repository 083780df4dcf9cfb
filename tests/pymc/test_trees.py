"""Trees of the No-U-Turn sampler, without a device."""

import numpy as np
import pytest

pytest.importorskip("pymc")

from pytensor_cl.pymc import trees
from pytensor_cl.routines.nuts import STATISTICS

COVARIANCE = np.array([[1.0, 0.8], [0.8, 2.0]])
PRECISION = np.linalg.inv(COVARIANCE)
NOT_PERIODIC = np.zeros(2, bool)


def normal(position):
    """Gradient and log density of a normal distribution with COVARIANCE."""
    gradient = -position @ PRECISION
    return gradient, 0.5 * np.sum(position * gradient, axis=1)


def started(chains, draws, rng, step_size, max_depth=6):
    """Trees at draws from the distribution, which store `draws` draws."""
    found = trees.new_trees(chains, 2, max_depth)
    found = found._replace(draws=np.zeros((draws, chains, 2)), statistics=np.zeros((len(STATISTICS), draws, chains)))
    found.start_position[:] = rng.multivariate_normal([0, 0], COVARIANCE, chains)
    found.start_gradient[:], found.start_density[:] = normal(found.start_position)
    trees.begin_trees(found, np.array([1.0, 2.0]), rng, step_size)
    return found


@pytest.mark.parametrize("step_size", [0.3, 1.2])
def test_draws_are_those_of_the_distribution(rng, step_size):
    """Chains that start in the distribution stay there, whatever the error of the steps; a chain with all draws is idle."""
    chains, draws = 2000, 5
    found = started(chains, draws, rng, step_size)
    resting = np.zeros(chains, bool)
    while not resting.all():
        before = found.position.copy()
        gradient, density = normal(found.position)
        trees.advance(
            found, gradient, density, np.array([1.0, 2.0]), NOT_PERIODIC, rng, step_size, found.mark_position.shape[0]
        )
        np.testing.assert_array_equal(found.position[resting], before[resting])
        resting = found.n_draws == draws
    stats = dict(zip(STATISTICS, found.statistics, strict=True))
    for step in range(draws):
        got = np.cov(found.draws[step].T)
        # Standard errors of the entries are about 0.03 to 0.06.
        np.testing.assert_allclose(got, COVARIANCE, atol=0.3)
        np.testing.assert_allclose(stats["lp"][step], normal(found.draws[step])[1], rtol=1e-10)
    np.testing.assert_allclose(np.cov(found.draws.reshape(-1, 2).T), COVARIANCE, atol=0.15)
    assert (stats["n_steps"] < 2 ** stats["tree_depth"]).all()
    correlation = np.corrcoef(found.draws[0, :, 0], found.draws[-1, :, 0])[0, 1]
    assert abs(correlation) < 0.1  # 4.5 standard errors


def test_divergence_ends_a_tree_where_it_began(rng):
    """A step whose energy is not finite is no part of the tree, and the chain stays at its start."""
    found = started(3, 1, rng, 0.5)
    start = found.start_position.copy()
    gradient, density = normal(found.position)
    density[1], gradient[1] = -np.inf, np.nan
    trees.advance(found, gradient, density, np.ones(2), NOT_PERIODIC, rng, 0.5, 6)
    stats = dict(zip(STATISTICS, found.statistics[:, 0], strict=True))
    assert found.n_draws[1] == 1
    assert stats["diverging"][1] == 1
    assert stats["acceptance_rate"][1] == 0
    np.testing.assert_array_equal(found.draws[0, 1], start[1])
