"""Every Op of PyTensor has a probe; probes are right; the Ops that docs/coverage.md lists on the device run there.

A run takes the first probe of each Op, and every random draw, on one driver; PYTENSOR_CL_PROBES=all takes all.
`tools/op_coverage.py` runs all on every driver.

A release of PyTensor may bring new Ops. They run on the host, so a missing probe or row is no defect of an installation:
these tests are skipped with the list of them. With PYTENSOR_CL_STRICT_COVERAGE=1, as in CI, they fail, if the installed
PyTensor is the one that ci/constraints.txt pins.
"""

import os
import re
from collections import Counter
from dataclasses import replace
from itertools import groupby

import pytensor
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pytensor_cl import explain
from tests.conftest import DRIVERS, context_of
from tests.helpers import CHECKOUT, opencl, run_script
from tests.probes.census import ops, title
from tests.probes.survey import BATCH, DEVICE, FAMILIES, PROBES, run_all

PAGE = CHECKOUT / "docs" / "coverage.md"
CONSTRAINTS = CHECKOUT / "ci" / "constraints.txt"
ROW = re.compile(r"^\| `([\w.]+)` \| device \|", re.MULTILINE)


def _chosen(family, probes):
    # Whether a draw runs on the device depends on its parameters too.
    if family == "draws" or os.environ.get("PYTENSOR_CL_PROBES") == "all":
        return list(probes)
    seen = Counter()
    return [probe for probe in probes if (seen.update([probe.op]), seen[probe.op])[1] == 1]


def _parts():
    """Families in parts of a few functions each, so that they spread over the processes of a test run."""
    size = 3 * BATCH
    for name, probes in FAMILIES.items():
        parts = [[]]
        # An Op's probes stay together: one of them on the device is enough.
        for _, same in groupby(sorted(_chosen(name, probes), key=lambda p: title(p.op)), key=lambda p: p.op):
            if len(parts[-1]) >= size:
                parts.append([])
            parts[-1].extend(same)
        for number, part in enumerate(parts):
            yield pytest.param(name, part, id=f"{name}-{number}")


@pytest.mark.filterwarnings("ignore")  # of Ops that run in Python
@pytest.mark.parametrize(("family", "probes"), list(_parts()))
def test_probes(family, probes, monkeypatch):
    context = context_of(DRIVERS[0])
    if family == "scalar":  # the kernels of GPUs build sooner than vectors, which tests/scalar/test_scalar.py has
        monkeypatch.setattr(context, "info", replace(context.info, kind="gpu"))
    outcomes = run_all(probes)
    assert {o.probe.name: o.fault for o in outcomes if o.fault} == {}
    there = {o.probe.op for o in outcomes if o.place == DEVICE}
    promised = {f"pytensor.{name}" for name in ROW.findall(PAGE.read_text())}
    assert {o.probe.name: o.reason for o in outcomes if title(o.probe.op) in promised and o.probe.op not in there} == {}


def _pinned():
    """The version of PyTensor that CI pins; empty where the file is not there, as in an installed package."""
    text = CONSTRAINTS.read_text() if CONSTRAINTS.exists() else ""
    return "".join(re.findall(r"^pytensor==(\S+)$", text, re.MULTILINE))


def _report(names, lack):
    """Fail in CI with the pinned PyTensor if there are names; skip with the list anywhere else."""
    if not names:
        return
    text = f"PyTensor {pytensor.__version__} has Ops without {lack}, which may run on the host: {', '.join(names)}"
    is_strict = os.environ.get("PYTENSOR_CL_STRICT_COVERAGE") == "1" and pytensor.__version__ == _pinned()
    (pytest.fail if is_strict else pytest.skip)(text)


def _without_probe():
    return sorted(title(op) for op in set(ops()) - {probe.op for probe in PROBES})


def _without_row():
    text = PAGE.read_text()
    return [title(op) for op in ops() if f"| `{title(op).removeprefix('pytensor.')}` |" not in text]


def test_every_op_has_a_probe():
    _report(_without_probe(), "a probe")


def test_the_page_has_every_op():
    _report(_without_row(), "a row in docs/coverage.md")


def test_the_page_is_of_the_pinned_version():
    assert f"Which Ops of PyTensor {_pinned()} run" in PAGE.read_text()


def test_the_list_of_ops_compiles_nothing(tmp_path):
    """The first run on a machine has no C code of PyTensor's linkers yet, and need not have a compiler."""
    script = """
    from tests.probes.census import ops
    seen["ops"] = len(ops())
    """
    seen, _ = run_script(script, f"base_compiledir={tmp_path},cxx=", PYTHONPATH=str(CHECKOUT))
    assert seen["ops"] > 300


class Invented(Op):
    """Stands for an Op of a later PyTensor."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] * 3


@pytest.fixture
def invented(monkeypatch):
    """An Op of PyTensor that this project has never seen."""
    monkeypatch.setattr(Invented, "__module__", "pytensor.tensor.invented")
    return Invented()


@pytest.mark.usefixtures("invented")
@pytest.mark.parametrize(
    ("strict", "version", "outcome"),
    [
        pytest.param("1", "3.3.8", pytest.fail.Exception, id="CI"),
        pytest.param("1", "3.3.99", pytest.skip.Exception, id="newer PyTensor in CI"),
        pytest.param("", "3.3.8", pytest.skip.Exception, id="user"),
    ],
)
@pytest.mark.parametrize(("found", "lack"), [(_without_probe, "probe"), (_without_row, "row")])
def test_a_new_op_is_reported(strict, version, outcome, found, lack, monkeypatch, tmp_path):
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("pytensor==3.3.8\n")
    monkeypatch.setattr("tests.test_coverage.CONSTRAINTS", constraints)
    monkeypatch.setenv("PYTENSOR_CL_STRICT_COVERAGE", strict)
    monkeypatch.setattr(pytensor, "__version__", version)
    with pytest.raises(outcome, match=rf"{lack}.*pytensor\.tensor\.invented\.Invented"):
        _report(found(), f"a {lack}")


@pytest.mark.usefixtures("on_device")
def test_a_new_op_runs_on_the_host_with_a_reason(context, invented):
    x = pytensor.tensor.fvector("x")
    f = opencl([x], pytensor.tensor.exp(invented(x * 2)))
    assert {str(n.op): n.reason for n in explain(f).host_nodes} == {"Invented": "no OpenCL kernel for Invented yet"}
    assert [str(n.op) for n in explain(f).device_nodes] == ["GpuMul", "GpuExp"]
    assert f([0.5, 0]) == pytest.approx([20.0855, 1], rel=1e-4)


def test_the_headline_counts_every_op():
    """All rows, on the device or not; it is no share of a part."""
    text = PAGE.read_text()
    places = re.findall(r"^\| `[\w.]+` \| (device|host) \|", text, re.MULTILINE)
    count, total = places.count("device"), len(places)
    assert f"| **all Ops** | {count} | {total} | {100 * count / total:.0f} % |" in text
    parts = re.findall(r"^\| [^`*|]+ \| (\d+) \| (\d+) \| \d+ % \|$", text, re.MULTILINE)
    assert [sum(map(int, column)) for column in zip(*parts, strict=True)] == [count, total]
