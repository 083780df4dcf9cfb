"""Random programs on the device against the Python code of each Op.

``PYTENSOR_CL_EXAMPLES=5000`` runs that many for each family, placement and driver, new ones each time; a failing test prints
its seed, and ``PYTENSOR_CL_SEED=<n>`` repeats it.
"""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.compare import run
from tests.differential.strategies import FAMILIES, programs

EXAMPLES = int(os.environ.get("PYTENSOR_CL_EXAMPLES", "0"))
FEW = 3  # the first is the simplest one
_COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
QUICK = settings(max_examples=FEW, derandomize=True, phases=(Phase.generate,), **_COMMON)
LONG = settings(max_examples=EXAMPLES or FEW, print_blob=True, **_COMMON)


def _seed():
    chosen = os.environ.get("PYTENSOR_CL_SEED", "random")
    return int(np.random.SeedSequence().entropy % 2**32) if chosen == "random" else int(chosen)


def _check(family, placement):
    @given(programs(family))
    def check(program):
        wrong = run(program, placement)
        assert wrong is None, wrong

    if not EXAMPLES:
        return QUICK(check)
    number = _seed()
    print(f"{family}, {placement}: PYTENSOR_CL_SEED={number}")  # noqa: T201
    return seed(number)(LONG(check))


@pytest.mark.parametrize("placement", ["device", "auto"] if EXAMPLES else ["device"])
@pytest.mark.parametrize("family", FAMILIES)
def test_programs(context, family, placement):
    _check(family, placement)()
