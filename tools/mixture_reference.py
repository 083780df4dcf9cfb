"""Moments of the mixture of tests/pymc/posterior_models.py by importance sampling, for posterior_references.json.

usage: python -m tools.mixture_reference [--draws 1000000] [--seed 0]

Chains enter and leave a part of this posterior so rarely that the errors of long runs are not well known. It has five
parameters: the proposal is a mixture of Student's t distributions, fitted in rounds. The tool prints the effective
sample size of the last round, as a share of its draws, and writes the moments and their standard errors.
"""

import argparse
import json
from typing import NamedTuple

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.special import expit, gammaln, logsumexp

from tests.pymc.posterior_models import MODELS
from tools.reference_posteriors import FILE

FREEDOM = 5
ROUNDS = 7
CLUSTERS = 12


class Component(NamedTuple):
    """A part of the proposal: its share, its centre and the root of its scale matrix."""

    share: float
    centre: np.ndarray
    root: np.ndarray


FIRST = (
    Component(0.8, np.array([-0.8, -1.5, 1.2, -0.35, -0.1]), np.diag([0.4, 0.3, 0.2, 0.3, 0.2])),
    Component(0.2, np.array([0.0, -0.5, 0.8, 0.0, 0.0]), np.diag([2.0, 1.5, 1.0, 0.7, 0.7])),
)


def parameters(points: np.ndarray) -> dict[str, np.ndarray]:
    """Return the parameters of the model by name, at points of the unbounded space."""
    logit, low, log_distance = points[:, 0], points[:, 1], points[:, 2]
    weight = expit(logit)
    return {
        "weights": np.stack([weight, 1 - weight], axis=1),
        "means": np.stack([low, low + np.exp(log_distance)], axis=1),
        "scales": np.exp(points[:, 3:]),
    }


def log_density(points: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the log density in the unbounded space, up to a constant."""
    found = []
    for part in np.array_split(points, max(len(points) // 50_000, 1)):
        named = parameters(part)
        weights, means, scales = (named[name][:, None, :] for name in ("weights", "means", "scales"))
        rows = np.log(weights) - np.log(scales) - 0.5 * ((y[:, None] - means) / scales) ** 2
        # Each Dirichlet(2, 2) share once, and once more for the change of variables; and that of the distance.
        prior = 2 * np.log(named["weights"]).sum(axis=1) + part[:, 2]
        prior -= ((named["means"] - [-1.0, 1.0]) ** 2).sum(axis=1) / 8 + (part[:, 3:] ** 2).sum(axis=1) / 0.5
        found.append(prior + np.logaddexp(rows[..., 0], rows[..., 1]).sum(axis=1))
    return np.concatenate(found)


def observed() -> np.ndarray:
    """Return the data of the model."""
    model = MODELS["mixture"]()
    return np.asarray(model.rvs_to_values[model.observed_RVs[0]].data)


def check(y: np.ndarray) -> None:
    """Raise an AssertionError if the log density is not that of the model."""
    model = MODELS["mixture"]()
    names = [value.name for value in model.value_vars]
    points = FIRST[0].centre + 0.3 * np.random.default_rng(1).normal(size=(6, 5))
    logp = model.compile_logp()
    # PyMC's simplex of two shares has one coordinate, half of the log odds.
    theirs = [
        logp(dict(zip(names, (p[:1] / 2, p[1:3], p[3:]), strict=True)))
        for p in points
    ]  # fmt: skip
    difference = log_density(points, y) - theirs
    np.testing.assert_allclose(difference, difference[0], atol=1e-8)


def draw(components: list[Component], n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of the proposal, and their log densities."""
    shares = np.array([part.share for part in components])
    shares /= shares.sum()
    chosen = rng.choice(len(shares), n, p=shares)
    points = np.empty((n, 5))
    for index, part in enumerate(components):
        count = int((chosen == index).sum())
        scale = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, count))
        points[chosen == index] = part.centre + (rng.normal(size=(count, 5)) * scale[:, None]) @ part.root.T
    logs = [np.log(share) + _log_student(points, part) for share, part in zip(shares, components, strict=True)]
    return points, logsumexp(logs, axis=0)


def _log_student(points: np.ndarray, part: Component) -> np.ndarray:
    size = points.shape[1]
    square = (np.linalg.solve(part.root, (points - part.centre).T) ** 2).sum(axis=0)
    constant = gammaln((FREEDOM + size) / 2) - gammaln(FREEDOM / 2) - 0.5 * size * np.log(FREEDOM * np.pi)
    return constant - np.linalg.slogdet(part.root)[1] - 0.5 * (FREEDOM + size) * np.log1p(square / FREEDOM)


def refined(points: np.ndarray, log_weights: np.ndarray, rng: np.random.Generator) -> list[Component]:
    """Return a proposal from weighted draws; a power of the weights keeps what is rare."""
    weights = np.exp(0.7 * log_weights - logsumexp(0.7 * log_weights))
    kept = points[rng.choice(len(points), 20_000, p=weights)]
    covariance = np.cov(kept.T)
    _, label = kmeans2(kept / kept.std(axis=0), CLUSTERS, minit="++", seed=rng)
    groups = [kept[label == index] for index in range(CLUSTERS)]
    found = [
        Component(
            len(group) / len(kept), group.mean(axis=0), np.linalg.cholesky(1.3 * np.cov(group.T) + 1e-4 * covariance)
        )
        for group in groups
        if len(group) >= 30
    ]
    return [*found, Component(0.05, kept.mean(axis=0), np.linalg.cholesky(4 * covariance))]


def moments(points: np.ndarray, weights: np.ndarray) -> dict[str, dict[str, list[float]]]:
    """Return moments and standard errors as `reference_posteriors.moments` does."""
    found = {}
    for name, values in parameters(points).items():
        mean = weights @ values
        square = (values - mean) ** 2
        variance = weights @ square
        errors = [np.sqrt(weights**2 @ part) for part in (square, (square - variance) ** 2)]
        deviation = np.sqrt(variance)
        found[name] = {
            "mean": mean.tolist(),
            "deviation": deviation.tolist(),
            "mean_error": errors[0].tolist(),
            "deviation_error": (errors[1] / (2 * deviation)).tolist(),
        }
    return found


def main() -> None:
    """Write the moments of the mixture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    y = observed()
    check(y)
    components = list(FIRST)
    for index in range(ROUNDS + 1):
        points, proposal = draw(components, options.draws if index == ROUNDS else 60_000, rng)
        log_weights = log_density(points, y) - proposal
        weights = np.exp(log_weights - logsumexp(log_weights))
        print(f"round {index}: effective {1 / np.sum(weights**2) / len(weights):.1%}", flush=True)
        if index < ROUNDS:
            components = refined(points, log_weights, rng)
    references = json.loads(FILE.read_text())
    references["mixture"] = moments(points, weights)
    FILE.write_text(json.dumps(references, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
