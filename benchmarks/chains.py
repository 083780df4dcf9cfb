"""Effective draws per second of samplers with many chains, by turns with those of blackjax, numpyro and nutpie.

usage: PYTENSOR_FLAGS=device=opencl:pocl python benchmarks/chains.py [--model logistic] [--chains 256] [--tune 100]
       [--draws 100] [--rounds 3] [--samplers chees meads] [--jax-python PATH] [--blackjax chees meads]
       [--numpyro nuts] [--nutpie] [--trees device] [--gradient [--numba]]

Each run is a process of its own. The figure is the smallest bulk effective sample size of all parameters, divided by
the seconds of warm-up and draws; compilation is not part of them (each sampler runs once before, with the same
shapes). PATH is a Python with jax, blackjax, optax and numpyro, in float64.

For this sampler and nutpie the same number is also divided by the processor time of all threads (per_processor_second):
other work on the machine changes that less.

With --nutpie, nutpie samples the same PyMC model with its defaults (PyMC's environment must have it).

With --trees device or --trees host, "nuts" has its trees there; with --trees both, by turns.

With --gradient, the time of one gradient of all chains is measured instead: that of a leapfrog step here, that of
`jax.vmap` of `jax.value_and_grad`, which blackjax and numpyro evaluate, and with --numba that of the same leapfrog step
in mode NUMBA. Ten are computed before the host waits.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np


class Data(NamedTuple):
    """Data of a model: a design matrix or a covariate, outcomes, and groups."""

    x: np.ndarray
    y: np.ndarray
    group: np.ndarray | None = None


def _logistic(rows: int, columns: int) -> Data:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns))
    slopes = 0.3 * rng.normal(size=columns)
    return Data(x, (rng.random(rows) < 1 / (1 + np.exp(-x @ slopes))).astype("int64"))


def _schools() -> Data:
    return Data(np.array([15.0, 10, 16, 11, 9, 11, 10, 18]), np.array([28.0, 8, -3, 7, -1, 1, 18, 12]))


def _slopes() -> Data:
    rng = np.random.default_rng(1)
    group = np.sort(rng.integers(0, 85, 919))
    x = rng.integers(0, 2, 919).astype("float64")
    level, slope = 1.5 + 0.3 * rng.normal(size=85), -0.7 + 0.3 * rng.normal(size=85)
    return Data(x, level[group] + slope[group] * x + 0.75 * rng.normal(size=919), group)


DATA: dict[str, Callable[[], Data]] = {
    "logistic": lambda: _logistic(20_000, 50),
    "logistic-small": lambda: _logistic(2_000, 20),
    "slopes": _slopes,
    "schools": _schools,
}
GRADIENTS = 10
"""Gradients that are computed before the host waits."""


def _pymc_model(data: Data) -> Any:
    import pymc as pm

    with pm.Model() as model:
        if data.x.ndim == 1 and data.group is None:
            mu, tau, z = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5), pm.Normal("z", 0, 1, shape=8)
            pm.Normal("y", mu + tau * z, data.x, observed=data.y)
            return model
        if data.group is None:
            beta = pm.Normal("beta", 0, 1, shape=data.x.shape[1])
            pm.Bernoulli("y", logit_p=pm.math.dot(data.x, beta), observed=data.y)
            return model
        means = pm.Normal("means", 0, 5, shape=2)
        scales = pm.HalfNormal("scales", 1, shape=2)
        noise = pm.HalfNormal("noise", 1)
        level = pm.Normal("level", 0, 1, shape=85)
        slope = pm.Normal("slope", 0, 1, shape=85)
        mean = (means[0] + scales[0] * level)[data.group] + (means[1] + scales[1] * slope)[data.group] * data.x
        pm.Normal("y", mean, noise, observed=data.y)
    return model


def _jax_density(data: Data) -> tuple[Callable[[Any], Any], int]:
    """Return the log density of a flat position, and the number of parameters."""
    import jax.numpy as jnp
    from jax.nn import softplus

    x, y = jnp.asarray(data.x), jnp.asarray(data.y)
    if data.x.ndim == 1 and data.group is None:

        def schools(q: Any) -> Any:
            mu, log_tau, z = q[0], q[1], q[2:]
            tau = jnp.exp(log_tau)
            prior = -0.5 * (mu / 5) ** 2 - jnp.log1p((tau / 5) ** 2) + log_tau - 0.5 * (z**2).sum()
            return prior - 0.5 * (((y - mu - tau * z) / x) ** 2).sum()

        return schools, 10
    if data.group is None:
        return lambda q: -0.5 * (q**2).sum() - jnp.where(y == 1, softplus(-(x @ q)), softplus(x @ q)).sum(), x.shape[1]
    group = jnp.asarray(data.group)

    def density(q: Any) -> Any:
        means, logs, level, slope = q[:2], q[2:5], q[5:90], q[90:]
        scales = jnp.exp(logs)
        mean = (means[0] + scales[0] * level)[group] + (means[1] + scales[1] * slope)[group] * x
        prior = -0.5 * ((means / 5) ** 2).sum() - 0.5 * (scales**2).sum() + logs.sum()
        prior -= 0.5 * (level**2).sum() + 0.5 * (slope**2).sum()
        return prior - 0.5 * (((y - mean) / scales[2]) ** 2).sum() - y.size * logs[2]

    return density, 175


def _run_jax(options: argparse.Namespace) -> dict[str, Any]:
    import jax

    jax.config.update("jax_enable_x64", True)
    density, size = _jax_density(DATA[options.model]())
    if options.gradient:
        gradient = jax.jit(jax.vmap(jax.value_and_grad(density)))
        positions = jax.numpy.asarray(0.1 * np.random.default_rng(1).normal(size=(options.chains, size)))

        def evaluate() -> None:
            for _ in range(GRADIENTS):
                found = gradient(positions)
            jax.block_until_ready(found)

        return _time_gradient(evaluate, options)
    if options.child == "numpyro":
        return _run_numpyro(density, size, options)
    import blackjax

    @jax.jit
    def run(key: Any, start: Any) -> Any:
        warm_key, draw_key = jax.random.split(key)
        states, step = _blackjax_warm_up(blackjax, density, warm_key, start, options)
        step = jax.vmap(step)

        def one(states: Any, key: Any) -> Any:
            states, info = step(jax.random.split(key, options.chains), states)
            return states, (states.position, getattr(info, "num_integration_steps", 1))

        return jax.lax.scan(one, states, jax.random.split(draw_key, options.draws))[1]

    start = jax.random.uniform(jax.random.key(3), (options.chains, size), minval=-1, maxval=1)
    jax.block_until_ready(run(jax.random.key(99), start))
    begin = perf_counter()
    draws, steps = jax.block_until_ready(run(jax.random.key(options.seed), start))
    seconds = perf_counter() - begin
    np.save(options.file, np.asarray(draws).swapaxes(0, 1))
    return {"seconds": seconds, "steps": float(np.mean(steps))}


def _run_numpyro(density: Callable[[Any], Any], size: int, options: argparse.Namespace) -> dict[str, Any]:
    import jax
    from numpyro.infer import HMC, MCMC, NUTS

    kernel = {"nuts": NUTS, "hmc": HMC}[options.sampler](potential_fn=lambda q: -density(q))
    chains = MCMC(
        kernel,
        num_warmup=options.tune,
        num_samples=options.draws,
        num_chains=options.chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    start = jax.random.uniform(jax.random.key(3), (options.chains, size), minval=-1, maxval=1)
    seconds = 0.0
    for seed in (99, options.seed):  # the first run compiles
        begin = perf_counter()
        chains.run(jax.random.key(seed), init_params=start, extra_fields=("num_steps",))
        draws = jax.block_until_ready(chains.get_samples(group_by_chain=True))
        seconds = perf_counter() - begin
    np.save(options.file, np.asarray(draws))
    return {"seconds": seconds, "steps": float(np.mean(chains.get_extra_fields()["num_steps"]))}


def _blackjax_warm_up(blackjax: Any, density: Any, key: Any, start: Any, options: argparse.Namespace) -> Any:
    if options.sampler == "meads":
        warm = blackjax.meads_adaptation(density, options.chains)
        (states, parameters), _ = warm.run(key, start, options.tune)
        return states, blackjax.ghmc(density, **parameters).step
    import optax

    warm = blackjax.chees_adaptation(density, options.chains, mass_matrix_estimation="diagonal")
    (states, parameters), _ = warm.run(key, start, 0.1, optax.adam(0.05, b1=0.0, b2=0.95), options.tune)
    return states, blackjax.dynamic_hmc(density, **parameters).step


def _run_pymc(options: argparse.Namespace) -> dict[str, Any]:
    import warnings

    import pytensor_cl
    from pytensor_cl.pymc import sample
    from pytensor_cl.pymc.density import ModelDensity
    from pytensor_cl.pymc.hamiltonian import Hamiltonian

    warnings.simplefilter("ignore")
    model = _pymc_model(DATA[options.model]())
    if options.gradient:
        density = ModelDensity(model, {name: np.shape(value) for name, value in model.initial_point().items()})
        chains = Hamiltonian(density, options.chains, 1, "NUMBA" if options.child == "numba" else "OPENCL")
        rng = np.random.default_rng(1)
        chains.set_positions([0.1 * rng.normal(size=(options.chains, *shape)) for shape in density.shapes])
        chains.begin(1e-6)

        def evaluate() -> None:
            for _ in range(GRADIENTS):
                chains.step(1e-6)
            pytensor_cl.sync()

        return _time_gradient(evaluate, options)
    for tune, draws in ((6, 4), (options.tune, options.draws)):  # the first run builds the kernels
        times: list[float] = []
        found = sample(
            model,
            chains=options.chains,
            tune=tune,
            draws=draws,
            sampler=options.sampler,
            trees=options.trees or None,
            random_seed=options.seed,
            progressbar=False,
            callback=lambda record, times=times: times.append(process_time()),
        )
    _save_draws(found.posterior, options.file)
    attrs = found.posterior.attrs
    return {
        "seconds": attrs["tuning_time"] + attrs["sampling_time"],
        "steps": float(found.sample_stats.n_steps.mean()),
        "compile": attrs["compile_time"],
        # The first time is that after the first iteration.
        "processor": (times[-1] - times[0]) * len(times) / (len(times) - 1),
    }


def _save_draws(posterior: Any, file: str) -> None:
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    flat = [posterior[name].values.reshape(chains, draws, -1) for name in posterior.data_vars]
    np.save(file, np.concatenate(flat, axis=2))


def _run_nutpie(options: argparse.Namespace) -> dict[str, Any]:
    import nutpie

    begin = perf_counter()
    compiled = nutpie.compile_pymc_model(_pymc_model(DATA[options.model]()))
    compile_seconds = perf_counter() - begin
    nutpie.sample(compiled, draws=10, tune=10, progress_bar=False, seed=0)
    begin, begin_processor = perf_counter(), process_time()
    found = nutpie.sample(compiled, progress_bar=False, seed=options.seed)
    seconds, processor = perf_counter() - begin, process_time() - begin_processor
    _save_draws(found.posterior, options.file)
    steps = float(found.sample_stats.n_steps.mean())
    return {"seconds": seconds, "steps": steps, "compile": compile_seconds, "processor": processor}


def _time_gradient(evaluate: Callable[[], None], options: argparse.Namespace) -> dict[str, Any]:
    seconds = []
    for _ in range(30):
        begin = perf_counter()
        evaluate()
        seconds.append(perf_counter() - begin)
    scale = 1e6 / options.chains / GRADIENTS
    return {"us_per_chain": min(seconds[5:]) * scale, "median": median(seconds[5:]) * scale}


def _child(python: str, kind: str, sampler: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run a sampler in a process of its own, and return its figures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "draws.npy"
        command = [python, __file__, "--child", kind, "--sampler", sampler, "--seed", str(seed), "--file", str(file)]
        for name in ("model", "chains", "tune", "draws"):
            command += [f"--{name}", str(getattr(options, name))]
        name, _, trees = sampler.partition(" ")
        command[command.index("--sampler") + 1] = name
        command += ["--trees", trees] if trees else []
        command += ["--gradient"] if options.gradient else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        figures = json.loads(done.stdout.splitlines()[-1])
        if not options.gradient:
            from pytensor_cl.pymc.diagnostics import bulk_ess

            figures["ess"] = float(np.min(bulk_ess(np.load(file))))
            figures["per_second"] = figures["ess"] / figures["seconds"]
            if "processor" in figures:
                figures["per_processor_second"] = figures["ess"] / figures["processor"]
        return figures


CHILDREN = {"pymc": _run_pymc, "numba": _run_pymc, "jax": _run_jax, "numpyro": _run_jax, "nutpie": _run_nutpie}
"""The functions that run in a process of their own."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=DATA, default="logistic-small")
    for name, default in (("chains", 256), ("tune", 100), ("draws", 100), ("rounds", 3), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--samplers", nargs="*", default=["chees"])
    parser.add_argument("--blackjax", nargs="*", default=["chees"])
    parser.add_argument("--numpyro", nargs="*", default=[], choices=("nuts", "hmc"))
    parser.add_argument("--nutpie", action="store_true", help="nutpie too, with its defaults")
    parser.add_argument("--numba", action="store_true", help="with --gradient: mode NUMBA too")
    parser.add_argument("--trees", choices=("device", "host", "both"), default="", help="where NUTS has its trees")
    parser.add_argument("--jax-python", default="")
    parser.add_argument("--gradient", action="store_true")
    parser.add_argument("--child", choices=tuple(CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--sampler", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    return parser


def main() -> None:
    """Print one line for each sampler."""
    options = _parser().parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options)))
        return
    has_jax = bool(options.jax_python)
    if options.gradient:
        runs = [(sys.executable, "pymc", "gradient")]
        runs += [(sys.executable, "numba", "gradient")] * options.numba
        runs += [(options.jax_python, "jax", "gradient")] * has_jax
    else:
        places = {"": [""], "both": [" host", " device"]}.get(options.trees, [f" {options.trees}"])
        named = [name + place for name in options.samplers for place in (places if name == "nuts" else [""])]
        runs = [(sys.executable, "pymc", name) for name in named]
        runs += [(options.jax_python, "jax", name) for name in options.blackjax if has_jax]
        runs += [(options.jax_python, "numpyro", name) for name in options.numpyro if has_jax]
        runs += [(sys.executable, "nutpie", "nuts")] * options.nutpie
    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for seed in range(options.rounds):
        for python, kind, sampler in runs:
            figures = _child(python, kind, sampler, options.seed + seed, options)
            results.setdefault((kind, sampler), []).append(figures)
            print(kind, sampler, {name: round(value, 3) for name, value in figures.items()}, file=sys.stderr)
    for (kind, sampler), figures in results.items():
        title = {"pymc": "pytensor_cl", "jax": "jax" if options.gradient else "blackjax"}.get(kind, kind)
        print(title, sampler, *(f"{key}={median(f[key] for f in figures):.4g}" for key in figures[0]))


if __name__ == "__main__":
    main()
