"""Functions that the examples with PyMC share: gradients, their times and nodes, and comparisons of posteriors."""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from arviz_stats import ess

import pytensor_cl.pymc

DEVICE, HOST = "OPENCL", "NUMBA"
FIRST = ("Scan", "Cholesky", "Solve")
"""Kinds of nodes that are printed before others."""
TOLERANCE = 4.0
"""Posterior standard deviations."""
ERRORS = 4.5
"""Monte Carlo standard errors by which two posterior means may differ."""
Gradient = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Picture(NamedTuple):
    """The contents of the figure of simulated data: the name of its file, the data, and their title."""

    name: str
    series: np.ndarray
    title: str


def gradient_of(model: pm.Model, mode: str) -> Gradient:
    """Return a function of the raveled free variables: the log-probability and its gradient.

    In mode OPENCL it runs on the device, and the numbers of its nodes are printed. Without the flag that is changed
    here, the fastest backend is selected, which is NUMBA for small models.
    """
    with pytensor.config.change_flags(opencl__select_backend=mode != DEVICE):
        function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
        function.set_extra_values({})
        function([start_of(model)])  # compiles
    if mode == DEVICE:
        print_nodes(function._pytensor_function)
    return lambda point: function([point])


def start_of(model: pm.Model) -> np.ndarray:
    """Return PyMC's starting point, raveled."""
    values = model.initial_point()
    return np.concatenate([np.ravel(values[value.name]) for value in model.value_vars]).astype(float)


def print_nodes(function: Callable) -> None:
    """Print how many nodes run on the device and on the host, and of which kinds they are."""
    report = pytensor_cl.explain(function)
    for place, nodes in ("device", report.device_nodes), ("host", report.host_nodes):
        kinds = Counter(type(node.op).__name__ for node in nodes).most_common()
        kinds = sorted(kinds, key=lambda kind: not any(word in kind[0] for word in FIRST))[:6]
        print(f"nodes on the {place}: {len(nodes)}", ", ".join(f"{count} {name}" for name, count in kinds), sep="  ")


def seconds_of(call: Callable[[], object], least: float = 0.2) -> float:
    """Return the time of a call: the best of five rounds, each of about `least` seconds."""
    start = time.perf_counter()
    call()
    repeats = 1 + int(least / (time.perf_counter() - start))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        times.append((time.perf_counter() - start) / repeats)
    return min(times)


def agree(model: pm.Model, on_device: Gradient, on_host: Gradient, tolerance: float = 1e-8) -> bool:
    """Print the times of gradients; return whether they agree at three points, relative to the largest entry."""
    start = start_of(model)
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(3):
        point = start + 0.1 * rng.standard_normal(start.size)
        for mine, theirs in zip(on_device(point), on_host(point), strict=True):
            scale = max(float(np.max(np.abs(theirs))), 1.0)
            worst = max(worst, float(np.max(np.abs(mine - theirs))) / scale)
    device, host = (1e6 * seconds_of(lambda f=f: f(start)) for f in (on_device, on_host))
    print(f"log-probability and gradient: {DEVICE} {device:.1f} us, {HOST} {host:.1f} us")
    print(f"largest relative difference: {worst:.1e} (tolerance {tolerance:g})")
    return worst <= tolerance


def recovers(
    model: pm.Model, truth: Mapping[str, Any], options: argparse.Namespace, tune: int, seed: int, picture: Picture
) -> bool:
    """Sample on the device, print posterior means, and return whether they are near the truth.

    Near is within `TOLERANCE` posterior standard deviations, for each element of each variable in `truth`. A figure of
    the series and of both is saved if matplotlib is installed.
    """
    found = pytensor_cl.pymc.sample(
        model, chains=options.chains, tune=tune, draws=options.draws, random_seed=seed, progressbar=False
    ).posterior
    print(f"{found.attrs['ess_bulk_min']:.0f} effective draws, {found.attrs['ess_per_second']:.0f} a second")
    good = True
    for name, value in truth.items():
        values = found[name]
        mean, deviation = (part.to_numpy() for part in (values.mean(["chain", "draw"]), values.std(["chain", "draw"])))
        print(f"{name:11s} {np.round(mean, 2)} +- {np.round(deviation, 2)}   true {value}")
        good = good and bool(np.all(np.abs(mean - np.asarray(value)) <= TOLERANCE * deviation))
    if find_spec("matplotlib"):
        _save_recovered(options.out / picture.name, picture, found, truth)
    return good


def _save_recovered(path: Path, picture: Picture, found: Any, truth: Mapping[str, Any]) -> None:
    """Save the series above the posterior of each variable, with a line at each true value."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(10, 5.5), layout="constrained")
    above, below = figure.subfigures(2, 1)
    series = above.subplots()
    series.plot(picture.series, ".-", linewidth=0.6, markersize=3)
    series.set(title=picture.title)
    for plot, (name, value) in zip(below.subplots(1, len(truth)), truth.items(), strict=True):
        draws = found[name].to_numpy()
        for column, true in zip(draws.reshape(-1, np.size(value)).T, np.ravel(value), strict=True):
            plot.hist(column, bins=60, density=True, alpha=0.6)
            plot.axvline(true, color="black", linewidth=1)
        plot.set(title=f"{name}: posterior, and the true value", yticks=[])
    save_figure(figure, path)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib, and print where."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"figure: {path}")


def out_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says where the figure goes."""
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the figure (default: this one)")


