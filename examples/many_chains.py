"""Eight schools with hundreds of chains that advance together on the device, beside PyMC's NUTS on the host.

Needs PyMC 6. A plot of ranks and traces is saved if matplotlib is installed.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pymc as pm
from arviz_stats import ess
from pymc_common import DEVICE, HOST, gradient_of

import pytensor_cl.pymc

SEED = 8
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
TOLERANCE = 4.5
"""Monte Carlo standard errors, for each of ten means."""


def build() -> pm.Model:
    """Return the model, not centred: the schools' effects are standard normal numbers, shifted and scaled."""
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, ERRORS, observed=EFFECTS, dims="school")
    return model


def compare(ours, theirs) -> float:
    """Print the means of both posteriors; return the largest difference in Monte Carlo standard errors."""
    worst = 0.0
    for name in ("mu", "tau", "theta"):
        size = 0.0  # squared standard error of the difference
        for posterior in (ours, theirs):
            draws = posterior[name]
            size = size + draws.var(["chain", "draw"]) / ess(posterior, var_names=[name])[name]
        mine, other = (np.atleast_1d(posterior[name].mean(["chain", "draw"])) for posterior in (ours, theirs))
        errors = np.atleast_1d(np.sqrt(size))
        for at, (a, b, error) in enumerate(zip(mine, other, errors, strict=True)):
            label = f"theta[{'ABCDEFGH'[at]}]" if name == "theta" else name
            print(f"{label:9s} {a:6.2f}  NUTS {b:6.2f}   difference {abs(a - b) / error:.1f} standard errors")
            worst = max(worst, abs(a - b) / error)
    return worst


def save_figure(path: Path, posterior) -> None:
    """Save ranks and traces of `mu` and `tau`: ranks of chains that mix are uniform."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 6), layout="constrained")
    for (left, right), name in zip(axes, ("mu", "tau"), strict=True):
        draws = posterior[name].to_numpy()
        ranks = draws.ravel().argsort().argsort().reshape(draws.shape)
        group = len(draws) // 8  # a histogram for each eighth of the chains
        for at in range(0, 8 * group, group):
            left.hist(ranks[at : at + group].ravel(), bins=20, histtype="step")
        left.set(title=f"ranks of {name}, eight groups of chains", yticks=[])
        right.plot(draws[:16].T, linewidth=0.7)
        right.set(title=f"traces of {name}, 16 chains", xlabel="draw")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"figure: {path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample with both, print what was found, and return 1 if the means differ by more than chance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=256, help="on the device")
    parser.add_argument("--draws", type=int, default=100, help="of each chain on the device; NUTS draws ten times that")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the figure (default: this one)")
    options = parser.parse_args(arguments)

    model = build()
    gradient_of(model, DEVICE)  # prints where its nodes run
    with model:
        ours = pytensor_cl.pymc.sample(
            chains=options.chains, tune=100, draws=options.draws, random_seed=SEED, progressbar=False
        ).posterior
        theirs = pm.sample(
            10 * options.draws,
            chains=4,
            cores=1,
            random_seed=SEED,
            target_accept=0.95,
            nuts_sampler="pymc",
            compile_kwargs={"mode": HOST},
            progressbar=False,
        ).posterior
    attrs = ours.attrs
    smallest = min(float(ess(theirs, var_names=[name])[name].min()) for name in ("mu", "tau", "z"))
    for title, count, rate in (
        (f"{options.chains} chains", attrs["ess_bulk_min"], attrs["ess_per_second"]),
        ("NUTS, 4 chains", smallest, smallest / theirs.attrs["sampling_time"]),
    ):
        print(f"{title}: {count:.0f} effective draws, {rate:.0f} a second (with warm-up, without compilation)")
    print(f"divergences {attrs['divergences']}, nested R-hat {attrs['nested_rhat_max']:.3f}")
    if find_spec("matplotlib"):
        save_figure(options.out / "many_chains.png", ours)
    worst = compare(ours, theirs)
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
