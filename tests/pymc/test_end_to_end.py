"""PyMC by `compile_kwargs={"mode": "OPENCL"}` or by a flag: the same results as on the CPU for the same seed."""

import os
import subprocess
import sys

import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

pymc = pytest.importorskip("pymc")

from arviz import from_dict  # noqa: E402

from pytensor_cl.linker.run.vm import OpenCLVM  # noqa: E402
from pytensor_cl.ops.base import GpuOp  # noqa: E402
from tests.helpers import ROOT, on_one_driver  # noqa: E402

CPU = Mode("py", RewriteDatabaseQuery(include=["fast_run"], exclude=["fusion", "inplace"]))
SEED = 8
ROWS = 12
X = np.linspace(-1, 2, ROWS)
Y = 0.5 + 1.5 * X + 0.3 * np.cos(9 * X)

pytestmark = pytest.mark.filterwarnings("ignore")  # of short chains


def _model():
    with pymc.Model() as model:
        x, y = pymc.Data("x", X), pymc.Data("y", Y)
        intercept, slope = pymc.Normal("intercept", 0, 2), pymc.Normal("slope", 0, 2)
        noise = pymc.HalfNormal("noise", 1)
        pymc.Normal("observed", intercept + slope * x, noise, observed=y)
    return model


@pytest.fixture
def kernels(monkeypatch):
    """Names of the device Ops of all functions that have run."""
    found, run = set(), OpenCLVM.run

    def spy(vm, *args, **kwargs):
        found.update(type(n.op).__name__ for n in vm.nodes if isinstance(n.op, GpuOp) and n.op.is_compute)
        return run(vm, *args, **kwargs)

    monkeypatch.setattr(OpenCLVM, "run", spy)
    return found


def _both(call):
    """Return what a call with a new model as its context returns in mode OPENCL and on the CPU."""
    results = []
    for mode in ("OPENCL", CPU):
        with _model():
            results.append(call(mode))
    return results


def _assert_same(got, wanted, rtol=1e-6):
    assert set(got.data_vars) == set(wanted.data_vars)
    for name in wanted.data_vars:
        np.testing.assert_allclose(got[name].to_numpy(), wanted[name].to_numpy(), rtol=rtol, atol=rtol)


@on_one_driver
def test_sample(context, on_device, kernels):
    def sample(mode):
        return pymc.sample(
            8, tune=12, chains=2, cores=1, random_seed=SEED, progressbar=False, compute_convergence_checks=False,
            compile_kwargs={"mode": mode},
        )  # fmt: skip

    got, wanted = _both(sample)
    _assert_same(got.posterior, wanted.posterior, rtol=1e-4)  # each step adds to rounding
    assert got.posterior["slope"].shape == (2, 8)
    assert kernels


@on_one_driver
def test_variational_inference_with_minibatches(context, on_device, kernels):
    found = []
    for mode in ("OPENCL", CPU):
        with pymc.Model():
            x, y = pymc.Minibatch(X, Y, batch_size=5)
            slope = pymc.Normal("slope", 0, 2)
            pymc.Normal("observed", slope * x, 0.5, observed=y, total_size=ROWS)
            approximation = pymc.fit(15, random_seed=SEED, progressbar=False, compile_kwargs={"mode": mode})
        found.append((approximation.hist, approximation.params))
    (got, parameters), (wanted, others) = found
    assert len(got) == 15
    np.testing.assert_allclose(got, wanted, rtol=1e-8)
    for one, other in zip(parameters, others, strict=True):
        np.testing.assert_allclose(one.get_value(), other.get_value(), rtol=1e-8)
    assert kernels


@on_one_driver
def test_find_map(context, on_device, kernels):
    got, wanted = _both(lambda mode: pymc.find_MAP(progressbar=False, compile_kwargs={"mode": mode}))
    assert set(got) == set(wanted)
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-6)
    assert kernels


