"""Adaptation and diagnostics, without a device."""

import numpy as np
import pytest

pytest.importorskip("pymc")

from pytensor_cl.pymc.adaptation import (
    Adam,
    DualAveraging,
    MassMatrix,
    PrincipalDirection,
    halton,
    harmonic_mean,
    median,
    usual_chains,
)
from pytensor_cl.pymc.diagnostics import bulk_ess, drift, nested_rhat
from pytensor_cl.pymc.meads import fold_parameters, largest_eigenvalue
from pytensor_cl.pymc.parts import Parts, chain_squares, combined, moments
from pytensor_cl.pymc.samplers import window_ends
from pytensor_cl.pymc.tempering import next_temperature, systematic


def test_halton():
    assert [halton(i) for i in range(7)] == [0.5, 0.25, 0.75, 0.125, 0.625, 0.375, 0.875]


def test_harmonic_mean():
    assert harmonic_mean(np.array([0.5, 1.0])) == pytest.approx(2 / 3)
    assert harmonic_mean(np.array([0.0, 1.0])) == 0


def test_dual_averaging_finds_the_wanted_acceptance():
    step = DualAveraging(5.0, 0.7)
    for _ in range(500):
        step.update(float(np.exp(-step.step_size)))
    assert step.mean == pytest.approx(-np.log(0.7), rel=0.05)


def test_adam_ascends_and_ignores_nan():
    adam = Adam(0.0, 0.05)
    for _ in range(400):
        adam.update(2.0 - adam.value)
    assert adam.value == pytest.approx(2.0, abs=0.1)
    assert adam.update(np.nan) == adam.value


def test_mass_matrix_of_normal_chains(rng):
    """The variances of a normal distribution, from chains that have not spread; a few of them may be far away."""
    scale = np.array([0.01, 1.0, 30.0])
    for far in (0, 20):
        mass = MassMatrix(3)
        for _ in range(4):
            # A tenth of the deviation.
            q = 0.1 * scale * rng.normal(size=(500, 3))
            q[:far] *= 100
            gradient = -q / scale**2
            usual = usual_chains(chain_squares(q, gradient, np.zeros(3), mass.inverse_mass))
            assert usual.sum() >= 500 - far
            mass.update(moments(q[usual], gradient[usual], None))
        np.testing.assert_allclose(mass.estimate(), scale**2, rtol=0.02)
    assert not usual_chains(chain_squares(np.full((500, 3), np.nan), np.ones((500, 3)), np.zeros(3), np.ones(3))).any()
    mass.update(moments(np.ones((0, 3)), np.ones((0, 3)), None))
    assert mass.estimate() is None


