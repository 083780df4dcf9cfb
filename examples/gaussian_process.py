"""A Gaussian process with noise: the hyperparameters of largest density, by Cholesky on the device.

Needs PyMC 6. The data are simulated, so the true values are known.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import pymc as pm
from pymc_common import DEVICE, HOST, Gradient, agree, gradient_of, start_of
from scipy.optimize import minimize

SEED = 31
TRUTH = {"length": 0.8, "scale": 1.5, "noise": 0.3}
TOLERANCE = 1e-3
"""Relative difference of the maxima that the optimiser finds."""


def simulate(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs of shape (points, 1) and values of shape (points,) drawn from the process."""
    rng = np.random.default_rng(SEED)
    x = np.sort(rng.uniform(0, 10, points))
    distance = (x[:, None] - x) / TRUTH["length"]
    covariance = TRUTH["scale"] ** 2 * np.exp(-(distance**2) / 2) + TRUTH["noise"] ** 2 * np.eye(points)
    return x[:, None], np.linalg.cholesky(covariance) @ rng.standard_normal(points)


def build(x: np.ndarray, y: np.ndarray) -> pm.Model:
    """Return the model: the values of the function are integrated out."""
    with pm.Model() as model:
        length, scale = pm.Gamma("length", 2, 1), pm.HalfNormal("scale", 3)
        noise = pm.HalfNormal("noise", 1)
        process = pm.gp.Marginal(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, ls=length))
        process.marginal_likelihood("y", X=x, y=y, sigma=noise)
    return model


def maximum(model: pm.Model, gradient: Gradient) -> dict[str, float]:
    """Return the hyperparameters where the density of their logarithms, by which PyMC samples, is largest."""
    found = minimize(lambda point: [-part for part in gradient(point)], start_of(model), jac=True, method="L-BFGS-B")
    return dict(zip(TRUTH, np.exp(found.x), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Find the maximum in both modes, print it, and return 1 if the modes do not agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=500)
    options = parser.parse_args(arguments)

    model = build(*simulate(options.points))
    on_device, on_host = gradient_of(model, DEVICE), gradient_of(model, HOST)
    good = agree(model, on_device, on_host)
    ours, theirs = maximum(model, on_device), maximum(model, on_host)
    for name, true in TRUTH.items():
        print(f"{name:8s} {ours[name]:.4f}   mode {HOST} {theirs[name]:.4f}   true {true}")
        good = good and abs(ours[name] - theirs[name]) <= TOLERANCE * theirs[name]
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
