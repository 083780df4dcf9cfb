"""Posteriors of many chains against those of long NUTS runs, whose moments are in posterior_references.json."""

import json
import os

import numpy as np
import pytest

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from xarray import Dataset  # noqa: E402

from pytensor_cl.pymc import sample  # noqa: E402
from tests.helpers import on_one_driver  # noqa: E402
from tests.pymc.posterior_models import MODELS  # noqa: E402
from tools.reference_posteriors import FILE, differences, moments  # noqa: E402

REFERENCES = json.loads(FILE.read_text())
CHEAP = (("simplex-order", "chees"), ("missing", "chees"), ("lkj", "meads"), ("radon", "smc"))
EVERY = [(name, sampler) for name in MODELS for sampler in ("chees", "meads", "hmc")]


def test_each_model_has_a_reference():
    assert set(REFERENCES) == set(MODELS)


@pytest.mark.parametrize("shape", [(128, 100), (4, 3200)])
def test_errors_of_moments(rng, shape):
    """The errors of a mean and a deviation are right where few draws, which follow each other, make the variance."""
    chains, draws = shape
    found = []
    for _ in range(60):
        far = np.empty(shape, bool)
        far[:, 0] = rng.random(chains) < 0.02
        for t in range(1, draws):
            far[:, t] = rng.random(chains) < np.where(far[:, t - 1], 0.951, 0.001)
        values = rng.normal(size=shape) + 6 * far
        found.append(moments(Dataset({"x": (("chain", "draw"), values)}))["x"])
    for kind in ("mean", "deviation"):
        value, error = (np.array([each[name][0] for each in found]) for name in (kind, f"{kind}_error"))
        assert 0.75 < value.std() / error.mean() < 1.35


@on_one_driver
@pytest.mark.parametrize(("name", "sampler"), EVERY if os.environ.get("PYTENSOR_CL_SWEEPS") == "all" else CHEAP)
def test_posterior(context, name, sampler):
    """Means and deviations of all parameters are those of NUTS, within Monte Carlo error."""
    model = MODELS[name]()
    found = sample(
        model, sampler=sampler, chains=128, draws=40, tune=150, target_accept=None if sampler == "meads" else 0.8,
        random_seed=4, progressbar=False,
    )  # fmt: skip
    assert set(found.posterior.data_vars) == set(REFERENCES[name])
    assert found.posterior.attrs["nested_rhat_max"] < 1.1
    worst = differences(moments(found.posterior), REFERENCES[name])
    # The largest of up to two hundred differences.
    assert worst["mean"] < 4.5, worst
    assert worst["deviation"] < 5.5, worst
