"""Trees of the No-U-Turn sampler on a device."""

import numpy as np
import pytest

from pytensor_cl.routines.nuts import STATISTICS, DeviceTrees

SIZE = 11
COVARIANCE = 0.7 ** np.abs(np.subtract.outer(np.arange(SIZE), np.arange(SIZE)))
PRECISION = np.linalg.inv(COVARIANCE)


def normal(position):
    """Gradient and log density of a normal distribution with COVARIANCE."""
    gradient = -position @ PRECISION
    return gradient, 0.5 * np.sum(position * gradient, axis=1)


def started(context, chains, draws, rng, step_size, schedule, real="float64", dtype="float64", **options):
    """Trees at draws from the distribution, which store `draws` draws with their gradients."""
    given = {"is_periodic": np.zeros(SIZE, bool), "most_error": 1000.0, **options}
    found = DeviceTrees(context, chains, SIZE, 6, dtype, np.array([3, 5]), real=real, schedule=schedule, **given)
    start = rng.multivariate_normal(np.zeros(SIZE), COVARIANCE, chains)
    found.set_start(start, *normal(start))
    found.set_inverse_mass(np.linspace(0.5, 1.0, SIZE))
    found.store(draws, draws, True)
    found.begin(step_size)
    return found


def step(context, trees, step_size, dtype="float64", bad=()):
    """Add a leaf to each tree; of bad chains the log density is minus infinity."""
    gradient, density = normal(np.asarray(trees.evaluated, "float64"))
    density[list(bad)] = -np.inf
    # Neither is contiguous: gradients of products of matrices, and of loops that run backwards, are not.
    by_parameter = context.from_host(np.ascontiguousarray(gradient.T[::-1], dtype))
    twice = context.from_host(np.stack([-density, density], axis=1).astype(dtype))
    trees.advance(by_parameter[::-1].T, twice[:, 1], step_size, 6)


def result(trees):
    """Draws, gradients, and statistics by name."""
    found = np.asarray(trees.records).astype("float64")
    names = dict(zip(STATISTICS, found[..., 2 * SIZE :].transpose(2, 0, 1), strict=True))
    return found[..., :SIZE], found[..., SIZE : 2 * SIZE], names


@pytest.mark.parametrize(
    ("schedule", "real", "dtype"),
    [("cpu", "float64", "float32"), ("simt", "float64", "float64"), ("simt", "float32", "float32")],
)
def test_draws_are_those_of_the_distribution(context, rng, schedule, real, dtype):
    """Chains that start in the distribution stay there; a chain with all draws is idle; chains can be left out."""
    if real == "float64" and not context.info.has_fp64:
        pytest.skip("no double precision")
    chains, draws, step_size = 1500, 3, 0.6
    trees = started(context, chains, draws, rng, step_size, schedule, real, dtype)
    made = np.zeros(chains, int)
    while made.min() < draws:
        before, made_before = np.asarray(trees.evaluated), made
        step(context, trees, step_size, dtype)
        made = np.asarray(trees.state.n_draws)
        if trees.evaluated.shape[0] == chains:
            np.testing.assert_array_equal(
                np.asarray(trees.evaluated)[made_before == draws], before[made_before == draws]
            )
        active = np.flatnonzero(made < draws)
        if 0 < active.size < chains // 3 and trees.evaluated.shape[0] == chains:
            at = np.asarray(trees.evaluated)[active]
            trees.select(active, chains // 2)
            trees.place()
            np.testing.assert_array_equal(np.asarray(trees.evaluated)[: active.size], at)
    assert trees.evaluated.shape[0] == chains // 2
    position, gradient, stats = result(trees)
    errors = 5 / np.sqrt(chains)
    for found in position:
        np.testing.assert_allclose(np.cov(found.T), COVARIANCE, atol=1.5 * errors)
        np.testing.assert_allclose(found.mean(axis=0), 0, atol=errors)
    assert abs(np.corrcoef(position[0, :, 3], position[2, :, 3])[0, 1]) < 0.75
    np.testing.assert_allclose(gradient, -position @ PRECISION, atol=1e-4)
    np.testing.assert_allclose(stats["lp"], 0.5 * np.sum(position * gradient, axis=2), rtol=1e-4)
    # The mean energy is that of as many normal positions and momenta.
    assert abs(stats["energy"].mean() - SIZE) < 5 * np.sqrt(SIZE / chains / draws)
    depth, steps = stats["tree_depth"], stats["n_steps"]
    assert ((steps < 2**depth) & (steps >= 2 ** (depth - 1))).all()
    assert len(np.unique(steps)) > 3
    assert 0.5 < stats["acceptance_rate"].mean() < 0.95
    assert not stats["diverging"].any()


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_divergence_depth_and_angles(context, rng, schedule):
    """A step without a finite energy is no part of the tree; trees end at the most doublings; angles are wrapped."""
    if not context.info.has_fp64:
        pytest.skip("no double precision")
    is_periodic = np.arange(SIZE) == 2
    trees = started(context, 40, 1, rng, 1e-3, schedule, is_periodic=is_periodic)
    start = np.asarray(trees.state.start_position)
    shifted = start + 4 * np.pi * is_periodic
    trees.set_start(shifted, *normal(start))
    trees.begin(1e-3)
    for number in range(2**6 - 1):
        gradient, density = normal(np.asarray(trees.evaluated) - 4 * np.pi * is_periodic)
        density[[1]] = -np.inf
        trees.advance(context.from_host(gradient), context.from_host(density), 1e-3, 6)
        made = np.asarray(trees.state.n_draws)
        assert made[1] == 1
        assert made.sum() == (40 if number == 62 else 1)
    position, _, stats = result(trees)
    np.testing.assert_allclose(position[0, 1], start[1], atol=1e-12)
    np.testing.assert_array_equal(np.flatnonzero(stats["diverging"][0]), [1])
    assert stats["acceptance_rate"][0, 1] == 0
    assert stats["n_steps"][0, 1] == 1
    others = np.arange(40) != 1
    assert (stats["n_steps"][0, others] == 63).all()
    assert stats["reached_max_treedepth"][0, others].all()
    assert not stats["reached_max_treedepth"][0, 1]
    assert np.abs(position[0] - start).max() < 0.5
    assert np.abs(position[0, others] - start[others]).min() > 0