def sampling_arguments(description: str | None, chains: int = 256, draws: int = 100) -> argparse.ArgumentParser:
    """Return a parser of the arguments of examples that sample twice."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--chains", type=int, default=chains, help="on the device; 0: the gradients alone")
    parser.add_argument("--tune", type=int, default=150, help="steps of warm-up")
    parser.add_argument("--draws", type=int, default=draws, help="of each chain on the device")
    parser.add_argument("--nuts-draws", type=int, default=1000, help="of each of two chains on the host")
    parser.add_argument("--nuts", nargs="+", default=["pymc"], help="samplers to compare with: pymc, numpyro, blackjax")
    out_argument(parser)
    return parser


def same_posterior(model: pm.Model, names: Sequence[str], options: argparse.Namespace, figure: str, seed: int) -> bool:
    """Sample on the device with many chains and on the host with NUTS; return whether posterior means are equal.

    Equal is within `ERRORS` Monte Carlo standard errors, for each element of the variables in `names`. A figure of
    both posteriors is saved if matplotlib is installed.
    """
    with model:
        ours = pytensor_cl.pymc.sample(
            chains=options.chains, tune=options.tune, draws=options.draws, random_seed=seed, progressbar=False
        ).posterior
    print_rate(f"{options.chains} chains", ours.attrs["ess_bulk_min"], ours.attrs["ess_per_second"])
    worst = 0.0
    for sampler in options.nuts:
        theirs = host_posterior(model, sampler, options, seed)
        smallest = min(float(ess(theirs, var_names=[name])[name].min()) for name in names)
        print_rate(f"NUTS of {sampler}, 2 chains", smallest, smallest / theirs.attrs["sampling_time"])
        worst = max(worst, *(_compare_means(name, ours, theirs) for name in names))
        if sampler == options.nuts[0] and find_spec("matplotlib"):
            _save_posteriors(options.out / figure, ours, theirs, names)
    return worst <= ERRORS


def host_posterior(model: pm.Model, sampler: str, options: argparse.Namespace, seed: int) -> Any:
    """Return draws of two chains by PyMC's NUTS, in mode NUMBA, or by that of a library on JAX."""
    with model:
        return pm.sample(
            options.nuts_draws,
            tune=max(300, options.tune),
            chains=2,
            cores=1,
            random_seed=seed,
            nuts={"target_accept": 0.9},
            nuts_sampler=sampler,
            compile_kwargs={"mode": HOST} if sampler == "pymc" else None,
            progressbar=False,
        ).posterior


def print_rate(title: str, count: float, rate: float) -> None:
    """Print how many effective draws there are, and how many per second.

    The time has the warm-up, and no compilation except that of samplers on JAX.
    """
    print(f"{title}: {count:.0f} effective draws, {rate:.0f} a second with warm-up")


def compare(model: pm.Model, names: Sequence[str], options: argparse.Namespace, figure: str, seed: int) -> int:
    """Compare gradients, and posteriors unless there are no chains; return the exit code: 1 if they do not agree."""
    good = agree(model, gradient_of(model, DEVICE), gradient_of(model, HOST))
    if options.chains:
        good = same_posterior(model, names, options, figure, seed) and good
    return int(not good)


def _compare_means(name: str, ours: Any, theirs: Any) -> float:
    """Print the means of a variable in both posteriors; return the largest difference in standard errors."""
    squared = sum(
        posterior[name].var(["chain", "draw"]) / ess(posterior, var_names=[name])[name] for posterior in (ours, theirs)
    )
    mine, other = (posterior[name].mean(["chain", "draw"]).to_numpy() for posterior in (ours, theirs))
    worst = float(np.max(np.abs(mine - other) / np.sqrt(np.asarray(squared))))
    print(f"{name:11s} {np.round(mine, 3)}  NUTS {np.round(other, 3)}   largest difference {worst:.1f} standard errors")
    return worst


def _save_posteriors(path: Path, ours: Any, theirs: Any, names: Sequence[str]) -> None:
    """Save, for each variable, traces of four chains, ranks of eight groups of chains, and densities of both."""
    import matplotlib.pyplot as plt

    size = (15, 2.4 * len(names))
    figure, axes = plt.subplots(len(names), 3, figsize=size, layout="constrained", squeeze=False)
    for (left, middle, right), name in zip(axes, names, strict=True):
        draws = ours[name].to_numpy().reshape(*ours[name].shape[:2], -1)
        first = draws[..., 0]
        left.plot(first[:4].T, linewidth=0.7)
        left.set(title=f"traces of {name}, four chains")
        ranks = first.ravel().argsort().argsort().reshape(first.shape)
        for group in np.array_split(ranks, 8):
            middle.hist(group.ravel(), bins=20, histtype="step")
        middle.set(title=f"ranks of {name}, eight groups of chains", yticks=[])
        for at in range(draws.shape[-1]):
            right.hist(draws[..., at].ravel(), bins=60, density=True, alpha=0.5)
        for column in theirs[name].to_numpy().reshape(-1, draws.shape[-1]).T:
            right.hist(column, bins=60, density=True, histtype="step", color="black", linewidth=0.7)
        right.set(title=f"{name}: device (filled), NUTS (lines)", yticks=[])
    save_figure(figure, path)
