"""What the examples with PyMC share: a model's gradient as a function, its time, and where its nodes run."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor

import pytensor_cl.pymc

DEVICE, HOST = "OPENCL", "NUMBA"
FIRST = ("Scan", "Cholesky", "Solve")
"""Kinds of nodes that are printed before others."""
TOLERANCE = 4.0
"""Posterior standard deviations."""
Gradient = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


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


def recovers(model: pm.Model, truth: Mapping[str, Any], chains: int, tune: int, draws: int, seed: int) -> bool:
    """Sample on the device, print posterior means, and return whether they are near the truth.

    Near is within `TOLERANCE` posterior standard deviations, for each element of each variable in `truth`.
    """
    found = pytensor_cl.pymc.sample(
        model, chains=chains, tune=tune, draws=draws, random_seed=seed, progressbar=False
    ).posterior
    print(f"{found.attrs['ess_bulk_min']:.0f} effective draws, {found.attrs['ess_per_second']:.0f} a second")
    good = True
    for name, value in truth.items():
        values = found[name]
        mean, deviation = (part.to_numpy() for part in (values.mean(["chain", "draw"]), values.std(["chain", "draw"])))
        print(f"{name:11s} {np.round(mean, 2)} +- {np.round(deviation, 2)}   true {value}")
        good = good and bool(np.all(np.abs(mean - np.asarray(value)) <= TOLERANCE * deviation))
    return good