@on_one_driver
def test_predictive_draws_after_new_sizes_of_data(context, on_device):
    def predict(mode):
        prior = pymc.sample_prior_predictive(4, random_seed=SEED, compile_kwargs={"mode": mode})
        pymc.set_data({"x": X[:5], "y": Y[:5]})
        posterior = pymc.sample_posterior_predictive(
            prior.prior, random_seed=SEED, progressbar=False, compile_kwargs={"mode": mode}
        )
        return prior, posterior

    (prior, posterior), (wanted_prior, wanted_posterior) = _both(predict)
    _assert_same(prior.prior, wanted_prior.prior, rtol=1e-12)
    _assert_same(prior.prior_predictive, wanted_prior.prior_predictive, rtol=1e-12)
    assert posterior.posterior_predictive["observed"].shape == (1, 4, 5)
    _assert_same(posterior.posterior_predictive, wanted_posterior.posterior_predictive, rtol=1e-12)


@on_one_driver
def test_one_function_with_data_of_other_sizes(context, on_device, kernels):
    point = {"intercept": 0.3, "slope": 1.0, "noise_log__": -0.5}
    with _model() as model:
        f, reference = (model.compile_logp(mode=mode) for mode in ("OPENCL", CPU))
        for rows in (ROWS, 5, 7, 7):
            pymc.set_data({"x": X[:rows], "y": Y[:rows]})
            np.testing.assert_allclose(f(point), reference(point), rtol=1e-10)
    assert kernels


@on_one_driver
def test_log_likelihood(context, on_device, kernels):
    def likelihood(mode):
        draws = {name: np.linspace(0.2, 1.1, 3)[None] for name in ("intercept", "slope", "noise")}
        return pymc.compute_log_likelihood(
            from_dict({"posterior": draws}), extend_inferencedata=False, progressbar=False,
            compile_kwargs={"mode": mode},
        )  # fmt: skip

    got, wanted = _both(likelihood)
    assert got["observed"].shape == (1, 3, ROWS)
    _assert_same(got, wanted, rtol=1e-10)
    assert kernels


@on_one_driver
def test_float32(context, on_device):
    with pytensor.config.change_flags(floatX="float32", warn_float64="ignore"), pymc.Model() as model:
        x = pymc.Data("x", X.astype("float32"))
        slope, noise = pymc.Normal("slope", 0, 2), pymc.HalfNormal("noise", 1)
        pymc.Normal("observed", slope * x, noise, observed=Y.astype("float32"))
        f, reference = (model.logp_dlogp_function(ravel_inputs=True, mode=mode) for mode in ("OPENCL", CPU))
        point = np.array([0.7, -0.4], "float32")
        for function in (f, reference):
            function.set_extra_values({})
        for got, wanted in zip(f([point]), reference([point]), strict=True):
            assert got.dtype == "float32"
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
    nodes = f._pytensor_function.maker.fgraph.apply_nodes
    device = [n for n in nodes if isinstance(n.op, GpuOp) and n.op.is_compute]
    assert device
    assert not [n for n in device if any(getattr(v.type, "dtype", "") == "float64" for v in (*n.inputs, *n.outputs))]


SCRIPT = """
import numpy as np
import pymc as pm

if __name__ == "__main__":
    x = np.linspace(-1, 2, 12)
    with pm.Model():
        slope, noise = pm.Normal("slope", 0, 2), pm.HalfNormal("noise", 1)
        pm.Normal("y", slope * x, noise, observed=0.4 + x)
        trace = pm.sample(6, tune=6, chains=2, cores=2, mp_ctx="fork", progressbar=False, random_seed=1,
                          compute_convergence_checks=False)
    print("draws", trace.posterior["slope"].shape, bool(np.isfinite(trace.posterior["slope"].to_numpy()).all()))
"""


def test_forked_workers_by_a_flag(tmp_path):
    script = tmp_path / "model.py"
    script.write_text(SCRIPT)
    flags = "device=opencl,cxx=,opencl__select_backend=False"  # NUMBA would compile for seconds
    env = dict(os.environ, PYTENSOR_FLAGS=flags, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "draws (2, 6) True" in done.stdout
