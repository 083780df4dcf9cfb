"""Densities of PyMC's distributions, and all of it on the device; `tools/distribution_grid.py` runs every case."""

import pytest

pm = pytest.importorskip("pymc")

from tests.helpers import on_one_driver  # noqa: E402
from tests.pymc.distributions import CASES, LEFT_OUT  # noqa: E402
from tests.pymc.grid import run  # noqa: E402

SLICE = (
    ("Normal", "logp"),
    ("Bernoulli", "icdf"),
    ("Exponential", "logcdf"),
    ("VonMises", "float32"),
    ("NormalMixture", "batched"),
)


def test_every_distribution_has_a_case():
    known = {case.distribution for case in CASES} | set(LEFT_OUT)
    missing = set(pm.distributions.__all__) - known
    if missing:
        pytest.skip(f"PyMC {pm.__version__} has distributions without a case: {sorted(missing)}")


@pytest.mark.filterwarnings("ignore")
@on_one_driver
@pytest.mark.parametrize(("name", "kind"), SLICE, ids=lambda part: part.replace(" ", "-"))
def test_density_on_the_device(context, name, kind):
    outcome = run(next(case for case in CASES if case.name == name), kind)
    assert outcome.fault == ""
    assert not outcome.missing
    quantity, gradient = outcome.on_host
    assert quantity == ()
    assert gradient in ((), None)
    assert outcome.wide == ()