@pytest.mark.parametrize("parts", [1, 4, 8])
def test_moments_of_parts_are_those_of_all_chains(rng, parts):
    """Also far from zero, with parts whose means differ, and where a mask leaves chains or a whole part out."""
    q = (
        1e6
        + rng.normal(size=(64, 5)) * np.array([1e-2, 1, 1, 30, 1])
        + np.repeat([0.0, 1, 2, 3, 4, 5, 6, 7], 8)[:, None]
    )
    g, direction = -3.0 * q + rng.normal(size=q.shape), rng.normal(size=5)
    usual = rng.random(64) < 0.8
    usual[16:24] = parts < 8
    usual[32:48] = True
    asked = Parts(parts)
    asked.see(q, g, np.zeros(64))
    masks = asked.divided(usual)
    assert any(mask is None for mask in masks) == (parts > 1)
    found = combined(asked.ask("moments", direction, masks=masks), direction)
    q, g = q[usual], g[usual]
    moved = q - q.mean(axis=0)
    assert found.chains == usual.sum()
    np.testing.assert_allclose(found.mean, q.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.squares / found.chains, q.var(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.slope_squares / found.chains, g.var(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.along, moved.T @ (moved @ direction), rtol=1e-6)
    nobody = combined(asked.ask("moments", direction, masks=[np.zeros(64 // parts, bool)] * parts), direction)
    assert nobody.chains == 0


def test_principal_direction(rng):
    """In units of the mass matrix, that of the largest eigenvalue, where the centre is far from zero."""
    mass = np.array([1e-4, 1.0, 900.0, 1.0])
    vector = np.array([0.6, 0.0, 0.8, 0.0])
    found = PrincipalDirection(4)
    for _ in range(30):
        units = rng.normal(size=(400, 4)) + 2 * rng.normal(size=(400, 1)) * vector
        positions = 1000 + units * np.sqrt(mass)
        direction = found.update(moments(positions, positions, found.in_units(mass)), mass)
    np.testing.assert_allclose(direction * np.sqrt(mass), vector, atol=0.05)
    assert (positions @ direction).std() == pytest.approx(5**0.5, rel=0.15)
    still = found.update(moments(np.ones((8, 4)), np.ones((8, 4)), found.in_units(mass)), mass)
    np.testing.assert_allclose(still * np.sqrt(mass), vector, atol=0.05)


@pytest.mark.parametrize("size", [1, 2, 7, 256])
def test_median(size, rng):
    values = rng.normal(size=size)
    assert median(values) == np.median(values)


@pytest.mark.parametrize("tune", [0, 1, 5, 30, 100, 1000])
def test_windows_end_before_the_warm_up(tune):
    ends = window_ends(tune)
    assert ends == sorted(set(ends))
    assert all(0 < end < tune for end in ends)


def test_bulk_ess(rng):
    """An autoregression with coefficient a has (1 - a) / (1 + a) effective draws for each draw."""
    coefficients = np.array([0.0, 0.7, -0.4])
    draws = rng.normal(size=(64, 200, 3)) / np.sqrt(1 - coefficients**2)
    for i in range(1, 200):
        draws[:, i] = coefficients * draws[:, i - 1] + rng.normal(size=(64, 3))
    expected = draws[..., 0].size * (1 - coefficients) / (1 + coefficients)
    np.testing.assert_allclose(bulk_ess(draws), expected, rtol=0.25)  # the estimate is biased upwards
    assert np.isnan(bulk_ess(draws[:, :3])).all()
    draws[3, 5, 1] = np.nan
    assert list(np.isnan(bulk_ess(draws))) == [False, True, False]


def test_nested_rhat(rng):
    draws = rng.normal(size=(32, 5, 2))
    assert nested_rhat(draws, 4).max() < 1.05
    draws[:8, :, 1] += 3
    found = nested_rhat(draws, 4)
    assert found[0] < 1.05 < 1.5 < found[1]
    with pytest.raises(ValueError, match="cannot be divided"):
        nested_rhat(draws, 5)


def slow_chains(rng, chains, draws, start):
    """Autoregressions with a standard normal distribution, of 100 iterations of memory, and where they start."""
    values = np.empty((chains, draws, 1))
    values[:, 0] = start
    for t in range(1, draws):
        values[:, t] = 0.99 * values[:, t - 1] + np.sqrt(1 - 0.99**2) * rng.normal(size=(chains, 1))
    return values


def test_drift_of_chains_that_agree(rng):
    """All chains begin at one place, two deviations away or in the middle: nested R-hat is good, the draws are not."""
    for start in (-2.0, 0.0):
        draws = slow_chains(rng, 256, 100, start)
        assert nested_rhat(draws, 16) < 1.04  # no warning
        assert 0.2 < drift(draws)[0] < 1.5
    assert (drift(np.zeros((64, 20, 2))) == 0).all()
    assert (drift(slow_chains(rng, 4, 100, -2.0)) == 0).all()


@pytest.mark.parametrize(("chains", "draws"), [(8, 4), (64, 200), (2000, 10)])
def test_no_drift_in_one_distribution(rng, chains, draws):
    """Slow chains in equilibrium, with heavy and skewed tails."""
    for _ in range(20):
        normal = slow_chains(rng, chains, draws, rng.normal(size=(chains, 1)))
        other = rng.normal(size=normal.shape)
        values = np.concatenate([normal, np.exp(2 * normal), normal**7, other / np.abs(normal)], axis=2)
        assert (drift(values) == 0).all()


def test_temperature_keeps_half_of_the_particles(rng):
    log_likelihood = 30 * rng.normal(size=400)
    found = next_temperature(log_likelihood, 0.0)
    weights = np.exp(found * (log_likelihood - log_likelihood.max()))
    assert weights.sum() ** 2 / (weights**2).sum() == pytest.approx(200, rel=1e-3)
    assert next_temperature(np.zeros(400), 0.3) == 1.0


def test_systematic_resampling_is_in_proportion():
    kept = systematic(np.array([0.5, 0.0, 0.25, 0.25]), 0.5)
    np.testing.assert_array_equal(np.bincount(kept, minlength=4), [2, 0, 1, 1])


def test_largest_eigenvalue(rng):
    """The estimate is the mean of the eigenvalues weighted by themselves: the largest where one dominates."""
    deviations = np.array([10.0, 1.0, 1.0, 1.0])
    found = largest_eigenvalue(deviations * rng.normal(size=(4000, 4)))
    expected = (deviations**4).sum() / (deviations**2).sum()
    assert found == pytest.approx(expected, rel=0.1)
    assert largest_eigenvalue(np.zeros((8, 3))) == 0


def test_fold_parameters_of_normal_chains(rng):
    """Independent parameters of different scales: half of a unit step, and a damping of one."""
    scale = np.array([0.01, 1.0, 30.0])
    q = scale * rng.normal(size=(2000, 3))
    found = fold_parameters(q, -q / scale**2)
    np.testing.assert_allclose(found.scale, scale, rtol=0.1)
    assert found.step == pytest.approx(0.5, rel=0.1)
    assert found.rate == pytest.approx(1.0, rel=0.1)
    at_one_point = fold_parameters(np.ones((8, 3)), np.ones((8, 3)))
    np.testing.assert_array_equal(at_one_point.scale, 1.0)
