"""The order of execution."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor_cl.linker.link.node_order import order_nodes
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.queue import Queue
from tests.helpers import assert_close, host_sort, opencl


def test_everything_is_enqueued_before_the_first_download(context, rng, monkeypatch):
    x = pt.matrix("x", dtype="float32")
    outputs = [f(x) for f in (pt.exp, pt.sum, lambda v: v @ v.T, lambda v: pt.tanh(v).max(0), lambda v: (v * 2)[::-1])]
    f = opencl([x], outputs)
    value = rng.normal(size=(6, 5)).astype("float32")
    f(value)
    commands = []
    launch, download = Queue.launch, Context.download
    monkeypatch.setattr(Queue, "launch", lambda self, *a: (commands.append("launch"), launch(self, *a))[1])
    monkeypatch.setattr(Context, "download", lambda self, a: (commands.append("download"), download(self, a))[1])
    results = f(value)
    # A view that is not contiguous is packed by a kernel just before it is read.
    assert commands.index("download") >= len(outputs) - 1
    assert commands[-1] == "download"
    assert_close(results[0], np.exp(value))


def test_nothing_runs_before_its_inputs(context):
    x, y = pt.matrix("x", dtype="float32"), pt.vector("y", dtype="float32")
    total = host_sort(pt.exp(x), axis=0).sum(1)
    f = opencl([x, y], [total + y, pt.set_subtensor(host_sort(x * 2)[0], y), (x @ y) * total], on_unused_input="ignore")
    order = order_nodes(f.maker.fgraph)
    assert set(order) == set(f.maker.fgraph.apply_nodes)
    at = {node: i for i, node in enumerate(order)}
    for node in order:
        assert all(v.owner is None or at[v.owner] < at[node] for v in node.inputs)
        for before in f.maker.fgraph.orderings().get(node, ()):
            assert at[before] < at[node]


def test_what_waits_comes_last(context):
    x = pt.matrix("x", dtype="float32")
    f = opencl([x], [pt.exp(x) @ x.T, host_sort(pt.tanh(x @ x.T)), pt.exp(x).sum(0)])
    kinds = [type(node.op) for node in order_nodes(f.maker.fgraph)]
    first = kinds.index(HostFromGpu)
    assert all("Gpu" not in kind.__name__ or kind is HostFromGpu for kind in kinds[first:])
    assert kinds.index(GpuFromHost) < first


def test_a_reader_comes_before_what_destroys_its_input(context):
    s = pytensor.shared(np.arange(6, dtype="float32"))
    changed = pt.set_subtensor(s[1], 100)
    f = opencl([], [pt.exp(s), host_sort(-s)], updates={s: changed})
    before = np.arange(6, dtype="float32")
    exponential, ordered = f()
    assert_close(exponential, np.exp(before))
    assert_close(ordered, np.sort(-before))
    assert s.get_value()[1] == 100
