"""Conditionals: the values stay on the device, and only what is wanted is computed."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import LazyIfElse, ifelse
from pytensor.raise_op import Assert

import pytensor_cl
from pytensor_cl.ops.ifelse import GpuIfElse, GpuLazyIfElse
from tests.helpers import (
    ALL,
    assert_all_on_device,
    assert_close,
    assert_on_device,
    counted_traffic,
    host_ops,
    host_sort,
    opencl,
)

c, k = pt.iscalar("c"), pt.lscalar("k")
x, y = pt.fmatrix("x"), pt.fmatrix("y")


@pytest.fixture
def square(rng):
    return rng.normal(size=(5, 5)).astype("float32")


def check(inputs, outputs, kind, *arguments):
    """Both branches agree with PyTensor's Python Ops, twice."""
    f = opencl(inputs, outputs)
    assert_on_device(f, kind)
    host = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    for condition in (1, 0, 1, 0):
        for got, wanted in zip(f(condition, *arguments), host(condition, *arguments), strict=True):
            assert_close(got, wanted)
    return f


def test_branches(context, square):
    f = check([c, x, y], [ifelse(c, pt.exp(x @ y), pt.tanh(x.T @ y) + y) @ x], GpuLazyIfElse, square, square + 1)
    assert_all_on_device(f)
    report = pytensor_cl.explain(f)
    assert any("tanh" in str(n.op).lower() for n in report.inner_nodes)
    assert all(isinstance(n.outer, GpuLazyIfElse) for n in report.inner_nodes) and "ifelse 1" in str(report)


def test_several_values_and_what_is_only_handed_on(context, square):
    chosen = ifelse(c, [x, pt.exp(y) @ x, y], [y @ x, x, y + 1])
    check([c, x, y], [v @ x for v in chosen], GpuLazyIfElse, square, square + 1)


def test_branches_in_branches(context, square):
    inner = ifelse(pt.gt(k, 2), pt.exp(x) @ y, pt.tanh(y) @ x)
    outputs = [ifelse(c, inner + 1, ifelse(pt.gt(k, 3), x @ x, x @ y)) @ x]
    f = opencl([c, k, x, y], outputs)
    assert_all_on_device(f, GpuLazyIfElse)
    host = pytensor.function([c, k, x, y], outputs, mode="FAST_COMPILE")
    for condition, number in ((0, 2), (0, 4), (1, 2), (1, 3)):
        assert_close(f(condition, number, square, square + 1)[0], host(condition, number, square, square + 1)[0])


def test_gradients(context, square):
    cost = (ifelse(c, pt.exp(x @ y), pt.tanh(x.T @ y) * y) ** 2).sum()
    check([c, x, y], pytensor.grad(cost, [x, y]), GpuLazyIfElse, square, square + 1)


def test_values_that_the_host_reads(context, square):
    """A number that is an index, a shape that is known without the values."""
    outputs = [
        ifelse(c, pt.exp(x)[k:] @ y, (pt.alloc(y.sum(), x.shape[0], k) @ y[:k]) / pt.cast(x.shape[0], "float32")) @ y
    ]
    f = opencl([c, k, x, y], outputs)
    assert_on_device(f, GpuLazyIfElse)
    host = pytensor.function([c, k, x, y], outputs, mode="FAST_COMPILE")
    for condition in (1, 0):
        for number in (0, 2):
            arguments = condition, number, square, square + 1
            assert_close(f(*arguments)[0], host(*arguments)[0])


@pytest.mark.parametrize("otherwise", [lambda s: s * 0, lambda s: pt.exp(s) @ s])
def test_shared_variables_stay_on_the_device(context, square, otherwise):
    s = pytensor.shared(square)
    f = opencl([c], (ifelse(c, s, otherwise(s)) @ s).sum())
    assert_on_device(f, GpuLazyIfElse)
    host = pytensor.function([c], (ifelse(c, s, otherwise(s)) @ s).sum(), mode="FAST_COMPILE")
    f(0)
    with counted_traffic() as traffic:
        results = f(1), f(0)
    assert (traffic.down, traffic.up <= 1) == (2, True)  # a number may go up, and what is asked for comes down
    assert_close(results, [host(1), host(0)])


def test_only_what_is_wanted_is_computed(context, square):
    """Nor are errors raised that the other branch would meet."""
    positive = Assert("some are negative")(x, pt.all(x > 0))
    f = opencl([c, x, y], ifelse(c, pt.exp(positive) @ y, pt.tanh(x)[pt.cast(y[0], "int64")]) @ y)
    assert_on_device(f, GpuLazyIfElse)
    good, bad = abs(square) + 0.1, np.full_like(square, 7)
    f(1, good, bad)
    f(0, -good, np.ones_like(square))
    with pytest.raises(AssertionError, match="some are negative"):
        f(1, -good, bad)
    with pytest.raises(IndexError, match="index 7 is out of bounds") as caught:
        f(0, good, bad)
    assert any("AdvancedSubtensor" in note for note in caught.value.__notes__)
    f(1, good, bad)


def test_the_report_names_what_the_host_does(context, square):
    f = opencl([c, x], ifelse(c, host_sort(pt.exp(x) @ x), x @ x) @ x)
    assert "HostSort" in str(pytensor_cl.explain(f)) and "on the host" in str(pytensor_cl.explain(f))
    assert_close(f(1, square), np.sort(np.exp(square) @ square, axis=-1) @ square, 1e-4)


def test_nodes_on_the_host_have_a_reason(context, square):
    f = opencl([c, x], ifelse(c, host_sort(x), x))
    (reason,) = [n.reason for n in pytensor_cl.explain(f).host_nodes if isinstance(n.op, LazyIfElse)]
    assert "branches" in reason
    assert_close(f(1, square), np.sort(square, axis=-1))
    with pytensor.config.change_flags(opencl__placement="host"):
        g = opencl([c, x], ifelse(c, pt.exp(x) @ x, x @ x))
    assert any(isinstance(op, LazyIfElse) for op in host_ops(g))
    if ALL:  # NUMBA compiles a product for ten seconds
        assert_close(g(1, square), np.exp(square) @ square, 1e-4)


def test_a_choice_between_what_is_there_anyway(context, square):
    a, b = x @ y, y @ x
    f = check([c, x, y], [ifelse(c, a, b) @ x, a, b], GpuIfElse, square, square + 1)
    assert_all_on_device(f)


def test_pickles(context, square):
    f = opencl([c, x], ifelse(c, pt.exp(x) @ x, x @ x))
    again = pickle.loads(pickle.dumps(f))
    for condition in (0, 1):
        assert_close(again(condition, square), f(condition, square))
