"""Count the kernels and launches of one call on a GPU, without one: with a driver that computes nothing.

usage: python -m tools.launch_counts [name ...] [--kernels] [--write docs/gpu.md]

A row has the kernels of a captured call, the launches that run them, and the longest chain of kernels of which each
depends on the one before: no order needs fewer launches. The device is `record.DEVICES["h200"]`; sizes decide how
kernels divide their work, so they are those of docs/gpu.md, but for arrays that only differ in length. Names choose the
functions whose names contain one of them. --kernels prints each launch.
"""

import argparse
import atexit
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.compile_tables import record

BEGIN, END = "<!-- table launches: begin -->", "<!-- table launches: end -->"
CALLS = 8  # after so many one has been captured


class Count(NamedTuple):
    """The kernels of a call, its launches, and the longest chain of kernels."""

    kernels: int
    launches: int
    chain: int
    names: list[list[str]]  # each launch's kernel and NDRange


Function = tuple[Callable[..., Any], list[Any]]


def _workloads() -> Iterator[tuple[str, Callable[[], Function]]]:
    """Yield the workloads of the benchmarks that are models, and steps of an optimizer."""
    workloads = {w.name: w for w in record.benchmark("workloads").WORKLOADS}
    worker = record.benchmark("worker")
    cases = record.benchmark("gpu_cases")
    for name, workload in workloads.items():
        if workload.family == "models":
            yield name, lambda workload=workload: _of_workload(worker, workload)
    for case in cases.CASES:
        if case.name.startswith(
            ("softmax cross", "layer norm, g", "adam", "scatter-add", "attention 8", "product of f")
        ):
            yield case.name, lambda case=case: _of_case(worker, case)


def _function(variables: list[Any], results: list[Any]) -> Any:
    import pytensor

    import pytensor_cl

    kinds = [pytensor_cl.GpuArrayType(v.type.dtype, v.type.shape, "dev0")() for v in variables]
    given = dict(zip(variables, map(pytensor_cl.host_from_gpu, kinds), strict=True))
    return pytensor.function(kinds, [r.transfer("dev0") for r in results], mode="OPENCL", givens=given)


def _placed(arrays: list[np.ndarray]) -> list[Any]:
    from pytensor_cl.runtime.registry import get_context

    return [get_context("dev0").from_host(np.asarray(a)) for a in arrays]


def _of_workload(worker: Any, workload: Any) -> Function:
    arrays = workload.make(np.random.default_rng(0), 4.0)
    return _function(*worker.PyTensor("").graph(workload, arrays)), _placed(arrays)


def _backend(worker: Any) -> Any:
    """Return what the cases of the GPU benchmarks need of a backend."""
    import pytensor

    def function(variables: list[Any], results: list[Any], updates: Any = None) -> Any:
        if updates is None:
            return _function(variables, results)
        return pytensor.function([], [], mode="OPENCL", updates=updates)

    backend = worker.PyTensor("")
    backend.function = function
    return backend


def _of_case(worker: Any, case: Any) -> Function:
    arrays = case.make(np.random.default_rng(0), 1.0)
    made = case.makers["opencl"](_backend(worker), arrays)
    return (made.run, []) if case.is_stateful else (made, _placed(arrays))


def _pymc_models() -> Iterator[tuple[str, Callable[[], Function]]]:
    """Yield gradients of PyMC models, in float64, with positions of the host; none without PyMC."""
    try:
        import pymc as pm
    except ImportError:
        return

    def walk(rng: np.random.Generator) -> None:
        s, nu = pm.Exponential("s", 10), pm.Exponential("nu", 0.1)
        h = pm.GaussianRandomWalk("h", sigma=s, init_dist=pm.Normal.dist(0, 10), steps=999)
        pm.StudentT("y", nu=nu, lam=pm.math.exp(-2 * h), observed=rng.normal(size=1000))

    def counts(rng: np.random.Generator) -> None:
        i, j = rng.integers(0, 50, 2000), rng.integers(0, 30, 2000)
        si, sj, a = pm.HalfNormal("si", 1), pm.HalfNormal("sj", 1), pm.Normal("a", 0, 2)
        zi, zj = pm.Normal("zi", 0, 1, shape=50), pm.Normal("zj", 0, 1, shape=30)
        pm.Poisson("y", pm.math.exp(a + si * zi[i] + sj * zj[j]), observed=rng.poisson(3, 2000))

    def covariance(rng: np.random.Generator) -> None:
        chol, _, _ = pm.LKJCholeskyCov("c", n=3, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=3))
        pm.MvNormal("y", pm.Normal("mu", 0, 1, shape=3), chol=chol, observed=rng.normal(size=(1000, 3)))

    def mixture(rng: np.random.Generator) -> None:
        w, s = pm.Dirichlet("w", np.ones(3)), pm.HalfNormal("s", 1, shape=3)
        pm.NormalMixture("y", w, pm.Normal("mu", 0, 5, shape=3), sigma=s, observed=rng.normal(size=5000))

    def inflated(rng: np.random.Generator) -> None:
        b, x = pm.Normal("b", 0, 1, shape=2), rng.normal(size=1000)
        mu = pm.math.exp(b[0] + b[1] * x)
        pm.ZeroInflatedPoisson("y", pm.Beta("p", 1, 1), mu, observed=rng.poisson(2, 1000))

    def horseshoe(rng: np.random.Generator) -> None:
        tau, lam = pm.HalfCauchy("tau", 1), pm.HalfCauchy("lam", 1, shape=100)
        c2, z = pm.InverseGamma("c2", 2, 2), pm.Normal("z", 0, 1, shape=100)
        b = z * tau * lam * pm.math.sqrt(c2 / (c2 + tau**2 * lam**2))
        x = rng.normal(size=(300, 100))
        pm.Normal("y", x @ b, pm.HalfNormal("s", 1), observed=rng.normal(size=300))

    models = {
        "stochastic volatility": walk,
        "Poisson of two factors": counts,
        "covariance of three": covariance,
        "mixture of three": mixture,
        "zero-inflated Poisson": inflated,
        "horseshoe": horseshoe,
    }
    for name, define in models.items():
        yield f"PyMC: {name}, gradient", lambda define=define: _of_model(pm, define)


