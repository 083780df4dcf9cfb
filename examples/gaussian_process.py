"""A Gaussian process with noise: the hyperparameters of largest density, by Cholesky on the device.

Needs PyMC 6. The data are simulated, so the true values are known.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pymc as pm
from pymc_common import DEVICE, HOST, Gradient, agree, gradient_of, out_argument, save_figure, start_of
from scipy.optimize import minimize

SEED = 31
TRUTH = {"length": 0.8, "scale": 1.5, "noise": 0.3}
TOLERANCE = 1e-3
"""Relative difference of the maxima that the optimiser finds."""


def covariance(a: np.ndarray, b: np.ndarray, length: float, scale: float) -> np.ndarray:
    """Return the covariance of the function at two sets of inputs."""
    return scale**2 * np.exp(-(((a[:, None] - b) / length) ** 2) / 2)


def simulate(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs of shape (points, 1) and values of shape (points,) drawn from the process."""
    rng = np.random.default_rng(SEED)
    x = np.sort(rng.uniform(0, 10, points))
    of_values = covariance(x, x, TRUTH["length"], TRUTH["scale"]) + TRUTH["noise"] ** 2 * np.eye(points)
    return x[:, None], np.linalg.cholesky(of_values) @ rng.standard_normal(points)


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


def save_prediction(path: Path, x: np.ndarray, y: np.ndarray, found: dict[str, float]) -> None:
    """Save a figure of the values, and of the function with two standard deviations."""
    import matplotlib.pyplot as plt

    length, scale, noise = found.values()
    at = np.linspace(x.min() - 0.5, x.max() + 0.5, 300)
    across = covariance(at, x[:, 0], length, scale)
    weights = np.linalg.solve(covariance(x[:, 0], x[:, 0], length, scale) + noise**2 * np.eye(len(y)), across.T).T
    mean, deviation = weights @ y, np.sqrt(np.maximum(scale**2 - (weights * across).sum(axis=1), 0))
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    axes.plot(x[:, 0], y, ".", markersize=4, alpha=0.5, label="values")
    axes.plot(at, mean, label="function, mean")
    axes.fill_between(at, mean - 2 * deviation, mean + 2 * deviation, alpha=0.3, label="two standard deviations")
    axes.legend()
    save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Find the maximum in both modes, print it, and return 1 if the modes do not agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=500)
    out_argument(parser)
    options = parser.parse_args(arguments)

    x, y = simulate(options.points)
    model = build(x, y)
    on_device, on_host = gradient_of(model, DEVICE), gradient_of(model, HOST)
    good = agree(model, on_device, on_host)
    ours, theirs = maximum(model, on_device), maximum(model, on_host)
    for name, true in TRUTH.items():
        print(f"{name:8s} {ours[name]:.4f}   mode {HOST} {theirs[name]:.4f}   true {true}")
        good = good and abs(ours[name] - theirs[name]) <= TOLERANCE * theirs[name]
    if find_spec("matplotlib"):
        save_prediction(options.out / "gaussian_process.png", x, y, ours)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
