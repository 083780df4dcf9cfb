"""The graph that a backend of the host may run: when it is copied, and which graphs have none."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.ops.transfer import gpu_from_host, host_from_gpu
from pytensor_cl.rewriting.host_graph.graph import (
    CUSTOM_REWRITES,
    HAS_DEVICE_VALUES,
    PLACEMENT_NOT_AUTO,
    SELECTION_OFF,
    HostGraph,
    OpenCLState,
    check_host_backends,
    host_graph_of,
    keep_for_copies,
    keep_host_graph,
)

x = pt.vector("x", dtype="float64")


@pytest.fixture(autouse=True)
def _adaptive():
    with pytensor.config.change_flags(opencl__select_backend=True):
        yield


def _of(outputs, mode="OPENCL"):
    return host_graph_of(pytensor.function([x], outputs, mode=mode).maker.fgraph)


def test_it_is_copied_in_canonical_form(context):
    cost = (pt.exp(x * 1.0 + 0.0) * 2 / 2).sum()
    found = _of([cost, pytensor.grad(cost, x)])
    assert isinstance(found, HostGraph)
    assert not found.numba_excluded
    kinds = {str(getattr(n.op, "scalar_op", n.op)) for n in found.graph.apply_nodes}
    assert not {"second", "Second", "mul", "Mul", "true_div"} & kinds, kinds
    assert not any("opencl" in str(type(n.op)).lower() or str(n.op).startswith("Gpu") for n in found.graph.apply_nodes)


def test_a_graph_that_names_a_device_has_none_though_rewrites_cut_its_transfers(context):
    assert _of(host_from_gpu(gpu_from_host(x, context.name)) + 1) == HAS_DEVICE_VALUES


def test_a_graph_that_was_checked_and_not_kept_has_none():
    fgraph = FunctionGraph([x], [x + 1])
    keep_host_graph(fgraph)
    assert host_graph_of(fgraph) == PLACEMENT_NOT_AUTO
    check_host_backends(fgraph, "auto", select_backend=True)
    assert host_graph_of(fgraph) == CUSTOM_REWRITES


def test_copies_of_a_graph_have_the_host_graph():
    fgraph = FunctionGraph([x], [x + 1])
    check_host_backends(fgraph, "auto", select_backend=False)
    assert host_graph_of(fgraph.clone()) == SELECTION_OFF
    without_features, _ = fgraph.clone_get_equiv(attach_feature=False)
    assert host_graph_of(without_features) == PLACEMENT_NOT_AUTO
    keep_for_copies(fgraph)
    without_features, _ = fgraph.clone_get_equiv(attach_feature=False)
    assert host_graph_of(without_features) == SELECTION_OFF
    assert len([f for f in without_features._features if isinstance(f, OpenCLState)]) == 1


def test_without_canonical_form_it_is_copied_all_the_same(context):
    mode = pytensor.compile.mode.Mode(
        OpenCLLinker(), RewriteDatabaseQuery(include=["fast_compile"], exclude=["canonicalize"])
    )
    f = pytensor.function([x], pt.exp(x) + 0.0, mode=mode)
    assert isinstance(host_graph_of(f.maker.fgraph), HostGraph)
    np.testing.assert_allclose(f(np.ones(3)), np.full(3, np.e))


def test_graphs_inside_stay_where_nothing_in_them_needs_a_check(context):
    """NUMBA does not join the gradient of logaddexp to other loops, which would compute parts of it twice."""

    def inside(outputs):
        return [n for n in _of(outputs).with_guards().apply_nodes if isinstance(n.op, OpFromGraph)]

    cost = pt.logaddexp(x, 2 * x).sum()
    gradient = pytensor.grad(cost, x)
    assert inside([cost, gradient])
    assert inside([cost, gradient[pt.cast(x, "int64")]])
    assert not inside([pt.logsumexp(x)])  # its maximum fails if x is empty
