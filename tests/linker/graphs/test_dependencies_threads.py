"""Calls whose kernels run from one launch, from several threads, and with nothing to do for some kernels."""

import threading

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from tests.helpers import another_context, device_ops, normal, opencl, run_script

pytestmark = pytest.mark.usefixtures("on_device")

CALLS = WARMUP_CALLS + 4


def joined(f):
    """Return how many kernels run without a launch of their own, in all captured graphs."""
    steps = (step for graph in f.vm.executor.graphs.values() for step in graph.sequences)
    return sum(len(step.sequence) - step.sequence.launches for step in steps)


def test_kernels_without_elements(context, rng):
    """Stages of no work-items among others, and calls of which no stage has any."""
    x, w = pt.fmatrix("x"), pytensor.shared(normal(rng, 5, 4), "w")
    y = pt.tanh(x @ w)
    f = opencl([x], [y, y.sum(axis=0), pt.exp(w).sum(axis=1), y @ w.T])
    for rows in (3, 0):
        value = normal(rng, rows, 5)
        wanted = np.tanh(value @ w.get_value())
        expected = wanted, wanted.sum(0), np.exp(w.get_value()).sum(1), wanted @ w.get_value().T
        for _ in range(CALLS):
            for got, right in zip(f(value), expected, strict=True):
                assert got.shape == right.shape
                np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
    assert len(f.vm.executor.graphs) == 2
    assert (joined(f) > 0) == (context.batch_launcher is not None or context.launcher.merges)


def test_two_contexts_at_once(context, rng):
    """A thread for each: the host's part of one call has nothing to do with another device."""
    other, x = another_context(context), pt.fmatrix("x")
    functions = []
    for where in (context, other):
        w = pytensor_cl.shared(normal(rng, 30, 30), target=where.name)
        f = opencl([x], pt.tanh(pt.tanh(x @ w) @ w).sum(axis=1))
        assert {op.context_name for op in device_ops(f)} == {where.name}
        functions.append((f, w.get_value()))
    value, wrong = normal(rng, 20, 30), []

    def work(f, weights):
        wanted = np.tanh(np.tanh(value @ weights) @ weights).sum(1)
        wrong.extend(w for _ in range(60) if not np.allclose(w := f(value), wanted, rtol=1e-3, atol=1e-3))

    threads = [threading.Thread(target=work, args=pair) for pair in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


FORK = """
    import os, threading
    import numpy as np, pytensor, pytensor.tensor as pt
    import pytensor_cl
    pytensor_cl.use("opencl:{driver}")
    x = pt.fmatrix("x")
    f = pytensor.function([x], pt.tanh(pt.tanh(x @ x) @ x).sum(axis=1), mode="OPENCL")
    value = np.eye(60, dtype="float32")
    wanted = np.tanh(np.tanh(value @ value) @ value).sum(1)
    for _ in range(20):
        f(value)
    right, ended = [], threading.Event()
    def work():
        while not ended.is_set():
            right.append(np.allclose(f(value), wanted))
    thread = threading.Thread(target=work)
    thread.start()
    codes = []
    for _ in range(20):
        child = os.fork()
        if not child:
            os._exit(3)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    ended.set()
    thread.join()
    seen["codes"] = sorted(set(codes))
    seen["right"] = all(right) and len(right) > 0
"""


def test_the_process_forks_while_a_call_is_under_way(context):
    seen, _ = run_script(
        FORK.format(driver=context.name), flags="opencl__select_backend=False,opencl__placement=device"
    )
    assert seen == {"codes": [3], "right": True}
