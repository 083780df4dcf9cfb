"""Seconds from a built model to its first value and gradient, in fresh processes, with empty and with filled caches.

usage: python benchmarks/first_calls.py [--driver pocl] [--rounds 1] [--backends numba jax auto forced]
       [--workloads schools slopes scalars gp ar step cnn sampler]

`auto` and `forced` are mode OPENCL with `opencl__placement` auto and device. Each pair of a workload and a backend has
cache folders of its own, which are empty in the first process and as it left them in the second one. Importing PyTensor
and PyMC, and building the model, is not counted. The figures are the least of all rounds: cold / warm.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

BACKENDS = ("numba", "jax", "auto", "forced")
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def _schools() -> Any:
    import pymc as pm

    effects, errors = SCHOOLS
    with pm.Model() as model:
        mu, tau, z = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5), pm.Normal("z", 0, 1, shape=8)
        pm.Normal("y", mu + tau * z, errors, observed=effects)
    return model


def _slopes() -> Any:
    import pymc as pm

    rng = np.random.default_rng(1)
    group, x = np.sort(rng.integers(0, 85, 919)), rng.integers(0, 2, 919).astype("float64")
    with pm.Model() as model:
        means, scales = pm.Normal("means", 0, 5, shape=2), pm.HalfNormal("scales", 1, shape=2)
        level, slope = pm.Normal("level", 0, 1, shape=85), pm.Normal("slope", 0, 1, shape=85)
        mean = (means[0] + scales[0] * level)[group] + (means[1] + scales[1] * slope)[group] * x
        pm.Normal("y", mean, pm.HalfNormal("noise", 1), observed=rng.normal(size=919))
    return model


def _scalars(count: int = 24) -> Any:
    import pymc as pm

    rng = np.random.default_rng(2)
    x = rng.normal(size=(100, count))
    with pm.Model() as model:
        slopes = [pm.Normal(f"slope{i}", 0, 1) for i in range(count)]
        mean = sum(slope * x[:, i] for i, slope in enumerate(slopes))
        pm.Normal("y", mean, 1, observed=rng.normal(size=100))
    return model


def _gp() -> Any:
    import pymc as pm

    x = np.linspace(0, 10, 200)
    y = np.sin(x) + 0.1 * np.random.default_rng(3).normal(size=200)
    with pm.Model() as model:
        length, scale = pm.Gamma("length", 2, 1), pm.HalfNormal("scale", 1)
        process = pm.gp.Marginal(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, length))
        process.marginal_likelihood("y", X=x[:, None], y=y, sigma=pm.HalfNormal("noise", 1))
    return model


def _ar() -> Any:
    import pymc as pm
    import pytensor

    with pm.Model() as model:
        first, second, noise = pm.Normal("first", 0, 1), pm.Normal("second", 0, 1), pm.HalfNormal("noise", 1)
        y = np.random.default_rng(4).normal(size=500)
        predicted = pytensor.scan(
            lambda before, last, a, b: a * last + b * before,
            sequences=[{"input": pytensor.tensor.as_tensor(y), "taps": [-2, -1]}],
            non_sequences=[first, second],
            return_updates=False,
        )
        pm.Normal("y", predicted, noise, observed=y[2:])
    return model


def _gradient_of(build: Callable[[], Any]) -> Callable[[str], Callable[[], Any]]:
    """Return what prepares a first value of the log density of a model and its gradient."""

    def prepare(mode: str) -> Callable[[], Any]:
        from pymc.blocking import DictToArrayBijection

        model = build()
        point = model.initial_point()

        def run() -> Any:
            function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
            function.set_extra_values({})
            return function(DictToArrayBijection.map({value.name: point[value.name] for value in model.value_vars}))

        return run

    return prepare


def _step(mode: str) -> Callable[[], Any]:
    """Return what prepares and takes a training step with momentum of a network of three layers."""
    import pytensor
    import pytensor.tensor as pt

    rng = np.random.default_rng(5)
    sizes = (784, 256, 128, 10)
    x, labels = pt.fmatrix("x"), pt.ivector("labels")
    weights = [pytensor.shared(0.05 * rng.normal(size=s).astype("float32")) for s in pairwise(sizes)]
    biases = [pytensor.shared(np.zeros(size, "float32")) for size in sizes[1:]]
    hidden = scores = x
    for weight, bias in zip(weights, biases, strict=True):
        scores = hidden @ weight + bias
        hidden = pt.tanh(scores)
    loss = -pt.mean(pt.special.log_softmax(scores, axis=1)[pt.arange(labels.shape[0]), labels])
    updates = []
    for parameter in (*weights, *biases):
        velocity = pytensor.shared(np.zeros_like(parameter.get_value()))
        change = np.float32(0.9) * velocity - np.float32(0.01) * pytensor.grad(loss, parameter)
        updates += [(velocity, change), (parameter, parameter + change)]
    images, digits = rng.normal(size=(64, 784)).astype("float32"), rng.integers(0, 10, 64).astype("int32")
    return lambda: np.asarray(pytensor.function([x, labels], loss, updates=updates, mode=mode)(images, digits))


def _cnn(mode: str) -> Callable[[], Any]:
    """Return what prepares and takes a training step of a convolutional network with images of 28 x 28 pixels."""
    from cnn import NETWORKS, opencl_step

    network = NETWORKS["mnist"]
    return lambda: np.asarray(opencl_step(network, mode)(*network.data(64)))


def _sampler(mode: str) -> Callable[[], Any]:
    """Return what draws from the posterior of the eight schools with 64 chains, 10 + 5 iterations."""
    import pytensor_cl.pymc

    model = _schools()
    options = {"chains": 64, "tune": 10, "draws": 5, "progressbar": False, "random_seed": 1}
    return lambda: pytensor_cl.pymc.sample(model, mode=mode, **options)


WORKLOADS: dict[str, Callable[[str], Callable[[], Any]]] = {
    "schools": _gradient_of(_schools),
    "slopes": _gradient_of(_slopes),
    "scalars": _gradient_of(_scalars),
    "gp": _gradient_of(_gp),
    "ar": _gradient_of(_ar),
    "step": _step,
    "cnn": _cnn,
    "sampler": _sampler,
}


def _run_child(workload: str, backend: str) -> None:
    import warnings

    import pytensor

    warnings.simplefilter("ignore")
    if backend in ("auto", "forced"):
        import pytensor_cl  # noqa: F401

        mode = "OPENCL"
    else:
        mode = backend.upper()
    run = WORKLOADS[workload](mode)
    begun = perf_counter()
    run()
    print("seconds", perf_counter() - begun, pytensor.__version__)


def _seconds(workload: str, backend: str, folder: Path, driver: str) -> float:
    """Return the time in a process of its own."""
    flags = [f"base_compiledir={folder / 'pytensor'}"]
    if workload in ("step", "cnn"):
        flags.append("floatX=float32")
    if backend in ("auto", "forced"):
        flags += [f"device=opencl:{driver}", f"opencl__placement={'device' if backend == 'forced' else 'auto'}"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTENSOR_FLAGS": ",".join(flags)}
    command = [sys.executable, __file__, "--child", workload, backend]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.split("seconds ")[1].split()[0])


def _pair(workload: str, backend: str, options: argparse.Namespace) -> str:
    """Return the figures of a workload and a backend as text."""
    pairs = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            pairs.append([_seconds(workload, backend, Path(folder), options.driver) for _ in ("cold", "warm")])
    cold, warm = np.min(pairs, axis=0)
    return f"{cold:.1f} / {warm:.1f}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", default="pocl", help="name of the OpenCL driver; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=["numba", "auto", "forced"])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _run_child(*options.child)
        return
    print(f"{'':10}", *(f"{backend:>14}" for backend in options.backends))
    for workload in options.workloads:
        print(f"{workload:10}", end="", flush=True)
        for backend in options.backends:
            is_left_out = (workload == "sampler" and backend in ("numba", "jax")) or (workload, backend) == (
                "cnn",
                "jax",
            )
            print(f" {'' if is_left_out else _pair(workload, backend, options):>14}", end="", flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
