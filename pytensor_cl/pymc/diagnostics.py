"""Effective sample size and nested R-hat for many chains."""

import math

import numpy as np
from scipy.stats import t as student

_DRIFT_P = 1e-6
"""Probability of one drift among all parameters of draws that have none."""


def bulk_ess(draws: np.ndarray) -> np.ndarray:
    """Return the bulk effective sample size of each parameter (Vehtari et al. 2021), NaN where draws are not finite.

    The shape of `draws` is (chains, draws, parameters).
    """
    from arviz_stats.base import array_stats  # takes 0.2 s to load

    if draws.shape[1] < 4:
        return np.full(draws.shape[2], np.nan)
    ess: np.ndarray = array_stats.ess(draws, chain_axis=0, draw_axis=1, method="bulk")
    return ess


def nested_rhat(draws: np.ndarray, superchains: int) -> np.ndarray:
    """Return nested R-hat (Margossian et al. 2024), which needs few draws of each chain if there are many chains.

    The shape of `draws` is (chains, draws, parameters); the chains of a superchain follow each other and started at one
    point.
    """
    # ArviZ has it too, but only for four or more draws.
    n_chains, n_draws, size = draws.shape
    if superchains < 1 or n_chains % superchains:
        raise ValueError(f"{n_chains} chains cannot be divided into {superchains} superchains")
    length = n_chains // superchains
    if superchains < 2 or length < 2:
        return np.full(size, np.nan)
    nested = draws.reshape(superchains, length, n_draws, size).astype("float64", copy=False)
    chain_means = nested.mean(axis=2)
    within = nested.var(axis=2, ddof=1).mean(axis=1) if n_draws > 1 else 0.0
    between_chains = chain_means.var(axis=1, ddof=1)
    between = chain_means.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(1 + between / (between_chains + within).mean(axis=0))


def drift(draws: np.ndarray) -> np.ndarray:
    """Return how far the chains move together from the first half of their draws to the second one.

    Chains that begin at nearly the same place, and all move slowly, agree with each other: nested R-hat does not see
    that they are on their way. The difference of the two halves is one number for each chain, with mean zero if the
    draws come from one distribution, and many chains show whether it is. The same is done for the squared distances
    from the mean of all draws, which grow while chains spread.

    Returns shape (parameters,): the larger of both means, in deviations of the draws or of their squared distances.
    Zero where chance explains them, or there are fewer than eight chains or four draws.
    """
    n_chains, n_draws, size = draws.shape
    half = n_draws // 2
    if n_chains < 8 or half < 2:
        return np.zeros(size)
    limit = student.isf(_DRIFT_P / (4 * size), n_chains - 1)
    centred = draws - draws.mean(axis=(0, 1), dtype="float64")
    found = np.zeros(size)
    for values in (centred, centred * centred):
        change = values[:, n_draws - half :].mean(axis=1) - values[:, :half].mean(axis=1)
        mean, deviation = change.mean(axis=0), values.std(axis=(0, 1))
        is_clear = np.abs(mean) > limit * change.std(axis=0, ddof=1) / math.sqrt(n_chains)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.maximum(found, np.where(is_clear, np.abs(mean) / deviation, 0.0))
    return found
