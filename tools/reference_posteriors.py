"""Means and deviations of the models of tests/pymc/posterior_models.py, by long runs of PyMC's NUTS.

usage: python -m tools.reference_posteriors [--models radon lkj] [--draws 5000] [--check chees hmc smc] [--chains 256]

Without --check it writes tests/pymc/posterior_references.json. With --check it runs `pytensor_cl.pymc.sample` with each
of the samplers, and prints the largest difference of means and of deviations in Monte Carlo standard errors.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tests.pymc.posterior_models import MODELS

FILE = Path(__file__).parents[1] / "tests" / "pymc" / "posterior_references.json"
_PARTS = 64
"""Fewest parts whose means are compared: chains, and parts of them where there are less."""


def moments(posterior: Any) -> dict[str, dict[str, list[float]]]:
    """Return the mean, the deviation, and their Monte Carlo standard errors of each parameter, by variable.

    Parameters
    ----------
    posterior
        A dataset with dimensions chain and draw.
    """
    found = {}
    for name, values in posterior.data_vars.items():
        flat = np.asarray(values, "float64").reshape(*values.shape[:2], -1)
        mean, deviation = flat.mean(axis=(0, 1)), flat.std(axis=(0, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            deviation_error = np.where(deviation > 0, _error_of_mean((flat - mean) ** 2) / (2 * deviation), 0.0)
        found[str(name)] = {
            "mean": mean.tolist(),
            "deviation": deviation.tolist(),
            "mean_error": _error_of_mean(flat).tolist(),
            "deviation_error": deviation_error.tolist(),
        }
    return found


def _error_of_mean(draws: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean of each parameter, from means of parts that are nearly independent.

    An effective sample size of ranks is too large where rare draws far away, which follow each other, make most of the
    variance: the error of the deviation of the mixture's first mean is 2.4 times what it says.
    """
    parts = -(-_PARTS // len(draws))
    length = draws.shape[1] // parts
    means = draws[:, : parts * length].reshape(len(draws) * parts, length, -1).mean(axis=1)
    return means.std(axis=0, ddof=1) / np.sqrt(len(means))


def differences(found: dict[str, Any], reference: dict[str, Any]) -> dict[str, float]:
    """Return the largest difference of means, and of deviations, in standard errors, and where the first is.

    Parameters
    ----------
    found, reference
        The two results of `moments`.
    """
    worst = {"mean": 0.0, "deviation": 0.0}
    for name, expected in reference.items():
        for kind in worst:
            values = [np.asarray(part[kind]) for part in (found[name], expected)]
            errors = [np.asarray(part[f"{kind}_error"]) for part in (found[name], expected)]
            # A number that is the same in all draws, such as the diagonal of a correlation matrix, has no error.
            scale = np.hypot(*errors) + 1e-9 * (1 + np.abs(values[1]))
            worst[kind] = max(worst[kind], float(np.max(np.abs(values[0] - values[1]) / scale)))
    return worst


def _reference(name: str, draws: int) -> dict[str, Any]:
    import pymc as pm

    with MODELS[name]():
        found = pm.sample(
            draws,
            tune=2000,
            chains=4,
            cores=1,
            target_accept=0.97,
            random_seed=1,
            nuts_sampler="pymc",
            progressbar=False,
        )
    print(name, "NUTS divergences", int(found.sample_stats.diverging.sum()), file=sys.stderr, flush=True)
    return moments(found.posterior)


def _check(name: str, sampler: str, chains: int) -> None:
    from pytensor_cl.pymc import sample

    begun = perf_counter()
    model = MODELS[name]()
    found = sample(model, sampler=sampler, chains=chains, draws=100, tune=200, random_seed=2, progressbar=False)
    attrs = found.posterior.attrs
    worst = differences(moments(found.posterior), json.loads(FILE.read_text())[name])
    figures = {**worst, "ess": attrs["ess_bulk_min"], "rhat": attrs["nested_rhat_max"]}
    text = " ".join(f"{key}={value:.2f}" for key, value in figures.items())
    seconds = perf_counter() - begun
    print(f"{name} {sampler}: {text} divergences={attrs['divergences']} seconds={seconds:.0f}", flush=True)


def main() -> None:
    """Write the references, or compare with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--check", nargs="*", default=[])
    parser.add_argument("--chains", type=int, default=256)
    options = parser.parse_args()
    warnings.simplefilter("default", UserWarning)
    for name in options.models:
        for sampler in options.check:
            try:
                _check(name, sampler, options.chains)
            except Exception as error:
                print(f"{name} {sampler}: {type(error).__name__}: {error}", flush=True)
        if not options.check:
            references = json.loads(FILE.read_text()) if FILE.exists() else {}
            references[name] = _reference(name, options.draws)
            FILE.write_text(json.dumps(references, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