def _of_model(pm: Any, define: Callable[[np.random.Generator], None]) -> Function:
    with pm.Model() as model:
        define(np.random.default_rng(0))
    made = model.logp_dlogp_function(ravel_inputs=True, mode="OPENCL")
    made.set_extra_values({})
    return made._pytensor_function, [np.concatenate([np.ravel(x) for x in model.initial_point().values()])]


def cases() -> Iterator[tuple[str, Callable[[], Function]]]:
    """Yield names of functions, and what makes them and their arguments."""
    yield from _workloads()
    yield from _pymc_models()


def count(call: Callable[..., Any], arguments: list[Any]) -> Count:
    """Capture a call and count its launches."""
    from pytensor_cl.linker.run import graph_cache

    captured: list[Any] = []
    build = graph_cache.build_graph

    def noted(program: Any, values: Any, slices: Any, trace: Any) -> Any:
        graph = build(program, values, slices, trace)
        captured.append((trace, graph))
        return graph

    graph_cache.build_graph = noted
    try:
        for _ in range(CALLS):
            if not captured:
                call(*arguments)
    finally:
        graph_cache.build_graph = build
    if not captured:
        raise RuntimeError("the call was not captured")
    names = [list(sequence) for _, graph in captured for sequence in _launches(graph)]
    return Count(
        sum(graph.kernels for _, graph in captured),
        sum(graph.launches for _, graph in captured),
        sum(_chain(trace) for trace, _ in captured),
        names,
    )


def _launches(graph: Any) -> Iterator[list[str]]:
    """Yield the name and the NDRange of each launch."""
    for step in graph.sequences:
        for kernel, *sizes in step.sequence._enqueues:
            yield [kernel.function_name, *map(str, sizes)]


def _chain(trace: Any) -> int:
    """Return the number of kernels in the longest chain."""
    launcher = trace.context.launcher
    read: dict[Any, int] = {}
    written: dict[Any, int] = {}
    longest = 0
    for launch in (launch for launches in trace.launches for launch in launches):
        used = [
            (getattr(memory, "number", None) or memory.int_ptr, mode)
            for memory, mode in zip(launch.arguments, launcher.access_modes(launch), strict=True)
            if mode != "v" and memory is not None
        ]
        before = [written.get(key, 0) for key, _ in used] + [read.get(key, 0) for key, mode in used if mode == "w"]
        level = 1 + max(before, default=0)
        for key, mode in used:
            last = written if mode == "w" else read
            last[key] = max(last.get(key, 0), level)
        longest = max(longest, level)
    return longest


def table(counts: dict[str, Count]) -> str:
    """Return the table of the page."""
    head = ["| function | kernels | launches | longest chain |", "| --- | ---: | ---: | ---: |"]
    return "\n".join((*head, *(f"| {name} | {c.kernels} | {c.launches} | {c.chain} |" for name, c in counts.items())))


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # else the name "opencl" would be that of another device afterwards
        atexit.unregister(record.install(Path(folder), "h200").finish)
        import pytensor

        pytensor.config.opencl__placement = "device"
        counts = {}
        for name, make in cases():
            if options.names and not any(part in name for part in options.names):
                continue
            counts[name] = found = count(*make())
            print(f"{name}: {found.kernels} kernels, {found.launches} launches, chain {found.chain}", flush=True)
            for launch in found.names if options.kernels else ():
                print("   ", *launch)
    if options.write:
        made = f"{BEGIN}\n{table(counts)}\n{END}"
        text = options.write.read_text()
        options.write.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: made, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
