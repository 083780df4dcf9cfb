"""Draws of each sampler against posteriors that are known exactly; tools/calibration.py does the same with all models."""

import json

import numpy as np
import pytensor
import pytest
import scipy.stats as st

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from xarray import Dataset  # noqa: E402

from pytensor_cl.ops.elemwise import GpuElemwise  # noqa: E402
from pytensor_cl.pymc import sample, sampling  # noqa: E402
from tests.helpers import assert_on_device, on_one_driver  # noqa: E402
from tests.pymc.closed_forms import CASES, p_values  # noqa: E402
from tools.calibration import FILE, FLOATX, LEAST, SAMPLERS, SIMULATIONS  # noqa: E402


@pytest.mark.parametrize(("shift", "scale", "is_found"), [(0, 1, False), (0.1, 1, True), (0, 1.08, True)])
def test_a_bias_is_found(rng, shift, scale, is_found):
    """A tenth of a deviation in the mean, and a twelfth of the deviation, with 4,096 chains."""
    draws = Dataset({"x": (("chain", "draw"), shift + scale * rng.normal(size=(4096, 3)))})
    found = p_values({"x": lambda p: st.norm.cdf(p.x.values)}, draws)
    assert (found["x"] < 1e-4) == is_found


@on_one_driver
@pytest.mark.parametrize(
    ("sampler", "floatx"),
    [("chees", "float32"), ("meads", "float64"), ("nuts", "float32"), ("hmc", "float64"), ("smc", "float32")],
)
def test_draws_have_the_exact_distribution(context, on_device, monkeypatch, sampler, floatx):
    """The first and the last draw of 1,024 chains; two precisions, and each sampler on the device."""
    chains, make = [], sampling._state
    monkeypatch.setattr(sampling, "_state", lambda *args: chains.append(make(*args)) or chains[0])
    with pytensor.config.change_flags(floatX=floatx):
        case = CASES["groups"]()
        found = sample(
            case.model, sampler=sampler, chains=1024, tune=60, draws=4, random_seed=6, progressbar=False
        ).posterior
    assert {value.dtype for value in found.data_vars.values()} == {np.dtype(floatx)}
    assert min(p_values(case.uniforms, found).values()) > 1e-3
    assert_on_device(getattr(chains[0], {"nuts": "evaluate", "meads": "advance"}.get(sampler, "step")), GpuElemwise)


def test_the_stored_table_is_good():
    """A release stores the table; no p value of it is too small."""
    stored = json.loads(FILE.read_text())
    assert set(stored) <= {*CASES, *SIMULATIONS}
    found = {
        (name, floatx, sampler): value
        for name, part in stored.items()
        for floatx, by_sampler in part.items()
        for sampler, value in by_sampler.items()
    }
    assert {key[1:] for key in found} == {(floatx, sampler) for floatx in FLOATX for sampler in SAMPLERS}
    assert all(0 <= value <= 1 for value in found.values())
    assert min(found.values()) >= LEAST
