"""PyTensor's own pictures show device Ops and transfers in colours of their own."""

import sys
from types import ModuleType

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import printing
from pytensor.d3viz import formatting

from pytensor_cl._compat.printing import register_colours
from pytensor_cl.linker.reports.page import OP_COLOURS
from tests.helpers import opencl


class Recorded:
    """Stand-in for a node, an edge or a graph of pydot: it keeps what it is given."""

    def __init__(self, *names, **attributes):
        self.names, self.attributes, self.nodes = names, attributes, []

    def add_node(self, node):
        self.nodes.append(node)

    def add_edge(self, edge):
        """Nothing."""

    def get_attributes(self):
        return self.attributes

    def write(self, *_, **__):
        """Nothing."""


@pytest.fixture
def pydot(monkeypatch):
    """A module with the classes of pydot, which needs the program dot."""
    module = ModuleType("pydot")
    module.InvocationException = RuntimeError
    module.Node = module.Edge = module.Dot = module.Cluster = Recorded
    for owner in (printing, formatting):
        monkeypatch.setattr(owner, "_try_pydot_import", lambda: module)
    monkeypatch.setitem(sys.modules, "pydot", module)
    return module


@pytest.fixture
def f(context):
    with pytensor.config.change_flags(opencl__placement="device"):
        x = pt.fmatrix("x")
        return opencl([x], pt.exp(x).sum(axis=0) + 1)


def test_d3viz(f, pydot):
    graph = formatting.PyDotFormatter()(f)
    colours = {n.attributes["label"]: n.attributes.get("fillcolor") for n in graph.nodes if "apply_op" in n.attributes}
    assert colours.pop("GpuFromHost") == colours.pop("HostFromGpu") == OP_COLOURS["GpuFromHost"]
    assert colours and set(colours.values()) == {OP_COLOURS["Gpu"]}


def test_pydotprint(f, pydot, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(pydot, "Dot", lambda *a, **k: made.append(Recorded(*a, **k)) or made[-1])
    printing.pydotprint(f, outfile=tmp_path / "f.png", print_output_file=False)
    fills = {n.attributes.get("fillcolor") for n in made[0].nodes}
    assert {OP_COLOURS["Gpu"], OP_COLOURS["GpuFromHost"]} <= fills


def test_registering_again_changes_nothing():
    before = dict(printing.default_colorCodes)
    register_colours(OP_COLOURS)
    assert printing.default_colorCodes == before and before["Gpu"] == OP_COLOURS["Gpu"]
    assert "Scan" in before and list(before)[-4:] == list(OP_COLOURS)
