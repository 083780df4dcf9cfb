"""The report on a function."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl import explain
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from tests.helpers import another_context, host_sort, opencl


def transfers(f):
    return {(t.direction, t.what, t.nbytes, t.when) for t in explain(f).transfers}


def test_device_and_host_nodes(context):
    x = pt.tensor("x", dtype="float32", shape=(100, 3))
    f = opencl([x], host_sort(pt.exp(x) @ x.T, axis=0))
    report = explain(f)
    assert [n.context for n in report.device_nodes] == [context.name] * len(report.device_nodes)
    assert any(isinstance(n.op, GpuElemwise) and n.node.op is n.op for n in report.device_nodes)
    [host] = [n for n in report.host_nodes if "Sort" in str(n.op)]
    assert host.reason == "no OpenCL kernel for HostSort yet"
    text = str(report)
    assert text == repr(report) and text.startswith(f"{len(report.device_nodes)} nodes on devices, ")
    assert "no OpenCL kernel for HostSort yet" in text and "float32(100, 100)" in text


def test_bytes_of_transfers(context):
    x = pt.tensor("x", dtype="float32", shape=(100, 3))
    y = pt.vector("y", dtype="float64")
    big = np.ones((100, 3), "float32") * np.arange(3, dtype="float32")
    f = opencl([x, y], [pt.exp(x) * big, pt.exp(y)])
    found = transfers(f)
    here = f"to {context.name}"
    assert (here, "x", 1200, "each call") in found and (here, "y", None, "each call") in found
    assert {(d, b, w) for d, _, b, w in found} >= {("to host", 1200, "each call"), ("to host", None, "each call")}
    assert "2,400 bytes and 2 of unknown size" in str(explain(f))
    assert any(w == "once" for *_, w in found)


def test_shared_variables_follow_their_value(context):
    s = pytensor.shared(np.ones((100, 3), "float32"), name="s")
    f = opencl([], None, updates={s: pt.exp(s)})
    assert {w for *_, w in transfers(f)} == {"when changed", "never"}
    assert "0 transfers per call (0 bytes)" in str(explain(f))


def test_transfers_between_contexts(context):
    other = another_context(context)
    x = pt.tensor("x", dtype="float32", shape=(100, 3))
    f = opencl([x], pt.exp(pytensor_cl.gpu_from_host(x)).transfer(context.name).transfer(other.name))
    assert {t.direction for t in explain(f).transfers} >= {f"to {other.name}"}


def test_each_transfer_names_its_node(context):
    x = pt.matrix("x", dtype="float32")
    report = explain(opencl([x], pt.exp(x)))
    assert [type(t.node.op) for t in report.transfers] == [GpuFromHost, HostFromGpu]


def test_functions_of_other_modes_are_refused(context):
    x = pt.matrix("x", dtype="float32")
    with pytest.raises(TypeError, match="functions of mode OPENCL"):
        explain(pytensor.function([x], x * 2, mode="FAST_COMPILE"))


def test_an_empty_function(context):
    report = explain(opencl([], []))
    assert (report.device_nodes, report.host_nodes, report.transfers) == ((), (), ())
    assert str(report) == "0 nodes on devices, 0 on the host, 0 transfers per call (0 bytes)"
