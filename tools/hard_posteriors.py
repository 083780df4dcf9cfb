"""Samplers on models that lose chains, and first draws of funnels: tables of docs/many-chains-checks.md.

usage: python -m tools.hard_posteriors [--models years counts] [--samplers chees nuts] [--chains 128] [--seed 2]
       python -m tools.hard_posteriors --funnels 1 1.5 2 3 [--chains 4096] [--tune 150] [--exact]

The first form samples the models of tests/pymc/hard_models.py. It prints, for each, nested R-hat, the effective sample
size, the drift of all chains, chains that started again in the warm-up, chains that are lost at the end, and the
largest difference from the exact moments in Monte Carlo standard errors (nan where they are not known).

The second form samples log scales with these deviations, and six normal variables of that scale, without data. It
prints the differences of the mean and of the variance of the log scale in the first draws of all chains, in standard
errors. The chains start at PyMC's starting points: a warm-up that is too short for them shows as well. With --exact
they start at draws of the funnel, as in tests/pymc/test_first_draws.py, and 24 iterations of warm-up follow: what is
wrong then is the sampler.
"""

import argparse
import warnings
from typing import Any

import numpy as np

SAMPLERS = ("chees", "meads", "hmc", "nuts")
"""Without "smc": it starts at draws of the prior, and a funnel without data is one."""


def _hard(options: argparse.Namespace) -> None:
    from pytensor_cl.pymc import sample
    from tests.pymc.hard_models import MODELS, worst_difference

    for name in options.models or MODELS:
        for sampler in options.samplers:
            model, exact = MODELS[name]()
            found = sample(
                model,
                sampler=sampler,
                chains=options.chains,
                tune=options.tune,
                draws=100,
                random_seed=options.seed,
                progressbar=False,
            ).posterior
            attrs = found.attrs
            error = worst_difference(found, exact) if exact else np.nan
            seconds = attrs["tuning_time"] + attrs["sampling_time"]
            print(
                f"{name} {sampler}: rhat={attrs['nested_rhat_max']:.3f} drift={attrs['drift_max']:.2f} "
                f"ess={attrs['ess_bulk_min']:.0f} restarted={attrs['restarted_chains']} "
                f"lost={len(attrs['lost_chains'])} error={error:.1f} seconds={seconds:.0f}",
                flush=True,
            )


def _funnel(deviation: float) -> Any:
    import pymc as pm

    with pm.Model() as model:
        v = pm.Normal("v", 0, deviation)
        pm.Normal("x", 0, pm.math.exp(v / 2), shape=6)
    return model


def _funnels(options: argparse.Namespace) -> None:
    from pytensor_cl.pymc import sample

    for deviation in options.funnels:
        for sampler in options.samplers:
            found = sample(
                _funnel(deviation),
                sampler=sampler,
                chains=options.chains,
                tune=options.tune,
                draws=4,
                random_seed=options.seed,
                progressbar=False,
            ).posterior
            _print_errors(deviation, sampler, found.v.values[:, 0])


def _exact_funnels(options: argparse.Namespace) -> None:
    from tests.pymc.test_first_draws import TUNE, funnel, started

    for deviation in options.funnels:
        for sampler in options.samplers:
            chains, moves = started(sampler, funnel(deviation), deviation, options.chains)
            for _ in range(TUNE + 1):
                moves.iterate()
            _print_errors(deviation, sampler, np.asarray(chains.positions()[0], "float64"))


def _print_errors(deviation: float, sampler: str, v: np.ndarray) -> None:
    first = v / deviation
    mean = first.mean() * np.sqrt(first.size)
    variance = (first.var() - 1) * np.sqrt(first.size / 2)
    print(f"funnel {deviation} {sampler}: mean={mean:.1f} variance={variance:.1f}", flush=True)


def main() -> None:
    """Print a line for each model, or funnel, and sampler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--funnels", nargs="*", type=float, default=[])
    parser.add_argument("--exact", action="store_true", help="start at draws of the funnel")
    parser.add_argument("--samplers", nargs="*", default=SAMPLERS)
    parser.add_argument("--chains", type=int, default=128)
    parser.add_argument("--tune", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    tabulate = (_exact_funnels if options.exact else _funnels) if options.funnels else _hard
    tabulate(options)


if __name__ == "__main__":
    main()
