"""Every Op of PyTensor has a probe; probes are right; what docs/coverage.md says is on the device stays there.

A run takes the first probe of each Op, on one driver; PYTENSOR_CL_PROBES=all takes all of them.
`tools/op_coverage.py` runs all on every driver.
"""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import DRIVERS, context_of
from tests.probes.census import ops, title
from tests.probes.survey import BATCH, DEVICE, FAMILIES, PROBES, run_all

PAGE = Path(__file__).parents[1] / "docs" / "coverage.md"
ROW = re.compile(r"^\| `([\w.]+)` \| device \|", re.MULTILINE)


def _chosen(probes):
    if os.environ.get("PYTENSOR_CL_PROBES") == "all":
        return list(probes)
    seen = Counter()
    return [probe for probe in probes if (seen.update([probe.op]), seen[probe.op])[1] == 1]


def _parts():
    """Families in parts of a few functions each, so that they spread over the processes of a test run."""
    size = 3 * BATCH
    for name, probes in FAMILIES.items():
        chosen = _chosen(probes)
        for start in range(0, len(chosen), size):
            yield pytest.param(name, chosen[start : start + size], id=f"{name}-{start // size}")


@pytest.mark.filterwarnings("ignore")  # of Ops that run in Python
@pytest.mark.parametrize(("family", "probes"), _parts())
def test_probes(family, probes, monkeypatch):
    context = context_of(DRIVERS[0])
    if family == "scalar":  # the kernels of GPUs build sooner than vectors, which tests/test_scalar.py has
        monkeypatch.setattr(context, "info", replace(context.info, kind="gpu"))
    outcomes = run_all(probes)
    assert {o.probe.name: o.fault for o in outcomes if o.fault} == {}
    there = {o.probe.op for o in outcomes if o.place == DEVICE}
    promised = {f"pytensor.{name}" for name in ROW.findall(PAGE.read_text())}
    assert {o.probe.name: o.reason for o in outcomes if title(o.probe.op) in promised and o.probe.op not in there} == {}


def test_every_op_has_a_probe():
    assert sorted(title(op) for op in set(ops()) - {probe.op for probe in PROBES}) == []


def test_the_page_has_every_op():
    text = PAGE.read_text()
    assert [title(op) for op in ops() if f"| `{title(op).removeprefix('pytensor.')}` |" not in text] == []
